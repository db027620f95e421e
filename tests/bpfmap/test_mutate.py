"""Rows as the mutation program writes them, against what other parts of the kernel say."""

from __future__ import annotations

import os
import time

import pytest

from nri_claim2core.bpfmap import mutate, readback, requests, syscall
from nri_claim2core.bpfmap.abi import (
    ABI,
    MAX_REQUESTS,
    CellState,
    CgroupId,
    ExecClass,
    Result,
)
from nri_claim2core.bpfmap.errors import (
    BpfError,
    BusyError,
    CellError,
    CgroupGoneError,
    MapFullError,
    OtherAbiError,
    OtherCgroupError,
    OtherTaskError,
    RowChangedError,
    RowMissingError,
    TaskGoneError,
)
from nri_claim2core.bpfmap.identity import read_cgroup_id, read_pid_ino
from nri_claim2core.bpfmap.loader import load
from nri_claim2core.bpfmap.mutate import Writer
from nri_claim2core.bpfmap.rows import CgroupRow, Policy, TaskRow
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.errors import UsageError
from tests.bpfmap.planting import plant
from tests.bpfmap.seeds import seed_cgroup, seed_task
from tests.bpfmap.tasks import TICK_NS, start_ticks

pytestmark = pytest.mark.maps

BOOT = time.CLOCK_BOOTTIME
HOUR_NS = 3600 * 10**9
ENVELOPE = CpuSet([0, 65, 1023])
LATENCY = Policy(cell=1, exec_class=ExecClass.LATENCY_CRITICAL, claim_key=0xC1A1, weight=300)


def test_one_batch_seeds_cell_cgroup_and_thread(loaded, writer, cgroup, child):
    cell, group, task = writer.put(
        requests.put_cell(1, ENVELOPE),
        seed_cgroup(cgroup, LATENCY),
        seed_task(child.tid, LATENCY),
    )
    _, seen_cell = readback.read_cells(loaded.maps)
    assert (seen_cell.index, seen_cell.cpus, seen_cell.state) == (1, ENVELOPE, CellState.LIVE)
    (row,) = readback.read_tasks(loaded.maps)
    # The kernel's own words about the same thread, by other ways.
    assert row.start_boottime_ns // TICK_NS == start_ticks(child.tid)
    assert (row.tid, row.tgid) == (child.tid, child.tid)
    assert row.cgroup_id == cgroup.stat().st_ino
    assert row.sealed
    assert row.policy.cell_generation == seen_cell.generation
    assert (row.policy.exec_class, row.policy.claim_key, row.policy.weight) == (1, 0xC1A1, 300)
    (group_row,) = readback.read_cgroups(loaded.maps)
    assert group_row.cgroup_id == cgroup.stat().st_ino
    assert group_row.sealed
    assert cell.generation < group.generation < task.generation


def test_a_thread_that_leads_no_process_is_named_by_its_own_tid(loaded, writer, child):
    tid = child.start_thread()
    writer.put(seed_task(tid))
    (row,) = readback.read_tasks(loaded.maps)
    assert (row.tid, row.tgid) == (tid, child.tid)
    assert row.start_boottime_ns // TICK_NS == start_ticks(tid, child.tid)


def test_a_batch_may_be_larger_than_the_request_map(loaded, writer, cgroup):
    many = MAX_REQUESTS + 88
    outcomes = writer.put(*[seed_cgroup(cgroup)] * many)
    generations = [outcome.generation for outcome in outcomes]
    assert generations == list(range(generations[0], generations[0] + many))
    (row,) = readback.read_cgroups(loaded.maps)
    assert row.policy.generation == generations[-1]


def test_a_failed_request_does_not_stop_the_others(loaded, writer, cgroup):
    nobody = requests.put_cgroup(CgroupRow(cgroup_id=CgroupId(1 << 60), policy=Policy()))
    outcomes = writer.apply([nobody, seed_cgroup(cgroup)])
    assert [outcome.result for outcome in outcomes] == [Result.NO_CGROUP, Result.OK]
    assert len(readback.read_cgroups(loaded.maps)) == 1
    with pytest.raises(CgroupGoneError):
        writer.put(nobody)


def test_a_removed_cgroup_gets_no_row(writer, cgroup):
    inside = cgroup / "inside"
    inside.mkdir()
    request = seed_cgroup(inside)
    inside.rmdir()
    with pytest.raises(CgroupGoneError):
        writer.put(request)
    with pytest.raises(CgroupGoneError):
        read_cgroup_id(str(inside))


def test_an_ended_thread_gets_no_row(loaded, writer, child):
    request = seed_task(child.tid)
    child.end()
    with pytest.raises(TaskGoneError):
        writer.put(request)
    with pytest.raises(TaskGoneError):
        read_pid_ino(child.tid)
    assert readback.read_tasks(loaded.maps) == []


