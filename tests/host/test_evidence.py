"""All evidence in one call: complete on a full node, in parts on a broken one."""

from __future__ import annotations

import json
import os

import pytest

from nri_claim2core.host.evidence import EvidenceReader
from nri_claim2core.model.cpuset import CpuSet
from tests.host.trees import CLAIM_A, POD_A, Clock, Tree

NAME = f"dra.k8s.io/cpu=claim-{CLAIM_A}"
STATE = "/var/lib/kubelet/cpu_manager_state"


@pytest.fixture
def tree(tmp_path):
    tree = Tree(tmp_path)
    tree.claim_file(CLAIM_A, "2-3")
    tree.checkpoint(
        [
            {
                "ClaimUID": CLAIM_A,
                "ClaimName": "cores",
                "Namespace": "batch",
                "PodUIDs": {POD_A: {}},
                "DriverState": {"dra.cpu": {"Devices": [{"CDIDeviceIDs": [NAME]}]}},
            }
        ]
    )
    tree.write(STATE, json.dumps({"policyName": "none", "defaultCpuSet": "", "checksum": 1}))
    tree.cpus("0-3", possible="0-7", present="0-3")
    tree.numa({0: "0-1", 1: "2-3"}, has_memory="0-1", online="0-1")
    return tree


@pytest.fixture
def reader(tree):
    return EvidenceReader(tree.root, clock=Clock())


def test_a_whole_node(reader):
    found = reader.read()
    assert found.cdi.devices[NAME].env == (f"DRA_CPUSET_{CLAIM_A}=2-3",)
    assert found.checkpoint.claims[CLAIM_A].pod_uids == {POD_A}
    assert found.checkpoint.claims[CLAIM_A].cdi_ids == {NAME}
    assert (found.online, found.possible) == (CpuSet(range(4)), CpuSet(range(8)))
    assert found.topology.memory_nodes_of(CpuSet([2, 3])) == CpuSet([1])
    assert found.cpu_manager.policy == "none"


def test_an_unchanged_node_gives_the_same_parts(reader):
    one, two = reader.read(), reader.read()
    assert one.cdi is two.cdi
    assert one.checkpoint is two.checkpoint
    assert one.topology is two.topology
    assert one.cpu_manager is two.cpu_manager


def test_each_part_stands_alone(tree, reader):
    tree.path("/sys/devices/system/cpu/online").unlink()
    found = reader.read()
    assert (found.online, found.possible, found.topology) == (None, None, None)
    assert NAME in found.cdi.devices
    tree.path("/var/lib/kubelet/dra_manager_state").write_text("")
    tree.path(STATE).unlink()
    found = reader.read()
    assert found.checkpoint.readable is False
    assert found.cpu_manager is None
    assert NAME in found.cdi.devices


def test_an_empty_root_is_all_unknown(tmp_path):
    found = EvidenceReader(str(tmp_path / "none"), clock=Clock()).read()
    assert (found.cdi.readable, found.checkpoint.readable, found.online) == (False, False, None)


def test_other_directories(tree):
    tree.claim_file(CLAIM_A, "5", "/opt/cdi")
    found = EvidenceReader(tree.root, cdi_dirs=("/opt/cdi/",), clock=Clock()).read()
    assert found.cdi.devices[NAME].path == f"/opt/cdi/dra.k8s.io-cpu_claim-{CLAIM_A}.json"


def test_another_kubelet_directory(tree):
    tree.path("/var/lib/kubelet").rename(tree.directory("/opt") / "k")
    found = EvidenceReader(tree.root, kubelet_dir="/opt/k", clock=Clock()).read()
    assert list(found.checkpoint.claims) == [CLAIM_A]
    assert found.cpu_manager.policy == "none"


def test_this_machine():
    found = EvidenceReader().read()
    assert os.sched_getaffinity(0) <= set(found.online)
