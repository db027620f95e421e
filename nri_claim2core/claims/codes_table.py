"""Finding codes of claims and envelopes: severity, one line, and what to do about it.

Codes are stable: they appear in logs, Events, metrics' labels, `doctor` and the manual. A code
is never reused for another meaning. C2C-CLAIM-01..19 go with a link's verdict, C2C-CLAIM-20..39
are found on the way to it, C2C-ENV-nn are about the envelope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nri_claim2core.model.claim import Finding


@dataclass(frozen=True, slots=True)
class Code:
    """What a code stands for."""

    severity: str
    summary: str
    hint: str


SEVERITIES: Final = ("error", "warning", "info")
"""Worst first: an operator must act; degraded but safe; good to know."""

CODES: Final[Mapping[str, Code]] = {
    # Verdicts.
    "C2C-CLAIM-01": Code(
        "info",
        "verified, but the environment lacks the claim's variable",
        "another plugin or an old image layer removed it; workloads that read it will not see it",
    ),
    "C2C-CLAIM-02": Code(
        "warning",
        "verified, but the environment names other CPUs than the CDI spec",
        "the CDI spec's CPUs hold; look for the plugin or pod spec that rewrites the variable",
    ),
    "C2C-CLAIM-03": Code(
        "warning",
        "verified, but the environment's variable cannot be read",
        "the CDI spec's CPUs hold; look for the plugin or pod spec that rewrites the variable",
    ),
    "C2C-CLAIM-04": Code(
        "warning",
        "only the CDI spec knows the claim, nothing ties it to this pod",
        "give the plugin kubelet's dra_manager_state, or a runtime that reports CDI devices",
    ),
    "C2C-CLAIM-05": Code(
        "error",
        "the container holds the claim, but its CDI spec cannot be used",
        "repair or remove the named file; the driver writes it again when the claim is prepared",
    ),
    "C2C-CLAIM-06": Code(
        "warning",
        "the environment names a claim that the runtime's CDI list does not",
        "the pod or its image sets this variable; it gives no right to the CPUs",
    ),
    "C2C-CLAIM-07": Code(
        "warning",
        "the environment names a claim that kubelet holds for other pods",
        "the pod or its image copies another pod's claim UID",
    ),
    "C2C-CLAIM-08": Code(
        "warning",
        "the environment names a claim that kubelet does not know",
        "the pod or its image sets this variable; no claim of this UID is prepared here",
    ),
    "C2C-CLAIM-09": Code(
        "warning",
        "the container holds the claim, but none of its CPUs",
        "add the claim's CPU request to the container's resources.claims",
    ),
    "C2C-CLAIM-10": Code(
        "warning",
        "a claim variable that cannot be read, and no evidence for the claim",
        "the pod or its image sets this variable; drivers write lists like 0-3,8",
    ),
    "C2C-CLAIM-11": Code(
        "warning",
        "the claim's CDI spec is gone",
        "reboot or unprepare; kubelet prepares the claim again when the pod is restarted",
    ),
    "C2C-CLAIM-12": Code(
        "warning",
        "kubelet no longer knows the claim of a running container",
        "the claim was deallocated; the container keeps its cpuset and loses its policy",
    ),
    "C2C-CLAIM-13": Code(
        "warning",
        "nothing but the environment names the claim",
        "check that the CPU driver runs on this node and where it writes CDI specs",
    ),
    # Found on the way.
    "C2C-CLAIM-20": Code(
        "info",
        "a variable looks like a claim's and is not",
        "claim variables end in the claim's UID, a lower-case UUID",
    ),
    "C2C-CLAIM-21": Code(
        "warning",
        "more claim variables without any evidence than are looked at",
        "the pod or its image sets them; no driver does",
    ),
    "C2C-CLAIM-22": Code(
        "error",
        "two CDI specs define one device, which makes it unusable",
        "remove one of the files; two drivers or two driver versions write them",
    ),
    "C2C-CLAIM-23": Code(
        "error",
        "a CDI spec names a claim's CPUs wrongly or not at all",
        "the driver writes this file; compare its version with the supported ones",
    ),
    "C2C-CLAIM-24": Code(
        "error",
        "the CDI devices of one claim name different CPUs",
        "the driver writes these files; restart it so that it writes them again",
    ),
    "C2C-CLAIM-25": Code(
        "warning",
        "a claim holds CPUs that are offline",
        "bring them online, or take them out of what the driver offers",
    ),
    "C2C-CLAIM-26": Code(
        "error",
        "a claim holds CPUs that this machine does not have",
        "the CDI spec is from another machine or boot; have the claim prepared again",
    ),
    "C2C-CLAIM-27": Code(
        "warning",
        "two claims of a container hold the same CPUs",
        "drivers give disjoint CPUs to claims; check for two CPU drivers on one node",
    ),
    "C2C-CLAIM-28": Code(
        "warning",
        "the runtime's CDI list names a claim that kubelet does not hold for the pod",
        "the claim may be in transition; persistent, it is a lost kubelet checkpoint",
    ),
    "C2C-CLAIM-29": Code(
        "info",
        "a CDI device that the runtime reports has no readable name",
        "the runtime would refuse such a device; report it with the runtime's version",
    ),
    # Envelope.
    "C2C-ENV-01": Code(
        "info",
        "the pod opted out, its cpuset is left as it came",
        "remove the annotation to have the claim enforced",
    ),
    "C2C-ENV-02": Code(
        "warning",
        "an opt-out annotation that is neither true nor false is ignored",
        'set it to "true" or "false"',
    ),
    "C2C-ENV-03": Code(
        "error",
        "no CPU of the container's claims is online",
        "bring the CPUs online, or delete the pod so that the claim is allocated again",
    ),
    "C2C-ENV-04": Code(
        "warning",
        "the envelope is smaller than the claims: some CPUs are not online",
        "bring the CPUs online; the envelope is computed again with the next event",
    ),
    "C2C-ENV-05": Code(
        "warning",
        "the memory nodes that were set have none of the claim's CPUs nearby",
        "memory manager and CPU driver disagree about the node; the memory nodes stay as set",
    ),
    "C2C-ENV-06": Code(
        "info",
        "no memory node belongs to the claim's CPUs",
        "the CPUs' NUMA nodes have no memory; the memory nodes stay as they are",
    ),
    "C2C-ENV-07": Code(
        "warning",
        "the memory nodes or CPUs that were set cannot be read",
        "another plugin or the runtime wrote them; they stay as they are",
    ),
    "C2C-ENV-10": Code(
        "error",
        "the container may run on CPUs outside its envelope",
        "find out who writes the cpuset: kubelet's static policy, another plugin, an agent",
    ),
    "C2C-ENV-11": Code(
        "warning",
        "the container may run on fewer CPUs than its envelope",
        "a parent cgroup is narrower, a CPU went offline, or somebody writes the cpuset",
    ),
    "C2C-ENV-12": Code(
        "error",
        "the container may use memory nodes outside its envelope",
        "find out who writes cpuset.mems: the memory manager, another plugin, an agent",
    ),
    "C2C-ENV-13": Code(
        "error",
        "the plugin that writes this cpuset leaves out CPUs of the container's claims",
        "update that plugin, or let only one of the two manage claimed containers",
    ),
    "C2C-ENV-14": Code(
        "error",
        "the plugin that writes this cpuset lets the container onto CPUs of other claims",
        "reserve the claimed CPUs in that plugin's configuration",
    ),
    "C2C-ENV-15": Code(
        "warning",
        "CPUs of the container's claims belong to another claim that is still in use",
        "they were allocated again while a container still runs on them; see why it has not ended",
    ),
    "C2C-ENV-20": Code(
        "warning",
        "the effective cpuset cannot be read, so nothing is known about it",
        "the plugin needs to see the host's cgroup file system and processes",
    ),
}


def finding(code: str, message: str) -> Finding:
    """Give a finding with the code's severity and hint."""
    entry = CODES[code]
    return Finding(code=code, severity=entry.severity, message=message, hint=entry.hint)
