"""Foreign text in messages: cut first, then escaped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nri_claim2core.claims.text import SHOWN_CHARACTERS, shown, shown_rule


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", "''"),
        ("0-3", "'0-3'"),
        ("a\x00b", r"'a\x00b'"),
        ("\u0661", r"'\u0661'"),
        ("\udcff", r"'\udcff'"),
        ("\x1b[31m", r"'\x1b[31m'"),
        ("x" * 60, "'" + "x" * 60 + "'"),
        ("x" * 61, "'" + "x" * 60 + "'..."),
    ],
    ids=ascii,
)
def test_shown(text, result):
    assert shown(text) == result


@given(st.text(max_size=200))
def test_shown_is_one_short_printable_ascii_line(text):
    line = shown(text)
    assert line.isascii()
    assert line.isprintable()
    assert len(line) <= 10 * SHOWN_CHARACTERS + 5


def test_a_rule_is_cut_at_twice_the_length():
    assert shown_rule("x" * 120) == "x" * 120
    assert shown_rule("x" * 121) == "x" * 120 + "..."
