"""One process per role and node: a second one is noticed before it does anything.

Two connections of the same plugin would both set cpusets, and every creation would fail with
a conflict; two keepers of the scheduler would undo each other's work. The lock is the kernel's
(flock): it ends with its holder, so there is no stale lock to clean up, and the file's text
(the holder's TGID) is for the message only.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from nri_claim2core.model.errors import HostError

_CONSEQUENCES: Final = {
    "plugin": "two of them would both set cpusets and fail every creation: stop that one",
    "scheduler": "it would undo what is done here: stop that one first",
}


class InstanceLock:
    """Holds the node's lock of a role, `plugin` or `scheduler`, while entered.

    Raises (on entering): HostError C2C-PLUGIN-01 (C2C-SCHEDULER-01) when another process holds
    it, -02 when the directory cannot be used.
    """

    def __init__(self, run_dir: str, role: str = "plugin") -> None:
        self._role = role
        self._path = Path(run_dir) / f"{role}.lock"
        self._fd = -1

    def __enter__(self) -> Self:
        path = str(self._path)
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise HostError(
                f"cannot use {path}: {error.strerror}",
                path=path,
                errno=error.errno or 0,
                hint="run as root, or choose another directory with --run-dir",
                code=f"C2C-{self._role.upper()}-02",
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.__exit__(None, None, None)
            raise HostError(
                f"another nri-claim2core {self._role} (pid {holder}) runs on this node",
                path=path,
                errno=error.errno or 0,
                hint=_CONSEQUENCES[self._role],
                code=f"C2C-{self._role.upper()}-01",
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
