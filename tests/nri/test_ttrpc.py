"""ttrpc messages and both cores, against the protocol's text and the answers of a Go server."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nri_claim2core.model.errors import UsageError
from nri_claim2core.nri import ttrpc_pb2
from nri_claim2core.nri.errors import MessageTooLargeError
from nri_claim2core.nri.status import Code
from nri_claim2core.nri.ttrpc import (
    MAX_RECEIVED_DATA_BYTES,
    ClientCore,
    Ignored,
    Kind,
    Message,
    MessageDecoder,
    Refused,
    RequestReceived,
    ResponseReceived,
    ServerCore,
    Violation,
    encode,
    encode_error,
    encode_request,
    encode_response,
)

FOUR_MIB = 4 * 1024 * 1024


def test_codes_are_those_of_grpc():
    assert [code.value for code in Code] == list(range(17))
    assert (Code.UNIMPLEMENTED, Code.INTERNAL, Code.RESOURCE_EXHAUSTED) == (12, 13, 8)


# -- messages -------------------------------------------------------------------------------


def test_header_is_length_stream_type_flags():
    assert encode(5, Kind.REQUEST, b"abc", flags=1) == bytes.fromhex(
        "00000003 00000005 01 01616263"
    )


messages_strategy = st.lists(
    st.builds(
        Message,
        st.integers(0, 0xFFFFFFFF),
        st.integers(0, 255),
        st.integers(0, 255),
        st.binary(max_size=40),
        st.just(0),
    ),
    max_size=8,
)


@given(messages=messages_strategy, cuts=st.lists(st.integers(0, 400), max_size=10))
def test_messages_do_not_depend_on_how_the_stream_is_cut(messages, cuts):
    data = b"".join(encode(m.stream_id, m.kind, m.data, m.flags) for m in messages)
    decoder, found, last = MessageDecoder(), [], 0
    for cut in [*sorted(cuts), len(data)]:
        if cut > last:
            found += decoder.feed(memoryview(data)[last:cut])
            last = cut
    assert found == messages
    assert decoder.at_boundary
    assert decoder.held_bytes == 0


def test_every_end_inside_a_message_is_noticed():
    data = encode(1, Kind.REQUEST, b"abcd")
    for size in range(1, len(data)):
        decoder = MessageDecoder()
        assert decoder.feed(data[:size]) == []
        assert not decoder.at_boundary, size


def test_a_message_too_long_is_reported_at_its_header_and_skipped():
    decoder = MessageDecoder(max_bytes=100)
    long = encode(3, Kind.REQUEST, bytes(101))
    assert decoder.feed(long[:10]) == [Message(3, 1, 0, b"", 101)]
    assert decoder.feed(long[10:60]) == []
    assert not decoder.at_boundary
    assert decoder.feed(long[60:] + encode(5, 1, b"x")) == [Message(5, 1, 0, b"x")]
    assert decoder.at_boundary
    assert decoder.feed(long + encode(5, 1, b"x")) == [
        Message(3, 1, 0, b"", 101),
        Message(5, 1, 0, b"x"),
    ]


def test_the_longest_message_is_read():
    decoder = MessageDecoder(max_bytes=100)
    assert decoder.feed(encode(3, 1, bytes(100))) == [Message(3, 1, 0, bytes(100))]


def test_sixteen_mib_of_an_old_runtime_are_read_and_then_forgotten():
    decoder = MessageDecoder()
    data = encode(1, 1, bytes(MAX_RECEIVED_DATA_BYTES))
    found = []
    for start in range(0, len(data), 1 << 20):
        found += decoder.feed(data[start : start + (1 << 20)])
    assert [len(message.data) for message in found] == [16 * 1024 * 1024]
    assert decoder.held_bytes == 0


@pytest.mark.parametrize("length", [MAX_RECEIVED_DATA_BYTES, 0xFFFFFFFF])
def test_an_announced_length_costs_no_memory(length):
    decoder = MessageDecoder()
    tracemalloc.start()
    try:
        decoder.feed(struct.pack(">IIBB", length, 1, 1, 0))
        for _ in range(50):
            decoder.feed(bytes(1000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_a_long_message_in_small_pieces_is_collected_in_linear_memory():
    decoder = MessageDecoder()
    piece = bytes(4096)
    decoder.feed(struct.pack(">IIBB", 1 << 20, 1, 1, 0))
    for _ in range(255):
        decoder.feed(piece)
    assert decoder.held_bytes == 10 + 255 * 4096
    (message,) = decoder.feed(piece)
    assert message.data == bytes(1 << 20)


# -- envelopes -------------------------------------------------------------------------------


@given(payload=st.binary(max_size=300))
def test_the_answer_written_by_hand_is_what_protobuf_writes(payload):
    expected = ttrpc_pb2.Response(payload=payload).SerializeToString()
    assert encode_response(7, payload) == encode(7, Kind.RESPONSE, expected)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 2097151, 2097152])
def test_lengths_at_the_edges_of_a_varint(size):
    expected = ttrpc_pb2.Response(payload=bytes(size)).SerializeToString()
    assert encode_response(7, bytes(size)) == encode(7, Kind.RESPONSE, expected)


# 5 bytes of tag and length go with a payload of this size.
def test_four_mib_are_the_limit_of_what_is_sent():
    assert len(encode_response(1, bytes(FOUR_MIB - 5))) == 10 + FOUR_MIB
    with pytest.raises(MessageTooLargeError, match="4194305 bytes exceeds 4194304"):
        encode_response(1, bytes(FOUR_MIB - 4))
    with pytest.raises(MessageTooLargeError, match="request UpdateContainers"):
        encode_request(1, "s", "UpdateContainers", bytes(FOUR_MIB))
    assert len(encode_response(1, bytes(FOUR_MIB), max_bytes=FOUR_MIB * 2)) > FOUR_MIB


def test_an_error_is_a_status_without_payload():
    data = encode_error(9, 2, "no")
    assert data == bytes.fromhex("00000008 00000009 0200 0a06 0802 1202") + b"no"


def test_an_error_can_say_anything():
    data = encode_error(1, 2, "\udcff" + "x" * 100_000)
    assert len(data) < 4096 + 64
    assert ttrpc_pb2.Response.FromString(data[10:]).status.message.startswith("?xxx")


@pytest.mark.parametrize("status", [0, -1, 1 << 31, 1 << 40])
def test_a_status_that_is_no_errors_is_unknown(status):
    assert ttrpc_pb2.Response.FromString(encode_error(1, status, "no")[10:]).status.code == 2


# -- client -----------------------------------------------------------------------------------


def response(stream_id, **fields):
    return Message(stream_id, 2, 0, ttrpc_pb2.Response(**fields).SerializeToString())


def test_stream_ids_are_odd_and_rise():
    client = ClientCore()
    assert [client.call("s", "m", b"", 0)[0] for _ in range(4)] == [1, 3, 5, 7]
    assert client.pending == (1, 3, 5, 7)


def test_answers_are_matched_by_id_in_any_order():
    client = ClientCore()
    for _ in range(3):
        client.call("s", "m", b"", 0)
    for stream_id in (5, 1, 3):
        event = client.receive(response(stream_id, payload=b"%d" % stream_id))
        assert event == ResponseReceived(stream_id, 0, "", b"%d" % stream_id)
    assert client.pending == ()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message(1, 2, 0, b""), ResponseReceived(1, 0, "", b"")),
        (response(1, status=ttrpc_pb2.Status()), ResponseReceived(1, 0, "", b"")),
        (
            response(1, status=ttrpc_pb2.Status(code=12, message="method x")),
            ResponseReceived(1, 12, "method x", b""),
        ),
        (Message(1, 2, 0, b"\xff"), ResponseReceived),
        (Message(1, 2, 0, b"", 1 << 30), ResponseReceived),
        (Message(3, 2, 0, b""), Ignored),
        (Message(2, 2, 0, b""), Ignored),
        (Message(1, 1, 0, b""), Ignored),
        (Message(1, 77, 0, b""), Ignored),
        (Message(1, 3, 0, b""), Violation),
    ],
)
def test_what_a_client_makes_of_a_message(message, expected):
    client = ClientCore()
    client.call("s", "m", b"", 0)
    event = client.receive(message)
    if isinstance(expected, type):
        assert isinstance(event, expected)
    else:
        assert event == expected
    assert client.pending == (() if isinstance(event, ResponseReceived) else (1,))


def test_damaged_and_oversized_answers_fail_their_call_only():
    client = ClientCore()
    client.call("s", "m", b"", 0)
    client.call("s", "m", b"", 0)
    assert client.receive(Message(1, 2, 0, b"\xff")).status == 13
    assert client.receive(Message(3, 2, 0, b"", 1 << 30)).status == 8


def test_a_late_answer_is_ignored():
    client = ClientCore()
    stream_id, _ = client.call("s", "m", b"", 0)
    client.forget(stream_id)
    client.forget(stream_id)
    assert isinstance(client.receive(response(stream_id)), Ignored)
    assert client.call("s", "m", b"", 0)[0] == 3


def test_a_call_that_cannot_be_sent_takes_no_id():
    client = ClientCore()
    with pytest.raises(MessageTooLargeError):
        client.call("s", "m", bytes(FOUR_MIB), 0)
    assert client.pending == ()
    assert client.call("s", "m", b"", 0)[0] == 1


def test_ids_run_out_before_they_wrap():
    client = ClientCore()
    client._next_id = 0xFFFFFFFF
    assert client.call("s", "m", b"", 0)[0] == 0xFFFFFFFF
    with pytest.raises(UsageError, match="stream ids"):
        client.call("s", "m", b"", 0)


# -- server -----------------------------------------------------------------------------------

METHODS = {"svc": frozenset({"Known"})}


def request(stream_id, *, flags=0, **fields):
    fields = {"service": "svc", "method": "Known"} | fields
    return Message(stream_id, 1, flags, ttrpc_pb2.Request(**fields).SerializeToString())


def test_a_request_is_handed_up_whole():
    event = ServerCore(METHODS).receive(
        request(
            1,
            payload=b"p",
            timeout_nano=7,
            metadata=[ttrpc_pb2.KeyValue(key="traceparent", value="00-1")],
        )
    )
    assert event == RequestReceived(1, "svc", "Known", b"p", 7, (("traceparent", "00-1"),))


# The table of a Go server, executed against containerd's NRI library.
@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (request(2), 3, "StreamID must be odd for client initiated streams"),
        (request(0), 3, "StreamID must be odd for client initiated streams"),
        (request(9), 3, "StreamID cannot be re-used and must increment"),
        (request(7), 3, "StreamID cannot be re-used and must increment"),
        (request(11, service="other"), 12, "service other"),
        (request(11, method="New"), 12, "method New"),
        (Message(11, 1, 0, b"\xff"), 3, "unmarshal request error: "),
        (Message(11, 3, 0, b""), 3, "StreamID is no longer active"),
        (Message(7, 3, 0, b""), 3, "StreamID is no longer active"),
        (Message(11, 1, 0, b"", 1 << 25), 8, "message length 33554432 exceeds"),
    ],
)
def test_what_a_go_server_refuses_is_refused_alike(message, code, text):
    server = ServerCore(METHODS)
    server.receive(request(9))
    event = server.receive(message)
    assert isinstance(event, Refused)
    assert (event.stream_id, event.status) == (message.stream_id, code)
    assert event.message.startswith(text)
    assert server.open_streams == {9}


@pytest.mark.parametrize("kind", [2, 0, 4, 255])
def test_other_types_are_ignored(kind):
    server = ServerCore(METHODS)
    assert isinstance(server.receive(Message(1, kind, 0, b"")), Ignored)
    assert isinstance(server.receive(request(1)), RequestReceived)


def test_stream_data_of_an_open_call_are_ignored():
    server = ServerCore(METHODS)
    server.receive(request(1))
    assert isinstance(server.receive(Message(1, 3, 1, b"")), Ignored)


def test_a_refused_id_is_used_up():
    server = ServerCore(METHODS)
    server.receive(request(5, method="New"))
    assert server.receive(request(5)).status == 3
    assert isinstance(server.receive(request(7)), RequestReceived)


def test_each_request_is_answered_once():
    server = ServerCore(METHODS)
    server.receive(request(1))
    server.receive(request(3))
    assert server.reply(3, b"")
    assert server.reply_error(1, 2, "no")
    for stream_id in (1, 3, 5):
        with pytest.raises(UsageError, match="owed no answer"):
            server.reply(stream_id, b"")
        with pytest.raises(UsageError, match="owed no answer"):
            server.reply_error(stream_id, 2, "")


def test_an_answer_too_large_is_still_owed():
    server = ServerCore(METHODS)
    server.receive(request(1))
    with pytest.raises(MessageTooLargeError):
        server.reply(1, bytes(FOUR_MIB))
    assert server.reply_error(1, 8, "too large")


def test_a_peers_words_are_repeated_in_part_only():
    event = ServerCore(METHODS).receive(request(1, method="x" * 100_000))
    assert len(event.message) < 200
