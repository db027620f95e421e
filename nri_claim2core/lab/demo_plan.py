"""Which CPUs the demo's claims get on this machine, and what it cannot show here.

Pure. Two disjoint sets are enough for every act; they go to different memory nodes where there
are several, and leave some CPUs alone where there are enough, so that being confined looks
different from not being confined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nri_claim2core.lab.errors import MissingError
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.topology import NodeTopology

MIN_CPUS: Final = 2
_CLAIM_SIZES: Final = ((32, 4), (8, 2), (MIN_CPUS, 1))
"""(CPUs the machine must have, CPUs of one claim)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """Sets of CPUs that the script hands out as claims."""

    usable: CpuSet
    first: CpuSet
    second: CpuSet
    limits: tuple[str, ...]
    "What cannot be told apart on this machine, in words."

    @property
    def elsewhere(self) -> CpuSet:
        """Where the kubelet-style update tries to move the holder of `first`."""
        return self.usable - self.first


def plan_claims(topology: NodeTopology, usable: CpuSet) -> DemoPlan:
    """Choose the claims' CPUs among the usable ones of a machine.

    Raises: MissingError with fewer than two usable CPUs.
    """
    if len(usable) < MIN_CPUS:
        raise MissingError(f"the demo needs {MIN_CPUS} CPUs, usable here: {usable or 'none'}")
    size = next(size for least, size in _CLAIM_SIZES if len(usable) >= least)
    nodes = [node.cpus & usable for node in topology.nodes if node.has_memory]
    nodes = [cpus for cpus in nodes if len(cpus) >= size]
    # CPU 0 last: it is the one that a machine's own work is most often on.
    if len(nodes) > 1:
        first, second = _take(nodes[0], size), _take(nodes[-1], size)
    else:
        order = [*list(usable)[1:], next(iter(usable))]
        first, second = CpuSet(order[:size]), CpuSet(order[size : 2 * size])
    return DemoPlan(
        usable=usable,
        first=first,
        second=second,
        limits=tuple(_limits(topology, usable, first, second)),
    )


def _take(cpus: CpuSet, size: int) -> CpuSet:
    members = list(cpus)
    return CpuSet([*members[1:], members[0]][:size])


def _limits(topology: NodeTopology, usable: CpuSet, first: CpuSet, second: CpuSet) -> list[str]:
    limits = []
    if len(topology.memory_nodes) < MIN_CPUS:
        limits.append("one memory node: a container confined to it looks like one that is not")
    if first | second == usable:
        limits.append(
            f"{len(usable)} CPUs: a container with both claims may use all of them, as one "
            "without claims may"
        )
    return limits
