"""Read the pinned maps beside the plugin or without it, and join rows, cells and threads.

Nothing here writes, takes the writer's token or pins anything: maps are opened read-only, and
the kernel's own judgement of a thread comes from programs loaded onto the pinned maps for as
long as the question takes. The set is never made here, whatever is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from nri_claim2core.agent import inspection_facts as facts
from nri_claim2core.agent.inspection_facts import CgroupTree, ThreadFacts
from nri_claim2core.agent.row_checks import Frame
from nri_claim2core.bpfmap import readback
from nri_claim2core.bpfmap.abi import CgroupId, Tid
from nri_claim2core.bpfmap.errors import CgroupGoneError, MapsMissingError, TaskGoneError
from nri_claim2core.bpfmap.identity import check_pid_namespace
from nri_claim2core.bpfmap.libbpf import Object
from nri_claim2core.bpfmap.loader import OBJECT, Loaded
from nri_claim2core.bpfmap.pins import Maps, check_bpffs, open_maps
from nri_claim2core.bpfmap.rows import CellRow, CgroupRow, Control, Stats, TaskRow, View
from nri_claim2core.model.errors import HostError, StaleError, UsageError

NOT_FOUND: Final = "C2C-INSPECT-02"
"""Code of a container that no cgroup is named after."""
AMBIGUOUS: Final = "C2C-INSPECT-03"
"""Code of a container id of which there are several."""
BAD_CELL: Final = "C2C-INSPECT-04"
"""Code of a cell in a state that there is not."""

_READS: Final = 3
"""A cell that is put while it is read looks as if another hand had written it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All rows, and what they are judged against; each row is consistent in itself."""

    frame: Frame
    cgroups: list[CgroupRow]
    tasks: list[TaskRow]
    stats: Stats

    @property
    def control(self) -> Control:
        """The control row."""
        return self.frame.control

    @property
    def cells(self) -> list[CellRow]:
        """The cells that are not free, by index."""
        return list(self.frame.cells.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What governs one thread, in the kernel's words, and what /proc says of it."""

    view: View
    facts: ThreadFacts | None
    "None when it ended while it was looked at."
    cell: CellRow | None
    "Of the policy in force."
    row: TaskRow | None
    governing_path: str
    "Of the cgroup whose row was found; empty without one."
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerReport:
    """A container's cgroups, the row and the cell that govern them, and the threads."""

    path: str
    cgroups: dict[CgroupId, str]
    "Path of the container's cgroup and of those below it by id; the top first."
    rows: list[CgroupRow]
    "Rows of these cgroups."
    governing: CgroupRow | None
    "The nearest row from the container's cgroup upwards."
    governing_path: str
    frame: Frame
    threads: list[TaskReport] = field(default_factory=list)
    problem: str = ""
    "Why the kernel could not be asked about the threads."


@contextmanager
def opened(directory: str) -> Iterator[Maps]:
    """Open the pinned set for reading.

    Raises: MapsMissingError, BpffsError, PinGoneError, OtherAbiError, CapabilityError.
    Blocking: eleven system calls.
    """
    try:
        maps = open_maps(directory, read_only=True)
    except MapsMissingError:
        check_bpffs(directory)  # a better word, where that is why
        raise
    try:
        yield maps
    finally:
        maps.close()


@contextmanager
def loaded(directory: str, object_path: str = OBJECT) -> Iterator[Loaded]:
    """Load programs of this process's own onto the pinned set.

    Unlike `loader.load` this makes no set where there is none. Raises: as `opened`, LoadError.
    Blocking: some tens of milliseconds.
    """
    with opened(directory):
        pass  # names what is wrong before the programs are loaded
    maps = open_maps(directory)
    try:
        with Object(object_path) as bpf:
            for name, fd in maps.fds.items():
                bpf.reuse(name, fd)
            bpf.load()
            names = ("c2c_mutate", "c2c_resolve", "c2c_iterate")
            programs = {name: bpf.program_fd(name) for name in names}
            made = Loaded(maps, programs, bpf.map_fd("c2c_requests"), fresh=False)
    except BaseException:
        maps.close()
        raise
    try:
        yield made
    finally:
        made.close()


def read_snapshot(maps: Maps) -> Snapshot:
    """Read all rows, then what they are judged against.

    In this order: a cgroup seen gone after its row was read has gone. Blocking: about 1 us per
    row and 50 us per cgroup of the node.
    """
    cgroups, tasks = readback.read_cgroups(maps), readback.read_tasks(maps)
    stats = readback.read_stats(maps)
    return Snapshot(
        frame=read_frame(maps, facts.read_tree()), cgroups=cgroups, tasks=tasks, stats=stats
    )


def read_frame(maps: Maps, tree: CgroupTree) -> Frame:
    """Read control row, cells and clock. Blocking: about 1 us per cell.

    Raises: HostError, C2C-INSPECT-04 for a cell that says what cells do not say.
    """
    try:
        for _ in range(_READS):
            cells = readback.read_cells(maps)
            if all(cell.sealed for cell in cells):
                break
    except ValueError as error:
        raise HostError(
            f"a cell in {maps.directory} cannot be read: {error}",
            path=maps.directory,
            hint="another hand wrote it; stop plugin and scheduler, and have the maps made anew",
            code=BAD_CELL,
        ) from error
    return Frame(
        control=maps.read_control(),
        cells={cell.index: cell for cell in cells},
        tree=tree,
        now_ns=boottime_ns(),
    )


