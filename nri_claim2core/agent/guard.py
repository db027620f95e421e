"""A bug of ours must not stop a node: what to do when a handler fails in a way nobody foresaw.

The runtime takes an error as "refuse", so a handler that breaks for every container would
keep every container from starting. A container with any sign of a claim is refused - it must
not start unconfined -, any other goes on unchanged. The same rule as when time runs out.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from nri_claim2core.nri import Call, Cancelled, RpcError

log = logging.getLogger(__name__)


class Judging(Protocol):
    """A plugin that can tell whether a request is about a container with a claim."""

    def may_be_claimed(self, request: Message) -> bool:
        """Tell whether anything points at a claim. Must not fail, must not block."""


P = TypeVar("P", bound=Judging)
Q = TypeVar("Q", bound=Message)
R = TypeVar("R")


def unclaimed_go_on(
    handler: Callable[[P, Q, Call], R | None],
) -> Callable[[P, Q, Call], R | None]:
    """Let a handler's unexpected failure refuse containers with a sign of a claim only."""

    @functools.wraps(handler)
    def guarded(self: P, request: Q, call: Call) -> R | None:
        try:
            return handler(self, request, call)
        except (RpcError, Cancelled):
            raise
        except Exception:
            # The root of a task: the session reports and refuses what is raised again.
            if self.may_be_claimed(request):
                raise
            log.exception(
                "handler failed",
                extra={"method": call.method, "effect": "no claim in sight: goes on unchanged"},
            )
            return None

    return guarded
