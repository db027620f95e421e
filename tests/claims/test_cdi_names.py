"""CDI qualified names: the verdict table of the grammar, and the parser against a walk of it."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nri_claim2core.claims.cdi_names import CdiName, CdiNameError, parse_cdi_name

UID = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("v/c=1", ("v", "c", "1")),
        ("vendor.com/cl.ass=a:b", ("vendor.com", "cl.ass", "a:b")),
        ("V_1/c-d=0", ("V_1", "c-d", "0")),
        ("v/c=9.a_b-c:d", ("v", "c", "9.a_b-c:d")),
        (f"dra.k8s.io/cpu=claim-{UID}", ("dra.k8s.io", "cpu", f"claim-{UID}")),
        ("K8s.IO/Cpu=X", ("K8s.IO", "Cpu", "X")),
    ],
)
def test_valid_names_split_into_their_parts(text, parts):
    name = parse_cdi_name(text)
    assert (name.vendor, name.cls, name.name) == parts
    assert str(name) == text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("1v/c=x", "vendor"),
        ("v-/c=x", "vendor"),
        ("-v/c=x", "vendor"),
        ("v/1c=x", "class"),
        ("v/c-=x", "class"),
        ("v/c=-x", "device"),
        ("v/c=x-", "device"),
        ("v/c=x:", "device"),
        ("v/c/d=x", "class"),
        ("v/c=x=y", "device"),
        ("v/c=x y", "device"),
        (" v/c=x", "vendor"),
        ("v/c=\u00e9", "device"),
        ("v/c=x\n", "device"),
        ("v:w/c=x", "vendor"),
        ("v/c:d=x", "class"),
        ("v/c=x\x00", "device"),
        ("v/c=\u0661", "device"),
        ("v/c=x/y", "device"),
    ],
)
def test_an_invalid_part_is_named(text, part):
    with pytest.raises(CdiNameError, match=part) as caught:
        parse_cdi_name(text)
    assert caught.value.qualified
    assert caught.value.code == "C2C-CDI-01"


@pytest.mark.parametrize("text", ["v/c", "v/c=", "/c=x", "v/=x", "=x", "", "/dev/null", "c=x", "/"])
def test_what_is_not_of_the_form_is_unqualified(text):
    with pytest.raises(CdiNameError) as caught:
        parse_cdi_name(text)
    assert not caught.value.qualified


def test_a_long_name_costs_a_line():
    with pytest.raises(CdiNameError) as caught:
        parse_cdi_name("v/c=" + "\udcff" * 1_000_000)
    assert len(str(caught.value)) < 1500
    assert str(caught.value).encode()


LETTERS, ALNUM = set(string.ascii_letters), set(string.ascii_letters + string.digits)


def is_label(text, first, inner):
    """The grammar, read off character by character."""
    return (
        bool(text)
        and text[0] in first
        and text[-1] in ALNUM
        and all(c in ALNUM or c in inner for c in text)
    )


@given(st.text(alphabet="aZ0_-.:/= \u00e9", max_size=12))
def test_the_parser_is_the_grammar(text):
    kind, _, name = text.partition("=")
    vendor, _, cls = kind.partition("/")
    valid = (
        is_label(vendor, LETTERS, "_-.")
        and is_label(cls, LETTERS, "_-.")
        and is_label(name, ALNUM, "_-.:")
    )
    if valid:
        assert parse_cdi_name(text) == CdiName(vendor=vendor, cls=cls, name=name)
    else:
        with pytest.raises(CdiNameError):
            parse_cdi_name(text)


@given(st.text(max_size=80))
def test_no_text_does_worse_than_a_named_error(text):
    try:
        assert str(parse_cdi_name(text)) == text
    except CdiNameError as e:
        assert str(e).isprintable()  # noqa: PT017 - the value is arbitrary
