"""One CDI spec file's text to the devices it defines.

Required is only what decisions need: cdiVersion, kind, the devices' names and the environment
edits. All other fields - mounts, hooks, annotations, fields of versions to come - are left
unread, so that a spec is never refused for something that is none of our business. What *is*
used is checked without mercy, because it stands for CPUs: a wrong type, a name twice, a text
that is not UTF-8 make the whole file unusable, never half of it.

Environment edits are listed in the order a runtime applies them: the spec's own, then the
device's. Pure: bytes in, values out.
"""

from __future__ import annotations

import collections
import json
import re
from typing import Final

from nri_claim2core.host.cdi_yaml import SpecTextError, parse_yaml
from nri_claim2core.model.evidence import CdiDevice

_VERSION: Final = re.compile(r"v?[01]\.[0-9]{1,4}\.[0-9]{1,4}", re.ASCII)
"""Versions whose `containerEdits.env` means what it does now: every one up to 1.x."""


def parse_spec(data: bytes, path: str) -> tuple[CdiDevice, ...]:
    """Read the devices of one spec file; `path` is recorded in them, its ending picks the notation.

    Raises: SpecTextError naming rule and field. Blocking: never.
    Source: CDI SPEC.md; the order of edits is the runtime library's.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecTextError(f"is not UTF-8 (byte {error.start})") from error
    if not text.strip():
        raise SpecTextError("is empty")
    spec = _parse_json(text) if path.endswith(".json") else parse_yaml(text)
    top = _mapping(spec, "the spec")
    version = _text(top, "cdiVersion", "the spec")
    if not _VERSION.fullmatch(version):
        raise SpecTextError(f"cdiVersion {version[:40]!r} is not one of 0.x.y or 1.x.y")
    kind = _text(top, "kind", "the spec")
    # The first `=` of a qualified name ends the kind; a second reading must not exist.
    if "=" in kind or "/" not in kind:
        raise SpecTextError(f"kind {kind[:60]!r} is not vendor/class")
    common = _env(top, "the spec")
    devices: dict[str, CdiDevice] = {}
    for index, item in enumerate(_list(top.get("devices"), "devices")):
        where = f"devices[{index}]"
        device = _mapping(item, where)
        name = _text(device, "name", where)
        if name in devices:
            raise SpecTextError(f"{where}: a second device named {name[:60]!r}")
        devices[name] = CdiDevice(
            qualified_name=f"{kind}={name}",
            path=path,
            env=common + _env(device, where),
            version=version.removeprefix("v"),
        )
    return tuple(devices.values())


def _parse_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates)
    except RecursionError:
        # The decoder's frames say nothing; the chain would be a thousand lines.
        raise SpecTextError("is nested too deeply") from None
    except ValueError as error:
        raise SpecTextError(f"is not JSON: {error}") from error


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        counts = collections.Counter(key for key, _ in pairs)
        twice = counts.most_common(1)[0][0]
        raise SpecTextError(f"has the key {twice[:60]!r} twice")
    return made


def _mapping(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise SpecTextError(f"{where} is not a mapping")
    return value


def _list(value: object, where: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise SpecTextError(f"{where} is not a list")
    return value


def _text(mapping: dict[str, object], key: str, where: str) -> str:
    value = mapping.get(key)
    if not isinstance(value, str) or not value:
        raise SpecTextError(f"{where} has no text in {key!r}")
    return _whole(value, where)


def _whole(value: str, where: str) -> str:
    # JSON can spell half a character; such a text can be neither compared nor printed.
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise SpecTextError(f"{where} has a text with half a surrogate pair")
    return value


def _env(mapping: dict[str, object], where: str) -> tuple[str, ...]:
    edits = mapping.get("containerEdits")
    if edits is None:
        return ()
    field = f"{where}: containerEdits.env"
    entries = _list(_mapping(edits, f"{where}: containerEdits").get("env"), field)
    made: list[str] = []
    for entry in entries:
        if not isinstance(entry, str):
            raise SpecTextError(f"{field} has an entry that is not a text")
        made.append(_whole(entry, field))
    return tuple(made)
