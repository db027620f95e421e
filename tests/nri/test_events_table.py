"""Events, masks and versions, against the published table of NRI and of runtimes' go.mod."""

from __future__ import annotations

import pytest

from nri_claim2core.nri import Plugin
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.events_table import (
    EVENTS,
    PLUGIN_METHODS,
    PLUGIN_SERVICE,
    RUNTIME_METHODS,
    RUNTIME_SERVICE,
    NriVersion,
    nri_version_of,
    sends_dedicated_rpcs,
    updates_are_safe,
    valid_mask,
)

# name, mask bit, carried by StateChange on old runtimes
PUBLISHED = [
    ("RUN_POD_SANDBOX", 0x0001, True),
    ("STOP_POD_SANDBOX", 0x0002, True),
    ("REMOVE_POD_SANDBOX", 0x0004, True),
    ("CREATE_CONTAINER", 0x0008, False),
    ("POST_CREATE_CONTAINER", 0x0010, True),
    ("START_CONTAINER", 0x0020, True),
    ("POST_START_CONTAINER", 0x0040, True),
    ("UPDATE_CONTAINER", 0x0080, False),
    ("POST_UPDATE_CONTAINER", 0x0100, True),
    ("STOP_CONTAINER", 0x0200, False),
    ("REMOVE_CONTAINER", 0x0400, True),
    ("UPDATE_POD_SANDBOX", 0x0800, False),
    ("POST_UPDATE_POD_SANDBOX", 0x1000, True),
    ("VALIDATE_CONTAINER_ADJUSTMENT", 0x2000, False),
]


def test_events_masks_and_carriers():
    assert [(event.name, event.mask, event.state_change) for event in EVENTS] == PUBLISHED


def test_methods_are_those_of_the_service_definition():
    services = api.DESCRIPTOR.services_by_name
    assert PLUGIN_METHODS[PLUGIN_SERVICE] == set(services["Plugin"].methods_by_name)
    assert RUNTIME_METHODS[RUNTIME_SERVICE] == set(services["Runtime"].methods_by_name)
    assert services["Plugin"].full_name == PLUGIN_SERVICE
    assert services["Runtime"].full_name == RUNTIME_SERVICE


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.rpc)
def test_types_are_those_of_the_service_definition(event):
    method = api.DESCRIPTOR.services_by_name["Plugin"].methods_by_name[event.rpc]
    assert method.input_type is event.request.DESCRIPTOR
    assert method.output_type is event.response.DESCRIPTOR
    assert event.value == api.Event.Value(event.name)
    assert callable(getattr(Plugin, event.handler))
    assert event.has_container == (event.rpc.endswith("Container") or "Adjust" in event.rpc)


@pytest.mark.parametrize(
    ("runtime", "version", "nri"),
    [
        ("containerd", "v1.7.0", "0.3.0"),
        ("containerd", "1.7.6", "0.3.0"),
        ("containerd", "v1.7.13", "0.4.0"),
        ("containerd", "v1.7.14", "0.6.0"),
        ("containerd", "v1.7.25", "0.6.1"),
        ("containerd", "v1.7.34", "0.8.0"),
        ("containerd", "v2.0.0", "0.8.0"),
        ("containerd", "v2.1.9", "0.8.0"),
        ("containerd", "2.2.0+unknown", "0.10.0"),
        ("containerd", "v2.2.7", "0.11.0"),
        ("containerd", "2.3.4+unknown", "0.12.0"),
        ("containerd", "v2.4.0-beta.0", "0.12.1"),
        ("containerd", "v3.0.0", "0.12.1"),
        ("containerd", "v1.6.30", None),
        ("containerd", "2.1.4~ds1", "0.8.0"),
        ("containerd", "", None),
        ("containerd", "devel", None),
        ("containerd", "99999999999999999999.0.0", None),
        ("cri-o", "1.26.1", "0.2.0"),
        ("cri-o", "1.26.3", "0.3.0"),
        ("cri-o", "1.26.4", "0.3.1"),
        ("cri-o", "1.27.0", "0.3.0"),
        ("cri-o", "1.28.11", "0.3.1"),
        ("cri-o", "1.29.1", "0.5.0"),
        ("cri-o", "1.30.14", "0.6.0"),
        ("cri-o", "1.31.13", "0.6.1"),
        ("cri-o", "1.32.13", "0.9.0"),
        ("cri-o", "1.33.13", "0.9.1"),
        ("cri-o", "1.34.0", "0.10.0"),
        ("cri-o", "1.36.3", "0.11.0"),
        ("cri-o", "1.37.0", "0.12.0"),
        ("docker", "29.0.0", None),
        ("Containerd", "v2.3.4", None),
    ],
)
def test_nri_version_follows_from_the_runtime(runtime, version, nri):
    found = nri_version_of(runtime, version)
    assert (None if found is None else str(found)) == nri


@pytest.mark.parametrize(
    ("said", "nri"),
    [
        ("v0.12.2", (0, 12, 2)),
        ("0.13.0", (0, 13, 0)),
        ("v0.12.1-0.20260401120000-0123456789ab", (0, 12, 0)),
        ("v0.12.0-beta.1", (0, 12, 0)),
        ("(devel)", (0, 8, 0)),
        ("", (0, 8, 0)),
    ],
)
def test_what_the_runtime_says_wins_where_it_can_be_read(said, nri):
    assert nri_version_of("containerd", "v2.1.9", said) == nri


@pytest.mark.parametrize(
    ("version", "mask"),
    [
        (None, 0x7FF),
        (NriVersion(0, 2, 0), 0x7FF),
        (NriVersion(0, 9, 0), 0x7FF),
        (NriVersion(0, 9, 1), 0x1FFF),
        (NriVersion(0, 10, 0), 0x3FFF),
        (NriVersion(0, 12, 2), 0x3FFF),
        (NriVersion(1, 0, 0), 0x3FFF),
    ],
)
def test_masks_have_no_bit_more_than_the_runtime_knows(version, mask):
    assert valid_mask(version) == mask


def test_thresholds():
    old, safe = NriVersion(0, 12, 0), NriVersion(0, 12, 1)
    assert not sends_dedicated_rpcs(NriVersion(0, 11, 0))
    assert sends_dedicated_rpcs(old)
    assert not sends_dedicated_rpcs(None)
    assert not updates_are_safe(old)
    assert updates_are_safe(safe)
    assert not updates_are_safe(None)
