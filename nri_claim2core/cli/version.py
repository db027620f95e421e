"""`version`: what is installed here."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata
from typing import Final

from nri_claim2core import __version__
from nri_claim2core.cli import output

DESCRIPTION: Final = "Print the versions of the program and of what it runs on."

_LIBRARIES: Final = ("protobuf", "PyYAML", "msgspec", "prometheus-client")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    output.add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the versions."""
    libraries = {name: _version(name) for name in _LIBRARIES}
    made = output.document(
        "Version",
        {"version": __version__, "python": platform.python_version(), "libraries": libraries},
    )
    output.emit(
        args.output,
        made,
        lambda: "\n".join(
            [
                f"nri-claim2core {__version__}",
                f"Python {platform.python_version()}",
                *(f"{name} {version}" for name, version in libraries.items()),
            ]
        ),
    )
    return output.ExitCode.OK


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
