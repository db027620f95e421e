"""The demo's stage without root or containerd: the embedded runtime with real processes.

The plugin is the same process as on a real node and registers at a socket; what is played is
the runtime (events, order, messages of the newest containerd) and the cgroups (affinity of
plain processes instead). CPUs are still judged by what the kernel says of the processes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from nri_claim2core.lab.demo_processes import ProcessBackend
from nri_claim2core.lab.demo_stage import Confinement, Running
from nri_claim2core.lab.errors import LabError
from nri_claim2core.lab.messages import container_message, pod_message, sandbox_id
from nri_claim2core.lab.scenario import ContainerSpec, PodSpec
from nri_claim2core.lab.workload import parse_first_mask
from nri_claim2core.lab.world import World
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.topology import NodeTopology
from nri_claim2core.nri.runtime import EmbeddedRuntime

_PROFILE: Final = "containerd-2.4"
_FIRST_ACT_DEADLINE_S: Final = 10.0
_POLL_S: Final = 0.005


class EmbeddedStage:
    """The embedded runtime on the CPUs `usable` of this machine; needs no rights."""

    def __init__(self, topology: NodeTopology, usable: CpuSet) -> None:
        self._topology = topology
        self._usable = usable
        self._stack = ExitStack()
        self._pods: dict[str, PodSpec] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="c2c-demo-")))
            self._world = World(base / "root")
            self._world.write_topology(self._topology)
            (base / "logs").mkdir()
            self._backend = ProcessBackend(
                self._world, self._usable, self._topology.memory_nodes, base / "logs"
            )
            stack.callback(self._backend.close)
            self._runtime = stack.enter_context(EmbeddedRuntime(_PROFILE, backend=self._backend))
            self._socket = base / "nri.sock"
            self._runtime.listen(self._socket)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def title(self) -> str:
        """What is played and what is real."""
        return f"the embedded runtime (as {_PROFILE}), real processes pinned by affinity"

    @property
    def limits(self) -> Sequence[str]:
        """What a played runtime cannot show."""
        return (
            "a real runtime, cgroups and memory nodes: run as root on a machine with containerd",
        )

    @property
    def usable(self) -> CpuSet:
        """The CPUs that this process may use."""
        return self._usable

    @property
    def root(self) -> Path:
        """The tree that stands for the node."""
        return self._world.root

    @property
    def cdi_dir(self) -> Path:
        """The tree's /var/run/cdi."""
        return self._world.cdi_dir

    @property
    def kubelet_dir(self) -> Path:
        """The tree's /var/lib/kubelet."""
        return self._world.kubelet_dir

    @property
    def plugin_config(self) -> Mapping[str, Any]:
        """Only the socket is not where a node has it."""
        return {"plugin": {"socketPath": str(self._socket)}}

    def run_pod(self, name: str, uid: str) -> None:
        """Start a pod sandbox."""
        self._pods[name] = PodSpec(name=name, uid=uid)
        self._runtime.run_pod(pod_message(self._pods[name])).check()

    def remove_pod(self, name: str) -> None:
        """Stop and remove a pod."""
        pod = sandbox_id(self._pods.pop(name))
        self._runtime.stop_pod(pod).check()
        self._runtime.remove_pod(pod).check()

    def start(
        self, pod: str, name: str, devices: Sequence[str] = (), *, attempt: int = 0
    ) -> Running:
        """Create and start a process that prints its own CPUs and stays."""
        spec = ContainerSpec(key=f"{pod}/{name}", cdi_devices=tuple(devices))
        message = container_message(self._pods[pod], spec, {}, attempt)
        self._runtime.create_container(message.pod_sandbox_id, message).check()
        self._runtime.start_container(message.id).check()
        return Running(
            id=message.id,
            pod=pod,
            name=name,
            attempt=attempt,
            devices=tuple(devices),
            handle=None,
        )

    def stop(self, container: Running) -> None:
        """Stop and remove a container."""
        self._runtime.stop_container(container.id).check()
        self._runtime.remove_container(container.id).check()

    def update(self, container: Running, cpus: CpuSet) -> None:
        """Update a container's cpuset as a kubelet's CPU manager would."""
        self._runtime.update_cpuset(container.id, str(cpus)).check()

    def confinement(self, container: Running) -> Confinement:
        """Give the affinity of the container's process."""
        try:
            cpus = CpuSet(os.sched_getaffinity(self._backend.tgid(container.id)))
        except OSError as error:
            raise LabError(f"{container.title} does not run: {error}") from error
        return Confinement(cpus=cpus, mems=None)

    def first_act(self, container: Running) -> Confinement:
        """Read the first line that the process printed."""
        log = self._backend.log_file(container.id)
        deadline = time.monotonic() + _FIRST_ACT_DEADLINE_S
        while "\n" not in (text := log.read_text()):
            if time.monotonic() > deadline:
                raise LabError(f"{container.title} printed nothing")
            time.sleep(_POLL_S)
        seen = parse_first_mask(text.splitlines()[0])
        return Confinement(cpus=CpuSet(seen.cpus), mems=None)

    def restart_runtime(self) -> None:
        """Restart the runtime; the processes live on."""
        self._runtime.restart()
