"""From what the connection tells to logs, metrics, health and the service manager.

A runtime that is not there yet is normal at boot: a failure is logged when it is a new one, its
repetitions only every minute. Readiness follows the connection; liveness does not, because
restarting a plugin brings no runtime back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from nri_claim2core.agent.health import Health
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.agent.systemd import Notifier
from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri.dispatch import Registration, Result
from nri_claim2core.nri.observer import Observer

log = logging.getLogger(__name__)

REPEAT_S: Final = 60.0
"""How often an unchanged failure to reach the runtime is logged again."""

_RESULTS: Final[dict[Result, str]] = {
    "ok": "ok",
    "unhandled": "ok",
    "refused": "refused",
    "error": "failed",
    "deadline": "deadline",
    "unreadable": "failed",
}


class ConnectionWatch(Observer):
    """Keeps everybody informed about the connection to the runtime.

    `on_ready` is called after each Synchronize was answered; it must not block.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        on_ready: Callable[[], None],
        handler_deadline: Callable[[int], float],
        notifier: Notifier | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.health = Health(live=("handlers",), ready=("registered", "synchronized"))
        self.notifier = notifier or Notifier()
        self.registration: Registration | None = None
        "What the connected runtime said; None between connections."
        self.nr_registrations = 0
        self._metrics = metrics
        self._on_ready = on_ready
        self._handler_deadline = handler_deadline
        self._clock = clock
        self._last_failure = ("", float("-inf"))
        self._was_ready = False
        self._is_stopping = False

    def on_unreachable(self, reason: Claim2CoreError) -> None:
        """Say what is wrong with the socket; attempts go on."""
        self._metrics.count("claim2core_nri_registrations_total", "failure")
        self._say_failure("runtime not reached", reason)

    def on_registered(self, registration: Registration) -> None:
        """Note what the runtime is and how long it waits for answers."""
        self.registration = registration
        self.nr_registrations += 1
        self._last_failure = ("", float("-inf"))
        deadline_s = self._handler_deadline(registration.request_timeout_ms)
        metrics = self._metrics
        metrics.count("claim2core_nri_registrations_total", "success")
        metrics.set(
            "claim2core_nri_request_timeout_seconds", registration.request_timeout_ms / 1000
        )
        metrics.set("claim2core_nri_handler_deadline_seconds", deadline_s)
        self.health.set("registered", is_good=True, detail=str(registration))
        log.info(
            "registered",
            extra={
                "runtime": str(registration),
                "events": f"{registration.events:#x}",
                "request_timeout_ms": registration.request_timeout_ms,
                "handler_deadline_ms": round(deadline_s * 1000),
            },
        )

    def on_synchronized(self) -> None:
        """Tell that the node's state was taken over: the plugin is ready."""
        self._metrics.set("claim2core_nri_connected", 1)
        self.health.set("synchronized", is_good=True, detail="containers taken over")
        self._was_ready = True
        self.notifier.ready(f"registered with {self.registration}")
        self._on_ready()

    def on_lost(self, reason: Claim2CoreError) -> None:
        """Tell that the connection ended, and which side ended it."""
        was_registered = self.registration is not None
        self.registration = None
        self._metrics.set("claim2core_nri_connected", 0)
        self.health.set("registered", is_good=False, detail=f"connection ended: {reason.message}")
        self.health.set("synchronized", is_good=False, detail="not connected")
        if not was_registered:
            self._metrics.count("claim2core_nri_registrations_total", "failure")
            self._say_failure("not registered", reason)
            return
        self._metrics.count("claim2core_nri_connections_lost_total")
        log.log(
            logging.INFO if self._is_stopping else logging.WARNING,
            "connection ended",
            extra={"reason": reason.message, "code": reason.code},
        )
        self.notifier.status(f"connection ended: {reason.message}; trying again")

    def on_duplicate(self, plugin: str) -> None:
        """Tell that the runtime lists a second plugin of our name and index."""
        log.error(
            "second instance",
            extra={
                "plugin": plugin,
                "hint": "two of them set the same cpusets and fail every creation: stop one",
            },
        )

    def on_request(self, method: str, seconds: float, result: Result) -> None:
        """Count an answered request."""
        self._metrics.request(method, seconds, _RESULTS[result])

    def reloaded(self) -> None:
        """Tell the service manager that a reload ended, applied or not."""
        if self._was_ready:
            self.notifier.ready(f"registered with {self.registration}")

    def stopping(self) -> None:
        """Tell that the process ends on purpose. Safe in signal handlers."""
        self._is_stopping = True
        self.notifier.stopping("stopping; containers keep their cpusets")

    def _say_failure(self, event: str, reason: Claim2CoreError) -> None:
        said, when = self._last_failure
        now = self._clock()
        if said == reason.message and now - when < REPEAT_S:
            return
        self._last_failure = (reason.message, now)
        log.warning(
            event,
            extra={
                "reason": reason.message,
                "hint": reason.hint,
                "code": reason.code,
                "effect": "containers start without this plugin; trying again",
            },
        )
        self.notifier.status(f"{event}: {reason.message}; trying again")
