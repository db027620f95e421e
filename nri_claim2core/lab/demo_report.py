"""What the demo found: one row per container and act, and which expectations failed.

Pure values and their two renderings: a document (JSON, YAML) and the cells of a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nri_claim2core.model.cpuset import CpuSet

COLUMNS: Final = (
    "CONTAINER", "CLAIMS", "ASKED", "CPUS", "MEMS", "FIRST", "VERDICT", "MS", "RESULT",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One container in one act."""

    act: str
    container: str
    claims: tuple[str, ...]
    asked: CpuSet
    "What its claims say; for one without claims all usable CPUs."
    cpus: CpuSet
    "Effective CPUs, from the kernel."
    mems: CpuSet | None
    first_act: CpuSet | None
    "What the workload printed before anything else; None where it did not start in this act."
    verdict: str = ""
    remark: str = ""
    "Said in place of the result, when what was expected is no success."
    added_ms: Mapping[str, float] = field(default_factory=dict)
    "Event to milliseconds in our plugin."
    failures: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of COLUMNS."""
        return (
            self.container,
            ",".join(self.claims) or "-",
            str(self.asked),
            str(self.cpus),
            "-" if self.mems is None else str(self.mems),
            self._first_cell,
            self.verdict or "-",
            f"{sum(self.added_ms.values()):.2f}" if self.added_ms else "-",
            "FAILED" if self.failures else self.remark or "ok",
        )

    @property
    def _first_cell(self) -> str:
        if self.first_act is None:
            return "-"
        return "=" if self.first_act == self.cpus else str(self.first_act)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """Everything one run has to say."""

    stage: str
    machine: Mapping[str, str]
    rows: tuple[Row, ...]
    times_ms: Mapping[str, float]
    "Plugin start to registered, and the like."
    not_shown: tuple[str, ...]
    failures: tuple[str, ...]
    "All that failed, in words: rows, and what belongs to no row."

    plugin_log: str = ""
    "The last lines of its log."

    def fields(self) -> dict[str, Any]:
        """Give it as plain data; keys as in Kubernetes."""
        return {
            "stage": self.stage,
            "machine": dict(self.machine),
            "rows": [_row(row) for row in self.rows],
            "timesMs": dict(self.times_ms),
            "notShown": list(self.not_shown),
            "failures": list(self.failures),
            "ok": not self.failures,
        }


def _row(row: Row) -> dict[str, Any]:
    return {
        "act": row.act,
        "container": row.container,
        "claims": list(row.claims),
        "asked": str(row.asked),
        "effective": {
            "cpus": str(row.cpus),
            "mems": None if row.mems is None else str(row.mems),
        },
        "firstAct": None if row.first_act is None else str(row.first_act),
        "verdict": row.verdict,
        "remark": row.remark,
        "addedMs": dict(row.added_ms),
        "failures": list(row.failures),
    }
