"""Every kind of mistake in a file: found, all at once, with its exact line and a way out."""

from __future__ import annotations

from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nri_claim2core.agent.config import UnverifiedEffect
from nri_claim2core.agent.config_load import (
    nearest,
    read_overrides,
    read_runtime_text,
    read_settings,
)
from nri_claim2core.agent.config_problem import Rule
from nri_claim2core.agent.config_values import Duration, HandlerDeadline, ListenAddress
from nri_claim2core.agent.config_yaml import MAX_BYTES


def problems_of(text: str | bytes) -> list[str]:
    data = dedent(text).encode() if isinstance(text, str) else text
    return [str(problem) for problem in read_settings(data, "c.yaml")[1]]


def test_all_mistakes_of_a_file_are_reported_at_once_by_line() -> None:
    text = """\
        # comment
        plugin:
          indx: "10"
          index: 95
          socketPath: nri.sock
        claims:
          onForged: enforce
        mode: auto
        mode: verify
        reservedNamespaces: kube-system
        """
    assert problems_of(text) == [
        "c.yaml:3: plugin.indx: unknown key - did you mean index?",
        (
            'c.yaml:4: plugin.index: expected two digits in quotes, "00" to "99", found the'
            ' number 95 - write it in quotes: "95"'
        ),
        (
            "c.yaml:5: plugin.socketPath: expected an absolute path of at most 107 characters,"
            " found 'nri.sock'"
        ),
        "c.yaml:7: claims.onForged: expected ignore or reject, found 'enforce'",
        "c.yaml:9: key 'mode' is there twice, first on line 8 - keep one of them",
        (
            "c.yaml:10: reservedNamespaces: expected a list, found 'kube-system'"
            " - write each item on a line of its own, after `- `"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("socketPath: /x\n", "c.yaml:1: socketPath: unknown key - did you mean plugin.socketPath?"),
        (
            "claims:\n  on_unverified: ignore\n",
            "c.yaml:2: claims.on_unverified: unknown key - did you mean onUnverified?",
        ),
        (
            "zzz: 1\n",
            (
                "c.yaml:1: zzz: unknown key - valid here: plugin, mode, claims, cdi, kubelet,"
                " reservedNamespaces, validateAdjustments, scheduling, metrics, log"
            ),
        ),
        (
            "plugin.index: '95'\n",
            "c.yaml:1: plugin.index: unknown key - nest it: one mapping for each part of the name",
        ),
        ("<<: {mode: auto}\n", "c.yaml:1: <<: unknown key - valid here: plugin"),
    ],
)
def test_an_unknown_key_names_the_nearest_valid_one(text: str, expected: str) -> None:
    (problem,) = problems_of(text)
    assert problem.startswith(expected)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("- a\n- b\n", 1, "the document: expected a mapping, found a list"),
        ("just words\n", 1, "the document: expected a mapping, found 'just words'"),
        ("\nplugin: 5\n", 2, "plugin: expected a mapping, found the number 5"),
        ("mode:\n", 1, "mode: expected auto, enforce, verify or observe, found nothing"),
        ("mode: [auto]\n", 1, "found a list"),
        ("log: {level: {a: b}}\n", 1, "log.level: expected debug, info, warning or error"),
        ("validateAdjustments: yes\n", 1, "expected true or false, found 'yes'"),
        ('validateAdjustments: "true"\n', 1, "expected true or false, found 'true'"),
        ("plugin:\n  name: true\n", 2, "found true"),
        ("plugin:\n  index: 05\n", 2, 'write it in quotes: "05"'),
        ("cdi:\n  specDirs:\n  - /a\n  - b\n", 4, "cdi.specDirs[1]: expected an absolute path"),
        ("cdi:\n  specDirs: []\n", 2, "cdi.specDirs: the list is empty"),
        ("reservedNamespaces: [" + "a," * 65 + "]\n", 1, "has 65 items, 64 at most"),
        ('plugin:\n  name: "a\\n"\n', 2, "found a control character"),
        ('plugin:\n  name: "a\\u202e"\n', 2, "found a control character"),
        ("kubelet:\n  root: /" + "x" * 4096 + "\n", 2, "kubelet.root: expected an absolute path"),
        ("plugin:\n  registrationTimeout: 5000\n", 2, "expected a duration of 1ms to 10m"),
        ("plugin:\n  registrationTimeout: 11m\n", 2, "expected a duration of 1ms to 10m"),
        ("plugin:\n  handlerDeadline: 1ms\n", 2, "expected `auto` or a duration of 5ms to 1m"),
        ("metrics:\n  listen: example.org:80\n", 2, "expected ADDRESS:PORT"),
    ],
)
def test_a_wrong_value_says_what_was_expected_and_found(text: str, line: int, words: str) -> None:
    (problem,) = problems_of(text)
    assert problem.startswith(f"c.yaml:{line}: ")
    assert words in problem


