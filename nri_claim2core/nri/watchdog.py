"""Notices that a handler runs past its deadline, at no cost to handlers that do not.

To arm is one store and one comparison. The watching thread is woken only if it would sleep
longer than the call may take; while events come in quick succession it sleeps through to the
deadline of the first and looks then at what is current.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable

from nri_claim2core.nri.call import Call


class Watchdog:
    """Calls `expire` from its thread for an armed call whose deadline passed.

    `expire` decides, under its own lock, whether the call is really still running. Only the
    thread that runs handlers arms and disarms.
    """

    def __init__(self, expire: Callable[[Call], None]) -> None:
        self._expire = expire
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._sleeps_until = -math.inf
        self._is_stopped = False
        self.current: Call | None = None
        "The armed call; set to None to disarm."

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._run, name="nri-watchdog", daemon=True).start()

    def arm(self, call: Call) -> None:
        """Watch this call instead of the one before."""
        self.current = call
        if call.deadline < self._sleeps_until:
            self._sleeps_until = call.deadline
            self._wakeups.put(None)

    def stop(self) -> None:
        """End the thread, after an expiry in progress."""
        self._is_stopped = True
        self._wakeups.put(None)

    def _run(self) -> None:
        while not self._is_stopped:
            call = self.current
            # Announced before looking again: a call armed in between is either seen here or
            # wakes us up. A wake-up too many only makes one more round.
            self._sleeps_until = math.inf if call is None else call.deadline
            if self.current is not call:
                continue
            if call is None:
                self._wakeups.get()
                continue
            rest = call.deadline - time.monotonic()
            if rest > 0:
                del call  # with its request, which may be a whole node's state
                with contextlib.suppress(queue.Empty):
                    self._wakeups.get(timeout=rest)
            else:
                self._expire(call)
