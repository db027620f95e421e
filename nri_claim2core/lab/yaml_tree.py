"""YAML values that know their file, line and field path, and refuse what nobody asked for.

Scenarios are typed by hand: a key twice, an alias, a key that nobody takes, text where a list
belongs - each is refused with `file:line` and, for a name, with the nearest one that exists.
The YAML taken is that of the configuration. Scalars stay the text that was written (`0-3`,
`010`), so no YAML rule about numbers comes between the author and the parser of the field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from nri_claim2core.agent import config_yaml as tree
from nri_claim2core.agent.config_load import nearest
from nri_claim2core.model.errors import ConfigError

_CODE = "C2C-LAB-10"
_BOOL = {"true": True, "false": False}
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Item:
    """One value of a document with its place; `node` is None for what is empty or absent."""

    node: tree.Node | None
    source: str
    line: int
    """Line of the key for a value that has one: messages point at what was typed."""
    path: str

    def error(self, message: str, *, hint: str = "") -> ConfigError:
        """Make the error that names this place."""
        field = f" {self.path}:" if self.path else ""
        return ConfigError(f"{self.source}:{self.line}:{field} {message}", hint=hint, code=_CODE)

    @property
    def is_null(self) -> bool:
        """Tell whether nothing was written."""
        return self.node is None or (isinstance(self.node, tree.Scalar) and self.node.is_null)

    def as_text(self) -> str:
        """Give the text of a scalar; null is the empty text. Raises ConfigError."""
        if self.node is None or self.is_null:
            return ""
        if not isinstance(self.node, tree.Scalar):
            raise self.error(f"expected a single value, found {self._kind()}")
        return self.node.text

    def as_bool(self) -> bool:
        """Give the truth value of a scalar. Raises ConfigError."""
        found = _BOOL.get(self.as_text().lower())
        if found is None:
            raise self.error(f"expected true or false, found {self.as_text()!r}")
        return found

    def as_int(self) -> int:
        """Give the number that a scalar of ASCII digits is. Raises ConfigError."""
        text = self.as_text()
        if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
            raise self.error(f"expected a whole number, found {text!r}")
        return int(text)

    def as_list(self) -> list[Item]:
        """Give the elements of a list; null is the empty one. Raises ConfigError."""
        if self.is_null:
            return []
        if not isinstance(self.node, tree.Sequence):
            raise self.error(f"expected a list, found {self._kind()}")
        return [
            Item(node, self.source, node.line, f"{self.path}[{index}]")
            for index, node in enumerate(self.node.items)
        ]

    def as_texts(self) -> tuple[str, ...]:
        """Give the elements of a list of scalars. Raises ConfigError."""
        return tuple(element.as_text() for element in self.as_list())

    def as_mapping(self, keys: Iterable[str] | None = None) -> dict[str, Item]:
        """Give the entries of a mapping; null is the empty one.

        With `keys`, any other key is refused with the nearest of them. Raises ConfigError.
        """
        if self.is_null:
            return {}
        if not isinstance(self.node, tree.Mapping):
            raise self.error(f"expected a mapping, found {self._kind()}")
        known = None if keys is None else list(keys)
        entries = {}
        for key, node in self.node.entries.items():
            path = f"{self.path}.{key}" if self.path else key
            entries[key] = Item(node, self.source, self.node.key_lines[key], path)
            if known is not None and key not in known:
                raise entries[key].error("is not known here", hint=nearest(key, known))
        return entries

    def one_of(self, choices: Iterable[str]) -> str:
        """Give a scalar that is one of `choices`. Raises ConfigError."""
        text, known = self.as_text(), list(choices)
        if text not in known:
            raise self.error(f"{text!r} is not known here", hint=nearest(text, known))
        return text

    def as_document(self) -> str:
        """Give this value as YAML of its own in which every value keeps its line number."""
        return _Printer().print(self.node)

    def _kind(self) -> str:
        if isinstance(self.node, tree.Mapping):
            return "a mapping"
        return "a list" if isinstance(self.node, tree.Sequence) else f"{self.as_text()!r}"


def parse(data: bytes, source: str) -> Item:
    """Read one YAML document; `source` is the file name used in messages.

    Raises: ConfigError that names every place where the form is wrong.
    """
    node, problems = tree.parse_yaml(data, source)
    if problems:
        raise ConfigError("\n".join(map(str, problems)), code=_CODE)
    return Item(node, source, 1, "")


class _Printer:
    """Writes flow style, with line breaks wherever the next value stands on a later line."""

    def __init__(self) -> None:
        self._line = 1
        self._parts: list[str] = []

    def print(self, node: tree.Node | None) -> str:
        if node is not None:
            self._value(node)
        return "".join(self._parts)

    def _value(self, node: tree.Node) -> None:
        self._advance(node.line)
        if isinstance(node, tree.Mapping):
            self._parts.append("{")
            for key, value in node.entries.items():
                self._advance(node.key_lines[key])
                self._parts.append(f"{json.dumps(key)}: ")
                self._value(value)
                self._parts.append(", ")
            self._parts.append("}")
        elif isinstance(node, tree.Sequence):
            self._parts.append("[")
            for value in node.items:
                self._value(value)
                self._parts.append(", ")
            self._parts.append("]")
        else:
            # What is not text by YAML's rules stays as written; all else is quoted.
            bare = node.is_number or (node.is_plain and not isinstance(node.value, str))
            self._parts.append(node.text if bare else json.dumps(node.text))

    def _advance(self, line: int) -> None:
        self._parts.append("\n" * (line - self._line))
        self._line = max(self._line, line)
