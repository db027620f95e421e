"""A scripted runtime on the other end of a socket, and a record of what a session told.

The script decides every byte and its order; nothing here sleeps. Time-outs only bound a test
that already failed.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections import deque
from contextlib import contextmanager, suppress

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri import Observer
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.connection import Connection, RequestReceived, ResponseReceived, Role
from nri_claim2core.nri.events_table import PLUGIN_SERVICE
from nri_claim2core.nri.session import Session
from nri_claim2core.nri.ttrpc import encode

GIVE_UP_S = 20.0
TWO_SECONDS_NS = 2_000_000_000


class Peer:
    """A runtime that does what the test says."""

    def __init__(self, sock, **limits):
        self.sock = sock
        sock.settimeout(GIVE_UP_S)
        self.connection = Connection(Role.RUNTIME, **limits)
        self._events = deque()

    def send(self, data):
        self.sock.sendall(data)

    def next_event(self):
        """The next event from the plugin; None at the end of the stream."""
        while not self._events:
            data = self.sock.recv(1 << 16)
            if not data:
                return None
            self._events.extend(self.connection.receive_data(data))
        return self._events.popleft()

    def expect_closed(self):
        with suppress(ConnectionResetError):  # closed with bytes of ours unread
            assert self.next_event() is None

    def start_call(self, method, message=None, timeout_ns=TWO_SECONDS_NS):
        payload = b"" if message is None else message.SerializeToString()
        stream_id, data = self.connection.call(PLUGIN_SERVICE, method, payload, timeout_ns)
        self.send(data)
        return stream_id

    def answer_of(self, stream_id):
        event = self.next_event()
        assert isinstance(event, ResponseReceived), event
        assert event.stream_id == stream_id
        return event

    def call(self, method, message=None, timeout_ns=TWO_SECONDS_NS):
        return self.answer_of(self.start_call(method, message, timeout_ns))

    def take_registration(self):
        event = self.next_event()
        assert isinstance(event, RequestReceived), event
        assert event.method == "RegisterPlugin"
        return event

    def accept_registration(self):
        event = self.take_registration()
        self.send(self.connection.reply(event.stream_id, b""))
        return api.RegisterPluginRequest.FromString(event.payload)

    def configure(self, **fields):
        request = {
            "runtime_name": "containerd",
            "runtime_version": "v2.3.4",
            "registration_timeout": 5000,
            "request_timeout": 2000,
            "NRI_version": "v0.12.0",
        }
        answer = self.call("Configure", api.ConfigureRequest(**(request | fields)))
        assert answer.status == 0, answer
        return api.ConfigureResponse.FromString(answer.payload).events

    def synchronize(self, pods=(), containers=(), *, more=False):
        request = api.SynchronizeRequest(pods=pods, containers=containers, more=more)
        answer = self.call("Synchronize", request)
        assert answer.status == 0, answer
        return api.SynchronizeResponse.FromString(answer.payload)

    def set_up(self, **fields):
        """Everything up to the first event; gives the mask."""
        self.accept_registration()
        mask = self.configure(**fields)
        self.synchronize()
        return mask

    def close(self):
        self.sock.close()


def raw_message(conn_id, stream_id, kind, data=b"", flags=0, *, length=None):
    """One frame with one message, lies about its length included."""
    message = encode(stream_id, kind, data, flags)
    if length is not None:
        message = struct.pack(">I", length) + message[4:]
    return struct.pack(">II", conn_id, len(message)) + message


class Recorder(Observer):
    """Notes what it is told; `await_x` blocks until it was told."""

    def __init__(self):
        self.told = queue.SimpleQueue()
        self.requests = []

    def on_unreachable(self, reason):
        self.told.put(("unreachable", reason))

    def on_connected(self):
        self.told.put(("connected", None))

    def on_registered(self, registration):
        self.told.put(("registered", registration))

    def on_synchronized(self):
        self.told.put(("synchronized", None))

    def on_lost(self, reason):
        self.told.put(("lost", reason))

    def on_duplicate(self, plugin):
        self.told.put(("duplicate", plugin))

    def on_request(self, method, seconds, result):
        assert seconds >= 0
        self.requests.append((method, result))

    def next(self, what):
        told, detail = self.told.get(timeout=GIVE_UP_S)
        assert told == what, (told, detail)
        return detail


class Running:
    """A session under test, registering in a thread as a runner does."""

    def __init__(self, plugin, **options):
        ours, theirs = socket.socketpair()
        self.peer = Peer(theirs)
        self.recorder = Recorder()
        options = {"name": "test", "index": "10", "observer": self.recorder} | options
        timeout_s = options.pop("registration_timeout_s", GIVE_UP_S)
        self.session = Session(ours, plugin, **options)
        self.registration = None
        self.failure = None
        self.reason = None
        self.session.start()
        self._thread = threading.Thread(target=self._run, args=(timeout_s,))
        self._thread.start()

    def _run(self, timeout_s):
        try:
            self.registration = self.session.register(timeout_s)
        except Claim2CoreError as failure:
            self.failure = failure
        self.reason = self.session.wait()

    def end(self):
        """Wait for the session's end; gives why it ended."""
        self._thread.join(GIVE_UP_S)
        assert not self._thread.is_alive()
        return self.reason


@contextmanager
def running(plugin, **options):
    """A session and its peer; both are ended."""
    run = Running(plugin, **options)
    try:
        yield run
    finally:
        run.peer.close()
        run.session.close()
        run.end()
        for thread in threading.enumerate():
            if thread.name.startswith("nri-"):
                thread.join(GIVE_UP_S)
                assert not thread.is_alive(), thread.name
