"""Frames: the layout of the Go multiplexer, and its split of messages above 4096 bytes."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nri_claim2core.nri.mux import (
    MAX_RECEIVED_FRAME_BYTES,
    MuxDecoder,
    encode_frame,
    encode_message,
)


def frame_sizes(data):
    sizes, position = [], 0
    while position < len(data):
        _, size = struct.unpack_from(">II", data, position)
        sizes.append(size)
        position += 8 + size
    assert position == len(data)
    return sizes


def joined(chunks):
    streams = {}
    for conn_id, chunk in chunks:
        streams[conn_id] = streams.get(conn_id, b"") + bytes(chunk)
    return streams


def test_a_frame_is_id_and_length_in_network_order():
    assert encode_frame(2, b"abc") == bytes.fromhex("00000002 00000003") + b"abc"


# What Go writes: a buffered first 4096 bytes, then all the rest, up to 10 + 4 MiB a frame.
@pytest.mark.parametrize(
    ("size", "frames"),
    [
        (0, [0]),
        (10, [10]),
        (4095, [4095]),
        (4096, [4096]),
        (4097, [4096, 1]),
        (4096 + 6065, [4096, 6065]),
        (4096 + 4153024, [4096, 4153024]),
        (10 + 4194304, [4096, 4190218]),
        (4096 + 4194314, [4096, 4194314]),
        (4096 + 4194315, [4096, 4194314, 1]),
    ],
)
def test_messages_are_split_as_go_splits_them(size, frames):
    message = bytes(size)
    data = encode_message(1, message)
    assert frame_sizes(data) == frames
    assert joined(MuxDecoder().feed(data)).get(1, b"") == message


def test_old_runtimes_send_frames_of_up_to_sixteen_mib():
    data = encode_message(1, bytes(10 << 20), 1 << 24)
    assert frame_sizes(data) == [4096, (10 << 20) - 4096]
    assert len(joined(MuxDecoder().feed(data))[1]) == 10 << 20


frames_strategy = st.lists(
    st.tuples(st.integers(0, 0xFFFFFFFF), st.binary(max_size=40)), max_size=12
)


@given(frames=frames_strategy, cuts=st.lists(st.integers(0, 600), max_size=12))
def test_streams_do_not_depend_on_where_the_socket_cuts(frames, cuts):
    data = b"".join(encode_frame(conn_id, payload) for conn_id, payload in frames)
    expected = {}
    for conn_id, payload in frames:
        expected[conn_id] = expected.get(conn_id, b"") + payload
    decoder, streams, last = MuxDecoder(), {}, 0
    for cut in [*sorted(cuts), len(data)]:
        for conn_id, chunk in decoder.feed(data[last:cut] if cut > last else b""):
            streams[conn_id] = streams.get(conn_id, b"") + bytes(chunk)
        last = max(last, cut)
    assert streams == {conn_id: stream for conn_id, stream in expected.items() if stream}
    assert decoder.at_boundary
    assert decoder.violation == ""


def test_every_end_inside_a_frame_is_noticed():
    data = encode_frame(1, b"abcd")
    for size in range(1, len(data)):
        decoder = MuxDecoder()
        decoder.feed(data[:size])
        assert not decoder.at_boundary, size
    decoder = MuxDecoder()
    assert decoder.at_boundary
    decoder.feed(data)
    assert decoder.at_boundary


def test_an_absurd_length_ends_the_stream_after_what_came_before():
    good = encode_frame(1, b"ok")
    bad = struct.pack(">II", 1, MAX_RECEIVED_FRAME_BYTES + 1)
    decoder = MuxDecoder()
    assert joined(decoder.feed(good + bad + good)) == {1: b"ok"}
    assert "67108865" in decoder.violation
    assert decoder.feed(good) == []


def test_an_announced_length_costs_no_memory():
    decoder = MuxDecoder()
    tracemalloc.start()
    try:
        decoder.feed(struct.pack(">II", 1, MAX_RECEIVED_FRAME_BYTES) + b"x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
