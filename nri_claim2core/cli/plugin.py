"""`nri-claim2core plugin`: run the plugin role until told to stop."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path
from typing import Final

from nri_claim2core.cli.arguments import add_config_arguments

DESCRIPTION: Final = (
    "Register with the container runtime as an NRI plugin, link every container to its claims "
    "and keep it on their CPUs. Runs until SIGTERM; SIGHUP reads the configuration again. "
    "Waits for a runtime that is not there yet, and comes back when it restarts."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_config_arguments(parser)
    parser.add_argument(
        "--socket", metavar="PATH", help="NRI socket; short for --set plugin.socketPath=PATH"
    )
    parser.add_argument(
        "--root",
        default="/",
        metavar="DIR",
        help="directory where the host's file system is seen (default: /)",
    )
    parser.add_argument(
        "--run-dir",
        default="/run/claim2core",
        metavar="DIR",
        help="directory of the lock that keeps a second instance away (default: %(default)s)",
    )
    parser.add_argument(
        "--attempts",
        type=_positive,
        metavar="N",
        help="give up with exit code 3 after N failed attempts in a row (default: never)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve; gives 0 after an orderly end."""
    # Nothing that is imported becomes garbage: a tenth of the start would go into looking.
    # Collections are the role's business later on.
    gc.disable()
    from nri_claim2core.agent.role import PluginRole, RoleOptions  # noqa: PLC0415

    overrides = list(args.overrides)
    if args.socket:
        overrides.append(f"plugin.socketPath={args.socket}")
    PluginRole(
        RoleOptions(
            config_path=Path(args.config) if args.config else None,
            overrides=tuple(overrides),
            root=args.root,
            run_dir=args.run_dir,
            max_attempts=args.attempts,
        )
    ).run()
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("is at least 1")
    return number
