"""The option table, its JSON Schema (judged by jsonschema) and the commented sample file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from nri_claim2core.agent.config import DEFAULTS, Applies, Config
from nri_claim2core.agent.config_load import read_settings
from nri_claim2core.agent.config_schema import (
    OPTIONS,
    SECTIONS,
    assemble,
    config_document,
    json_schema,
)

SAMPLE = Path(__file__).parents[2] / "config" / "claim2core.yaml"


def leaves(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    made = {}
    for key, value in document.items():
        path = f"{prefix}{key}"
        made |= leaves(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return made


def test_the_sample_has_every_option_at_its_default() -> None:
    sample = leaves(yaml.safe_load(SAMPLE.read_text()))
    assert list(sample) == list(OPTIONS)
    assert sample == leaves(config_document(DEFAULTS))


def test_the_sample_loads_as_the_defaults() -> None:
    settings, problems = read_settings(SAMPLE.read_bytes(), "sample")
    assert problems == []
    assert assemble({path: s.value for path, s in settings.items()}) == Config()


def test_the_sample_marks_when_an_option_applies() -> None:
    text = SAMPLE.read_text()
    marks = {Applies.START: "[start]", Applies.REGISTRATION: "[registration]"}
    for option in OPTIONS.values():
        key = option.path.rpartition(".")[2]
        # The comment block that stands directly above the key.
        block = re.search(rf"((?: *#.*\n)+) *{key}:", text)
        assert block, option.path
        for applies, mark in marks.items():
            assert (mark in block[1]) == (option.applies is applies), option.path


def test_defaults_are_those_of_the_design() -> None:
    assert config_document(DEFAULTS) == {
        "plugin": {
            "name": "claim2core",
            "index": "95",
            "socketPath": "/var/run/nri/nri.sock",
            "registrationTimeout": "5s",
            "handlerDeadline": "auto",
        },
        "mode": "auto",
        "claims": {
            "onUnverified": "ignore",
            "onForged": "ignore",
            "onMalformed": "ignore",
            "onForeignViolation": "report",
        },
        "cdi": {"specDirs": ["/etc/cdi", "/var/run/cdi"]},
        "kubelet": {"root": "/var/lib/kubelet"},
        "reservedNamespaces": ["kube-system"],
        "validateAdjustments": False,
        "scheduling": {
            "enabled": False,
            "pinDirectory": "/sys/fs/bpf/claim2core",
            "defaultClass": "latency-critical",
            "onSeedFailure": "report",
        },
        "metrics": {"listen": "127.0.0.1:9899"},
        "log": {"level": "info", "format": "auto"},
    }


def test_every_option_says_what_it_is() -> None:
    for option in OPTIONS.values():
        assert option.description.endswith("."), option.path
        assert option.expects, option.path
    assert all(SECTIONS.values())


def test_the_schema_is_a_schema_and_takes_the_sample() -> None:
    schema = json.loads(json.dumps(json_schema()))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(yaml.safe_load(SAMPLE.read_text()))
    Draft202012Validator(schema).validate(yaml.safe_load("claims:\n"))


DOCUMENTS = [
    ("mode: enforce", True),
    ("mode: sometimes", False),
    ("mod: auto", False),
    ('plugin: {index: "07"}', True),
    ("plugin: {index: 95}", False),
    ('plugin: {index: "7"}', False),
    ("plugin: {name: a b}", False),
    ("plugin: {registrationTimeout: 1.5s}", True),
    ("plugin: {registrationTimeout: 5}", False),
    ("plugin: {registrationTimeout: 5 s}", False),
    ("plugin: {handlerDeadline: auto}", True),
    ("plugin: {handlerDeadline: never}", False),
    ("plugin: {socketPath: nri.sock}", False),
    ("cdi: {specDirs: []}", False),
    ("cdi: {specDirs: /etc/cdi}", False),
    ("cdi: {specDirs: [etc/cdi]}", False),
    ("reservedNamespaces: []", True),
    ("reservedNamespaces: [Kube]", False),
    ("validateAdjustments: true", True),
    ('validateAdjustments: "true"', False),
    ('metrics: {listen: ""}', True),
    ('metrics: {listen: "unix:/run/x.sock"}', True),
    ('metrics: {listen: "[::1]:9899"}', True),
    ('metrics: {listen: "9899"}', False),
    ("log: {level: verbose}", False),
    ("log: [info]", False),
]


@pytest.mark.parametrize(("text", "is_good"), DOCUMENTS)
def test_loader_and_schema_agree(text: str, is_good: bool) -> None:
    # jsonschema is the second opinion on what the loader takes.
    validator = Draft202012Validator(json_schema())
    assert validator.is_valid(yaml.safe_load(text)) == is_good
    _, problems = read_settings(text.encode(), "x.yaml")
    assert (problems == []) == is_good, problems
