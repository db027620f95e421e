"""A node's files in a directory of its own: topology, CDI specs, kubelet state, cgroups.

Scenarios and the demo without containerd play in it; the plugin sees it through `--root`. The
layout is that of a cgroup v2 node. Nothing here is read by this module: it writes what
drivers, kubelet and kernel would, and whoever owns a `World` knows what is true in it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nri_claim2core.lab import node
from nri_claim2core.lab.scenario import ClaimSpec, CpuManagerSpec, Driver, PodSpec
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.errors import UsageError
from nri_claim2core.model.topology import NodeTopology

_CGROUP_ROOT: Final = "sys/fs/cgroup"
_CPU: Final = "sys/devices/system/cpu"
_NODE: Final = "sys/devices/system/node"
_MEMORY_KB: Final = 8 << 20


class World:
    """The tree of one node below `root`, which must not be this machine's own."""

    def __init__(self, root: Path) -> None:
        if root.resolve() == Path("/"):
            raise UsageError(
                "a scenario is not written to this machine's own root",
                hint="give an empty directory or a captured one, or leave --root out",
            )
        self.root = root
        self._prepared: dict[str, ClaimSpec] = {}

    @property
    def cdi_dir(self) -> Path:
        """Where drivers write CDI specs."""
        return self.root / "var/run/cdi"

    @property
    def kubelet_dir(self) -> Path:
        """Where kubelet keeps its state."""
        return self.root / "var/lib/kubelet"

    def write_topology(self, topology: NodeTopology) -> None:
        """Write what sysfs and the root cgroup say about CPUs and memory."""
        for name, cpus in (
            ("online", topology.online),
            ("possible", topology.possible),
            ("present", topology.present),
            ("isolated", topology.isolated),
        ):
            self._write(f"{_CPU}/{name}", f"{cpus}\n")
        online = CpuSet(each.id for each in topology.nodes)
        for name in ("online", "possible"):
            self._write(f"{_NODE}/{name}", f"{online}\n")
        self._write(f"{_NODE}/has_memory", f"{topology.memory_nodes}\n")
        self._write(f"{_NODE}/has_cpu", f"{CpuSet(n.id for n in topology.nodes if n.cpus)}\n")
        for each in topology.nodes:
            size = _MEMORY_KB if each.has_memory else 0
            self._write(f"{_NODE}/node{each.id}/cpulist", f"{each.cpus}\n")
            self._write(
                f"{_NODE}/node{each.id}/meminfo", f"Node {each.id} MemTotal: {size:>14} kB\n"
            )
        self._write(f"{_CGROUP_ROOT}/cgroup.controllers", "cpuset cpu memory pids\n")
        self._write_effective(_CGROUP_ROOT, topology.online, topology.memory_nodes)

    def write_cpu_manager(self, state: CpuManagerSpec, pods: Mapping[str, PodSpec]) -> None:
        """Write kubelet's CPU manager state."""
        entries: dict[str, dict[str, str]] = {}
        for key, cpus in state.entries.items():
            pod, _, container = key.partition("/")
            entries.setdefault(pods[pod].uid, {})[container] = cpus
        node.write_cpu_manager_state(
            self.kubelet_dir,
            policy=state.policy,
            default_cpus=state.default_cpus,
            entries=entries,
        )

    def prepare(self, claims: Sequence[ClaimSpec], pods: Mapping[str, PodSpec]) -> None:
        """Let the driver write specs and kubelet store its checkpoint, in that order."""
        for claim in claims:
            self._prepared[claim.alias] = claim
            self._write_spec(claim)
        self._write_checkpoint(pods)

    def unprepare(self, claim: ClaimSpec, pods: Mapping[str, PodSpec]) -> None:
        """Let the driver remove the spec and kubelet drop the claim."""
        self.remove_spec(claim)
        self._prepared.pop(claim.alias, None)
        self._write_checkpoint(pods)

    def remove_spec(self, claim: ClaimSpec) -> None:
        """Remove a claim's spec alone; the checkpoint still knows it."""
        if claim.driver is Driver.TOPOLOGY_AWARE:
            node.remove_nri_plugins_spec(self.cdi_dir, claim.uid)
        elif claim.driver is Driver.DRA_CPU_0_1:
            self._write_shared_spec(without=claim.alias)
        else:
            node.remove_dra_cpu_spec(self.cdi_dir, claim.uid)

    def write_file(self, path: str, text: str) -> None:
        """Write a file of the node, whatever it holds."""
        self._write(path.lstrip("/"), text)

    def remove_file(self, path: str) -> None:
        """Remove a file of the node; nothing if it is not there."""
        (self.root / path.lstrip("/")).unlink(missing_ok=True)

    def place(self, tgid: int, cgroup: str, cpus: CpuSet, mems: CpuSet) -> None:
        """Put a process into a cgroup with this effective cpuset."""
        directory = f"{_CGROUP_ROOT}/{cgroup.strip('/')}"
        self._write_effective(directory, cpus, mems)
        self._write(f"{directory}/cgroup.procs", f"{tgid}\n")
        self._write(f"proc/{tgid}/cgroup", f"0::/{cgroup.strip('/')}\n")

    def confine(self, cgroup: str, cpus: CpuSet, mems: CpuSet) -> None:
        """Change the effective cpuset of a cgroup."""
        self._write_effective(f"{_CGROUP_ROOT}/{cgroup.strip('/')}", cpus, mems)

    def end(self, tgid: int, cgroup: str) -> None:
        """Let a process and its cgroup go."""
        shutil.rmtree(self.root / _CGROUP_ROOT / cgroup.strip("/"), ignore_errors=True)
        shutil.rmtree(self.root / "proc" / str(tgid), ignore_errors=True)

    def _write_spec(self, claim: ClaimSpec) -> None:
        if claim.driver is Driver.TOPOLOGY_AWARE:
            node.write_nri_plugins_spec(self.cdi_dir, claim.uid, claim.cpus, results=claim.results)
        elif claim.driver is Driver.DRA_CPU_0_1:
            self._write_shared_spec()
        else:
            node.write_dra_cpu_spec(self.cdi_dir, claim.uid, claim.cpus)

    def _write_shared_spec(self, without: str = "") -> None:
        node.write_dra_cpu_v01_spec(
            self.cdi_dir,
            {
                claim.uid: claim.cpus
                for claim in self._prepared.values()
                if claim.driver is Driver.DRA_CPU_0_1 and claim.alias != without
            },
        )

    def _write_checkpoint(self, pods: Mapping[str, PodSpec]) -> None:
        node.write_dra_manager_state(
            self.kubelet_dir,
            [
                node.PreparedClaim(
                    uid=claim.uid,
                    name=claim.alias,
                    namespace=pods[claim.pods[0]].namespace if claim.pods else "default",
                    pod_uids=[pods[pod].uid for pod in claim.pods],
                    cdi_device_ids=claim.cdi_devices,
                    driver=claim.driver.value.removesuffix("-0.1"),
                )
                for claim in self._prepared.values()
                if claim.checkpointed
            ],
        )

    def _write_effective(self, directory: str, cpus: CpuSet, mems: CpuSet) -> None:
        self._write(f"{directory}/cpuset.cpus.effective", f"{cpus}\n")
        self._write(f"{directory}/cpuset.mems.effective", f"{mems}\n")

    def _write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
