"""Decide about a container: links, what they grant, who owns its cpuset, its envelope.

The one path from a container to a decision: the live plugin, `explain` and `simulate` all
come through here. It reads evidence once per decision (files, no network) and hands values to
the pure rules of `claims`. A container without any sign of a claim costs no read at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from nri_claim2core.agent.book import Entry
from nri_claim2core.claims.codes_table import CODES, SEVERITIES, finding
from nri_claim2core.claims.effects import Effects, Outcome, apply_effects
from nri_claim2core.claims.envelope import RESERVED_NAMESPACES, compute_envelope, keep_cpuset
from nri_claim2core.claims.environment import parse_claim_env
from nri_claim2core.claims.link import Linker
from nri_claim2core.claims.ownership import decide_ownership
from nri_claim2core.claims.predicates import check_double_booking, check_foreign, check_own
from nri_claim2core.claims.sources import read_device_list
from nri_claim2core.claims.specs import ClaimSpecs
from nri_claim2core.claims.text import shown_rule
from nri_claim2core.model.claim import Finding, Links
from nri_claim2core.model.cpuset import CpuSet, parse_kernel, union
from nri_claim2core.model.envelope import Envelope, Mode, Ownership
from nri_claim2core.model.errors import CpuListError
from nri_claim2core.model.evidence import NodeEvidence
from nri_claim2core.model.ids import ClaimUid, PodUid, SandboxId
from nri_claim2core.model.records import ContainerRecord, PodRecord

_UNCLAIMED: Final = Envelope(
    ownership=Ownership.NONE, cpus=CpuSet(), mems=CpuSet(), reason="no claim"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the operator chose, as decisions need it."""

    mode: Mode = Mode.AUTO
    effects: Effects = field(default_factory=Effects)
    rejects_foreign_violation: bool = False
    reserved_namespaces: frozenset[str] = RESERVED_NAMESPACES


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows for one container."""

    links: Links
    envelope: Envelope
    refusal: str = ""
    "Non-empty: refuse the creation with this message."

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything found, about links first."""
        return (*self.links.findings, *self.envelope.findings)

    @property
    def severity(self) -> str:
        """The worst severity among links and findings; "" when there is nothing to say."""
        found = {each.severity for each in self.findings}
        found |= {CODES[link.code].severity for link in self.links.links if link.code}
        return next((each for each in SEVERITIES if each in found), "")


Others = Callable[[], Sequence[Entry]]
"""Gives the claiming containers of the node; called only where they matter, as they are many."""

NO_CLAIM: Final = Decision(links=Links(), envelope=_UNCLAIMED)