def test_a_zombie_gets_no_row(loaded, writer):
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, nobody reaped it
    try:
        with pytest.raises(TaskGoneError):
            writer.put(seed_task(pid))
    finally:
        os.waitpid(pid, 0)
    assert readback.read_tasks(loaded.maps) == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"pid_ino": 1}, OtherTaskError),
        ({"start_boottime_ns": 1}, OtherTaskError),
        ({"cgroup_id": 1 << 60}, OtherCgroupError),
        ({"pid_ino": 0}, BpfError),
        ({"policy": Policy(cell=7)}, CellError),
        ({"policy": Policy(cell_generation=1 << 60)}, CellError),
        ({"policy": Policy(cell=1 << 20)}, BpfError),
        ({"policy": Policy(exec_class=8)}, BpfError),
        ({"policy": Policy(weight=10001)}, BpfError),
    ],
)
def test_what_does_not_fit_is_not_written(loaded, writer, child, wrong, error):
    right = {"tid": child.tid, "pid_ino": read_pid_ino(child.tid)}
    with pytest.raises(error):
        writer.put(requests.put_task(TaskRow(**right | wrong)))
    assert readback.read_tasks(loaded.maps) == []
    writer.put(requests.put_task(TaskRow(**right)))
    assert len(readback.read_tasks(loaded.maps)) == 1


def test_the_right_start_time_and_cgroup_may_be_demanded(loaded, writer, cgroup, child):
    writer.put(seed_task(child.tid))
    (row,) = readback.read_tasks(loaded.maps)
    demanding = seed_task(
        child.tid,
        Policy(weight=5),
        cgroup_id=read_cgroup_id(str(cgroup)),
        start_boottime_ns=row.start_boottime_ns,
    )
    writer.put(demanding)
    assert readback.read_tasks(loaded.maps)[0].policy.weight == 5


def test_rows_are_deleted_by_identity_and_generation(loaded, writer, cgroup, child):
    first, group = writer.put(
        seed_task(child.tid),
        seed_cgroup(cgroup),
    )
    second, _ = writer.put(
        seed_task(child.tid),
        seed_cgroup(cgroup),
    )
    ino, cgroup_id = read_pid_ino(child.tid), read_cgroup_id(str(cgroup))
    with pytest.raises(OtherTaskError):
        writer.put(requests.delete_task(child.tid, ino + 1))
    with pytest.raises(RowChangedError):
        writer.put(requests.delete_task(child.tid, ino, first.generation))
    with pytest.raises(RowChangedError):
        writer.put(requests.delete_cgroup(cgroup_id, group.generation))
    assert len(readback.read_tasks(loaded.maps)) == len(readback.read_cgroups(loaded.maps)) == 1
    writer.put(requests.delete_task(child.tid, ino, second.generation))
    writer.put(requests.delete_cgroup(cgroup_id))
    assert readback.read_tasks(loaded.maps) == readback.read_cgroups(loaded.maps) == []
    with pytest.raises(RowMissingError):
        writer.put(requests.delete_task(child.tid))
    with pytest.raises(RowMissingError):
        writer.put(requests.delete_cgroup(cgroup_id))


def test_a_full_map_takes_changes_but_no_more_rows(pins, child):
    loaded = load(pins, sizes={"c2c_tasks": 2})
    writer = Writer(loaded)
    writer.take()
    tids = [child.tid, child.start_thread(), child.start_thread()]
    put = [seed_task(tid) for tid in tids]
    outcomes = writer.apply(put)
    assert [outcome.result for outcome in outcomes] == [Result.OK, Result.OK, Result.FULL]
    with pytest.raises(MapFullError):
        writer.put(put[2])
    writer.put(put[0])  # a row that is there may be written again
    writer.put(requests.delete_task(tids[0]), put[2])
    assert [row.tid for row in readback.read_tasks(loaded.maps)] == sorted(tids[1:])
    writer.close()
    loaded.close()


def test_user_space_cannot_write_the_maps(loaded, writer, cgroup):
    writer.put(seed_cgroup(cgroup))
    for spec_name, key in (("c2c_control", bytes(4)), ("c2c_cells", bytes(4))):
        info = loaded.maps.infos[spec_name]
        assert syscall.map_update(loaded.maps.fds[spec_name], key, bytes(info.value_size)) == -1
    for name in ("c2c_cgroups", "c2c_tasks"):
        info = loaded.maps.infos[name]
        key, value = bytes(info.key_size), bytes(info.value_size)
        assert syscall.map_update(loaded.maps.fds[name], key, value) == -1  # EPERM


def test_a_writer_needs_the_token_first(loaded):
    with pytest.raises(UsageError):
        Writer(loaded).raise_floor(0)


def test_another_abi_is_refused_in_the_kernel(loaded, writer, monkeypatch):
    monkeypatch.setattr(mutate, "ABI", ABI + 1)
    before = readback.read_control(loaded.maps)
    with pytest.raises(OtherAbiError):
        writer.take()
    assert readback.read_control(loaded.maps) == before


def test_a_mutation_waits_for_the_one_before_and_overtakes_a_dead_one(unfrozen, monkeypatch):
    # Not frozen, so that a mutation can be made to look like one that never ended.
    loaded, writer = unfrozen
    monkeypatch.setattr(mutate, "BUSY_ATTEMPTS", 2)
    # Began in the future, so that it is not too old however slow this test runs.
    plant(loaded.maps, "c2c_control", bytes(4), busy_ns=time.clock_gettime_ns(BOOT) + HOUR_NS)
    with pytest.raises(BusyError):
        writer.take()
    plant(loaded.maps, "c2c_control", bytes(4), busy_ns=time.clock_gettime_ns(BOOT) - 2 * 10**9)
    assert writer.take() > 0
    assert readback.read_control(loaded.maps).busy_ns == 0
