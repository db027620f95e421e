"""A private containerd: its own namespace, directories, sockets and cgroups, gone on exit.

Nothing of the machine's own containerd is touched or seen. A holder process keeps the mount
namespace, so containers live through a restart of containerd just as on a node; every
process of the bed is found through that namespace or the bed's cgroups, so that nothing
stays behind after `kill -9` either. Several beds can run side by side.

Usage::

    with Containerd(installation) as bed:
        bed.import_images(lab_images())
        pod = bed.cri.run_pod("web")
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import nri_claim2core
from nri_claim2core.lab import holder
from nri_claim2core.lab.cgroups import BedCgroups
from nri_claim2core.lab.cleanup import end_processes, remove_cgroups, remove_files
from nri_claim2core.lab.containerd_config import BedOptions, BedPaths, render_config
from nri_claim2core.lab.cri import CriClient
from nri_claim2core.lab.errors import CriError, LabError, MissingError
from nri_claim2core.lab.image import Image, write_archive
from nri_claim2core.lab.installation import Installation, find_installations
from nri_claim2core.lab.patience import SCALE
from nri_claim2core.lab.processes import mount_namespace
from nri_claim2core.lab.workload import PAUSE_IMAGE

__all__ = ["BedOptions", "BedPaths", "Containerd", "Installation", "find_installations"]

_READY_DEADLINE_S = 30.0 * SCALE
_STOP_DEADLINE_S = 10.0 * SCALE
_IMPORT_DEADLINE_S = 30.0 * SCALE
_POLL_S = 0.005
# gRPC statuses of a CRI service that is coming up ("server is not initialized yet").
_NOT_YET = frozenset({"UNAVAILABLE", "UNKNOWN", "DEADLINE_EXCEEDED"})
_LOG_TAIL_LINES = 15
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Containerd:
    """One private containerd instance; a context manager that starts and removes it.

    `parent` is the directory that the bed's own directory is made in; keep it short, socket
    paths are limited to 107 bytes.

    Raises (on entering): MissingError without root or without a needed command, LabError
    with containerd's last log lines if it does not come up.
    """

    def __init__(
        self,
        installation: Installation,
        *,
        options: BedOptions | None = None,
        parent: Path | None = None,
    ) -> None:
        self.installation = installation
        self.options = options or BedOptions()
        token = secrets.token_hex(4)
        self._is_systemd = self.options.cgroup_driver == "systemd"
        self.cgroup_parent = f"c2c{token}.slice" if self._is_systemd else f"/c2c-{token}"
        self._directory_parent = parent
        self._paths: BedPaths | None = None
        self._holder: subprocess.Popen[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._cri: CriClient | None = None

    @property
    def paths(self) -> BedPaths:
        """Where everything of this bed is."""
        if self._paths is None:
            raise LabError("the bed was not entered")
        return self._paths

    @property
    def cri(self) -> CriClient:
        """CRI client of this bed; it follows containerd through restarts."""
        if self._cri is None:
            self._cri = CriClient(
                self.paths.address,
                cgroup_parent=self.pod_cgroup_parent,
                log_root=self.paths.pod_log_dir,
            )
        return self._cri

    @property
    def pid(self) -> int:
        """TGID of containerd.

        Raises:
            LabError: it does not run.
        """
        if self._process is None or self._process.poll() is not None:
            raise LabError("containerd does not run")
        return self._process.pid

    @property
    def namespace_pid(self) -> int:
        """TGID of a process in the bed's mount namespace, for ``/proc/<pid>/root``."""
        if self._holder is None:
            raise LabError("the bed was not entered")
        return self._holder.pid

    def pod_cgroup_parent(self, pod_uid: str) -> str:
        """Pod cgroup as a kubelet would pass it, below this bed's own parent."""
        if self._is_systemd:
            stem = self.cgroup_parent.removesuffix(".slice")
            return f"{stem}-pod{pod_uid.replace('-', '_')}.slice"
        return f"{self.cgroup_parent}/pod{pod_uid}"

    def __enter__(self) -> Self:
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start containerd and wait until CRI and NRI serve.

        Raises:
            LabError: it ended or did not serve within 30 s; the message holds its log's tail.
        """
        namespace = f"/proc/{self.namespace_pid}/ns/mnt"
        binary = self.installation.bin_dir / "containerd"
        with self.paths.log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own paths, no shell
                ["nsenter", f"--mount={namespace}", "--", binary, "-c", self.paths.config_file],  # noqa: S607
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=self._environment(),
                # Ctrl-C in the caller's terminal is the caller's, who then closes the bed.
                start_new_session=True,
            )
        self._wait_until(self._serves, "serve CRI and NRI", _READY_DEADLINE_S)

    def stop(self) -> None:
        """Stop containerd with SIGTERM; containers go on.

        Raises:
            LabError: it did not end within 10 s.
        """
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired as error:
            raise self._failure("did not end on SIGTERM") from error

    def kill(self) -> None:
        """End containerd with SIGKILL; containers go on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """Stop and start containerd; containers go on."""
        self.stop()
        self.start()

    def import_images(self, images: Sequence[Image]) -> None:
        """Make images known to CRI; returns when it knows them.

        Raises:
            LabError: the import failed, or CRI did not list them within 30 s.
        """
        archive = self.paths.base / "images.tar"
        write_archive(archive, images)
        self.ctr("images", "import", str(archive))
        archive.unlink()
        for image in images:
            # The CRI service learns of an import through an event.
            known = partial(self.cri.has_image, image.reference)
            self._wait_until(known, f"list {image.reference}", _IMPORT_DEADLINE_S)

    def ctr(self, *arguments: str) -> str:
        """Output of ``ctr`` in the namespace of Kubernetes.

        Raises:
            LabError: it failed; the message holds what it said.
        """
        done = subprocess.run(  # noqa: S603 - our own paths, no shell
            [
                self.installation.bin_dir / "ctr",
                "--address",
                self.paths.address,
                "--namespace",
                "k8s.io",
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
            env=self._environment(),
            timeout=120,
        )
        if done.returncode != 0:
            raise LabError(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """The last lines of containerd's log, empty if there is none."""
        with suppress(OSError):
            return "\n".join(
                self.paths.log_file.read_text("utf-8", "replace").splitlines()[-lines:]
            )
        return ""

    def close(self) -> None:
        """End everything of the bed and remove it; may be called again.

        Blocking: until all processes have exited.

        Raises:
            LabError: something stayed; the message lists what.
        """
        if self._cri is not None:
            self._cri.close()
            self._cri = None
        if self._paths is None:
            return
        cgroups = BedCgroups(self.cgroup_parent)
        left: list[str] = []
        holder_pid = self._holder.pid if self._holder is not None else None
        namespace = mount_namespace(holder_pid) if holder_pid is not None else None
        if namespace == mount_namespace("self"):
            # The holder never got a namespace of its own: nothing was started in it.
            namespace = None
        if namespace is not None or cgroups.directories():
            left += end_processes(
                cgroups, namespace, frozenset({os.getpid(), holder_pid or os.getpid()})
            )
        if self._process is not None:
            self._process.wait(_STOP_DEADLINE_S)
        left += remove_cgroups(cgroups, self.cgroup_parent if self._is_systemd else None)
        self._end_holder()
        left += remove_files(self._paths.base)
        self._paths = None
        if left:
            raise LabError("the bed could not be removed: " + "; ".join(left))

    def _prepare(self) -> None:
        if os.geteuid() != 0:
            raise MissingError("a containerd of our own needs root", hint="run it with sudo")
        for command in ("unshare", "nsenter", "mount"):
            if shutil.which(command) is None:
                raise MissingError(f"no {command} on PATH", hint="install util-linux and mount")
        base = Path(tempfile.mkdtemp(prefix="c2c-", dir=self._directory_parent))
        self._paths = paths = BedPaths(base=base)
        for directory in paths.directories():
            directory.mkdir()
        for name, script in self.options.plugins.items():
            (paths.plugin_dir / name).write_text(script)
            (paths.plugin_dir / name).chmod(0o755)
        for name, text in self.options.plugin_configs.items():
            (paths.plugin_config_dir / name).write_text(text)
        paths.config_file.write_text(
            render_config(self.installation, paths, self.options, pause_image=PAUSE_IMAGE)
        )
        self._start_holder()

    def _start_holder(self) -> None:
        package_parent = str(Path(nri_claim2core.__file__).parent.parent)
        self._holder = subprocess.Popen(  # noqa: S603 - our own module, no shell
            [  # noqa: S607 - util-linux is in different places
                "unshare",
                "--mount",
                "--propagation",
                "private",
                sys.executable,
                "-m",
                holder.__name__,
                self.paths.base,
                self.cgroup_parent,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": package_parent},
            start_new_session=True,
        )
        if self._holder.stdout is None or self._holder.stderr is None:
            raise LabError("the holder has no pipes")
        if self._holder.stdout.readline().strip() != holder.READY:
            raise LabError(f"no mount namespace: {self._holder.stderr.read().strip()}")

    def _end_holder(self) -> None:
        if self._holder is None:
            return
        with suppress(BrokenPipeError):
            self._holder.communicate(holder.BYE)
        self._holder = None

    def _environment(self) -> dict[str, str]:
        directories = [self.installation.bin_dir, self.installation.runc.parent, _SYSTEM_PATH]
        return {"PATH": ":".join(map(str, directories)), "HOME": str(self.paths.base)}

    def _serves(self) -> bool:
        # A connect is cheap and tells "not yet" at once; CRI answers only when it has
        # recovered its containers, which is after NRI was started. The NRI socket itself is
        # only looked at: whoever connects there counts as a plugin.
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.paths.address))
            except OSError:
                return False
        try:
            self.cri.list_pods(timeout_s=5)
        except CriError as error:
            if error.status not in _NOT_YET:
                raise self._failure(f"does not serve CRI: {error.details}") from error
            return False
        return self.paths.nri_socket.is_socket()

    def _wait_until(self, condition: Callable[[], bool], what: str, deadline_s: float) -> None:
        deadline = time.monotonic() + deadline_s
        while not condition():
            if self._process is not None and self._process.poll() is not None:
                raise self._failure(f"ended with {self._process.returncode}")
            if time.monotonic() >= deadline:
                raise self._failure(f"did not {what} within {deadline_s:g} s")
            time.sleep(_POLL_S)

    def _failure(self, what: str) -> LabError:
        return LabError(f"{self.installation.label} {what}; its log ends:\n{self.log_tail()}")
