"""INV-TIDREUSE: a row for (TID, identity) never affects another task with that TID."""

from __future__ import annotations

import pytest

from nri_claim2core.bpfmap import readback, requests
from nri_claim2core.bpfmap.abi import Source, Verdict
from nri_claim2core.bpfmap.errors import OtherTaskError
from nri_claim2core.bpfmap.identity import read_pid_ino
from nri_claim2core.bpfmap.rows import Policy
from tests.bpfmap.seeds import seed_cgroup, seed_task, task_row
from tests.bpfmap.tasks import Child, process_with_tid

pytestmark = pytest.mark.maps

EXCEPTION = Policy(weight=777)
CONTAINER = Policy(weight=111)


@pytest.fixture
def reused(loaded, writer, cgroup):
    """A row of a process that has ended, and another process with its TID in the same cgroup."""
    with Child() as first:
        first.enter(cgroup)
        row = task_row(first.tid, EXCEPTION)
        writer.put(seed_cgroup(cgroup, CONTAINER), requests.put_task(row))
        assert readback.resolve(loaded, first.tid).source is Source.TASK
    with process_with_tid(row.tid, cgroup) as tid:
        assert tid == row.tid
        yield row


def test_the_row_does_not_govern_the_next_task_with_the_tid(loaded, reused):
    view = readback.resolve(loaded, reused.tid)
    assert view.task_verdict is Verdict.OTHER_TASK
    assert view.source is Source.CGROUP
    assert view.policy.weight == CONTAINER.weight


def test_a_write_meant_for_the_first_does_not_reach_the_second(loaded, writer, reused):
    before = readback.read_tasks(loaded.maps)
    with pytest.raises(OtherTaskError):
        writer.put(requests.put_task(reused))
    assert readback.read_tasks(loaded.maps) == before


def test_a_deletion_meant_for_the_second_does_not_reach_the_row_of_the_first(
    loaded, writer, reused
):
    with pytest.raises(OtherTaskError):
        writer.put(requests.delete_task(reused.tid, read_pid_ino(reused.tid)))
    assert len(readback.read_tasks(loaded.maps)) == 1
    writer.put(requests.delete_task(reused.tid, reused.pid_ino))
    assert readback.read_tasks(loaded.maps) == []


def test_a_deletion_meant_for_the_first_does_not_reach_the_row_of_the_second(
    loaded, writer, reused
):
    writer.put(seed_task(reused.tid, Policy(weight=222)))
    with pytest.raises(OtherTaskError):
        writer.put(requests.delete_task(reused.tid, reused.pid_ino))
    view = readback.resolve(loaded, reused.tid)
    assert (view.source, view.policy.weight) == (Source.TASK, 222)


def test_a_thread_that_got_a_process_number_is_another_task_too(loaded, writer, cgroup, child):
    # The row is for a thread; the number comes back as a process.
    tid = child.start_thread()
    row = task_row(tid, EXCEPTION)
    writer.put(seed_cgroup(cgroup, CONTAINER), requests.put_task(row))
    child.end()
    with process_with_tid(tid, cgroup):
        assert readback.resolve(loaded, tid).task_verdict is Verdict.OTHER_TASK
        with pytest.raises(OtherTaskError):
            writer.put(requests.put_task(row))


def test_exec_keeps_the_row_of_the_process(loaded, writer, cgroup):
    # Identity is the process's, not the program's: `runc init` becomes the workload.
    with Child() as one:
        one.enter(cgroup)
        writer.put(seed_task(one.tid, EXCEPTION))
        one.exec("/bin/cat")
        view = readback.resolve(loaded, one.tid)
        assert (view.source, view.task_verdict) == (Source.TASK, Verdict.OK)
        assert view.policy.weight == EXCEPTION.weight
