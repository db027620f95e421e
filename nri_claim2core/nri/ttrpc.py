"""ttrpc over one logical stream: messages, and the duties of client and server.

A message is `data length, stream id` (two big-endian u32), a type and a flags byte, then the
data: a `Request` or `Response` envelope. NRI uses unary calls only.

The decoder keeps what has arrived and no more, so an announced length costs nothing; a
message above the limit is reported when its header is seen and its data are skipped. The
server core refuses what a Go server refuses, with the same codes, so that a peer cannot tell
them apart. Source: ttrpc 1.2 protocol document and the behavior of its Go server.

Not here: the order of connections and frames (`connection`), what a method means.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from google.protobuf.message import DecodeError

from nri_claim2core.model.errors import UsageError
from nri_claim2core.nri import ttrpc_pb2
from nri_claim2core.nri.errors import MessageTooLargeError
from nri_claim2core.nri.status import Code

HEADER_BYTES = 10
MAX_SENT_DATA_BYTES = 4 << 20
"The limit of ttrpc; Go peers drop the connection above it."
MAX_RECEIVED_DATA_BYTES = 16 << 20
"Runtimes with NRI up to 0.6.1 send one Synchronize of any size, up to 16 MiB in a frame."
MAX_STREAM_ID = (1 << 32) - 1
_MAX_NAME_CHARACTERS = 120  # of a peer's own words that are repeated in an answer
_MAX_STATUS_CHARACTERS = 4096  # bounds an error whatever a handler says
_MAX_STATUS = (1 << 31) - 1  # google.rpc.Status has an int32

_HEADER = struct.Struct(">IIBB")


class Kind(enum.IntEnum):
    """Message types."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3


_REQUEST, _RESPONSE, _DATA = int(Kind.REQUEST), int(Kind.RESPONSE), int(Kind.DATA)


class Message(NamedTuple):
    """One message; where `oversize_bytes` is set, the data were too long and are skipped."""

    stream_id: int
    kind: int
    flags: int
    data: bytes
    oversize_bytes: int = 0


class RequestReceived(NamedTuple):
    """The peer calls a known method; owed exactly one reply."""

    stream_id: int
    service: str
    method: str
    payload: bytes
    timeout_ns: int
    "What is left for the answer as the caller sees it; 0 = no limit."
    metadata: tuple[tuple[str, str], ...]


class ResponseReceived(NamedTuple):
    """A call of ours was answered, or its answer cannot be read."""

    stream_id: int
    status: int
    message: str
    payload: bytes


class Refused(NamedTuple):
    """A request that the protocol refuses; `data` is the answer, to be sent as it is."""

    stream_id: int
    status: Code
    message: str
    data: bytes


class Ignored(NamedTuple):
    """Something the protocol tells to ignore; `reason` is a constant, fit to be counted."""

    reason: str
    stream_id: int


class Violation(NamedTuple):
    """The peer broke the protocol: the connection has to be closed."""

    reason: str


Event = RequestReceived | ResponseReceived | Refused | Ignored | Violation


