"""What the machine and single processes say about themselves: load, memory, processor time.

Reads /proc only. Nothing here decides; `__main__` warns where other work shares the CPUs,
because a figure of a busy machine says little.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

# Above this share of busy processor time before the first measurement, figures are doubtful.
BUSY_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine, as a reader of the figures wants to know it."""

    cpus: int
    model: str
    kernel: str
    python: str
    load1: float
    """Load average of the last minute when the run began."""
    busy_share: float
    """Share of processor time that others used in a sample before the run."""

    @property
    def is_busy(self) -> bool:
        """Whether others use so much that figures are doubtful."""
        return self.busy_share > BUSY_SHARE

    def to_json(self) -> dict[str, object]:
        """Give the values for the report."""
        return {**asdict(self), "busy": self.is_busy}


def read_machine(sample_s: float = 1.0) -> Machine:
    """Describe this machine; watches it for `sample_s` seconds. Blocking: that long."""
    before = _cpu_times()
    time.sleep(sample_s)
    busy, total = (now - then for now, then in zip(_cpu_times(), before, strict=True))
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        model=model,
        kernel=platform.release(),
        python=platform.python_version(),
        load1=round(os.getloadavg()[0], 2),
        busy_share=round(busy / total, 3) if total else 0.0,
    )


def _cpu_times() -> tuple[int, int]:
    # user nice system idle iowait irq softirq steal: all but idle and iowait is busy.
    first = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    ticks = [int(value) for value in first]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of one process, in KiB."""

    rss_kib: int
    peak_kib: int
    anonymous_kib: int
    """The part that is not pages of files, which processes share."""


def read_memory(pid: int) -> Memory:
    """Read VmRSS, VmHWM and RssAnon of a process."""
    fields = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        fields[name] = value
    return Memory(
        rss_kib=int(fields["VmRSS"].split()[0]),
        peak_kib=int(fields["VmHWM"].split()[0]),
        anonymous_kib=int(fields["RssAnon"].split()[0]),
    )


def wait_idle(pid: int, *, limit_s: float = 5.0) -> None:
    """Wait until a process has used no processor time for a while, so that its memory settled.

    Blocking: at most `limit_s`; a process that never rests is measured as it is.
    """
    deadline = time.monotonic() + limit_s
    last = _process_ticks(pid)
    while time.monotonic() < deadline:
        # Longer than one clock tick and than a plugin's own housekeeping is likely to be.
        time.sleep(0.3)
        now = _process_ticks(pid)
        if now == last:
            return
        last = now


def read_cpu_ms(pid: int) -> float:
    """Read the processor time of all threads of a process, in steps of a clock tick."""
    return _process_ticks(pid) * 1000 / os.sysconf("SC_CLK_TCK")


def _process_ticks(pid: int) -> int:
    # The command name may hold blanks; fields count from behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
