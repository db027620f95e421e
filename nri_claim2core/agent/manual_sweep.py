"""`sweep`: find rows without provenance, and delete them where no plugin is there to do it.

The plugin sweeps by itself, after two passes. What is left for a person is to look, and to
clean up after a plugin that will not come back: then the token is taken over, under the
plugin's instance lock so that none starts meanwhile, and exactly the rows that were listed are
deleted, each only if it is still the same one (INV-EXPLAINED, INV-ROLLBACK).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from nri_claim2core.agent.inspection import Snapshot, loaded, opened, read_snapshot
from nri_claim2core.agent.inspection_facts import has_ended, maybe_identity
from nri_claim2core.agent.instance import InstanceLock
from nri_claim2core.agent.ledger_page import LedgerPage
from nri_claim2core.agent.row_checks import (
    PASSING,
    Fault,
    check_cell,
    check_cgroup,
    check_task,
)
from nri_claim2core.bpfmap import requests
from nri_claim2core.bpfmap.abi import Result
from nri_claim2core.bpfmap.identity import check_pid_namespace
from nri_claim2core.bpfmap.mutate import Writer, error_of
from nri_claim2core.bpfmap.requests import Request
from nri_claim2core.bpfmap.rows import CellRow, CgroupRow, Control, TaskRow
from nri_claim2core.model.errors import HostError

REFUSED: Final = "C2C-SWEEP-01"
"""Code of a sweep that is the plugin's to do."""

