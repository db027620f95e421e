"""The scheduler role: keep our sched_ext scheduler attached to the plugin's maps.

One step looks at the kernel and the pins and does at most one thing. What is found has a name
(`Phase`); whatever it is, the plugin and everything else go on without us. The truth about
what runs is /sys/kernel/sched_ext: a pinned link outlives the scheduler that the kernel ejected.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nri_claim2core.bpfmap import struct_ops
from nri_claim2core.bpfmap.abi import Counter, ExecClass
from nri_claim2core.bpfmap.errors import MapsMissingError, SchedulerTakenError
from nri_claim2core.bpfmap.pins import DIRECTORY, open_maps
from nri_claim2core.bpfmap.readback import read_stats
from nri_claim2core.bpfmap.struct_ops import OPS_NAME, ExitRecord, SchedulerCounter
from nri_claim2core.host.sched_ext import ExtState, SchedExt, read_sched_ext
from nri_claim2core.model.errors import Claim2CoreError, HostError

log = logging.getLogger(__name__)

POLL_S: Final = 1.0
"""Pause between two looks; a look costs a few small files."""

FIRST_BACK_OFF_S: Final = 1.0
MAX_BACK_OFF_S: Final = 300.0
CALM_S: Final = 600.0
"""A scheduler that ran this long had no part in the failures before."""

DUMP_NAME: Final = "scheduler-exit.txt"


class Phase(enum.Enum):
    """What the node's scheduler is, as far as we are concerned."""

    MAPS_ONLY = "maps-only"
    "The kernel has no sched_ext: rows are written and nobody schedules by them."
    NO_MAPS = "no-maps"
    "The plugin has not made its maps yet."
    FOREIGN = "foreign"
    "Another scheduler is attached."
    RUNNING = "running"
    STALE = "stale"
    "Ours is attached to maps that are not the plugin's any more."
    EJECTED = "ejected"
    "The kernel has ended ours."
    STOPPED = "stopped"
    "None is attached, and none of ours was."


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What was found, and the evidence."""

    phase: Phase
    kernel: SchedExt
    is_pinned: bool = False
    maps_problem: str = ""
    exit: ExitRecord | None = None

    @property
    def words(self) -> str:
        """One line for people."""
        match self.phase:
            case Phase.MAPS_ONLY:
                return "this kernel has no sched_ext: maps only"
            case Phase.NO_MAPS:
                return f"waiting for the plugin's maps: {self.maps_problem}"
            case Phase.FOREIGN:
                name = self.kernel.ops or "without a name"
                return f"another sched_ext scheduler is attached: {name}"
            case Phase.RUNNING:
                return f"attached, load number {self.kernel.enable_seq} of this boot"
            case Phase.STALE:
                return "attached to maps that the plugin has replaced"
            case Phase.EJECTED:
                return f"ejected by the kernel: {self.exit or 'it left no reason'}"
            case Phase.STOPPED:
                return "not attached"


def look(directory: str = DIRECTORY, root: str = "/") -> Situation:
    """Find out. Raises: HostError for what cannot be read. Blocking: host read, bpf(2)."""
    kernel = read_sched_ext(root)
    if kernel.state is ExtState.ABSENT:
        return Situation(phase=Phase.MAPS_ONLY, kernel=kernel)
    is_pinned = struct_ops.is_pinned(directory)
    maps_problem = ""
    serves_maps = False
    try:
        maps = open_maps(directory, read_only=True)
    except HostError as error:
        maps_problem = str(error)
    else:
        serves_maps = bool(maps.read_control().scheduler_ns)
        maps.close()
    record = struct_ops.read_exit(directory) if is_pinned else None
    return Situation(
        phase=_phase(kernel, maps_problem, is_pinned=is_pinned, serves_maps=serves_maps),
        kernel=kernel,
        is_pinned=is_pinned,
        maps_problem=maps_problem,
        exit=record,
    )


def _phase(kernel: SchedExt, maps_problem: str, *, is_pinned: bool, serves_maps: bool) -> Phase:
    if kernel.is_loaded and kernel.ops and kernel.ops != OPS_NAME:
        return Phase.FOREIGN
    if maps_problem:
        return Phase.STALE if kernel.ops == OPS_NAME else Phase.NO_MAPS
    if kernel.is_loaded:
        # Being attached or ended, it may have no name yet or any more.
        return Phase.RUNNING if serves_maps or not kernel.ops else Phase.STALE
    return Phase.EJECTED if is_pinned else Phase.STOPPED


def read_counters(directory: str = DIRECTORY) -> dict[str, int]:
    """Give what the scheduler counted since the maps were made; empty without maps.

    Names are in camelCase. Blocking: a few system calls. Raises: HostError.
    """
    try:
        maps = open_maps(directory, read_only=True)
    except HostError:
        return {}
    try:
        stats = read_stats(maps)
    finally:
        maps.close()
    counted = {_camel(each.name): stats.counters[each] for each in SchedulerCounter}
    return counted | {
        f"{_camel(each.name)}Runs": stats.counters[Counter.CLASS + each] for each in ExecClass
    }


def _camel(name: str) -> str:
    first, *rest = name.lower().split("_")
    return first + "".join(word.title() for word in rest)


def load(directory: str = DIRECTORY, root: str = "/") -> Situation:
    """Attach our scheduler unless it is; give what is then the case.

    Raises: HostError that says why not: no sched_ext, no maps, another scheduler (named).
    Blocking: about 0.1 s, during which forks wait.
    """
    found = look(directory, root)
    match found.phase:
        case Phase.RUNNING:
            return found
        case Phase.MAPS_ONLY:
            raise HostError(
                found.words, hint="sched_ext needs Linux 6.12 with CONFIG_SCHED_CLASS_EXT=y"
            )
        case Phase.NO_MAPS:
            raise MapsMissingError(found.maps_problem, path=directory, hint="start the plugin")
        case Phase.FOREIGN:
            raise SchedulerTakenError(found.words, hint="end that one first; only one can be")
        case Phase.STALE:
            struct_ops.detach(directory)
        case Phase.EJECTED | Phase.STOPPED:
            pass
    maps = open_maps(directory)
    try:
        struct_ops.attach(maps)
    finally:
        maps.close()
    return look(directory, root)


def unload(directory: str = DIRECTORY) -> bool:
    """Detach ours and leave nothing of it pinned; False if none was. The maps stay.

    Raises: HostError. Blocking: until all tasks are back in the kernel's own class.
    """
    return struct_ops.detach(directory)


class SchedulerRole:
    """Keeps the scheduler attached until told to stop; then leaves it attached.

    An end that the scheduler is to blame for is followed by a pause that doubles from
    FIRST_BACK_OFF_S to MAX_BACK_OFF_S; one that the kernel asks to undo (CPU hotplug) by none.
    """

    def __init__(
        self,
        directory: str = DIRECTORY,
        *,
        root: str = "/",
        run_dir: str = "/run/claim2core",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._root = root
        self._run_dir = Path(run_dir)
        self._clock = clock
        self._stop = threading.Event()
        self._said = {"state": "", "failure": ""}
        self._back_off_s = 0.0
        self._not_before_s = 0.0
        self._attached_at_s = 0.0
        self._seen_exit: ExitRecord | None = None

    def stop(self) -> None:
        """End `run` soon. Safe in signal handlers."""
        self._stop.set()

    def run(self) -> None:
        """Look and act until `stop`. Raises: nothing that a step finds."""
        while not self._stop.is_set():
            self.step()
            self._stop.wait(POLL_S)

    def step(self) -> Phase | None:
        """Look once and do what follows; give what was found, None if it could not be."""
        try:
            found = look(self._directory, self._root)
            level = logging.INFO if found.phase is Phase.RUNNING else logging.WARNING
            self._say_once("state", level, f"{found.phase.value}: {found.words}")
            self._act(found)
        except Claim2CoreError as error:
            self._say_once("failure", logging.ERROR, f"{error.code}: {error}")
            if self._clock() >= self._not_before_s:
                self._delay()
            return None
        return found.phase

    def _act(self, found: Situation) -> None:
        if found.phase is Phase.EJECTED and found.exit != self._seen_exit:
            self._note_exit(found.exit)
        if found.phase not in (Phase.EJECTED, Phase.STOPPED, Phase.STALE):
            return
        if self._clock() < self._not_before_s:
            return
        load(self._directory, self._root)
        self._attached_at_s = self._clock()
        self._said["failure"] = ""
        self._seen_exit = None
        log.info("scheduler attached", extra={"pins": self._directory})

    def _note_exit(self, record: ExitRecord | None) -> None:
        self._seen_exit = record
        if record is not None:
            self._keep_dump(record)
            if record.wants_restart:
                return
        self._delay()

    def _delay(self) -> None:
        now = self._clock()
        if self._attached_at_s and now - self._attached_at_s >= CALM_S:
            self._back_off_s = 0.0
        self._back_off_s = min(max(FIRST_BACK_OFF_S, 2 * self._back_off_s), MAX_BACK_OFF_S)
        self._not_before_s = now + self._back_off_s
        log.info("next attempt to attach", extra={"pause_s": self._back_off_s})

    def _keep_dump(self, record: ExitRecord) -> None:
        # The next attach overwrites the map.
        path = self._run_dir / DUMP_NAME
        try:
            self._run_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.write_text(f"{record}\nexit code {record.code:#x}\n\n{record.dump}\n")
        except OSError as error:
            log.warning("dump not kept", extra={"path": str(path), "reason": error.strerror})
            return
        log.info("dump kept", extra={"path": str(path)})

    def _say_once(self, about: str, level: int, words: str) -> None:
        if self._said[about] != words:
            self._said[about] = words
            log.log(level, "scheduler", extra={about: words})