class MessageDecoder:
    """Splits one logical stream into messages, wherever its chunks are cut."""

    __slots__ = ("_buffer", "_header", "_max_bytes", "_skip")

    def __init__(self, max_bytes: int = MAX_RECEIVED_DATA_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()  # of the current message, header first
        self._header: tuple[int, int, int, int] | None = None
        self._skip = 0  # bytes of an oversized message that have not arrived

    @property
    def at_boundary(self) -> bool:
        """Whether the stream may end here: between two messages."""
        return not self._buffer and not self._skip

    @property
    def held_bytes(self) -> int:
        """Bytes kept of a message that is not complete."""
        return len(self._buffer)

    def feed(self, chunk: bytes | memoryview) -> list[Message]:
        """Give the messages that `chunk` completes; their data are copies."""
        messages: list[Message] = []
        position, end = 0, len(chunk)
        while position < end:
            if self._skip:
                stop = min(position + self._skip, end)
                self._skip -= stop - position
                position = stop
            elif self._buffer or end - position < HEADER_BYTES:
                position = self._collect(chunk, position, messages)
            else:
                header = _HEADER.unpack_from(chunk, position)
                length, stream_id, kind, flags = header
                stop = position + HEADER_BYTES + length
                if stop <= end and length <= self._max_bytes:
                    data = bytes(chunk[position + HEADER_BYTES : stop])
                    messages.append(Message(stream_id, kind, flags, data))
                    position = stop
                else:
                    position = self._collect(chunk, position, messages)
        return messages

    # Takes what the current message (or first its header) still needs.
    def _collect(self, chunk: bytes | memoryview, position: int, messages: list[Message]) -> int:
        buffer = self._buffer
        needed = HEADER_BYTES + (self._header[0] if self._header else 0)
        stop = min(position + needed - len(buffer), len(chunk))
        buffer += chunk[position:stop]
        if len(buffer) < needed:
            return stop
        if self._header is None:
            header = _HEADER.unpack(buffer)
            length, stream_id, kind, flags = header
            if length > self._max_bytes:
                messages.append(Message(stream_id, kind, flags, b"", length))
                self._skip = length
                self._buffer = bytearray()
                return stop
            if length:
                self._header = header
                return stop
            messages.append(Message(stream_id, kind, flags, b""))
        else:
            _, stream_id, kind, flags = self._header
            with memoryview(buffer) as view:
                data = bytes(view[HEADER_BYTES:])
            messages.append(Message(stream_id, kind, flags, data))
            self._header = None
        self._buffer = bytearray()  # a new one: a long message does not stay in memory
        return stop


def encode(stream_id: int, kind: int, data: bytes, flags: int = 0) -> bytes:
    """Give one message, whatever its size."""
    return _HEADER.pack(len(data), stream_id, kind, flags) + data


def _checked(data: bytes, max_bytes: int, what: str) -> bytes:
    if len(data) > max_bytes:
        raise MessageTooLargeError(f"{what} of {len(data)} bytes exceeds {max_bytes} bytes")
    return data


def encode_request(
    stream_id: int,
    service: str,
    method: str,
    payload: bytes,
    timeout_ns: int = 0,
    *,
    max_bytes: int = MAX_SENT_DATA_BYTES,
) -> bytes:
    """Give the message of a unary call. Raises MessageTooLargeError."""
    request = ttrpc_pb2.Request(
        service=service, method=method, payload=payload, timeout_nano=timeout_ns
    )
    data = _checked(request.SerializeToString(), max_bytes, f"the request {method}")
    return encode(stream_id, _REQUEST, data)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 1 << 7:
        out.append(number & ((1 << 7) - 1) | 1 << 7)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_response(
    stream_id: int, payload: bytes, *, max_bytes: int = MAX_SENT_DATA_BYTES
) -> bytes:
    """Give the message of a successful answer. Raises MessageTooLargeError.

    Written by hand: this is `Response{payload}` and on the path of every event.
    """
    if not payload:
        return _HEADER.pack(0, stream_id, _RESPONSE, 0)
    prefix = b"\x12" + _varint(len(payload))
    length = len(prefix) + len(payload)
    if length > max_bytes:
        raise MessageTooLargeError(f"the answer of {length} bytes exceeds {max_bytes} bytes")
    return b"".join((_HEADER.pack(length, stream_id, _RESPONSE, 0), prefix, payload))


def encode_error(stream_id: int, status: int, message: str) -> bytes:
    """Give the message of a failed answer: a status and no payload, as Go sends it.

    Text that UTF-8 cannot carry (undecodable file names) is replaced, a long one cut. A number
    that is no error's is sent as UNKNOWN: 0 would be a success.
    """
    if not 0 < status <= _MAX_STATUS:
        status = Code.UNKNOWN
    text = message[:_MAX_STATUS_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
    response = ttrpc_pb2.Response(status=ttrpc_pb2.Status(code=status, message=text))
    return encode(stream_id, _RESPONSE, response.SerializeToString())


class ClientCore:
    """The calling side of one logical stream: odd rising ids, answers matched by id."""

    __slots__ = ("_next_id", "_pending")

    def __init__(self) -> None:
        self._next_id = 1
        self._pending: dict[int, str] = {}

    @property
    def pending(self) -> tuple[int, ...]:
        """Stream ids of the calls that wait for an answer, oldest first."""
        return tuple(self._pending)

    def call(
        self,
        service: str,
        method: str,
        payload: bytes,
        timeout_ns: int,
        max_bytes: int = MAX_SENT_DATA_BYTES,
    ) -> tuple[int, bytes]:
        """Give the stream id and the message of a new call.

        Raises MessageTooLargeError, and UsageError when the ids of this connection are used
        up. The caller sends in the order of the ids.
        """
        stream_id = self._next_id
        if stream_id > MAX_STREAM_ID:
            raise UsageError("all stream ids of this connection are used", hint="reconnect")
        message = encode_request(
            stream_id, service, method, payload, timeout_ns, max_bytes=max_bytes
        )
        self._next_id += 2
        self._pending[stream_id] = method
        return stream_id, message

    def forget(self, stream_id: int) -> None:
        """Stop waiting for an answer; when it comes it is ignored. ttrpc has no cancel."""
        self._pending.pop(stream_id, None)

    def receive(self, message: Message) -> Event:
        """Give the event that a message of the server is."""
        stream_id = message.stream_id
        if message.kind == _DATA:
            return Violation("stream data in answer to a unary call")
        if message.kind != _RESPONSE:
            return Ignored("message of an unknown type from a server", stream_id)
        if self._pending.pop(stream_id, None) is None:
            return Ignored("answer to a call that nobody waits for", stream_id)
        if message.oversize_bytes:
            size = f"the answer of {message.oversize_bytes} bytes is too long"
            return ResponseReceived(stream_id, Code.RESOURCE_EXHAUSTED, size, b"")
        try:
            response = ttrpc_pb2.Response.FromString(message.data)
        except DecodeError as error:
            text = f"the answer cannot be read: {error}"
            return ResponseReceived(stream_id, Code.INTERNAL, text, b"")
        status = response.status
        return ResponseReceived(stream_id, status.code, status.message, response.payload)


class ServerCore:
    """The serving side of one logical stream.

    `methods` are the methods it knows by service. Requests are owed one answer each; `reply`
    and `reply_error` refuse a second one. Calls of `receive` come from one thread; the
    replies may come from others, one at a time: the set of open streams is the only state
    they share.
    """

    __slots__ = ("_last_id", "_methods", "_open")

    def __init__(self, methods: Mapping[str, AbstractSet[str]]) -> None:
        self._methods = methods
        self._last_id = 0
        self._open: set[int] = set()

    @property
    def open_streams(self) -> frozenset[int]:
        """Stream ids that are owed an answer."""
        return frozenset(self._open)

    def receive(self, message: Message) -> Event:
        """Give the event that a message of the client is; Refused comes without its data."""
        stream_id, kind = message.stream_id, message.kind
        if kind == _REQUEST and stream_id & 1 and stream_id > self._last_id:
            self._last_id = stream_id
            return self._request(message)
        if not stream_id & 1:
            text = "StreamID must be odd for client initiated streams"
            return _refuse(stream_id, Code.INVALID_ARGUMENT, text)
        if kind == _REQUEST:
            text = "StreamID cannot be re-used and must increment"
            return _refuse(stream_id, Code.INVALID_ARGUMENT, text)
        if kind == _DATA:
            if stream_id in self._open:
                return Ignored("stream data for a unary call", stream_id)
            return _refuse(stream_id, Code.INVALID_ARGUMENT, "StreamID is no longer active")
        return Ignored("message of an unknown type from a client", stream_id)

    def _request(self, message: Message) -> Event:
        stream_id = message.stream_id
        if message.oversize_bytes:
            text = f"message length {message.oversize_bytes} exceeds the maximum message size"
            return _refuse(stream_id, Code.RESOURCE_EXHAUSTED, text)
        try:
            request = ttrpc_pb2.Request.FromString(message.data)
        except DecodeError as error:
            text = f"unmarshal request error: {error}"
            return _refuse(stream_id, Code.INVALID_ARGUMENT, text)
        service, method = request.service, request.method
        known = self._methods.get(service)
        if known is None or method not in known:
            name = f"service {service}" if known is None else f"method {method}"
            return _refuse(stream_id, Code.UNIMPLEMENTED, name[:_MAX_NAME_CHARACTERS])
        metadata = request.metadata
        self._open.add(stream_id)
        return RequestReceived(
            stream_id,
            service,
            method,
            request.payload,
            request.timeout_nano,
            tuple((pair.key, pair.value) for pair in metadata) if metadata else (),
        )

    def reply(
        self, stream_id: int, payload: bytes, *, max_bytes: int = MAX_SENT_DATA_BYTES
    ) -> bytes:
        """Give the message of a successful answer.

        Raises MessageTooLargeError (the answer is still owed) and UsageError when this
        stream is owed no answer.
        """
        message = encode_response(stream_id, payload, max_bytes=max_bytes)
        self._settle(stream_id)
        return message

    def reply_error(self, stream_id: int, status: int, message: str) -> bytes:
        """Give the message of a failed answer. Raises UsageError as `reply` does."""
        self._settle(stream_id)
        return encode_error(stream_id, status, message)

    def _settle(self, stream_id: int) -> None:
        try:
            self._open.remove(stream_id)
        except KeyError:
            raise UsageError(f"stream {stream_id} is owed no answer") from None


def _refuse(stream_id: int, status: Code, message: str) -> Refused:
    return Refused(stream_id, status, message, b"")
