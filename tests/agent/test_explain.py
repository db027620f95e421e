"""Explaining a container: what is read of a description, and that the decision is the plugin's.

The tree is written by the lab's writers (drivers' and kubelet's own formats); expected verdicts
follow from the design's table.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict

from nri_claim2core.agent.config import ClaimsOptions, Config
from nri_claim2core.agent.explain import MAX_DESCRIPTION_BYTES, explain, read_description
from nri_claim2core.claims.effects import RefusalEffect
from nri_claim2core.lab import node
from nri_claim2core.lab.messages import container_message, pod_message
from nri_claim2core.lab.scenario_loader import load_scenario
from nri_claim2core.lab.simulate import simulate, topology_of
from nri_claim2core.lab.world import World
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.errors import UsageError

CLAIM = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"
POD = "1f0e9d8c-7b6a-4958-8473-625140392817"
SCENARIO = Path(__file__).parents[2] / "config" / "scenarios" / "one-claim.yaml"


@pytest.fixture
def root(tmp_path):
    """Eight CPUs on two memory nodes; the claim has 4-5, on the second."""
    world = World(tmp_path)
    spec = load_scenario(SCENARIO).node
    assert spec is not None
    world.write_topology(topology_of(spec))
    node.write_dra_cpu_spec(world.cdi_dir, CLAIM, "4-5")
    node.write_dra_manager_state(
        world.kubelet_dir,
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
    return tmp_path


def describe(**changes):
    document = {
        "pod": {"id": "s1", "uid": POD, "name": "solver", "namespace": "batch"},
        "container": {
            "id": "c1",
            "pod_sandbox_id": "s1",
            "name": "main",
            "env": ["SECRET=x", f"DRA_CPUSET_{CLAIM}=4-5"],
            "CDI_devices": [{"name": f"dra.k8s.io/cpu=claim-{CLAIM}"}],
            "linux": {"cgroups_path": "/pods/p/c1", "resources": {"cpu": {"shares": {"value": 2}}}},
        },
        "runtime": {"name": "containerd", "version": "v2.4.2"},
    }
    for key, value in changes.items():
        if value is None:
            del document[key]
        elif isinstance(value, dict):
            document[key] = {**document[key], **value}
    return document


def run(document, root, config=None):
    description = read_description(json.dumps(document).encode())
    return explain(description, config or Config(), str(root))


def test_verified_claim(root):
    fields = run(describe(), root).fields()
    [link] = fields["links"]
    assert (link["claimUid"], link["verdict"], link["cpus"]) == (CLAIM, "verified", "4-5")
    answers = {each["source"]: each["answer"] for each in link["evidence"]}
    assert answers == {
        "cdi-list": "confirms",
        "cdi-spec": "confirms",
        "kubelet-checkpoint": "confirms",
        "environment": "confirms",
    }
    envelope = fields["envelope"]
    assert (envelope["cpus"], envelope["mems"], envelope["mode"]) == ("4-5", "1", "auto")
    assert (envelope["ownership"], envelope["shares"]) == ("own", 2048)
    assert envelope["reason"]
    assert fields["decidedAs"] == "creation"
    assert "SECRET" not in json.dumps(fields)


def test_both_forms_of_field_names_mean_the_same(root):
    camel = describe()
    container = camel["container"]
    container["podSandboxId"] = container.pop("pod_sandbox_id")
    container["CDIDevices"] = container.pop("CDI_devices")
    container["linux"] = {
        "cgroupsPath": "/pods/p/c1",
        "resources": {"cpu": {"shares": {"value": "2"}}},
    }
    assert run(camel, root).fields() == run(describe(), root).fields()


@pytest.mark.parametrize(
    ("runtime", "devices", "pod", "verdict"),
    [
        # The runtime reports devices and names none: the variable is copied.
        ({"version": "v2.4.2"}, [], POD, "forged"),
        # It reports none ever: kubelet's checkpoint decides.
        ({"version": "v2.1.9"}, [], POD, "verified"),
        ({"version": "v2.1.9"}, [], "22222222-7b6a-4958-8473-625140392817", "forged"),
        ({"name": "cri-o", "version": "1.35.6"}, [], POD, "verified"),
    ],
)
def test_what_an_empty_device_list_means(root, runtime, devices, pod, verdict):
    document = describe(runtime=runtime, pod={"uid": pod}, container={"CDI_devices": devices})
    [link] = run(document, root).fields()["links"]
    assert link["verdict"] == verdict


def test_missing_runtime_and_pod_are_said(root):
    document = describe(runtime=None, pod=None, container={"CDI_devices": []})
    explanation = run(document, root)
    notes = " ".join(explanation.description.notes)
    assert "no runtime given" in notes
    assert "no pod given" in notes
    [link] = explanation.fields()["links"]
    assert link["verdict"] != "verified"


def test_unknown_runtime_is_said(root):
    explanation = run(describe(runtime={"version": "v9.9.9-x", "name": "docker"}), root)
    assert "not known" in explanation.description.notes[0]


def test_unknown_field_is_passed_over_with_a_note(root):
    explanation = run(describe(container={"shinyNew": {"x": 1}}), root)
    [note] = explanation.description.notes
    assert "shinyNew" in note
    assert explanation.fields()["links"][0]["verdict"] == "verified"


def test_running_container_is_decided_as_after_a_restart(root):
    World(root).place(77, "/pods/p/c1", CpuSet(range(8)), CpuSet([0, 1]))
    running = {"state": "CONTAINER_RUNNING", "pid": 77}
    explanation = run(describe(container=running), root)
    fields = explanation.fields()
    assert fields["decidedAs"] == "synchronization"
    assert fields["observed"] == {"cpus": "0-7", "mems": "0-1", "when": "explain"}
    # It may run on CPUs outside its envelope 4-5, and use memory of node 0.
    assert {"C2C-ENV-10"} <= {each["code"] for each in fields["violations"]}
    assert explanation.has_error


def test_refusal_is_an_error(root):
    config = Config(claims=ClaimsOptions(on_forged=RefusalEffect.REJECT))
    explanation = run(describe(container={"CDI_devices": []}), root, config)
    assert "forged" in explanation.fields()["envelope"]["refusal"]
    assert explanation.has_error


def test_container_without_claims(root):
    document = describe(container={"env": ["A=b"], "CDI_devices": []})
    explanation = run(document, root)
    fields = explanation.fields()
    assert fields["links"] == []
    assert fields["envelope"]["ownership"] == "none"
    assert not explanation.has_error


def test_empty_root_proves_nothing(tmp_path):
    fields = run(describe(runtime={"version": "v2.1.9"}), tmp_path).fields()
    assert fields["links"][0]["verdict"] == "unverified"
    assert fields["envelope"]["cpus"] == ""


def test_same_decision_as_the_live_plugin(tmp_path):
    """The plugin, asked by the embedded runtime, and explain, asked with what it was shown."""
    scenario = load_scenario(SCENARIO)
    report = simulate(scenario, root=tmp_path)
    [live] = report.containers
    pod, spec = scenario.pods["solver"], scenario.containers["solver/main"]
    document = {
        "pod": MessageToDict(pod_message(pod)),
        "container": MessageToDict(container_message(pod, spec, scenario.claims, 1)),
        "runtime": {"name": "containerd", "version": "v2.4.2"},
    }
    fields = run(document, tmp_path).fields()
    assert fields["links"] == live.known["links"]
    assert fields["envelope"]["cpus"] == live.known["envelope"]["cpus"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON: line 1"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "is no object"),
        (b"{}", "has no container"),
        (b'{"container": 1}', "container is no object"),
        (b'{"contaner": {}}', "unknown key 'contaner'"),
        (b'{"container": {"pid": "x"}}', "container: Failed to parse pid"),
        (b'{"container": {}, "runtime": []}', "runtime is no object"),
        (b'{"container": {}, "runtime": {"nome": ""}}', "runtime has the unknown key 'nome'"),
        (b'{"container": {}, "runtime": {"name": 1}}', "runtime.name is no text"),
        (b" " * (MAX_DESCRIPTION_BYTES + 1), "is longer than"),
    ],
)
def test_description_that_is_refused(data, message):
    with pytest.raises(UsageError) as caught:
        read_description(data)
    assert message in caught.value.message
    assert caught.value.code == "C2C-EXPLAIN-01"
