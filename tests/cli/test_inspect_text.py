"""Rows as values, as people see them: 80 columns, what it means, what to do next."""

from __future__ import annotations

import dataclasses

import pytest

from nri_claim2core.agent import inspection_documents as documents
from nri_claim2core.agent.inspection import Snapshot, TaskReport
from nri_claim2core.agent.inspection_facts import CgroupTree, ThreadFacts
from nri_claim2core.agent.ledger_page import LedgerPage, Provenance
from nri_claim2core.agent.row_checks import Frame
from nri_claim2core.bpfmap.abi import (
    STATS,
    CellState,
    ControlFlag,
    ExecClass,
    Result,
    Source,
    Verdict,
)
from nri_claim2core.bpfmap.rows import CellRow, CgroupRow, Control, Policy, Stats, TaskRow, View
from nri_claim2core.cli import inspect_text
from nri_claim2core.model.cpuset import CpuSet

NOW = 100_000_000_000
SECOND = 1_000_000_000
NOBODY = (1 << 22) + 5
"A TID above the highest that the kernel gives."

CONTROL = Control(
    generation=45,
    floor=12,
    token=7,
    busy_ns=0,
    taken_ns=NOW - 90 * SECOND,
    scheduler_ns=NOW - 10 * SECOND,
    abi=1,
    flags=ControlFlag.SUSPENDED,
    writer_tgid=NOBODY,
)
CELL = CellRow(
    index=3, generation=40, dsq_id=65539, cpus=CpuSet([0, 1]), state=CellState.LIVE, sealed=True
)
POLICY = Policy(
    cell=3,
    cell_generation=40,
    generation=41,
    exec_class=ExecClass.COMMUNICATION_PROGRESS,
    lease_end_ns=NOW + 4 * SECOND,
)
TASK = TaskRow(tid=NOBODY, pid_ino=9, tgid=NOBODY, policy=POLICY, cgroup_id=77, sealed=True)
OFFLINE = LedgerPage(address="127.0.0.1:9899", problem="Connection refused")


def snapshot(*, control=CONTROL, cgroups=(), tasks=(), paths=None):
    frame = Frame(
        control=control,
        cells={3: CELL},
        tree=CgroupTree(mount="/m", is_whole=True, paths=paths or {}),
        now_ns=NOW,
    )
    stats = Stats.unpack([bytes(STATS.size)])
    return Snapshot(frame=frame, cgroups=list(cgroups), tasks=list(tasks), stats=stats)


def text(found, ledger=OFFLINE):
    return inspect_text.maps(documents.maps_document(found, "/pins", ledger))


def test_all_maps_in_80_columns():
    running = dataclasses.replace(CONTROL, flags=ControlFlag.NONE)
    row = CgroupRow(cgroup_id=77, policy=POLICY, sealed=True)
    printed = text(
        snapshot(control=running, cgroups=[row], tasks=[TASK], paths={77: "/kubepods/pod1/c1"})
    )
    assert printed == (
        "Maps        /pins\n"
        "\n"
        "ABI         1\n"
        "Generation  45, rows below 12 are void\n"
        f"Writer      process {NOBODY}, has ended: nobody renews rows; token 7, taken 90.0\n"
        "            s ago\n"
        "Scheduler   attached to these maps 10.0 s ago\n"
        "\n"
        "Cells: 1\n"
        "CELL  GENERATION  STATE  CPUS  ROWS  WHAT\n"
        "3     40          live   0-1   2     an envelope in use\n"
        "\n"
        "Cgroup rows: 1\n"
        "CGROUP  GENERATION  CLASS             CELL  STATE              WHOSE\n"
        "77      41          communication-pr  3     holds; lease ends  /kubepods/pod1/c1\n"
        "                    ogress                  in 4.0 s\n"
        "\n"
        "Thread rows: 1\n"
        "TID      GENERATION  CLASS             CELL  STATE             WHOSE\n"
        f"{NOBODY}  41          communication-pr  3     its thread has    /kubepods/pod1/c1\n"
        "                     ogress                  ended\n"
        "\n"
        "Counted since the maps were made (zeroes left out):\n"
        "  mutations: none\n"
        "  look-ups by the scheduler: none\n"
        "  runs by class: none\n"
        "\n"
        "no plugin answered at 127.0.0.1:9899 (Connection refused): rows are shown\n"
        "  without provenance\n"
        "Next: `nri-claim2core sweep --dry-run` lists rows without provenance"
    )


