"""`simulate`: play a scenario of node events through the plugin and say what came of it."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nri_claim2core.cli import output
from nri_claim2core.model.errors import ConfigError

if TYPE_CHECKING:
    from nri_claim2core.lab.simulation_report import Check, SimulationReport, StepReport

DESCRIPTION: Final = (
    "Play a scenario - a node, its claims, pods and a list of events - through the plugin on an"
    " embedded runtime, and print each reply and the final state. Starts no container and"
    " touches nothing of this node. Exit code 1 when an expectation of the scenario is not met."
)
_UNREADABLE: Final = "C2C-LAB-11"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("scenario", metavar="SCENARIO.yaml", type=Path)
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=Path,
        help="write the node's files below DIR and keep them (default: a temporary directory)",
    )
    parser.add_argument(
        "--runtime",
        metavar="NAME",
        help="play it on this runtime, such as containerd-2.1 or cri-o-1.36",
    )
    output.add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Play and report."""
    from nri_claim2core.lab.scenario_loader import load_scenario  # noqa: PLC0415
    from nri_claim2core.lab.simulate import simulate  # noqa: PLC0415

    # What the plugin decides is in the report; its log would say it again.
    logging.getLogger("nri_claim2core").addHandler(logging.NullHandler())
    try:
        report = simulate(load_scenario(args.scenario), root=args.root, runtime=args.runtime)
    except ConfigError as error:
        output.report_error(error)
        # Exit code 1 says that the scenario was played; this one was not.
        unreadable = error.code == _UNREADABLE
        return output.ExitCode.UNREACHABLE if unreadable else output.ExitCode.USAGE
    made = output.document("SimulationReport", report.fields())
    output.emit(args.output, made, lambda: _text(report))
    return output.ExitCode.OK if report.ok else output.ExitCode.FINDINGS


def _text(report: SimulationReport) -> str:
    lines = [f"Scenario {report.name} on a simulated {report.runtime}"]
    if report.description:
        lines.append(output.paragraph(report.description, indent="  "))
    for step in report.steps:
        lines.append(f"\n{step.line:>4}  {output.printable(step.title)}")
        lines += _step(step)
    lines.append("")
    rows = [
        (
            each.key,
            each.phase,
            each.cpus,
            each.mems,
            each.ownership or "-",
            each.verdicts or "-",
            ",".join(sorted(_codes(each.known))) or "-",
        )
        for each in report.containers
    ]
    headers = ("CONTAINER", "STATE", "CPUS", "MEMS", "OWNER", "VERDICTS", "FINDINGS")
    lines.append(output.table(headers, rows) if rows else "No container at the end.")
    checks = [check for step in report.steps for check in step.checks]
    failed = sum(not check.ok for check in checks)
    lines.append(
        f"\n{failed} of {len(checks)} expectations not met."
        if failed
        else f"\n{len(checks)} expectations met."
    )
    return "\n".join(lines)


def _step(step: StepReport) -> list[str]:
    width = max((len(reply.event) for reply in step.replies), default=0)
    lines = []
    for reply in step.replies:
        lead = f"      {reply.plugin}  {reply.event:<{width}}  "
        lines.append(
            output.paragraph(f"{reply.text} ({reply.ms:.2f} ms)", indent=lead, hanging="        ")
        )
    said = [f"error: {step.error}"] if step.error else []
    said += [f"logged: {each}" for each in step.logged]
    said += [_check(check, step.error) for check in step.checks]
    lines += [output.paragraph(each, indent="      ", hanging="        ") for each in said]
    return lines


def _check(check: Check, error: str) -> str:
    found = "as above" if error and check.found == error else check.found
    if check.ok:
        return f"ok: {check.what} {found}"
    return f"NOT MET: {check.what}: expected {check.expected}, found {found}"


def _codes(known: object) -> set[str]:
    if not isinstance(known, dict):
        return set()
    return {
        each["code"]
        for part in ("links", "findings", "violations")
        for each in known.get(part, ())
        if each["code"]
    }
