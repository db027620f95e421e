"""The envelope: the CPUs and memory nodes a container may ever run on, and who writes them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from nri_claim2core.model.claim import Finding
from nri_claim2core.model.cpuset import CpuSet


class Mode(enum.Enum):
    """What the operator wants of us on this node."""

    AUTO = "auto"
    "Own what nobody else pins, verify the rest."
    ENFORCE = "enforce"
    "Treat every container as ours."
    VERIFY = "verify"
    "Treat every container as somebody else's: check, report, never write."
    OBSERVE = "observe"
    "Look only: no predicate is refused, nothing is written."


class Ownership(enum.Enum):
    """Who writes a container's cpuset; decided once, at creation, and remembered."""

    OWN = "own"
    FOREIGN = "foreign"
    NONE = "none"
    "Nobody has to: no claim holds."


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What a container is confined to and why."""

    ownership: Ownership
    cpus: CpuSet
    "Empty = not confined by us."
    mems: CpuSet
    "Memory nodes; empty = left as they are."
    shares: int | None = None
    "CPU shares to set at creation; None = left as they are."
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    refusal: str = ""
    "Non-empty: the creation must be refused, with this message."
