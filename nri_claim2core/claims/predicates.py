"""Does the kernel agree: checks of an effective cpuset against what should hold (INV-ENVELOPE).

Two predicates, one for each kind of owner. Ours: effective = envelope. Somebody else's:
effective covers the container's claims and meets no other live claim. Both look at what the
kernel grants (`cpuset.cpus.effective`), since what was *written* proves nothing. A third check
is of claims alone: a device that was allocated again while its old holder still runs. They
return findings, most severe first, and never raise; none = the predicate holds.
"""

from __future__ import annotations

from collections.abc import Mapping

from nri_claim2core.claims.codes_table import finding
from nri_claim2core.model.claim import Finding
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.envelope import Envelope
from nri_claim2core.model.ids import ClaimUid


def check_own(
    effective: CpuSet, envelope: Envelope, effective_mems: CpuSet | None = None
) -> tuple[Finding, ...]:
    """Check a container whose cpuset we write; an envelope without CPUs confines nothing.

    `effective_mems` None = not read; memory nodes are checked where the envelope sets them.
    """
    findings = []
    if envelope.cpus:
        if outside := effective - envelope.cpus:
            findings.append(
                finding("C2C-ENV-10", f"effective {effective} has {outside} beyond {envelope.cpus}")
            )
        if missing := envelope.cpus - effective:
            findings.append(
                finding("C2C-ENV-11", f"effective {effective} lacks {missing} of {envelope.cpus}")
            )
    if envelope.mems and effective_mems is not None and (far := effective_mems - envelope.mems):
        findings.append(
            finding(
                "C2C-ENV-12", f"effective nodes {effective_mems} have {far} beyond {envelope.mems}"
            )
        )
    return tuple(findings)


def check_foreign(
    effective: CpuSet, claims: CpuSet, others: Mapping[ClaimUid, CpuSet]
) -> tuple[Finding, ...]:
    """Check a container whose cpuset another plugin writes.

    `claims` are the CPUs of the container's own claims, `others` the CPUs of every other live
    claim on the node (none of its own).
    """
    findings = []
    if missing := claims - effective:
        findings.append(
            finding("C2C-ENV-13", f"effective {effective} lacks claimed CPUs {missing}")
        )
    findings += [
        finding(
            "C2C-ENV-14",
            f"effective {effective} has CPUs {effective & others[uid]} of claim {uid}",
        )
        for uid in sorted(others)
        if not effective.isdisjoint(others[uid])
    ]
    return tuple(findings)


def check_double_booking(claims: CpuSet, others: Mapping[ClaimUid, CpuSet]) -> tuple[Finding, ...]:
    """Check that the CPUs of a container's claims are in no other claim that is still in force.

    `claims` and `others` are as for `check_foreign`.
    """
    return tuple(
        finding("C2C-ENV-15", f"CPUs {claims & others[uid]} are also those of claim {uid}")
        for uid in sorted(others)
        if not claims.isdisjoint(others[uid])
    )
