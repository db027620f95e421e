"""`demo`: a node's day on a private containerd, judged by the kernel, cleaned up afterwards."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from nri_claim2core.cli import output

if TYPE_CHECKING:
    from nri_claim2core.lab.demo_report import DemoReport

DESCRIPTION: Final = (
    "Start a private containerd and the plugin, run pods with and without claims, try to move"
    " them, kill and restart plugin and runtime, and show where every container may run, as the"
    " kernel says. Needs root and a containerd; without them the same is played on the embedded"
    " runtime with plain processes. Everything it made is removed at its end."
)

_TIMES: Final = {
    "pluginStartToRegistered": "Plugin registered after",
    "pluginRestartToRegistered": "after its restart",
    "runtimeBackToRegistered": "after the runtime was back",
}
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked for the end; what was started is removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--containerd",
        metavar="VERSION",
        help="use this one, such as 2.1.9 or 2.1 (default: the newest on this machine)",
    )
    where.add_argument(
        "--embedded", action="store_true", help="play on the embedded runtime, without root"
    )
    output.add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Play and report."""
    from nri_claim2core.lab.demo_run import play  # noqa: PLC0415 - only when needed

    def announce(stage: str) -> None:
        if args.output == "table":
            print(output.paragraph(f"Demo on {stage}."), flush=True)  # noqa: T201

    def say(line: str) -> None:
        print(f"  ... {line}", file=sys.stderr, flush=True)  # noqa: T201

    try:
        with _signals_raise():
            report = play(
                version=args.containerd, embedded=args.embedded, announce=announce, say=say
            )
    except Interrupted as interrupted:
        name = signal.Signals(interrupted.number).name
        print(f"{name}: stopped, everything was removed", file=sys.stderr)  # noqa: T201
        return 128 + interrupted.number
    made = output.document("DemoReport", report.fields())
    output.emit(args.output, made, lambda: _text(report))
    return output.ExitCode.FINDINGS if report.failures else output.ExitCode.OK


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Let the first signal raise Interrupted and ignore later ones: cleaning up goes through."""

    def interrupt(number: int, _frame: object) -> NoReturn:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {each: signal.signal(each, interrupt) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _text(report: DemoReport) -> str:
    from nri_claim2core.lab.demo_report import COLUMNS  # noqa: PLC0415 - only when needed

    rows: list[tuple[str, ...]] = []
    act = ""
    for row in report.rows:
        if row.act != act:
            act = row.act
            rows.append((act, *[""] * (len(COLUMNS) - 1)))
        first, *rest = row.cells
        rows.append((f"- {first}", *rest))
    lines = [
        ", ".join(f"{name} {value}" for name, value in report.machine.items()) + ".",
        "",
        output.table(COLUMNS, rows),
        "",
        output.paragraph(
            "ASKED: the CPUs of its claims. CPUS, MEMS: in force, from the kernel. FIRST: what"
            " the workload printed as its first act (=: the same CPUs). MS: spent in the plugin"
            " on this act."
        ),
    ]
    times = ", ".join(
        f"{_TIMES.get(name, name)} {value:.0f} ms" for name, value in report.times_ms.items()
    )
    lines += [output.paragraph(f"{times}.")] if times else []
    lines += [
        output.paragraph(f"Not shown here: {limit}.", hanging="  ") for limit in report.not_shown
    ]
    if report.failures:
        lines += ["", "FAILED:"]
        lines += [output.paragraph(f"- {each}", hanging="  ") for each in report.failures]
        lines += ["", "The last lines of the plugin's log:", report.plugin_log]
    else:
        lines += ["", f"All {len(report.rows)} expectations held. Everything was removed."]
    return os.linesep.join(lines)
