"""The node that scenarios play in, seen through the readers that the plugin has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nri_claim2core.host.evidence import EvidenceReader
from nri_claim2core.host.topology import read_topology
from nri_claim2core.lab.scenario import ClaimSpec, CpuManagerSpec, Driver, PodSpec
from nri_claim2core.lab.world import World
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.errors import UsageError
from nri_claim2core.model.topology import NodeTopology, NumaNode

UID = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"
PODS = {"web": PodSpec(name="web", uid="1f0e9d8c-7b6a-4958-8473-625140392817")}
CLAIM = ClaimSpec(alias="a", uid=UID, cpus="0-1", pods=("web",))


def read(world):
    return EvidenceReader(str(world.root)).read()


def test_topology_comes_back(tmp_path):
    topology = NodeTopology(
        online=CpuSet([0, 1, 3]),
        possible=CpuSet(range(8)),
        present=CpuSet(range(4)),
        isolated=CpuSet([3]),
        nodes=(
            NumaNode(id=0, cpus=CpuSet([0, 1]), has_memory=True),
            NumaNode(id=2, cpus=CpuSet([3]), has_memory=False),
        ),
    )
    World(tmp_path).write_topology(topology)
    assert read_topology(str(tmp_path)) == topology


@pytest.mark.parametrize("driver", Driver)
def test_claim_comes_and_goes(tmp_path, driver):
    world = World(tmp_path)
    claim = replace(CLAIM, driver=driver)
    world.prepare([claim], PODS)
    evidence = read(world)
    assert list(evidence.cdi.devices) == list(claim.cdi_devices)
    [device] = evidence.cdi.devices.values()
    assert device.env == (f"DRA_CPUSET_{UID}=0-1",)
    [known] = evidence.checkpoint.claims.values()
    assert known.pod_uids == {PODS["web"].uid}
    assert known.cdi_ids == set(claim.cdi_devices)
    world.remove_spec(claim)
    evidence = read(world)
    assert not evidence.cdi.devices
    assert evidence.checkpoint.claims
    world.unprepare(claim, PODS)
    evidence = read(world)
    assert not evidence.cdi.devices
    assert evidence.checkpoint.readable
    assert not evidence.checkpoint.claims


def test_claim_that_kubelet_does_not_know(tmp_path):
    world = World(tmp_path)
    world.prepare([replace(CLAIM, checkpointed=False)], PODS)
    evidence = read(world)
    assert evidence.cdi.devices
    assert not evidence.checkpoint.claims


def test_cpu_manager(tmp_path):
    world = World(tmp_path)
    state = CpuManagerSpec(policy="static", default_cpus="0-1", entries={"web/main": "2-3"})
    world.write_cpu_manager(state, PODS)
    found = read(world).cpu_manager
    assert found is not None
    assert found.readable
    assert str(found.maybe_cpus_of(PODS["web"].uid, "main")) == "2-3"


def test_own_root_is_refused():
    with pytest.raises(UsageError, match="own root"):
        World(Path("/usr/.."))
