"""The demo's real stage: a private containerd with pods made through CRI.

What the report says about a container comes from the kernel (cgroup and threads) and from the
workload's own first line; the plugin is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nri_claim2core.lab.containerd import Containerd
from nri_claim2core.lab.cri import ContainerRef, Pod, Resources
from nri_claim2core.lab.demo_stage import Confinement, Running
from nri_claim2core.lab.errors import LabError
from nri_claim2core.lab.installation import Installation
from nri_claim2core.lab.kernel_view import look_at, root_cpus
from nri_claim2core.lab.workload import FIRST_MASK_IMAGE, lab_images, wait_for_first_mask
from nri_claim2core.model.cpuset import CpuSet

_REPORTS_CDI_SINCE = (2, 3, 0)


class ContainerdStage:
    """A private containerd of `installation`; needs root.

    `first_mask_source` is the C source of the workload; without it, or without a compiler, a
    shell prints the first line.
    """

    def __init__(self, installation: Installation, first_mask_source: Path | None = None) -> None:
        self._bed = Containerd(installation)
        self._images = lab_images(first_mask_source)
        self._installation = installation
        self._pods: dict[str, Pod] = {}
        self._usable = CpuSet()

    def __enter__(self) -> Self:
        try:
            self._bed.__enter__()
            self._bed.import_images(self._images)
            self._probe()
        except BaseException:
            self._bed.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bed.close()

    @property
    def title(self) -> str:
        """Name and version of the runtime."""
        return f"a private containerd {self._installation.text}, real containers through CRI"

    @property
    def limits(self) -> Sequence[str]:
        """What this containerd cannot show."""
        if self._installation.version >= _REPORTS_CDI_SINCE:
            return ()
        name = f"containerd {self._installation.text}"
        return (f"{name} reports no CDI devices: claims are proven by spec and checkpoint",)

    @property
    def usable(self) -> CpuSet:
        """What the root of the cpuset hierarchy gives."""
        return self._usable

    @property
    def root(self) -> Path:
        """The machine's own root."""
        return Path("/")

    @property
    def cdi_dir(self) -> Path:
        """The bed's /var/run/cdi."""
        return self._bed.paths.cdi_dir

    @property
    def kubelet_dir(self) -> Path:
        """The bed's /var/lib/kubelet."""
        return self._bed.paths.kubelet_dir

    @property
    def plugin_config(self) -> Mapping[str, Any]:
        """The bed's places."""
        return {
            "plugin": {"socketPath": str(self._bed.paths.nri_socket)},
            "cdi": {"specDirs": [str(self.cdi_dir)]},
            "kubelet": {"root": str(self.kubelet_dir)},
        }

    def _probe(self) -> None:
        """Run an empty pod: where that fails (cgroups, mounts), nothing here is of use."""
        self._usable = root_cpus()
        self._bed.cri.remove_pod(self._bed.cri.run_pod("probe"))

    def run_pod(self, name: str, uid: str) -> None:
        """Start a host-network pod."""
        self._pods[name] = self._bed.cri.run_pod(name, uid=uid)

    def remove_pod(self, name: str) -> None:
        """Stop and remove a pod."""
        self._bed.cri.remove_pod(self._pods.pop(name))

    def start(
        self, pod: str, name: str, devices: Sequence[str] = (), *, attempt: int = 0
    ) -> Running:
        """Create and start the workload that prints its own CPUs and stays."""
        made = self._bed.cri.create_container(
            self._pods[pod],
            name,
            image=FIRST_MASK_IMAGE,
            args=["pause"],
            cdi_devices=devices,
            attempt=attempt,
        )
        self._bed.cri.start(made.id)
        return Running(
            id=made.id, pod=pod, name=name, attempt=attempt, devices=tuple(devices), handle=made
        )

    def stop(self, container: Running) -> None:
        """Stop and remove a container."""
        self._bed.cri.stop(container.id)
        self._bed.cri.remove(container.id)

    def update(self, container: Running, cpus: CpuSet) -> None:
        """Send CRI's UpdateContainerResources with a cpuset alone."""
        self._bed.cri.update_resources(container.id, Resources(cpuset_cpus=str(cpus)))

    def confinement(self, container: Running) -> Confinement:
        """Give the effective cpuset of the workload's cgroup.

        Raises: LabError also when a thread has another mask than its cgroup.
        """
        view = look_at(self._bed.cri.status(container.id).pid)
        if not view.thread_cpus <= view.cgroup_cpus:
            raise LabError(
                f"{container.title}: threads may use {view.thread_cpus}, its cgroup only "
                f"{view.cgroup_cpus}"
            )
        return Confinement(cpus=view.cgroup_cpus, mems=view.cgroup_mems)

    def first_act(self, container: Running) -> Confinement:
        """Read the first line of the container's log."""
        if not isinstance(container.handle, ContainerRef):
            raise LabError(f"{container.title} was not started on this stage")
        seen = wait_for_first_mask(container.handle.log_path)
        return Confinement(
            cpus=CpuSet(seen.cpus), mems=CpuSet(seen.mems) if seen.mems is not None else None
        )

    def restart_runtime(self) -> None:
        """Restart containerd."""
        self._bed.restart()
