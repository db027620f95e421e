"""`config`: check files before they are dropped onto nodes, show what is in force and why.

The arguments only; `config_actions` does the work and is imported when it is wanted, so that
help comes at once.
"""

from __future__ import annotations

import argparse
from typing import Final

from nri_claim2core.cli import output
from nri_claim2core.cli.arguments import add_config_arguments, add_root_argument

DESCRIPTION: Final = (
    "Check configuration files, show the configuration that is in force, or print its schema."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    check = actions.add_parser(
        "check",
        help="report every mistake with its line",
        description="Check files, or without FILE the node's own configuration, and report"
        " every mistake with its line. Changes nothing.",
    )
    check.add_argument("files", nargs="*", metavar="FILE", help="check these, each by itself")
    _add_source_arguments(check)

    show = actions.add_parser(
        "show",
        help="print the effective value of every option",
        description="Print the value of every option that a plugin started now would use.",
    )
    show.add_argument("--origin", action="store_true", help="also where each value is set")
    _add_source_arguments(show)

    schema = actions.add_parser(
        "schema",
        help="print the JSON Schema of a configuration file",
        description="Print the JSON Schema of a configuration file, for editors and pipelines.",
    )
    schema.add_argument("-o", "--output", choices=("json", "yaml"), default="json")


def run(args: argparse.Namespace) -> int:
    """Do what `action` says."""
    from nri_claim2core.cli import config_actions  # noqa: PLC0415 - see above

    return config_actions.ACTIONS[args.action](args)


def _add_source_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_arguments(parser)
    parser.add_argument(
        "--runtime-config",
        metavar="FILE",
        help="file whose text the runtime would deliver (such as"
        " /etc/nri/conf.d/95-claim2core.conf)",
    )
    add_root_argument(parser)
    output.add_output_argument(parser)
