"""`explain`: which claims a container holds, on what evidence, and what follows from them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nri_claim2core.cli import output
from nri_claim2core.cli.arguments import add_config_arguments, add_root_argument
from nri_claim2core.model.errors import HostError

if TYPE_CHECKING:
    from nri_claim2core.agent.explain import Explanation
    from nri_claim2core.model.claim import ClaimLink

DESCRIPTION: Final = (
    "Decide about one container as the plugin would, and print its links to claims, the verdict"
    " and every piece of evidence of each, and the envelope with its reason. Reads only. Exit"
    " code 1 when the container would be refused or a finding is of severity error."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--container",
        metavar="FILE",
        required=True,
        help='JSON {"pod": ..., "container": ..., "runtime": {"name", "version"}} in the form of'
        " the NRI messages; - is standard input",
    )
    add_config_arguments(parser)
    add_root_argument(parser)
    output.add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Explain."""
    from nri_claim2core.agent.config_source import ConfigSource  # noqa: PLC0415
    from nri_claim2core.agent.explain import explain, read_description  # noqa: PLC0415

    if not Path(args.root).is_dir():
        raise HostError(f"{args.root}: no such directory", path=args.root)
    description = read_description(_read(args.container))
    source = ConfigSource(
        Path(args.config) if args.config else None,
        overrides=args.overrides,
        root=Path(args.root),
    )
    explanation = explain(description, source.load().config, args.root)
    made = output.document("ContainerExplanation", explanation.fields())
    output.emit(args.output, made, lambda: _text(explanation))
    return output.ExitCode.FINDINGS if explanation.has_error else output.ExitCode.OK


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise HostError(f"{file}: {error.strerror}", path=file, errno=error.errno or 0) from error


def _text(explanation: Explanation) -> str:
    lines = _subject(explanation)
    for link in explanation.decision.links.links:
        lines += ["", *_link(link)]
    if not explanation.decision.links.links:
        lines += ["", "No sign of a claim."]
    lines += ["", *_envelope(explanation)]
    if explanation.decision.refusal:
        lines.append(output.paragraph(f"REFUSED: {explanation.decision.refusal}", hanging="  "))
    for finding in (*explanation.findings, *explanation.violations):
        text = f"{finding.severity} {finding.code}: {finding.message}"
        hint = f" - {finding.hint}" if finding.hint else ""
        lines.append(output.paragraph(text + hint, hanging="  "))
    lines += [
        output.paragraph(f"note: {note}", hanging="  ") for note in explanation.description.notes
    ]
    return "\n".join(lines)


def _subject(explanation: Explanation) -> list[str]:
    description = explanation.description
    pod, container = description.pod, description.container
    runtime = f"{description.runtime_name} {description.runtime_version}".strip() or "unknown"
    name = output.printable(container.name or container.id or "?")
    owner = output.printable(f"{pod.namespace or '?'}/{pod.name or '?'}")
    moment = "its creation" if explanation.at_creation else "a restart of the plugin"
    reports = "reports" if description.cdi_reported else "does not report"
    return [
        f"Container {name} of pod {owner}",
        f"  pod UID   {output.printable(pod.uid) or '-'}",
        f"  runtime   {output.printable(runtime)}, {reports} CDI devices",
        f"  decided   as at {moment}, mode {explanation.mode}",
    ]


def _link(link: ClaimLink) -> list[str]:
    from nri_claim2core.claims.codes_table import CODES  # noqa: PLC0415 - only when needed

    cpus = f"CPUs {link.cpus}" if link.cpus else "no CPUs"
    lines = [f"Claim {link.claim_uid}: {link.verdict.value}, {cpus}"]
    if link.reason:
        lines.append(output.paragraph(link.reason, indent="  "))
    if link.code:
        code = CODES[link.code]
        text = f"{code.severity} {link.code}: {code.hint}"
        lines.append(output.paragraph(text, indent="  ", hanging="    "))
    for evidence in link.evidence:
        lines.append(f"  {evidence.source.value}: {evidence.answer.value}")
        if evidence.detail:
            lines.append(output.paragraph(evidence.detail, indent="      "))
    return lines


def _envelope(explanation: Explanation) -> list[str]:
    envelope = explanation.decision.envelope
    cpus = str(envelope.cpus) or "not confined"
    lines = [
        f"Envelope: CPUs {cpus}, memory nodes {str(envelope.mems) or 'left as they are'}",
        f"  cpuset is {_OWNERS[envelope.ownership.value]}",
    ]
    if envelope.shares is not None:
        lines.append(f"  CPU shares {envelope.shares}")
    lines.append(output.paragraph(f"because {envelope.reason}", indent="  "))
    observed = explanation.observed
    if observed is not None:
        lines.append(f"In force: CPUs {observed.cpus}, memory nodes {observed.mems}")
    return lines


_OWNERS: Final = {
    "own": "written by this plugin",
    "foreign": "written by somebody else, checked only",
    "none": "left alone",
}
