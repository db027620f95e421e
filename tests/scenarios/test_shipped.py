"""Every shipped scenario holds, on the runtime it names and, where that changes nothing, on all.

The expectations in the files follow from the design's tables (verdicts, envelope, ownership),
worked out by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nri_claim2core.lab import scenario_loader
from nri_claim2core.lab.scenario import Driver, Verb
from nri_claim2core.lab.scenario_loader import load_scenario
from nri_claim2core.lab.simulate import simulate
from nri_claim2core.nri.runtime import PROFILES

DIRECTORY = Path(__file__).parents[2] / "config" / "scenarios"
SHIPPED = sorted(DIRECTORY.glob("*.yaml"), key=lambda path: path.name)

# What these say does not depend on what the runtime tells plugins.
ON_EVERY_RUNTIME = ("one-claim", "several-claims", "kubelet-static", "late-plugin")


def failures(report):
    return [
        f"{report.source}:{step.line}: {step.title}: {check.what}: expected {check.expected},"
        f" found {check.found}"
        for step in report.steps
        for check in step.checks
        if not check.ok
    ]


def test_there_are_scenarios():
    assert len(SHIPPED) >= 10


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_scenario_holds(path):
    report = simulate(load_scenario(path))
    assert failures(report) == []
    assert any(step.checks for step in report.steps)


@pytest.mark.parametrize("runtime", PROFILES)
@pytest.mark.parametrize("name", ON_EVERY_RUNTIME)
def test_scenario_holds_on_every_runtime(name, runtime):
    report = simulate(load_scenario(DIRECTORY / f"{name}.yaml"), runtime=runtime)
    assert failures(report) == []
    assert report.runtime == runtime


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_scenario_is_named_as_its_file(path):
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    assert scenario.description


def test_reference_names_every_event_and_key():
    text = (DIRECTORY / "README.md").read_text()
    words = [verb.value for verb in Verb] + [driver.value for driver in Driver]
    words += [*scenario_loader._TOP, *scenario_loader._CONTAINER_EXPECT]
    assert [word for word in words if f"`{word}" not in text] == []
