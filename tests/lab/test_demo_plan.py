"""The CPUs that the demo hands out, worked out by hand for machines of several shapes."""

from __future__ import annotations

import pytest

from nri_claim2core.lab.demo_plan import plan_claims
from nri_claim2core.lab.errors import MissingError
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.topology import NodeTopology, NumaNode


def machine(*nodes):
    numa = tuple(
        NumaNode(id=index, cpus=CpuSet(cpus), has_memory=memory)
        for index, (cpus, memory) in enumerate(nodes)
    )
    online = CpuSet(cpu for node in numa for cpu in node.cpus)
    return NodeTopology(online=online, possible=online, present=online, nodes=numa)


def plan(*nodes, usable=None):
    topology = machine(*nodes)
    made = plan_claims(topology, topology.online if usable is None else CpuSet(usable))
    return str(made.first), str(made.second), made


@pytest.mark.parametrize(
    ("nodes", "first", "second"),
    [
        ([(range(2), True)], "1", "0"),
        ([(range(3), True)], "1", "2"),
        ([(range(4), True)], "1", "2"),
        ([(range(8), True)], "1-2", "3-4"),
        ([(range(64), True)], "1-4", "5-8"),
        ([(range(4), True), (range(4, 8), True)], "1-2", "5-6"),
        # A node without memory gets no claim, nor does one too small.
        ([(range(4), True), (range(4, 8), False)], "1-2", "3-4"),
        ([(range(7), True), (range(7, 8), True)], "1-2", "3-4"),
    ],
)
def test_claims(nodes, first, second):
    assert plan(*nodes)[:2] == (first, second)


def test_only_usable_cpus_are_claimed():
    first, second, made = plan((range(8), True), usable=[2, 3, 6])
    assert (first, second) == ("3", "6")
    assert str(made.elsewhere) == "2,6"


def test_what_cannot_be_told_apart_is_said():
    small = plan((range(2), True))[2].limits
    assert len(small) == 2
    assert "memory node" in small[0]
    assert "both claims" in small[1]
    assert plan((range(4), True), (range(4, 8), True))[2].limits == ()


def test_one_cpu_is_too_few():
    with pytest.raises(MissingError, match="needs 2 CPUs, usable here: 5"):
        plan((range(8), True), usable=[5])
