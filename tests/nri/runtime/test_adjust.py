"""A CreateContainer round: what is gathered, what the next plugin sees, who owns what."""

import pytest

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime import profile
from nri_claim2core.nri.runtime.adjust import CreateRound
from nri_claim2core.nri.runtime.owners import ConflictError, Owners

NEWEST = profile("containerd-2.4")


def start(container=None, row=NEWEST):
    container = container or api.Container(id="c")
    return CreateRound(container, row, Owners(by_field=row.has_field_owners))


def adjustment(**fields):
    return api.ContainerAdjustment(**fields)


def linux(**fields):
    return api.ContainerAdjustment(linux=api.LinuxContainerAdjustment(**fields))


def cpus(text):
    return linux(resources=api.LinuxResources(cpu=api.LinuxCPU(cpus=text)))


# Every field that one plugin owns as a whole, and every compound field with its key.
CONFLICTS = [
    (cpus("1"), "CPUSetCPUs"),
    (linux(resources=api.LinuxResources(cpu=api.LinuxCPU(mems="1"))), "CPUSetMems"),
    (linux(resources={"cpu": {"shares": {"value": 2}}}), "CPUShares"),
    (linux(resources={"cpu": {"quota": {}}}), "CPUQuota"),
    (linux(resources={"cpu": {"period": {}}}), "CPUPeriod"),
    (linux(resources={"cpu": {"realtime_runtime": {}}}), "CPURealtimeRuntime"),
    (linux(resources={"cpu": {"realtime_period": {}}}), "CPURealtimePeriod"),
    (linux(resources={"memory": {"limit": {}}}), "MemLimit"),
    (linux(resources={"memory": {"reservation": {}}}), "MemReservation"),
    (linux(resources={"memory": {"swap": {}}}), "MemSwapLimit"),
    (linux(resources={"memory": {"kernel": {}}}), "MemKernelLimit"),
    (linux(resources={"memory": {"kernel_tcp": {}}}), "MemTCPLimit"),
    (linux(resources={"memory": {"swappiness": {}}}), "MemSwappiness"),
    (linux(resources={"memory": {"disable_oom_killer": {}}}), "MemDisableOomKiller"),
    (linux(resources={"memory": {"use_hierarchy": {}}}), "MemUseHierarchy"),
    (linux(resources={"pids": {"limit": 1}}), "PidsLimit"),
    (linux(resources={"blockio_class": {"value": "x"}}), "BlockioClass"),
    (linux(resources={"rdt_class": {"value": "x"}}), "RdtClass"),
    (linux(resources={"hugepage_limits": [{"page_size": "2MB"}]}), "HugepageLimits 2MB"),
    (linux(resources={"unified": {"k": "v"}}), "CgroupsUnified k"),
    (linux(cgroups_path="/x"), "CgroupsPath"),
    (linux(oom_score_adj={}), "OomScoreAdj"),
    (linux(io_priority={}), "IoPriority"),
    (linux(seccomp_policy={}), "SeccompPolicy"),
    (linux(scheduler={}), "LinuxSched"),
    (linux(memory_policy={}), "MemoryPolicy"),
    (linux(namespaces=[{"type": "pid"}]), "Namespace pid"),
    (linux(sysctl={"a.b": "1"}), "Sysctl a.b"),
    (linux(net_devices={"eth0": {"name": "x"}}), "LinuxNetDevices eth0"),
    (linux(devices=[{"path": "/dev/x"}]), "Devices /dev/x"),
    (linux(rdt={"clos_id": {}}), "RdtClosID"),
    (linux(rdt={"schemata": {}}), "RdtSchemata"),
    (linux(rdt={"enable_monitoring": {}}), "RdtEnableMonitoring"),
    (adjustment(annotations={"k": "v"}), "Annotations k"),
    (adjustment(env=[{"key": "K"}]), "Env K"),
    (adjustment(mounts=[{"destination": "/m"}]), "Mounts /m"),
    (adjustment(args=["sh"]), "Args"),
    (adjustment(rlimits=[{"type": "RLIMIT_CORE"}]), "Rlimits RLIMIT_CORE"),
    (adjustment(CDI_devices=[{"name": "v.com/c=d"}]), "CdiDevices v.com/c=d"),
]


