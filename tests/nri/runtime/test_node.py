"""Which fields each release shows; the table is that of the releases' own sources."""

import pytest

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime import PROFILES, profile
from nri_claim2core.nri.runtime.node import (
    ContainerRecord,
    Node,
    Phase,
    PodRecord,
    Told,
    show_container,
    show_pod,
)

FULL = api.Container(
    id="c",
    pod_sandbox_id="p",
    env=["A=1"],
    rlimits=[{"type": "RLIMIT_CORE"}],
    CDI_devices=[{"name": "v.com/c=d"}],
    user={"uid": 1},
    image={"name": "i"},
    status_reason="never shown",
    status_message="never shown",
    linux={
        "cgroups_path": "/x",
        "resources": {"pids": {"limit": 1}, "cpu": {"cpus": "1"}},
        "io_priority": {"priority": 1},
        "scheduler": {"nice": 1},
        "rdt": {"clos_id": {"value": "x"}},
        "net_devices": {"eth0": {"name": "n"}},
        "seccomp_profile": {"localhost_ref": "x"},
        "seccomp_policy": {"default_action": "x"},
        "sysctl": {"a": "b"},
    },
)

SCHEDULING = {"io_priority", "scheduler", "rdt", "net_devices"}
ALWAYS = {"id", "pod_sandbox_id", "state", "env", "cgroups_path", "resources"}
OF_2_3 = (
    {"pid", "created_at", "started_at", "rlimits", "user", "CDI_devices", "pids"}
    | SCHEDULING
    | {"seccomp_profile", "seccomp_policy", "sysctl"}
)
SHOWN = {
    "containerd-1.7.25": {"pid"},
    "containerd-1.7": {"pid", "pids"},
    "containerd-2.0": {"pid", "pids"},
    "containerd-2.1": {"pid", "pids"},
    "containerd-2.2": {"pid", "pids", "seccomp_profile"} | SCHEDULING,
    "containerd-2.3": OF_2_3,
    "containerd-2.4": OF_2_3 | {"image"},
    "cri-o-1.33": {"pids"},
    "cri-o-1.34": {"pids"},
    "cri-o-1.35": {"pids"} | SCHEDULING,
    "cri-o-1.36": {"pids", "pid", "created_at", "started_at", "rlimits", "user"} | SCHEDULING,
}


@pytest.mark.parametrize("key", PROFILES)
def test_fields_shown(key):
    record = ContainerRecord(spec=FULL, phase=Phase.RUNNING, pid=7, created_at=1, started_at=2)
    shown = show_container(record, profile(key))
    names = {field.name for field, _ in shown.ListFields()} - {"linux"}
    names |= {field.name for field, _ in shown.linux.ListFields()}
    names |= {"pids"} if shown.linux.resources.HasField("pids") else set()
    assert names == ALWAYS | SHOWN[key]
    assert FULL.status_reason  # the stored container is left alone


@pytest.mark.parametrize("key", PROFILES)
def test_pod_addresses(key):
    shown = show_pod(api.PodSandbox(id="p", ips=["10.0.0.1"], pid=3), profile(key))
    expected = key not in {"containerd-1.7.25", "containerd-1.7", "containerd-2.0"}
    assert bool(shown.ips) is expected
    assert shown.pid == 3


def test_synchronize_has_every_pod_and_what_has_not_exited():
    node = Node()
    node.pods["p"] = PodRecord(pod=api.PodSandbox(id="p"), is_ready=False)
    for key, phase in (("a", Phase.CREATED), ("b", Phase.RUNNING), ("c", Phase.EXITED)):
        node.containers[key] = ContainerRecord(spec=api.Container(id=key), phase=phase)
    pods, containers = node.for_synchronize(profile("containerd-2.3"))
    assert [p.id for p in pods] == ["p"]
    assert [(c.id, c.state) for c in containers] == [
        ("a", api.CONTAINER_CREATED),
        ("b", api.CONTAINER_RUNNING),
    ]
    assert node.told == {"a": Told.CREATED, "b": Told.RUNNING}
    assert node.needs_stop("a")
    assert not node.needs_removal("c")