class Decider:
    """Decides with one set of rules; a changed configuration makes a new one.

    `read_evidence` blocks on host files only. Safe for several threads.
    """

    def __init__(
        self, read_evidence: Callable[[], NodeEvidence], rules: Rules | None = None
    ) -> None:
        self._read_evidence = read_evidence
        self.rules = rules or Rules()
        self._specs: ClaimSpecs | None = None

    @staticmethod
    def has_sign_of_claim(container: ContainerRecord) -> bool:
        """Tell whether anything at all could point at a claim. Blocking: never."""
        return bool(container.claim_env or container.cdi_devices)

    @staticmethod
    def may_hold_claim(container: ContainerRecord) -> bool:
        """Tell whether a variable or device names a claim: without, none can be linked."""
        env = parse_claim_env(container.claim_env)
        devices = read_device_list(container.cdi_devices)
        return bool(env.well_formed or env.malformed or devices.claims)

    def at_create(
        self, pod: PodRecord, container: ContainerRecord, others: Others = list
    ) -> Decision:
        """Decide about a container that is being created; `others` are the claiming ones."""
        if not self.has_sign_of_claim(container):
            return NO_CLAIM
        evidence = self._read_evidence()
        links = self._linker(evidence).link(pod, container)
        decision = self._decide(pod, container, links, evidence, creating=True)
        envelope = decision.envelope
        if envelope.ownership is Ownership.NONE:
            return decision
        found: tuple[Finding, ...] = ()
        refusal = decision.refusal
        elsewhere = other_claims(links, others, self.rules.effects)
        if envelope.ownership is Ownership.OWN:
            found = check_double_booking(self._claimed(links), elsewhere)
        elif self.rules.mode is not Mode.OBSERVE:
            # The cpuset that arrived is what another plugin decided: it can be judged already.
            found = _judge_arrived(container.cpus, envelope, elsewhere, evidence)
            if self.rules.rejects_foreign_violation and not refusal:
                refusal = next(
                    (f"{each.code}: {each.message}" for each in found if each.severity == "error"),
                    "",
                )
        if not found:
            return decision
        return Decision(
            links=links,
            envelope=replace(envelope, findings=(*envelope.findings, *found)),
            refusal=refusal,
        )

    def at_synchronize(
        self, pods: Mapping[SandboxId, PodRecord], containers: Iterable[ContainerRecord]
    ) -> Iterator[tuple[ContainerRecord, Decision]]:
        """Decide about containers that exist; nothing is refused. Reads evidence once."""
        linker: Linker | None = None
        evidence: NodeEvidence | None = None
        for container in containers:
            if not self.has_sign_of_claim(container):
                yield container, NO_CLAIM
                continue
            if linker is None or evidence is None:
                evidence = self._read_evidence()
                linker = self._linker(evidence)
            pod = pods.get(container.sandbox_id) or orphan_pod(container)
            links = linker.link(pod, container)
            yield container, self._decide(pod, container, links, evidence, creating=False)

    def at_update(self, entry: Entry) -> Decision:
        """Decide again about a running container: what it holds stays, its CPUs may change.

        Links and owner were decided at creation and are kept; online CPUs and kubelet's
        exclusive CPUs are looked at anew. An envelope never becomes empty by this. Only a
        container that `is_unproven` (a checkpoint caught half-written, say) is linked again.
        """
        owner = entry.envelope.ownership
        if is_unproven(entry.container, entry.links):
            evidence = self._read_evidence()
            links = self._linker(evidence).link(entry.pod, entry.container)
            return self._decide(entry.pod, entry.container, links, evidence, creating=False)
        if owner is not Ownership.OWN:
            return Decision(links=entry.links, envelope=entry.envelope)
        outcome = apply_effects(entry.links, self.rules.effects, creating=False)
        evidence = self._read_evidence()
        envelope = self._envelope(
            entry.pod, entry.container, outcome, owner, evidence, creating=False
        )
        kubelet = evidence.cpu_manager
        if not envelope.cpus or (kubelet is not None and not kubelet.readable):
            # Kubelet's exclusive CPUs are not gone because their list cannot be read.
            return Decision(links=entry.links, envelope=entry.envelope)
        # What an update writes are CPUs: the memory nodes of the creation stay in force.
        return Decision(links=entry.links, envelope=replace(envelope, mems=entry.envelope.mems))

    def judge(
        self, entry: Entry, cpus: CpuSet, mems: CpuSet | None, others: Others
    ) -> tuple[Finding, ...]:
        """Check a cpuset that is or would be in force with the predicate of its owner."""
        envelope = entry.envelope
        if envelope.ownership is Ownership.OWN:
            return check_own(cpus, envelope, mems)
        if envelope.ownership is Ownership.FOREIGN:
            return check_foreign(
                cpus, envelope.cpus, other_claims(entry.links, others, self.rules.effects)
            )
        return ()

    def validate(self, entry: Entry, final_cpus: str, others: Others) -> str:
        """Give why a creation's final cpuset text is unacceptable, or "".

        Only what would let the container outside its bounds is rejected.
        """
        if self.rules.mode is Mode.OBSERVE:
            return ""
        try:
            cpus = parse_kernel(final_cpus)
        except CpuListError as error:
            return f"{error.code}: {error.message}"
        if not cpus:
            online = self._read_evidence().online
            if online is None:
                return ""
            cpus = online
        severe = [f for f in self.judge(entry, cpus, None, others) if f.severity == "error"]
        return f"{severe[0].code}: {severe[0].message}" if severe else ""

    def _linker(self, evidence: NodeEvidence) -> Linker:
        # An unchanged snapshot is the same object, and its index is still good.
        specs = self._specs
        if specs is None or specs.cdi is not evidence.cdi:
            specs = self._specs = ClaimSpecs(evidence.cdi)
        return Linker(evidence, specs)

    def _decide(
        self,
        pod: PodRecord,
        container: ContainerRecord,
        links: Links,
        evidence: NodeEvidence,
        *,
        creating: bool,
    ) -> Decision:
        kubelet = evidence.cpu_manager
        exclusive = _exclusive_cpus(evidence, pod, container)
        outcome = apply_effects(links, self.rules.effects, creating=creating)
        ownership = decide_ownership(
            self.rules.mode,
            container.cpus,
            has_claims=bool(outcome.granted),
            kubelet_entry=exclusive,
            kubelet_default=kubelet.default_cpus if kubelet and kubelet.pins else None,
            owned=container.owned,
            put_back=() if creating else _would_be_ours(outcome, exclusive, evidence.online),
        )
        envelope = self._envelope(pod, container, outcome, ownership, evidence, creating=creating)
        is_writing = self.rules.mode in (Mode.AUTO, Mode.ENFORCE)
        if is_writing and not creating and is_unproven(container, links):
            envelope = keep_cpuset(container, envelope)
        refusal = "" if self.rules.mode is Mode.OBSERVE else envelope.refusal
        return Decision(links=links, envelope=envelope, refusal=refusal)

    def _envelope(
        self,
        pod: PodRecord,
        container: ContainerRecord,
        outcome: Outcome,
        ownership: Ownership,
        evidence: NodeEvidence,
        *,
        creating: bool,
    ) -> Envelope:
        return compute_envelope(
            pod,
            container,
            outcome,
            ownership,
            topology=evidence.topology,
            kubelet_entry=_exclusive_cpus(evidence, pod, container),
            reserved_namespaces=self.rules.reserved_namespaces,
            creating=creating,
        )

    def _claimed(self, links: Links) -> CpuSet:
        return union(link.cpus for link in links.links if self.rules.effects.grants(link))


