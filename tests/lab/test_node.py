"""Expected values: vectors of kubelet's own tests and the CDI library's output format."""

from __future__ import annotations

import json
import stat

import pytest
import yaml

from nri_claim2core.lab import node

CLAIM = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"
POD = "1f0e9d8c-7b6a-4958-8473-625140392817"


# pkg/kubelet/cm/cpumanager/state/state_checkpoint_test.go
@pytest.mark.parametrize(
    ("default_cpus", "entries", "checksum"),
    [
        ("4-6", {}, 354655845),
        ("1-3", {"pod": {"container1": "4-6", "container2": "1-3"}}, 3610638499),
        ("1-3", {"pod": {"container1": "4-6", "container2": "asd"}}, 962272150),
        ("1.3", {}, 3021697696),
    ],
)
def test_cpu_manager_checksum_is_kubelets(default_cpus, entries, checksum):
    assert node.cpu_manager_checksum("none", default_cpus, entries) == checksum


def test_cpu_manager_state_orders_and_omits_as_kubelet(tmp_path):
    path = node.write_cpu_manager_state(
        tmp_path,
        policy="none",
        default_cpus="1-3",
        entries={"pod": {"container2": "1-3", "container1": "4-6"}},
    )
    assert path.read_text() == (
        '{"policyName":"none","defaultCpuSet":"1-3",'
        '"entries":{"pod":{"container1":"4-6","container2":"1-3"}},"checksum":3610638499}'
    )
    node.write_cpu_manager_state(tmp_path, policy="none", default_cpus="4-6")
    assert path.read_text() == '{"policyName":"none","defaultCpuSet":"4-6","checksum":354655845}'


def test_dra_checkpoint_matches_a_hand_made_one(tmp_path):
    path = node.write_dra_manager_state(
        tmp_path,
        [
            node.PreparedClaim(
                uid=CLAIM,
                name="cores-a",
                namespace="batch",
                pod_uids=[POD],
                cdi_device_ids=[f"dra.k8s.io/cpu=claim-{CLAIM}"],
                pool="node-7",
                device="cpudevnuma001",
                request_names=["cores"],
            )
        ],
    )
    document = json.loads(path.read_text())
    # CRC-32 of the Data text as gzip writes it into its trailer.
    assert document["Checksum"] == 431039251
    assert json.loads(document["Data"])["ClaimInfoStateList"][0]["PodUIDs"] == {POD: {}}


def test_dra_checkpoint_without_claims(tmp_path):
    document = json.loads(node.write_dra_manager_state(tmp_path, []).read_text())
    assert document["Checksum"] == 2361995144


def test_spec_per_claim_is_what_the_driver_writes(tmp_path):
    path = node.write_dra_cpu_spec(tmp_path, CLAIM, "0-3,8")
    assert path.name == f"dra.k8s.io-cpu_claim-{CLAIM}.json"
    assert path.read_text() == (
        '{"cdiVersion":"0.8.0","kind":"dra.k8s.io/cpu","devices":[{"name":"claim-' + CLAIM + '",'
        '"containerEdits":{"env":["DRA_CPUSET_' + CLAIM + '=0-3,8"]}}],"containerEdits":{}}'
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_replacing_a_spec_leaves_one_file(tmp_path):
    node.write_dra_cpu_spec(tmp_path, CLAIM, "0")
    path = node.write_dra_cpu_spec(tmp_path, CLAIM, "1")
    assert list(tmp_path.iterdir()) == [path]
    assert f"DRA_CPUSET_{CLAIM}=1" in path.read_text()


def test_one_spec_of_all_claims_as_in_v01(tmp_path):
    path = node.write_dra_cpu_v01_spec(tmp_path, {CLAIM: "0", POD: "1"})
    assert path.name == "dra.cpu.json"
    devices = json.loads(path.read_text())["devices"]
    assert [device["name"] for device in devices] == [f"claim-{CLAIM}", f"claim-{POD}"]


def test_yaml_spec_has_a_device_per_result(tmp_path):
    path = node.write_nri_plugins_spec(tmp_path, CLAIM, "4-5", results=2, policy="balloons")
    assert path.name == f"balloons.nri.io-device_{CLAIM}.yaml"
    edits = {"env": [f"DRA_CPUSET_{CLAIM}=4-5"]}
    assert yaml.safe_load(path.read_text()) == {
        "cdiVersion": "0.7.0",
        "kind": "balloons.nri.io/device",
        "devices": [
            {"name": f"claim-{CLAIM}-0", "containerEdits": edits},
            {"name": f"claim-{CLAIM}-1", "containerEdits": edits},
        ],
        "containerEdits": {},
    }
    assert node.nri_plugins_device(CLAIM, 1, policy="balloons") == (
        f"balloons.nri.io/device=claim-{CLAIM}-1"
    )
