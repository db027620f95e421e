"""Mirror of bpf/claim2core.h: constants and layouts; rows.py has the rows as values.

The header is the contract; a test compares every size, offset and constant here with the BTF
of the compiled objects. Rows are valid within one boot only, times are CLOCK_BOOTTIME in ns.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NewType

from nri_claim2core.bpfmap.layout import Layout

Tid = NewType("Tid", int)
"""Thread number in the initial pid namespace, unless a docstring says otherwise."""
CgroupId = NewType("CgroupId", int)
"""Inode number of a cgroup's directory in the default (v2) hierarchy."""

ABI: Final = 1
MAX_CPUS: Final = 1024
MASK_WORDS: Final = MAX_CPUS // 64
MAX_REQUESTS: Final = 512
MAX_CLASSES: Final = 8
MAX_WEIGHT: Final = 10000
NR_COUNTERS: Final = 128
HIST_SLOTS: Final = 32


class ExecClass(enum.IntEnum):
    """Execution class of a policy."""

    DEFAULT = 0
    LATENCY_CRITICAL = 1
    COMMUNICATION_PROGRESS = 2
    THROUGHPUT = 3
    BACKGROUND = 4


class CellState(enum.IntEnum):
    """Life of a cell; its mask changes only while it is free."""

    FREE = 0
    LIVE = 1
    DRAINING = 2
    DRAINED = 3


class ControlFlag(enum.IntFlag):
    """Bits of the control row."""

    NONE = 0
    SUSPENDED = 1


class Verdict(enum.IntEnum):
    """What a reader in the kernel makes of a row."""

    OK = 0
    MISS = 1
    SUSPENDED = 2
    TORN = 3
    OLD_GENERATION = 4
    OTHER_TASK = 5
    OTHER_CGROUP = 6
    CELL_STALE = 7
    LEASE_OVER = 8


class Source(enum.IntEnum):
    """What governs a thread."""

    NONE = 0
    CGROUP = 1
    TASK = 2


class Op(enum.IntEnum):
    """What a mutation does."""

    TAKE_TOKEN = 1
    RAISE_FLOOR = 2
    SET_FLAGS = 3
    ROWS = 4


class RequestOp(enum.IntEnum):
    """What one request of a mutation does."""

    PUT_CELL = 1
    DRAIN_CELL = 2
    FREE_CELL = 3
    PUT_CGROUP = 4
    DELETE_CGROUP = 5
    PUT_TASK = 6
    PUT_TASK_OF_CGROUP = 7
    DELETE_TASK = 8


class Result(enum.IntEnum):
    """Outcome of a mutation or of one of its requests."""

    OK = 0
    OTHER_ABI = 1
    BUSY = 2
    STALE_WRITER = 3
    BAD_REQUEST = 4
    FLOOR_LOWER = 5
    FULL = 6
    NO_MEMORY = 7
    NOT_FOUND = 8
    TASK_GONE = 9
    OTHER_TASK = 10
    OTHER_CGROUP = 11
    NO_CGROUP = 12
    CELL_TAKEN = 13
    CELL_STALE = 14
    CELL_BUSY = 15
    OTHER_GENERATION = 16
    KERNEL = 17


class Counter(enum.IntEnum):
    """Base indices into the counters."""

    RESULT = 0
    VERDICT = 32
    CLASS = 48
    SCHEDULER = 56


_POLICY = (
    ("generation", "Q"),
    ("cell_generation", "Q"),
    ("claim_key", "Q"),
    ("lease_end_ns", "Q"),
    ("slice_ns", "Q"),
    ("cell", "I"),
    ("weight", "I"),
    ("exec_class", "I"),
    ("flags", "I"),
)

CONTROL: Final = Layout(
    "c2c_control",
    ("generation", "Q"),
    ("floor", "Q"),
    ("token", "Q"),
    ("busy_ns", "Q"),
    ("taken_ns", "Q"),
    ("scheduler_ns", "Q"),
    ("abi", "I"),
    ("flags", "I"),
    ("writer_tgid", "I"),
    ("reserved", "I"),
)
CELL: Final = Layout(
    "c2c_cell",
    ("generation", "Q"),
    ("dsq_id", "Q"),
    ("mask", f"{MASK_WORDS}Q"),
    ("seal", "Q"),
    ("state", "I"),
    ("reserved", "I"),
)
POLICY: Final = Layout("c2c_policy", *_POLICY)
CGROUP: Final = Layout("c2c_cgroup", *_POLICY, ("cgroup_id", "Q"), ("seal", "Q"))
TASK: Final = Layout(
    "c2c_task",
    *_POLICY,
    ("cgroup_id", "Q"),
    ("start_boottime_ns", "Q"),
    ("pid_ino", "Q"),
    ("tid", "I"),
    ("tgid", "I"),
    ("seal", "Q"),
)
STATS: Final = Layout(
    "c2c_stats",
    ("counters", f"{NR_COUNTERS}Q"),
    ("wait_hist", f"{MAX_CLASSES * HIST_SLOTS}Q"),
    ("run_hist", f"{MAX_CLASSES * HIST_SLOTS}Q"),
)
# After the union of cell, cgroup and task, whose size is the cell's.
REQUEST_TAIL: Final = Layout(
    "c2c_request",
    ("generation", "Q"),
    ("op", "I"),
    ("index", "I"),
    ("result", "I"),
    ("error", "i"),
)
MUTATION: Final = Layout(
    "c2c_mutation",
    ("token", "Q"),
    ("value", "Q"),
    ("generation", "Q"),
    ("abi", "I"),
    ("op", "I"),
    ("nr_requests", "I"),
    ("nr_failed", "I"),
    ("result", "I"),
    ("reserved", "I"),
)
VIEW: Final = Layout(
    "c2c_view",
    *_POLICY,
    ("cgroup_id", "Q"),
    ("governing_cgroup_id", "Q"),
    ("start_boottime_ns", "Q"),
    ("pid_ino", "Q"),
    ("tid", "I"),
    ("tgid", "I"),
    ("source", "I"),
    ("task_verdict", "I"),
    ("cgroup_verdict", "I"),
    ("result", "I"),
)
REQUEST_SIZE: Final = CELL.size + REQUEST_TAIL.size


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSpec:
    """One shared map: what its pin must be."""

    name: str
    type: int
    "enum bpf_map_type."
    key_size: int
    value_size: int


_HASH, _ARRAY, _PERCPU_ARRAY = 1, 2, 6

# Control is last: a set is there when its control map is.
MAPS: Final = (
    MapSpec(name="c2c_cells", type=_ARRAY, key_size=4, value_size=CELL.size),
    MapSpec(name="c2c_cgroups", type=_HASH, key_size=8, value_size=CGROUP.size),
    MapSpec(name="c2c_tasks", type=_HASH, key_size=4, value_size=TASK.size),
    MapSpec(name="c2c_stats", type=_PERCPU_ARRAY, key_size=4, value_size=STATS.size),
    MapSpec(name="c2c_control", type=_ARRAY, key_size=4, value_size=CONTROL.size),
)
