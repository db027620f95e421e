"""Keeps a plugin registered: connect, register, serve, and again when the socket is lost.

Every connection starts from nothing: configure, then the whole state in Synchronize. A
pre-launched plugin lives as long as the socket it was given; any other goes on until `stop`.
Waiting between attempts grows to a limit and is spread by chance, so that the plugins of a
node do not all come back at once; it starts over after a connection that got its state.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import random
import socket
import sys
from collections.abc import Callable, Mapping, Sequence

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.errors import NotAllowedError, SocketError
from nri_claim2core.nri.identity import (
    DEFAULT_SOCKET_PATH,
    connect,
    maybe_inherited_socket,
    parse_identity,
)
from nri_claim2core.nri.observer import LogObserver, Observer, tell
from nri_claim2core.nri.once import OnceLogger
from nri_claim2core.nri.plugin import Plugin, implemented_events
from nri_claim2core.nri.session import (
    REGISTRATION_TIMEOUT_S,
    SEND_LIMIT_S,
    Session,
    default_handler_deadline,
)

__all__ = ["Backoff", "Observer", "Runner", "default_handler_deadline", "run"]

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.05
MAX_DELAY_S = 2.0


class Backoff:
    """Delays that double up to a limit, each spread evenly over its upper half.

    `chance` gives numbers from 0 to below 1.
    """

    def __init__(
        self,
        first_s: float = FIRST_DELAY_S,
        max_s: float = MAX_DELAY_S,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first_s, self._max_s, self._chance = first_s, max_s, chance
        self._next_s = first_s

    def reset(self) -> None:
        """Start over with the first delay."""
        self._next_s = self._first_s

    def delay(self) -> float:
        """Give the seconds to wait before the next attempt."""
        whole = self._next_s
        self._next_s = min(whole * 2, self._max_s)
        return whole * (1 + self._chance()) / 2


class Runner:
    """Runs one plugin.

    The connection is `sock`, else the descriptor that a runtime passed, else `socket_path`
    (dialed again and again). `handler_deadline` maps the runtime's request time-out in ms to
    the seconds that a handler may take. `max_attempts` bounds failed attempts in a row; None
    = for ever. `wait` sleeps in place of the default and tells whether to stop. `observer` is
    told what happens; the default logs why the plugin is not registered.

    Raises IdentityError, and NotAllowedError for a plugin that handles no event.
    """

    def __init__(
        self,
        plugin: Plugin,
        name: str | None = None,
        index: str | None = None,
        *,
        socket_path: str | None = None,
        sock: socket.socket | None = None,
        observer: Observer | None = None,
        registration_timeout_s: float = REGISTRATION_TIMEOUT_S,
        handler_deadline: Callable[[int], float] = default_handler_deadline,
        send_limit_s: float = SEND_LIMIT_S,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        wait: Callable[[float], bool] | None = None,
        environment: Mapping[str, str] | None = None,
        program: str | None = None,
    ) -> None:
        if not implemented_events(plugin):
            raise NotAllowedError(
                f"{type(plugin).__name__} handles no event", hint="override a handler"
            )
        environment = os.environ if environment is None else environment
        program = sys.argv[0] if program is None else program
        self.identity = parse_identity(name, index, environment, program)
        self._once = OnceLogger(log, plugin=str(self.identity))
        self._plugin = plugin
        self._sock = maybe_inherited_socket(environment) if sock is None else sock
        self.socket_path = socket_path or DEFAULT_SOCKET_PATH
        self._observer = observer or LogObserver()
        self._registration_timeout_s = registration_timeout_s
        self._handler_deadline = handler_deadline
        self._send_limit_s = send_limit_s
        self._max_attempts = math.inf if max_attempts is None else max_attempts
        self._backoff = backoff or Backoff()
        self._wait = wait or self._wait_for_stop
        self._session: Session | None = None
        self._is_stopping = False
        # Not an Event: `put` may interrupt `get` of the same thread, in a signal handler.
        self._stops: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def is_prelaunched(self) -> bool:
        """Whether the connection was given and ends with its socket."""
        return self._sock is not None

    @property
    def session(self) -> Session | None:
        """The current connection, None between two."""
        return self._session

    def run(self) -> None:
        """Serve until `stop`, or until the socket given closes.

        Blocking: that long. Raises the last failure when attempts are bounded and used up,
        and when a connection given fails before it is registered.
        """
        if self._sock is not None:
            _, failure = self._serve(self._sock)
            if failure is not None and not self._is_stopping:
                raise failure
            return
        nr_failed = 0
        while not self._stops_now():
            failure = self._attempt()
            nr_failed = 0 if failure is None else nr_failed + 1
            if self._stops_now():
                return
            if failure is not None and nr_failed >= self._max_attempts:
                raise failure
            if self._wait(self._backoff.delay()):
                return

    def _stops_now(self) -> bool:
        return self._is_stopping

    # Dials and serves one connection; gives why it did not come to be registered.
    def _attempt(self) -> Claim2CoreError | None:
        try:
            sock = connect(self.socket_path)
        except SocketError as error:
            unreachable = error
            tell(self._once, lambda: self._observer.on_unreachable(unreachable))
            return unreachable
        was_synchronized, failure = self._serve(sock)
        if was_synchronized:
            self._backoff.reset()
        return failure

    # One connection to its end. Gives whether it got its state, and why it did not register.
    def _serve(self, sock: socket.socket) -> tuple[bool, Claim2CoreError | None]:
        session = Session(
            sock,
            self._plugin,
            name=self.identity.name,
            index=self.identity.index,
            observer=self._observer,
            handler_deadline=self._handler_deadline,
            send_limit_s=self._send_limit_s,
        )
        self._session = session
        if self._is_stopping:
            session.close()
        tell(self._once, self._observer.on_connected)
        session.start()
        failure: Claim2CoreError | None = None
        try:
            session.register(self._registration_timeout_s)
        except Claim2CoreError as error:
            failure = error
        ended = session.wait()
        self._session = None
        reason = failure or ended
        tell(self._once, lambda: self._observer.on_lost(reason))
        return session.is_synchronized, failure

    def stop(self) -> None:
        """End `run`, after requests already received are answered.

        Returns at once. Safe in signal handlers and from any thread.
        """
        self._is_stopping = True
        self._stops.put(None)
        session = self._session
        if session is not None:
            session.close()

    def update_containers(
        self,
        updates: Sequence[api.ContainerUpdate],
        timeout_s: float = SEND_LIMIT_S,
        *,
        force: bool = False,
    ) -> Sequence[api.ContainerUpdate]:
        """Ask the runtime for unsolicited updates: see `Session.update_containers`."""
        session = self._session
        if session is None:
            raise NotAllowedError("update_containers needs a registered connection")
        return session.update_containers(updates, timeout_s, force=force)

    def _wait_for_stop(self, seconds: float) -> bool:
        try:
            self._stops.get(timeout=seconds)
        except queue.Empty:
            return False
        return True


def run(plugin: Plugin, name: str | None = None, index: str | None = None) -> None:
    """Run a plugin until SIGTERM or SIGINT; for the main thread of a process of its own."""
    import signal  # noqa: PLC0415 - only here, and only in a main program

    runner = Runner(plugin, name, index)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.stop())
    runner.run()
