"""The documents of `inspect` and `sweep`: what is read, with a sentence that explains each row.

Keys are camelCase as in all documents; times and generations are the kernel's own numbers, and
`claimKey` is text, since a JSON reader may round a number of 64 bits.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from typing import Any

from nri_claim2core.agent.inspection import ContainerReport, Snapshot, TaskReport
from nri_claim2core.agent.inspection_facts import maybe_identity
from nri_claim2core.agent.ledger_page import LedgerPage
from nri_claim2core.agent.manual_sweep import Plan, is_writer_alive
from nri_claim2core.agent.row_checks import (
    VERDICT_FAULTS,
    Fault,
    check_cgroup,
    check_task,
)
from nri_claim2core.bpfmap.abi import ControlFlag, Counter, ExecClass, Source, Verdict
from nri_claim2core.bpfmap.errors import PidNamespaceError
from nri_claim2core.bpfmap.identity import check_pid_namespace
from nri_claim2core.bpfmap.rows import CellRow, CgroupRow, Control, Policy, Stats, TaskRow

Document = dict[str, Any]


def class_name(number: int) -> str:
    """Give the name of an execution class; a number that is none stands for itself."""
    return _name(number) if isinstance(number, ExecClass) else str(int(number))


def maps_document(found: Snapshot, directory: str, ledger: LedgerPage) -> Document:
    """Give all maps, each row with what it means."""
    is_host = _sees_all_threads()
    policies = [row.policy for row in found.cgroups] + [row.policy for row in found.tasks]
    named = Tally((policy.cell, policy.cell_generation) for policy in policies)
    mount = found.frame.tree.mount
    return {
        "pinDir": directory,
        "plugin": plugin_document(ledger),
        "control": control_document(found.control, found.frame.now_ns, is_host=is_host),
        "cells": [
            {
                **cell_document(cell),
                "nrRows": named[cell.index, cell.generation],
                "provenance": _provenance(ledger, "cells", cell.index),
            }
            for cell in found.cells
        ],
        "cgroups": [
            cgroup_document(row, found, check_cgroup(row, found.frame), ledger)
            for row in found.cgroups
        ],
        "tasks": [
            task_document(
                row,
                found,
                check_task(
                    row,
                    found.frame,
                    maybe_identity(row.tid, mount) if is_host else None,
                    is_known=is_host,
                ),
                ledger,
            )
            for row in found.tasks
        ],
        "stats": stats_document(found.stats),
    }


def plugin_document(ledger: LedgerPage) -> Document:
    """Give whether a plugin answered."""
    return {
        "answered": ledger.has_answered,
        "address": ledger.address,
        "problem": ledger.problem,
    }


def control_document(control: Control, now_ns: int, *, is_host: bool) -> Document:
    """Give the control row; `writerAlive` is null where other processes cannot be seen."""
    return {
        "abi": control.abi,
        "generation": control.generation,
        "floor": control.floor,
        "token": control.token,
        "busyNs": control.busy_ns,
        "takenNs": control.taken_ns,
        "schedulerNs": control.scheduler_ns,
        "flags": [_name(flag) for flag in ControlFlag if flag and flag in control.flags],
        "writerTgid": control.writer_tgid,
        "writerAlive": is_writer_alive(control) if is_host else None,
        "nowNs": now_ns,
    }


def cell_document(cell: CellRow) -> Document:
    """Give a cell."""
    words = {
        "live": "an envelope in use",
        "draining": "takes no more rows; its queue may hold tasks",
        "drained": "its queue is empty for good; free next",
    }
    state = _name(cell.state)
    explanation = "everybody else" if cell.index == 0 else words.get(state, state)
    return {
        "cell": cell.index,
        "generation": cell.generation,
        "dsqId": cell.dsq_id,
        "cpus": str(cell.cpus),
        "state": state,
        "sealed": cell.sealed,
        "explanation": explanation if cell.sealed else Fault.FOREIGN.words,
    }


def cgroup_document(
    row: CgroupRow, found: Snapshot, faults: Sequence[Fault], ledger: LedgerPage
) -> Document:
    """Give a cgroup row."""
    return {
        "cgroupId": row.cgroup_id,
        "path": found.frame.tree.path_of(row.cgroup_id),
        **policy_document(row.policy),
        "sealed": row.sealed,
        **_judged(row.policy, faults, found.frame.now_ns),
        "provenance": _provenance(ledger, "cgroups", row.cgroup_id),
    }


def task_document(
    row: TaskRow, found: Snapshot, faults: Sequence[Fault], ledger: LedgerPage
) -> Document:
    """Give a thread's row."""
    return {
        "tid": row.tid,
        "tgid": row.tgid,
        "cgroupId": row.cgroup_id,
        "path": found.frame.tree.path_of(row.cgroup_id),
        "startBoottimeNs": row.start_boottime_ns,
        "pidIno": row.pid_ino,
        **policy_document(row.policy),
        "sealed": row.sealed,
        **_judged(row.policy, faults, found.frame.now_ns),
        "provenance": _provenance(ledger, "tasks", row.tid),
    }


def policy_document(policy: Policy) -> Document:
    """Give what is decided for a cgroup or a thread."""
    return {
        "generation": policy.generation,
        "cell": policy.cell,
        "cellGeneration": policy.cell_generation,
        "claimKey": f"{policy.claim_key:#018x}",
        "class": class_name(policy.exec_class),
        "weight": policy.weight,
        "sliceNs": policy.slice_ns,
        "leaseEndNs": policy.lease_end_ns,
        "flags": policy.flags,
    }


