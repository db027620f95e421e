"""Why a row does not hold, judged in user space; and the same in words.

The kernel side judges rows each time it reads one (bpf/lookup.bpf.h); this is the same rule
seen from outside, for rows of which no thread asks - a thread or cgroup that is gone asks
nothing. Pure: rows and facts come in, faults come out. What is not known is no fault.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nri_claim2core.agent.inspection_facts import CgroupTree, Identity
from nri_claim2core.bpfmap.abi import CellState, ControlFlag, Verdict
from nri_claim2core.bpfmap.rows import CellRow, CgroupRow, Control, Policy, TaskRow


class Fault(enum.Enum):
    """Why a row does not hold, or has no provenance."""

    FOREIGN = "foreign"
    OLD_GENERATION = "old-generation"
    CELL_STALE = "cell-stale"
    CGROUP_GONE = "cgroup-gone"
    TASK_GONE = "task-gone"
    OTHER_TASK = "other-task"
    OTHER_CGROUP = "other-cgroup"
    UNUSED = "unused"
    "A cell that no row names."
    SUSPENDED = "suspended"
    LEASE_OVER = "lease-over"
    NOT_IN_LEDGER = "not-in-ledger"
    OTHER_IN_LEDGER = "other-in-ledger"

    @property
    def words(self) -> str:
        """One clause for people."""
        return _WORDS[self]


_WORDS: Final = {
    Fault.FOREIGN: "its seal does not fit: another hand wrote it",
    Fault.OLD_GENERATION: "its generation is below the floor: void since a restart",
    Fault.CELL_STALE: "its cell was freed or reused",
    Fault.CGROUP_GONE: "its cgroup is gone",
    Fault.TASK_GONE: "its thread has ended",
    Fault.OTHER_TASK: "its TID belongs to another thread now",
    Fault.OTHER_CGROUP: "its thread is in another cgroup now",
    Fault.UNUSED: "no row names it",
    Fault.SUSPENDED: "the emergency stop is on",
    Fault.LEASE_OVER: "its lease is over",
    Fault.NOT_IN_LEDGER: "the plugin's ledger does not have it",
    Fault.OTHER_IN_LEDGER: "the plugin's ledger has another generation of it",
}

PASSING: Final = frozenset((Fault.SUSPENDED, Fault.LEASE_OVER))
"""Keep a row from being used now; it may be used again, so this is no reason to delete it."""

VERDICT_FAULTS: Final[Mapping[Verdict, Fault]] = {
    Verdict.SUSPENDED: Fault.SUSPENDED,
    Verdict.TORN: Fault.FOREIGN,
    Verdict.OLD_GENERATION: Fault.OLD_GENERATION,
    Verdict.OTHER_TASK: Fault.OTHER_TASK,
    Verdict.OTHER_CGROUP: Fault.OTHER_CGROUP,
    Verdict.CELL_STALE: Fault.CELL_STALE,
    Verdict.LEASE_OVER: Fault.LEASE_OVER,
}
"""The kernel's verdicts in the same terms; OK and MISS are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What rows are judged against; read after them."""

    control: Control
    cells: Mapping[int, CellRow]
    "Those that are not free, by index."
    tree: CgroupTree
    now_ns: int
    "CLOCK_BOOTTIME."


def check_policy(policy: Policy, frame: Frame) -> list[Fault]:
    """Give what is wrong with a row whoever it is for."""
    faults = []
    if frame.control.flags & ControlFlag.SUSPENDED:
        faults.append(Fault.SUSPENDED)
    if not policy.generation or policy.generation < frame.control.floor:
        faults.append(Fault.OLD_GENERATION)
    cell = frame.cells.get(policy.cell)
    if cell is None or cell.state is CellState.FREE or cell.generation != policy.cell_generation:
        faults.append(Fault.CELL_STALE)
    if policy.lease_end_ns and policy.lease_end_ns <= frame.now_ns:
        faults.append(Fault.LEASE_OVER)
    return faults


def check_cgroup(row: CgroupRow, frame: Frame) -> list[Fault]:
    """Give what is wrong with a cgroup row; nothing of an unsealed one can be believed."""
    if not row.sealed:
        return [Fault.FOREIGN]
    faults = check_policy(row.policy, frame)
    if frame.tree.is_whole and row.cgroup_id not in frame.tree.paths:
        faults.append(Fault.CGROUP_GONE)
    return faults


def check_task(
    row: TaskRow, frame: Frame, found: Identity | None, *, is_known: bool = True
) -> list[Fault]:
    """Give what is wrong with a thread's row.

    `found` has its TID now; None is nobody, or with `is_known` False not known.
    """
    if not row.sealed:
        return [Fault.FOREIGN]
    faults = check_policy(row.policy, frame)
    if not is_known:
        return faults
    if found is None:
        faults.append(Fault.TASK_GONE)
    elif found.pid_ino != row.pid_ino:
        faults.append(Fault.OTHER_TASK)
    elif found.cgroup_id and found.cgroup_id != row.cgroup_id:
        faults.append(Fault.OTHER_CGROUP)
    return faults


def check_cell(row: CellRow, named: frozenset[tuple[int, int]]) -> list[Fault]:
    """Give what is wrong with a cell; `named` has (index, generation) of those that rows name."""
    faults = []
    if not row.sealed:
        faults.append(Fault.FOREIGN)
    if row.index and (row.index, row.generation) not in named:
        faults.append(Fault.UNUSED)
    return faults
