"""Bytes recorded between the Go logger plugin and the Go runtime library: the second source."""

from __future__ import annotations

import struct

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.connection import Connection, RequestReceived, ResponseReceived, Role
from nri_claim2core.nri.events_table import PLUGIN_SERVICE, RUNTIME_SERVICE


def recorded(conn_id: int, text: str) -> bytes:
    payload = bytes.fromhex(text)
    return struct.pack(">II", conn_id, len(payload)) + payload


REGISTER = recorded(
    2,
    "0000004f00000001 0100 0a1c 6e72692e706b672e6170692e7631616c706861312e52756e74696d65"
    "120e 5265676973746572506c7567696e 1a19 0a0a6e72692d6c6f67676572 12023130"
    "1a0776302e31322e32 20c4dd85d012",
)
REGISTER_REPLY = recorded(2, "00000000 00000001 0200")
CONFIGURE = recorded(
    1,
    "00000053 00000001 0100 0a1b 6e72692e706b672e6170692e7631616c706861312e506c7567696e"
    "1209 436f6e666967757265 1a23 120a636f6e7461696e657264 1a0676322e332e30 208827 28d00f"
    "320776302e31322e32 20d3c4d3b907",
)
CONFIGURE_REPLY = recorded(1, "00000005 00000001 0200 1203 10a901")
EMPTY_REPLY = recorded(1, "00000000 00000005 0200")

# The varints after tag 0x20, by hand: least significant seven bits first.
REGISTER_TIMEOUT_NS = 0x44 + (0x5D << 7) + (0x05 << 14) + (0x50 << 21) + (0x12 << 28)
CONFIGURE_TIMEOUT_NS = 0x53 + (0x44 << 7) + (0x53 << 14) + (0x39 << 21) + (0x07 << 28)


def test_timeouts_are_five_and_two_seconds_less_a_little():
    assert 4.9e9 < REGISTER_TIMEOUT_NS < 5e9
    assert 1.9e9 < CONFIGURE_TIMEOUT_NS < 2e9


def test_plugin_registers_as_the_go_stub_does():
    plugin = Connection(Role.PLUGIN)
    request = api.RegisterPluginRequest(
        plugin_name="nri-logger", plugin_idx="10", NRI_version="v0.12.2"
    )
    stream_id, data = plugin.call(
        RUNTIME_SERVICE, "RegisterPlugin", request.SerializeToString(), REGISTER_TIMEOUT_NS
    )
    assert (stream_id, data) == (1, REGISTER)
    assert plugin.receive_data(REGISTER_REPLY) == [ResponseReceived(1, 0, "", b"")]
    assert plugin.pending_calls == ()


def test_runtime_reads_the_go_stubs_registration_and_answers_it():
    runtime = Connection(Role.RUNTIME)
    (event,) = runtime.receive_data(REGISTER)
    assert isinstance(event, RequestReceived)
    assert (event.stream_id, event.service, event.method) == (1, RUNTIME_SERVICE, "RegisterPlugin")
    assert event.timeout_ns == REGISTER_TIMEOUT_NS
    request = api.RegisterPluginRequest.FromString(event.payload)
    assert (request.plugin_name, request.plugin_idx, request.NRI_version) == (
        "nri-logger",
        "10",
        "v0.12.2",
    )
    assert runtime.reply(1, b"") == REGISTER_REPLY


def test_runtime_configures_as_the_go_library_does():
    runtime = Connection(Role.RUNTIME)
    request = api.ConfigureRequest(
        runtime_name="containerd",
        runtime_version="v2.3.0",
        registration_timeout=5000,
        request_timeout=2000,
        NRI_version="v0.12.2",
    )
    stream_id, data = runtime.call(
        PLUGIN_SERVICE, "Configure", request.SerializeToString(), CONFIGURE_TIMEOUT_NS
    )
    assert (stream_id, data) == (1, CONFIGURE)
    (event,) = runtime.receive_data(CONFIGURE_REPLY)
    assert isinstance(event, ResponseReceived)
    # Run, Create, Start, Update: bits 0, 3, 5, 7.
    assert api.ConfigureResponse.FromString(event.payload).events == 0xA9


def test_plugin_reads_configure_and_answers_as_the_go_stub_does():
    plugin = Connection(Role.PLUGIN)
    (event,) = plugin.receive_data(CONFIGURE)
    assert isinstance(event, RequestReceived)
    assert (event.service, event.method) == (PLUGIN_SERVICE, "Configure")
    assert event.timeout_ns == CONFIGURE_TIMEOUT_NS
    request = api.ConfigureRequest.FromString(event.payload)
    assert request.runtime_version == "v2.3.0"
    assert (request.registration_timeout, request.request_timeout) == (5000, 2000)
    reply = plugin.reply(1, api.ConfigureResponse(events=0xA9).SerializeToString())
    assert reply == CONFIGURE_REPLY


def test_empty_answer_is_a_bare_header():
    plugin, runtime = Connection(Role.PLUGIN), Connection(Role.RUNTIME)
    for stream_id in (1, 3, 5):
        plugin.receive_data(runtime.call(PLUGIN_SERVICE, "StateChange", b"")[1])
        reply = plugin.reply(stream_id, b"")
    assert reply == EMPTY_REPLY


def test_state_change_has_the_event_before_the_pod():
    event = api.StateChangeEvent(event=api.Event.RUN_POD_SANDBOX, pod=api.PodSandbox(id="p" * 23))
    assert event.SerializeToString().startswith(bytes.fromhex("0801 1219"))