def _judge_arrived(
    arrived: str, envelope: Envelope, elsewhere: Mapping[ClaimUid, CpuSet], evidence: NodeEvidence
) -> tuple[Finding, ...]:
    try:
        cpus = parse_kernel(arrived)
    except CpuListError as error:
        return (finding("C2C-ENV-07", shown_rule(error.message)),)
    # An empty text confines nothing: the container would get every CPU online.
    cpus = cpus or evidence.online or CpuSet()
    return check_foreign(cpus, envelope.cpus, elsewhere) if cpus else ()


def is_unproven(container: ContainerRecord, links: Links) -> bool:
    """Tell whether we once confined a container of whose claims nothing can be proven now."""
    return container.owned and not links.granted


def other_claims(links: Links, others: Others, effects: Effects) -> dict[ClaimUid, CpuSet]:
    """Give the CPUs of every claim in force that the container itself does not hold.

    Naming a claim in the environment is not holding it: a forged link hides nobody's CPUs.
    """
    own = {link.claim_uid for link in links.links if effects.grants(link)}
    return {
        link.claim_uid: link.cpus
        for entry in others()
        if entry.envelope.ownership is not Ownership.NONE
        for link in entry.links.links
        if link.cpus and link.claim_uid not in own and effects.grants(link)
    }


def _exclusive_cpus(
    evidence: NodeEvidence, pod: PodRecord, container: ContainerRecord
) -> CpuSet | None:
    kubelet = evidence.cpu_manager
    return None if kubelet is None else kubelet.maybe_cpus_of(pod.uid, container.name)


def _would_be_ours(
    outcome: Outcome, exclusive: CpuSet | None, online: CpuSet | None
) -> tuple[CpuSet, ...]:
    ours = union(link.cpus for link in outcome.granted) | (exclusive or CpuSet())
    # CPUs may have gone offline since, or have been then.
    return (ours,) if online is None else (ours, ours & online)


def orphan_pod(container: ContainerRecord) -> PodRecord:
    """Give a stand-in for a sandbox the runtime did not list; it matches no pod UID."""
    return PodRecord(sandbox_id=container.sandbox_id, uid=PodUid(""))
