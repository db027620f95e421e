"""One NRI connection without its socket: multiplexer and both ttrpc roles together.

    connection = Connection(Role.PLUGIN)
    for event in connection.receive_data(data): ...
    stream_id, data = connection.call(RUNTIME_SERVICE, "RegisterPlugin", payload)
    data = connection.reply(stream_id, payload)

Bytes that methods return are to be written in the order of the calls and in one piece: a
driver with threads holds one lock around "call or reply, then write". `receive_data` belongs
to one thread at a time and needs no lock against the others. Socket, clock and time-outs are
the driver's; so is closing after a `Violation`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from nri_claim2core.nri.events_table import PLUGIN_METHODS, RUNTIME_METHODS
from nri_claim2core.nri.mux import (
    MAX_SENT_FRAME_BYTES,
    PLUGIN_SERVICE_CONN,
    RUNTIME_SERVICE_CONN,
    MuxDecoder,
    encode_message,
)
from nri_claim2core.nri.ttrpc import (
    MAX_RECEIVED_DATA_BYTES,
    MAX_SENT_DATA_BYTES,
    ClientCore,
    Event,
    Ignored,
    Message,
    MessageDecoder,
    Refused,
    RequestReceived,
    ResponseReceived,
    ServerCore,
    Violation,
    encode_error,
)

__all__ = [
    "Connection",
    "Event",
    "Ignored",
    "Refused",
    "RequestReceived",
    "ResponseReceived",
    "Role",
    "Violation",
]


class Role(enum.Enum):
    """Which end of the connection this is."""

    PLUGIN = "plugin"
    RUNTIME = "runtime"


class Connection:
    """State of one connection, from its first byte to its end.

    `methods` (by service) replaces the methods that this end knows, to speak as an older
    peer. `max_send_bytes` and `max_frame_bytes` are lifted only to speak as runtimes before
    NRI 0.7.0, which checked no size.
    """

    def __init__(
        self,
        role: Role,
        *,
        methods: Mapping[str, AbstractSet[str]] | None = None,
        max_send_bytes: int = MAX_SENT_DATA_BYTES,
        max_receive_bytes: int = MAX_RECEIVED_DATA_BYTES,
        max_frame_bytes: int = MAX_SENT_FRAME_BYTES,
    ) -> None:
        self.role = role
        self._mux = MuxDecoder()
        self._server_decoder = MessageDecoder(max_receive_bytes)
        self._client_decoder = MessageDecoder(max_receive_bytes)
        self._client = ClientCore()
        if role is Role.PLUGIN:
            self._server_conn, self._client_conn = PLUGIN_SERVICE_CONN, RUNTIME_SERVICE_CONN
            self._server = ServerCore(PLUGIN_METHODS if methods is None else methods)
        else:
            self._server_conn, self._client_conn = RUNTIME_SERVICE_CONN, PLUGIN_SERVICE_CONN
            self._server = ServerCore(RUNTIME_METHODS if methods is None else methods)
        self._max_send_bytes = max_send_bytes
        self._max_frame_bytes = max_frame_bytes
        self._violation = ""
        self.nr_dropped_bytes = 0
        "Payload of connection ids that nobody serves, dropped as the protocol asks."

    @property
    def pending_calls(self) -> tuple[int, ...]:
        """Stream ids of our calls that wait for an answer."""
        return self._client.pending

    @property
    def open_requests(self) -> frozenset[int]:
        """Stream ids of the peer's calls that are owed an answer."""
        return self._server.open_streams

    @property
    def held_bytes(self) -> int:
        """Bytes kept of messages that are not complete."""
        return self._server_decoder.held_bytes + self._client_decoder.held_bytes

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Give the events in `data`, in order; `data` may be reused afterwards.

        A `Violation` is the last event ever given.
        """
        events: list[Event] = []
        if self._violation:
            return events
        for conn_id, chunk in self._mux.feed(data):
            if conn_id == self._server_conn:
                events += map(self._served, self._server_decoder.feed(chunk))
            elif conn_id == self._client_conn:
                for message in self._client_decoder.feed(chunk):
                    event = self._client.receive(message)
                    events.append(event)
                    if type(event) is Violation:
                        self._violation = event.reason
                        return events
            else:
                self.nr_dropped_bytes += len(chunk)
        if self._mux.violation:
            self._violation = self._mux.violation
            events.append(Violation(self._violation))
        return events

    def _served(self, message: Message) -> Event:
        event = self._server.receive(message)
        if type(event) is Refused:
            answer = encode_error(event.stream_id, event.status, event.message)
            return event._replace(data=encode_message(self._server_conn, answer))
        return event

    def eof(self) -> str:
        """Give where the peer's stream ended: "" between two messages, else what was cut."""
        if not self._mux.at_boundary:
            return "in the middle of a frame"
        if not (self._server_decoder.at_boundary and self._client_decoder.at_boundary):
            return "in the middle of a message"
        return ""

    def call(
        self, service: str, method: str, payload: bytes, timeout_ns: int = 0
    ) -> tuple[int, bytes]:
        """Give stream id and bytes of a new call; `timeout_ns` is relative, 0 = none.

        Raises MessageTooLargeError (nothing was changed).
        """
        stream_id, message = self._client.call(
            service, method, payload, timeout_ns, self._max_send_bytes
        )
        return stream_id, encode_message(self._client_conn, message, self._max_frame_bytes)

    def forget(self, stream_id: int) -> None:
        """Stop waiting for the answer to a call; a late one is ignored."""
        self._client.forget(stream_id)

    def reply(self, stream_id: int, payload: bytes) -> bytes:
        """Give the bytes of a successful answer.

        Raises MessageTooLargeError (an answer is still owed) and UsageError (none is).
        """
        message = self._server.reply(stream_id, payload, max_bytes=self._max_send_bytes)
        return encode_message(self._server_conn, message, self._max_frame_bytes)

    def reply_error(self, stream_id: int, status: int, message: str) -> bytes:
        """Give the bytes of a failed answer. Raises UsageError when none is owed."""
        return encode_message(
            self._server_conn, self._server.reply_error(stream_id, status, message)
        )
