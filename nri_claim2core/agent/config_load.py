"""From one document to settings: each option that it names, typed, with its place.

Every document is checked by itself and completely - also values that a later file overrides -
and all problems are collected. Layers then merge by updating one flat table with the next:
mappings merge deeply, lists are replaced, because an option is a leaf.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nri_claim2core.agent import config_yaml as tree
from nri_claim2core.agent.config_problem import Place, Problem, Rule
from nri_claim2core.agent.config_schema import OPTIONS, SECTIONS, Option, convert

RUNTIME_FILE: Final = "text from the runtime"
"""Stands for a file name where the text came in the runtime's Configure request."""

COMMAND_LINE: Final = "command line"

_SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class Setting:
    """One option as one document sets it."""

    value: object
    place: Place


Settings = dict[str, Setting]
"""Option path to setting."""


def read_settings(data: bytes, file: str) -> tuple[Settings, list[Problem]]:
    """Give what a YAML document sets, and everything that is wrong with it."""
    node, problems = tree.parse_yaml(data, file)
    reader = _Reader(file, problems)
    if node is not None:
        reader.section("", node)
    problems.sort(key=lambda problem: problem.place.line)
    return reader.settings, problems


def read_runtime_text(text: str) -> tuple[Settings, list[Problem], list[Problem]]:
    """Give what the runtime's text sets, its problems, and what in it has no effect.

    The text arrives when the plugin is registered: its own identity cannot come from it.
    """
    settings, problems = read_settings(text.encode(), RUNTIME_FILE)
    late = {path: s for path, s in settings.items() if OPTIONS[path].is_late}
    notes = [
        Problem(
            Rule.NO_EFFECT,
            setting.place,
            f"{path} has no effect here: this text arrives after registration",
            "set it in the configuration file",
        )
        for path, setting in settings.items()
        if path not in late
    ]
    return late, problems, notes


def read_overrides(overrides: Iterable[str]) -> tuple[Settings, list[Problem]]:
    """Give what `path=value` texts of the command line set; lists are separated by commas."""
    settings: Settings = {}
    problems: list[Problem] = []
    place = Place(COMMAND_LINE)
    for override in overrides:
        path, equals, text = override.partition("=")
        option = OPTIONS.get(path)
        if not equals or option is None:
            hint = nearest(path, OPTIONS) if equals else "write it as option=value"
            what = f"{path}: unknown option" if equals else f"{override!r} is not option=value"
            problems.append(Problem(Rule.UNKNOWN_KEY, place, what, hint))
            continue
        try:
            settings[path] = Setting(_from_text(option, text), place)
        except ValueError:
            problems.append(_wrong(option, place, path, _show(text)))
    return settings, problems


def nearest(name: str, valid: Iterable[str]) -> str:
    """Give a hint naming the valid key nearest to `name`, or all keys if none is near."""
    valid = list(valid)
    by_folded = {_folded(key): key for key in valid}
    close = difflib.get_close_matches(_folded(name), by_folded, n=1)
    if close:
        return f"did you mean {by_folded[close[0]]}?"
    return f"valid here: {', '.join(valid)}"