def stats_document(stats: Stats) -> Document:
    """Give the counters by name and the histograms by class."""
    counted = stats.counters
    return {
        "results": {_name(result): n for result, n in stats.results().items()},
        "verdicts": {_name(each): counted[Counter.VERDICT + each] for each in Verdict},
        "runs": {_name(each): counted[Counter.CLASS + each] for each in ExecClass},
        "waitHistogram": {_name(each): list(stats.wait_hist[each]) for each in ExecClass},
        "runHistogram": {_name(each): list(stats.run_hist[each]) for each in ExecClass},
    }


def thread_document(report: TaskReport, ledger: LedgerPage) -> Document:
    """Give what governs a thread; comm, cgroup and affinity are null once it has ended."""
    view, seen = report.view, report.facts
    table, key = (
        ("tasks", int(view.tid))
        if view.source is Source.TASK
        else ("cgroups", int(view.governing_cgroup_id))
    )
    return {
        "tid": view.tid,
        "tgid": view.tgid,
        "comm": seen.comm if seen else None,
        "startBoottimeNs": view.start_boottime_ns,
        "pidIno": view.pid_ino,
        "cgroupId": view.cgroup_id,
        "cgroup": seen.cgroup if seen else None,
        "affinity": str(seen.affinity) if seen else None,
        "governedBy": _name(view.source),
        "governingCgroupId": view.governing_cgroup_id,
        "governingCgroup": report.governing_path,
        "taskVerdict": _name(view.task_verdict),
        "cgroupVerdict": _name(view.cgroup_verdict),
        "policy": policy_document(view.policy),
        "cellCpus": str(report.cell.cpus) if report.cell else "",
        "explanation": _governed_by(report),
        "notes": _thread_notes(report),
        "provenance": _provenance(ledger, table, key),
    }


def container_document(report: ContainerReport, ledger: LedgerPage) -> Document:
    """Give a container's cgroups, the governing row and cell, and its threads."""
    row, cell = report.governing, None
    if row is not None:
        cell = report.frame.cells.get(row.policy.cell)
        if cell is not None and cell.generation != row.policy.cell_generation:
            cell = None
    shown = Snapshot(frame=report.frame, cgroups=[], tasks=[], stats=Stats((), (), ()))
    return {
        "cgroup": report.path,
        "cgroups": [
            {
                "cgroupId": number,
                "path": path,
                "hasRow": any(each.cgroup_id == number for each in report.rows),
            }
            for number, path in report.cgroups.items()
        ],
        "governingCgroup": report.governing_path,
        "row": None
        if row is None
        else cgroup_document(row, shown, check_cgroup(row, report.frame), ledger),
        "cell": None if cell is None else cell_document(cell),
        "threads": [thread_document(each, ledger) for each in report.threads],
        "problem": report.problem,
    }


def sweep_document(plan: Plan, directory: str, ledger: LedgerPage, *, is_dry_run: bool) -> Document:
    """Give what a sweep lists or did."""
    return {
        "pinDir": directory,
        "dryRun": is_dry_run,
        "plugin": plugin_document(ledger),
        "writer": {"tgid": plan.control.writer_tgid, "alive": plan.is_writer_alive},
        "rows": [
            {
                "map": each.map,
                "key": each.key,
                "generation": each.generation,
                "cgroup": each.place,
                "reasons": [fault.value for fault in each.faults],
                "explanation": "; ".join(fault.words for fault in each.faults),
                "outcome": each.outcome,
            }
            for each in plan.rows
        ],
        "nrKept": plan.nr_kept,
        "notes": list(plan.notes),
    }


def _governed_by(report: TaskReport) -> str:
    if report.view.source is Source.TASK:
        return "its own row"
    if report.view.source is Source.CGROUP:
        return f"the row of cgroup {_governing(report)}"
    return "no row: default class, cell 0"


def _thread_notes(report: TaskReport) -> list[str]:
    """Which row that concerns the thread is not used, and what else is to be known."""
    view = report.view
    notes = []
    if fault := VERDICT_FAULTS.get(view.task_verdict):
        notes.append(f"its own row is not used: {fault.words}")
    if fault := VERDICT_FAULTS.get(view.cgroup_verdict):
        notes.append(f"the row of cgroup {_governing(report)} is not used: {fault.words}")
    if view.source is not Source.NONE:
        notes += _lease(view.policy, report.now_ns)
    cell, seen = report.cell, report.facts
    if cell and seen and cell.index and seen.affinity.mask & ~cell.cpus.mask:
        notes.append(f"may run on {seen.affinity}, its cell has {cell.cpus}")
    return notes


def _governing(report: TaskReport) -> str:
    return report.governing_path or f"{report.view.governing_cgroup_id}"


def _judged(policy: Policy, faults: Sequence[Fault], now_ns: int) -> Document:
    words = [fault.words for fault in faults] or ["holds", *_lease(policy, now_ns)]
    return {
        "holds": not faults,
        "faults": [fault.value for fault in faults],
        "explanation": "; ".join(words),
    }


def _lease(policy: Policy, now_ns: int) -> list[str]:
    left_s = (policy.lease_end_ns - now_ns) / 1e9
    return [f"lease ends in {left_s:.1f} s"] if policy.lease_end_ns and left_s > 0 else []


def _provenance(ledger: LedgerPage, table: str, key: int) -> Document | None:
    row = ledger.maybe_row(table, key)
    return None if row is None else row.fields()


def _sees_all_threads() -> bool:
    try:
        check_pid_namespace()
    except PidNamespaceError:
        return False
    return True


def _name(member: object) -> str:
    return str(getattr(member, "name", member)).lower().replace("_", "-")
