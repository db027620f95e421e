"""One connection on a real socket: registration, answers, deadlines, ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import queue
import socket
import struct
import threading
import time

import pytest

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri import Call, Cancelled, Code, Plugin, RpcError
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.connection import RequestReceived, ResponseReceived
from nri_claim2core.nri.errors import (
    ConnectionLostError,
    NotAllowedError,
    PeerStalledError,
    ProtocolError,
    RegistrationError,
)
from nri_claim2core.nri.events_table import PLUGIN_SERVICE
from nri_claim2core.nri.session import MAX_STUCK_HANDLERS, default_handler_deadline
from nri_claim2core.nri.watchdog import Watchdog
from tests.nri.helpers import GIVE_UP_S, raw_message, running

POD = api.PodSandbox(id="p")


def create(container_id="c", env=()):
    return api.CreateContainerRequest(pod=POD, container=api.Container(id=container_id, env=env))


def stop(container_id="c"):
    return api.StopContainerRequest(container=api.Container(id=container_id))


class Quick(Plugin):
    """Answers at once; `answers` and `errors` by container id."""

    def __init__(self):
        self.answers = {}
        self.got = []

    def create_container(self, request, call):
        self.got.append(request.container.id)
        answer = self.answers.get(request.container.id)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def start_container(self, request, call):
        self.got.append("start " + request.container.id)


class Stuck(Plugin):
    """Handlers wait until the test lets them go; containers named fast do not."""

    def __init__(self):
        self.entered = queue.SimpleQueue()
        self.go = threading.Semaphore(0)
        self.left = queue.SimpleQueue()
        self.late = None

    def create_container(self, request, call):
        if request.container.id.startswith("fast"):
            return api.CreateContainerResponse(update=[api.ContainerUpdate(container_id="x")])
        self.entered.put(call)
        assert self.go.acquire(timeout=GIVE_UP_S)
        try:
            call.check()
        except Cancelled:
            self.left.put("cancelled")
            raise
        self.left.put("done")
        return None

    def stop_container(self, request, call):
        return None

    def deadline_reached(self, method, request):
        if isinstance(self.late, Exception):
            raise self.late
        return self.late


def soon(request_timeout_ms):
    return 0.02


# -- registration -----------------------------------------------------------------------------


def test_registration_reply_before_configure():
    with running(Quick()) as run:
        assert run.peer.accept_registration() == api.RegisterPluginRequest(
            plugin_name="test", plugin_idx="10", NRI_version="v0.12.2"
        )
        assert run.peer.configure() == 0x28
        registration = run.recorder.next("registered")
        assert str(registration) == "containerd v2.3.4 (NRI 0.12.0)"
        run.peer.synchronize(pods=[POD])
        run.recorder.next("synchronized")
        assert run.session.is_synchronized
    assert run.registration == registration


def test_configure_before_registration_reply():
    with running(Quick()) as run:
        event = run.peer.take_registration()
        assert run.peer.configure() == 0x28
        run.peer.call("Shutdown", api.Empty())
        assert run.recorder.told.empty()
        run.peer.send(run.peer.connection.reply(event.stream_id, b""))
        run.recorder.next("registered")


def test_configure_and_reply_in_one_piece():
    for configure_first in (True, False):
        with running(Quick()) as run:
            event = run.peer.take_registration()
            parts = [
                run.peer.connection.reply(event.stream_id, b""),
                run.peer.connection.call(PLUGIN_SERVICE, "Configure", b"")[1],
            ]
            run.peer.send(b"".join(parts[::-1] if configure_first else parts))
            run.recorder.next("registered")
            assert run.peer.answer_of(1).payload == bytes.fromhex("1028")


def test_synchronize_implies_a_registration_whose_reply_is_late():
    with running(Quick()) as run:
        event = run.peer.take_registration()
        run.peer.configure()
        run.peer.synchronize()
        run.recorder.next("registered")
        run.recorder.next("synchronized")
        run.peer.send(run.peer.connection.reply(event.stream_id, b""))
        assert run.peer.call("CreateContainer", create()).status == 0
        assert run.recorder.told.empty()


def test_a_split_synchronize_counts_with_its_last_part():
    with running(Quick()) as run:
        run.peer.accept_registration()
        run.peer.configure()
        run.recorder.next("registered")
        for _ in range(100):
            assert run.peer.synchronize(more=True).more
        assert run.recorder.told.empty()
        assert not run.peer.synchronize(pods=[POD]).more
        run.recorder.next("synchronized")


def test_configure_before_the_plugin_registered():
    with running(Quick()) as run:
        run.peer.start_call("Configure", api.ConfigureRequest())
        events = [run.peer.next_event(), run.peer.next_event()]
        assert {type(event) for event in events} == {RequestReceived, ResponseReceived}


def test_the_plugin_registers_once():
    with running(Quick()) as run:
        run.peer.set_up()
        run.peer.call("CreateContainer", create())
        run.peer.sock.shutdown(socket.SHUT_WR)
        run.peer.expect_closed()


@pytest.mark.parametrize(
    ("answer_first", "said"),
    [(False, "without an answer to RegisterPlugin"), (True, "without Configure")],
)
def test_our_own_time_out_says_what_was_missing(answer_first, said):
    with running(Quick(), registration_timeout_s=0.05) as run:
        if answer_first:
            run.peer.accept_registration()
        run.end()
        assert isinstance(run.failure, RegistrationError)
        assert "we gave up after 0.05 s" in str(run.failure)
        assert said in str(run.failure)


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (0, "before it answered RegisterPlugin: the runtime closed"),
        (1, "before Configure: the runtime closed"),
    ],
)
def test_a_runtime_that_closes_during_registration(stage, said):
    with running(Quick()) as run:
        run.peer.take_registration()
        if stage:
            run.peer.send(run.peer.connection.reply(1, b""))
        run.peer.close()
        run.end()
        assert said in str(run.failure)
        assert run.recorder.told.empty()


def test_a_runtime_that_refuses_is_closed_by_us():
    with running(Quick()) as run:
        event = run.peer.take_registration()
        run.peer.send(run.peer.connection.reply_error(event.stream_id, 2, "invalid plugin index"))
        run.peer.expect_closed()
        run.end()
        assert "the runtime refused the plugin: invalid plugin index (2)" in str(run.failure)


def test_a_plugin_that_refuses_the_runtime():
    class Picky(Quick):
        def configure(self, request):
            raise RpcError(Code.FAILED_PRECONDITION, "runtime too old")

    with running(Picky()) as run:
        run.peer.accept_registration()
        answer = run.peer.call("Configure", api.ConfigureRequest())
        assert (answer.status, answer.message) == (9, "runtime too old")
        assert run.session.registration is None
        run.peer.close()
        run.end()
        assert isinstance(run.failure, RegistrationError)


# -- answers ----------------------------------------------------------------------------------


def test_an_answer_reaches_the_runtime_whole():
    plugin = Quick()
    plugin.answers["big"] = api.CreateContainerResponse(
        adjust=api.ContainerAdjustment(annotations={"k": "v" * 100_000})
    )
    with running(plugin) as run:
        run.peer.set_up()
        answer = run.peer.call("CreateContainer", create("big", env=["X=" + "y" * 9000]))
        assert api.CreateContainerResponse.FromString(answer.payload) == plugin.answers["big"]
        assert run.peer.call("CreateContainer", create()).payload == b""


def test_state_change_and_dedicated_methods_meet_in_one_handler():
    plugin = Quick()
    container = api.Container(id="c")
    with running(plugin) as run:
        run.peer.set_up()
        request = api.StartContainerRequest(container=container)
        assert run.peer.call("StartContainer", request).payload == b""
        change = api.StateChangeEvent(event=6, container=container)
        assert run.peer.call("StateChange", change).payload == b""
        assert plugin.got == ["start c", "start c"]
        run.peer.call("StateChange", api.StateChangeEvent(event=99))
        run.peer.call("StateChange", api.StateChangeEvent(event=11, container=container))
        assert plugin.got == ["start c", "start c"]
        # A request is observed after its answer: this one tells that all before were.
        run.peer.call("CreateContainer", create())
    assert [request[0] for request in run.recorder.requests[2:4]] == ["StartContainer"] * 2


def test_events_without_a_handler_are_an_empty_success():
    with running(Quick()) as run:
        run.peer.set_up()
        answer = run.peer.call("RemoveContainer", api.RemoveContainerRequest())
        assert (answer.status, answer.payload) == (0, b"")
        run.peer.call("Shutdown", api.Empty())
    assert ("RemoveContainer", "unhandled") in run.recorder.requests


def test_an_unknown_method_is_unimplemented_and_logged_once(caplog):
    with running(Quick()) as run:
        run.peer.set_up()
        for _ in range(3):
            answer = run.peer.call("ThawContainer", api.Empty())
            assert (answer.status, answer.message) == (12, "method ThawContainer")
        assert run.peer.call("CreateContainer", create()).status == 0
    refused = [record for record in caplog.records if "refused" in record.message]
    assert [record.reason for record in refused] == ["method ThawContainer"]
    assert refused[0].plugin == "10-test"


def test_a_payload_that_cannot_be_read_is_code_13():
    with running(Quick()) as run:
        run.peer.set_up()
        stream_id, data = run.peer.connection.call(PLUGIN_SERVICE, "CreateContainer", b"\xff")
        run.peer.send(data)
        answer = run.peer.answer_of(stream_id)
        assert answer.status == 13
        assert answer.message.startswith("ttrpc: error unmarshalling payload")
        assert run.peer.call("CreateContainer", create()).status == 0
    assert ("CreateContainer", "unreadable") in run.recorder.requests


def test_a_giant_message_is_answered_logged_once_and_survived(caplog):
    with running(Quick()) as run:
        run.peer.set_up()
        for stream_id in (101, 103):
            # As a runtime without a check would send it, in frames of 4 MiB.
            size = (16 << 20) + 1
            run.peer.send(struct.pack(">II", 1, 10) + struct.pack(">IIBB", size, stream_id, 1, 0))
            answer = Answers(run.peer).status_of(stream_id)
            assert answer == 8
            zeros = bytes(1 << 20)
            left = size
            while left:
                piece = zeros[: min(left, len(zeros))]
                run.peer.send(struct.pack(">II", 1, len(piece)) + piece)
                left -= len(piece)
        run.peer.connection._client._next_id = 105
        assert run.peer.call("CreateContainer", create()).status == 0
    assert len([r for r in caplog.records if "refused" in r.message]) == 1


class Answers:
    """Answers to requests that the script wrote by hand."""

    def __init__(self, peer):
        self._peer = peer

    def status_of(self, stream_id):
        self._peer.connection._client._pending[stream_id] = "by hand"
        return self._peer.answer_of(stream_id).status


def test_metadata_are_ignored():
    with running(Quick()) as run:
        run.peer.set_up()
        # Request{metadata{key "a" value "b"}, service, method}
        envelope = (
            bytes.fromhex("2a06 0a0161 120162")
            + b"\x0a"
            + bytes([len(PLUGIN_SERVICE)])
            + PLUGIN_SERVICE.encode()
            + b"\x12\x0fCreateContainer"
        )
        run.peer.send(raw_message(1, 101, 1, envelope))
        assert Answers(run.peer).status_of(101) == 0


def test_a_refusal_is_the_handlers_status():
    plugin = Quick()
    plugin.answers["c"] = RpcError(Code.PERMISSION_DENIED, "claim is forged")
    with running(plugin) as run:
        run.peer.set_up()
        answer = run.peer.call("CreateContainer", create())
        assert (answer.status, answer.message) == (7, "claim is forged")
        assert run.peer.call("CreateContainer", create("ok")).status == 0
        run.peer.call("CreateContainer", create("ok"))
    assert ("CreateContainer", "refused") in run.recorder.requests


def test_a_handler_that_raises_fails_its_call_only(caplog):
    plugin = Quick()
    plugin.answers["c"] = ZeroDivisionError("secret detail")
    with running(plugin) as run:
        run.peer.set_up()
        for _ in range(3):
            answer = run.peer.call("CreateContainer", create())
            assert (answer.status, answer.message) == (2, "internal error of plugin 10-test")
        assert run.peer.call("CreateContainer", create("ok")).status == 0
        run.peer.call("CreateContainer", create("ok"))
    failed = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(failed) == 1
    assert failed[0].exc_info[0] is ZeroDivisionError
    assert len(failed[0].op) == 8
    assert run.recorder.requests.count(("CreateContainer", "error")) == 3


# What sys.exit raises, a cancelled task of asyncio, a failed assertion of pytest.
EXITS = [SystemExit(1), asyncio.CancelledError(), pytest.fail.Exception("no")]


@pytest.mark.parametrize("failure", EXITS, ids=lambda failure: type(failure).__name__)
def test_a_handler_that_exits_does_not_end_the_reader(failure, caplog):
    plugin = Quick()
    plugin.answers["c"] = failure
    with running(plugin, handler_deadline=lambda _: GIVE_UP_S) as run:
        run.peer.set_up()
        assert run.peer.call("CreateContainer", create(), timeout_ns=0).status == 2
        assert run.peer.call("CreateContainer", create("ok"), timeout_ns=0).status == 0
        assert run.session.nr_stuck == 0
    assert "nri handler failed" in caplog.text


@pytest.mark.parametrize(
    ("refusal", "status", "said"),
    [
        (RpcError(Code.INTERNAL, KeyError("claim")), 13, "'claim'"),
        (RpcError(0, "refused"), 2, "refused"),
        (RpcError(1 << 40, "refused"), 2, "refused"),
    ],
)
def test_a_refusal_that_cannot_be_sent_as_it_is_is_still_one(refusal, status, said):
    plugin = Quick()
    plugin.answers["c"] = refusal
    with running(plugin) as run:
        run.peer.set_up()
        answer = run.peer.call("CreateContainer", create())
        assert (answer.status, answer.message) == (status, said)
        assert run.peer.call("CreateContainer", create("ok")).status == 0


def test_an_answer_too_large_becomes_an_error(caplog):
    plugin = Quick()
    plugin.answers["c"] = api.CreateContainerResponse(
        adjust=api.ContainerAdjustment(annotations={"k": "v" * (4 << 20)})
    )
    with running(plugin) as run:
        run.peer.set_up()
        answer = run.peer.call("CreateContainer", create())
        assert answer.status == 8
        assert "exceeds 4194304 bytes" in answer.message
        assert run.peer.call("CreateContainer", create("ok")).status == 0
    assert "nri answer too large" in caplog.text


def test_pipelined_requests_are_answered_in_order():
    plugin = Quick()
    with running(plugin) as run:
        run.peer.set_up()
        names = [f"c{i}" for i in range(50)]
        streams, data = [], b""
        for name in names:
            payload = create(name).SerializeToString()
            stream_id, piece = run.peer.connection.call(PLUGIN_SERVICE, "CreateContainer", payload)
            streams.append(stream_id)
            data += piece
        run.peer.send(data)
        for stream_id in streams:
            run.peer.answer_of(stream_id)
    assert plugin.got == names


@pytest.mark.parametrize("failure", [ValueError("observer"), *EXITS])
def test_an_observer_that_raises_is_logged_and_ignored(failure, caplog):
    with running(Quick()) as run:

        def fail(*_):
            raise failure

        run.recorder.on_request = fail
        run.recorder.on_registered = fail
        run.peer.set_up()
        assert run.peer.call("CreateContainer", create()).status == 0
        assert run.peer.call("CreateContainer", create()).status == 0
    assert len([r for r in caplog.records if r.message == "nri observer failed"]) == 1


def test_a_second_instance_is_told_to_the_observer():
    class Judge(Plugin):
        def validate_container_adjustment(self, request, call):
            return None

    twin = api.PluginInstance(name="test", index="10")
    request = api.ValidateContainerAdjustmentRequest(plugins=[twin, twin])
    with running(Judge()) as run:
        run.peer.set_up()
        run.recorder.next("registered")
        run.recorder.next("synchronized")
        run.peer.call("ValidateContainerAdjustment", request)
        run.peer.call("ValidateContainerAdjustment", request)
        assert run.recorder.next("duplicate") == "10-test"
        assert run.recorder.told.empty()


# -- deadlines --------------------------------------------------------------------------------


def test_a_handler_may_take_a_quarter_of_the_time_out_at_most_half_a_second():
    assert default_handler_deadline(2000) == 0.5
    assert default_handler_deadline(10_000) == 0.5
    assert default_handler_deadline(400) == 0.1


def test_a_handler_out_of_time_is_answered_for_and_events_go_on():
    plugin = Stuck()
    plugin.late = RpcError(Code.DEADLINE_EXCEEDED, "not decided in time")
    with running(plugin, handler_deadline=soon) as run:
        run.peer.set_up()
        answer = run.peer.call("CreateContainer", create())
        assert (answer.status, answer.message) == (4, "not decided in time")
        call = plugin.entered.get(timeout=GIVE_UP_S)
        assert call.cancelled
        assert run.session.nr_stuck == 1
        # Another thread reads; the stuck one is still inside.
        answer = run.peer.call("CreateContainer", create("fast"))
        assert answer.payload == bytes.fromhex("12030a0178")
        plugin.go.release()
        assert plugin.left.get(timeout=GIVE_UP_S) == "cancelled"
        # Its own answer is dropped: the next thing on the wire belongs to the next call.
        assert run.peer.call("StopContainer", stop()).status == 0
    assert ("CreateContainer", "deadline") in run.recorder.requests
    assert run.recorder.requests.count(("CreateContainer", "ok")) == 1


def test_nothing_to_change_is_the_default_late_answer():
    plugin = Stuck()
    with running(plugin, handler_deadline=soon) as run:
        run.peer.set_up()
        answer = run.peer.call("CreateContainer", create())
        assert (answer.status, answer.payload) == (0, b"")
        plugin.go.release()


class NoThread(threading.Thread):
    """A thread of a process that may have no more."""

    def start(self):
        raise RuntimeError("can't start new thread")


def test_without_a_thread_to_read_on_the_connection_ends_after_the_late_answer(monkeypatch):
    plugin = Stuck()
    with running(plugin, handler_deadline=soon) as run:
        run.peer.set_up()
        monkeypatch.setattr(threading, "Thread", NoThread)
        assert run.peer.call("CreateContainer", create()).status == 0
        run.peer.expect_closed()
        assert "no thread to read with: can't start new thread" in run.end().message
        plugin.go.release()


@pytest.mark.parametrize("name", ["nri-watchdog", "nri-reader"])
def test_without_a_thread_at_the_start_the_connection_ends(name, monkeypatch):
    class Scarce(threading.Thread):
        def start(self):
            if self.name == name:
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(threading, "Thread", Scarce)
    with running(Quick()) as run:
        run.peer.expect_closed()
        assert "can't start new thread" in run.end().message
        assert isinstance(run.failure, RegistrationError)


def test_requests_already_read_pass_to_the_next_reader():
    plugin = Stuck()
    with running(plugin, handler_deadline=soon) as run:
        run.peer.set_up()
        data, streams = b"", []
        for name in ("slow", "fast1", "fast2"):
            payload = create(name).SerializeToString()
            stream_id, piece = run.peer.connection.call(PLUGIN_SERVICE, "CreateContainer", payload)
            streams.append(stream_id)
            data += piece
        run.peer.send(data)
        for stream_id, payload in zip(
            streams, (b"", b"\x12\x03\x0a\x01x", b"\x12\x03\x0a\x01x"), strict=True
        ):
            assert run.peer.answer_of(stream_id).payload == payload
        plugin.go.release()


def test_stuck_handlers_are_bounded_and_come_back():
    plugin = Stuck()
    with running(plugin, handler_deadline=soon) as run:
        run.peer.set_up()
        for i in range(MAX_STUCK_HANDLERS):
            assert run.peer.call("CreateContainer", create(f"c{i}")).status == 0
        for _ in range(MAX_STUCK_HANDLERS):
            plugin.entered.get(timeout=GIVE_UP_S)
        assert run.session.nr_stuck == MAX_STUCK_HANDLERS
        # Answered at once, without its handler, as a late one.
        assert run.peer.call("CreateContainer", create("one more")).payload == b""
        assert run.peer.call("CreateContainer", create("fast")).payload == b""
        assert plugin.entered.empty()
        for _ in range(MAX_STUCK_HANDLERS):
            plugin.go.release()
        for _ in range(MAX_STUCK_HANDLERS):
            assert plugin.left.get(timeout=GIVE_UP_S) == "cancelled"
        while run.session.nr_stuck:
            run.peer.call("StopContainer", stop())
        assert run.peer.call("CreateContainer", create("fast")).payload == b"\x12\x03\x0a\x01x"


class Follower(Plugin):
    """Leaves `todo` for after the answer to each creation."""

    def __init__(self, todo):
        self.todo = todo

    def create_container(self, request, call):
        call.afterwards(lambda: self.todo(request.container.id))

    def stop_container(self, request, call):
        self.todo("stopped")


def test_what_is_left_for_afterwards_is_done_between_the_answer_and_the_next_event():
    go, done = threading.Semaphore(0), []

    def todo(what):
        assert what == "stopped" or go.acquire(timeout=GIVE_UP_S)
        done.append(what)

    with running(Follower(todo), handler_deadline=lambda _: GIVE_UP_S) as run:
        run.peer.set_up()
        # Answered although the action still waits for us.
        assert run.peer.call("CreateContainer", create("c1"), timeout_ns=0).status == 0
        stream_id = run.peer.start_call("StopContainer", stop())
        assert done == []
        go.release()
        run.peer.answer_of(stream_id)
        assert done == ["c1", "stopped"]


def test_an_action_afterwards_that_hangs_or_raises_does_not_stop_events(caplog):
    go, left = threading.Semaphore(0), queue.SimpleQueue()

    def todo(what):
        if what == "raises":
            raise ValueError("of an action")
        if what == "hangs":
            assert go.acquire(timeout=GIVE_UP_S)
            left.put(threading.current_thread())

    with running(Follower(todo), handler_deadline=soon) as run:
        run.peer.set_up()
        assert run.peer.call("CreateContainer", create("raises")).status == 0
        assert run.peer.call("CreateContainer", create("hangs")).status == 0
        assert run.peer.call("StopContainer", stop()).status == 0
        assert run.session.nr_stuck == 1
        # Answered once, by its handler.
        assert run.recorder.requests.count(("CreateContainer", "ok")) == 2
        go.release()
        late = left.get(timeout=GIVE_UP_S)
        late.join(GIVE_UP_S)
        assert not late.is_alive()
        assert run.session.nr_stuck == 0
        assert run.peer.call("StopContainer", stop()).status == 0
    assert caplog.text.count("ValueError: of an action") == 1


@pytest.mark.parametrize("failure", EXITS, ids=lambda failure: type(failure).__name__)
def test_an_action_afterwards_that_exits_does_not_end_the_reader(failure):
    def todo(what):
        if what == "c1":
            raise failure

    with running(Follower(todo), handler_deadline=lambda _: GIVE_UP_S) as run:
        run.peer.set_up()
        assert run.peer.call("CreateContainer", create("c1"), timeout_ns=0).status == 0
        assert run.peer.call("StopContainer", stop(), timeout_ns=0).status == 0
        assert run.session.nr_stuck == 0


def test_what_is_left_for_afterwards_is_done_by_a_late_handler_too():
    done = queue.SimpleQueue()

    class Late(Stuck):
        def create_container(self, request, call):
            call.afterwards(lambda: done.put(call.answered))
            return super().create_container(request, call)

    plugin = Late()
    with running(plugin, handler_deadline=soon) as run:
        run.peer.set_up()
        assert run.peer.call("CreateContainer", create()).status == 0
        assert done.empty()
        plugin.go.release()
        assert done.get(timeout=GIVE_UP_S) is False


def test_nothing_of_a_request_is_kept_once_it_was_answered():
    with running(Quick(), handler_deadline=lambda _: GIVE_UP_S) as run:
        run.peer.set_up()
        run.peer.call("CreateContainer", create("kept"), timeout_ns=0)
        give_up_s = time.monotonic() + GIVE_UP_S
        while left := [
            each
            for each in gc.get_objects()
            if (type(each) is Call and each.request == create("kept"))
            or (type(each) is RequestReceived and b"kept" in each.payload)
        ]:
            # The reader may still be on its way to the next receive.
            assert time.monotonic() < give_up_s, left
            del left  # what was found must not be what keeps it


def test_the_watchdog_does_not_keep_the_call_it_sleeps_for():
    watchdog = Watchdog(lambda _: None)
    left = []

    class Sleep:
        """What the watchdog sleeps on; meanwhile its call is answered."""

        def get(self, timeout):
            assert timeout > 0
            watchdog.current = None
            left.extend(each for each in gc.get_objects() if isinstance(each, Mine))
            watchdog.stop()

        def put(self, _):
            pass

    class Mine(Call):
        pass

    watchdog._wakeups = Sleep()
    watchdog.current = Mine("CreateContainer", create(), 0, float("inf"))
    watchdog._run()
    assert left == []


class Sleeps:
    """What a watchdog sleeps on: notes how long, and lets the test act meanwhile."""

    def __init__(self, meanwhile=lambda: None):
        self.meanwhile = meanwhile
        self.limits = []
        self.nr_woken = 0

    def get(self, timeout=math.inf):
        self.limits.append(timeout)
        assert len(self.limits) == 1 or timeout <= 0.02
        self.meanwhile()
        self.meanwhile = lambda: None

    def put(self, _):
        self.nr_woken += 1


def watched(watchdog, sleeps, call):
    """Run a watchdog, on this thread, until it lets `call` expire; gives what expired."""
    expired = []

    def expire(late):
        expired.append(late)
        watchdog._is_stopped = True

    watchdog._expire, watchdog._wakeups = expire, sleeps
    watchdog.arm(call)
    watchdog._run()
    return expired


def test_a_sleeping_watchdog_is_woken_for_a_shorter_deadline():
    """A creation soon after registration: the long deadline of the set-up is over, not passed."""
    watchdog = Watchdog(lambda _: None)
    now = time.monotonic()
    late = Call("CreateContainer", create(), now, now + 0.02)

    def meanwhile():
        assert sleeps.nr_woken == 0
        watchdog.current = None
        watchdog.arm(late)
        assert sleeps.nr_woken == 1

    sleeps = Sleeps(meanwhile)
    long = Call("Synchronize", create(), now, now + GIVE_UP_S)
    assert watched(watchdog, sleeps, long) == [late]
    assert sleeps.limits[0] > GIVE_UP_S / 2


def test_a_call_armed_while_the_watchdog_falls_asleep_is_not_slept_over():
    now = time.monotonic()
    long = Call("Synchronize", create(), now, now + GIVE_UP_S)
    late = Call("CreateContainer", create(), now, now + 0.02)

    class Raced(Watchdog):
        """Another thread arms between the look at the call and the announcement."""

        @property
        def _sleeps_until(self):
            return self._announced

        @_sleeps_until.setter
        def _sleeps_until(self, moment):
            if moment == long.deadline:
                self.current = None
                self.arm(late)  # nobody has announced a sleep: wakes nobody
            self._announced = moment

    sleeps = Sleeps()
    assert watched(Raced(lambda _: None), sleeps, long) == [late]
    assert max(sleeps.limits, default=0) <= 0.02
    assert sleeps.nr_woken == 0


def test_the_callers_own_limit_is_kept_too():
    plugin = Stuck()
    with running(plugin, handler_deadline=lambda _: GIVE_UP_S) as run:
        run.peer.set_up()
        answer = run.peer.call("CreateContainer", create(), timeout_ns=40_000_000)
        assert answer.status == 0
        call = plugin.entered.get(timeout=GIVE_UP_S)
        assert call.deadline - call.started == pytest.approx(0.03)
        plugin.go.release()


def test_setting_up_may_use_most_of_the_runtimes_time_out():
    limits = []

    class Noting(Quick):
        def note(self):
            call = self.session._watchdog.current
            limits.append((call.method, round(call.deadline - call.started, 6)))

        def configure(self, request):
            self.note()

        def synchronize(self, pods, containers):
            self.note()

        def create_container(self, request, call):
            self.note()

    plugin = Noting()
    with running(plugin, handler_deadline=lambda ms: ms / 1000) as run:
        plugin.session = run.session
        run.peer.accept_registration()
        run.peer.configure(request_timeout=9000)
        for timeout_ns in (0, 4_000_000_000):
            run.peer.call("Synchronize", api.SynchronizeRequest(), timeout_ns)
        run.peer.call("CreateContainer", create(), 0)
    # Three quarters of the default, of what Configure said, of what is left of it.
    assert limits == [
        ("Configure", 1.5),
        ("Synchronize", 6.75),
        ("Synchronize", 3.0),
        ("CreateContainer", 9.0),
    ]


def test_a_late_synchronize_is_answered_for_and_counts():
    class Slow(Stuck):
        def synchronize(self, pods, containers):
            self.entered.put(None)
            self.go.acquire(timeout=GIVE_UP_S)

    plugin = Slow()
    with running(plugin) as run:
        run.peer.accept_registration()
        run.peer.configure()
        request = api.SynchronizeRequest()
        assert run.peer.call("Synchronize", request, timeout_ns=40_000_000).payload == b""
        run.recorder.next("registered")
        run.recorder.next("synchronized")
        plugin.entered.get(timeout=GIVE_UP_S)
        plugin.go.release()
    assert ("Synchronize", "deadline") in run.recorder.requests


def test_a_call_that_was_answered_cannot_expire():
    plugin = Stuck()
    with running(plugin, handler_deadline=lambda _: GIVE_UP_S) as run:
        run.peer.set_up()
        stream_id = run.peer.start_call("CreateContainer", create(), timeout_ns=0)
        call = plugin.entered.get(timeout=GIVE_UP_S)
        plugin.go.release()
        run.peer.answer_of(stream_id)
        run.session._expire(call)  # as a watchdog that lost the race
        assert not call.cancelled
        assert run.session.nr_stuck == 0
        assert run.peer.call("CreateContainer", create("fast")).payload == b"\x12\x03\x0a\x01x"


# -- unsolicited updates ----------------------------------------------------------------------

UPDATE = api.ContainerUpdate(container_id="c")
SAFE = {"NRI_version": "v0.12.1"}


def in_thread(function):
    box = queue.SimpleQueue()

    def run():
        try:
            box.put((function(), None))
        except Claim2CoreError as error:
            box.put((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, box


def test_updates_are_sent_while_events_are_served():
    with running(Quick()) as run:
        run.peer.set_up(**SAFE)
        thread, box = in_thread(lambda: run.session.update_containers([UPDATE], GIVE_UP_S))
        event = run.peer.next_event()
        assert event.method == "UpdateContainers"
        assert api.UpdateContainersRequest.FromString(event.payload).update == [UPDATE]
        assert run.peer.call("CreateContainer", create()).status == 0
        failed = api.UpdateContainersResponse(failed=[UPDATE])
        run.peer.send(run.peer.connection.reply(event.stream_id, failed.SerializeToString()))
        thread.join()
        answer, error = box.get()
        assert (list(answer), error) == ([UPDATE], None)


@pytest.mark.parametrize("version", ["v0.12.0", "", "v0.11.0"])
def test_updates_are_refused_where_they_can_dead_lock_the_runtime(version):
    with running(Quick()) as run:
        run.peer.set_up(NRI_version=version)
        with pytest.raises(NotAllowedError, match=r"can dead-lock containerd v2\.3\.4"):
            run.session.update_containers([UPDATE])


def test_updates_can_be_forced():
    with running(Quick()) as run:
        run.peer.set_up()
        thread, box = in_thread(
            lambda: run.session.update_containers([UPDATE], GIVE_UP_S, force=True)
        )
        event = run.peer.next_event()
        run.peer.send(run.peer.connection.reply_error(event.stream_id, 2, "some failed"))
        thread.join()
        _, error = box.get()
        assert isinstance(error, RpcError)
        assert (error.status, error.message) == (2, "some failed")


def test_updates_from_inside_a_handler_are_refused():
    refused = []

    class Calling(Stuck):
        def update(self):
            with pytest.raises(NotAllowedError, match="inside a handler"):
                self.session.update_containers([UPDATE], force=True)
            refused.append(1)

        def stop_container(self, request, call):
            self.update()

        def deadline_reached(self, method, request):
            self.update()

    plugin = Calling()
    with running(plugin, handler_deadline=soon) as run:
        plugin.session = run.session
        run.peer.set_up(**SAFE)
        run.peer.call("StopContainer", stop())
        run.peer.call("CreateContainer", create())
        plugin.go.release()
    assert len(refused) == 2


def test_updates_need_a_registered_connection_and_a_container_id():
    with running(Quick()) as run:
        with pytest.raises(NotAllowedError, match="registered"):
            run.session.update_containers([UPDATE])
        run.peer.set_up(**SAFE)
        with pytest.raises(NotAllowedError, match="container_id"):
            run.session.update_containers([UPDATE, api.ContainerUpdate()])


def test_an_update_that_is_not_answered_gives_up_and_its_late_answer_is_ignored():
    with running(Quick()) as run:
        run.peer.set_up(**SAFE)
        with pytest.raises(PeerStalledError, match=r"did not answer .* 0\.02 s"):
            run.session.update_containers([UPDATE], 0.02)
        assert run.session._connection.pending_calls == ()
        assert run.session._waiters == {}
        event = run.peer.next_event()
        run.peer.send(run.peer.connection.reply(event.stream_id, b""))
        assert run.peer.call("CreateContainer", create()).status == 0


def test_an_update_in_flight_ends_with_the_connection():
    with running(Quick()) as run:
        run.peer.set_up(**SAFE)
        thread, box = in_thread(lambda: run.session.update_containers([UPDATE], GIVE_UP_S))
        run.peer.next_event()
        run.peer.close()
        thread.join()
        assert isinstance(box.get()[1], ConnectionLostError)
        with pytest.raises(ConnectionLostError):
            run.session.update_containers([UPDATE])


# -- ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 12, 17, 18, 50, -1])
def test_the_runtime_may_vanish_after_any_byte(cut):
    with running(Quick()) as run:
        run.peer.set_up()
        payload = create().SerializeToString()
        _, data = run.peer.connection.call(PLUGIN_SERVICE, "CreateContainer", payload)
        run.peer.send(data[:cut])
        run.peer.close()
        reason = run.end()
        assert isinstance(reason, ConnectionLostError)
        where = " in the middle of a frame" if cut else ""
        assert reason.message == "the runtime closed the connection" + where


def test_the_runtime_may_vanish_during_a_request():
    plugin = Stuck()
    with running(plugin, handler_deadline=lambda _: GIVE_UP_S) as run:
        run.peer.set_up()
        run.peer.start_call("CreateContainer", create(), timeout_ns=0)
        plugin.entered.get(timeout=GIVE_UP_S)
        run.peer.close()
        plugin.go.release()
        reason = run.end()
        assert isinstance(reason, ConnectionLostError)  # EPIPE, and no SIGPIPE


def test_a_peer_that_stops_reading_is_a_closed_connection():
    plugin = Quick()
    plugin.answers["c"] = api.CreateContainerResponse(
        adjust=api.ContainerAdjustment(annotations={"k": "v" * (3 << 20)})
    )
    with running(plugin, send_limit_s=0.05) as run:
        run.peer.set_up()
        run.peer.start_call("CreateContainer", create())
        reason = run.end()
        assert isinstance(reason, PeerStalledError)
        assert "has not read for 0.05 s" in reason.message


def test_lost_framing_ends_the_connection(caplog):
    with running(Quick()) as run:
        run.peer.set_up()
        run.peer.send(b"GET / HTTP/1.1\r\n\r\n")
        run.peer.expect_closed()
        reason = run.end()
        assert isinstance(reason, ProtocolError)
        announced = int.from_bytes(b"/ HT", "big")
        assert f"a frame of {announced} bytes was announced" in reason.message


def test_closing_answers_what_was_received():
    plugin = Stuck()
    with running(plugin, handler_deadline=lambda _: GIVE_UP_S) as run:
        run.peer.set_up()
        first = run.peer.start_call("CreateContainer", create("slow"), timeout_ns=0)
        plugin.entered.get(timeout=GIVE_UP_S)
        second = run.peer.start_call("CreateContainer", create("fast"))
        run.session.close()
        plugin.go.release()
        assert run.peer.answer_of(first).payload == b""
        assert run.peer.answer_of(second).payload == b"\x12\x03\x0a\x01x"
        run.peer.expect_closed()
        assert run.end().message == "closed by us"
        run.session.close()


def test_an_answer_later_than_the_runtime_waits_is_a_hint_at_the_end():
    plugin = Stuck()
    with running(plugin, handler_deadline=lambda _: GIVE_UP_S) as run:
        run.peer.set_up(request_timeout=1)
        stream_id = run.peer.start_call("CreateContainer", create(), timeout_ns=0)
        call = plugin.entered.get(timeout=GIVE_UP_S)
        while call.remaining() > GIVE_UP_S - 0.01:
            pass
        plugin.go.release()
        run.peer.answer_of(stream_id)
        run.peer.close()
        assert "CreateContainer came later than the runtime waits" in run.end().hint
