"""Rows of the shared maps as values.

Decoding checks the seal, so that a row which another hand wrote, or a copy that mixes two
rows, is seen as such: `sealed` also says that the row is the key's own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from nri_claim2core.bpfmap.abi import (
    CELL,
    CGROUP,
    CONTROL,
    HIST_SLOTS,
    MAX_CLASSES,
    NR_COUNTERS,
    POLICY,
    STATS,
    TASK,
    VIEW,
    CellState,
    CgroupId,
    ControlFlag,
    Counter,
    ExecClass,
    Result,
    Source,
    Tid,
    Verdict,
)
from nri_claim2core.bpfmap.layout import Layout
from nri_claim2core.model.cpuset import CpuSet

_SEAL_START, _SEAL_FACTOR, _U64 = 0x636C61696D32636F, 0x9E3779B97F4A7C15, (1 << 64) - 1
_NR_POLICY = len(POLICY.members)
_CLASSES = frozenset(ExecClass)
_OWN_CGROUP = CgroupId(0)


def seal_of(layout: Layout, data: bytes) -> int:
    """Give the seal that a row must carry: a fold over the 64-bit words before it.

    Source: c2c_seal in bpf/lookup.bpf.h.
    """
    seal = _SEAL_START
    for word in struct.unpack_from(f"={layout.offset('seal') // 8}Q", data):
        seal = (seal ^ word) * _SEAL_FACTOR & _U64
        seal ^= seal >> 32
    return seal


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The control row."""

    generation: int
    "Last generation stamped; never decreases within a boot."
    floor: int
    "Rows with a generation below are void."
    token: int
    "The writer's token, 0 before the first writer."
    busy_ns: int
    taken_ns: int
    scheduler_ns: int
    "When the scheduler that uses these maps came; 0 without one."
    abi: int
    flags: ControlFlag
    writer_tgid: int
    "The writer's process, in the initial pid namespace."

    @classmethod
    def unpack(cls, data: bytes) -> Control:
        """Decode the row."""
        (generation, floor, token, busy, taken, scheduler, abi, flags, tgid, _) = CONTROL.unpack(
            data
        )
        return cls(
            generation=generation,
            floor=floor,
            token=token,
            busy_ns=busy,
            taken_ns=taken,
            scheduler_ns=scheduler,
            abi=abi,
            flags=ControlFlag(flags),
            writer_tgid=tgid,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """A cell: one distinct envelope."""

    index: int
    generation: int
    dsq_id: int
    cpus: CpuSet
    state: CellState
    sealed: bool

    @classmethod
    def unpack(cls, index: int, data: bytes) -> CellRow:
        """Decode the row."""
        generation, dsq_id, *words, seal, state, _ = CELL.unpack(data)
        mask = sum(word << 64 * at for at, word in enumerate(words))
        return cls(
            index=index,
            generation=generation,
            dsq_id=dsq_id,
            cpus=CpuSet.from_mask(mask),
            state=CellState(state),
            sealed=seal == seal_of(CELL, data),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is decided for a cgroup or a thread."""

    cell: int = 0
    cell_generation: int = 0
    "In a request 0 stands for the one the cell has."
    claim_key: int = 0
    exec_class: int = ExecClass.DEFAULT
    "An ExecClass; a number that is none survives being read back."
    weight: int = 0
    "As cpu.weight: 1 to 10000; 0 is 100."
    slice_ns: int = 0
    "0 is the class's own."
    lease_end_ns: int = 0
    "When the class ends, CLOCK_BOOTTIME; 0 needs no lease."
    flags: int = 0
    generation: int = 0

    def values(self) -> tuple[int, ...]:
        """Members in the order of the layout."""
        return (
            self.generation,
            self.cell_generation,
            self.claim_key,
            self.lease_end_ns,
            self.slice_ns,
            self.cell,
            self.weight,
            self.exec_class,
            self.flags,
        )

    @classmethod
    def of(cls, values: tuple[int, ...]) -> Policy:
        """Give the policy whose members these are."""
        generation, cell_generation, key, lease_end, slice_ns, cell, weight, kind, flags = values
        return cls(
            generation=generation,
            cell_generation=cell_generation,
            claim_key=key,
            lease_end_ns=lease_end,
            slice_ns=slice_ns,
            cell=cell,
            weight=weight,
            exec_class=ExecClass(kind) if kind in _CLASSES else kind,
            flags=flags,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupRow:
    """Policy of all that runs in a cgroup and below."""

    cgroup_id: CgroupId
    policy: Policy = field(default_factory=Policy)
    sealed: bool = False

    def pack(self) -> bytes:
        """Encode for a request, without seal."""
        return CGROUP.pack(*self.policy.values(), self.cgroup_id, 0)

    @classmethod
    def unpack(cls, key: int, data: bytes) -> CgroupRow:
        """Decode the row found under `key`."""
        values = CGROUP.unpack(data)
        cgroup_id, seal = values[_NR_POLICY:]
        return cls(
            policy=Policy.of(values[:_NR_POLICY]),
            cgroup_id=CgroupId(key),
            sealed=cgroup_id == key and seal == seal_of(CGROUP, data),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """Policy of one thread, valid only while thread, start time and cgroup are these."""

    tid: Tid
    pid_ino: int
    "Inode number of the thread's pidfd; unique within a boot."
    policy: Policy = field(default_factory=Policy)
    cgroup_id: CgroupId = _OWN_CGROUP
    "In a request 0 stands for the one the thread is in."
    start_boottime_ns: int = 0
    "In a request 0 accepts what the kernel has."
    tgid: int = 0
    sealed: bool = False

    def pack(self) -> bytes:
        """Encode for a request, without seal."""
        return TASK.pack(
            *self.policy.values(),
            self.cgroup_id,
            self.start_boottime_ns,
            self.pid_ino,
            self.tid,
            self.tgid,
            0,
        )

    @classmethod
    def unpack(cls, key: int, data: bytes) -> TaskRow:
        """Decode the row found under `key`."""
        values = TASK.unpack(data)
        cgroup_id, start, pid_ino, tid, tgid, seal = values[_NR_POLICY:]
        return cls(
            policy=Policy.of(values[:_NR_POLICY]),
            cgroup_id=CgroupId(cgroup_id),
            start_boottime_ns=start,
            pid_ino=pid_ino,
            tid=Tid(key),
            tgid=tgid,
            sealed=tid == key and seal == seal_of(TASK, data),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the kernel side makes of one thread."""

    policy: Policy
    "In force; all zero is the default class in cell 0."
    cgroup_id: CgroupId
    governing_cgroup_id: CgroupId
    "The nearest cgroup up the tree that has a row, or 0."
    start_boottime_ns: int
    pid_ino: int
    tid: Tid
    tgid: int
    source: Source
    task_verdict: Verdict
    cgroup_verdict: Verdict
    result: Result

    @classmethod
    def unpack(cls, data: bytes | bytearray, offset: int = 0) -> View:
        """Decode one record."""
        values = VIEW.unpack(data, offset)
        (cgroup_id, governing, start, pid_ino, tid, tgid, source, task, cgroup, result) = values[
            _NR_POLICY:
        ]
        return cls(
            policy=Policy.of(values[:_NR_POLICY]),
            cgroup_id=CgroupId(cgroup_id),
            governing_cgroup_id=CgroupId(governing),
            start_boottime_ns=start,
            pid_ino=pid_ino,
            tid=Tid(tid),
            tgid=tgid,
            source=Source(source),
            task_verdict=Verdict(task),
            cgroup_verdict=Verdict(cgroup),
            result=Result(result),
        )


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters and histograms, summed over the CPUs."""

    counters: tuple[int, ...]
    wait_hist: tuple[tuple[int, ...], ...]
    "By class, then by slot; slot n counts 2^n to 2^(n+1) microseconds."
    run_hist: tuple[tuple[int, ...], ...]

    @classmethod
    def unpack(cls, per_cpu: list[bytes]) -> Stats:
        """Add up the CPUs' values."""
        total = [sum(column) for column in zip(*map(STATS.unpack, per_cpu), strict=True)]
        hist = [
            tuple(total[at : at + HIST_SLOTS]) for at in range(NR_COUNTERS, len(total), HIST_SLOTS)
        ]
        return cls(tuple(total[:NR_COUNTERS]), tuple(hist[:MAX_CLASSES]), tuple(hist[MAX_CLASSES:]))

    def results(self) -> dict[Result, int]:
        """Requests of mutations by outcome."""
        return {result: self.counters[Counter.RESULT + result] for result in Result}
