"""One connection on a socket: threads, deadlines, one answer for each request.

Leader and followers: the thread that reads the socket runs the handler itself, so that an
event costs no hand-over. When a handler's deadline passes, the watchdog cancels the call,
answers it as the plugin decides for that case, and a fresh thread goes on reading; the old
one ends when its handler returns, if ever. At most MAX_STUCK_HANDLERS threads can be lost
this way, then requests are answered so at once.

Who answers is decided under the writer lock, so every request is answered exactly once. The
thread that leads is also the only one that closes the socket. `close` may be called from a
signal handler: it takes no lock.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from google.protobuf.message import DecodeError

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.call import Call
from nri_claim2core.nri.connection import (
    Connection,
    Event,
    Ignored,
    Refused,
    RequestReceived,
    ResponseReceived,
    Role,
    Violation,
)
from nri_claim2core.nri.dispatch import (
    DEFAULT_REQUEST_TIMEOUT_MS,
    Dispatcher,
    Outcome,
    Registration,
    Result,
    Route,
)
from nri_claim2core.nri.errors import (
    ConnectionLostError,
    MessageTooLargeError,
    NotAllowedError,
    PeerStalledError,
    ProtocolError,
    RegistrationError,
    RpcError,
)
from nri_claim2core.nri.events_table import RUNTIME_SERVICE
from nri_claim2core.nri.observer import Observer, tell
from nri_claim2core.nri.once import OnceLogger
from nri_claim2core.nri.plugin import Plugin
from nri_claim2core.nri.status import Code
from nri_claim2core.nri.watchdog import Watchdog
from nri_claim2core.nri.wire import Wire

NRI_VERSION = "v0.12.2"
"The version whose messages this package has; runtimes only log it."
MAX_STUCK_HANDLERS = 8
RECEIVE_BUFFER_BYTES = 64 << 10
SEND_LIMIT_S = 2.0
"As long as a runtime waits for an answer by default."
REGISTRATION_TIMEOUT_S = 5.0
_SETUP_SHARE = 0.75  # of the runtime's time-out that Configure and Synchronize may use

log = logging.getLogger(__name__)
_thread = threading.local()  # .leads: this thread runs handlers


def default_handler_deadline(request_timeout_ms: int) -> float:
    """Give the seconds a handler may take: a quarter of the time-out, at most half a second."""
    return min(0.5, request_timeout_ms / 4000)


class Session:
    """A plugin on one connected socket; the session owns the socket from here on.

    `handler_deadline` maps the runtime's request time-out in ms to seconds. Raises
    NotAllowedError for a plugin that handles no event.
    """

    def __init__(
        self,
        sock: socket.socket,
        plugin: Plugin,
        *,
        name: str,
        index: str,
        observer: Observer | None = None,
        handler_deadline: Callable[[int], float] = default_handler_deadline,
        send_limit_s: float = SEND_LIMIT_S,
    ) -> None:
        self._name, self._index = name, index
        self._observer = observer or Observer()
        self._once = OnceLogger(log, plugin=f"{index}-{name}")
        self._dispatcher = Dispatcher(
            plugin, name=name, index=index, on_duplicate=self._note_duplicate
        )
        self._routes = self._dispatcher.routes
        self._handler_deadline = handler_deadline
        self._set_time_limits(DEFAULT_REQUEST_TIMEOUT_MS)

        self._wire = Wire(sock, send_limit_s)
        self._connection = Connection(Role.PLUGIN)
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._backlog: deque[Event] = deque()  # read, not yet served; the leader's
        self._watchdog = Watchdog(self._expire)
        self._nr_stuck = 0  # under the writer lock

        self._waiters: dict[int, queue.SimpleQueue[ResponseReceived | None]] = {}
        self._milestones: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._register_stream = 0
        self._register_reply: ResponseReceived | None = None
        self._is_closing = False
        self._is_configured = False
        self._is_registered = False
        self.is_synchronized = False
        "The runtime's state was taken over completely."
        self._is_duplicate = False
        self._overdue = ""  # method whose answer came later than the runtime waits

    def _set_time_limits(self, request_timeout_ms: int) -> None:
        self._request_timeout_s = request_timeout_ms / 1000
        self._setup_limit_s = self._request_timeout_s * _SETUP_SHARE
        self._limit_s = self._handler_deadline(request_timeout_ms)

    @property
    def registration(self) -> Registration | None:
        """What the runtime said in Configure; None before."""
        return self._dispatcher.registration if self._is_configured else None

    @property
    def nr_stuck(self) -> int:
        """Handlers that ran past their deadline and have not returned."""
        return self._nr_stuck

    # -- the owner's side ---------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve the runtime, in threads of this session's own.

        Where none is to be had, the connection ends.
        """
        try:
            self._watchdog.start()
            self._start_reader()
        except RuntimeError as error:
            self._wire.fail(ConnectionLostError(f"no thread to watch with: {error}"))
            self._finish()

    def register(self, timeout_s: float = REGISTRATION_TIMEOUT_S) -> Registration:
        """Register once and give what Configure said, whichever of the two comes first.

        Blocking: until the runtime accepted, at most `timeout_s`. Raises RegistrationError
        (the connection is closed then) saying which side gave up.
        """
        request = api.RegisterPluginRequest(
            plugin_name=self._name, plugin_idx=self._index, NRI_version=NRI_VERSION
        )
        deadline = time.monotonic() + timeout_s
        with self._wire.lock:
            stream_id, data = self._connection.call(
                RUNTIME_SERVICE,
                "RegisterPlugin",
                request.SerializeToString(),
                int(timeout_s * 1e9),
            )
            self._register_stream = stream_id
            self._wire.write(data)
        while True:
            try:
                milestone = self._milestones.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                missing = "an answer to RegisterPlugin"
                if self._register_reply is not None:
                    missing = "Configure"
                self._wire.fail(
                    RegistrationError(
                        f"we gave up after {timeout_s:g} s without {missing} from the runtime",
                        hint="it takes plugins in one at a time; raise the time-out",
                    )
                )
                milestone = self._milestones.get()
            if milestone == "registered" and self._dispatcher.registration is not None:
                return self._dispatcher.registration
            if milestone == "ended":
                self._milestones.put("ended")
                raise self._registration_failure()

    def _registration_failure(self) -> RegistrationError:
        reason = self._wire.reason
        if isinstance(reason, RegistrationError):
            return reason
        stage = "before it answered RegisterPlugin"
        if self._is_configured:
            stage = "after Configure"
        elif self._register_reply is not None:
            stage = "before Configure"
        failure = RegistrationError(f"registration ended {stage}: {reason.message}")
        failure.__cause__ = reason
        return failure

    def wait(self) -> Claim2CoreError:
        """Give why the connection ended. Blocking: until it does."""
        while self._milestones.get() != "ended":
            pass
        self._milestones.put("ended")
        return self._wire.reason

    def close(self) -> None:
        """End the connection after the requests already received are answered.

        Returns at once; `wait` tells the end. Safe in signal handlers and from any thread.
        """
        self._is_closing = True
        self._wire.stop_reading()

    def update_containers(
        self,
        updates: Sequence[api.ContainerUpdate],
        timeout_s: float = SEND_LIMIT_S,
        *,
        force: bool = False,
    ) -> Sequence[api.ContainerUpdate]:
        """Ask the runtime for unsolicited updates; gives those that failed.

        Blocking: until answered, at most `timeout_s` after the request was written. Raises
        NotAllowedError inside a handler, before registration, for an update without container
        id, and on runtimes that this call can dead-lock (NRI before 0.12.1) unless forced;
        MessageTooLargeError above 4 MiB; RpcError when the runtime refuses; PeerStalledError
        when it does not answer; ProtocolError for a damaged answer; ConnectionLostError.
        """
        if getattr(_thread, "leads", False):
            raise NotAllowedError(
                "update_containers would stall the runtime from inside a handler",
                hint="answer the event with updates, or call from another thread",
            )
        registration = self.registration
        if registration is None:
            raise NotAllowedError("update_containers needs a registered connection")
        if not (force or registration.updates_are_safe):
            raise NotAllowedError(
                f"update_containers can dead-lock {registration}", hint="needs NRI 0.12.1"
            )
        if not all(update.container_id for update in updates):
            raise NotAllowedError("an update without container_id changes nothing")
        payload = api.UpdateContainersRequest(update=updates).SerializeToString()
        answered: queue.SimpleQueue[ResponseReceived | None] = queue.SimpleQueue()
        with self._wire.lock:
            if self._wire.is_closed:
                raise ConnectionLostError("the connection ended") from self._wire.reason
            stream_id, data = self._connection.call(
                RUNTIME_SERVICE, "UpdateContainers", payload, int(timeout_s * 1e9)
            )
            self._waiters[stream_id] = answered
            self._wire.write(data)
        try:
            response = answered.get(timeout=timeout_s)
        except queue.Empty:
            self._connection.forget(stream_id)
            raise PeerStalledError(
                f"the runtime did not answer UpdateContainers within {timeout_s:g} s"
            ) from None
        finally:
            self._waiters.pop(stream_id, None)
        if response is None:
            raise ConnectionLostError("the connection ended") from self._wire.reason
        if response.status:
            raise RpcError(response.status, response.message)
        try:
            return api.UpdateContainersResponse.FromString(response.payload).failed
        except DecodeError as error:
            raise ProtocolError(f"the answer to UpdateContainers is damaged: {error}") from error

    # -- reading: one thread at a time ----------------------------------------------------

    def _lead(self) -> None:
        _thread.leads = True
        try:
            if self._serve():
                self._finish()
        except BaseException as error:  # the root of this thread: nobody would read on
            log.exception("nri session failed")
            self._wire.fail(ConnectionLostError(f"failure of our own: {error!r}"))
            self._finish()

    # Serves until the connection ended (True) or another thread took over (False).
    def _serve(self) -> bool:
        buffer, backlog = self._buffer, self._backlog
        view = memoryview(buffer)
        receive_into, receive_data = self._wire.receive_into, self._connection.receive_data
        while True:
            while backlog:
                event = backlog.popleft()
                if type(event) is not RequestReceived:
                    self._note(event)
                elif not self._handle(event):
                    return False
                del event  # a part of Synchronize has megabytes, the next event may be far
            try:
                size = receive_into(buffer)
            except OSError as error:
                self._wire.fail(ConnectionLostError(f"the socket failed: {error.strerror}"))
                return True
            if not size:
                self._wire.fail(self._end_of_stream())
                return True
            backlog.extend(receive_data(view[:size]))

    def _end_of_stream(self) -> ConnectionLostError:
        if self._is_closing:
            return ConnectionLostError("closed by us")
        where = self._connection.eof()
        hint = ""
        if self._overdue:
            hint = f"the answer to {self._overdue} came later than the runtime waits"
        return ConnectionLostError(
            "the runtime closed the connection" + (f" {where}" if where else ""), hint=hint
        )

    # Everything but requests to handle.
    def _note(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            if event.stream_id == self._register_stream:
                self._register_reply = event
                if event.status:
                    text = f"the runtime refused the plugin: {event.message} ({event.status})"
                    self._wire.fail(RegistrationError(text))
                else:
                    self._note_registered()
            elif (waiter := self._waiters.get(event.stream_id)) is not None:
                waiter.put(event)
        elif isinstance(event, Refused):
            with self._wire.lock:
                self._wire.write(event.data)
            self._once.warn("nri request refused", event.message, reason=event.message)
        elif isinstance(event, Violation):
            self._wire.fail(ProtocolError(f"the runtime broke the protocol: {event.reason}"))
        elif isinstance(event, Ignored):
            self._once.warn("nri message ignored", event.reason, reason=event.reason)

    def _finish(self) -> None:
        self._wire.close()
        # Nobody waits anew once the wire is closed.
        for waiter in list(self._waiters.values()):
            waiter.put(None)
        self._milestones.put("ended")
        self._watchdog.stop()

    # -- one request ------------------------------------------------------------------------

    # Gives False when the answer was given elsewhere and another thread reads on.
    def _handle(self, event: RequestReceived) -> bool:
        started = time.monotonic()
        method, stream_id = event.method, event.stream_id
        route = self._routes.get(method)
        if route is None:
            with self._wire.lock:
                self._wire.write(self._connection.reply(stream_id, b""))
            self._observe(method, started, "unhandled")
            return True
        try:
            request = route.request.FromString(event.payload)
        except DecodeError as error:
            text = f"ttrpc: error unmarshalling payload: {error}"
            with self._wire.lock:
                self._wire.write(self._connection.reply_error(stream_id, Code.INTERNAL, text))
            self._once.warn("nri payload cannot be read", method, method=method)
            self._observe(method, started, "unreadable")
            return True
        limit = self._setup_limit_s if route.is_setup else self._limit_s
        rest = event.timeout_ns * (_SETUP_SHARE * 1e-9)
        if 0 < rest < limit:
            limit = rest
        call = Call(method, request, started, started + limit, stream_id)
        if self._nr_stuck >= MAX_STUCK_HANDLERS:
            call.cancelled = True
            self._answer_late(call)
            return True
        return self._run(route, call)

    def _run(self, route: Route, call: Call) -> bool:
        self._watchdog.arm(call)
        outcome = self._dispatcher.answer(route, call)
        with self._wire.lock:
            if not call.cancelled:
                call.answered = True
                if not call.actions:
                    self._watchdog.current = None
                result = self._reply(call, outcome)
        if call.answered:
            if outcome.failure is not None:
                self._note_failure(call, outcome.failure)
            if route.is_setup:
                self._set_up(call, result)
            self._observe(call.method, call.started, result)
            if not call.actions:
                return True
        return self._follow_up(call)

    # Still watched: a log that nobody reads, say, must not keep the runtime waiting. Gives
    # False when another thread reads on.
    def _follow_up(self, call: Call) -> bool:
        # A write wakes the runtime's thread on our own CPU, in expectation that we sleep next.
        os.sched_yield()
        for action in call.actions:
            try:
                action()
            except BaseException as error:  # noqa: BLE001 - may fail as a handler may
                self._note_failure(call, error)
        call.actions.clear()  # closures that hold the call
        with self._wire.lock:
            if call.cancelled:
                self._nr_stuck -= 1
                return False
            self._watchdog.current = None
        return True

    # Under the writer lock.
    def _reply(self, call: Call, outcome: Outcome) -> Result:
        payload, error, result, _ = outcome
        if error is None:
            try:
                data = self._connection.reply(call.stream_id, payload)
            except MessageTooLargeError as too_large:
                error = RpcError(Code.RESOURCE_EXHAUSTED, too_large.message)
                result = "error"
                self._once.warn("nri answer too large", call.method, reason=too_large.message)
        if error is not None:
            data = self._connection.reply_error(call.stream_id, error.status, error.message)
        self._wire.write(data)
        return result

    # Called for every call that its handler is not done with in time.
    def _expire(self, call: Call) -> None:
        with self._wire.lock:
            if self._watchdog.current is not call:  # done meanwhile
                return
            call.cancelled = True
            self._watchdog.current = None
            self._nr_stuck += 1
        if not call.answered:
            self._answer_late(call)
        self._start_reader()

    def _start_reader(self) -> None:
        try:
            threading.Thread(target=self._lead, name="nri-reader", daemon=True).start()
        except RuntimeError as error:
            self._wire.fail(ConnectionLostError(f"no thread to read with: {error}"))
            self._finish()

    def _answer_late(self, call: Call) -> None:
        _thread.leads = True
        outcome = self._dispatcher.late_answer(call)
        with self._wire.lock:
            result = self._reply(call, outcome)
        self._once.warn("nri handler out of time", call.method, method=call.method, op=call.op)
        if outcome.failure is not None:
            self._note_failure(call, outcome.failure)
        self._set_up(call, result if outcome.error is None else "error")
        self._observe(call.method, call.started, result)

    # -- milestones, and telling about them ---------------------------------------------------

    def _set_up(self, call: Call, result: Result) -> None:
        request, registration = call.request, self._dispatcher.registration
        if result not in {"ok", "deadline"} or registration is None:
            return
        if isinstance(request, api.ConfigureRequest):
            self._set_time_limits(registration.request_timeout_ms)
            self._is_configured = True
            self._note_registered()
        elif isinstance(request, api.SynchronizeRequest) and not request.more:
            # The runtime synchronizes only whom it took in, whatever is still on its way.
            self._note_registered(is_implied=True)
            self.is_synchronized = True
            tell(self._once, self._observer.on_synchronized)

    def _note_registered(self, *, is_implied: bool = False) -> None:
        registration = self.registration
        if registration is None or self._is_registered:
            return
        if self._register_reply is not None or is_implied:
            self._is_registered = True
            tell(self._once, lambda: self._observer.on_registered(registration))
            self._milestones.put("registered")

    def _note_duplicate(self) -> None:
        if not self._is_duplicate:
            self._is_duplicate = True
            self._once.warn("nri plugin registered twice", hint="end the other instance")
            tell(self._once, lambda: self._observer.on_duplicate(f"{self._index}-{self._name}"))

    def _note_failure(self, call: Call, failure: BaseException) -> None:
        self._once.fail("nri handler failed", failure, call.method, method=call.method, op=call.op)

    def _observe(self, method: str, started: float, result: Result) -> None:
        seconds = time.monotonic() - started
        if seconds > self._request_timeout_s:
            self._overdue = method
        try:
            self._observer.on_request(method, seconds, result)
        except BaseException as error:  # noqa: BLE001 - see Observer
            self._once.fail("nri observer failed", error)
