"""The engine: expectations that fail are seen, errors are seen, and the node is what it says."""

from __future__ import annotations

import pytest

from nri_claim2core.lab.scenario_loader import parse_scenario
from nri_claim2core.lab.simulate import simulate
from nri_claim2core.model.errors import ConfigError, UsageError

HEAD = """\
apiVersion: claim2core.gthulhu.io/v1alpha1
kind: Scenario
node: {numa: [{id: 0, cpus: 0-3}, {id: 1, cpus: 4-7}]}
claims:
  cores: {cpus: 4-5}
pods:
  web: {}
containers:
  web/main: {claims: [cores]}
"""


def play(steps, head=HEAD, **kwargs):
    return simulate(parse_scenario((head + steps).encode(), "s.yaml"), **kwargs)


def unmet(report):
    return [
        (step.line, check.what, check.expected, check.found)
        for step in report.steps
        for check in step.checks
        if not check.ok
    ]


def test_replies_are_those_of_the_plugin():
    report = play("steps: [{runPod: web}, {create: web/main}, {start: web/main}]\n")
    created = report.steps[1].replies[0]
    assert (created.plugin, created.event) == ("95-claim2core", "CreateContainer")
    # Two CPUs on the second memory node; 1,024 shares for each.
    assert created.text == "cpus=4-5 mems=1 shares=2048"
    cpu = created.content["adjust"]["linux"]["resources"]["cpu"]
    assert (cpu["cpus"], cpu["mems"]) == ("4-5", "1")
    [container] = report.containers
    assert (container.key, container.phase, container.cpus) == ("web/main", "running", "4-5")
    assert (container.verdicts, container.ownership) == ("verified", "own")
    assert report.ok


@pytest.mark.parametrize(
    ("expect", "what", "expected", "found"),
    [
        ("cpus: 0-3", "web/main cpus", "0-3", "4-5"),
        ("mems: 0", "web/main mems", "0", "1"),
        ("shares: 2", "web/main shares", "2", "2048"),
        ("ownership: foreign", "web/main ownership", "foreign", "own"),
        ("verdicts: {cores: forged}", "web/main verdicts", "cores=forged", "cores=verified"),
        ("verdicts: {}", "web/main verdicts", "none", "cores=verified"),
        ("codes: [C2C-X-01]", "web/main codes", "C2C-X-01", "none"),
        ("error: no room", "error", "with 'no room'", "none"),
    ],
)
def test_expectation_that_is_not_met(expect, what, expected, found):
    report = play("steps:\n  - runPod: web\n  - create: web/main\n    expect: {" + expect + "}\n")
    assert unmet(report) == [(12, what, expected, found)]
    assert not report.ok
    assert report.fields()["ok"] is False


def test_error_that_nobody_expected_is_a_failure():
    report = play("steps: [{runPod: web}, {start: web/main}]\n")
    [(_, what, expected, found)] = unmet(report)
    assert (what, expected) == ("error", "none")
    assert "does not exist" in found


def test_expected_error_is_none():
    report = play("steps: [{runPod: web}, {start: web/main, expect: {error: does not exist}}]\n")
    assert report.ok


def test_restarted_container_is_another_one():
    report = play(
        "steps: [{runPod: web}, {create: web/main}, {start: web/main}, {stop: web/main},"
        " {remove: web/main}, {create: web/main, expect: {cpus: 4-5}}]\n"
    )
    assert report.ok
    first, second = (report.steps[index].replies[0].content for index in (1, 5))
    assert first == second
    assert len(report.containers) == 1


def test_plugin_that_is_stopped_answers_nothing():
    report = play(
        "steps: [{stopPlugin: }, {runPod: web}, {create: web/main, expect: {cpus: 0-7}},"
        " {stopPlugin: , expect: {error: does not run}},"
        " {startPlugin: , expect: {containers: {web/main: {cpus: 4-5}}}},"
        " {startPlugin: , expect: {error: runs already}}]\n"
    )
    assert unmet(report) == []
    assert report.steps[2].replies == ()
    assert report.steps[4].replies[-1].text == "web/main: cpus=4-5"


def test_files_of_the_node_can_be_written():
    broken = '{"Data": "x"'
    report = play(
        f"steps: [{{writeFile: var/lib/kubelet/dra_manager_state, text: '{broken}'}},"
        " {runPod: web}, {create: web/main, expect: {verdicts: {cores: unverified}}}]\n",
        runtime="containerd-2.1",
    )
    assert unmet(report) == []


def test_configuration_mistake_has_the_line_of_the_scenario():
    text = HEAD.replace("claims:\n", "config:\n  mode: auto\n  moude: x\nclaims:\n", 1)
    with pytest.raises(ConfigError, match=r"s\.yaml:6.*moude"):
        play("steps: [{runPod: web}]\n", head=text)


def test_root_that_is_given_is_kept(tmp_path):
    report = play("steps: [{runPod: web}]\n", root=tmp_path)
    assert report.ok
    assert (tmp_path / "var/run/cdi").is_dir()
    # A scenario without a node plays on the one that is there.
    head = HEAD.replace(HEAD.splitlines()[2] + "\n", "")
    steps = "steps: [{runPod: web}, {create: web/main, expect: {cpus: 4-5, mems: 1}}]\n"
    assert unmet(play(steps, head=head, root=tmp_path)) == []


def test_unknown_runtime():
    with pytest.raises(UsageError, match="no runtime profile"):
        play("steps: [{runPod: web}]\n", runtime="docker")
