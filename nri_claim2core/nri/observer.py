"""What an endpoint tells its surroundings about its connection, for metrics and health.

Methods are called from the session's threads, one at a time for each connection but not
always on the same thread; they have to be quick. One that raises is logged and ignored: an
observer cannot take the connection down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri.dispatch import Registration, Result
from nri_claim2core.nri.errors import RegistrationError
from nri_claim2core.nri.once import OnceLogger

log = logging.getLogger(__name__)


class Observer:
    """Base class; every method does nothing."""

    def on_unreachable(self, reason: Claim2CoreError) -> None:
        """The runtime's socket could not be reached; another attempt follows."""

    def on_connected(self) -> None:
        """The socket is connected; registration follows."""

    def on_registered(self, registration: Registration) -> None:
        """The runtime took the plugin in; its Synchronize follows."""

    def on_synchronized(self) -> None:
        """The state of the node was taken over; events follow."""

    def on_lost(self, reason: Claim2CoreError) -> None:
        """A connection ended, registered or not; `reason` says which side gave up."""

    def on_duplicate(self, plugin: str) -> None:
        """The runtime lists another plugin with our index and name (`NN-name`).

        Only runtimes that ask this plugin to validate adjustments tell.
        """

    def on_request(self, method: str, seconds: float, result: Result) -> None:
        """A request was answered, this long after it was read."""


class LogObserver(Observer):
    """Logs why the plugin is not at work, and no reason twice in a row.

    The reason is part of the text: a program that set up no logging shows nothing else.
    """

    def __init__(self) -> None:
        self._said = ""

    def on_unreachable(self, reason: Claim2CoreError) -> None:
        """Log a warning."""
        self._say("the runtime is not reached", reason)

    def on_registered(self, registration: Registration) -> None:
        """Log the runtime."""
        self._said = ""
        log.info("registered with %s", registration)

    def on_lost(self, reason: Claim2CoreError) -> None:
        """Log a warning where the runtime did not take the plugin in; others lose it daily."""
        if isinstance(reason, RegistrationError):
            self._say("the plugin is not registered", reason)

    def _say(self, text: str, reason: Claim2CoreError) -> None:
        if str(reason) != self._said:
            self._said = str(reason)
            log.warning("%s: %s", text, reason)


def tell(once: OnceLogger, action: Callable[[], None]) -> None:
    """Tell an observer something: call `action`, and log once if it fails."""
    try:
        action()
    except KeyboardInterrupt:  # the main thread's, where a runner tells
        raise
    except BaseException as error:  # noqa: BLE001 - see Observer
        once.fail("nri observer failed", error)
