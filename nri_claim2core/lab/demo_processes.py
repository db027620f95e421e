"""Containers of the embedded runtime as plain processes, confined by their affinity.

What a container runtime does with a cpuset cgroup is done here with sched_setaffinity, which
needs no right that a user lacks: the process waits until it is started, is put onto its CPUs
before, and prints where it may run as its first act. Memory nodes cannot be set from outside
without a cgroup, so they are not. The node's files show what the kernel says of the process.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from nri_claim2core.lab.workload import FIRST_MASK_SCRIPT
from nri_claim2core.lab.world import World
from nri_claim2core.model.cpuset import CpuSet, parse_kubernetes
from nri_claim2core.model.errors import CpuListError
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime import BackendError

_WAIT_THEN_WORK: Final = 'read -r go && exec sh -c "$WORK" firstmask pause'


class ProcessBackend:
    """Runs containers as shell processes; logs go to `log_dir`, one file per container id."""

    def __init__(self, world: World, usable: CpuSet, mems: CpuSet, log_dir: Path) -> None:
        self._world = world
        self._usable = usable
        self._mems = mems
        self._log_dir = log_dir
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def log_file(self, container_id: str) -> Path:
        """Where a container's output goes."""
        return self._log_dir / f"{container_id}.log"

    def tgid(self, container_id: str) -> int:
        """Give the process of a running container."""
        return self._processes[container_id].pid

    def create(self, container: api.Container) -> int:
        """Start the process that waits, and confine it."""
        with self.log_file(container.id).open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - our own script
                ["sh", "-c", _WAIT_THEN_WORK],  # noqa: S607 - any POSIX shell will do
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "WORK": FIRST_MASK_SCRIPT},
                start_new_session=True,
            )
        self._processes[container.id] = process
        self._confine(container.id, container.linux.cgroups_path, container.linux.resources)
        return process.pid

    def start(self, container: api.Container) -> None:
        """Let the process go on to its work."""
        pipe = self._processes[container.id].stdin
        if pipe is None:
            raise BackendError("the process has no pipe to wait on")
        try:
            pipe.write(b"go\n")
            pipe.close()
        except BrokenPipeError as error:
            raise BackendError("the process ended before it was started") from error

    def update(self, container: api.Container, resources: api.LinuxResources) -> None:
        """Move the process to other CPUs."""
        self._confine(container.id, container.linux.cgroups_path, resources)

    def stop(self, container: api.Container) -> int:
        """End the process."""
        process = self._processes.pop(container.id)
        self._kill(process)
        self._world.end(process.pid, container.linux.cgroups_path)
        return 137

    def close(self) -> None:
        """End every process."""
        for process in self._processes.values():
            self._kill(process)
        self._processes.clear()

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        # The shell's child (sleep) is in its session's process group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()

    def _confine(self, container_id: str, cgroup: str, resources: api.LinuxResources) -> None:
        tgid = self._processes[container_id].pid
        try:
            wanted = parse_kubernetes(resources.cpu.cpus) & self._usable
            for task in Path(f"/proc/{tgid}/task").iterdir():
                os.sched_setaffinity(int(task.name), wanted or self._usable)
            for child in _children(tgid):
                os.sched_setaffinity(child, wanted or self._usable)
            cpus = CpuSet(os.sched_getaffinity(tgid))
        except (OSError, CpuListError) as error:
            raise BackendError(f"cannot confine process {tgid}: {error}") from error
        self._world.place(tgid, cgroup, cpus, self._mems)


def _children(tgid: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{tgid}/task/{tgid}/children").read_text().split()))
    except OSError:
        return []
