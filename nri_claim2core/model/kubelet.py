"""What kubelet's CPU manager has given out, as its state file says.

Only the static policy gives CPUs to containers; under `none` the state holds a policy name and
nothing else. A file that is there but cannot be read is *not* the same as no exclusive CPUs:
look at `readable` before drawing conclusions from an entry that is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nri_claim2core.model.cpuset import CpuSet, union
from nri_claim2core.model.ids import PodUid


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuManagerState:
    """Kubelet's `cpu_manager_state` as read at one moment."""

    policy: str = ""
    "`none`, `static` or a later name."
    default_cpus: CpuSet = field(default_factory=CpuSet)
    "The shared pool of the static policy; empty under `none`."
    entries: Mapping[PodUid, Mapping[str, CpuSet]] = field(default_factory=dict)
    "Pod UID -> container name -> its exclusive CPUs."
    readable: bool = True
    problem: str = ""
    "Why it could not be read; empty when readable."

    @property
    def pins(self) -> bool:
        """Tell whether kubelet writes cpusets on this node."""
        return self.policy not in ("", "none")

    @property
    def exclusive(self) -> CpuSet:
        """Every CPU that some container has for itself."""
        return union(cpus for pod in self.entries.values() for cpus in pod.values())

    def maybe_cpus_of(self, pod: PodUid, container: str) -> CpuSet | None:
        """Give a container's exclusive CPUs, or None when it has no entry."""
        return self.entries.get(pod, {}).get(container)
