"""The scheduler object: load it onto the pinned maps, attach it, keep it by the pin of its link.

The link is the scheduler's life: pinned, it outlives the loader; detached, the kernel is back
with its own scheduler within a tenth of a second. Only one scheduler is attached at a time;
a second attach fails with EBUSY.
"""

from __future__ import annotations

import ctypes
import enum
import errno as codes
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from nri_claim2core.bpfmap import syscall
from nri_claim2core.bpfmap.abi import Counter
from nri_claim2core.bpfmap.errors import LoadError, SchedulerTakenError
from nri_claim2core.bpfmap.libbpf import Object
from nri_claim2core.bpfmap.pins import CONTROL_KEY, DIRECTORY, Maps

OBJECT: Final = str(Path(__file__).parent / "objects" / "scheduler.bpf.o")

OPS_NAME: Final = "claim2core"
"""Name of the scheduler in /sys/kernel/sched_ext/root/ops, and of its map in the object."""

LINK_PIN: Final = "scheduler"
RUNS_MAP: Final = "c2c_runs"
EXIT_MAP: Final = "c2c_exit"
_OWN_MAPS: Final = (RUNS_MAP, EXIT_MAP)

MIN_LIBBPF: Final = (1, 4)
"""Earlier ones do not know `.struct_ops.link`, or fail at members that the kernel lacks."""

_SIGNATURES: Final = {
    "libbpf_major_version": (ctypes.c_uint32, ()),
    "libbpf_minor_version": (ctypes.c_uint32, ()),
    "bpf_map__attach_struct_ops": (ctypes.c_void_p, (ctypes.c_void_p,)),
    "bpf_link__fd": (ctypes.c_int, (ctypes.c_void_p,)),
    "bpf_link__destroy": (ctypes.c_int, (ctypes.c_void_p,)),
}


_EXIT: Final = struct.Struct("=qII128s1024s32768s")
_NAMES_OF_KINDS: Final = {
    64: "unregistered by user space",
    65: "unregistered by the scheduler",
    66: "unregistered by the kernel",
    67: "ended by SysRq-S",
    1024: "error",
    1025: "error found by the scheduler",
    1026: "a task was not run in time",
}
"""enum scx_exit_kind; later kernels have more."""

_RESTART_BIT: Final = 1 << 48
"""Bit of an exit code that asks to be loaded again: SCX_ECODE_ACT_RESTART, CPU hotplug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """Why the kernel ended a scheduler, in its own words."""

    kind: int
    code: int
    reason: str
    message: str
    dump: str
    "What the kernel knew of CPUs and tasks; up to 32 KiB."

    @property
    def wants_restart(self) -> bool:
        """Tell whether it ended only to begin again, as after CPU hotplug."""
        return bool(self.code & _RESTART_BIT)

    @property
    def is_failure(self) -> bool:
        """Tell whether the scheduler was at fault, or a task starved."""
        return self.kind >= 1024  # noqa: PLR2004 - SCX_EXIT_ERROR

    def __str__(self) -> str:
        kind = _NAMES_OF_KINDS.get(self.kind, f"exit kind {self.kind}")
        return f"{kind}: {self.message or self.reason or 'no reason given'}"

    @classmethod
    def unpack(cls, data: bytes) -> ExitRecord:
        """Decode the record of the exit map."""
        code, kind, _, *texts = _EXIT.unpack(data)
        reason, message, dump = (
            text.split(b"\0", 1)[0].decode("utf-8", "replace") for text in texts
        )
        return cls(kind=kind, code=code, reason=reason, message=message, dump=dump)


class SchedulerCounter(enum.IntEnum):
    """Places in `Stats.counters` that are the scheduler's own."""

    WITH_POLICY = Counter.SCHEDULER
    "Runs of threads of a workload, from its exec on, in a class that somebody decided."
    WITHOUT_POLICY = Counter.SCHEDULER + 1
    "The same in the default class, of containers and services without a policy too."
    LATE_CGROUPS = Counter.SCHEDULER + 2
    "Cgroups whose workload ran before it had a policy."
    PER_CPU = Counter.SCHEDULER + 3
    "Waits in a CPU's queue: the mask does not cover the cell."
    RESCUES = Counter.SCHEDULER + 4
    "Waits in a cell that was retired at that moment."
    NO_CONTEXT = Counter.SCHEDULER + 5
    "Runs of tasks for which the kernel had no memory."
    CELLS_LEFT_OUT = Counter.SCHEDULER + 6
    "Looks at the cells that found more on one CPU than it serves at a time."
    ROWS_ENDED = Counter.SCHEDULER + 7
    "Rows removed with their thread or cgroup."