def inspect_task(directory: str, tid: Tid) -> TaskReport:
    """Ask the kernel what governs a thread.

    Raises: TaskGoneError, PidNamespaceError, and as `loaded`. Blocking: tens of milliseconds.
    """
    check_pid_namespace()
    with loaded(directory) as programs:
        frame = read_frame(programs.maps, CgroupTree(mount=facts.maybe_find_mount() or ""))
        return _report(programs, tid, frame, _rows_by_tid(programs.maps))


def inspect_container(directory: str, path: str) -> ContainerReport:
    """Join a container's cgroup with rows, cells and threads.

    `path` is below the root of the default hierarchy. Where the kernel cannot be asked about
    threads, the report says why. Raises: CgroupGoneError, HostError, and as `opened`.
    Blocking: tens of milliseconds, and some 40 us per thread.
    """
    mount = facts.find_mount()
    with opened(directory) as maps:
        rows = {row.cgroup_id: row for row in readback.read_cgroups(maps)}
        own = facts.subtree(mount, path)
        above = facts.ancestors(mount, path)
        frame = read_frame(maps, CgroupTree(mount=mount, paths=above | own))
    governing = next((rows[number] for number in above if number in rows), None)
    threads: list[TaskReport] = []
    problem = ""
    try:
        threads = _threads(
            directory, [tid for at in own.values() for tid in facts.read_tids(mount, at)]
        )
    except HostError as error:
        problem = str(error)
    return ContainerReport(
        path=path,
        cgroups=own,
        rows=[rows[number] for number in own if number in rows],
        governing=governing,
        governing_path=above.get(governing.cgroup_id, "") if governing else "",
        frame=frame,
        threads=threads,
        problem=problem,
    )


def find_container(prefix: str) -> str:
    """Give the cgroup path of the one container whose id starts with `prefix`.

    A runtime names the cgroup after the id, alone or as the end of a systemd scope's name.
    Raises: StaleError for none, UsageError for several, HostError. Blocking: host read.
    """
    facts.find_mount()
    paths = facts.read_tree().paths.values()
    matching = {path for path in paths if _container_id(path).startswith(prefix)}
    # A container's own children may repeat its name.
    found = sorted(p for p in matching if not any(p.startswith(f"{q}/") for q in matching))
    if not found:
        raise StaleError(
            f"no cgroup is named after a container {prefix!r}",
            hint="it has stopped, or its cgroup has another name: give --cgroup PATH",
            code=NOT_FOUND,
        )
    if len(found) > 1:
        raise UsageError(
            f"{prefix!r} fits {len(found)} containers: " + ", ".join(found[:4]),
            hint="give more of the id, or --cgroup PATH",
            code=AMBIGUOUS,
        )
    return found[0]


def cgroup_path(text: str) -> str:
    """Give the path in the default hierarchy that a directory or such a path means.

    Raises: CgroupGoneError, HostError. Blocking: host read.
    """
    mount = facts.find_mount().rstrip("/")
    path = "/" + (text.removeprefix(mount) if f"{text}/".startswith(f"{mount}/") else text).strip(
        "/"
    )
    if ".." in path.split("/"):
        raise CgroupGoneError(f"{text}: climbs out with `..`")
    facts.subtree(mount, path)
    return path


def boottime_ns() -> int:
    """Now, on the clock of the rows."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _threads(directory: str, tids: list[Tid]) -> list[TaskReport]:
    check_pid_namespace()
    if not tids:
        return []
    reports = []
    with loaded(directory) as programs:
        frame = read_frame(programs.maps, CgroupTree(mount=facts.maybe_find_mount() or ""))
        rows = _rows_by_tid(programs.maps)
        for tid in tids:
            try:
                reports.append(_report(programs, tid, frame, rows))
            except TaskGoneError:
                continue
    return reports


def _report(programs: Loaded, tid: Tid, frame: Frame, rows: dict[Tid, TaskRow]) -> TaskReport:
    view = readback.resolve(programs, tid)
    thread = facts.maybe_thread(tid)
    governing = ""
    if view.governing_cgroup_id and thread is not None:
        above = facts.ancestors(frame.tree.mount, thread.cgroup)
        governing = above.get(view.governing_cgroup_id, "")
    return TaskReport(
        view=view,
        facts=thread,
        cell=frame.cells.get(view.policy.cell),
        row=rows.get(tid),
        governing_path=governing,
        now_ns=boottime_ns(),
    )


def _container_id(path: str) -> str:
    name = path.rpartition("/")[2]
    # PREFIX-ID.scope with the systemd driver; CRI-O's monitor has a scope beside it.
    if not name.endswith(".scope"):
        return "" if name.endswith(".slice") else name
    return "" if name.startswith("crio-conmon-") else name[: -len(".scope")].rpartition("-")[2]


def _rows_by_tid(maps: Maps) -> dict[Tid, TaskRow]:
    return {row.tid: row for row in readback.read_tasks(maps)}
