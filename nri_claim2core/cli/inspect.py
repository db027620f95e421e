"""`inspect`: the rows of the pinned maps, what governs a thread, how a container is placed.

The arguments only; `inspect_actions` does the work and is imported when it is wanted.
"""

from __future__ import annotations

import argparse
from typing import Final

from nri_claim2core.cli import output
from nri_claim2core.cli.arguments import add_config_arguments

DESCRIPTION: Final = (
    "Show what is in force: rows of the pinned BPF maps, what governs a thread, or a container's"
    " row, cell and threads. Reads only, with or without a running plugin; one that runs adds"
    " whose rows they are."
)

PIN_DIR: Final = "/sys/fs/bpf/claim2core"
TABLES: Final = ("control", "cells", "cgroups", "tasks", "stats")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="WHAT")

    maps = actions.add_parser(
        "map",
        help="the rows of the maps, each with what it means",
        description="Print the rows of the pinned maps as the kernel has them, and say of each"
        " whether it holds. Reads only.",
    )
    maps.add_argument(
        "table", nargs="?", choices=TABLES, metavar="MAP", help=f"one of {', '.join(TABLES)}"
    )
    _add_common(maps)

    task = actions.add_parser(
        "task",
        help="what governs a thread",
        description="Ask the kernel side which row governs a thread, and print it with what"
        " /proc says of the thread. Loads a program for that; changes nothing.",
    )
    task.add_argument("tid", metavar="TID", type=_positive, help="a thread or a process")
    _add_common(task)

    container = actions.add_parser(
        "container",
        help="a container's row, cell and threads",
        description="Join a container's cgroup with the row and the cell that govern it and with"
        " its threads. Loads a program to ask about threads; changes nothing.",
    )
    which = container.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "id", nargs="?", metavar="ID-PREFIX", type=_some_text, help="start of the container's id"
    )
    which.add_argument(
        "--cgroup", metavar="PATH", help="its cgroup, as a directory or as in /proc/PID/cgroup"
    )
    _add_common(container)


def add_place_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--pin-dir DIR` and what tells where the plugin's endpoint is."""
    parser.add_argument(
        "--pin-dir",
        metavar="DIR",
        default=PIN_DIR,
        help="where the maps are pinned (default: %(default)s)",
    )
    add_config_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Show what `action` says."""
    from nri_claim2core.cli import inspect_actions  # noqa: PLC0415 - see above

    return inspect_actions.ACTIONS[args.action](args)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_place_arguments(parser)
    output.add_output_argument(parser)


def _positive(text: str) -> int:
    # A TID is a pid_t.
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 31):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no TID")
    return int(text)


def _some_text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("is empty")
    return text
