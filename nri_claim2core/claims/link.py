"""Link a container to its claims: candidates, every source's answer, a verdict each.

Candidates are the claims that the runtime's CDI list names and those that the environment
names. The checkpoint adds none (it speaks of pods). Claims that only the environment names, of
which no spec and no checkpoint entry exists, are looked at up to a limit: a pod author can
write thousands, and each would be kept.

The result depends on the values alone, not on the order in which entries, devices or files
come: links in UID order, findings sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nri_claim2core.claims.codes_table import finding
from nri_claim2core.claims.environment import EnvClaims, parse_claim_env
from nri_claim2core.claims.sources import (
    DeviceList,
    Held,
    Listed,
    ask_checkpoint,
    ask_device_list,
    ask_environment,
    read_device_list,
)
from nri_claim2core.claims.specs import ClaimSpecs
from nri_claim2core.claims.verdicts import Seen, judge
from nri_claim2core.model.claim import ClaimLink, Finding, Links
from nri_claim2core.model.evidence import NodeEvidence
from nri_claim2core.model.ids import ClaimUid
from nri_claim2core.model.records import ContainerRecord, ContainerState, PodRecord

MAX_UNKNOWN: Final = 16
"""Claims that nothing but the environment names and that get a link; the rest is counted."""

_STARTED: Final = frozenset({ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.STOPPED})


class Linker:
    """Links any number of containers against one reading of the node's evidence."""

    def __init__(self, evidence: NodeEvidence, specs: ClaimSpecs | None = None) -> None:
        """Take the evidence, and its spec files' index where one was made before."""
        self._evidence = evidence
        self._specs = ClaimSpecs(evidence.cdi) if specs is None else specs

    def link(self, pod: PodRecord, container: ContainerRecord) -> Links:
        """Give every claim of the container with its verdict. Never raises."""
        if not container.claim_env and not container.cdi_devices:
            return Links()
        env = parse_claim_env(container.claim_env)
        devices = read_device_list(container.cdi_devices)
        findings = [*_env_findings(env), *devices.findings]
        uids, nr_left_out = self._candidates(env, devices)
        if nr_left_out:
            findings.append(
                finding(
                    "C2C-CLAIM-21",
                    f"{nr_left_out} more variables name claims of which nothing is known",
                )
            )
        links = []
        for uid in uids:
            link, found = self._link_one(uid, pod, container, env, devices)
            links.append(link)
            findings += found
        findings += self._cpu_findings(links)
        return Links(
            links=tuple(links),
            findings=tuple(sorted(set(findings), key=lambda f: (f.code, f.message))),
        )

    def _candidates(self, env: EnvClaims, devices: DeviceList) -> tuple[list[ClaimUid], int]:
        known, unknown = set(devices.claims), []
        for uid in sorted({*env.well_formed, *env.malformed} - known):
            if self._specs.names_of(uid) or uid in self._evidence.checkpoint.claims:
                known.add(uid)
            else:
                unknown.append(uid)
        return sorted([*known, *unknown[:MAX_UNKNOWN]]), len(unknown[MAX_UNKNOWN:])

    def _link_one(
        self,
        uid: ClaimUid,
        pod: PodRecord,
        container: ContainerRecord,
        env: EnvClaims,
        devices: DeviceList,
    ) -> tuple[ClaimLink, list[Finding]]:
        spec = self._specs.ask(uid, devices.spec_names(uid))
        seen = Seen(
            uid=uid,
            listed=ask_device_list(devices, uid),
            spec=spec,
            held=ask_checkpoint(self._evidence.checkpoint, uid, pod.uid),
            said=ask_environment(env, uid, spec.cpus),
            has_started=container.state in _STARTED,
        )
        judgment = judge(seen)
        findings = list(spec.findings)
        if seen.listed.state is Listed.NAMED and seen.held.state in (
            Held.BY_OTHERS,
            Held.UNKNOWN_CLAIM,
        ):
            findings.append(finding("C2C-CLAIM-28", f"claim {uid}: {seen.held.evidence.detail}"))
        link = ClaimLink(
            claim_uid=uid,
            verdict=judgment.verdict,
            cpus=judgment.cpus,
            evidence=(
                seen.listed.evidence,
                spec.evidence,
                seen.held.evidence,
                seen.said.evidence,
            ),
            reason=judgment.reason,
            code=judgment.code,
        )
        return link, findings

    def _cpu_findings(self, links: Sequence[ClaimLink]) -> list[Finding]:
        """Check the CPUs of the claims that hold: against the machine and each other."""
        online, possible = self._evidence.online, self._evidence.possible
        holding = [link for link in links if link.verdict.grants and link.cpus]
        findings = []
        for number, link in enumerate(holding):
            uid, cpus = link.claim_uid, link.cpus
            if possible is not None and (foreign := cpus - possible):
                findings.append(
                    finding("C2C-CLAIM-26", f"claim {uid}: this machine has no CPUs {foreign}")
                )
                cpus -= foreign
            if online is not None and (offline := cpus - online):
                findings.append(finding("C2C-CLAIM-25", f"claim {uid}: CPUs {offline} are offline"))
            findings += [
                finding(
                    "C2C-CLAIM-27",
                    f"claims {uid} and {other.claim_uid} both hold CPUs {link.cpus & other.cpus}",
                )
                for other in holding[number + 1 :]
                if not link.cpus.isdisjoint(other.cpus)
            ]
        return findings


def link(pod: PodRecord, container: ContainerRecord, evidence: NodeEvidence) -> Links:
    """Give every claim of one container with its verdict and all evidence. Never raises.

    For many containers against one reading of the evidence use Linker.
    """
    return Linker(evidence).link(pod, container)


def _env_findings(env: EnvClaims) -> list[Finding]:
    findings = [finding("C2C-CLAIM-20", str(problem)) for problem in env.not_claims]
    if env.nr_not_claims > len(env.not_claims):
        findings.append(
            finding(
                "C2C-CLAIM-20",
                f"{env.nr_not_claims} variables in all look like a claim's and are not",
            )
        )
    return findings
