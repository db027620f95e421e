"""The call in progress, as its handler sees it: how long it may take, whether it still counts.

When a handler's time is up its call is answered for it and `cancelled` turns true. The
handler may still be running then: it calls `check` before each side effect, so that nothing
is done for a container whose creation was already refused. What the runtime need not wait for,
such as a log line, a handler leaves for `afterwards`.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

from google.protobuf.message import Message

from nri_claim2core.model.errors import StaleError

# Starts anywhere, so that the lines of two runs of the plugin do not share ids.
_numbers = itertools.count(int.from_bytes(os.urandom(4), "big"))


class Cancelled(StaleError):
    """The call of this handler was already answered: do nothing more for it."""

    code = "C2C-NRI-10"


class Call:
    """One request of the runtime.

    `deadline` is in seconds of `time.monotonic`. Attributes may be read by any thread.
    """

    __slots__ = (
        "_number",
        "actions",
        "answered",
        "cancelled",
        "deadline",
        "method",
        "request",
        "started",
        "stream_id",
    )

    def __init__(
        self, method: str, request: Message, started: float, deadline: float, stream_id: int = 0
    ) -> None:
        self._number = next(_numbers)
        self.method = method
        "Name of the remote method, CreateContainer for instance."
        self.request = request
        self.started = started
        self.stream_id = stream_id
        self.deadline = deadline
        self.cancelled = False
        "Turns true once, when the deadline passed and the answer was given elsewhere."
        self.answered = False
        "The handler's answer was sent."
        self.actions: list[Callable[[], None]] = []
        "What `afterwards` collected, for the session."

    @property
    def op(self) -> str:
        """Eight hexadecimal digits that tell this call from others in logs."""
        return f"{self._number & 0xFFFFFFFF:08x}"

    def remaining(self) -> float:
        """Give the seconds left, negative when the time is up. Blocking: never."""
        return self.deadline - time.monotonic()

    def afterwards(self, action: Callable[[], None]) -> None:
        """Have `action` done when this call was answered, before the next event.

        By the session, on the handler's thread and within what is left of the deadline: then
        another thread reads on. What it raises is logged. Also done, when the handler
        returns, for a call that was answered elsewhere.
        """
        self.actions.append(action)

    def check(self) -> None:
        """Raise Cancelled when the call was already answered."""
        if self.cancelled:
            raise Cancelled(f"{self.method} {self.op} was already answered")
