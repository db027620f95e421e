"""Where the demo plays: a runtime with real containers or processes, behind one interface.

The script in `demo` knows only this. `demo_containerd` plays it on a private containerd,
`demo_embedded` on the embedded runtime with plain processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nri_claim2core.model.cpuset import CpuSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """CPUs and memory nodes of a running container, from the kernel."""

    cpus: CpuSet
    mems: CpuSet | None
    "None where this stage cannot confine memory."


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A container that was started on a stage."""

    id: str
    pod: str
    name: str
    attempt: int
    devices: tuple[str, ...]
    handle: object
    "The stage's own."

    @property
    def title(self) -> str:
        """`pod/name`, from the first restart on with its number: `pod/name#1`."""
        restart = f"#{self.attempt}" if self.attempt else ""
        return f"{self.pod}/{self.name}{restart}"


class Stage(Protocol):
    """A runtime to play on; a context manager, and every method blocks until it is done."""

    @property
    def title(self) -> str:
        """What this is, for the first line of the report."""

    @property
    def limits(self) -> Sequence[str]:
        """What cannot be shown on this stage, in words."""

    @property
    def usable(self) -> CpuSet:
        """CPUs of a container that nobody confines."""

    @property
    def root(self) -> Path:
        """The plugin's --root."""

    @property
    def cdi_dir(self) -> Path:
        """Where the driver writes CDI specs, on this machine."""

    @property
    def kubelet_dir(self) -> Path:
        """Where kubelet writes its checkpoint, on this machine."""

    @property
    def plugin_config(self) -> Mapping[str, Any]:
        """What the plugin's configuration says about this stage."""

    def run_pod(self, name: str, uid: str) -> None:
        """Start a pod sandbox."""

    def remove_pod(self, name: str) -> None:
        """Stop and remove a pod with its containers."""

    def start(
        self, pod: str, name: str, devices: Sequence[str] = (), *, attempt: int = 0
    ) -> Running:
        """Create and start a container that was given these CDI devices."""

    def stop(self, container: Running) -> None:
        """Stop and remove a container."""

    def update(self, container: Running, cpus: CpuSet) -> None:
        """Set a container's CPUs as a kubelet's CPU manager would."""

    def confinement(self, container: Running) -> Confinement:
        """Ask the kernel."""

    def first_act(self, container: Running) -> Confinement:
        """Give what the workload itself printed before anything else."""

    def restart_runtime(self) -> None:
        """Stop and start the runtime; containers live on."""
