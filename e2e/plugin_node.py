"""One node for the tests of the plugin process: containerd, our plugin, driver and kubelet.

The plugin is the real process, started as on a node; the runtime is a real containerd. What
a test expects comes from the workload's own first line, from /proc and the cgroup files, and
from CRI. The plugin's own state is looked at only beside these.

`claim` does what a DRA driver does (a CDI spec), `pod` what kubelet does before the first
container of a pod (its checkpoint names the pod), `run` and `create` ask for containers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from e2e.peers.go_runtime import peer_binary
from e2e.peers.need import need_go_peers
from nri_claim2core.lab import node as labnode
from nri_claim2core.lab.containerd import Containerd
from nri_claim2core.lab.cri import ContainerRef, Pod, Resources
from nri_claim2core.lab.errors import CriError, LabError
from nri_claim2core.lab.kernel_view import look_at, root_cpus
from nri_claim2core.lab.patience import SCALE
from nri_claim2core.lab.plugin_process import PluginProcess
from nri_claim2core.lab.workload import FIRST_MASK_IMAGE, FirstMask, wait_for_first_mask

REPORTS_CDI_SINCE = (2, 3, 0)
VALIDATES_SINCE = (2, 2, 0)
NEEDS_CPUS_0_AND_1 = "needs CPUs 0 and 1"
HAS_CPUS_0_AND_1 = {0, 1} <= os.sched_getaffinity(0)

WAIT_S = 15.0 * SCALE
_POLL_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A prepared claim."""

    uid: str
    cpus: str
    device: str

    @property
    def variable(self) -> str:
        return f"DRA_CPUSET_{self.uid}"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """What the kernel says about a running workload."""

    cpus: frozenset[int]
    "Effective CPUs of its cgroup; every thread's own mask is the same."
    mems: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """CPU limits of a running workload, as the kernel has them."""

    shares: int
    quota_us: int
    "Per period; -1 for none."


@dataclass(kw_only=True)
class Workload:
    """A running container and what it said first."""

    ref: ContainerRef
    first: FirstMask

    @property
    def id(self) -> str:
        return self.ref.id


