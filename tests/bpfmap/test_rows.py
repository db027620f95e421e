"""Rows and requests as bytes, against bytes laid out by hand after the header."""

from __future__ import annotations

import struct

import pytest

from nri_claim2core.bpfmap import requests
from nri_claim2core.bpfmap.abi import (
    CGROUP,
    NR_COUNTERS,
    REQUEST_SIZE,
    STATS,
    TASK,
    CellState,
    CgroupId,
    ControlFlag,
    ExecClass,
    Result,
    Tid,
)
from nri_claim2core.bpfmap.mutate import error_of
from nri_claim2core.bpfmap.rows import CellRow, CgroupRow, Control, Policy, Stats, TaskRow, seal_of
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.errors import HostError, StaleError, UsageError

# generation, cell_generation, claim_key, lease_end_ns, slice_ns; cell, weight, class, flags
POLICY_BYTES = struct.pack("=5Q4I", 1, 2, 3, 4, 5, 6, 7, 2, 9)
POLICY = Policy(
    generation=1,
    cell_generation=2,
    claim_key=3,
    lease_end_ns=4,
    slice_ns=5,
    cell=6,
    weight=7,
    exec_class=ExecClass.COMMUNICATION_PROGRESS,
    flags=9,
)


def test_cgroup_row_both_ways():
    row = CgroupRow(cgroup_id=CgroupId(77), policy=POLICY)
    assert row.pack() == POLICY_BYTES + struct.pack("=QQ", 77, 0)
    assert CgroupRow.unpack(77, row.pack()) == row


def test_task_row_both_ways():
    row = TaskRow(
        tid=Tid(14),
        pid_ino=13,
        policy=POLICY,
        cgroup_id=CgroupId(11),
        start_boottime_ns=12,
        tgid=15,
    )
    assert row.pack() == POLICY_BYTES + struct.pack("=QQQIIQ", 11, 12, 13, 14, 15, 0)
    assert TaskRow.unpack(14, row.pack()) == row


def test_a_class_of_a_newer_hand_survives_as_its_number():
    data = bytearray(POLICY_BYTES + bytes(16))
    struct.pack_into("=I", data, 48, 6)
    assert CgroupRow.unpack(0, bytes(data)).policy.exec_class == 6


# The fold, written out another way: reduce over words with division for the shift.
def folded(data):
    state = int.from_bytes(b"claim2co", "big")
    for (word,) in struct.iter_unpack("=Q", data):
        state = (state ^ word) * 11400714819323198485 % 2**64
        state ^= state // 2**32
    return state


@pytest.mark.parametrize("layout", [CGROUP, TASK], ids=lambda layout: layout.name)
def test_seal_is_over_the_words_before_it(layout):
    data = bytes(range(layout.size))
    assert seal_of(layout, data) == folded(data[: layout.size - 8])
    assert seal_of(layout, bytes(layout.size)) != 0


def test_sealed_means_by_its_own_key():
    body = POLICY_BYTES + struct.pack("=Q", 77)
    data = body + struct.pack("=Q", folded(body))
    assert CgroupRow.unpack(77, data).sealed
    assert not CgroupRow.unpack(78, data).sealed
    assert not CgroupRow.unpack(77, data[:-1] + b"\0").sealed


def test_control_row():
    data = struct.pack("=6Q4I", 10, 11, 12, 13, 14, 15, 1, 1, 16, 0)
    assert Control.unpack(data) == Control(
        generation=10,
        floor=11,
        token=12,
        busy_ns=13,
        taken_ns=14,
        scheduler_ns=15,
        abi=1,
        flags=ControlFlag.SUSPENDED,
        writer_tgid=16,
    )


def test_cell_mask_words_are_low_cpus_first():
    request = requests.put_cell(3, CpuSet([0, 63, 64, 1023]))
    words = struct.unpack_from("=16Q", request.body, 16)
    assert words == (1 << 63 | 1, 1, *[0] * 13, 1 << 63)
    seen = CellRow.unpack(3, request.body)
    assert (seen.cpus, seen.state, seen.sealed) == (
        CpuSet([0, 63, 64, 1023]),
        CellState.FREE,
        False,
    )


def test_a_cpu_beyond_the_mask_is_the_callers_mistake():
    with pytest.raises(UsageError, match="1024"):
        requests.put_cell(3, CpuSet([1024]))


@pytest.mark.parametrize(
    ("request_made", "op", "index", "generation"),
    [
        (requests.put_cell(3, CpuSet()), 1, 3, 0),
        (requests.drain_cell(4, 40), 2, 4, 40),
        (requests.free_cell(5, 50), 3, 5, 50),
        (requests.put_cgroup(CgroupRow(cgroup_id=CgroupId(1))), 4, 0, 0),
        (requests.delete_cgroup(CgroupId(1), 60), 5, 0, 60),
        (requests.put_task(TaskRow(tid=Tid(1), pid_ino=1)), 6, 0, 0),
        (requests.put_task_of_cgroup(TaskRow(tid=Tid(1), pid_ino=1)), 7, 0, 0),
        (requests.delete_task(Tid(1), 2, 70), 8, 0, 70),
    ],
    ids=lambda value: value.op.name if isinstance(value, requests.Request) else None,
)
def test_requests_have_one_size_and_their_tail(request_made, op, index, generation):
    data = request_made.pack()
    assert len(data) == REQUEST_SIZE == 184
    assert struct.unpack_from("=QIIIi", data, 160) == (generation, op, index, 0, 0)


def test_outcome_of_the_second_request():
    answer = bytes(184) + b"\1" * 160 + struct.pack("=QIIIi", 9, 4, 0, 17, -12)
    outcome = requests.unpack_outcome(answer, 184)
    assert (outcome.result, outcome.generation, outcome.error) == (Result.KERNEL, 9, 12)
    assert outcome.body == b"\1" * 160
    error = error_of(outcome.result, outcome.error, "PUT_CGROUP")
    assert isinstance(error, HostError)
    assert (error.errno, "Cannot allocate memory" in str(error)) == (12, True)


def test_stats_are_added_up_over_the_cpus():
    numbers = range(STATS.size // 8)
    one = struct.pack(f"={len(numbers)}Q", *numbers)
    stats = Stats.unpack([one, one, bytes(len(one))])
    assert stats.counters == tuple(2 * n for n in range(128))
    assert stats.wait_hist[0] == tuple(2 * n for n in range(NR_COUNTERS, 160))
    assert stats.run_hist[7][31] == 2 * numbers[-1]
    assert (len(stats.wait_hist), len(stats.run_hist)) == (8, 8)


@pytest.mark.parametrize("result", [each for each in Result if each is not Result.OK])
def test_every_refusal_has_a_named_error(result):
    error = error_of(result, 1, "x")
    assert isinstance(error, HostError | StaleError)
    assert error.code.startswith(("C2C-BPF-", "C2C-STALE-"))
