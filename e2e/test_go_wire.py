"""The sans-IO core alone against the real Go NRI runtime library: framing, masks, fallbacks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.peers.go_runtime import GoRuntime
from e2e.peers.need import need_go_peers, short_directory
from e2e.peers.wire import WirePlugin
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.events_table import PLUGIN_METHODS, PLUGIN_SERVICE

POD = api.PodSandbox(id="pod-1", name="web", uid="uid-1", namespace="default")
CONTAINER = api.Container(id="ctr-1", pod_sandbox_id="pod-1", name="main", env=["A=1"])

# From the NRI protocol definition: the events that existed only as StateChange before 0.12.
STATE_CHANGE_ONLY_BEFORE_0_12 = frozenset(
    {
        "RunPodSandbox",
        "StopPodSandbox",
        "RemovePodSandbox",
        "PostCreateContainer",
        "StartContainer",
        "PostStartContainer",
        "PostUpdateContainer",
        "RemoveContainer",
        "PostUpdatePodSandbox",
    }
)


@pytest.fixture
def directory() -> Iterator[Path]:
    need_go_peers()
    with short_directory() as path:
        yield path


@pytest.fixture
def runtime(directory: Path) -> Iterator[GoRuntime]:
    with GoRuntime(directory / "nri.sock", trace=True) as go:
        assert go.start().ok
        yield go


@pytest.mark.parametrize("mask", [0x8, 0xA9, 0x7FF, 0x1FFF, 0x3FFF])
def test_mask_within_the_known_events_is_taken(runtime, mask):
    with WirePlugin(runtime.socket_path, mask=mask):
        runtime.wait_registered("50-wire")
    assert runtime.wait_event("configured")["mask"] == mask


def test_mask_with_one_bit_too_many_is_refused(runtime):
    with WirePlugin(runtime.socket_path, mask=0x8 | 0x4000) as plugin:
        said = runtime.wait_event("log", where=lambda line: line["level"] == "error")
        while "invalid plugin events" not in said["text"]:
            said = runtime.wait_event("log", after=runtime.events.index(said) + 1)
        assert "0x4000" in said["text"]
        assert plugin.ended.wait(10)
    assert [method for method, _ in plugin.requests] == ["Configure"]


def test_unimplemented_events_come_again_as_state_change(runtime):
    """Code 12 must be on the wire as Go's client understands it."""
    known = PLUGIN_METHODS[PLUGIN_SERVICE] - STATE_CHANGE_ONLY_BEFORE_0_12
    with WirePlugin(runtime.socket_path, mask=0x1FFF, methods=known) as plugin:
        runtime.wait_registered("50-wire")
        for command in ("run_pod", "start_container", "post_start", "remove", "remove_pod"):
            reply = runtime.relay(command, POD, CONTAINER)
            assert (reply.ok, reply.plugins) == (True, 1)
    events = [
        api.StateChangeEvent.FromString(payload)
        for method, payload in plugin.requests
        if method == "StateChange"
    ]
    assert [api.Event.Name(event.event) for event in events] == [
        "RUN_POD_SANDBOX",
        "START_CONTAINER",
        "POST_START_CONTAINER",
        "REMOVE_CONTAINER",
        "REMOVE_POD_SANDBOX",
    ]
    assert events[1].container.id == "ctr-1"
    # The library stops trying after the first refusal.
    assert plugin.refused == ["method RunPodSandbox"]
    assert runtime.wait_event("deprecated")["plugin"] == "50-wire"


@pytest.mark.parametrize(
    "size", [0, 4_000, 4_040, 4_096, 5_000, 8_192, 100_000, 2_000_000, 4_100_000]
)
def test_replies_of_any_size_arrive_complete(runtime, size):
    """4096 bytes is where Go's reader drops a plugin that frames in another way."""
    value = "".join(chr(ord("a") + index % 26) for index in range(size))
    response = api.CreateContainerResponse()
    response.adjust.annotations["claim2core/value"] = value
    answers = {"CreateContainer": lambda _: response.SerializeToString()}
    with WirePlugin(runtime.socket_path, mask=0x8, answers=answers):
        runtime.wait_registered("50-wire")
        reply = runtime.relay("create", POD, CONTAINER)
        assert (reply.ok, reply.error, reply.plugins) == (True, "", 1)
        assert reply.adjust.annotations["claim2core/value"] == value
        # The library applied it as well, and the connection still works.
        assert reply.container.annotations["claim2core/value"] == value
        assert runtime.relay("create", POD, CONTAINER).plugins == 1


