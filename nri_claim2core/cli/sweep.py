"""`sweep`: list rows without provenance, and delete them when no plugin is there to do it."""

from __future__ import annotations

import argparse
from typing import Final

from nri_claim2core.cli import output
from nri_claim2core.cli.inspect import add_place_arguments

DESCRIPTION: Final = (
    "Acts: deletes rows of the pinned maps that cannot hold any more, after their plugin has"
    " ended; beside a running plugin it refuses, which does this itself. With --dry-run it only"
    " lists: what a running plugin's ledger does not have; without a plugin, rows whose cgroup or"
    " thread is gone or another one, whose generation is below the floor, or whose cell was freed"
    " or reused. Exit code 1 when rows are listed and not deleted."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--dry-run", action="store_true", help="list only, delete nothing")
    add_place_arguments(parser)
    parser.add_argument(
        "--run-dir",
        default="/run/claim2core",
        metavar="DIR",
        help="directory of the lock that keeps a plugin away meanwhile (default: %(default)s)",
    )
    output.add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    """List, or delete."""
    from nri_claim2core.agent.inspection_documents import sweep_document  # noqa: PLC0415
    from nri_claim2core.agent.manual_sweep import plan_sweep, sweep  # noqa: PLC0415
    from nri_claim2core.cli import inspect_text  # noqa: PLC0415
    from nri_claim2core.cli.inspect_actions import ask_plugin  # noqa: PLC0415

    if args.dry_run:
        plan = plan_sweep(args.pin_dir, lambda: ask_plugin(args))
    else:
        plan = sweep(args.pin_dir, lambda: ask_plugin(args), run_dir=args.run_dir)
    made = sweep_document(plan, args.pin_dir, plan.ledger, is_dry_run=args.dry_run)
    output.emit(args.output, output.document("Sweep", made), lambda: inspect_text.sweep(made))
    left = any(row.outcome != "deleted" for row in plan.rows)
    return output.ExitCode.FINDINGS if left else output.ExitCode.OK
