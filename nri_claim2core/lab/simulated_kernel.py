"""A kernel for scenarios: effective cpusets as cgroup v2 has them, written to the world.

A container whose CPUs are empty, or none of which is online, gets its parent's: the kernel
accepts such a value and does not tell. That is what read-back is for, so scenarios must be able
to show it.
"""

from __future__ import annotations

import itertools

from nri_claim2core.lab.world import World
from nri_claim2core.model.cpuset import CpuSet, parse_kubernetes
from nri_claim2core.model.errors import CpuListError
from nri_claim2core.model.topology import NodeTopology
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime import BackendError
from nri_claim2core.nri.runtime.backend import FIRST_SYNTHETIC_PID

_EXIT_CODE = 137


class SimulatedKernel:
    """Runs nothing, and keeps the cgroups of what would run."""

    def __init__(self, world: World, topology: NodeTopology) -> None:
        self._world = world
        self._topology = topology
        self._tgids = itertools.count(FIRST_SYNTHETIC_PID)
        self._running: dict[str, int] = {}
        self._in_force: dict[str, tuple[CpuSet, CpuSet]] = {}

    def create(self, container: api.Container) -> int:
        """Make the container's cgroup with its cpuset; give a pid that no process has."""
        tgid = next(self._tgids)
        cpus, mems = self.would_have(container.linux.resources)
        self._world.place(tgid, container.linux.cgroups_path, cpus, mems)
        self._running[container.id] = tgid
        self._in_force[container.id] = cpus, mems
        return tgid

    def start(self, container: api.Container) -> None:
        """Do nothing."""

    def update(self, container: api.Container, resources: api.LinuxResources) -> None:
        """Put other resources into force."""
        cpus, mems = self.would_have(resources)
        self._world.confine(container.linux.cgroups_path, cpus, mems)
        self._in_force[container.id] = cpus, mems

    def stop(self, container: api.Container) -> int:
        """Remove the cgroup."""
        self._in_force.pop(container.id, None)
        self._world.end(self._running.pop(container.id), container.linux.cgroups_path)
        return _EXIT_CODE

    def in_force(self, container: api.Container) -> tuple[CpuSet, CpuSet]:
        """Give effective CPUs and memory nodes, of what is not running as it would have them."""
        return self._in_force.get(container.id) or self.would_have(container.linux.resources)

    def would_have(self, resources: api.LinuxResources) -> tuple[CpuSet, CpuSet]:
        """Give what the kernel makes of these resources.

        Raises: BackendError for text that no kernel takes.
        """
        try:
            cpus = parse_kubernetes(resources.cpu.cpus) & self._topology.online
            mems = parse_kubernetes(resources.cpu.mems) & self._topology.memory_nodes
        except CpuListError as error:
            raise BackendError(f"cannot write cpuset: {error.message}") from error
        return cpus or self._topology.online, mems or self._topology.memory_nodes
