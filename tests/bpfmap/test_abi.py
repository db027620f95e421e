"""The mirror against its originals: BTF as the compiler made it, and the header as C reads it."""

from __future__ import annotations

import json
import struct
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from nri_claim2core.bpfmap import abi
from tests.bpfmap.need import need_bpftool, need_compiler, need_object

BPF = Path(__file__).parents[2] / "bpf"

LAYOUTS = (
    abi.CONTROL,
    abi.CELL,
    abi.POLICY,
    abi.CGROUP,
    abi.TASK,
    abi.STATS,
    abi.MUTATION,
    abi.VIEW,
)

ENUMS = {
    "C2C_CLASS": abi.ExecClass,
    "C2C_CELL": abi.CellState,
    "C2C_VERDICT": abi.Verdict,
    "C2C_SOURCE": abi.Source,
    "C2C_OP": abi.Op,
    "C2C_REQUEST": abi.RequestOp,
    "C2C_RESULT": abi.Result,
    "C2C_COUNTER": abi.Counter,
}

NUMBERS = {
    "C2C_ABI": abi.ABI,
    "C2C_MAX_CPUS": abi.MAX_CPUS,
    "C2C_MASK_WORDS": abi.MASK_WORDS,
    "C2C_MAX_REQUESTS": abi.MAX_REQUESTS,
    "C2C_MAX_WEIGHT": abi.MAX_WEIGHT,
    "C2C_MAX_CLASSES": abi.MAX_CLASSES,
    "C2C_NR_COUNTERS": abi.NR_COUNTERS,
    "C2C_HIST_SLOTS": abi.HIST_SLOTS,
    "C2C_CONTROL_SUSPENDED": abi.ControlFlag.SUSPENDED,
}


class Btf:
    """Types of an object as bpftool prints them."""

    def __init__(self, path: str) -> None:
        words = [need_bpftool(), "-j", "btf", "dump", "file", path, "format", "raw"]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        types = json.loads(done.stdout)["types"]
        self.by_id = {each["id"]: each for each in types}
        self.structs = {each["name"]: each for each in types if each["kind"] == "STRUCT"}

    def bare(self, number: int) -> dict:
        found = self.by_id[number]
        while found["kind"] in ("TYPEDEF", "CONST", "VOLATILE"):
            found = self.by_id[found["type_id"]]
        return found

    def leaves(self, struct_type: dict, base: int = 0) -> list[tuple[str, int, int, bool]]:
        """(name, offset, bytes, signed) of each integer or array of them, in order."""
        found = []
        for member in struct_type["members"]:
            offset = base + member["bits_offset"] // 8
            kind, count = self.bare(member["type_id"]), 1
            while kind["kind"] == "ARRAY":
                count *= kind["nr_elems"]
                kind = self.bare(kind["type_id"])
            if kind["kind"] == "STRUCT":
                found += self.leaves(kind, offset)
            elif kind["kind"] == "INT":
                signed = kind["encoding"] == "SIGNED"
                found.append((member["name"], offset, count * kind["size"], signed))
        return found


def mirrored(layout: abi.Layout, base: int = 0) -> list[tuple[str, int, int, bool]]:
    return [
        (name, base + layout.offset(name), struct.calcsize("=" + code), code[-1].islower())
        for name, code in layout.members
    ]


@pytest.fixture(scope="module")
def btf():
    return Btf(need_object())


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_layout_is_the_compilers(btf, layout):
    compiled = btf.structs[layout.name]
    assert mirrored(layout) == btf.leaves(compiled)
    assert layout.size == compiled["size"]


def test_request_is_the_compilers(btf):
    compiled = btf.structs["c2c_request"]
    union = btf.bare(compiled["members"][0]["type_id"])
    bodies = {
        member["name"]: btf.bare(member["type_id"])["name"]
        for member in union["members"]
        if member["bits_offset"] == 0
    }
    assert bodies == {"cell": "c2c_cell", "cgroup": "c2c_cgroup", "task": "c2c_task"}
    # The union itself has no integers of its own.
    assert mirrored(abi.REQUEST_TAIL, abi.CELL.size) == btf.leaves(compiled)
    assert compiled["size"] == abi.REQUEST_SIZE


def test_maps_are_the_compilers(btf):
    maps = {
        each["name"]: btf.bare(each["type_id"])
        for each in btf.by_id.values()
        if each["kind"] == "VAR"
    }
    found = {}
    for name, kind in maps.items():
        described = {}
        for member in kind.get("members", ()):
            pointed = btf.bare(btf.bare(member["type_id"])["type_id"])
            described[member["name"]] = pointed.get("nr_elems", pointed.get("size"))
        found[name] = (described.get("type"), described.get("key"), described.get("value"))
    for spec in abi.MAPS:
        assert found[spec.name] == (spec.type, spec.key_size, spec.value_size)
    assert set(found) - {spec.name for spec in abi.MAPS} == {"c2c_requests", "LICENSE"}


def test_numbers_are_the_headers(tmp_path):
    # The header as a C program in user space reads it: it also has to compile there.
    names = dict(NUMBERS)
    for prefix, members in ENUMS.items():
        names |= {f"{prefix}_{member.name}": member.value for member in members}
    source = tmp_path / "numbers.c"
    lines = "".join(f'printf("{name} %lld\\n", (long long){name});\n' for name in names)
    source.write_text(
        f'#include <stdio.h>\n#include "claim2core.h"\nint main(void) {{\n{lines}return 0; }}\n'
    )
    program = tmp_path / "numbers"
    words = [need_compiler(), "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{BPF}"]
    subprocess.run([*words, str(source), "-o", str(program)], check=True)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    assert {line.split()[0]: int(line.split()[1]) for line in printed.splitlines()} == names


@pytest.mark.parametrize("prefix", ENUMS)
def test_no_enumerator_is_missing(prefix):
    # Enumerators of the header by text: one that the mirror lacks would go unnoticed above.
    words = (BPF / "claim2core.h").read_text().replace("\t", " ").split()
    written = {
        word.rstrip(",")
        for word, following in pairwise(words)
        if word.startswith(f"{prefix}_") and following == "="
    }
    assert written == {f"{prefix}_{member.name}" for member in ENUMS[prefix]}
