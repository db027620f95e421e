"""bpftool reads the same rows: an independent reader, by the BTF that the maps carry."""

from __future__ import annotations

import json
import subprocess

import pytest

from nri_claim2core.bpfmap import abi, readback, requests
from nri_claim2core.bpfmap.rows import Policy
from nri_claim2core.model.cpuset import CpuSet
from tests.bpfmap.need import need_bpftool
from tests.bpfmap.seeds import seed_cgroup, seed_task

pytestmark = pytest.mark.maps

ENVELOPE = CpuSet([0, 3, 64, 700, 1023])
# Every member differs from every other and uses its upper half.
POLICY = Policy(
    cell=5,
    claim_key=0xFEDC_BA98_7654_3210,
    exec_class=abi.ExecClass.THROUGHPUT,
    weight=9999,
    slice_ns=1 << 40,
    lease_end_ns=(1 << 62) + 7,
    flags=0x8000_0001,
)


def dump(pins, name):
    words = [need_bpftool(), "-j", "map", "dump", "pinned", f"{pins}/{name}"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return [element["formatted"] for element in json.loads(done.stdout)]


def policy_of(value):
    policy = value["policy"]
    return Policy(**{name: policy[name] for name, _ in abi.POLICY.members})


def test_rows_are_the_same(loaded, writer, pins, cgroup, child):
    tids = [child.tid, child.start_thread(), child.start_thread()]
    inner = cgroup / "inner"
    inner.mkdir()
    writer.put(
        requests.put_cell(5, ENVELOPE),
        seed_cgroup(cgroup, POLICY),
        seed_cgroup(inner),
        *(seed_task(tid, POLICY) for tid in tids),
    )
    cgroups = {row["key"]: row["value"] for row in dump(pins, "c2c_cgroups")}
    ours = {row.cgroup_id: row for row in readback.read_cgroups(loaded.maps)}
    assert set(cgroups) == set(ours) == {cgroup.stat().st_ino, inner.stat().st_ino}
    for key, value in cgroups.items():
        assert (policy_of(value), value["cgroup_id"]) == (ours[key].policy, key)
    tasks = {row["key"]: row["value"] for row in dump(pins, "c2c_tasks")}
    mine = {row.tid: row for row in readback.read_tasks(loaded.maps)}
    assert set(tasks) == set(mine) == set(tids)
    for tid, value in tasks.items():
        assert policy_of(value) == mine[tid].policy
        members = ("tid", "tgid", "cgroup_id", "start_boottime_ns", "pid_ino")
        assert [value[name] for name in members] == [getattr(mine[tid], n) for n in members]
    # What was asked for came through both.
    asked = (POLICY.claim_key, POLICY.lease_end_ns, POLICY.slice_ns, POLICY.flags, POLICY.weight)
    read = policy_of(tasks[child.tid])
    assert (read.claim_key, read.lease_end_ns, read.slice_ns, read.flags, read.weight) == asked


def test_cells_and_control_are_the_same(loaded, writer, pins):
    writer.put(requests.put_cell(5, ENVELOPE))
    live = {row["key"]: row["value"] for row in dump(pins, "c2c_cells") if row["value"]["state"]}
    assert set(live) == {0, 5}
    for cell in readback.read_cells(loaded.maps):
        value = live[cell.index]
        words = enumerate(value["mask"])
        cpus = CpuSet(64 * at + bit for at, word in words for bit in range(64) if word >> bit & 1)
        assert (cell.cpus, cell.generation, cell.dsq_id, cell.state) == (
            cpus,
            value["generation"],
            value["dsq_id"],
            value["state"],
        )
    assert live[5]["mask"][0] == 0b1001
    ((_, control),) = (row.values() for row in dump(pins, "c2c_control"))
    ours = readback.read_control(loaded.maps)
    for name, _ in abi.CONTROL.members[:-1]:
        assert control[name] == getattr(ours, name)


def test_counters_are_the_same(loaded, writer, pins, cgroup):
    writer.put(*[seed_cgroup(cgroup)] * 5)
    ((_, per_cpu),) = (row.values() for row in dump(pins, "c2c_stats"))
    totals = [
        sum(column) for column in zip(*(c["value"]["counters"] for c in per_cpu), strict=True)
    ]
    assert totals == list(readback.read_stats(loaded.maps).counters)
    assert sum(totals) == 5
