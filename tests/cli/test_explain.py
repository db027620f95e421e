"""`explain` as a command: where it reads from, what it prints, what its exit codes mean."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from nri_claim2core.cli.main import main
from nri_claim2core.lab import node

CLAIM = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"
POD = "1f0e9d8c-7b6a-4958-8473-625140392817"
DESCRIPTION = {
    "pod": {"id": "s1", "uid": POD, "name": "solver", "namespace": "batch"},
    "container": {
        "id": "c1",
        "podSandboxId": "s1",
        "name": "main",
        "env": [f"DRA_CPUSET_{CLAIM}=1"],
    },
    "runtime": {"name": "containerd", "version": "v2.1.9"},
}


@pytest.fixture
def root(tmp_path):
    """A captured node whose kubelet and driver know the claim."""
    tree = tmp_path / "root"
    node.write_dra_cpu_spec(tree / "var/run/cdi", CLAIM, "1")
    node.write_dra_manager_state(
        tree / "var/lib/kubelet",
        [
            node.PreparedClaim(
                uid=CLAIM,
                name="cores",
                namespace="batch",
                pod_uids=[POD],
                cdi_device_ids=[node.dra_cpu_device(CLAIM)],
            )
        ],
    )
    (tree / "sys/devices/system/cpu").mkdir(parents=True)
    (tree / "sys/devices/system/cpu/online").write_text("0-3\n")
    return tree


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "container.json"
    path.write_text(json.dumps(DESCRIPTION))
    return str(path)


def test_json(root, file, capsys):
    assert main(["explain", "--container", file, "--root", str(root), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["apiVersion"] == "claim2core.gthulhu.io/v1alpha1"
    assert document["kind"] == "ContainerExplanation"
    [link] = document["links"]
    assert (link["claimUid"], link["verdict"], link["cpus"]) == (CLAIM, "verified", "1")
    assert link["evidence"]
    assert {"cpus", "mems", "mode", "reason"} <= set(document["envelope"])
    assert document["envelope"]["cpus"] == "1"


def test_yaml_is_the_same_document(root, file, capsys):
    arguments = ["explain", "--container", file, "--root", str(root), "-o"]
    assert main([*arguments, "json"]) == main([*arguments, "yaml"]) == 0
    text = capsys.readouterr().out
    end = text.index("\n}\n") + 3
    assert yaml.safe_load(text[end:]) == json.loads(text[:end])


def test_standard_input(root, monkeypatch, capsys):
    data = io.TextIOWrapper(io.BytesIO(json.dumps(DESCRIPTION).encode()))
    monkeypatch.setattr(sys, "stdin", data)
    assert main(["explain", "--container", "-", "--root", str(root)]) == 0
    text = capsys.readouterr().out
    assert f"Claim {CLAIM}: verified, CPUs 1" in text
    assert "Container main of pod batch/solver" in text
    for source in ("cdi-list", "cdi-spec", "kubelet-checkpoint", "environment"):
        assert f"  {source}: " in text
    assert "Envelope: CPUs 1" in text


def test_text_from_outside_cannot_move_the_cursor(root, file, capsys):
    changed = json.loads(json.dumps(DESCRIPTION))
    changed["container"]["name"] = "a\x1b[2Jb"
    changed["pod"]["name"] = "x\ny"
    Path(file).write_text(json.dumps(changed))
    assert main(["explain", "--container", file, "--root", str(root)]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert r"a\x1b[2Jb" in text
    assert r"x\ny" in text


def test_refused_container_is_a_finding(root, file, capsys):
    changed = json.loads(json.dumps(DESCRIPTION))
    changed["pod"]["uid"] = "22222222-7b6a-4958-8473-625140392817"
    Path(file).write_text(json.dumps(changed))
    arguments = ["explain", "--container", file, "--root", str(root)]
    assert main(arguments) == 0
    assert "forged" in capsys.readouterr().out
    assert main([*arguments, "--set", "claims.onForged=reject"]) == 1
    assert "REFUSED: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--container", "/none.json"], 3, "/none.json: No such file"),
        (["--container", "{file}", "--root", "/none"], 3, "/none: no such directory"),
        (["--container", "{file}", "--set", "mode=nothing"], 1, "mode"),
        (["--container", "{bad}"], 2, "container description: is not JSON"),
    ],
)
def test_what_cannot_be_explained(file, capsys, arguments, code, message):
    bad = Path(file).with_name("bad.json")
    bad.write_text("{")
    assert main(["explain", *(a.format(file=file, bad=bad) for a in arguments)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