@pytest.mark.parametrize(("wish", "subject"), CONFLICTS, ids=[s for _, s in CONFLICTS])
def test_the_same_value_by_a_second_plugin_is_a_conflict(wish, subject):
    round_ = start()
    round_.take(wish, "10-a")
    with pytest.raises(ConflictError) as caught:
        round_.take(wish, "20-b")
    assert str(caught.value) == f'plugins "20-b" and "10-a" both tried to set {subject}'
    field, _, key = subject.partition(" ")
    owners = round_.owners.message().owners["c"]
    number = api.Field.Value(field)
    assert (owners.compound[number].owners[key] if key else owners.simple[number]) == "10-a"


def test_every_owned_field_has_a_case():
    covered = {api.Field.Value(subject.partition(" ")[0]) for _, subject in CONFLICTS}
    accumulating = {api.OciHooks, api.FieldNone}
    assert covered | accumulating == set(api.Field.values())


def test_the_next_plugin_sees_what_the_first_one_set():
    container = api.Container(id="c", env=["A=1", "B=2"], annotations={"k": "old"})
    container.linux.resources.cpu.cpus = "0-7"
    round_ = start(container)
    wish = cpus("2-3")
    wish.env.add(key="A", value="9")
    wish.env.add(key="C", value="x=y")
    wish.annotations["k"] = "new"
    wish.linux.sysctl["net.x"] = "1"
    round_.take(wish, "10-a")
    assert round_.container.linux.resources.cpu.cpus == "2-3"
    assert list(round_.container.env) == ["B=2", "A=9", "C=x=y"]
    assert round_.container.annotations["k"] == "new"
    assert round_.container.linux.sysctl["net.x"] == "1"


def test_cdi_devices_and_memory_policy_are_gathered_but_not_shown():
    round_ = start()
    wish = linux(memory_policy={"mode": "MPOL_BIND", "nodes": "0"})
    wish.CDI_devices.add(name="v.com/c=d")
    round_.take(wish, "10-a")
    assert not round_.container.CDI_devices
    assert round_.adjustment.CDI_devices[0].name == "v.com/c=d"
    assert round_.adjustment.linux.memory_policy.nodes == "0"


def test_kubelets_value_owns_nothing():
    container = api.Container(id="c")
    container.linux.resources.cpu.cpus = "0"
    round_ = start(container)
    round_.take(cpus("1"), "10-a")
    assert round_.adjustment.linux.resources.cpu.cpus == "1"


def test_explicit_zeros_are_gathered_as_present():
    round_ = start()
    round_.take(linux(resources={"memory": {"limit": {}}}, oom_score_adj={}), "10-a")
    assert round_.adjustment.linux.resources.memory.HasField("limit")
    assert round_.adjustment.linux.HasField("oom_score_adj")


def test_a_removal_lets_a_later_plugin_take_over():
    round_ = start(api.Container(id="c", env=["X=0"]))
    first = adjustment(
        env=[{"key": "X", "value": "1"}],
        mounts=[{"destination": "/m", "source": "/a"}],
        annotations={"k": "1"},
        args=["a"],
    )
    first.linux.devices.add(path="/dev/x", major=1)
    round_.take(first, "10-a")
    second = adjustment(
        env=[{"key": "-X"}, {"key": "X", "value": "2"}],
        mounts=[{"destination": "-/m"}, {"destination": "/m", "source": "/b"}],
        annotations={"-k": "", "k": "2"},
        args=["", "b"],
    )
    second.linux.devices.add(path="-/dev/x")
    second.linux.devices.add(path="/dev/x", major=2)
    round_.take(second, "20-b")
    assert list(round_.container.env) == ["X=2"]
    assert [e.value for e in round_.adjustment.env] == ["2"]
    assert [(m.destination, m.source) for m in round_.adjustment.mounts] == [("/m", "/b")]
    assert [m.source for m in round_.container.mounts] == ["/b"]
    assert dict(round_.adjustment.annotations) == {"-k": "", "k": "2"}
    assert list(round_.adjustment.args) == ["b"]
    assert [d.major for d in round_.adjustment.linux.devices] == [2]
    owners = round_.owners.message().owners["c"]
    assert owners.simple[api.Args] == "20-b"
    assert owners.compound[api.Annotations].owners["k"] == "20-b"


