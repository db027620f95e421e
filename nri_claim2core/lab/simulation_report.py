"""What a scenario did: each step with its replies and checks, and the state at its end.

Pure values and their plain-data form; rendering as text is the command's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

KIND: Final = "SimulationReport"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One expectation and what was found."""

    what: str
    expected: str
    found: str
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One request to one plugin, with its answer in words and as data."""

    plugin: str
    event: str
    text: str
    content: Mapping[str, Any]
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One step of the scenario."""

    line: int
    title: str
    error: str
    "Why the step failed; empty = it did not."
    logged: tuple[str, ...]
    "Errors that the runtime only logs."
    replies: tuple[Reply, ...]
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether everything expected was found."""
        return all(check.ok for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """A container at the end."""

    key: str
    id: str
    phase: str
    cpus: str
    "Effective, as the simulated kernel has them."
    mems: str
    known: Mapping[str, Any]
    "The plugin's document about it; empty for one without claims."

    @property
    def verdicts(self) -> str:
        """Verdicts of its claims, in UID order."""
        return ",".join(link["verdict"] for link in self.known.get("links", ()))

    @property
    def ownership(self) -> str:
        """Who writes its cpuset, as the plugin sees it."""
        return str(self.known.get("envelope", {}).get("ownership", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """One run of one scenario."""

    name: str
    source: str
    description: str
    runtime: str
    steps: Sequence[StepReport]
    containers: Sequence[ContainerState]

    @property
    def ok(self) -> bool:
        """Whether every step met its expectations."""
        return all(step.ok for step in self.steps)

    def fields(self) -> dict[str, Any]:
        """Give it as plain data; keys as in Kubernetes."""
        return {
            "scenario": {
                "name": self.name,
                "file": self.source,
                "description": self.description,
                "runtime": self.runtime,
            },
            "steps": [_step(step) for step in self.steps],
            "containers": [
                {
                    "name": each.key,
                    "id": each.id,
                    "phase": each.phase,
                    "effective": {"cpus": each.cpus, "mems": each.mems},
                    "plugin": dict(each.known) or None,
                }
                for each in self.containers
            ],
            "ok": self.ok,
        }


def _step(step: StepReport) -> dict[str, Any]:
    return {
        "line": step.line,
        "step": step.title,
        "error": step.error,
        "logged": list(step.logged),
        "replies": [
            {
                "plugin": reply.plugin,
                "event": reply.event,
                "text": reply.text,
                "reply": dict(reply.content),
                "ms": reply.ms,
            }
            for reply in step.replies
        ],
        "checks": [
            {
                "what": check.what,
                "expected": check.expected,
                "found": check.found,
                "ok": check.ok,
            }
            for check in step.checks
        ],
        "ok": step.ok,
    }
