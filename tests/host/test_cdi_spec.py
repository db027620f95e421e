"""One spec file: what is required, what is refused, in which order edits count.

Layouts are those the drivers write; refusals marked with the runtimes' own rule were checked
against the reference implementation of CDI (its loader refuses them too).
"""

from __future__ import annotations

import json

import pytest

from nri_claim2core.host.cdi_spec import parse_spec
from nri_claim2core.host.cdi_yaml import SpecTextError
from tests.host.trees import CLAIM_A, CLAIM_B, dra_cpu_spec

GOOD = {"cdiVersion": "0.8.0", "kind": "v.example/c", "devices": [{"name": "d"}]}

NRI_PLUGINS_YAML = f"""\
cdiVersion: 0.8.0
containerEdits: {{}}
devices:
- containerEdits:
    env:
    - DRA_CPUSET_{CLAIM_A}=2-3
  name: claim-{CLAIM_A}-0
- containerEdits:
    env:
    - DRA_CPUSET_{CLAIM_A}=2-3
  name: claim-{CLAIM_A}-1
kind: topology-aware.nri.io/device
"""


def with_(**changes):
    return json.dumps(GOOD | changes).encode()


def test_one_file_per_claim():
    (device,) = parse_spec(json.dumps(dra_cpu_spec((CLAIM_A, "0-3"))).encode(), "/x/a.json")
    assert device.qualified_name == f"dra.k8s.io/cpu=claim-{CLAIM_A}"
    assert device.env == (f"DRA_CPUSET_{CLAIM_A}=0-3",)
    assert (device.path, device.version) == ("/x/a.json", "0.8.0")


def test_one_file_for_all_claims():
    data = json.dumps(dra_cpu_spec((CLAIM_A, "0-3"), (CLAIM_B, "4,6"))).encode()
    assert [(d.qualified_name, d.env) for d in parse_spec(data, "dra.cpu.json")] == [
        (f"dra.k8s.io/cpu=claim-{CLAIM_A}", (f"DRA_CPUSET_{CLAIM_A}=0-3",)),
        (f"dra.k8s.io/cpu=claim-{CLAIM_B}", (f"DRA_CPUSET_{CLAIM_B}=4,6",)),
    ]


def test_yaml_of_nri_plugins():
    devices = parse_spec(NRI_PLUGINS_YAML.encode(), "a.yaml")
    assert [(d.qualified_name, d.env) for d in devices] == [
        (f"topology-aware.nri.io/device=claim-{CLAIM_A}-0", (f"DRA_CPUSET_{CLAIM_A}=2-3",)),
        (f"topology-aware.nri.io/device=claim-{CLAIM_A}-1", (f"DRA_CPUSET_{CLAIM_A}=2-3",)),
    ]


def test_json_in_a_yaml_file_is_yaml():
    data = json.dumps(dra_cpu_spec((CLAIM_A, "0-3")), indent=2).encode()
    assert parse_spec(data, "a.yaml")[0].env == (f"DRA_CPUSET_{CLAIM_A}=0-3",)


def test_edits_of_the_spec_come_before_those_of_the_device():
    data = with_(
        containerEdits={"env": ["A=spec", "B=spec"]},
        devices=[{"name": "d", "containerEdits": {"env": ["A=device"]}}, {"name": "e"}],
    )
    d, e = parse_spec(data, "a.json")
    assert d.env == ("A=spec", "B=spec", "A=device")
    assert e.env == ("A=spec", "B=spec")


@pytest.mark.parametrize("path", ["a.json", "a.yaml"])
def test_what_we_do_not_use_is_not_looked_at(path):
    data = with_(
        annotations={"x": 7},
        futureField=[1, {"deep": [None]}],
        containerEdits={"mounts": "not even a list", "hooks": [{}]},
    )
    assert parse_spec(data, path)[0].qualified_name == "v.example/c=d"


@pytest.mark.parametrize("empty", [None, []])
def test_no_devices_is_no_fault(empty):
    assert parse_spec(with_(devices=empty), "a.json") == ()


@pytest.mark.parametrize("version", ["0.3.0", "0.8.0", "v0.5.0", "1.0.0", "1.1.0", "1.20.3"])
def test_versions_with_the_same_meaning(version):
    assert parse_spec(with_(cdiVersion=version), "a.json")[0].version == version.lstrip("v")


REFUSED = [
    (b"", "empty"),
    (b" \n", "empty"),
    (b"\xff\xfe{}", "not UTF-8"),
    (json.dumps(GOOD).encode("utf-16-le"), "no text in 'cdiVersion'|not JSON"),
    (json.dumps(GOOD).encode()[:-7], "not JSON"),
    (b"[]", "not a mapping"),
    (b"7", "not a mapping"),
    (b"null", "not a mapping"),
    (b'{"kind": "a/b", "kind": "c/d"}', "'kind' twice"),
    (b"[" * 200_000, "nested too deeply"),
    (b'{"a":' * 200_000, "nested too deeply"),
    (with_(cdiVersion="2.0.0"), "cdiVersion '2.0.0'"),
    (with_(cdiVersion="0.8"), "cdiVersion '0.8'"),
    (with_(cdiVersion="\u0660.8.0"), "cdiVersion"),
    (with_(cdiVersion=1.0), "no text in 'cdiVersion'"),
    (with_(cdiVersion=None), "no text in 'cdiVersion'"),
    (with_(kind=""), "no text in 'kind'"),
    (with_(kind="vendor"), "not vendor/class"),
    (with_(kind="v/c=x"), "not vendor/class"),
    (with_(devices={"name": "d"}), "devices is not a list"),
    (with_(devices=["d"]), r"devices\[0\] is not a mapping"),
    (with_(devices=[{"name": "d"}, {}]), r"devices\[1\] has no text in 'name'"),
    (with_(devices=[{"name": 7}]), "no text in 'name'"),
    (with_(devices=[{"name": "d"}, {"name": "d"}]), "second device named 'd'"),
    (with_(devices=[{"name": "\ud800"}]), "half a surrogate"),
    (with_(containerEdits=[]), "containerEdits is not a mapping"),
    (with_(containerEdits={"env": "A=1"}), "env is not a list"),
    (with_(containerEdits={"env": [None]}), "entry that is not a text"),
    (with_(containerEdits={"env": ["A=\udfff"]}), "half a surrogate"),
]


@pytest.mark.parametrize(("data", "rule"), REFUSED)
def test_refused_with_the_rule_that_is_broken(data, rule):
    with pytest.raises(SpecTextError, match=rule):
        parse_spec(data, "a.json")
