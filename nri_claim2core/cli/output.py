"""How every command answers: exit codes, table, JSON or YAML, errors on standard error.

Tables fit the terminal (80 columns where there is none), need no color, and show text from
outside escaped. Documents carry `apiVersion` and `kind`; within a version fields are only
added.
"""

from __future__ import annotations

import argparse
import enum
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from nri_claim2core.model.errors import (
    Claim2CoreError,
    HostError,
    PeerError,
    StaleError,
    UsageError,
)

DEFAULT_WIDTH: Final = 80

_GAP: Final = "  "
_MIN_COLUMN: Final = 12
"""A column is not squeezed below this, or it could not hold one word."""


class ExitCode(enum.IntEnum):
    """What the exit code of every command means."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4


_EXIT_CODES: Final[tuple[tuple[type[Claim2CoreError], ExitCode], ...]] = (
    (UsageError, ExitCode.USAGE),
    (HostError, ExitCode.UNREACHABLE),
    (PeerError, ExitCode.UNREACHABLE),
    (StaleError, ExitCode.NOT_FOUND),
)
_UNREACHABLE_CODES: Final = frozenset(("C2C-CONFIG-04", "C2C-LAB-02", "C2C-NRI-08"))
"""A file that cannot be read, a requirement that this machine lacks, a runtime not there."""


def add_output_argument(parser: argparse.ArgumentParser, default: str = "table") -> None:
    """Add `-o table|json|yaml`."""
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "yaml"),
        default=default,
        help=f"form of the answer (default {default})",
    )


def document(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Give a document of the public JSON interface."""
    from nri_claim2core.agent.documents import API_VERSION  # noqa: PLC0415 - only when needed

    return {"apiVersion": API_VERSION, "kind": kind, **fields}


def emit(form: str, made: Mapping[str, Any], text: Callable[[], str]) -> None:
    """Print a document as JSON or YAML, or what `text` gives where a table is wanted."""
    if form == "json":
        print(json.dumps(made, indent=2))  # noqa: T201
    elif form == "yaml":
        import yaml  # noqa: PLC0415 - only when needed

        print(yaml.safe_dump(dict(made), sort_keys=False, width=DEFAULT_WIDTH), end="")  # noqa: T201
    else:
        print(text())  # noqa: T201


def report_error(error: Claim2CoreError) -> ExitCode:
    """Print message, hint and code on standard error and give the exit code that fits."""
    print(f"error: {printable(error.message, keep_lines=True)}", file=sys.stderr)  # noqa: T201
    if error.hint:
        print(f"  hint: {printable(error.hint)}", file=sys.stderr)  # noqa: T201
    print(f"  code: {error.code}", file=sys.stderr)  # noqa: T201
    if error.code in _UNREACHABLE_CODES:
        return ExitCode.UNREACHABLE
    for kind, code in _EXIT_CODES:
        if isinstance(error, kind):
            return code
    return ExitCode.FINDINGS


def terminal_width() -> int:
    """Give the columns of the terminal on standard output, 80 where there is none."""
    if not sys.stdout.isatty():
        return DEFAULT_WIDTH
    return max(40, shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns)


def table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], *, width: int | None = None
) -> str:
    """Give rows as aligned columns; cells too long for the width are wrapped in their column."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    columns = _column_widths(headers, cells, width or terminal_width())
    lines = []
    for row in [list(headers), *cells]:
        wrapped = [
            textwrap.wrap(cell, columns[i], break_on_hyphens=False) or [""]
            for i, cell in enumerate(row)
        ]
        for level in range(max(map(len, wrapped))):
            parts = [
                f"{(part[level] if level < len(part) else ''):<{columns[i]}}"
                for i, part in enumerate(wrapped)
            ]
            lines.append(_GAP.join(parts).rstrip())
    return "\n".join(lines)


def paragraph(text: str, *, indent: str = "", hanging: str | None = None) -> str:
    """Give text wrapped to the terminal; `hanging` indents all lines but the first."""
    return textwrap.fill(
        printable(text),
        terminal_width(),
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def printable(text: str, *, keep_lines: bool = False) -> str:
    """Give text in which nothing can move the cursor or reorder what is shown."""
    return "".join(
        c if c.isprintable() or (keep_lines and c == "\n") else c.encode("unicode_escape").decode()
        for c in text
    )


def _column_widths(headers: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    widths = [
        max([len(header), *(len(row[i]) for row in cells)]) for i, header in enumerate(headers)
    ]
    smallest = [max(len(header), _MIN_COLUMN) for header in headers]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while excess > 0:
        # Always the widest column that may still shrink.
        able = [i for i in range(len(widths)) if widths[i] > smallest[i]]
        if not able:
            break
        widths[max(able, key=lambda i: widths[i])] -= 1
        excess -= 1
    return widths
