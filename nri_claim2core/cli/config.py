"""`config`: check files before they are dropped onto nodes, show what is in force and why."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from nri_claim2core.agent.config_problem import ConfigProblems, Problem, Rule
from nri_claim2core.agent.config_schema import (
    OPTIONS,
    config_document,
    json_schema,
    to_builtins,
)
from nri_claim2core.agent.config_source import ConfigSource, Loaded, read_file
from nri_claim2core.cli import output
from nri_claim2core.model.errors import HostError

DESCRIPTION: Final = (
    "Check configuration files, show the configuration that is in force, or print its schema."
)

_DEFAULT_ORIGIN: Final = "default"


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
    if args.action == "schema":
        made = json_schema()
        output.emit(args.output, made, lambda: json.dumps(made, indent=2))
        return output.ExitCode.OK
    return _check(args) if args.action == "check" else _show(args)


def _add_source_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="configuration file (default /etc/claim2core/claim2core.yaml); conf.d/*.yaml"
        " beside it is read too",
    )
    parser.add_argument(
        "--runtime-config",
        metavar="FILE",
        help="file whose text the runtime would deliver (such as"
        " /etc/nri/conf.d/95-claim2core.conf)",
    )
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="as on the plugin's command line; may be repeated",
    )
    output.add_root_argument(parser)
    output.add_output_argument(parser)


def _check(args: argparse.Namespace) -> int:
    problems: list[Problem] = []
    notes: Sequence[Problem] = ()
    files: Sequence[str] = args.files
    if files:
        for file in files:
            problems += read_file(Path(file))[1]
    else:
        try:
            loaded = _load(args)
        except ConfigProblems as error:
            problems += error.problems
            files = list(dict.fromkeys(p.place.file for p in problems))
        else:
            notes, files = loaded.notes, loaded.files
    made = output.document(
        "ConfigCheck",
        {
            "files": list(files),
            "problems": [_problem_document(problem) for problem in problems],
            "notes": [_problem_document(note) for note in notes],
        },
    )
    output.emit(args.output, made, lambda: _check_text(files, problems, notes))
    if not problems:
        return output.ExitCode.OK
    if all(problem.rule is Rule.UNREADABLE for problem in problems):
        return output.ExitCode.UNREACHABLE
    return output.ExitCode.FINDINGS


def _show(args: argparse.Namespace) -> int:
    loaded = _load(args)
    origins = {
        path: str(loaded.settings[path].place) if path in loaded.settings else _DEFAULT_ORIGIN
        for path in OPTIONS
    }
    fields: dict[str, Any] = {
        "config": config_document(loaded.config),
        "files": list(loaded.files),
        "notes": [_problem_document(note) for note in loaded.notes],
    }
    if args.origin:
        fields["origins"] = origins
    made = output.document("EffectiveConfig", fields)
    output.emit(args.output, made, lambda: _show_text(loaded, origins if args.origin else {}))
    return output.ExitCode.OK


def _load(args: argparse.Namespace) -> Loaded:
    source = ConfigSource(
        Path(args.config) if args.config else None,
        overrides=args.overrides,
        root=Path(args.root),
    )
    loaded = source.load()
    if args.runtime_config:
        outcome = source.take_runtime_text(_read_text(args.runtime_config))
        if outcome.problems:
            raise ConfigProblems(outcome.problems)
        loaded = outcome.loaded
    return loaded


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise HostError(
            f"{path}: cannot be read: {error.strerror}", path=path, errno=error.errno or 0
        ) from error
    except UnicodeDecodeError as error:
        raise HostError(f"{path}: is not UTF-8 text", path=path) from error


def _problem_document(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.rule.value,
        "file": problem.place.file,
        "line": problem.place.line or None,
        "message": problem.message,
        "hint": problem.hint,
    }


def _problem_text(problem: Problem) -> str:
    lines = [output.paragraph(f"{problem.place}: {problem.message}", hanging="    ")]
    if problem.hint:
        lines.append(output.paragraph(f"hint: {problem.hint}", indent="    ", hanging="      "))
    return "\n".join(lines)


def _check_text(files: Sequence[str], problems: Sequence[Problem], notes: Sequence[Problem]) -> str:
    lines = [_problem_text(problem) for problem in problems]
    lines += [f"note: {_problem_text(note)}" for note in notes]
    if problems:
        lines.append(f"{_count(len(problems), 'problem')}. Correct, then run this check again.")
    elif files:
        lines.append(f"{_count(len(files), 'file')} checked, no problems.")
    else:
        lines.append(
            "No configuration file here, the defaults hold.\n"
            "next: `nri-claim2core config show` prints them."
        )
    return "\n".join(lines)


def _show_text(loaded: Loaded, origins: dict[str, str]) -> str:
    rows = []
    for path, option in OPTIONS.items():
        value = to_builtins(option.value_of(loaded.config))
        if isinstance(value, list):
            value = ", ".join(value)
        shown = str(value).lower() if isinstance(value, bool) else value or '""'
        rows.append([path, shown, *([origins[path]] if origins else [])])
    headers = ["OPTION", "VALUE", *(["ORIGIN"] if origins else [])]
    lines = [output.table(headers, rows)]
    lines += [f"note: {_problem_text(note)}" for note in loaded.notes]
    if not origins:
        lines.append("\nnext: --origin says where each value is set.")
    return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
