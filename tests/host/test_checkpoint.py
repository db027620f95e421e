"""Kubelet's DRA checkpoint: current layout with its checksum, and everything that is not that.

UPSTREAM is the vector of kubelet's own test of this file; its checksum was computed by kubelet.
"""

from __future__ import annotations

import json
import os
import zlib

import pytest

from nri_claim2core.host.checkpoint import CheckpointReader, parse_checkpoint
from tests.host.trees import CLAIM_A, CLAIM_B, POD_A, Clock, Tree

UPSTREAM = (
    r'{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",'
    r"\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\","
    r"\"ClaimName\":\"example\",\"Namespace\":\"default\","
    r"\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},"
    r"\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\","
    r"\"DeviceName\":\"dev-1\",\"RequestNames\":[\"test request\"],"
    r'\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}}]}","Checksum":1656016162}'
)
OLD = (
    '{"version":"v1","entries":[{"DriverName":"d","ClassName":"","ClaimUID":"067798be","ClaimName'
    '":"example","Namespace":"default","PodUIDs":{"139cdb46":{}},"ResourceHandles":[],'
    '"CDIDevices":{}}],"checksum":113577689}'
)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def reader(tree):
    return CheckpointReader(tree.root, clock=Clock())


def entry(uid=CLAIM_A, **changes):
    return {
        "ClaimUID": uid,
        "ClaimName": "cores",
        "Namespace": "batch",
        "PodUIDs": {POD_A: {}},
        "DriverState": {},
    } | changes


def test_what_kubelet_wrote(tree, reader):
    tree.write("/var/lib/kubelet/dra_manager_state", UPSTREAM)
    snapshot = reader.read()
    assert (snapshot.readable, snapshot.problem) == (True, "")
    (claim,) = snapshot.claims.values()
    assert claim.uid == "067798be-454e-4be4-9047-1aa06aea63f7"
    assert (claim.name, claim.namespace) == ("example", "default")
    assert claim.pod_uids == {"139cdb46-f989-4f17-9561-ca10cfb509a6"}
    assert claim.cdi_ids == {"example.com/example=cdi-example"}
    assert claim.drivers == ("test-driver.cdi.k8s.io",)


@pytest.mark.parametrize(
    ("text", "checksum"), [("[]", 2361995144), ("null", 4010664294)], ids=["list", "null"]
)
def test_no_claims_is_readable(text, checksum):
    # Checksums as kubelet stores them for an empty node.
    data = (
        '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1",'
        f'"ClaimInfoStateList":{text}}}'
    )
    snapshot = parse_checkpoint(json.dumps({"Data": data, "Checksum": checksum}).encode())
    assert (snapshot.readable, dict(snapshot.claims)) == (True, {})


def test_drivers_and_devices_are_merged_and_nulls_are_empty(tree, reader):
    device = {"PoolName": "p", "DeviceName": "d", "ShareID": None, "RequestNames": None}
    tree.checkpoint(
        [
            entry(
                DriverState={
                    "dra.cpu": {
                        "Devices": [
                            device | {"CDIDeviceIDs": ["a/b=1", "a/b=2"]},
                            device | {"CDIDeviceIDs": None},
                        ]
                    },
                    "a.gpu": {"Devices": [device | {"CDIDeviceIDs": ["c/d=1"]}]},
                }
            ),
            entry(CLAIM_B, PodUIDs=None, DriverState=None),
        ]
    )
    claims = reader.read().claims
    assert claims[CLAIM_A].cdi_ids == {"a/b=1", "a/b=2", "c/d=1"}
    assert claims[CLAIM_A].drivers == ("a.gpu", "dra.cpu")
    assert (claims[CLAIM_B].pod_uids, claims[CLAIM_B].cdi_ids) == (frozenset(), frozenset())


def test_missing_is_unknown_not_empty(reader):
    snapshot = reader.read()
    assert snapshot.readable is False
    assert "No such file" in snapshot.problem


@pytest.mark.parametrize("length", [0, 1, 40, len(UPSTREAM) // 2, len(UPSTREAM) - 1])
def test_half_written_is_unreadable(length):
    snapshot = parse_checkpoint(UPSTREAM[:length].encode())
    assert (snapshot.readable, dict(snapshot.claims)) == (False, {})
    assert snapshot.problem


@pytest.mark.parametrize(
    "damage",
    [
        ("139cdb46", "139cdb47"),
        ("1656016162", "1656016163"),
        (r"\"Namespace\"", r"\"namespace\""),
    ],
)
def test_damage_shows_in_the_checksum(damage):
    snapshot = parse_checkpoint(UPSTREAM.replace(*damage).encode())
    assert snapshot.readable is False
    assert "checksum" in snapshot.problem


def checked(data):
    return json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}).encode()


def of(claims, **changes):
    return checked(
        json.dumps(
            {
                "kind": "DRACheckpoint",
                "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
                "ClaimInfoStateList": claims,
            }
            | changes
        )
    )


UNUSABLE = [
    (OLD.encode(), "1.31 and older"),
    (b"\xff", "not JSON"),
    (b"[]", "not a JSON object"),
    (b"{}", "no Data and Checksum"),
    (b'{"Data":"{}","Checksum":"1"}', "no Data and Checksum"),
    (b'{"Data":{},"Checksum":1}', "no Data and Checksum"),
    (b'{"Data":"{}","Checksum":true}', "no Data and Checksum"),
    (b'{"Data":"\\ud800","Checksum":1}', "half a surrogate"),
    (b"[" * 100_000, "nested too deeply"),
    (checked("[" * 100_000), "nested too deeply"),
    (checked("not json"), "Data is not JSON"),
    (of([], kind="Other"), "'Other'"),
    (of([], apiVersion="checkpoint.dra.kubelet.k8s.io/v2"), "v2"),
    (checked('{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1"}'), "has no"),
    (of({}), "not a list"),
    (of([7]), "not a JSON object"),
    (of([entry(uid="")]), "ClaimUID"),
    (of([entry(), entry()]), "twice"),
    (of([entry(ClaimName=None)]), "ClaimName"),
    (of([entry(PodUIDs=["x"])]), "PodUIDs"),
    (of([entry(DriverState={"d": []})]), "driver d"),
    (of([entry(DriverState={"d": {"Devices": [{"CDIDeviceIDs": [7]}]}})]), "CDI device id"),
]


@pytest.mark.parametrize(("data", "problem"), UNUSABLE)
def test_what_cannot_be_checked_is_not_used(data, problem):
    snapshot = parse_checkpoint(data)
    assert (snapshot.readable, dict(snapshot.claims)) == (False, {})
    assert problem in snapshot.problem


def test_unchanged_gives_the_same_object_and_a_change_is_seen(tree, reader):
    tree.checkpoint([entry()])
    first = reader.read()
    assert reader.read() is first
    tree.checkpoint([entry(), entry(CLAIM_B)])
    assert set(reader.read().claims) == {CLAIM_A, CLAIM_B}


def test_a_file_that_breaks_is_not_covered_by_what_it_was(tree, reader):
    path = tree.checkpoint([entry()])
    assert reader.read().readable
    path.write_text("{")
    assert reader.read().readable is False
    path.unlink()
    os.mkfifo(path)
    assert "FIFO" in reader.read().problem
