"""INV-DEALLOC: deallocating a claim leaves no row that can affect a later task, nor a reused cell.

The part that maps and mutation program answer for; tasks of the old claim still run.
"""

from __future__ import annotations

import pytest

from nri_claim2core.bpfmap import readback, requests, syscall
from nri_claim2core.bpfmap.abi import CellState, Source, Verdict
from nri_claim2core.bpfmap.errors import CellError, RowChangedError
from nri_claim2core.bpfmap.identity import read_cgroup_id
from nri_claim2core.bpfmap.rows import Policy
from nri_claim2core.model.cpuset import CpuSet
from tests.bpfmap.planting import plant
from tests.bpfmap.seeds import seed_cgroup, seed_task

pytestmark = pytest.mark.maps

OLD, NEW = CpuSet([0]), CpuSet([1])
IN_CELL = Policy(cell=1, weight=500)


@pytest.fixture
def old(writer, cgroup, child):
    """A claim's cell with a container and a thread in it."""
    (cell, *_) = writer.put(
        requests.put_cell(1, OLD), seed_cgroup(cgroup, IN_CELL), seed_task(child.tid, IN_CELL)
    )
    return cell


def test_rows_gone_the_running_task_is_in_the_default_class(loaded, writer, cgroup, child, old):
    writer.put(requests.delete_task(child.tid), requests.delete_cgroup(read_cgroup_id(str(cgroup))))
    view = readback.resolve(loaded, child.tid)
    assert (view.source, view.task_verdict, view.cgroup_verdict) == (
        Source.NONE,
        Verdict.MISS,
        Verdict.MISS,
    )
    assert view.policy == Policy()
    assert list(readback.read_views(loaded)) == []


def test_a_row_left_behind_does_not_reach_the_reused_cell(loaded, writer, child, old):
    writer.put(requests.drain_cell(1, old.generation), requests.free_cell(1, old.generation))
    assert readback.resolve(loaded, child.tid).task_verdict is Verdict.CELL_STALE
    (reused,) = writer.put(requests.put_cell(1, NEW))
    assert reused.generation > old.generation
    view = readback.resolve(loaded, child.tid)
    assert (view.task_verdict, view.cgroup_verdict) == (Verdict.CELL_STALE, Verdict.CELL_STALE)
    assert (view.source, view.policy) == (Source.NONE, Policy())


def test_a_row_meant_for_the_old_cell_is_not_written_into_the_reused_one(
    loaded, writer, cgroup, old
):
    writer.put(requests.drain_cell(1), requests.free_cell(1), requests.put_cell(1, NEW))
    before = readback.read_cgroups(loaded.maps)
    with pytest.raises(CellError):
        writer.put(seed_cgroup(cgroup, Policy(cell=1, cell_generation=old.generation)))
    assert readback.read_cgroups(loaded.maps) == before


def test_a_draining_cell_keeps_its_rows_and_takes_no_more(loaded, writer, cgroup, child, old):
    writer.put(requests.drain_cell(1))
    assert readback.resolve(loaded, child.tid).task_verdict is Verdict.OK
    with pytest.raises(CellError):
        writer.put(seed_cgroup(cgroup, IN_CELL))


def test_a_cell_in_use_changes_neither_envelope_nor_hands(loaded, writer, old):
    (same,) = writer.put(requests.put_cell(1, OLD))
    assert same.generation == old.generation
    with pytest.raises(CellError):
        writer.put(requests.put_cell(1, NEW))
    with pytest.raises(CellError):
        writer.put(requests.free_cell(1))  # live
    writer.put(requests.drain_cell(1))
    with pytest.raises(CellError):
        writer.put(requests.put_cell(1, OLD))
    _, cell = readback.read_cells(loaded.maps)
    assert (cell.cpus, cell.state, cell.sealed) == (OLD, CellState.DRAINING, True)


def test_a_retirement_meant_for_another_generation_is_refused(loaded, writer, old):
    for retire in (requests.drain_cell, requests.free_cell):
        with pytest.raises(RowChangedError):
            writer.put(retire(1, old.generation + 1))
    assert readback.read_cells(loaded.maps)[1].state is CellState.LIVE


def test_with_a_scheduler_a_cell_is_freed_only_when_it_was_drained(unfrozen):
    # The scheduler's part - saying that it is there, that the queue is empty - done by hand.
    loaded, writer = unfrozen
    plant(loaded.maps, "c2c_control", bytes(4), scheduler_ns=1)
    writer.put(requests.put_cell(1, OLD), requests.drain_cell(1))
    with pytest.raises(CellError):
        writer.put(requests.free_cell(1))
    key = (1).to_bytes(4, "little")
    plant(loaded.maps, "c2c_cells", key, state=CellState.DRAINED)
    writer.put(requests.free_cell(1))
    assert [cell.index for cell in readback.read_cells(loaded.maps)] == [0]
    writer.close()
    loaded.close()


def test_everybody_elses_cell_cannot_be_retired(loaded, writer):
    for request in (requests.put_cell(0, OLD), requests.drain_cell(0), requests.free_cell(0)):
        with pytest.raises(syscall.BpfError):
            writer.put(request)
    assert readback.read_cells(loaded.maps)[0].state is CellState.LIVE
