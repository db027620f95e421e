"""Rows as the mutation program writes them, against what other parts of the kernel say."""

from __future__ import annotations

import pytest

from nri_claim2core.bpfmap import readback, requests
from nri_claim2core.bpfmap.abi import CellState, ExecClass
from nri_claim2core.bpfmap.identity import read_cgroup_id, read_pid_ino
from nri_claim2core.bpfmap.rows import CgroupRow, Policy, TaskRow
from nri_claim2core.model.cpuset import CpuSet
from tests.bpfmap.tasks import TICK_NS, start_ticks

pytestmark = pytest.mark.maps

LATENCY = Policy(cell=1, exec_class=ExecClass.LATENCY_CRITICAL, claim_key=0xC1A1, weight=300)


def seed(cgroup, child):
    return [
        requests.put_cell(1, CpuSet([0, 65, 1023])),
        requests.put_cgroup(CgroupRow(cgroup_id=read_cgroup_id(str(cgroup)), policy=LATENCY)),
        requests.put_task(TaskRow(tid=child.tid, pid_ino=read_pid_ino(child.tid), policy=LATENCY)),
    ]


def test_one_batch_seeds_cell_cgroup_and_thread(loaded, writer, cgroup, child):
    cell, group, task = writer.put(*seed(cgroup, child))
    (_, seen_cell) = readback.read_cells(loaded.maps)
    assert (seen_cell.index, seen_cell.cpus, seen_cell.state) == (
        1,
        CpuSet([0, 65, 1023]),
        CellState.LIVE,
    )
    (row,) = readback.read_tasks(loaded.maps)
    # The kernel's own words about the same thread, by other ways.
    assert row.start_boottime_ns // TICK_NS == start_ticks(child.tid)
    assert (row.tid, row.tgid) == (child.tid, child.tid)
    assert row.cgroup_id == cgroup.stat().st_ino
    assert row.sealed
    assert row.policy.cell_generation == seen_cell.generation
    (group_row,) = readback.read_cgroups(loaded.maps)
    assert group_row.cgroup_id == cgroup.stat().st_ino
    assert group_row.sealed
    assert cell.generation < group.generation < task.generation