Row = CellRow | CgroupRow | TaskRow
Ask = Callable[[], LedgerPage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One row without provenance, and why it is thought to have none."""

    map: str
    key: int
    generation: int
    faults: tuple[Fault, ...]
    row: Row
    place: str = ""
    "Path of its cgroup, where that is known."
    outcome: str = ""
    "What became of it: empty until it was tried, `deleted`, or why not."


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a sweep would delete."""

    rows: tuple[Listed, ...]
    nr_kept: int
    "Rows that stay."
    control: Control
    is_writer_alive: bool
    ledger: LedgerPage
    notes: tuple[str, ...] = ()


def plan_sweep(directory: str, ask: Ask) -> Plan:
    """List rows without provenance; `ask` gives the plugin's ledger.

    With a ledger: rows that it does not have, in two passes one after the other, since the
    plugin goes on writing. Without: rows that cannot hold any more. Changes nothing.
    Raises: PidNamespaceError, and as `inspection.opened`. Blocking: 1 us to 30 us per row.
    """
    check_pid_namespace()
    with opened(directory) as maps:
        first = _pass(read_snapshot(maps), ask())
        if not first.ledger.has_answered or not first.rows:
            return first
        again = _pass(read_snapshot(maps), ask())
    if not again.ledger.has_answered:
        return again
    before = {(each.map, each.key, each.generation) for each in first.rows}
    both = [each for each in again.rows if (each.map, each.key, each.generation) in before]
    nr_new = len(again.rows) - len(both)
    return Plan(
        rows=tuple(both),
        nr_kept=again.nr_kept + nr_new,
        control=again.control,
        is_writer_alive=again.is_writer_alive,
        ledger=again.ledger,
        notes=again.notes,
    )


def sweep(directory: str, ask: Ask, *, run_dir: str) -> Plan:
    """Delete rows that cannot hold any more, if no plugin is there to do so; say what became.

    Raises: HostError C2C-SWEEP-01 while the writer lives or a plugin answers; C2C-PLUGIN-01
    while one holds the instance lock; else as `plan_sweep`, LoadError, and what the mutation
    refuses as a whole. Blocking: as `plan_sweep`, and tens of milliseconds.
    """
    _refuse_beside_plugin(plan_sweep(directory, ask))
    with InstanceLock(run_dir):
        # Again: the lock keeps a plugin away from here on, not before.
        plan = plan_sweep(directory, ask)
        _refuse_beside_plugin(plan)
        return _delete(directory, plan) if plan.rows else plan


def _pass(found: Snapshot, ledger: LedgerPage) -> Plan:
    mount, frame = found.frame.tree.mount, found.frame
    judged: list[tuple[str, int, int, list[Fault], Row, str]] = [
        ("cgroups", r.cgroup_id, r.policy.generation, check_cgroup(r, frame), r, _at(found, r))
        for r in found.cgroups
    ]
    for task in found.tasks:
        faults = check_task(task, frame, maybe_identity(task.tid, mount))
        place = _at(found, task)
        judged.append(("tasks", task.tid, task.policy.generation, faults, task, place))
    listed = _without_provenance(judged, ledger)
    gone = {(each.map, each.key) for each in listed}
    named = frozenset(
        (row.policy.cell, row.policy.cell_generation)
        for kind, key, _, _, row, _ in judged
        if (kind, key) not in gone and not isinstance(row, CellRow)
    )
    cells: list[tuple[str, int, int, list[Fault], Row, str]] = [
        ("cells", cell.index, cell.generation, check_cell(cell, named), cell, "")
        for cell in found.cells
    ]
    listed += [
        each
        for each in _without_provenance(cells, ledger)
        # A ledger that lists no cells explains those that its rows name.
        if Fault.UNUSED in each.faults
    ]
    return Plan(
        rows=tuple(listed),
        nr_kept=len(judged) + len(cells) - len(listed),
        control=found.control,
        is_writer_alive=is_writer_alive(found.control),
        ledger=ledger,
        notes=_notes(found),
    )


def is_writer_alive(control: Control) -> bool:
    """Tell whether the process that took the token still runs. Blocking: host read."""
    return bool(control.token) and not has_ended(control.writer_tgid, control.taken_ns)


def _without_provenance(
    judged: Iterable[tuple[str, int, int, list[Fault], Row, str]], ledger: LedgerPage
) -> list[Listed]:
    listed = []
    for kind, key, generation, found, row, place in judged:
        faults = [fault for fault in found if fault not in PASSING]
        if ledger.has_answered:
            known = ledger.maybe_row(kind, key)
            if known is not None and known.generation in (0, generation):
                continue
            faults.append(Fault.NOT_IN_LEDGER if known is None else Fault.OTHER_IN_LEDGER)
        if faults:
            listed.append(
                Listed(
                    map=kind,
                    key=key,
                    generation=generation,
                    faults=tuple(faults),
                    row=row,
                    place=place,
                )
            )
    return listed


def _at(found: Snapshot, row: CgroupRow | TaskRow) -> str:
    return found.frame.tree.path_of(row.cgroup_id)


def _notes(found: Snapshot) -> tuple[str, ...]:
    tree = found.frame.tree
    if not tree.mount:
        return ("no cgroup v2 hierarchy is mounted: whether cgroups are gone is not known",)
    if not tree.is_whole:
        note = f"{tree.mount} shows a part of the hierarchy: cgroups outside count as there"
        return (note,)
    return ()


def _refuse_beside_plugin(plan: Plan) -> None:
    hint = "the plugin deletes such rows itself after two passes; see them with --dry-run"
    if plan.is_writer_alive:
        writer = plan.control.writer_tgid
        raise HostError(f"process {writer} writes these maps", hint=hint, code=REFUSED)
    if plan.ledger.has_answered:
        at = plan.ledger.address
        raise HostError(f"a plugin answers at {at}", hint=hint, code=REFUSED)


def _delete(directory: str, plan: Plan) -> Plan:
    with loaded(directory) as programs:
        writer = Writer(programs)
        try:
            writer.take()
            # From here on nobody else writes: what is read now is what is deleted.
            now = read_snapshot(programs.maps)
            rows: set[Row] = {*now.cells, *now.cgroups, *now.tasks}
            done = [_tried(writer, each, same=each.row in rows) for each in plan.rows]
        finally:
            writer.close()
    return Plan(
        rows=tuple(done),
        nr_kept=plan.nr_kept,
        control=plan.control,
        is_writer_alive=False,
        ledger=plan.ledger,
        notes=plan.notes,
    )


def _tried(writer: Writer, listed: Listed, *, same: bool) -> Listed:
    outcome = "changed since it was listed"
    if same:
        outcome = "deleted"
        for answer in writer.apply(_deletion(listed)):
            if answer.result is not Result.OK:
                outcome = error_of(answer.result, answer.error, "not deleted").message
    return Listed(
        map=listed.map,
        key=listed.key,
        generation=listed.generation,
        faults=listed.faults,
        row=listed.row,
        place=listed.place,
        outcome=outcome,
    )


def _deletion(listed: Listed) -> Sequence[Request]:
    row, generation = listed.row, listed.generation
    match row:
        case CgroupRow():
            return [requests.delete_cgroup(row.cgroup_id, generation)]
        case TaskRow():
            return [requests.delete_task(row.tid, row.pid_ino, generation)]
        case CellRow():
            return [
                requests.drain_cell(row.index, generation),
                requests.free_cell(row.index, generation),
            ]
