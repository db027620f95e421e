"""INV-RESTART: a restart reconstructs exactly the currently valid state.

The part of maps and mutation program: whenever the writer dies, its successor finds whole rows,
can write at once, and decides alone which of them live on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from nri_claim2core.bpfmap import readback, requests
from nri_claim2core.bpfmap.abi import Source, Verdict
from nri_claim2core.bpfmap.identity import read_cgroup_id
from nri_claim2core.bpfmap.loader import load
from nri_claim2core.bpfmap.mutate import Writer
from nri_claim2core.bpfmap.rows import Policy
from nri_claim2core.model.cpuset import CpuSet
from tests.bpfmap.seeds import seed_cgroup, seed_task

pytestmark = pytest.mark.maps

# A plugin that seeds the cgroup (and its threads) over and over; prints each generation after
# its row is written. argv: pins, cgroup id, TIDs. With `step` it waits for a line before each.
_PLUGIN = """
import itertools, sys
from nri_claim2core.bpfmap import requests
from nri_claim2core.bpfmap.abi import CgroupId
from nri_claim2core.bpfmap.identity import read_pid_ino
from nri_claim2core.bpfmap.loader import load
from nri_claim2core.bpfmap.mutate import Writer
from nri_claim2core.bpfmap.rows import CgroupRow, TaskRow
loaded = load(sys.argv[1])
writer = Writer(loaded)
print(writer.take(), flush=True)
row = requests.put_cgroup(CgroupRow(cgroup_id=CgroupId(int(sys.argv[3]))))
tasks = [
    requests.put_task(TaskRow(tid=int(tid), pid_ino=read_pid_ino(int(tid))))
    for tid in sys.argv[4:]
]
for request in itertools.cycle([row, *tasks]):
    if sys.argv[2] == "step":
        sys.stdin.readline()
    print(writer.put(request)[0].generation, flush=True)
"""


def start_plugin(pins, cgroup, mode, *tids):
    words = [sys.executable, "-c", _PLUGIN, pins, mode, str(cgroup.stat().st_ino)]
    return subprocess.Popen(
        [*words, *map(str, tids)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def kill(plugin):
    os.kill(plugin.pid, signal.SIGKILL)
    with plugin:  # what it had printed, to the end
        return [int(line) for line in plugin.stdout.read().split()]


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_killed_between_two_rows(bpffs, pins, cgroup, child, steps):
    # cgroup row, thread row, thread row: what is there is what was done, no more, no less.
    tids = [child.tid, child.start_thread()]
    plugin = start_plugin(pins, cgroup, "step", *tids)
    token = int(plugin.stdout.readline())
    done = []
    for _ in range(steps):
        plugin.stdin.write("go\n")
        plugin.stdin.flush()
        done.append(int(plugin.stdout.readline()))
    kill(plugin)
    loaded = load(pins)
    assert not loaded.fresh
    assert loaded.maps.read_control().token == token
    rows = [*readback.read_cgroups(loaded.maps), *readback.read_tasks(loaded.maps)]
    assert sorted(row.policy.generation for row in rows) == done
    assert all(row.sealed for row in rows)
    writer = Writer(loaded)
    assert writer.take() > max([token, *done])
    writer.put(seed_cgroup(cgroup))
    writer.close()
    loaded.close()


def test_killed_in_the_middle_of_writing(bpffs, pins, cgroup, child):
    # Wherever the kill falls: a mutation that has begun ends, so its lock is never left behind.
    tids = [child.tid, *(child.start_thread() for _ in range(3))]
    last = 0
    for round_length in range(20, 120, 10):
        plugin = start_plugin(pins, cgroup, "run", *tids)
        seen = [int(plugin.stdout.readline()) for _ in range(round_length)]
        seen += kill(plugin)
        loaded = load(pins)
        control = loaded.maps.read_control()
        assert control.busy_ns == 0
        # At most the last row was written without being told.
        assert control.generation in (seen[-1], seen[-1] + 1)
        rows = [*readback.read_cgroups(loaded.maps), *readback.read_tasks(loaded.maps)]
        assert len(rows) == 1 + len(tids)
        assert all(row.sealed for row in rows)
        writer = Writer(loaded)
        assert writer.take() > last
        last = writer.put(seed_cgroup(cgroup))[0].generation
        writer.close()
        loaded.close()


def test_the_successor_keeps_what_it_writes_again_and_nothing_else(
    loaded, writer, pins, cgroup, child
):
    gone = cgroup / "gone"
    gone.mkdir()
    thread = child.start_thread()
    cell = requests.put_cell(1, CpuSet([0]))
    policy = Policy(cell=1, weight=111)
    writer.put(
        cell,
        seed_cgroup(cgroup, policy),
        seed_cgroup(gone, policy),
        seed_task(child.tid, policy),
        seed_task(thread, policy),
    )
    gone_id = read_cgroup_id(str(gone))
    gone.rmdir()

    # Design's order: token, valid rows again, floor, the rest away.
    adopted = load(pins)
    successor = Writer(adopted)
    floor = successor.take()
    again = successor.put(cell, seed_cgroup(cgroup, policy), seed_task(child.tid, policy))
    # Until the floor rises nothing has lost its policy.
    assert readback.resolve(adopted, thread).task_verdict is Verdict.OK
    successor.raise_floor(floor)
    view = readback.resolve(adopted, thread)
    assert (view.source, view.task_verdict) == (Source.CGROUP, Verdict.OLD_GENERATION)
    stale_cgroups = [
        row for row in readback.read_cgroups(adopted.maps) if row.policy.generation < floor
    ]
    stale_tasks = [
        row for row in readback.read_tasks(adopted.maps) if row.policy.generation < floor
    ]
    successor.put(
        *(requests.delete_cgroup(row.cgroup_id, row.policy.generation) for row in stale_cgroups),
        *(requests.delete_task(row.tid, row.pid_ino, row.policy.generation) for row in stale_tasks),
    )
    assert [row.cgroup_id for row in stale_cgroups] == [gone_id]
    assert [row.tid for row in stale_tasks] == [thread]
    assert [row.policy.generation for row in readback.read_cgroups(adopted.maps)] == [
        again[1].generation
    ]
    assert [row.policy.generation for row in readback.read_tasks(adopted.maps)] == [
        again[2].generation
    ]
    # The cell lived on: the same envelope is the same cell.
    assert again[0].generation == readback.read_cells(adopted.maps)[1].generation
    successor.close()
    adopted.close()