def test_what_is_only_removed():
    container = api.Container(id="c", env=["X=0", "Y=1"], mounts=[{"destination": "/m"}])
    container.linux.namespaces.add(type="pid")
    round_ = start(container)
    wish = adjustment(env=[{"key": "-X"}], mounts=[{"destination": "-/m"}], annotations={"-k": ""})
    wish.linux.namespaces.add(type="-pid")
    wish.linux.net_devices["-eth0"].name = ""
    round_.take(wish, "10-a")
    assert list(round_.container.env) == ["Y=1"]
    assert not round_.container.mounts
    assert not round_.container.linux.namespaces
    assert not round_.adjustment.env  # never reaches the OCI spec
    assert [m.destination for m in round_.adjustment.mounts] == ["-/m"]
    assert dict(round_.adjustment.annotations) == {"-k": ""}
    assert [n.type for n in round_.adjustment.linux.namespaces] == ["-pid"]
    assert list(round_.adjustment.linux.net_devices) == ["-eth0"]


def test_rdt_removal_clears_what_was_set():
    round_ = start()
    round_.take(linux(rdt={"clos_id": {"value": "a"}}), "10-a")
    round_.take(linux(rdt={"remove": True}), "20-b")
    assert round_.adjustment.linux.rdt == api.LinuxRdt(remove=True)
    round_.take(linux(rdt={"schemata": {"value": ["L3:0=f"]}}), "20-b")
    assert round_.adjustment.linux.rdt == api.LinuxRdt(schemata={"value": ["L3:0=f"]})


def test_hooks_of_all_plugins_add_up():
    round_ = start()
    for label in ("10-a", "20-b"):
        round_.take(adjustment(hooks={"create_runtime": [{"path": f"/{label}"}]}), label)
    assert [h.path for h in round_.adjustment.hooks.create_runtime] == ["/10-a", "/20-b"]
    assert round_.owners.message().owners["c"].simple[api.OciHooks] == "10-a,20-b"


def test_device_rules_are_appended_without_conflict():
    round_ = start()
    for label in ("10-a", "20-b"):
        round_.take(linux(resources={"devices": [{"allow": True, "access": label}]}), label)
    assert [d.access for d in round_.adjustment.linux.resources.devices] == ["10-a", "20-b"]


def test_an_older_runtime_does_not_decode_newer_fields():
    wish = linux(scheduler={"policy": "SCHED_IDLE"}, io_priority={}, memory_policy={})
    wish.args.append("sh")
    wish.linux.resources.cpu.cpus = "1"
    round_ = start(row=profile("containerd-2.1"))
    round_.take(wish, "10-a")
    assert not round_.adjustment.args
    assert not round_.adjustment.linux.HasField("scheduler")
    assert not round_.adjustment.linux.HasField("io_priority")
    assert not round_.adjustment.linux.HasField("memory_policy")
    assert round_.adjustment.linux.resources.cpu.cpus == "1"


def test_the_reply_itself_is_left_alone():
    wish = adjustment(annotations={"-k": "", "k": "v"})
    before = wish.SerializeToString(deterministic=True)
    start(row=profile("containerd-1.7")).take(wish, "10-a")
    assert wish.SerializeToString(deterministic=True) == before
