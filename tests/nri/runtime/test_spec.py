"""What a runtime makes of a gathered adjustment in its OCI spec."""

import pytest

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime import profile
from nri_claim2core.nri.runtime.spec import apply_adjustment

NEWEST = profile("containerd-2.4")


def apply(container, row=NEWEST, **fields):
    wish = api.ContainerAdjustment(**fields)
    return apply_adjustment(container, wish, row)


def test_environment_keeps_its_order_and_drops_what_has_no_value():
    container = api.Container(env=["A=1", "BARE", "B=2"])
    apply(container, env=[{"key": "B", "value": "9"}, {"key": "C", "value": "3"}])
    assert list(container.env) == ["A=1", "B=9", "C=3"]


def test_nothing_asked_for_changes_nothing():
    container = api.Container(env=["BARE"], mounts=[{"destination": "/z"}, {"destination": "/a"}])
    before = api.Container.FromString(container.SerializeToString())
    apply(container)
    assert list(container.env) == list(before.env)
    assert container.mounts == before.mounts


def test_annotations_are_removed_before_they_are_set():
    container = api.Container(annotations={"k": "old", "gone": "x", "kept": "y"})
    apply(container, annotations={"-k": "", "k": "new", "-gone": ""})
    assert dict(container.annotations) == {"k": "new", "kept": "y"}


def test_mounts_are_replaced_and_sorted_by_depth():
    container = api.Container(mounts=[{"destination": "/a/b/c"}, {"destination": "/x"}])
    apply(container, mounts=[{"destination": "/a", "source": "s"}, {"destination": "-/x"}])
    assert [(m.destination, m.source) for m in container.mounts] == [("/a", "s"), ("/a/b/c", "")]


def test_only_the_memory_limit_reaches_the_spec_and_sets_swap():
    container = api.Container()
    memory = {"limit": {"value": 100}, "swap": {"value": 7}, "reservation": {"value": 5}}
    apply(container, linux={"resources": {"memory": memory}})
    stored = container.linux.resources.memory
    assert (stored.limit.value, stored.swap.value) == (100, 100)
    assert not stored.HasField("reservation")


def test_cpu_values():
    container = api.Container()
    container.linux.resources.cpu.mems = "0-1"
    cpu = {"cpus": "2-3", "shares": {"value": 2048}, "quota": {}}
    apply(container, linux={"resources": {"cpu": cpu}})
    stored = container.linux.resources.cpu
    assert (stored.cpus, stored.mems, stored.shares.value) == ("2-3", "0-1", 2048)
    assert stored.HasField("quota")


def test_a_device_brings_its_rule():
    container = api.Container()
    apply(container, linux={"devices": [{"path": "/dev/x", "type": "c", "major": 1, "minor": 2}]})
    assert container.linux.devices[0].path == "/dev/x"
    rule = container.linux.resources.devices[0]
    assert (rule.allow, rule.type, rule.major.value, rule.minor.value) == (True, "c", 1, 2)
    apply(container, linux={"devices": [{"path": "-/dev/x"}]})
    assert not container.linux.devices


def test_scalars_and_maps_of_linux():
    container = api.Container(args=["old"])
    container.linux.namespaces.add(type="pid", path="/p")
    apply(
        container,
        args=["new"],
        hooks={"poststop": [{"path": "/h"}]},
        rlimits=[{"type": "RLIMIT_CORE"}],
        linux={
            "cgroups_path": "/cg",
            "oom_score_adj": {},
            "scheduler": {"policy": "SCHED_BATCH"},
            "sysctl": {"a": "1"},
            "net_devices": {"eth0": {"name": "n"}},
            "namespaces": [{"type": "-pid"}, {"type": "ipc", "path": "/i"}],
            "resources": {"pids": {"limit": 3}, "unified": {"u": "v"}},
            "rdt": {"clos_id": {"value": "c"}},
        },
    )
    linux = container.linux
    assert list(container.args) == ["new"]
    assert container.hooks.poststop[0].path == "/h"
    assert container.rlimits[0].type == "RLIMIT_CORE"
    assert linux.cgroups_path == "/cg"
    assert linux.HasField("oom_score_adj")
    assert linux.scheduler.policy == api.SCHED_BATCH
    assert dict(linux.sysctl) == {"a": "1"}
    assert linux.net_devices["eth0"].name == "n"
    assert [(n.type, n.path) for n in linux.namespaces] == [("ipc", "/i")]
    assert linux.resources.pids.limit == 3
    assert linux.resources.unified["u"] == "v"
    assert linux.rdt.clos_id.value == "c"
    apply(container, linux={"rdt": {"remove": True}})
    assert not container.linux.HasField("rdt")


@pytest.mark.parametrize(
    ("key", "injected"),
    [
        ("containerd-1.7", ("v.com/c=d",)),
        ("containerd-2.0", ()),  # drops them silently
        ("containerd-2.1", ("v.com/c=d",)),
        ("cri-o-1.33", ()),
        ("cri-o-1.34", ("v.com/c=d",)),
    ],
)
def test_which_releases_inject_cdi_devices(key, injected):
    row = profile(key)
    assert apply(api.Container(), row, CDI_devices=[{"name": "v.com/c=d"}]) == injected
