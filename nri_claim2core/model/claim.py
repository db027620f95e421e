"""What we conclude about a claim of a container: a verdict, its CPUs, all evidence seen."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.evidence import Evidence
from nri_claim2core.model.ids import ClaimUid


class Verdict(enum.Enum):
    """How far a claimed link is proven; the default effect of each is in the configuration."""

    VERIFIED = "verified"
    "The CDI list names the claim; or the CDI spec does, and checkpoint or node state the pod."
    MISMATCH = "mismatch"
    "Verified, but the environment names other CPUs or cannot be parsed: the spec's CPUs hold."
    UNVERIFIED = "unverified"
    "Only the CDI spec matches and nothing else could be reached."
    FORGED = "forged"
    "Evidence newer than the container says it does not hold the claim."
    MALFORMED = "malformed"
    "A claim-shaped variable that cannot be parsed and no evidence for the claim."
    STALE = "stale"
    "The evidence names a claim that was deallocated, or whose spec is gone."

    @property
    def grants(self) -> bool:
        """Tell whether the claim's CPUs are granted by default."""
        return self in (Verdict.VERIFIED, Verdict.MISMATCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLink:
    """One claim of one container with its verdict."""

    claim_uid: ClaimUid
    verdict: Verdict
    cpus: CpuSet = field(default_factory=CpuSet)
    "The CDI spec's CPUs; empty when the claim grants none (a GPU claim, or no grant)."
    evidence: tuple[Evidence, ...] = ()
    "Every source looked at, strongest first."
    reason: str = ""
    "One sentence that names variable, value and rule where there is one."
    code: str = ""
    "Stable finding code, e.g. C2C-CLAIM-04; empty for a plain verified link."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something an operator should know about a container that is not a link."""

    code: str
    severity: str
    "`error`, `warning` or `info`."
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """All claims of one container, in UID order, and what else was found on the way."""

    links: tuple[ClaimLink, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def granted(self) -> tuple[ClaimLink, ...]:
        """The links whose claims hold."""
        return tuple(link for link in self.links if link.verdict.grants)
