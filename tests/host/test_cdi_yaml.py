"""YAML within bounds: same values as a full loader, and bombs that cost nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nri_claim2core.host.cdi_yaml import MAX_DEPTH, SpecTextError, parse_yaml

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)
DOCUMENTS = st.recursive(
    st.none() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(DOCUMENTS)
@settings(max_examples=150, deadline=None)
def test_reads_back_what_pyyaml_wrote(document):
    assert parse_yaml(yaml.safe_dump(document, allow_unicode=True)) == document


def test_scalars_stay_text_and_only_plain_nulls_are_none():
    text = "{a: 1, b: yes, c: null, d: 'null', e: ~, f: , g: '', h: 0x10, 7: x}"
    assert parse_yaml(text) == {
        "a": "1",
        "b": "yes",
        "c": None,
        "d": "null",
        "e": None,
        "f": None,
        "g": "",
        "h": "0x10",
        "7": "x",
    }


def test_no_document_is_none():
    assert parse_yaml("# nothing\n") is None


def nested(depth):
    return "[" * depth + "]" * depth


def test_depth_is_bounded():
    assert parse_yaml(nested(MAX_DEPTH)) is not None
    with pytest.raises(SpecTextError, match="nested deeper"):
        parse_yaml(nested(MAX_DEPTH + 1))


def test_a_megabyte_of_nesting_is_refused_like_any_other():
    with pytest.raises(SpecTextError, match="nest"):
        parse_yaml("[" * 1_000_000)


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: v}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join(['*' + before] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (LAUGHS, "alias"),
        (MERGES, "alias"),
        ("a: &a [*a]", "alias"),
        ("a: 1\na: 2\n", "'a' twice .line 2."),
        ("[a]: 1", "key that is not a text"),
        ("{}: 1", "key that is not a text"),
        ("a: 1\n---\nb: 1\n", "second document"),
        ("a: [1\n", "not YAML.*line"),
        ("a: b: c", "not YAML"),
        ("a: \x01", "not YAML"),
        ("%YAML 9.9\n---\na", "not YAML"),
    ],
)
def test_refused(text, rule):
    with pytest.raises(SpecTextError, match=rule):
        parse_yaml(text)


def test_yaml_is_loaded_only_when_needed():
    code = "import sys, nri_claim2core.host.evidence; print('yaml' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "False"
