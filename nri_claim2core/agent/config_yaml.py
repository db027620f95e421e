"""From YAML text to a tree that knows its lines, with everything surprising refused.

Configuration is read by people who debug nodes at night, so the YAML taken here is small:
one document of mappings, lists and scalars. Tags, anchors, aliases and merge keys are refused
(aliases also because they expand), so are duplicate keys (YAML parsers keep the last one
silently), more than 256 KiB and deep nesting. Scalars mean what YAML 1.2 says: `yes` and `on`
are texts, not truth values.

The tree is built from parser events, not from PyYAML's own composer: nothing is expanded,
recursion is bounded, and all duplicate keys are found, not just the first. PyYAML itself is
imported with the first text that says anything: a node without files does not pay for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from nri_claim2core.agent.config_problem import Place, Problem, Rule

MAX_BYTES: Final = 256 * 1024
"""The commented sample is 5 KiB; a ConfigMap may hold 1 MiB in all."""

MAX_DEPTH: Final = 8
"""The schema is three levels deep."""

_NUMBER: Final = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    re.ASCII,
)
_TRUTH: Final = {"true": True, "True": True, "TRUE": True} | {
    "false": False,
    "False": False,
    "FALSE": False,
}
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar as written."""

    text: str
    is_plain: bool
    "Not in quotes, so it may mean something else than text."
    line: int

    @property
    def is_null(self) -> bool:
        """Tell whether nothing was written."""
        return self.is_plain and self.text in _NULL

    @property
    def is_number(self) -> bool:
        """Tell whether it is a number, not a text of digits."""
        return self.is_plain and _NUMBER.fullmatch(self.text) is not None

    @property
    def value(self) -> str | bool | None:
        """What it means; numbers are given as text, see `is_number`."""
        if self.is_null:
            return None
        return _TRUTH.get(self.text, self.text) if self.is_plain else self.text


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    line: int
    items: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping; keys are unique."""

    line: int
    entries: dict[str, Node] = field(default_factory=dict)
    key_lines: dict[str, int] = field(default_factory=dict)


Node = Scalar | Sequence | Mapping


class _Stop(Exception):
    # Not an error of ours: ends the building, its problem is noted already.
    pass


def parse_yaml(data: bytes, file: str) -> tuple[Node | None, list[Problem]]:
    """Give the tree of a file's content and everything that is wrong with its form.

    The tree is None for an empty document, and where the text cannot be parsed at all.
    """
    if len(data) > MAX_BYTES:
        message = f"larger than {MAX_BYTES // 1024} KiB"
        return None, [Problem(Rule.TOO_LARGE, Place(file), message, "is this the right file?")]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return None, [Problem(Rule.SYNTAX, Place(file, line), "is not UTF-8 text")]
    if all(not line or line.startswith("#") for line in map(str.strip, text.split("\n"))):
        return None, []
    import yaml  # noqa: PLC0415 - see module text

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(file, yaml)
    try:
        tree = builder.document(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        return None, [*builder.problems, _syntax_problem(error, file, text)]
    except _Stop:
        return None, builder.problems
    return tree, builder.problems


def _syntax_problem(error: Exception, file: str, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    position = getattr(error, "position", None)
    if mark is not None:
        line = mark.line + 1
    elif isinstance(position, int):
        line = text.count("\n", 0, position) + 1
    else:
        line = 0
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    hint = "indent with blanks" if "'\\t'" in what else ""
    return Problem(Rule.SYNTAX, Place(file, line), f"not valid YAML: {what}", hint)


class _Builder:
    def __init__(self, file: str, yaml: ModuleType) -> None:
        self._yaml = yaml
        self.problems: list[Problem] = []
        self._file = file

    def document(self, events: Iterator[Any]) -> Node | None:
        root: Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, self._yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._stop(event, "has more than one document (a second `---`)")
            elif isinstance(event, self._yaml.NodeEvent):
                root = self._node(event, events, 0)
        empty = isinstance(root, Scalar) and root.is_null
        return None if empty else root

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:  # noqa: ANN401
        if depth > MAX_DEPTH:
            self._stop(event, f"is nested more than {MAX_DEPTH} levels deep", Rule.TOO_LARGE)
        line = _line(event)
        if isinstance(event, self._yaml.AliasEvent):
            self._refuse(line, f"alias *{event.anchor}", "write the value out")
            return Scalar("", is_plain=True, line=line)
        if event.anchor is not None:
            self._refuse(line, f"anchor &{event.anchor}", "write the value out where it is used")
        if event.tag is not None:
            self._refuse(line, f"tag {event.tag}", "leave the tag out")
        if isinstance(event, self._yaml.ScalarEvent):
            return Scalar(event.value, is_plain=event.style in (None, ""), line=line)
        if isinstance(event, self._yaml.SequenceStartEvent):
            sequence = Sequence(line)
            for item in _until(events, self._yaml.SequenceEndEvent):
                sequence.items.append(self._node(item, events, depth + 1))
            return sequence
        mapping = Mapping(line)
        for key_event in _until(events, self._yaml.MappingEndEvent):
            key = self._node(key_event, events, depth + 1)
            value = self._node(next(events), events, depth + 1)
            self._enter(mapping, key, value)
        return mapping

    def _enter(self, mapping: Mapping, key: Node, value: Node) -> None:
        if not isinstance(key, Scalar):
            self._refuse(key.line, "a list or mapping as a key", "keys are option names")
        elif key.text in mapping.entries:
            first = mapping.key_lines[key.text]
            self.problems.append(
                Problem(
                    Rule.DUPLICATE_KEY,
                    Place(self._file, key.line),
                    f"key {key.text!r} is there twice, first on line {first}",
                    "keep one of them",
                )
            )
        else:
            mapping.entries[key.text] = value
            mapping.key_lines[key.text] = key.line

    def _refuse(self, line: int, what: str, hint: str) -> None:
        self.problems.append(
            Problem(Rule.REFUSED_YAML, Place(self._file, line), f"{what} is not taken here", hint)
        )

    def _stop(self, event: Any, message: str, rule: Rule = Rule.SYNTAX) -> None:  # noqa: ANN401
        self.problems.append(Problem(rule, Place(self._file, _line(event)), message))
        raise _Stop


def _until(events: Iterator[Any], end: type) -> Iterator[Any]:
    for event in events:
        if isinstance(event, end):
            return
        yield event


def _line(event: Any) -> int:  # noqa: ANN401
    return int(event.start_mark.line) + 1
