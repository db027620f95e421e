"""Effective cpusets of the simulated kernel, as cgroup-v2.rst describes them."""

from __future__ import annotations

import pytest

from nri_claim2core.host.cgroups import CgroupReader
from nri_claim2core.lab.simulated_kernel import SimulatedKernel
from nri_claim2core.lab.world import World
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.topology import NodeTopology, NumaNode
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime import BackendError

ONLINE = CpuSet(range(4))
TOPOLOGY = NodeTopology(
    online=ONLINE,
    possible=CpuSet(range(8)),
    present=CpuSet(range(8)),
    nodes=(
        NumaNode(id=0, cpus=CpuSet([0, 1]), has_memory=True),
        NumaNode(id=1, cpus=CpuSet([2, 3]), has_memory=False),
    ),
)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.write_topology(TOPOLOGY)
    return world


def container(cpus="", mems=""):
    message = api.Container(id="c1", linux=api.LinuxContainer(cgroups_path="/pods/p/c1"))
    message.linux.resources.cpu.cpus = cpus
    message.linux.resources.cpu.mems = mems
    return message


@pytest.mark.parametrize(
    ("cpus", "mems", "in_force"),
    [
        ("1-2", "0", ("1-2", "0")),
        ("", "", ("0-3", "0")),
        # What is offline or has no memory is not effective; with nothing left, the parent's.
        ("3-5", "0-1", ("3", "0")),
        ("6-7", "1", ("0-3", "0")),
    ],
)
def test_effective_cpuset(world, cpus, mems, in_force):
    kernel = SimulatedKernel(world, TOPOLOGY)
    message = container(cpus, mems)
    tgid = kernel.create(message)
    assert tuple(map(str, kernel.in_force(message))) == in_force
    # The node's own reader finds the same in the files.
    reader = CgroupReader(str(world.root))
    found = reader.locate("/pods/p/c1", tgid)
    assert found.confirmed
    assert tuple(map(str, reader.read_effective(found.leaf))) == in_force


def test_update_and_end(world):
    kernel = SimulatedKernel(world, TOPOLOGY)
    message = container("1")
    tgid = kernel.create(message)
    message.linux.resources.cpu.cpus = "2"
    assert str(kernel.in_force(message)[0]) == "1"
    kernel.update(message, message.linux.resources)
    assert str(kernel.in_force(message)[0]) == "2"
    kernel.stop(message)
    assert not (world.root / "sys/fs/cgroup/pods/p/c1").exists()
    assert not (world.root / f"proc/{tgid}").exists()


def test_text_that_no_kernel_takes(world):
    with pytest.raises(BackendError, match="cannot write cpuset"):
        SimulatedKernel(world, TOPOLOGY).create(container("a-b"))
