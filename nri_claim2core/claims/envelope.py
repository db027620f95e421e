"""The envelope of a container: CPUs, memory nodes and shares that follow from its claims.

Envelope = union of the granted claims' CPUs that are online, and of what kubelet's CPU manager
gave the container for itself: we allocate nothing and take nothing away from it. It is never
empty: a container all of whose CPUs are offline is refused at creation, or left as it is.
Memory nodes are those *with memory* of these CPUs, within what the memory manager set; where
that leaves none they stay as they are, because the kernel reads an empty set as "no limit".
They are written at creation only: of what exists already they are part of the envelope as far
as they have been set.

The result says what to write (`own`), what to check (`foreign`) or nothing (`none`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nri_claim2core.claims.codes_table import finding
from nri_claim2core.claims.effects import Outcome
from nri_claim2core.claims.optout import read_opt_out
from nri_claim2core.claims.text import shown_rule
from nri_claim2core.model.claim import ClaimLink, Finding
from nri_claim2core.model.cpuset import CpuSet, parse_kernel, union
from nri_claim2core.model.envelope import Envelope, Ownership
from nri_claim2core.model.errors import CpuListError
from nri_claim2core.model.records import ContainerRecord, PodRecord
from nri_claim2core.model.topology import NodeTopology

MIN_SHARES: Final = 2
"""Shares of a container without a CPU request: kubelet's and the kernel's minimum."""

SHARES_PER_CPU: Final = 1024
"""What kubelet gives for a request of one CPU."""

MAX_SHARES: Final = 262144
"""The kernel's maximum; a claim of more than 256 CPUs is capped as kubelet caps a request."""


RESERVED_NAMESPACES: Final[frozenset[str]] = frozenset({"kube-system"})
"""Default of the namespaces whose containers keep their memory nodes."""


def compute_envelope(
    pod: PodRecord,
    container: ContainerRecord,
    outcome: Outcome,
    ownership: Ownership,
    *,
    topology: NodeTopology | None = None,
    kubelet_entry: CpuSet | None = None,
    reserved_namespaces: frozenset[str] = RESERVED_NAMESPACES,
    creating: bool = True,
) -> Envelope:
    """Give what a container is confined to. Never raises.

    `topology` None = /sys could not be read: no CPU counts as offline, memory nodes stay.
    `kubelet_entry` is what kubelet's CPU manager gave this container alone. `creating` False:
    nothing is refused.
    """
    refusal = outcome.refusal if creating else ""
    if not outcome.granted:
        return _unconfined("no claim holds", (), refusal)
    opt_out = read_opt_out(pod.annotations, container.name)
    findings = list(opt_out.findings)
    if opt_out.preserved:
        findings.append(finding("C2C-ENV-01", f"annotation {opt_out.annotation} is true"))
        return _unconfined("opted out", findings, refusal)
    claimed = union(link.cpus for link in outcome.granted)
    if not claimed:
        return _unconfined("its claims have no CPUs", findings, refusal)

    names = _names(outcome.granted)
    online = claimed if topology is None else claimed & topology.online
    if not online:
        findings.append(finding("C2C-ENV-03", f"CPUs {claimed} of {names}"))
    elif online != claimed:
        findings.append(finding("C2C-ENV-04", f"CPUs {claimed - online} of {names} are left out"))
    if ownership is not Ownership.OWN:
        return Envelope(
            ownership=ownership,
            cpus=online,
            mems=CpuSet(),
            reason=f"CPUs of {names}, checked and not written",
            findings=tuple(findings),
            refusal=refusal,
        )
    exclusive = _online_part(kubelet_entry, topology)
    if not online | exclusive:
        if creating and not refusal:
            refusal = f"C2C-ENV-03: no CPU of {names} is online ({claimed})"
        return _unconfined("no CPU of its claims is online", findings, refusal)
    # Reserved containers keep the root's memory nodes.
    near = None if pod.namespace in reserved_namespaces else topology
    also = f" and kubelet's exclusive CPUs {exclusive}" if exclusive - online else ""
    return Envelope(
        ownership=ownership,
        cpus=online | exclusive,
        mems=_memory_nodes(online | exclusive, container.mems, near, findings, creating=creating),
        shares=None if exclusive else _shares(container, online),
        reason=f"CPUs of {names}{also}",
        findings=tuple(findings),
        refusal=refusal,
    )


def keep_cpuset(container: ContainerRecord, envelope: Envelope) -> Envelope:
    """Give the envelope of a running container that is ours and holds no claim any more.

    It keeps the CPUs that it has: the claim's end frees nobody to move it. `envelope` is what
    stands where there are none.
    """
    try:
        cpus = parse_kernel(container.cpus)
    except CpuListError:
        return envelope
    if not cpus or envelope.ownership is not Ownership.NONE:
        return envelope
    return Envelope(
        ownership=Ownership.OWN,
        cpus=cpus,
        mems=CpuSet(),
        reason=f"{envelope.reason}; it keeps the CPUs it has",
        findings=envelope.findings,
    )


def _online_part(kubelet_entry: CpuSet | None, topology: NodeTopology | None) -> CpuSet:
    if kubelet_entry is None:
        return CpuSet()
    return kubelet_entry if topology is None else kubelet_entry & topology.online


def _memory_nodes(
    cpus: CpuSet,
    arrived_text: str,
    topology: NodeTopology | None,
    findings: list[Finding],
    *,
    creating: bool,
) -> CpuSet:
    """Give the memory nodes that have to hold; empty = leave them as they arrived."""
    if topology is None:
        return CpuSet()
    near = topology.memory_nodes_of(cpus)
    if not near:
        if topology.nodes:
            findings.append(finding("C2C-ENV-06", f"CPUs {cpus} are on nodes without memory"))
        return near
    try:
        arrived = parse_kernel(arrived_text) if arrived_text else CpuSet()
    except CpuListError as e:
        findings.append(finding("C2C-ENV-07", shown_rule(e.message)))
        return CpuSet()
    if not arrived:
        return near if creating else CpuSet()
    if near.isdisjoint(arrived):
        findings.append(
            finding("C2C-ENV-05", f"set are nodes {arrived}, the CPUs' nodes are {near}")
        )
        return CpuSet()
    return near & arrived if creating or arrived <= near else CpuSet()


def _shares(container: ContainerRecord, claimed: CpuSet) -> int | None:
    """Give the shares of a claim-only container; a CPU request keeps its own."""
    if (container.shares or 0) > MIN_SHARES or not claimed:
        return None
    return min(SHARES_PER_CPU * len(claimed), MAX_SHARES)


def _unconfined(reason: str, findings: Iterable[Finding], refusal: str) -> Envelope:
    return Envelope(
        ownership=Ownership.NONE,
        cpus=CpuSet(),
        mems=CpuSet(),
        reason=reason,
        findings=tuple(findings),
        refusal=refusal,
    )


def _names(granted: tuple[ClaimLink, ...]) -> str:
    uids = [link.claim_uid for link in granted if link.cpus]
    if len(uids) == 1:
        return f"claim {uids[0]}"
    more = f" and {len(uids) - 2} more" if len(uids) > 2 else ""  # noqa: PLR2004 - two shown
    return f"claims {', '.join(uids[:2])}{more}"
