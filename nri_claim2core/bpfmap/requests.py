"""Requests to the mutation program: one change of one row each, and what became of it.

Fields that the kernel fills in - generation, start time, seal - are zero in what is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from nri_claim2core.bpfmap.abi import (
    CELL,
    MASK_WORDS,
    MAX_CPUS,
    REQUEST_TAIL,
    CgroupId,
    RequestOp,
    Result,
    Tid,
)
from nri_claim2core.bpfmap.rows import CgroupRow, TaskRow
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.errors import UsageError

_U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Request:
    """One change of one row. Make it with the functions below."""

    op: RequestOp
    body: bytes
    index: int = 0
    generation: int = 0

    def pack(self) -> bytes:
        """Encode for the request map."""
        tail = REQUEST_TAIL.pack(self.generation, self.op, self.index, 0, 0)
        return self.body.ljust(CELL.size, b"\0") + tail


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request."""

    result: Result
    generation: int
    "Stamped on the row, where one was written."
    error: int
    "errno, where the result is KERNEL."
    body: bytes
    "The row as written."


def unpack_outcome(data: bytes | bytearray, offset: int) -> Outcome:
    """Decode a request that the kernel has answered."""
    generation, _, _, result, error = REQUEST_TAIL.unpack(data, offset + CELL.size)
    body = bytes(data[offset : offset + CELL.size])
    return Outcome(Result(result), generation, -error, body)


def put_cell(index: int, cpus: CpuSet) -> Request:
    """Make a free cell live with this envelope; a live one with the same stays as it is.

    Raises: UsageError when a CPU is beyond what a mask can name.
    """
    if cpus.mask >> MAX_CPUS:
        raise UsageError(f"CPUs {cpus} do not fit a mask of {MAX_CPUS} CPUs")
    words = [cpus.mask >> 64 * at & _U64 for at in range(MASK_WORDS)]
    return Request(RequestOp.PUT_CELL, CELL.pack(0, 0, *words, 0, 0, 0), index=index)


def drain_cell(index: int, generation: int = 0) -> Request:
    """Let a live cell take no more rows."""
    return Request(RequestOp.DRAIN_CELL, b"", index=index, generation=generation)


def free_cell(index: int, generation: int = 0) -> Request:
    """Free a draining cell, once the scheduler (if any) has drained it."""
    return Request(RequestOp.FREE_CELL, b"", index=index, generation=generation)


def put_cgroup(row: CgroupRow) -> Request:
    """Write the policy of a cgroup that exists."""
    return Request(RequestOp.PUT_CGROUP, row.pack())


def delete_cgroup(cgroup_id: CgroupId, generation: int = 0) -> Request:
    """Delete a cgroup's row; with a generation only the row that carries it."""
    body = CgroupRow(cgroup_id=cgroup_id).pack()
    return Request(RequestOp.DELETE_CGROUP, body, generation=generation)


def put_task(row: TaskRow) -> Request:
    """Write the policy of the thread that has this TID and pidfd inode."""
    return Request(RequestOp.PUT_TASK, row.pack())


def put_task_of_cgroup(row: TaskRow) -> Request:
    """Write the policy of the thread with this pidfd inode, looked for in the row's cgroup.

    The row's TID is not used: a caller inside a pid namespace does not know it.
    """
    return Request(RequestOp.PUT_TASK_OF_CGROUP, row.pack())


def delete_task(tid: Tid, pid_ino: int = 0, generation: int = 0) -> Request:
    """Delete a thread's row; with inode or generation only the row that carries them."""
    body = TaskRow(tid=tid, pid_ino=pid_ino).pack()
    return Request(RequestOp.DELETE_TASK, body, generation=generation)
