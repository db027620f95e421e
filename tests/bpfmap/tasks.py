"""Real processes and threads of the tests."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

# Starts a thread for each empty line and prints its TID; becomes the program another line names.
_THREADS = """
import os, threading
# Byte by byte: what follows is the next program's.
for line in iter(open(0, "rb", buffering=0).readline, b""):
    if line.strip():
        os.execv(line.strip(), [line.strip()])
    started = threading.Event()
    def work():
        print(threading.get_native_id(), flush=True)
        started.set()
        threading.Event().wait()
    threading.Thread(target=work, daemon=True).start()
    started.wait()
"""


class Child:
    """A process that waits; leaving the context ends and reaps it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.tid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def enter(self, cgroup: Path) -> None:
        """Move the process there; back when the kernel has done it."""
        (cgroup / "cgroup.procs").write_text(str(self.tid))

    def start_thread(self) -> int:
        """Start a thread that waits; give its TID."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def exec(self, program: str) -> None:
        """Become a program that repeats its input, such as cat; back when it runs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(program.encode() + b"\n")
        self._process.stdin.flush()
        # exec answers nothing itself; the echo is the new program's.
        self._process.stdin.write(b"echo\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == b"echo\n"

    def end(self) -> None:
        """End and reap it: its TIDs are free afterwards."""
        self._process.kill()
        self._process.communicate()


def start_ticks(tid: int, tgid: int | None = None) -> int:
    """Field 22 of stat: start time since boot in clock ticks, as the kernel prints it."""
    text = Path(f"/proc/{tgid or tid}/task/{tid}/stat").read_text(encoding="ascii")
    return int(text.rpartition(")")[2].split()[19])


TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class _CloneArguments(ctypes.Structure):
    """struct clone_args, linux/sched.h."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            *("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack"),
            *("stack_size", "tls", "set_tid", "set_tid_size", "cgroup"),
        )
    )


_SYS_CLONE3 = 435
_CLONE_INTO_CGROUP = 0x200000000


@contextmanager
def process_with_tid(tid: int, cgroup: Path) -> Iterator[int]:
    """A process that waits in the cgroup and has just this TID, which must be free."""
    # Keeps the interpreter lock over the call: the child has no other thread to give it back.
    libc = ctypes.PyDLL(None, use_errno=True)
    wanted = (ctypes.c_int * 1)(tid)
    directory = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    arguments = _CloneArguments(
        flags=_CLONE_INTO_CGROUP,
        exit_signal=signal.SIGCHLD,
        set_tid=ctypes.addressof(wanted),
        set_tid_size=1,
        cgroup=directory,
    )
    size = ctypes.sizeof(arguments)
    pid = libc.syscall(_SYS_CLONE3, ctypes.byref(arguments), ctypes.c_size_t(size))
    if pid == 0:
        while True:
            libc.pause()
    os.close(directory)
    assert pid > 0, os.strerror(ctypes.get_errno())
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
