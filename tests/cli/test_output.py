"""Tables and documents: width, wrapping, escaping, the three forms."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from nri_claim2core.cli import output


def test_a_table_is_aligned_without_trailing_blanks() -> None:
    assert output.table(["A", "LONG"], [["x", 1], ["yyy", ""]], width=80) == (
        "A    LONG\nx    1\nyyy"
    )


def test_a_wide_table_wraps_its_widest_column_into_80() -> None:
    words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    text = output.table(["NAME", "WORDS", "END"], [["n", words, "e"]], width=80)
    lines = text.splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(lines[1].split()[1:-1] + lines[2].split()) == words
    assert lines[1].endswith("  e")


def test_a_word_longer_than_its_column_is_broken() -> None:
    text = output.table(["ID"], [["x" * 200]], width=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.count("x") == 200


def test_text_from_outside_cannot_steer_the_terminal() -> None:
    text = output.table(["POD"], [["a\x1b[2J\nb\u202ec"]], width=80)
    assert text.splitlines() == ["POD", r"a\x1b[2J\nb\u202ec"]


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_documents_carry_version_and_kind(
    form: str, read: Callable[[str], object], capsys: pytest.CaptureFixture[str]
) -> None:
    output.emit(form, output.document("Thing", {"list": ["0-3"], "none": None}), lambda: "table")
    assert read(capsys.readouterr().out) == {
        "apiVersion": "claim2core.gthulhu.io/v1alpha1",
        "kind": "Thing",
        "list": ["0-3"],
        "none": None,
    }


def test_the_table_is_what_people_get(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit("table", output.document("Thing", {}), lambda: "the table")
    assert capsys.readouterr().out == "the table\n"


def test_a_paragraph_hangs_and_keeps_long_words() -> None:
    text = output.paragraph("/a/path/" + "x" * 100 + " and words " * 12, hanging="    ")
    first, *rest = text.splitlines()
    assert first.endswith("x")
    assert all(line.startswith("    ") and len(line) <= 80 for line in rest)
