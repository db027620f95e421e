"""What the plugin says its rows are for: the page `/ledger` of its HTTP endpoint, read.

The page is the plugin's word, given without authentication to whoever may connect; it adds
provenance to what tools show, and nothing is deleted on its word alone. A plugin that does not
run, or serves no such page, is normal: the answer then says so.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nri_claim2core.agent.config_values import ListenAddress
from nri_claim2core.agent.documents import API_VERSION

PAGE: Final = "/ledger"
KIND: Final = "Ledger"
TIMEOUT_S: Final = 5.0
"""As long as the endpoint gives one connection."""
MAX_BYTES: Final = 64 << 20
"""A hundred thousand rows are 40 MB."""

_MAP_PREFIX: Final = "c2c_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Whose row it is, as the plugin wrote it down; empty is not known."""

    map: str
    "`cells`, `cgroups` or `tasks`."
    key: int
    generation: int = 0
    claims: tuple[str, ...] = ()
    pod: str = ""
    container: str = ""
    container_id: str = ""
    cgroup: str = ""
    cgroup_id: int = 0
    exec_class: str = ""
    cell: int = 0
    state: str = ""

    def fields(self) -> dict[str, Any]:
        """As an object of the tools' documents."""
        return {
            "claims": list(self.claims),
            "pod": self.pod,
            "container": self.container,
            "containerId": self.container_id,
            "cgroup": self.cgroup,
            "generation": self.generation,
            "state": self.state,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPage:
    """The ledger, or why there is none."""

    address: str
    "Where it was asked for; empty when the endpoint is switched off."
    problem: str = ""
    "Why there is none; empty with one."
    rows: Mapping[tuple[str, int], Provenance] = field(default_factory=dict)
    "By map and key."

    @property
    def has_answered(self) -> bool:
        """Tell whether there is a ledger."""
        return not self.problem

    def maybe_row(self, table: str, key: int) -> Provenance | None:
        """Give the provenance of a row."""
        return self.rows.get((table, key))


def read_ledger(address: ListenAddress, *, timeout_s: float = TIMEOUT_S) -> LedgerPage:
    """Ask the plugin; where there is no ledger the answer says why.

    Raises: nothing. Blocking: local network, `timeout_s` at most per read.
    """
    if not address.is_enabled:
        problem = "its HTTP endpoint is switched off (metrics.listen)"
        return LedgerPage(address="", problem=problem)
    try:
        return parse_ledger(_get(address, timeout_s), str(address))
    except TimeoutError:
        problem = f"no answer within {timeout_s:g} s"
    except OSError as error:
        problem = error.strerror or str(error)
    except (http.client.HTTPException, ValueError) as error:
        problem = f"not a ledger: {error or type(error).__name__}"
    return LedgerPage(address=str(address), problem=problem)


def parse_ledger(body: bytes, address: str = "") -> LedgerPage:
    """Read the page. Fields that are missing or of another type count as unknown.

    Raises: ValueError for what is no ledger at all.
    """
    try:
        document = json.loads(body)
    except (UnicodeDecodeError, RecursionError) as error:
        raise ValueError("no JSON") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ValueError(f"no document of kind {KIND}")
    if document.get("apiVersion") != API_VERSION:
        raise ValueError(f"apiVersion is not {API_VERSION}")
    listed = document.get("rows")
    if not isinstance(listed, list):
        raise ValueError("no list of rows")  # noqa: TRY004 - what is read, not who calls
    rows = (_row(each) for each in listed)
    return LedgerPage(address=address, rows={(row.map, row.key): row for row in rows if row})


def _row(item: object) -> Provenance | None:
    if not isinstance(item, dict):
        return None
    key, claims = item.get("key"), item.get("claims")
    if not isinstance(key, int):
        return None
    return Provenance(
        map=_text(item, "map").removeprefix(_MAP_PREFIX),
        key=key,
        generation=_number(item, "generation"),
        claims=tuple(map(str, claims)) if isinstance(claims, list) else (),
        pod=_text(item, "pod"),
        container=_text(item, "container"),
        container_id=_text(item, "containerId"),
        cgroup=_text(item, "cgroup"),
        cgroup_id=_number(item, "cgroupId"),
        exec_class=_text(item, "class"),
        cell=_number(item, "cell"),
        state=_text(item, "state"),
    )


def _text(item: Mapping[str, object], name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _number(item: Mapping[str, object], name: str) -> int:
    value = item.get(name)
    return value if isinstance(value, int) else 0


def _get(address: ListenAddress, timeout_s: float) -> bytes:
    connection = http.client.HTTPConnection("localhost", timeout=timeout_s)
    # Connected here, so that a unix socket and an address are one thing to the library.
    connection.sock = _connect(address, timeout_s)
    try:
        connection.request("GET", PAGE, headers={"Accept": "application/json"})
        response = connection.getresponse()
        if response.status == http.client.NOT_FOUND:
            raise ValueError(f"this version serves no {PAGE}")
        if response.status != http.client.OK:
            raise ValueError(f"HTTP status {response.status}")
        body = response.read(MAX_BYTES + 1)
    finally:
        connection.close()
    if len(body) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES} bytes")
    return body


def _connect(address: ListenAddress, timeout_s: float) -> socket.socket:
    if not address.path:
        return socket.create_connection((address.host, address.port), timeout=timeout_s)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(address.path)
    except OSError:
        connection.close()
        raise
    return connection