class _Reader:
    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.settings: Settings = {}
        self._file = file
        self._problems = problems

    def section(self, path: str, node: tree.Node) -> None:
        if isinstance(node, tree.Scalar) and node.is_null:
            return
        keys = _keys_of(path)
        if not isinstance(node, tree.Mapping):
            where = path or "the document"
            self._add(
                Rule.WRONG_VALUE,
                node.line,
                f"{where}: expected a mapping, found {_show_node(node)}",
                f"keys: {', '.join(keys)}",
            )
            return
        for key, value in node.entries.items():
            below = f"{path}.{key}" if path else key
            if "." not in key and below in OPTIONS:
                self._option(OPTIONS[below], value)
            elif "." not in key and below in SECTIONS:
                self.section(below, value)
            else:
                self._add(
                    Rule.UNKNOWN_KEY,
                    node.key_lines[key],
                    f"{_show(below, quoted=False)}: unknown key",
                    _hint_for_key(key, keys),
                )

    def _option(self, option: Option, node: tree.Node) -> None:
        if option.is_list:
            self._list_option(option, node)
            return
        found = self._leaf(option, option.type, option.path, node)
        if found is not None:
            self.settings[option.path] = Setting(found, Place(self._file, node.line))

    def _list_option(self, option: Option, node: tree.Node) -> None:
        if not isinstance(node, tree.Sequence):
            self._add(
                Rule.WRONG_VALUE,
                node.line,
                f"{option.path}: expected a list, found {_show_node(node)}",
                "write each item on a line of its own, after `- `",
            )
            return
        items = [
            self._leaf(option, option.item_type, f"{option.path}[{index}]", item)
            for index, item in enumerate(node.items)
        ]
        if None in items:
            return
        try:
            value = convert_list(option, tuple(items))
        except ValueError as error:
            self._add(Rule.WRONG_VALUE, node.line, f"{option.path}: {error}")
            return
        self.settings[option.path] = Setting(value, Place(self._file, node.line))

    def _leaf(self, option: Option, kind: object, path: str, node: tree.Node) -> object | None:
        place = Place(self._file, node.line)
        if isinstance(node, tree.Scalar) and not node.is_null and not node.is_number:
            value = node.value
            if isinstance(value, str) and _has_control(value):
                self._problems.append(_wrong(option, place, path, "a control character"))
                return None
            try:
                return convert(kind, value)
            except ValueError:
                pass
        # A refused alias stands here as nothing; it has its own problem.
        if not any(p.rule is Rule.REFUSED_YAML and p.place == place for p in self._problems):
            self._problems.append(_wrong(option, place, path, _show_node(node)))
        return None

    def _add(self, rule: Rule, line: int, message: str, hint: str = "") -> None:
        self._problems.append(Problem(rule, Place(self._file, line), message, hint))


def convert_list(option: Option, items: tuple[object, ...]) -> tuple[object, ...]:
    """Check the length of a list whose items are already converted.

    Raises: ValueError with the rule in words.
    """
    fewest, most = option.list_bounds
    if len(items) < fewest:
        raise ValueError("the list is empty, at least one item is needed")
    if len(items) > most:
        raise ValueError(f"has {len(items)} items, {most} at most are taken")
    return items


def _from_text(option: Option, text: str) -> object:
    if _has_control(text):
        raise ValueError(text)
    if option.is_list:
        items = (convert(option.item_type, item) for item in text.split(",") if item)
        return convert_list(option, tuple(items))
    return convert(option.type, tree.Scalar(text, is_plain=True, line=0).value or text)


def _keys_of(path: str) -> list[str]:
    prefix = f"{path}." if path else ""
    below = [p.removeprefix(prefix) for p in (*OPTIONS, *SECTIONS) if p.startswith(prefix)]
    return [key for key in dict.fromkeys(k.split(".")[0] for k in below) if key]


def _hint_for_key(key: str, keys: list[str]) -> str:
    if key in OPTIONS:
        return "nest it: one mapping for each part of the name"
    here = nearest(key, keys)
    if here.startswith("did you mean"):
        return here
    for option in OPTIONS:
        # The right key under the wrong section.
        if option.rpartition(".")[2] == key:
            return f"did you mean {option}?"
    return here


def _wrong(option: Option, place: Place, path: str, found: str) -> Problem:
    hint = ""
    if found.startswith("the number "):
        hint = f"write it in quotes: {found.removeprefix('the number ')!r}".replace("'", '"')
    return Problem(
        Rule.WRONG_VALUE, place, f"{path}: expected {option.expects}, found {found}", hint
    )


def _show_node(node: tree.Node) -> str:
    if isinstance(node, tree.Mapping):
        return "a mapping"
    if isinstance(node, tree.Sequence):
        return "a list"
    if node.is_null:
        return "nothing"
    if node.is_number:
        return f"the number {node.text}"
    return str(node.value).lower() if isinstance(node.value, bool) else _show(node.text)


def _show(text: str, *, quoted: bool = True) -> str:
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return repr(cut) if quoted or _has_control(cut) else cut


def _has_control(text: str) -> bool:
    return any(unicodedata.category(character).startswith("C") for character in text)


def _folded(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "")


def merge(layers: Iterable[Mapping[str, Setting]]) -> Settings:
    """Give one table of settings; a later layer wins, option by option."""
    merged: Settings = {}
    for layer in layers:
        merged.update(layer)
    return merged
