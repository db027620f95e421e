"""A trunk with both roles: cuts anywhere, drops, interleaving, and its ends."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.connection import (
    Connection,
    Ignored,
    Refused,
    RequestReceived,
    ResponseReceived,
    Role,
    Violation,
)
from nri_claim2core.nri.errors import MessageTooLargeError
from nri_claim2core.nri.events_table import PLUGIN_SERVICE, RUNTIME_SERVICE
from nri_claim2core.nri.mux import encode_frame
from tests.nri.helpers import raw_message


def pair():
    return Connection(Role.PLUGIN), Connection(Role.RUNTIME)


def create_request(size):
    container = api.Container(id="c", env=["X=" + "y" * size])
    return api.CreateContainerRequest(container=container).SerializeToString()


@pytest.mark.parametrize("size", [0, 1000, 4000, 5000, 100_000, 2_000_000, 4_100_000])
def test_answers_of_any_size_arrive_complete(size):
    plugin, runtime = pair()
    _, data = runtime.call(PLUGIN_SERVICE, "CreateContainer", b"")
    plugin.receive_data(data)
    payload = create_request(size)
    (event,) = runtime.receive_data(plugin.reply(1, payload))
    assert event == ResponseReceived(1, 0, "", payload)


def test_every_two_piece_cut_gives_the_same_events():
    runtime = Connection(Role.RUNTIME)
    data = b"".join(
        runtime.call(PLUGIN_SERVICE, "CreateContainer", create_request(size), 5)[1]
        for size in (0, 30, 60)
    )
    expected = Connection(Role.PLUGIN).receive_data(data)
    assert len(expected) == 3
    for cut in range(len(data) + 1):
        plugin = Connection(Role.PLUGIN)
        assert plugin.receive_data(data[:cut]) + plugin.receive_data(data[cut:]) == expected


def test_byte_by_byte():
    plugin, runtime = pair()
    _, data = runtime.call(PLUGIN_SERVICE, "CreateContainer", create_request(5000))
    buffer, events = bytearray(1), []
    for byte in data:
        buffer[0] = byte  # the driver reuses its buffer
        events += plugin.receive_data(memoryview(buffer))
    assert [event.payload for event in events] == [create_request(5000)]


def test_the_end_at_every_byte_is_told_apart_from_a_clean_one():
    runtime = Connection(Role.RUNTIME)
    _, data = runtime.call(PLUGIN_SERVICE, "CreateContainer", create_request(5000))
    boundaries = {0, len(data)}
    between_frames = 8 + 4096  # the message goes on in a second frame
    for cut in [*range(40), *range(4090, 4130), len(data) - 1, len(data)]:
        plugin = Connection(Role.PLUGIN)
        plugin.receive_data(data[:cut])
        where = plugin.eof()
        if cut in boundaries:
            assert where == "", cut
        elif cut == between_frames:
            assert where == "in the middle of a message"
        else:
            assert where == "in the middle of a frame", cut


def test_frames_of_both_streams_may_interleave():
    plugin, runtime = pair()
    _, call = plugin.call(RUNTIME_SERVICE, "UpdateContainers", b"")
    runtime.receive_data(call)
    answer = runtime.reply(1, b"a" * 5000)
    _, event = runtime.call(PLUGIN_SERVICE, "CreateContainer", create_request(6000))
    first, second = 8 + 4096, 8 + 4096
    mixed = answer[:first] + event[:second] + answer[first:] + event[second:]
    events = plugin.receive_data(mixed)
    assert [type(event) for event in events] == [ResponseReceived, RequestReceived]
    assert events[0].payload == b"a" * 5000
    assert events[1].payload == create_request(6000)


def test_registration_reply_and_configure_in_either_order():
    for reply_first in (True, False):
        plugin, runtime = pair()
        runtime.receive_data(plugin.call(RUNTIME_SERVICE, "RegisterPlugin", b"")[1])
        parts = [
            runtime.reply(1, b""),
            runtime.call(PLUGIN_SERVICE, "Configure", b"")[1],
        ]
        events = plugin.receive_data(b"".join(parts if reply_first else reversed(parts)))
        kinds = [ResponseReceived, RequestReceived]
        assert [type(event) for event in events] == (kinds if reply_first else kinds[::-1])


def test_unknown_connections_are_dropped_and_the_rest_goes_on():
    plugin, runtime = pair()
    noise = b"".join(encode_frame(conn_id, b"noise") for conn_id in (0, 3, 0xFFFFFFFF))
    _, data = runtime.call(PLUGIN_SERVICE, "StopContainer", b"")
    events = plugin.receive_data(noise + data + noise)
    assert [type(event) for event in events] == [RequestReceived]
    assert plugin.nr_dropped_bytes == 30


def test_empty_frames_are_harmless():
    plugin, runtime = pair()
    _, data = runtime.call(PLUGIN_SERVICE, "CreateContainer", create_request(5000))
    empty = encode_frame(1, b"")
    cut = 8 + 4096
    events = plugin.receive_data(empty * 500 + data[:cut] + empty * 500 + data[cut:])
    assert [event.payload for event in events] == [create_request(5000)]


def test_a_refusal_comes_with_its_answer_on_the_wire():
    plugin, runtime = pair()
    runtime.call(PLUGIN_SERVICE, "X", b"")
    (event,) = plugin.receive_data(runtime.call(PLUGIN_SERVICE, "NewEvent", b"")[1])
    assert isinstance(event, Refused)
    assert runtime.receive_data(event.data) == [ResponseReceived(3, 12, "method NewEvent", b"")]
    assert plugin.open_requests == frozenset()


def test_each_end_serves_only_its_own_methods():
    plugin, runtime = pair()
    (event,) = plugin.receive_data(runtime.call(RUNTIME_SERVICE, "RegisterPlugin", b"")[1])
    assert event.status == 12
    (event,) = runtime.receive_data(plugin.call(PLUGIN_SERVICE, "Configure", b"")[1])
    assert event.status == 12


def test_an_older_peer_knows_fewer_methods():
    plugin = Connection(Role.PLUGIN, methods={PLUGIN_SERVICE: frozenset({"StateChange"})})
    runtime = Connection(Role.RUNTIME)
    (event,) = plugin.receive_data(runtime.call(PLUGIN_SERVICE, "StartContainer", b"")[1])
    assert (event.status, event.message) == (12, "method StartContainer")


def test_streaming_an_answer_breaks_the_protocol():
    plugin, _ = pair()
    plugin.call(RUNTIME_SERVICE, "RegisterPlugin", b"")
    events = plugin.receive_data(raw_message(2, 1, 3) + raw_message(2, 1, 2))
    assert [type(event) for event in events] == [Violation]
    assert plugin.receive_data(raw_message(2, 1, 2)) == []


def test_lost_framing_breaks_the_protocol_after_what_came_before():
    plugin, runtime = pair()
    _, data = runtime.call(PLUGIN_SERVICE, "StopContainer", b"")
    events = plugin.receive_data(data + struct.pack(">II", 1, 1 << 31))
    assert [type(event) for event in events] == [RequestReceived, Violation]
    assert plugin.receive_data(data) == []


def test_a_giant_message_is_answered_and_the_connection_goes_on():
    plugin, runtime = pair()
    loud = Connection(Role.RUNTIME, max_send_bytes=1 << 30)
    giant = loud.call(PLUGIN_SERVICE, "CreateContainer", bytes((16 << 20) + 1))[1]
    runtime.call(PLUGIN_SERVICE, "CreateContainer", b"")
    (event,) = plugin.receive_data(giant)
    assert isinstance(event, Refused)
    (answer,) = runtime.receive_data(event.data)
    assert (answer.stream_id, answer.status) == (1, 8)
    assert plugin.held_bytes == 0
    (event,) = plugin.receive_data(runtime.call(PLUGIN_SERVICE, "StopContainer", b"")[1])
    assert isinstance(event, RequestReceived)


def test_ten_mib_of_an_old_runtime_are_accepted():
    plugin = Connection(Role.PLUGIN)
    old = Connection(Role.RUNTIME, max_send_bytes=1 << 24, max_frame_bytes=1 << 24)
    (event,) = plugin.receive_data(old.call(PLUGIN_SERVICE, "Synchronize", bytes(10 << 20))[1])
    assert len(event.payload) == 10 << 20


def test_nothing_above_four_mib_is_sent():
    plugin, runtime = pair()
    with pytest.raises(MessageTooLargeError):
        plugin.call(RUNTIME_SERVICE, "UpdateContainers", bytes(4 << 20))
    plugin.receive_data(runtime.call(PLUGIN_SERVICE, "CreateContainer", b"")[1])
    with pytest.raises(MessageTooLargeError):
        plugin.reply(1, bytes(4 << 20))
    assert plugin.open_requests == {1}


def test_late_answers_and_unknown_types_are_ignored():
    plugin, _ = pair()
    stream_id, _ = plugin.call(RUNTIME_SERVICE, "UpdateContainers", b"")
    plugin.forget(stream_id)
    events = plugin.receive_data(raw_message(2, stream_id, 2) + raw_message(1, 1, 9))
    assert [type(event) for event in events] == [Ignored, Ignored]
    assert plugin.pending_calls == ()


# Presence of an empty sub-message is the difference between "not set" and "set to zero", and
# a plugin must not lose the fields of a newer runtime.
def test_empty_sub_messages_and_unknown_fields_survive():
    unknown = bytes.fromhex("fa3e03616263")  # field 1007, "abc"
    container = bytes.fromhex("5a04 1a02 1200") + unknown  # linux{resources{cpu{}}}
    request = api.CreateContainerRequest.FromString(
        b"\x12" + bytes([len(container)]) + container + unknown
    )
    cpu = request.container.linux.resources
    assert cpu.HasField("cpu")
    assert not cpu.HasField("memory")
    again = request.SerializeToString()
    assert again == b"\x12" + bytes([len(container)]) + container + unknown
    copy = api.CreateContainerRequest(container=request.container)
    assert copy.container.SerializeToString() == container


@settings(max_examples=200)
@given(data=st.binary(max_size=400))
@pytest.mark.parametrize("role", list(Role))
def test_noise_gives_events_or_a_violation_and_bounded_memory(role, data):
    connection = Connection(role)
    connection.call(RUNTIME_SERVICE, "UpdateContainers", b"")
    for event in connection.receive_data(data):
        assert isinstance(event, RequestReceived | ResponseReceived | Refused | Ignored | Violation)
    assert connection.held_bytes <= len(data)
    connection.eof()
