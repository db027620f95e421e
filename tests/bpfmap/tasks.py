"""Real processes and threads of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

# Prints the TID of each thread it starts, one for each line it reads; ends with its input.
_THREADS = """
import sys, threading
for _ in sys.stdin:
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

    def end(self) -> None:
        """End and reap it: its TIDs are free afterwards."""
        self._process.kill()
        self._process.communicate()


def start_ticks(tid: int, tgid: int | None = None) -> int:
    """Field 22 of stat: start time since boot in clock ticks, as the kernel prints it."""
    text = Path(f"/proc/{tgid or tid}/task/{tid}/stat").read_text(encoding="ascii")
    return int(text.rpartition(")")[2].split()[19])


TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