class PluginNode:
    """The bed of a node and the plugin on it; `config` is merged over the bed's places."""

    def __init__(
        self, bed: Containerd, directory: Path, config: Mapping[str, Any] | None = None
    ) -> None:
        self.bed = bed
        self.directory = directory
        self._default = dict(config or {})
        self._config: dict[str, Any] = dict(self._default)
        self._prepared: dict[str, labnode.PreparedClaim] = {}
        self._pods: list[Pod] = []
        self.plugin = self._made()

    def __enter__(self) -> Self:
        self.plugin.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.plugin.close()

    # -- the plugin -----------------------------------------------------------------------

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration in force."""
        places = {
            "plugin": {"socketPath": str(self.bed.paths.nri_socket)},
            "cdi": {"specDirs": [str(self.bed.paths.cdi_dir)]},
            "kubelet": {"root": str(self.bed.paths.kubelet_dir)},
        }
        return {**places, **self._config}

    def configure(self, **config: Any) -> None:
        """Restart the plugin with other options, until the end of the test."""
        self.plugin.close()
        self._config = {**self._default, **config}
        self.plugin = self._made()
        self.plugin.start()

    def log_size(self) -> int:
        """Where the plugin's log ends now; for `logged`."""
        return self.plugin.log_file.stat().st_size

    def logged(self, message: str, since: int = 0) -> list[dict[str, Any]]:
        """Lines of the plugin's log with this message."""
        text = self.plugin.log_file.read_bytes()[since:].decode()
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("msg") == message]

    def entry(self, container: Workload | ContainerRef) -> dict[str, Any] | None:
        """What the plugin knows of a container; None for one without any link."""
        found = [
            entry
            for entry in self.plugin.state()["containers"]
            if entry["container"]["id"] == container.id
        ]
        return found[0] if found else None

    def verdicts(self, container: Workload | ContainerRef) -> dict[str, str]:
        """Claim UID to verdict."""
        entry = self.entry(container)
        return {} if entry is None else {n["claimUid"]: n["verdict"] for n in entry["links"]}

    def metric(self, series: str) -> float:
        """Value of one of the plugin's metrics."""
        return self.plugin.metric(series)

    def rss_kib(self) -> int:
        """Resident memory of the plugin's process."""
        status = Path(f"/proc/{self.plugin.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    @contextmanager
    def peer(self, index: str, cpus: str) -> Iterator[None]:
        """A second plugin, on the Go stub, that sets the cpuset of claiming containers."""
        need_go_peers()
        log = self.bed.paths.log_file
        since = log.stat().st_size
        command = [
            str(peer_binary("minimal")),
            f"-socket={self.bed.paths.nri_socket}",
            f"-idx={index}",
            "-name=go",
            f"-cpus={cpus}",
            # Events that every runtime knows; the stub itself trims nothing.
            f"-mask={0x7FF}",
        ]
        with subprocess.Popen(command) as process:
            try:
                said = f'plugin \\"{index}-go\\" connected and synchronized'.encode()
                wait_until(lambda: said in log.read_bytes()[since:], "registration of the peer")
                yield
            finally:
                process.kill()

    # -- driver and kubelet ---------------------------------------------------------------

    @property
    def reports_cdi(self) -> bool:
        """Whether this containerd tells plugins the CDI devices of a container."""
        return self.bed.installation.version >= REPORTS_CDI_SINCE

    def claim(self, cpus: str, *, uid: str = "", write_spec: bool = True) -> Claim:
        """Prepare a claim as dra-driver-cpu does."""
        uid = uid or str(uuid.uuid4())
        device = labnode.dra_cpu_device(uid)
        if write_spec:
            labnode.write_dra_cpu_spec(self.bed.paths.cdi_dir, uid, cpus)
        return self.prepared(uid, cpus, device)

    def prepared(self, uid: str, cpus: str, *devices: str) -> Claim:
        """Note a claim in kubelet's checkpoint; no pod holds it yet."""
        self._prepared[uid] = labnode.PreparedClaim(
            uid=uid, name="c", namespace="default", pod_uids=[], cdi_device_ids=devices
        )
        self._write_checkpoint()
        return Claim(uid=uid, cpus=cpus, device=devices[0])

    def pod(self, *claims: Claim, name: str = "pod", uid: str = "", **options: Any) -> Pod:
        """Run a pod that holds claims, as kubelet does: checkpoint first."""
        uid = uid or str(uuid.uuid4())
        self.hold(uid, *claims)
        pod = self.bed.cri.run_pod(name, uid=uid, **options)
        self._pods.append(pod)
        return pod

    def pod_without_checkpoint(self, name: str = "stranger") -> Pod:
        """Run a pod and leave kubelet's checkpoint as it is."""
        pod = self.bed.cri.run_pod(name)
        self._pods.append(pod)
        return pod

    def hold(self, pod_uid: str, *claims: Claim) -> None:
        """Let kubelet's checkpoint say that a pod holds claims."""
        for claim in claims:
            old = self._prepared[claim.uid]
            self._prepared[claim.uid] = labnode.PreparedClaim(
                uid=old.uid,
                name=old.name,
                namespace=old.namespace,
                pod_uids=[*old.pod_uids, pod_uid],
                cdi_device_ids=old.cdi_device_ids,
            )
        self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        labnode.write_dra_manager_state(self.bed.paths.kubelet_dir, list(self._prepared.values()))

    # -- containers -----------------------------------------------------------------------

    def create(
        self,
        pod: Pod,
        *claims: Claim,
        name: str = "work",
        devices: Sequence[str] = (),
        **options: Any,
    ) -> ContainerRef:
        """Create a container that stays; `devices` come after those of the claims."""
        return self.bed.cri.create_container(
            pod,
            name,
            image=FIRST_MASK_IMAGE,
            args=["pause"],
            cdi_devices=[*(claim.device for claim in claims), *devices],
            **options,
        )

    def start(self, ref: ContainerRef) -> Workload:
        """Start a container and wait for its first line."""
        self.bed.cri.start(ref.id)
        return Workload(ref=ref, first=wait_for_first_mask(ref.log_path))

    def run(self, pod: Pod, *claims: Claim, **options: Any) -> Workload:
        """Create and start a container."""
        return self.start(self.create(pod, *claims, **options))

    def run_claiming(self, cpus: str, **options: Any) -> tuple[Claim, Workload]:
        """A claim, a pod that holds it, and a container that does."""
        claim = self.claim(cpus)
        return claim, self.run(self.pod(claim), claim, **options)

    def update(self, container: Workload | ContainerRef, **resources: Any) -> None:
        """Ask the runtime for other resources, as kubelet does."""
        self.bed.cri.update_resources(container.id, Resources(**resources))

    def spec_cpu(self, container: Workload | ContainerRef) -> dict[str, Any]:
        """The `cpu` resources of the OCI spec that the runtime keeps."""
        spec = self.bed.cri.status(container.id).runtime_spec
        return dict(spec["linux"]["resources"].get("cpu", {}))

    def kernel(self, container: Workload | ContainerRef) -> Kernel:
        """Ask the kernel where a running container may run."""
        return kernel_view(self.pid(container))

    def limits(self, container: Workload | ContainerRef) -> Limits:
        """Ask the kernel how much a running container may run; skips without cgroup v1."""
        return cpu_limits(self.pid(container))

    def pid(self, container: Workload | ContainerRef) -> int:
        """TGID of a running container's workload."""
        return self.bed.cri.status(container.id).pid

    @staticmethod
    def memory_node_of(cpu: int) -> int:
        """NUMA node of a CPU: a link in its sysfs directory; skips without NUMA."""
        for link in Path(f"/sys/devices/system/cpu/cpu{cpu}").glob("node[0-9]*"):
            return int(link.name.removeprefix("node"))
        pytest.skip("needs NUMA nodes in sysfs")

    # -- between tests --------------------------------------------------------------------

    def clear(self) -> None:
        """Remove what a test left and go back to the default configuration."""
        try:
            self.bed.pid  # noqa: B018 - raises when containerd does not run
        except LabError:
            self.bed.start()
        for pod in reversed(self._pods):
            with suppress(CriError):
                self.bed.cri.remove_pod(pod)
        self._pods.clear()
        self._prepared.clear()
        for directory in (self.bed.paths.cdi_dir, self.bed.paths.kubelet_dir):
            for path in directory.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        if self._config != self._default or not self.is_running():
            self.configure()

    def is_running(self) -> bool:
        """Whether the plugin's process runs."""
        try:
            return self.plugin.pid > 0
        except LabError:
            return False

    def _made(self) -> PluginProcess:
        return PluginProcess(self.directory, self.config)


def kernel_view(pid: int) -> Kernel:
    """Ask the kernel where a process may run; all its threads may run in the same places."""
    view = look_at(pid)
    assert view.thread_cpus == view.cgroup_cpus
    return Kernel(cpus=frozenset(view.cgroup_cpus), mems=frozenset(view.cgroup_mems))


def cpu_limits(pid: int) -> Limits:
    """CPU shares and quota of a process's cgroup, by cgroup v1 files.

    Skips the test where the cpu controller is in the unified hierarchy: weights there follow
    from shares by a formula of the OCI runtime, which is not ours to repeat.
    """
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            mounts = Path("/proc/self/mountinfo").read_text().splitlines()
            point = next(
                mount.split(" ")[4]
                for mount in mounts
                if " - cgroup " in mount and "cpu" in mount.split(" ")[-1].split(",")
            )
            directory = Path(point) / path.lstrip("/")
            return Limits(
                shares=int((directory / "cpu.shares").read_text()),
                quota_us=int((directory / "cpu.cfs_quota_us").read_text()),
            )
    pytest.skip("needs the cpu controller in a cgroup v1 hierarchy")


def all_cpus() -> frozenset[int]:
    """CPUs of a container that nobody confines."""
    return frozenset(root_cpus())


def wait_until(condition: Callable[[], bool], what: str, limit_s: float = WAIT_S) -> None:
    """Wait for something that another process does; fails when it does not come."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {limit_s:g} s"
        time.sleep(_POLL_S)
