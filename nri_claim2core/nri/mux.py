"""The NRI multiplexer: several byte streams over one socket. Bytes in, bytes out.

A frame is `connection id, payload length` (two big-endian u32) and the payload. There is no
opening, closing or flow control. Two properties are upheld here:

- Payload is passed on as it arrives, never collected: an announced length costs no memory,
  and a frame of an unknown connection can be dropped while it passes.
- What is sent is cut as the Go implementation cuts it. Its reader hands out one frame per
  read and fails with ENOMEM where the caller's buffer (4096 bytes) is smaller than the
  frame: so the first frame of a message has at most 4096 bytes and the second all the rest.
  Many small frames would overflow its queue of 256.
"""

from __future__ import annotations

import struct

PLUGIN_SERVICE_CONN = 1
"Connection that carries service Plugin: the runtime calls, the plugin answers."
RUNTIME_SERVICE_CONN = 2
"Connection that carries service Runtime: the plugin calls, the runtime answers."

HEADER_BYTES = 8
FIRST_FRAME_BYTES = 4096
"Size of the read buffer of Go's ttrpc, hence of the first frame of a message."
MAX_SENT_FRAME_BYTES = 10 + (4 << 20)
"Where the Go multiplexer splits since NRI 0.7.0: one ttrpc message of the maximum size."
MAX_RECEIVED_FRAME_BYTES = 64 << 20
"No runtime sends a frame above 16 MiB; a length above this means that framing is lost."

_HEADER = struct.Struct(">II")

Chunk = tuple[int, memoryview]
"Connection id and a piece of its stream; valid until the buffer fed in is reused."


class MuxDecoder:
    """Splits a socket's byte stream into chunks of the logical streams.

    `violation` is a sentence once the stream cannot be read on from, else "".
    """

    __slots__ = ("_conn_id", "_header", "_left", "violation")

    def __init__(self) -> None:
        self._conn_id = 0
        self._left = 0  # bytes of the current frame that have not arrived
        self._header = b""  # the part of a header that has arrived
        self.violation = ""

    @property
    def at_boundary(self) -> bool:
        """Whether the stream may end here: between two frames."""
        return not self._left and not self._header

    def feed(self, data: bytes | bytearray | memoryview) -> list[Chunk]:
        """Give the chunks in `data`, in order; empty frames give none.

        Chunks are views into `data`. After a violation nothing more is given.
        """
        chunks: list[Chunk] = []
        if self.violation:
            return chunks
        view = memoryview(data)
        position, end = 0, len(view)
        left = self._left
        while position < end:
            if left:
                stop = min(position + left, end)
                chunks.append((self._conn_id, view[position:stop]))
                left -= stop - position
                position = stop
                continue
            if not self._header and end - position >= HEADER_BYTES:
                self._conn_id, left = _HEADER.unpack_from(view, position)
                position += HEADER_BYTES
            else:
                missing = HEADER_BYTES - len(self._header)
                self._header += bytes(view[position : position + missing])
                position = min(position + missing, end)
                if len(self._header) < HEADER_BYTES:
                    break
                self._conn_id, left = _HEADER.unpack(self._header)
                self._header = b""
            if left > MAX_RECEIVED_FRAME_BYTES:
                self.violation = f"a frame of {left} bytes was announced"
                break
        self._left = left
        return chunks


def encode_frame(conn_id: int, payload: bytes) -> bytes:
    """Give one frame, whatever its size; messages are sent with `encode_message`."""
    return _HEADER.pack(conn_id, len(payload)) + payload


def encode_message(
    conn_id: int, message: bytes, max_frame_bytes: int = MAX_SENT_FRAME_BYTES
) -> bytes:
    """Give the frames of one ttrpc message, to be written without anything in between."""
    size = len(message)
    if size <= FIRST_FRAME_BYTES:
        return _HEADER.pack(conn_id, size) + message
    parts = [_HEADER.pack(conn_id, FIRST_FRAME_BYTES), message[:FIRST_FRAME_BYTES]]
    for start in range(FIRST_FRAME_BYTES, size, max_frame_bytes):
        rest = message[start : start + max_frame_bytes]
        parts.append(_HEADER.pack(conn_id, len(rest)))
        parts.append(rest)
    return b"".join(parts)
