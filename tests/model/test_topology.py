"""Which memory belongs to which CPUs."""

from __future__ import annotations

import pytest

from nri_claim2core.model.cpuset import CpuSet, parse_kubernetes
from nri_claim2core.model.topology import NodeTopology, NumaNode

TOPOLOGY = NodeTopology(
    online=parse_kubernetes("0-6"),
    possible=parse_kubernetes("0-9"),
    present=parse_kubernetes("0-7"),
    nodes=(
        NumaNode(id=0, cpus=parse_kubernetes("0-1"), has_memory=True),
        NumaNode(id=1, cpus=parse_kubernetes("2-4"), has_memory=True),
        NumaNode(id=2, cpus=parse_kubernetes("5-6"), has_memory=False),
        NumaNode(id=3, cpus=CpuSet(), has_memory=True),
    ),
)


@pytest.mark.parametrize(
    ("cpus", "mems"),
    [
        ("0", "0"),
        ("0-1", "0"),
        ("1-2", "0-1"),
        ("0-6", "0-1"),
        ("4-5", "1"),
        ("5-6", ""),
        ("7", ""),
        ("7-8", ""),
        ("", ""),
    ],
)
def test_memory_nodes_of(cpus, mems):
    assert str(TOPOLOGY.memory_nodes_of(parse_kubernetes(cpus))) == mems


def test_offline_and_memory_nodes():
    assert str(TOPOLOGY.offline) == "7-9"
    assert str(TOPOLOGY.memory_nodes) == "0-1,3"
