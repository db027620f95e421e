"""A plugin made of nothing but a Connection: it answers as it is told, or not at all."""

import contextlib
import socket
import threading

import pytest

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.connection import (
    Connection,
    Refused,
    RequestReceived,
    ResponseReceived,
    Role,
)
from nri_claim2core.nri.errors import RpcError
from nri_claim2core.nri.events_table import EVENTS, PLUGIN_METHODS, RUNTIME_SERVICE
from nri_claim2core.nri.runtime import EmbeddedRuntime

HANG = object()
"An answer that never comes."

REQUESTS = {event.rpc: event.request for event in EVENTS} | {
    "Configure": api.ConfigureRequest,
    "Synchronize": api.SynchronizeRequest,
    "StateChange": api.StateChangeEvent,
}


class ScriptedPlugin(threading.Thread):
    """Registers, then answers each method with `answers[method]`: a message, bytes, an error,
    HANG, or a function of the request that gives one of these. Default: an empty success."""

    def __init__(self, sock, label="10-a", mask=0, answers=None, lacks=()):
        super().__init__(daemon=True)
        self.sock = sock
        self.index, self.name_ = label.split("-", 1)
        self.answers = {"Configure": api.ConfigureResponse(events=mask)} | (answers or {})
        self.answers.setdefault("Synchronize", lambda r: api.SynchronizeResponse(more=r.more))
        self.seen = []
        self.replies = []
        methods = {s: frozenset(m) - set(lacks) for s, m in PLUGIN_METHODS.items()}
        self.connection = Connection(Role.PLUGIN, methods=methods)
        self.replied = threading.Condition()

    def call(self, method, message):
        stream_id, data = self.connection.call(RUNTIME_SERVICE, method, message.SerializeToString())
        self.sock.sendall(data)
        return stream_id

    def wait_reply(self, stream_id, timeout_s=10.0):
        with self.replied:
            assert self.replied.wait_for(
                lambda: any(r.stream_id == stream_id for r in self.replies), timeout_s
            )
        return next(r for r in self.replies if r.stream_id == stream_id)

    def register(self):
        request = api.RegisterPluginRequest(plugin_name=self.name_, plugin_idx=self.index)
        self.call("RegisterPlugin", request)

    def run(self):
        try:
            self.register()
            while data := self.sock.recv(1 << 20):
                for event in self.connection.receive_data(data):
                    self.take(event)
        except OSError:
            pass
        finally:
            self.sock.close()

    def take(self, event):
        if isinstance(event, Refused):
            self.sock.sendall(event.data)
        elif isinstance(event, ResponseReceived):
            with self.replied:
                self.replies.append(event)
                self.replied.notify_all()
        elif isinstance(event, RequestReceived):
            request = REQUESTS[event.method].FromString(event.payload)
            self.seen.append((event.method, request))
            answer = self.answers.get(event.method, b"")
            if callable(answer):
                answer = answer(request)
            if answer is HANG:
                return
            if isinstance(answer, RpcError):
                data = self.connection.reply_error(event.stream_id, answer.status, answer.message)
            else:
                payload = answer if isinstance(answer, bytes) else answer.SerializeToString()
                data = self.connection.reply(event.stream_id, payload)
            self.sock.sendall(data)

    def methods(self):
        """The methods called after Synchronize, StateChange with its event."""
        return [
            f"StateChange:{api.Event.Name(r.event)}" if m == "StateChange" else m
            for m, r in self.seen
            if m not in {"Configure", "Synchronize"}
        ]


@pytest.fixture
def runtimes():
    """Make runtimes that are closed at the end."""
    made = []

    def make(profile="containerd-2.3", **options):
        options.setdefault("request_timeout_ms", 5000)
        runtime = EmbeddedRuntime(profile, **options)
        made.append(runtime)
        return runtime

    yield make
    for runtime in made:
        runtime.close()


@pytest.fixture
def scripted():
    """Attach scripted plugins to a runtime; their threads have ended at the end."""
    made = []

    def attach(runtime, label="10-a", **options):
        ours, theirs = socket.socketpair()
        plugin = ScriptedPlugin(theirs, label, **options)
        made.append((ours, plugin))
        plugin.start()
        index, name = label.split("-", 1)
        runtime.attach(ours, name, index)
        return plugin

    yield attach
    for ours, plugin in made:
        ours.close()
        with contextlib.suppress(OSError):
            plugin.sock.shutdown(socket.SHUT_RDWR)
        plugin.join(10)
        assert not plugin.is_alive()


@pytest.fixture
def connected():
    """Connect scripted plugins to a socket path; their threads have ended at the end."""
    made = []

    def connect(path, label="10-a", **options):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(path))
        plugin = ScriptedPlugin(sock, label, **options)
        made.append(plugin)
        plugin.start()
        return plugin

    yield connect
    for plugin in made:
        with contextlib.suppress(OSError):
            plugin.sock.shutdown(socket.SHUT_RDWR)
        plugin.join(10)
        assert not plugin.is_alive()


@pytest.fixture
def hang():
    return HANG


def make_pod(key="pod1", **fields):
    return api.PodSandbox(id=key, name=key, uid=f"uid-{key}", namespace="default", **fields)


def make_container(key="ctr1", cpus="", **fields):
    container = api.Container(id=key, name=key, **fields)
    container.linux.resources.cpu.cpus = cpus
    return container


@pytest.fixture
def pods():
    return make_pod


@pytest.fixture
def containers():
    return make_container


@pytest.fixture
def make(pods, containers):
    return pods, containers
