"""The plugin's HTTP endpoint: /livez, /readyz, /metrics, /state and, if it seeds, /ledger.

Opened after registration, from housekeeping. An address that cannot be had is said once and
tried again by the caller: the plugin's work does not depend on being watched.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from nri_claim2core.agent.config_values import ListenAddress
from nri_claim2core.agent.health import Health, Probe
from nri_claim2core.agent.http import HttpServer, Provider, Request, Response
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.model.errors import HostError

if TYPE_CHECKING:
    from nri_claim2core.agent.exposition import Exposition

log = logging.getLogger(__name__)


class Endpoint:
    """An open endpoint, or - where no address is configured - none, with the same interface."""

    def __init__(self, address: ListenAddress, server: HttpServer | None) -> None:
        self.address: Final = address
        self._server: Final = server

    @classmethod
    def open(
        cls,
        address: ListenAddress,
        *,
        health: Health,
        metrics: Metrics,
        state: Callable[[], Mapping[str, Any]],
        ledger: Callable[[], Mapping[str, Any] | None] = lambda: None,
    ) -> Self | None:
        """Listen and serve; None when the address cannot be had now.

        `state` and `ledger` give the JSON documents of these pages, made on a thread of the
        server as all pages are.
        """
        if not address.is_enabled:
            return cls(address, None)
        server = HttpServer(address, pages(health, metrics, state, ledger))
        try:
            server.start()
        except HostError as error:
            _say_once(error.code, error.message, error.hint)
            return None
        log.info("http endpoint", extra={"listen": str(address)})
        return cls(address, server)

    @property
    def port(self) -> int:
        """The TCP port that is listened on, else 0."""
        return self._server.port if self._server else 0

    def close(self) -> None:
        """Stop serving."""
        if self._server:
            self._server.close()


def pages(
    health: Health,
    metrics: Metrics,
    state: Callable[[], Mapping[str, Any]],
    ledger: Callable[[], Mapping[str, Any] | None] = lambda: None,
) -> dict[str, Provider]:
    """Give what is served, by path."""

    def livez(request: Request) -> Response:
        return _probe(health, Probe.LIVE, request)

    def readyz(request: Request) -> Response:
        return _probe(health, Probe.READY, request)

    @functools.cache
    def exposition() -> Exposition:
        # The client library is loaded by the first scrape, see `exposition`.
        from nri_claim2core.agent import exposition as late  # noqa: PLC0415

        return late.Exposition(metrics)

    def scrape(request: Request) -> Response:
        body, content_type = exposition().render(request.accept)
        return Response(body, content_type=content_type)

    def show_state(_request: Request) -> Response:
        return _json(state())

    def show_ledger(_request: Request) -> Response:
        made = ledger()
        return Response(b"nothing is seeded\n", 404) if made is None else _json(made)

    return {
        "/livez": livez,
        "/readyz": readyz,
        "/metrics": scrape,
        "/state": show_state,
        "/ledger": show_ledger,
    }


def _json(document: Mapping[str, Any]) -> Response:
    body = json.dumps(document, indent=2) + "\n"
    return Response(body.encode(), content_type="application/json")


def _probe(health: Health, probe: Probe, request: Request) -> Response:
    is_good, parts = health.report(probe)
    status = 200 if is_good else 503
    if is_good and "verbose" not in request.query:
        return Response(b"ok\n", status)
    lines = [f"[{'+' if part.is_good else '-'}] {part.name}: {part.detail}" for part in parts]
    verdict = f"{probe.value} check {'passed' if is_good else 'failed'}"
    return Response("\n".join([*lines, verdict, ""]).encode(), status)


@functools.cache
def _say_once(code: str, message: str, hint: str) -> None:
    log.error("no http endpoint", extra={"reason": message, "hint": hint, "code": code})
