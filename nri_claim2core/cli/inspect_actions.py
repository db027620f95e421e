"""What `inspect` does: read, join with the plugin's ledger, print."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from nri_claim2core.agent import inspection
from nri_claim2core.agent import inspection_documents as documents
from nri_claim2core.agent.config_source import ConfigSource
from nri_claim2core.agent.inspection_facts import read_tree
from nri_claim2core.agent.ledger_page import LedgerPage, read_ledger
from nri_claim2core.bpfmap.abi import CgroupId, Tid
from nri_claim2core.cli import inspect_text, output
from nri_claim2core.cli.inspect import TABLES


def ask_plugin(args: argparse.Namespace) -> LedgerPage:
    """Ask for the ledger where the configuration says that the endpoint listens."""
    source = ConfigSource(Path(args.config) if args.config else None, overrides=args.overrides)
    return read_ledger(source.load().config.metrics.listen)


def _map(args: argparse.Namespace) -> int:
    with inspection.opened(args.pin_dir) as maps:
        found = inspection.read_snapshot(maps)
    made = documents.maps_document(found, args.pin_dir, ask_plugin(args))
    for table in TABLES:
        if args.table not in (None, table):
            del made[table]
    output.emit(args.output, output.document("Maps", made), lambda: inspect_text.maps(made))
    return output.ExitCode.OK


def _task(args: argparse.Namespace) -> int:
    report = inspection.inspect_task(args.pin_dir, Tid(args.tid))
    ledger = ask_plugin(args)
    made = {
        "pinDir": args.pin_dir,
        "plugin": documents.plugin_document(ledger),
        **documents.thread_document(report, ledger),
    }
    output.emit(args.output, output.document("Thread", made), lambda: inspect_text.thread(made))
    return output.ExitCode.OK


def _container(args: argparse.Namespace) -> int:
    with inspection.opened(args.pin_dir):
        pass  # that the maps are missing is said before the container is looked for
    ledger = ask_plugin(args)
    path = inspection.cgroup_path(args.cgroup) if args.cgroup else _find(args.id, ledger)
    report = inspection.inspect_container(args.pin_dir, path)
    made = {
        "pinDir": args.pin_dir,
        "plugin": documents.plugin_document(ledger),
        **documents.container_document(report, ledger),
    }
    output.emit(
        args.output, output.document("Container", made), lambda: inspect_text.container(made)
    )
    return output.ExitCode.OK


def _find(prefix: str, ledger: LedgerPage) -> str:
    known = {
        row.container_id: row.cgroup_id
        for row in ledger.rows.values()
        if row.container_id.startswith(prefix) and row.cgroup_id
    }
    if len(known) == 1:
        path = read_tree().path_of(CgroupId(known.popitem()[1]))
        if path:
            return path
    return inspection.find_container(prefix)


ACTIONS: Final = {"map": _map, "task": _task, "container": _container}
