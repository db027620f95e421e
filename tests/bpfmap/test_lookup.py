"""What governs a thread, as the look-up that a scheduler includes says it in the kernel."""

from __future__ import annotations

import time

import pytest

from nri_claim2core.bpfmap import readback, requests
from nri_claim2core.bpfmap.abi import CGROUP, TASK, ControlFlag, ExecClass, Source, Verdict
from nri_claim2core.bpfmap.errors import TaskGoneError
from nri_claim2core.bpfmap.identity import read_pid_ino
from nri_claim2core.bpfmap.rows import Policy
from tests.bpfmap.planting import plant, read_raw, write_raw
from tests.bpfmap.seeds import seed_cgroup, seed_task
from tests.bpfmap.tasks import TICK_NS, Child, start_ticks

pytestmark = pytest.mark.maps

GROUP, EXCEPTION = Policy(weight=111), Policy(weight=222, exec_class=ExecClass.BACKGROUND)
HOUR_NS = 3600 * 10**9


def verdicts(loaded, tid):
    view = readback.resolve(loaded, tid)
    return view.source, view.task_verdict, view.cgroup_verdict, view.policy.weight


def test_without_rows_it_is_the_default(loaded, writer, cgroup, child):
    view = readback.resolve(loaded, child.tid)
    assert (view.source, view.policy) == (Source.NONE, Policy())
    assert view.cgroup_id == cgroup.stat().st_ino
    assert view.pid_ino == read_pid_ino(child.tid)
    assert view.start_boottime_ns // TICK_NS == start_ticks(child.tid)


def test_the_cgroups_row_governs_all_threads_and_the_threads_own_goes_before(
    loaded, writer, cgroup, child
):
    thread = child.start_thread()
    writer.put(seed_cgroup(cgroup, GROUP), seed_task(child.tid, EXCEPTION))
    assert verdicts(loaded, child.tid) == (Source.TASK, Verdict.OK, Verdict.OK, 222)
    assert verdicts(loaded, thread) == (Source.CGROUP, Verdict.MISS, Verdict.OK, 111)


def test_a_cgroup_without_a_row_has_its_ancestors(loaded, writer, cgroup, child):
    inner = cgroup / "a" / "b"
    inner.mkdir(parents=True)
    writer.put(seed_cgroup(cgroup, GROUP))
    child.enter(inner)
    view = readback.resolve(loaded, child.tid)
    assert (view.source, view.governing_cgroup_id) == (Source.CGROUP, cgroup.stat().st_ino)
    writer.put(seed_cgroup(inner.parent, EXCEPTION))
    assert verdicts(loaded, child.tid) == (Source.CGROUP, Verdict.MISS, Verdict.OK, 222)


def test_the_nearest_row_decides_even_when_it_is_void(loaded, writer, cgroup, child):
    inner = cgroup / "inner"
    inner.mkdir()
    child.enter(inner)
    writer.put(seed_cgroup(inner, EXCEPTION))
    (outer,) = writer.put(seed_cgroup(cgroup, GROUP))
    writer.raise_floor(outer.generation)
    assert verdicts(loaded, child.tid) == (
        Source.NONE,
        Verdict.MISS,
        Verdict.OLD_GENERATION,
        0,
    )


def test_a_thread_that_left_its_cgroup_leaves_its_row(loaded, writer, cgroup, child):
    writer.put(seed_cgroup(cgroup, GROUP), seed_task(child.tid, EXCEPTION))
    inner = cgroup / "inner"
    inner.mkdir()
    child.enter(inner)
    assert verdicts(loaded, child.tid) == (
        Source.CGROUP,
        Verdict.OTHER_CGROUP,
        Verdict.OK,
        111,
    )


def test_a_lease_ends(loaded, writer, cgroup, child):
    ahead = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + HOUR_NS
    writer.put(seed_cgroup(cgroup, Policy(weight=111, lease_end_ns=ahead)))
    writer.put(seed_task(child.tid, Policy(weight=222, lease_end_ns=1)))
    assert verdicts(loaded, child.tid) == (
        Source.CGROUP,
        Verdict.LEASE_OVER,
        Verdict.OK,
        111,
    )


