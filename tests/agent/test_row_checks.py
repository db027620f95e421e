"""Rows as values against what they are judged by."""

from __future__ import annotations

import dataclasses

import pytest

from nri_claim2core.agent.inspection_facts import CgroupTree, Identity
from nri_claim2core.agent.row_checks import (
    VERDICT_FAULTS,
    Fault,
    Frame,
    check_cell,
    check_cgroup,
    check_task,
)
from nri_claim2core.bpfmap.abi import CellState, ControlFlag, Verdict
from nri_claim2core.bpfmap.rows import CellRow, CgroupRow, Control, Policy, TaskRow
from nri_claim2core.model.cpuset import CpuSet

NOW = 5_000
CONTROL = Control(
    generation=20,
    floor=10,
    token=1,
    busy_ns=0,
    taken_ns=0,
    scheduler_ns=0,
    abi=1,
    flags=ControlFlag.NONE,
    writer_tgid=1,
)
CELL = CellRow(
    index=1, generation=4, dsq_id=65537, cpus=CpuSet([0]), state=CellState.LIVE, sealed=True
)
FRAME = Frame(
    control=CONTROL,
    cells={1: CELL},
    tree=CgroupTree(mount="/m", is_whole=True, paths={7: "/pod"}),
    now_ns=NOW,
)
POLICY = Policy(cell=1, cell_generation=4, generation=10)
TASK = TaskRow(tid=100, pid_ino=55, policy=POLICY, cgroup_id=7, sealed=True)


def group(policy=POLICY, cgroup_id=7, sealed=True):
    return CgroupRow(cgroup_id=cgroup_id, policy=policy, sealed=sealed)


def changed(**members):
    return dataclasses.replace(POLICY, **members)


# By hand from the rule in bpf/lookup.bpf.h; the floor itself is not below the floor, and a
# lease that ends now is over.
@pytest.mark.parametrize(
    ("policy", "faults"),
    [
        (POLICY, []),
        (changed(generation=9), [Fault.OLD_GENERATION]),
        (changed(generation=0), [Fault.OLD_GENERATION]),
        (changed(cell_generation=3), [Fault.CELL_STALE]),
        (changed(cell=2), [Fault.CELL_STALE]),
        (changed(lease_end_ns=NOW), [Fault.LEASE_OVER]),
        (changed(lease_end_ns=NOW + 1), []),
        (changed(generation=9, cell=2), [Fault.OLD_GENERATION, Fault.CELL_STALE]),
    ],
)
def test_policy(policy, faults):
    assert check_cgroup(group(policy), FRAME) == faults


def test_a_row_without_generation_is_void_before_any_floor():
    frame = dataclasses.replace(FRAME, control=dataclasses.replace(CONTROL, floor=0))
    assert check_cgroup(group(changed(generation=0)), frame) == [Fault.OLD_GENERATION]


def test_the_emergency_stop_concerns_every_row():
    control = dataclasses.replace(CONTROL, flags=ControlFlag.SUSPENDED)
    frame = dataclasses.replace(FRAME, control=control)
    assert check_cgroup(group(), frame) == [Fault.SUSPENDED]


def test_a_draining_cell_keeps_its_rows():
    draining = dataclasses.replace(CELL, state=CellState.DRAINING)
    assert check_cgroup(group(), dataclasses.replace(FRAME, cells={1: draining})) == []


def test_a_cgroup_is_gone_only_where_all_can_be_seen():
    assert check_cgroup(group(cgroup_id=8), FRAME) == [Fault.CGROUP_GONE]
    part = dataclasses.replace(FRAME.tree, is_whole=False)
    assert check_cgroup(group(cgroup_id=8), dataclasses.replace(FRAME, tree=part)) == []


def test_nothing_else_is_said_of_an_unsealed_row():
    assert check_cgroup(group(changed(generation=0), 8, sealed=False), FRAME) == [Fault.FOREIGN]
    row = dataclasses.replace(TASK, sealed=False)
    assert check_task(row, FRAME, None) == [Fault.FOREIGN]


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        (Identity(pid_ino=55, cgroup_id=7), []),
        (Identity(pid_ino=56, cgroup_id=7), [Fault.OTHER_TASK]),
        (Identity(pid_ino=55, cgroup_id=8), [Fault.OTHER_CGROUP]),
        (Identity(pid_ino=55, cgroup_id=0), []),
        (None, [Fault.TASK_GONE]),
    ],
)
def test_identity(found, faults):
    assert check_task(TASK, FRAME, found) == faults


def test_a_thread_that_cannot_be_seen_is_not_called_gone():
    assert check_task(TASK, FRAME, None, is_known=False) == []


def test_a_cell_needs_a_row_that_names_its_generation():
    assert check_cell(CELL, frozenset({(1, 4)})) == []
    assert check_cell(CELL, frozenset({(1, 3)})) == [Fault.UNUSED]
    assert check_cell(dataclasses.replace(CELL, index=0), frozenset()) == []
    assert check_cell(dataclasses.replace(CELL, sealed=False), frozenset({(1, 4)})) == [
        Fault.FOREIGN
    ]


def test_every_verdict_of_the_kernel_against_a_row_has_words():
    assert set(VERDICT_FAULTS) == set(Verdict) - {Verdict.OK, Verdict.MISS}
    assert len({fault.words for fault in Fault}) == len(Fault)
