"""Arguments that several commands take, in the same words everywhere."""

from __future__ import annotations

import argparse


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--config FILE` and `--set OPTION=VALUE` (as `overrides`)."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="configuration file; conf.d/*.yaml beside it is read too"
        " (default: /etc/claim2core/claim2core.yaml, which may be absent)",
    )
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="set one option over all files, e.g. --set mode=observe; may be repeated",
    )


def add_root_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--root DIR`."""
    parser.add_argument(
        "--root",
        metavar="DIR",
        default="/",
        help="read the files of a captured node below DIR instead of this node's",
    )
