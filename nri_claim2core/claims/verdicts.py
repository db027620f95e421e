"""The decision table: from what the sources say about one claim to one verdict.

Root-owned evidence decides and the environment is a hint. Two questions, in this order: does
the container *hold* the claim (the runtime's CDI list says so; where the runtime does not
report one, kubelet's checkpoint says so of the pod and the environment points there), and do
we know its *CPUs* (only the CDI spec can tell). A no is forgery only from evidence that must
be newer than the container; a source that could not be asked leaves the claim unverified.
Upholds: CPUs are granted from the CDI spec alone, never from the environment.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from nri_claim2core.claims.environment import claim_variable
from nri_claim2core.claims.sources import Held, HeldAnswer, Listed, ListedAnswer, Said, SaidAnswer
from nri_claim2core.claims.specs import SpecAnswer, SpecState
from nri_claim2core.model.claim import Verdict
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.ids import ClaimUid

_NO_CPUS: Final = CpuSet()


class Seen(NamedTuple):
    """Everything that was seen about one claim of one container."""

    uid: ClaimUid
    listed: ListedAnswer
    spec: SpecAnswer
    held: HeldAnswer
    said: SaidAnswer
    has_started: bool
    "The container was created long ago: kubelet may have let go of the claim since."


class Judgment(NamedTuple):
    """The verdict, the CPUs that go with it, and why."""

    verdict: Verdict
    code: str
    reason: str
    cpus: CpuSet


def judge(seen: Seen) -> Judgment:
    """Give the verdict on one claim of one container."""
    if seen.listed.state is Listed.NAMED:
        return _held(seen, seen.listed.evidence.detail)
    if seen.listed.state is Listed.OTHER_DEVICES and seen.said.state is Said.NOTHING:
        return _verdict(Verdict.VERIFIED, "", seen.listed.evidence.detail)
    pod_holds = (
        seen.listed.state is Listed.UNREPORTED
        and seen.held.state is Held.BY_POD
        and seen.said.state is not Said.NOTHING
    )
    if pod_holds:
        return _held(seen, seen.held.evidence.detail)
    if seen.said.state is Said.MALFORMED:
        return _verdict(Verdict.MALFORMED, "C2C-CLAIM-10", seen.said.evidence.detail)
    return _not_held(seen)


def _held(seen: Seen, proof: str) -> Judgment:
    """The container holds the claim, by `proof`: what remains is which CPUs these are."""
    said = seen.said.evidence.detail
    if seen.spec.state is SpecState.MISSING:
        return _verdict(Verdict.STALE, "C2C-CLAIM-11", f"{proof}, but {seen.spec.evidence.detail}")
    if seen.spec.state is SpecState.UNUSABLE:
        return _verdict(
            Verdict.UNVERIFIED, "C2C-CLAIM-05", f"{proof}, but {seen.spec.evidence.detail}"
        )
    cpus = seen.spec.cpus
    match seen.said.state:
        case Said.SAME:
            return _verdict(Verdict.VERIFIED, "", proof, cpus)
        case Said.NOTHING:
            return _verdict(Verdict.VERIFIED, "C2C-CLAIM-01", f"{proof}; {said}", cpus)
        case Said.OTHER:
            return _verdict(Verdict.MISMATCH, "C2C-CLAIM-02", said, cpus)
        case Said.MALFORMED:
            return _verdict(
                Verdict.MISMATCH, "C2C-CLAIM-03", f"{said}; the CDI spec says {cpus}", cpus
            )


def _not_held(seen: Seen) -> Judgment:
    """The environment names the claim in a readable way and nothing shows that it is held."""
    claimed = f"the environment sets {claim_variable(seen.uid)}"
    listed, held = seen.listed.evidence.detail, seen.held.evidence.detail
    match seen.listed.state:
        case Listed.ABSENT:
            return _verdict(Verdict.FORGED, "C2C-CLAIM-06", f"{claimed}, but {listed}")
        case Listed.OTHER_DEVICES:
            return _verdict(Verdict.FORGED, "C2C-CLAIM-09", f"{claimed}, but {listed}")
        case _:
            pass
    match seen.held.state:
        case Held.BY_OTHERS:
            return _verdict(Verdict.FORGED, "C2C-CLAIM-07", f"{claimed}, but {held}")
        case Held.UNKNOWN_CLAIM if seen.has_started:
            return _verdict(Verdict.STALE, "C2C-CLAIM-12", f"{claimed}, but {held} any more")
        case Held.UNKNOWN_CLAIM:
            # Kubelet records a claim before it creates the first container that holds it.
            return _verdict(Verdict.FORGED, "C2C-CLAIM-08", f"{claimed}, but {held}")
        case _:
            pass
    if seen.spec.state is SpecState.PRESENT:
        # Of use to `onUnverified: enforce` only where spec and environment agree.
        cpus = seen.spec.cpus if seen.said.state is Said.SAME else CpuSet()
        reason = f"{seen.spec.evidence.detail}, but {held}"
        return _verdict(Verdict.UNVERIFIED, "C2C-CLAIM-04", reason, cpus)
    reason = f"{claimed}, but {seen.spec.evidence.detail}, and {held}"
    return _verdict(Verdict.UNVERIFIED, "C2C-CLAIM-13", reason)


def _verdict(verdict: Verdict, code: str, reason: str, cpus: CpuSet | None = None) -> Judgment:
    return Judgment(verdict, code, reason, _NO_CPUS if cpus is None else cpus)
