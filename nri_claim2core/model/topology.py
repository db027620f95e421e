"""The node's CPUs and memory nodes as the kernel numbers them.

One rule lives here that is easy to get wrong: the memory nodes that belong to a set of CPUs
are those that *have memory*. A node may have CPUs and no memory (its number is refused in
`cpuset.mems` on cgroup v1, and silently replaced by the parent's nodes on v2), or memory and no
CPUs (it belongs to nobody's CPUs). A value, not a reader: `host.topology` makes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nri_claim2core.model.cpuset import CpuSet


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """One NUMA node that is online."""

    id: int
    cpus: CpuSet
    "Its online CPUs; empty for a node of memory alone."
    has_memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTopology:
    """CPUs by state, and NUMA nodes in ascending order of their numbers."""

    online: CpuSet
    possible: CpuSet
    "CPUs that may ever come online in this boot."
    present: CpuSet
    isolated: CpuSet = field(default_factory=CpuSet)
    "CPUs the kernel keeps out of its own load balancing (isolcpus, isolated partitions)."
    nodes: tuple[NumaNode, ...] = ()

    @property
    def offline(self) -> CpuSet:
        """Possible CPUs that are not online."""
        return self.possible - self.online

    @property
    def memory_nodes(self) -> CpuSet:
        """Every node that has memory."""
        return CpuSet(node.id for node in self.nodes if node.has_memory)

    def memory_nodes_of(self, cpus: CpuSet) -> CpuSet:
        """Give the nodes with memory that at least one of these CPUs is on.

        Empty when none of the CPUs is online or all sit on nodes without memory: the caller
        leaves the memory nodes of such a container alone.
        """
        return CpuSet(
            node.id for node in self.nodes if node.has_memory and not node.cpus.isdisjoint(cpus)
        )