@pytest.mark.parametrize(
    ("text", "line", "rule", "words"),
    [
        ("mode: &m auto\n", 1, Rule.REFUSED_YAML, "anchor &m is not taken here"),
        ("mode: !!str auto\n", 1, Rule.REFUSED_YAML, "tag tag:yaml.org,2002:str"),
        ("mode: !!python/object:os.system auto\n", 1, Rule.REFUSED_YAML, "is not taken here"),
        ("mode: auto\n---\nmode: verify\n", 2, Rule.SYNTAX, "more than one document"),
        ("plugin:\n\tname: x\n", 2, Rule.SYNTAX, "not valid YAML"),
        ("mode: 'auto\n", 2, Rule.SYNTAX, "not valid YAML"),
        ("? [a]\n: b\n", 1, Rule.REFUSED_YAML, "a list or mapping as a key"),
        (b"mode: auto\n# \xff\n", 2, Rule.SYNTAX, "is not UTF-8 text"),
        (b"mode: auto\n\x00", 2, Rule.SYNTAX, "not valid YAML"),
        (b"#" * (MAX_BYTES + 1), 0, Rule.TOO_LARGE, "larger than 256 KiB"),
        ("mode: " + "[" * 20, 1, Rule.TOO_LARGE, "nested more than 8 levels"),
        ("{a: " * 5000, 1, Rule.TOO_LARGE, "nested more than 8 levels"),
    ],
)
def test_yaml_that_surprises_is_refused(
    text: str | bytes, line: int, rule: Rule, words: str
) -> None:
    data = text.encode() if isinstance(text, str) else text
    problems = read_settings(data, "c.yaml")[1]
    assert [(p.rule, p.place.line) for p in problems] == [(rule, line)]
    assert words in str(problems[0])


