"""Rows written by hand, around the mutation program. Only a set that is not frozen takes them."""

from __future__ import annotations

import struct

from nri_claim2core.bpfmap import abi, syscall
from nri_claim2core.bpfmap.pins import Maps

LAYOUTS = {
    "c2c_control": abi.CONTROL,
    "c2c_cells": abi.CELL,
    "c2c_cgroups": abi.CGROUP,
    "c2c_tasks": abi.TASK,
}


def read_raw(maps: Maps, name: str, key: bytes) -> bytes | None:
    return syscall.map_lookup(maps.fds[name], key, maps.infos[name].value_size)


def write_raw(maps: Maps, name: str, key: bytes, value: bytes) -> None:
    assert syscall.map_update(maps.fds[name], key, value) == 0


def plant(maps: Maps, name: str, key: bytes, **members: int) -> None:
    """Change members of a row in place, leaving its seal as it was."""
    value = bytearray(read_raw(maps, name, key) or bytes(maps.infos[name].value_size))
    layout = LAYOUTS[name]
    for member, number in members.items():
        code = dict(layout.members)[member]
        struct.pack_into(f"={code}", value, layout.offset(member), number)
    write_raw(maps, name, key, bytes(value))
