"""Scenarios: what a file means, and that each mistake is refused where it stands."""

from __future__ import annotations

import re

import pytest

from nri_claim2core.lab.scenario import Driver, Verb
from nri_claim2core.lab.scenario_loader import load_scenario, parse_scenario
from nri_claim2core.model.errors import ConfigError

HEAD = """\
apiVersion: claim2core.gthulhu.io/v1alpha1
kind: Scenario
"""
WHOLE = """\
description: >
  Two words
  on lines.
runtime: cri-o-1.36
config:
  mode: verify
node:
  numa:
    - {id: 0, cpus: 0-1}
    - {id: 1, cpus: 2-3, memory: false}
  cpuManager: {policy: static, defaultCpus: 0-3, entries: {web/app: 3}}
claims:
  a: {cpus: "1,0"}
  b: {cpus: 3-2, raw: true, driver: topology-aware.nri.io, results: 2, pods: [], prepared: false}
pods:
  web: {namespace: batch, annotations: {x: 1}}
containers:
  web/app: {claims: [a, b], env: ["X=1"], shares: 512, mems: 0}
steps:
  - runPod: web
  - create: web/app
    expect: {cpus: 0-1, verdicts: {a: verified}, ownership: own, codes: [C2C-X-01]}
  - {update: web/app, cpus: 0-3, shares: 7}
  - restartPlugin:
    expect: {error: no, containers: {web/app: {mems: ""}}}
  - {writeFile: /etc/x, text: "{"}
"""


def load(body: str):
    return parse_scenario((HEAD + body).encode(), "s.yaml")


def test_whole_file():
    scenario = load(WHOLE)
    assert (scenario.name, scenario.runtime) == ("s", "cri-o-1.36")
    assert scenario.description == "Two words on lines."
    assert scenario.node is not None
    assert (scenario.node.online, scenario.node.possible) == ("0-3", "0-3")
    assert [node.memory for node in scenario.node.numa] == [True, False]
    assert scenario.node.cpu_manager is not None
    assert scenario.node.cpu_manager.entries == {"web/app": "3"}
    a, b = scenario.claims["a"], scenario.claims["b"]
    assert (a.cpus, a.pods, a.driver) == ("0-1", ("web",), Driver.DRA_CPU)
    assert a.cdi_devices == (f"dra.k8s.io/cpu=claim-{a.uid}",)
    assert (b.cpus, b.pods, b.prepared) == ("3-2", (), False)
    assert b.cdi_devices == tuple(
        f"topology-aware.nri.io/device=claim-{b.uid}-{index}" for index in (0, 1)
    )
    create, update, restart, write = scenario.steps[1:]
    assert create.expect is not None
    expect = create.expect.containers["web/app"]
    assert (expect.cpus, expect.mems, expect.verdicts) == ("0-1", None, {"a": "verified"})
    assert (update.verb, update.title) == (Verb.UPDATE, "update web/app cpus=0-3 shares=7")
    assert restart.expect is not None
    assert restart.expect.error == "no"
    assert restart.expect.containers["web/app"].mems == ""
    assert (write.target, write.text) == ("/etc/x", "{")


def test_configuration_keeps_its_line_numbers():
    assert load(WHOLE).config.splitlines()[7].strip().startswith('{"mode"')


def test_uids_follow_from_names():
    first, second = load(WHOLE), load(WHOLE)
    assert first.claims["a"].uid == second.claims["a"].uid != first.claims["b"].uid
    assert re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", first.pods["web"].uid)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("runtime:", "runtme:", "s.yaml:6: runtme: is not known here (did you mean runtime?)"),
        ("cri-o-1.36", "cri-o-1.63", "s.yaml:6: runtime: 'cri-o-1.63' is not known here"),
        ("kind", "kin", "kin: is not known"),
        ('"1,0"', '"1,a"', "s.yaml:15: claims.a.cpus: CPU list '1,a'"),
        ("claims: [a, b]", "claims: [a, c]", "s.yaml:20: containers.web/app.claims: no claim 'c'"),
        ("web/app: {claims", "wob/app: {claims", "wob/app: no pod 'wob' in this scenario"),
        ("- runPod: web", "- runPod: wev", "s.yaml:22: steps[0].runPod: no pod 'wev'"),
        ("- runPod: web", "- {runPod: web, start: x}", "s.yaml:22: steps[0]: a step is one event"),
        ("- runPod: web", "- {}", "s.yaml:22: steps[0]: a step is one event, found no event"),
        ("- runPod: web", "- {runPod: web, cpus: 1}", "s.yaml:22: steps[0].cpus: runPod takes no"),
        ("restartPlugin:", "restartPlugin: x", "restartPlugin takes no value"),
        ("verified}", "verifed}", "steps[1].expect.verdicts.a: 'verifed' is not known here (did"),
        ("ownership: own", "ownership: mine", "'mine' is not known here"),
        ("/etc/x", "/etc/../x", "is no path inside the root"),
        ("web/app: {mems", "web/ap: {mems", "no container 'web/ap'"),
        ("{cpus: 0-1, verd", "{cpus: 0-1, containers: {web/app: {}}, verd", "spoken of twice"),
        ("shares: 512", "shares: -1", "s.yaml:20: containers.web/app.shares: expected a whole"),
        ("{id: 0, cpus", "{cpus", "s.yaml:11: node.numa[0]: id is missing"),
    ],
)
def test_mistake_is_refused_with_its_place(old, new, message):
    text = HEAD + WHOLE
    assert old in text
    with pytest.raises(ConfigError) as caught:
        parse_scenario(text.replace(old, new, 1).encode(), "s.yaml")
    assert message in str(caught.value)


def test_no_steps_and_no_head():
    with pytest.raises(ConfigError, match=r"s\.yaml:1: no steps"):
        load("")
    with pytest.raises(ConfigError, match=r"s\.yaml:1: apiVersion is missing"):
        parse_scenario(b"", "s.yaml")


def test_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load_scenario(tmp_path / "none.yaml")
