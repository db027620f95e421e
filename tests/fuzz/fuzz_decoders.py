"""Fuzz target of the two decoders, multiplexer and ttrpc, and of what is made of their output.

What must hold for any bytes: no exception but the named ones, no more memory than was fed,
and the same events however the socket cuts the stream. Coverage-guided with atheris:

    python tests/fuzz/fuzz_decoders.py [-runs=N] [CORPUS]

The first byte chooses role and framing, the second the size of the pieces.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from pathlib import Path

from google.protobuf.message import DecodeError

try:
    import atheris
except ModuleNotFoundError:
    atheris = None

if __name__ == "__main__" and atheris is not None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    with atheris.instrument_imports(include=["nri_claim2core.nri"]):
        from nri_claim2core.nri import connection, events_table, mux
else:
    from nri_claim2core.nri import connection, events_table, mux

MAX_RECEIVE_BYTES = 512
"Small, so that the fuzzer finds the limit."

PLUGIN, RUNTIME = connection.Role.PLUGIN, connection.Role.RUNTIME


def frames_of(data):
    """Take the bytes as a list of messages, so that framing is right more often than not."""
    out, position = b"", 0
    while position + 3 <= len(data):
        choice, size, kind = data[position : position + 3]
        position += 3
        payload = data[position : position + size]
        position += size
        message = struct.pack(">IIBB", len(payload), choice >> 2, kind & 3, 0) + payload
        out += mux.encode_message(choice & 3, message)
    return out


def new_connection(role):
    trunk = connection.Connection(role, max_receive_bytes=MAX_RECEIVE_BYTES)
    service = events_table.RUNTIME_SERVICE if role is PLUGIN else events_table.PLUGIN_SERVICE
    for _ in range(4):
        trunk.call(service, "X", b"")
    return trunk


def check(event):
    """What a driver does with an event must not fail either."""
    if isinstance(event, connection.Refused):
        assert event.status
        assert event.data
    elif isinstance(event, connection.RequestReceived):
        spec = events_table.EVENT_OF_RPC.get(event.method)
        if spec is not None:
            with contextlib.suppress(DecodeError):
                spec.request.FromString(event.payload).SerializeToString()
    elif isinstance(event, connection.ResponseReceived):
        assert isinstance(event.payload, bytes)


def one_input(data):
    """Feed one input whole and in pieces, and compare."""
    if len(data) < 2:
        return
    role = PLUGIN if data[0] & 1 else RUNTIME
    stream = frames_of(data[2:]) if data[0] & 2 else data[2:]
    whole = new_connection(role)
    events = whole.receive_data(stream)
    for event in events:
        check(event)
    assert whole.held_bytes <= min(len(stream), MAX_RECEIVE_BYTES + 10)

    size = data[1] % 61 + 1
    pieces = new_connection(role)
    again = []
    for start in range(0, len(stream), size):
        again += pieces.receive_data(memoryview(stream)[start : start + size])
    assert again == events
    if not any(isinstance(event, connection.Violation) for event in events):
        # After one the rest of the stream means nothing, and is not read.
        assert pieces.eof() == whole.eof()
        assert pieces.held_bytes == whole.held_bytes
    for event in events:
        if isinstance(event, connection.RequestReceived):
            assert pieces.reply(event.stream_id, event.payload)


def main():
    """Fuzz until the runs given are done."""
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    if atheris is None:
        sys.exit("fuzz_decoders: atheris is not installed")
    main()