def test_an_alias_bomb_is_refused_without_being_expanded() -> None:
    lines = ["reservedNamespaces: &a0 [x]"]
    lines += [f"k{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    problems = read_settings("\n".join(lines).encode(), "c.yaml")[1]
    assert {p.rule for p in problems} == {Rule.REFUSED_YAML, Rule.UNKNOWN_KEY}


@pytest.mark.parametrize("text", ["", "\n", "# only comments\n", "---\n", "plugin:\nclaims:\n"])
def test_nothing_set_is_fine(text: str) -> None:
    assert read_settings(text.encode(), "c.yaml") == ({}, [])


def test_values_are_typed_and_know_their_line() -> None:
    text = dedent("""\
        claims:
          onUnverified: reject
        plugin:
          registrationTimeout: 2s
          handlerDeadline: 250ms
        metrics:
          listen: unix:/run/c2c.sock
        reservedNamespaces:
          - a
          - b
        """)
    settings, problems = read_settings(text.encode(), "c.yaml")
    assert problems == []
    assert {path: (s.value, s.place.line) for path, s in settings.items()} == {
        "claims.onUnverified": (UnverifiedEffect.REJECT, 2),
        "plugin.registrationTimeout": (Duration(2000), 4),
        "plugin.handlerDeadline": (HandlerDeadline(Duration(250)), 5),
        "metrics.listen": (ListenAddress(path="/run/c2c.sock"), 7),
        "reservedNamespaces": (("a", "b"), 9),
    }


def test_the_runtimes_text_cannot_rename_a_registered_plugin() -> None:
    settings, problems, notes = read_runtime_text('mode: verify\nplugin: {index: "10"}\n')
    assert problems == []
    assert list(settings) == ["mode"]
    assert [str(note) for note in notes] == [
        (
            "text from the runtime:2: plugin.index has no effect here: this text arrives after"
            " registration - set it in the configuration file"
        )
    ]


def test_overrides_take_plain_words() -> None:
    settings, problems = read_overrides(
        ["plugin.index=07", "validateAdjustments=true", "cdi.specDirs=/a,/b", "metrics.listen="]
    )
    assert problems == []
    assert {path: s.value for path, s in settings.items()} == {
        "plugin.index": "07",
        "validateAdjustments": True,
        "cdi.specDirs": ("/a", "/b"),
        "metrics.listen": ListenAddress(),
    }


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("mode", "'mode' is not option=value"),
        ("plugin.indx=1", "plugin.indx: unknown option - did you mean plugin.index?"),
        ("mode=never", "mode: expected auto, enforce, verify or observe, found 'never'"),
        ("cdi.specDirs=", "cdi.specDirs: expected an absolute path"),
        ("plugin.name=a\nb", "plugin.name: expected a name"),
    ],
)
def test_a_wrong_override_is_named(override: str, words: str) -> None:
    settings, problems = read_overrides([override])
    assert settings == {}
    assert [str(p).startswith(f"command line: {words}") for p in problems] == [True]


@pytest.mark.parametrize(
    ("kind", "text", "canonical"),
    [
        (Duration, "500ms", "500ms"),
        (Duration, "1.5s", "1500ms"),
        (Duration, "1m", "60s"),
        (Duration, "0.001s", "1ms"),
        (HandlerDeadline, "auto", "auto"),
        (HandlerDeadline, "1m", "60s"),
        (ListenAddress, "[::1]:80", "[::1]:80"),
        (ListenAddress, "localhost:9899", "localhost:9899"),
        (ListenAddress, "unix:/a", "unix:/a"),
        (ListenAddress, "", ""),
    ],
)
def test_values_have_one_canonical_text(kind: type, text: str, canonical: str) -> None:
    value = kind.parse(text)
    assert str(value) == canonical
    assert kind.parse(canonical) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Duration, "0s"),
        (Duration, "1.5ms"),
        (Duration, "-1s"),
        (Duration, "1h"),
        (Duration, "１s"),  # noqa: RUF001 - a full-width digit
        (Duration, "5s\n"),
        (HandlerDeadline, "2m"),
        (ListenAddress, "9899"),
        (ListenAddress, ":9899"),
        (ListenAddress, "127.0.0.1:0"),
        (ListenAddress, "127.0.0.1:65536"),
        (ListenAddress, "[127.0.0.1]:80"),
        (ListenAddress, "::1:80"),
        (ListenAddress, "unix:relative"),
        (ListenAddress, "unix:/" + "x" * 107),
    ],
)
def test_values_outside_their_grammar_are_refused(kind: type, text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the loader words the message
        kind.parse(text)


def test_nearest_ignores_case_and_separators() -> None:
    assert nearest("SPEC-DIRS", ["specDirs", "root"]) == "did you mean specDirs?"


@given(st.binary(max_size=200))
def test_any_bytes_give_settings_or_problems(data: bytes) -> None:
    settings, problems = read_settings(data, "c.yaml")
    assert isinstance(settings, dict)
    assert all(
        problem.place.line <= data.count(b"\n") + data.count(b"\r") + 2 for problem in problems
    )


@given(st.text(alphabet="pluginmode:{}[]-&*!#'\" \n\t0123456789|>?,~<", max_size=120))
def test_any_yaml_like_text_gives_settings_or_problems(text: str) -> None:
    read_settings(text.encode(), "c.yaml")
