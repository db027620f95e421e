"""What `config check`, `config show` and `config schema` do: read layers, report, print."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
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

_DEFAULT_ORIGIN: Final = "default"


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


def _schema(args: argparse.Namespace) -> int:
    made = json_schema()
    output.emit(args.output, made, lambda: json.dumps(made, indent=2))
    return output.ExitCode.OK


ACTIONS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "check": _check,
    "show": _show,
    "schema": _schema,
}
"""Action name to what does it; each returns an exit code."""
