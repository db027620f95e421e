"""INV-ROLLBACK: an older generation or writer cannot bring back a removed state."""

from __future__ import annotations

import pytest

from nri_claim2core.bpfmap import readback, requests
from nri_claim2core.bpfmap.abi import ControlFlag, Source, Verdict
from nri_claim2core.bpfmap.errors import StaleWriterError
from nri_claim2core.bpfmap.identity import read_cgroup_id
from nri_claim2core.bpfmap.loader import load
from nri_claim2core.bpfmap.mutate import Writer
from nri_claim2core.bpfmap.rows import Policy
from nri_claim2core.model.cpuset import CpuSet
from tests.bpfmap.planting import read_raw, write_raw
from tests.bpfmap.seeds import seed_cgroup, seed_task

pytestmark = pytest.mark.maps

OLD = Policy(weight=111)


@pytest.fixture
def successor(pins, writer):
    """A second plugin that has taken the token from `writer`."""
    loaded = load(pins)
    one = Writer(loaded)
    assert one.take() > writer.token
    yield one
    one.close()
    loaded.close()


def test_the_old_writer_can_do_nothing(loaded, writer, cgroup, child, successor):
    successor.put(seed_cgroup(cgroup), requests.put_cell(1, CpuSet([0])))
    before = (
        readback.read_control(loaded.maps),
        readback.read_cgroups(loaded.maps),
        readback.read_cells(loaded.maps),
    )
    attempts = [
        seed_cgroup(cgroup, OLD),
        seed_task(child.tid, OLD),
        requests.put_cell(2, CpuSet([1])),
        requests.drain_cell(1),
        requests.delete_cgroup(read_cgroup_id(str(cgroup))),
    ]
    for attempt in attempts:
        with pytest.raises(StaleWriterError):
            writer.put(attempt)
    with pytest.raises(StaleWriterError):
        writer.raise_floor(before[0].generation)
    with pytest.raises(StaleWriterError):
        writer.set_flags(ControlFlag.SUSPENDED)
    assert before == (
        readback.read_control(loaded.maps),
        readback.read_cgroups(loaded.maps),
        readback.read_cells(loaded.maps),
    )
    assert readback.read_tasks(loaded.maps) == []


def test_a_row_cannot_be_written_with_an_older_generation(loaded, writer, cgroup):
    first = writer.put(seed_cgroup(cgroup, OLD))[0].generation
    writer.put(requests.delete_cgroup(read_cgroup_id(str(cgroup))))
    # The row as it was, generation included, as from a file.
    again = writer.put(seed_cgroup(cgroup, Policy(weight=111, generation=first)))[0].generation
    assert again > first
    assert readback.read_cgroups(loaded.maps)[0].policy.generation == again


def test_rows_below_the_floor_are_void(loaded, writer, cgroup, child):
    writer.put(seed_cgroup(cgroup, OLD), seed_task(child.tid, OLD))
    (kept,) = writer.put(seed_cgroup(cgroup, Policy(weight=222)))
    writer.raise_floor(kept.generation)
    view = readback.resolve(loaded, child.tid)
    assert (view.task_verdict, view.cgroup_verdict) == (Verdict.OLD_GENERATION, Verdict.OK)
    assert (view.source, view.policy.weight) == (Source.CGROUP, 222)


def test_a_row_copied_back_by_hand_stays_void(unfrozen, cgroup, child):
    # Only a set that somebody kept from being frozen takes a row from user space at all.
    loaded, writer = unfrozen
    writer.put(seed_cgroup(cgroup, OLD))
    key = cgroup.stat().st_ino.to_bytes(8, "little")
    saved = read_raw(loaded.maps, "c2c_cgroups", key)
    writer.put(requests.delete_cgroup(read_cgroup_id(str(cgroup))))
    writer.raise_floor(writer.take())
    write_raw(loaded.maps, "c2c_cgroups", key, saved)
    view = readback.resolve(loaded, child.tid)
    assert (view.source, view.cgroup_verdict) == (Source.NONE, Verdict.OLD_GENERATION)
