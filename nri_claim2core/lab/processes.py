"""Ending processes for certain: by pidfd, so that a reused number is never hit.

A process belongs to a bed if it lives in the bed's mount namespace (containerd, shims,
plugins that containerd launched) or in one of its cgroups (pause, workloads).
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

Members = Callable[[], set[int]]


def mount_namespace(pid: int | str) -> int | None:
    """Inode number of a process's mount namespace, None if the process is gone."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").stat().st_ino
    except OSError:
        return None


def in_mount_namespace(namespace: int) -> set[int]:
    """TGIDs of all processes in a mount namespace.

    Blocking: reads /proc.
    """
    return {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and mount_namespace(entry.name) == namespace
    }


def kill_all(members: Members, *, deadline_s: float) -> set[int]:
    """SIGKILL whatever `members` lists until it lists nothing; returns the survivors.

    Blocking: until all have exited, at most `deadline_s` seconds.
    """
    deadline = time.monotonic() + deadline_s
    while pids := members():
        if time.monotonic() >= deadline:
            return pids
        with ExitStack() as stack:
            descriptors = list(_open_all(pids, stack))
            # Opened first, listed again: a number reused in between is no member.
            still = members()
            for pid, descriptor in descriptors:
                if pid in still:
                    _send_kill(descriptor)
            _wait_all([descriptor for pid, descriptor in descriptors if pid in still], deadline)
    return set()


def _open_all(pids: set[int], stack: ExitStack) -> Iterator[tuple[int, int]]:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        stack.callback(os.close, descriptor)
        yield pid, descriptor


def _send_kill(descriptor: int) -> None:
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_all(descriptors: list[int], deadline: float) -> None:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    waiting = set(descriptors)
    while waiting and (left_s := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left_s * 1000):
            poll.unregister(descriptor)
            waiting.discard(descriptor)
