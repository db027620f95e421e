"""Read the rows back as the kernel has them, and what it makes of them.

Reads need no token and disturb nobody. Rows change meanwhile: each one is consistent in
itself, a whole dump is not a snapshot.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from nri_claim2core.bpfmap import syscall
from nri_claim2core.bpfmap.abi import STATS, VIEW, CellState, Result, Tid
from nri_claim2core.bpfmap.errors import TaskGoneError
from nri_claim2core.bpfmap.loader import Loaded
from nri_claim2core.bpfmap.pins import CONTROL_KEY, Maps
from nri_claim2core.bpfmap.rows import CellRow, CgroupRow, Control, Policy, Stats, TaskRow, View
from nri_claim2core.model.cpuset import parse_kernel


def read_control(maps: Maps) -> Control:
    """Copy the control row. Blocking: one system call."""
    return maps.read_control()


def read_cells(maps: Maps) -> list[CellRow]:
    """Give the cells that are not free, by index. Blocking: about 1 us per cell."""
    cells = (CellRow.unpack(index, value) for index, value in _rows(maps, "c2c_cells"))
    return [cell for cell in cells if cell.state is not CellState.FREE]


def read_cgroups(maps: Maps) -> list[CgroupRow]:
    """Give all cgroup rows, by id. Blocking: about 1 us per row."""
    return [CgroupRow.unpack(key, value) for key, value in sorted(_rows(maps, "c2c_cgroups"))]


def read_tasks(maps: Maps) -> list[TaskRow]:
    """Give all thread rows, by TID. Blocking: about 1 us per row."""
    return [TaskRow.unpack(key, value) for key, value in sorted(_rows(maps, "c2c_tasks"))]


def read_stats(maps: Maps) -> Stats:
    """Add up the CPUs' counters. Blocking: one system call and a file."""
    cpus = _possible_cpus()
    data = syscall.map_lookup(maps.fds["c2c_stats"], CONTROL_KEY, STATS.size * cpus)
    data = data or bytes(STATS.size * cpus)
    return Stats.unpack([data[at : at + STATS.size] for at in range(0, len(data), STATS.size)])


def resolve(loaded: Loaded, tid: Tid) -> View:
    """Ask the kernel side what governs a thread.

    Raises: TaskGoneError, CapabilityError, BpfError. Blocking: microseconds.
    """
    run = syscall.ProgramRun(loaded.programs["c2c_resolve"], VIEW.size)
    zeroes = [0] * len(Policy().values())
    run.argument[:] = VIEW.pack(*zeroes, 0, 0, 0, 0, tid, 0, 0, 0, 0, 0)
    run.run()
    view = View.unpack(run.argument)
    if view.result is not Result.OK:
        raise TaskGoneError(f"thread {tid} has ended")
    return view


def read_views(loaded: Loaded) -> Iterator[View]:
    """Yield what governs each thread that a row concerns, whether the row holds or not.

    Raises: CapabilityError, BpfError. Blocking: below 1 us per thread of the node.
    """
    rest = b""
    for chunk in syscall.read_iterator(loaded.programs["c2c_iterate"]):
        data = rest + chunk
        end = len(data) - len(data) % VIEW.size
        for at in range(0, end, VIEW.size):
            yield View.unpack(data, at)
        rest = data[end:]


def _rows(maps: Maps, name: str) -> Iterator[tuple[int, bytes]]:
    for key, value in syscall.map_rows(maps.fds[name], maps.infos[name]):
        yield int.from_bytes(key, sys.byteorder), value


def _possible_cpus(path: str = "/sys/devices/system/cpu/possible") -> int:
    """Give how many values a per-CPU element has. Blocking: host read."""
    return len(parse_kernel(Path(path).read_text(encoding="ascii")))
