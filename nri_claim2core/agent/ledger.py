"""The ledger: every row that we meant to write, and why (INV-EXPLAINED).

A row is noted as intended before the kernel is asked and as done when it has answered; what lies
between is what a crash leaves behind. The ledger is of this process: after a restart it is made
anew from what the runtime says exists, and rows of the maps that it then does not have are
nobody's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from nri_claim2core.agent.documents import API_VERSION
from nri_claim2core.model.ids import ContainerId

CGROUPS: Final = "c2c_cgroups"
TASKS: Final = "c2c_tasks"

INTENDED: Final = "intended"
DONE: Final = "done"

Key = tuple[str, int]
"""Map and key of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One row with its provenance: claim, pod, container, cgroup, thread, decision."""

    map: str
    key: int
    "Cgroup id or TID."
    container_id: ContainerId
    container: str
    pod: str
    claims: tuple[str, ...]
    cgroup: str
    cgroup_id: int
    exec_class: str
    cell: int
    pid_ino: int = 0
    generation: int = 0
    "As the kernel stamped it; 0 until done."
    state: str = INTENDED

    @property
    def at(self) -> Key:
        """Where it is."""
        return (self.map, self.key)


@dataclass(frozen=True, slots=True)
class Difference:
    """Ledger against maps, by key."""

    missing: frozenset[Key]
    "Done, and not in the maps."
    extra: frozenset[Key]
    "In the maps, and not in the ledger."
    different: frozenset[Key]
    "In both, with another generation."


class Ledger:
    """All rows; every method is safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[Key, LedgerRow] = {}

    def intend(self, rows: Iterable[LedgerRow]) -> None:
        """Note rows that are about to be written."""
        with self._lock:
            for row in rows:
                self._rows[row.at] = replace(row, generation=0, state=INTENDED)

    def done(self, key: Key, generation: int) -> None:
        """Note that a row was written."""
        with self._lock:
            if key in self._rows:
                self._rows[key] = replace(self._rows[key], generation=generation, state=DONE)

    def forget(self, keys: Iterable[Key]) -> None:
        """Note that rows are gone, or were never written."""
        with self._lock:
            for key in keys:
                self._rows.pop(key, None)

    def of_container(self, container_id: ContainerId) -> list[LedgerRow]:
        """Give the rows of a container."""
        with self._lock:
            return [row for row in self._rows.values() if row.container_id == container_id]

    def rows(self) -> list[LedgerRow]:
        """Give all rows."""
        with self._lock:
            return list(self._rows.values())

    def compare(self, actual: dict[Key, int]) -> Difference:
        """Compare with the generations found in the maps, by key."""
        with self._lock:
            done = {key: row for key, row in self._rows.items() if row.state == DONE}
            known = set(self._rows)
        return Difference(
            missing=frozenset(done.keys() - actual.keys()),
            extra=frozenset(actual.keys() - known),
            different=frozenset(
                key for key in done.keys() & actual.keys() if done[key].generation != actual[key]
            ),
        )


def ledger_document(ledger: Ledger) -> dict[str, Any]:
    """Give the JSON document that tools read."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Ledger",
        "rows": [
            {
                "map": row.map,
                "key": row.key,
                "generation": row.generation,
                "claims": list(row.claims),
                "pod": row.pod,
                "container": row.container,
                "containerId": row.container_id,
                "cgroup": row.cgroup,
                "cgroupId": row.cgroup_id,
                "class": row.exec_class,
                "cell": row.cell,
                "state": row.state,
            }
            for row in sorted(ledger.rows(), key=lambda row: row.at)
        ],
    }
