"""YAML of a CDI spec as plain dicts, lists and texts, within fixed bounds.

Built from the parser's event stream and not by a loader: a loader descends once per level and
copies aliases and merge keys, so that a few hundred bytes of nesting or of aliases can take the
process's stack or memory. Here depth is counted, an alias or a second document is refused, and
a key that stands twice - of which runtimes and we might believe different ones - is refused too.
Every scalar stays text (a plain null is None): of a CDI spec we use only texts.

PyYAML is imported when the first YAML file is met; nodes whose drivers write JSON never load it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from nri_claim2core.model.errors import Claim2CoreError

MAX_DEPTH: Final = 32
"""A CDI spec is 6 levels deep."""

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


class SpecTextError(Claim2CoreError):
    """A spec file's text that breaks the rules of its notation, or of CDI."""

    code = "C2C-HOST-02"


def parse_yaml(text: str) -> object:
    """Read one document into dicts, lists, texts and None.

    Raises: SpecTextError with the line. Blocking: never, apart from the first import.
    """
    import yaml  # noqa: PLC0415 - see module text

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder().build(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or str(error)
        raise SpecTextError(f"is not YAML: {what}{where}") from error


class _Builder:
    """One pass over the events with a stack of open collections."""

    def __init__(self) -> None:
        self._open: list[dict[str, object] | list[object]] = []
        self._keys: list[str | None] = []
        self._root: object = None
        self._has_root = False

    def build(self, events: Iterator[Any]) -> object:
        for event in events:
            # By name: the event classes live in the module that is imported late.
            kind = type(event).__name__
            if kind == "ScalarEvent":
                plain_null = event.implicit[0] and event.value in _NULLS
                self._add(None if plain_null else event.value, event)
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                self._start({} if kind == "MappingStartEvent" else [], event)
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                self._open.pop()
                self._keys.pop()
            elif kind == "AliasEvent":
                raise _refusal("has an alias; CDI specs are read without", event)
        return self._root

    def _start(self, made: dict[str, object] | list[object], event: Any) -> None:  # noqa: ANN401
        if len(self._open) == MAX_DEPTH:
            raise _refusal(f"is nested deeper than {MAX_DEPTH} levels", event)
        self._add(made, event)
        self._open.append(made)
        self._keys.append(None)

    def _add(self, value: object, event: Any) -> None:  # noqa: ANN401
        if not self._open:
            if self._has_root:
                raise _refusal("has a second document", event)
            self._root, self._has_root = value, True
            return
        top = self._open[-1]
        if isinstance(top, list):
            top.append(value)
            return
        key = self._keys[-1]
        if key is not None:
            top[key] = value
            self._keys[-1] = None
        elif not isinstance(value, str):
            raise _refusal("has a key that is not a text", event)
        elif value in top:
            raise _refusal(f"has the key {value[:60]!r} twice", event)
        else:
            self._keys[-1] = value


def _refusal(what: str, event: Any) -> SpecTextError:  # noqa: ANN401
    return SpecTextError(f"{what} (line {event.start_mark.line + 1})")
