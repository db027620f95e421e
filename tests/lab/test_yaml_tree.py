"""YAML with places: what is refused, and that documents cut out keep their line numbers."""

from __future__ import annotations

import pytest
import yaml

from nri_claim2core.lab.yaml_tree import parse
from nri_claim2core.model.errors import ConfigError

TEXT = b"""\
a:
  b: 010
  c: [1, 'two', yes, null]
d: {e: true,
    f: "95"}
"""


@pytest.fixture
def root():
    return parse(TEXT, "some.yaml")


def test_scalars_keep_the_text_that_was_written(root):
    a = root.as_mapping()["a"].as_mapping()
    assert a["b"].as_text() == "010"
    assert a["b"].as_int() == 10
    assert a["c"].as_texts() == ("1", "two", "yes", "")


def test_places_are_those_of_the_keys(root):
    top = root.as_mapping()
    assert [(item.path, item.line) for item in top["a"].as_mapping().values()] == [
        ("a.b", 2),
        ("a.c", 3),
    ]
    assert (top["a"].line, top["d"].line) == (1, 4)
    assert str(top["a"].error("odd")) == "some.yaml:1: a: odd"


def test_unknown_key_names_the_nearest(root):
    with pytest.raises(ConfigError, match=r"^some\.yaml:2: a\.b: .*did you mean bb\?"):
        root.as_mapping()["a"].as_mapping(("bb", "c"))


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda top: top["a"].as_text(), "some.yaml:1: a: expected a single value"),
        (lambda top: top["a"].as_list(), "some.yaml:1: a: expected a list, found a mapping"),
        (lambda top: top["a"].as_mapping()["b"].as_mapping(), "some.yaml:2: a.b: expected a map"),
        (lambda top: top["a"].as_mapping()["b"].as_bool(), "some.yaml:2: a.b: expected true or"),
        (lambda top: top["d"].as_mapping()["e"].as_int(), "some.yaml:4: d.e: expected a whole"),
        (lambda top: top["d"].as_mapping()["f"].one_of(["96"]), "some.yaml:5: d.f: '95' is not"),
    ],
)
def test_wrong_kind_is_refused_with_its_place(root, read, message):
    with pytest.raises(ConfigError) as caught:
        read(root.as_mapping())
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: 1\na: 2\n", "x:2: "),
        (b"a: &x 1\nb: *x\n", "x:1: "),
        (b"a: [1\n", "x:2: not valid YAML"),
        (b"\xff", "x:1: is not UTF-8"),
        (b"[" * 40, "x:1: "),
    ],
)
def test_form_that_is_refused(data, message):
    with pytest.raises(ConfigError) as caught:
        parse(data, "x")
    assert caught.value.message.startswith(message)


def test_document_means_the_same_and_keeps_its_lines(root):
    text = root.as_document()
    # `yes` is text here, as YAML 1.2 and the configuration have it; 010 is as it was written.
    assert yaml.safe_load(text) == {
        "a": {"b": 0o10, "c": [1, "two", "yes", None]},
        "d": {"e": True, "f": "95"},
    }
    again = parse(text.encode(), "y").as_mapping()
    assert again["d"].as_mapping()["f"].line == 5
    assert again["d"].line == 4
    cut_out = parse(root.as_mapping()["d"].as_document().encode(), "z").as_mapping()
    assert [(key, item.line) for key, item in cut_out.items()] == [("e", 4), ("f", 5)]


def test_empty_document_is_null():
    assert parse(b"# nothing\n", "x").is_null
    assert parse(b"", "x").as_mapping() == {}