def test_the_emergency_stop_is_said_first():
    printed = text(snapshot())
    assert "Flags       emergency stop: no row is used" in printed.splitlines()


def test_provenance_replaces_the_path_and_cannot_steer_the_terminal():
    row = CgroupRow(cgroup_id=77, policy=POLICY, sealed=True)
    known = Provenance(map="cgroups", key=77, pod="ns/evil\x1b[2J", container="main")
    ledger = LedgerPage(address="a", rows={("cgroups", 77): known})
    printed = text(snapshot(cgroups=[row], paths={77: "/kubepods/c1"}), ledger)
    assert "\x1b" not in printed
    assert r"\x1b" in printed
    assert "/kubepods/c1" not in printed
    assert "no plugin answered" not in printed


def test_a_number_that_is_no_class_survives():
    row = CgroupRow(cgroup_id=77, policy=Policy(exec_class=7), sealed=True)
    made = documents.maps_document(snapshot(cgroups=[row]), "/pins", OFFLINE)
    assert made["cgroups"][0]["class"] == "7"


def view(source, *, task=Verdict.MISS, group=Verdict.MISS, policy=POLICY):
    return View(
        policy=policy if source is not Source.NONE else Policy(),
        cgroup_id=77,
        governing_cgroup_id=70 if group is not Verdict.MISS else 0,
        start_boottime_ns=12_345_678_900,
        pid_ino=9,
        tid=1234,
        tgid=1200,
        source=source,
        task_verdict=task,
        cgroup_verdict=group,
        result=Result.OK,
    )


def report(seen, *, affinity="0-1"):
    thread = ThreadFacts(
        tid=1234, tgid=1200, comm="worker", cgroup="/pod/c1", affinity=CpuSet([0, 1])
    )
    if affinity == "0-3":
        thread = ThreadFacts(
            tid=1234, tgid=1200, comm="worker", cgroup="/pod/c1", affinity=CpuSet(range(4))
        )
    cell = CELL if seen.source is not Source.NONE else None
    return TaskReport(
        view=seen, facts=thread, cell=cell, row=None, governing_path="/pod", now_ns=NOW
    )


@pytest.mark.parametrize(
    ("seen", "governed", "notes"),
    [
        (view(Source.NONE), "no row: default class, cell 0", []),
        (view(Source.TASK, task=Verdict.OK), "its own row", ["lease ends in 4.0 s"]),
        (
            view(Source.CGROUP, task=Verdict.OTHER_TASK, group=Verdict.OK),
            "the row of cgroup /pod",
            [
                "its own row is not used: its TID belongs to another thread now",
                "lease ends in 4.0 s",
            ],
        ),
        (
            view(Source.NONE, group=Verdict.LEASE_OVER),
            "no row: default class, cell 0",
            ["the row of cgroup /pod is not used: its lease is over"],
        ),
    ],
)
def test_what_governs_a_thread(seen, governed, notes):
    made = documents.thread_document(report(seen), OFFLINE)
    assert (made["explanation"], made["notes"]) == (governed, notes)


def test_a_thread_as_text():
    made = documents.thread_document(
        report(view(Source.TASK, task=Verdict.OK), affinity="0-3"), OFFLINE
    )
    made["plugin"] = documents.plugin_document(OFFLINE)
    assert inspect_text.thread(made).splitlines()[:8] == [
        "Thread      1234 of process 1200, worker",
        "Started     12.345679 s after the boot",
        "Cgroup      /pod/c1 (id 77)",
        "May run on  CPUs 0-3",
        "Governed by its own row",
        "            lease ends in 4.0 s",
        "            may run on 0-3, its cell has 0-1",
        "Policy      class communication-progress, weight 100, generation 41, claims' key",
    ]


def test_a_thread_that_ended_meanwhile():
    seen = TaskReport(
        view=view(Source.NONE), facts=None, cell=None, row=None, governing_path="", now_ns=NOW
    )
    made = documents.thread_document(seen, OFFLINE)
    made["plugin"] = documents.plugin_document(OFFLINE)
    assert made["comm"] is None
    assert "Thread      1234 of process 1200, ended now" in inspect_text.thread(made)
