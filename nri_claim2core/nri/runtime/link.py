"""One plugin's connection as the runtime holds it: a socket, its Connection, blocking calls.

A call is made and answered on the caller's own thread: it writes the request and reads the
socket until the answer is there, with no hand-off to another thread. Requests of the plugin
that come meanwhile are put aside in `inbox`; the endpoint serves them when the runtime's lock
is free. Between calls the endpoint watches the socket and uses `read_available`.

After a time-out, an EOF or a broken protocol the link is closed for good, `lost` says why, and
every further call raises LinkLostError.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NoReturn

from nri_claim2core.nri import ttrpc_pb2
from nri_claim2core.nri.connection import (
    Connection,
    Event,
    Refused,
    RequestReceived,
    ResponseReceived,
    Role,
    Violation,
)
from nri_claim2core.nri.errors import ConnectionLostError
from nri_claim2core.nri.events_table import PLUGIN_SERVICE
from nri_claim2core.nri.runtime.journal import PluginFailure
from nri_claim2core.nri.runtime.profiles_table import Profile

_READ_BYTES: Final = 65536
_UNLIMITED: Final = 1 << 30
_OLD_FRAME_BYTES: Final = 1 << 24  # NRI before 0.7.0

_NS_PER_S: Final = 1_000_000_000


class LinkLostError(ConnectionLostError):
    """The plugin is gone, or was given up; the text says why."""

    code = "C2C-NRI-26"


class PluginLink:
    """One plugin's connection. `index` and `name` are empty until it has registered."""

    def __init__(self, sock: socket.socket, profile: Profile) -> None:
        self.index = ""
        self.name = ""
        self.events = 0
        """Subscribed events, as a mask."""
        self.uses_state_change = not profile.has_dedicated_rpcs
        self.inbox: deque[RequestReceived] = deque()
        self.lost = ""
        self.process_id = 0
        """Of a plugin that the runtime launched, 0 for others."""
        self.nr_registrations = 0
        self.descriptor = sock.fileno()
        """Of the socket; meaningless once `lost` is set."""
        self._socket = sock
        self._connection = (
            Connection(Role.RUNTIME)
            if profile.splits_synchronize
            else Connection(
                Role.RUNTIME, max_send_bytes=_UNLIMITED, max_frame_bytes=_OLD_FRAME_BYTES
            )
        )
        self._io = threading.Lock()
        self._buffer = bytearray(_READ_BYTES)
        self._answers: dict[int, ResponseReceived] = {}

    @property
    def label(self) -> str:
        """``NN-name``; ``??-plugin`` before registration."""
        return f"{self.index or '??'}-{self.name or 'plugin'}"

    def call(self, method: str, payload: bytes, timeout_ns: int) -> bytes:
        """Call a method of the plugin and give the reply's payload.

        Blocking: until the answer, at most `timeout_ns`. Raises PluginFailure for an error
        status, MessageTooLargeError (nothing was sent), LinkLostError otherwise.
        """
        deadline_ns = time.monotonic_ns() + timeout_ns
        with self._io:
            self._check_open()
            stream_id, data = self._connection.call(PLUGIN_SERVICE, method, payload, timeout_ns)
            self._write(data, deadline_ns)
            while stream_id not in self._answers:
                self._read(deadline_ns)
            answer = self._answers.pop(stream_id)
        if answer.status:
            raise PluginFailure(self.label, answer.status, answer.message)
        return answer.payload

    def next_request(self, deadline_ns: int) -> RequestReceived:
        """Wait for a request of the plugin; raises LinkLostError. Blocking until `deadline_ns`.

        The deadline is one of `time.monotonic_ns`; it passes for a plugin that floods as well.
        """
        with self._io:
            while not self.inbox:
                self._check_open()
                self._read(deadline_ns)
        return self.inbox.popleft()

    def reply(self, stream_id: int, payload: bytes, timeout_ns: int) -> None:
        """Answer a request of the plugin; a lost link is noted and not raised."""
        self._answer(lambda: self._connection.reply(stream_id, payload), timeout_ns)

    def reply_error(self, stream_id: int, status: int, text: str, timeout_ns: int) -> None:
        """Answer a request with an error status; a lost link is noted and not raised."""
        self._answer(lambda: self._connection.reply_error(stream_id, status, text), timeout_ns)

    def read_available(self) -> None:
        """Take in what has arrived, without waiting; an EOF closes the link."""
        with self._io:
            if self.lost:
                return
            try:
                size = self._socket.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError as error:
                self._close(f"connection failed: {error.strerror}")
                return
            try:
                self._take_in(size)
            except LinkLostError:
                return

    def close(self, reason: str) -> None:
        """Close the socket, which the plugin sees as an EOF; idempotent, from any thread."""
        # Wakes a thread that waits in recv; the descriptor is closed under the lock.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with self._io:
            self._close(reason)

    def request_bytes(self, method: str, payload: bytes, timeout_ns: int) -> int:
        """Give the length of the ttrpc envelope that a call would have."""
        return ttrpc_pb2.Request(
            service=PLUGIN_SERVICE, method=method, payload=payload, timeout_nano=timeout_ns
        ).ByteSize()

    def _answer(self, encode: Callable[[], bytes], timeout_ns: int) -> None:
        with self._io:
            if not self.lost:
                try:
                    self._write(encode(), time.monotonic_ns() + timeout_ns)
                except LinkLostError:
                    return

    def _check_open(self) -> None:
        if self.lost:
            raise LinkLostError(self.lost)

    def _fail(self, reason: str) -> NoReturn:
        self._close(reason)
        raise LinkLostError(reason)

    def _close(self, reason: str) -> None:
        if not self.lost:
            self.lost = reason
            self._socket.close()

    def _write(self, data: bytes, deadline_ns: int) -> None:
        try:
            self._socket.settimeout(self._left_s(deadline_ns))
            self._socket.sendall(data)
        except TimeoutError:
            self._fail("context deadline exceeded")
        except OSError as error:
            self._fail(f"ttrpc: closed ({error.strerror})")

    def _read(self, deadline_ns: int) -> None:
        try:
            self._socket.settimeout(self._left_s(deadline_ns))
            size = self._socket.recv_into(self._buffer)
        except TimeoutError:
            self._fail("context deadline exceeded")
        except OSError as error:
            self._fail(f"ttrpc: closed ({error.strerror})")
        self._take_in(size)

    def _left_s(self, deadline_ns: int) -> float:
        left = (deadline_ns - time.monotonic_ns()) / _NS_PER_S
        if left <= 0:
            raise TimeoutError
        return left

    def _take_in(self, size: int) -> None:
        if not size:
            self._fail("ttrpc: closed")
        with memoryview(self._buffer) as view:
            events = self._connection.receive_data(view[:size])
        for event in events:
            self._take_event(event)

    def _take_event(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            self._answers[event.stream_id] = event
        elif isinstance(event, RequestReceived):
            self.inbox.append(event)
        elif isinstance(event, Refused):
            self._write(event.data, time.monotonic_ns() + _NS_PER_S)
        elif isinstance(event, Violation):
            self._fail(f"ttrpc: protocol error: {event.reason}")
