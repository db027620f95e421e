"""Who a thread and a cgroup are, in the words the mutation program compares.

A thread is its TID plus the inode number of its pidfd, which the kernel never gives twice in a
boot; a cgroup is the inode number of its directory, likewise.
"""

from __future__ import annotations

import errno as codes
import os
from pathlib import Path
from typing import Final

from nri_claim2core.bpfmap.abi import CgroupId, Tid
from nri_claim2core.bpfmap.errors import CgroupGoneError, PidNamespaceError, TaskGoneError
from nri_claim2core.model.errors import HostError

_PIDFD_THREAD: Final = os.O_EXCL
"""Flag of pidfd_open(2) for a thread that leads no group; Linux 6.9."""

_INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
"""Inode number of the initial one: PROC_PID_INIT_INO, include/linux/proc_ns.h."""


def read_pid_ino(tid: Tid) -> int:
    """Give the inode number of a thread's pidfd; `tid` is in this process's pid namespace.

    Raises: TaskGoneError, HostError. Blocking: three system calls.
    """
    try:
        fd = os.pidfd_open(tid, _PIDFD_THREAD)
    except OSError as error:
        if error.errno == codes.ESRCH:
            raise TaskGoneError(f"thread {tid} has ended") from error
        hint = "threads have pidfds since Linux 6.9" if error.errno == codes.EINVAL else ""
        message = f"no pidfd of thread {tid}: {error.strerror}"
        raise HostError(message, errno=error.errno or 0, hint=hint) from error
    try:
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)


def read_cgroup_id(directory: str) -> CgroupId:
    """Give the id of a cgroup by its directory in the default hierarchy.

    Raises: CgroupGoneError, HostError. Blocking: one system call.
    """
    try:
        return CgroupId(Path(directory).stat().st_ino)
    except FileNotFoundError as error:
        raise CgroupGoneError(f"{directory}: no such cgroup") from error
    except OSError as error:
        raise HostError(
            f"{directory}: {error.strerror}", path=directory, errno=error.errno or 0
        ) from error


def check_pid_namespace(proc: str = "/proc") -> None:
    """See that TIDs seen here are those of the initial pid namespace.

    Raises: PidNamespaceError. Blocking: one system call.
    """
    path = f"{proc}/self/ns/pid"
    try:
        number = Path(path).stat().st_ino
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}", path=path, errno=error.errno or 0) from error
    if number != _INITIAL_PID_NAMESPACE:
        raise PidNamespaceError(
            f"this process is in pid namespace {number}, not in the initial one",
            path=path,
            hint="hostPID: true; on a nested node threads are looked for in their cgroup",
        )
