"""A set of maps made by bpftool, not frozen, so that a test can write rows by hand."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.bpfmap.need import need_bpftool

# Type, bytes of key and value, entries, flags: as bpf/maps.bpf.h has them.
_MAPS = {
    "c2c_cells": ("array", 4, 160, 512, 0),
    "c2c_cgroups": ("hash", 8, 72, 64, 1),
    "c2c_tasks": ("hash", 4, 96, 64, 1),
    "c2c_stats": ("percpu_array", 4, 5120, 1, 0),
    "c2c_control": ("array", 4, 64, 1, 0),
}


def bpftool(*words: str) -> Any:
    done = subprocess.run(
        [need_bpftool(), "-j", *words], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout) if done.stdout.strip() else None


def make_set(pins: str, abi: int) -> None:
    Path(pins).mkdir()
    for name, (kind, key, value, entries, flags) in _MAPS.items():
        words = ["type", kind, "key", str(key), "value", str(value), "entries", str(entries)]
        bpftool("map", "create", f"{pins}/{name}", *words, "name", name, "flags", str(flags))
    control = bytearray(64)
    control[48:52] = abi.to_bytes(4, "little")
    write(pins, "c2c_control", bytes(4), bytes(control))


def write(pins: str, name: str, key: bytes, value: bytes) -> None:
    where = ["map", "update", "pinned", f"{pins}/{name}"]
    bpftool(*where, "key", *map(str, key), "value", *map(str, value))


def dump(pins: str, name: str) -> list[dict[str, Any]]:
    """Rows with members by name, as bpftool decodes them by the map's BTF."""
    rows = bpftool("map", "dump", "pinned", f"{pins}/{name}")
    return [row["formatted"] for row in rows]