class RunCounts(NamedTuple):
    """Runs of a cgroup's workload."""

    with_policy: int
    without_policy: int


class _SchedulerObject(Object):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
        found = (self._library.libbpf_major_version(), self._library.libbpf_minor_version())
        if found < MIN_LIBBPF:
            self.__exit__()
            raise LoadError(
                f"libbpf {found[0]}.{found[1]} cannot load a scheduler",
                hint="1.4 or later is needed: Debian 13, Ubuntu 24.10, or bookworm-backports",
            )

    def attach(self) -> int:
        """Attach the scheduler; give the descriptor of its link."""
        link = self._library.bpf_map__attach_struct_ops(self._map(OPS_NAME))
        if not link:
            number = ctypes.get_errno()
            if number == codes.EBUSY:
                raise SchedulerTakenError("another sched_ext scheduler is attached")
            raise self._failure("was not attached", number)
        fd = os.dup(self._library.bpf_link__fd(link))
        # Ours is the dup; what libbpf has is closed with the link's end here.
        self._library.bpf_link__destroy(link)
        return fd


def attach(maps: Maps, *, object_path: str = OBJECT) -> None:
    """Load the scheduler onto `maps`, attach it and pin its link beside them.

    Pins of an earlier one make room: the kernel has ended it, or this fails. Raises: LoadError,
    SchedulerTakenError, CapabilityError, BpfError. Blocking: about 0.1 s, seconds when
    emulated; every fork on the machine waits meanwhile.
    """
    if not Path(object_path).exists():
        raise LoadError(f"{object_path} is not there", path=object_path, hint="built by `make bpf`")
    with _SchedulerObject(object_path) as scheduler:
        for name, fd in maps.fds.items():
            scheduler.reuse(name, fd)
        scheduler.load()
        link = scheduler.attach()
        try:
            _pin_over(link, f"{maps.directory}/{LINK_PIN}")
            for name in _OWN_MAPS:
                fd = scheduler.map_fd(name)
                try:
                    _pin_over(fd, f"{maps.directory}/{name}")
                finally:
                    os.close(fd)
        finally:
            os.close(link)


def is_pinned(directory: str = DIRECTORY) -> bool:
    """Tell whether a link is pinned; that it is attached only sched_ext's state says."""
    fd = syscall.obj_get(f"{directory}/{LINK_PIN}")
    if fd < 0:
        return False
    os.close(fd)
    return True


def detach(directory: str = DIRECTORY) -> bool:
    """Detach what the pinned link attaches and remove our pins; False if there was none.

    The pinned maps of the plugin stay. Raises: CapabilityError, BpfError. Blocking: until the
    kernel has switched all tasks back.
    """
    path = f"{directory}/{LINK_PIN}"
    fd = syscall.obj_get(path)
    if fd < 0 and fd != -codes.ENOENT:
        raise syscall.refusal(fd, f"cannot open {path}", path)
    if fd >= 0:
        try:
            syscall.link_detach(fd)
        finally:
            os.close(fd)
    for name in (LINK_PIN, *_OWN_MAPS):
        Path(f"{directory}/{name}").unlink(missing_ok=True)
    return fd >= 0


def read_exit(directory: str = DIRECTORY) -> ExitRecord | None:
    """Give why the pinned scheduler ended; None while it runs, or without one."""
    data = _maybe_value(directory, EXIT_MAP, CONTROL_KEY, _EXIT.size)
    record = None if data is None else ExitRecord.unpack(data)
    return record if record is not None and record.kind else None


def read_runs(directory: str = DIRECTORY) -> dict[int, RunCounts]:
    """Give by cgroup id how often threads of its workload ran with and without a policy.

    Counted from exec on; cgroups that have ended included, the oldest left out. Empty without a
    scheduler.
    """
    fd = syscall.obj_get(f"{directory}/{RUNS_MAP}", read_only=True)
    if fd < 0:
        return {}
    try:
        rows = syscall.map_rows(fd, syscall.map_info(fd))
        return {
            struct.unpack("=Q", key)[0]: RunCounts(*struct.unpack("=QQ", value))
            for key, value in rows
        }
    finally:
        os.close(fd)


def _maybe_value(directory: str, name: str, key: bytes, size: int) -> bytes | None:
    fd = syscall.obj_get(f"{directory}/{name}", read_only=True)
    if fd < 0:
        return None
    try:
        return syscall.map_lookup(fd, key, size)
    finally:
        os.close(fd)


def _pin_over(fd: int, path: str) -> None:
    Path(path).unlink(missing_ok=True)
    syscall.obj_pin(fd, path)