def test_suspended_means_no_row_at_all_and_can_be_undone(loaded, writer, cgroup, child):
    writer.put(seed_cgroup(cgroup, GROUP))
    writer.set_flags(ControlFlag.SUSPENDED)
    assert verdicts(loaded, child.tid) == (Source.NONE, Verdict.MISS, Verdict.SUSPENDED, 0)
    writer.set_flags(ControlFlag.NONE)
    assert verdicts(loaded, child.tid) == (Source.CGROUP, Verdict.MISS, Verdict.OK, 111)


def test_rows_by_another_hand_are_no_rows(unfrozen, cgroup, child):
    loaded, writer = unfrozen
    writer.put(seed_cgroup(cgroup, GROUP), seed_task(child.tid, EXCEPTION))
    thread = child.start_thread()
    key = child.tid.to_bytes(4, "little")
    # A real row under another key, and real rows with a member changed.
    write_raw(
        loaded.maps,
        "c2c_tasks",
        thread.to_bytes(4, "little"),
        read_raw(loaded.maps, "c2c_tasks", key),
    )
    plant(loaded.maps, "c2c_tasks", key, weight=9000)
    plant(loaded.maps, "c2c_cgroups", cgroup.stat().st_ino.to_bytes(8, "little"), weight=9000)
    for tid in (child.tid, thread):
        assert verdicts(loaded, tid) == (Source.NONE, Verdict.TORN, Verdict.TORN, 0)
    assert [row.sealed for row in readback.read_tasks(loaded.maps)] == [False, False]
    assert [row.sealed for row in readback.read_cgroups(loaded.maps)] == [False]
    writer.close()
    loaded.close()


@pytest.mark.parametrize(
    ("name", "layout"), [("c2c_cgroups", CGROUP), ("c2c_tasks", TASK)], ids=["cgroup", "task"]
)
def test_every_member_is_under_the_seal(unfrozen, cgroup, child, name, layout):
    loaded, writer = unfrozen
    writer.put(seed_cgroup(cgroup, GROUP), seed_task(child.tid, EXCEPTION))
    in_view = {"c2c_cgroups": "cgroup_verdict", "c2c_tasks": "task_verdict"}[name]
    number, size = (cgroup.stat().st_ino, 8) if name == "c2c_cgroups" else (child.tid, 4)
    key = number.to_bytes(size, "little")
    row = read_raw(loaded.maps, name, key)
    for at in range(layout.size):
        changed = bytearray(row)
        changed[at] ^= 0x40
        write_raw(loaded.maps, name, key, bytes(changed))
        assert getattr(readback.resolve(loaded, child.tid), in_view) is Verdict.TORN
    write_raw(loaded.maps, name, key, row)
    assert getattr(readback.resolve(loaded, child.tid), in_view) is Verdict.OK
    writer.close()
    loaded.close()


def test_the_iterator_lists_the_threads_that_the_cgroup_lists(loaded, writer, cgroup, child):
    started = [child.tid, *(child.start_thread() for _ in range(30))]
    with Child() as stranger:
        writer.put(seed_cgroup(cgroup, GROUP), seed_task(stranger.tid, EXCEPTION))
        views = {view.tid: view for view in readback.read_views(loaded)}
        in_cgroup = {int(line) for line in (cgroup / "cgroup.threads").read_text().split()}
        assert in_cgroup == set(started)
        assert set(views) == in_cgroup | {stranger.tid}
        for tid, view in views.items():
            assert view == readback.resolve(loaded, tid)


def test_no_view_of_a_thread_that_has_ended(loaded, child):
    child.end()
    with pytest.raises(TaskGoneError):
        readback.resolve(loaded, child.tid)


def test_requests_are_counted_by_outcome(loaded, writer, cgroup, child):
    writer.put(seed_cgroup(cgroup), seed_task(child.tid))
    writer.apply([requests.delete_task(2), requests.put_task(requests.TaskRow(tid=2, pid_ino=1))])
    counted = {result.name: n for result, n in readback.read_stats(loaded.maps).results().items()}
    assert {name: n for name, n in counted.items() if n} == {
        "OK": 2,
        "NOT_FOUND": 1,
        "OTHER_TASK": 1,
    }
