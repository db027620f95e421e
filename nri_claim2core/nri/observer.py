"""What an endpoint tells its surroundings about its connection, for metrics and health.

Methods are called from the session's threads, one at a time for each connection but not
always on the same thread; they have to be quick. One that raises is logged and ignored: an
observer cannot take the connection down.
"""

from __future__ import annotations

from collections.abc import Callable

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri.dispatch import Registration, Result
from nri_claim2core.nri.once import OnceLogger


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


def tell(once: OnceLogger, action: Callable[[], None]) -> None:
    """Tell an observer something: call `action`, and log once if it fails."""
    try:
        action()
    except KeyboardInterrupt:  # the main thread's, where a runner tells
        raise
    except BaseException as error:  # noqa: BLE001 - see Observer
        once.fail("nri observer failed", error)
