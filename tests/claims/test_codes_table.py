"""Codes: well-formed, explained, and exactly those that the package uses."""

import re
from pathlib import Path

import pytest

import nri_claim2core
from nri_claim2core.claims.codes_table import CODES, finding

SOURCES = [
    path.read_text()
    for path in Path(nri_claim2core.__file__).parent.rglob("*.py")
    # The table itself, and a docstring that gives an example.
    if path.name not in ("codes_table.py", "claim.py")
]
USED = {code for text in SOURCES for code in re.findall(r"C2C-(?:CLAIM|ENV)-[0-9]+", text)}


def test_every_code_in_the_table_is_used_and_every_used_code_is_in_it():
    assert set(CODES) == USED


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_code_says_what_it_means_and_what_to_do(code):
    assert re.fullmatch(r"C2C-(CLAIM|ENV)-[0-9]{2}", code)
    entry = CODES[code]
    assert entry.severity in ("error", "warning", "info")
    assert entry.summary
    assert entry.hint


def test_a_finding_takes_severity_and_hint_from_its_code():
    made = finding("C2C-ENV-10", "cpus 3")
    assert (made.code, made.severity, made.message) == ("C2C-ENV-10", "error", "cpus 3")
    assert made.hint == CODES["C2C-ENV-10"].hint