def test_each_reply_size_around_the_frame_border(runtime):
    """One byte more or less around 4096 must not matter: header, envelope and payload."""
    wanted: list[int] = []

    def answer(_: bytes) -> bytes:
        response = api.CreateContainerResponse()
        response.adjust.annotations["k"] = "v" * wanted[-1]
        return response.SerializeToString()

    with WirePlugin(runtime.socket_path, mask=0x8, answers={"CreateContainer": answer}):
        runtime.wait_registered("50-wire")
        for size in range(4_040, 4_110):
            wanted.append(size)
            reply = runtime.relay("create", POD, CONTAINER)
            assert (size, reply.plugins) == (size, 1)
            assert reply.adjust.annotations["k"] == "v" * size


def test_explicit_zeros_survive_both_ways(runtime):
    """A wrapper that is present and empty means "set to zero"; absent means "not set"."""
    response = api.CreateContainerResponse()
    response.adjust.linux.resources.cpu.quota.value = 0
    response.adjust.linux.oom_score_adj.value = 0
    sent = response.SerializeToString()
    with WirePlugin(
        runtime.socket_path, mask=0x88, answers={"CreateContainer": lambda _: sent}
    ) as plugin:
        runtime.wait_registered("50-wire")
        reply = runtime.relay("create", POD, CONTAINER)
        resources = api.LinuxResources()
        resources.cpu.shares.value = 0
        assert runtime.relay("update", POD, CONTAINER, resources=resources).ok
    assert reply.adjust.linux.resources.cpu.HasField("quota")
    assert not reply.adjust.linux.resources.cpu.HasField("period")
    assert reply.adjust.linux.HasField("oom_score_adj")
    method, payload = plugin.requests[-1]
    assert method == "UpdateContainer"
    update = api.UpdateContainerRequest.FromString(payload)
    assert update.linux_resources.cpu.HasField("shares")
    assert not update.linux_resources.cpu.HasField("quota")


@pytest.mark.parametrize(
    ("name", "index", "complaint"),
    [("bad name", "50", "invalid name"), ("wire", "5", "invalid index"), ("wire", "5x", "index")],
)
def test_wrong_identity_is_refused_by_the_library(runtime, name, index, complaint):
    with WirePlugin(runtime.socket_path, mask=0x8, name=name, index=index) as plugin:
        line = runtime.wait_event("log", where=lambda line: complaint in line["text"])
        assert line["level"] == "error"
        assert plugin.requests == []


def test_split_synchronize_arrives_complete(runtime):
    state = runtime.generate_state(200, size_bytes=50_000)
    assert state.line["container_bytes"] > 9_900_000
    with WirePlugin(runtime.socket_path, mask=0x8) as plugin:
        runtime.wait_registered("50-wire")
    parts = [
        api.SynchronizeRequest.FromString(payload)
        for method, payload in plugin.requests
        if method == "Synchronize"
    ]
    assert len(parts) >= 3
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    got = [container.id for part in parts for container in part.containers]
    # As the runtime program numbers them: see its generateContainer.
    assert got == [f"{(0xC0 << 32) + index:064x}" for index in range(200)]


def test_plugin_that_answers_a_part_wrongly_is_dropped(runtime):
    """The rule that makes echoing `more` necessary is the library's own."""
    runtime.generate_state(200, size_bytes=50_000)
    with WirePlugin(
        runtime.socket_path, mask=0x8, answers={"Synchronize": lambda _: b""}
    ) as plugin:
        line = runtime.wait_event("synchronized", where=lambda line: bool(line["error"]))
        assert "split sync" in line["error"]
        assert plugin.ended.wait(10)


def test_late_answer_costs_the_connection_and_the_container_goes_ahead(directory):
    """Why handlers need a deadline of their own: this is what the library does without."""
    release = threading.Event()

    def late(_: bytes) -> bytes:
        release.wait(60)
        response = api.CreateContainerResponse()
        response.adjust.linux.resources.cpu.cpus = "0"
        return response.SerializeToString()

    with GoRuntime(directory / "nri.sock", request_timeout_s=0.3) as go:
        go.start()
        try:
            with WirePlugin(go.socket_path, mask=0x8, answers={"CreateContainer": late}):
                go.wait_registered("50-wire")
                reply = go.relay("create", POD, CONTAINER)
                assert (reply.ok, reply.plugins) == (True, 0)
                assert reply.adjust.linux.resources.cpu.cpus == ""
                closing = go.wait_event("closing")
                assert (closing["plugin"], closing["request"]) == ("50-wire", "CreateContainer")
                release.set()
        finally:
            release.set()
