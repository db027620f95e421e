"""`simulate` as a command: what it prints and what its exit codes mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nri_claim2core.cli.main import main

ONE_CLAIM = Path(__file__).parents[2] / "config" / "scenarios" / "one-claim.yaml"


def test_table(capsys):
    assert main(["simulate", str(ONE_CLAIM)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Scenario one-claim on a simulated containerd-2.4\n")
    assert "create solver/main" in text
    assert "CreateContainer      cpus=4-5 mems=1 shares=2048" in text
    assert text.rstrip().endswith("expectations met.")
    assert max(map(len, text.splitlines())) <= 80


def test_json(capsys):
    assert main(["simulate", str(ONE_CLAIM), "-o", "json", "--runtime", "containerd-2.1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["apiVersion"], document["kind"]) == (
        "claim2core.gthulhu.io/v1alpha1",
        "SimulationReport",
    )
    assert document["scenario"]["runtime"] == "containerd-2.1"
    assert document["ok"] is True
    [container] = document["containers"]
    assert container["effective"] == {"cpus": "4-5", "mems": "1"}
    assert container["plugin"]["links"][0]["verdict"] == "verified"
    [create] = [step for step in document["steps"] if step["line"] == 21]
    assert create["step"] == "create solver/main"
    assert all(check["ok"] for check in create["checks"])


def test_expectation_that_is_not_met(tmp_path, capsys):
    changed = tmp_path / "changed.yaml"
    changed.write_text(ONE_CLAIM.read_text().replace("shares: 2048", "shares: 2"))
    assert main(["simulate", str(changed)]) == 1
    text = capsys.readouterr().out
    assert "NOT MET: solver/main shares: expected 2, found 2048" in text
    assert "1 of 18 expectations not met." in text


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("steps:", "stepz:"), 2, ":19: stepz: is not known here"),
        (("runtime: containerd-2.4", "runtime: containerd-9"), 2, ":8: runtime: 'containerd-9'"),
        (("node:", "config: {moed: auto}\nnode:"), 2, ":9: moed: unknown key"),
    ],
)
def test_scenario_that_cannot_be_played(tmp_path, capsys, change, code, message):
    changed = tmp_path / "changed.yaml"
    changed.write_text(ONE_CLAIM.read_text().replace(*change, 1))
    assert main(["simulate", str(changed)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_file_and_root_that_are_not_to_be_had(tmp_path, capsys):
    assert main(["simulate", str(tmp_path / "none.yaml")]) == 3
    assert main(["simulate", str(ONE_CLAIM), "--root", "/"]) == 2
    assert "own root" in capsys.readouterr().err
