"""What each source other than the spec files says about one claim of one container.

Each function asks one source and gives a state, for the decision table, and an Evidence, for
people: the words name file, device and value. A source that could not be asked answers
UNAVAILABLE, and that is never taken for a no.

The checkpoint lists *pods*: one container of a pod may hold a claim and its neighbor not. It
can confirm what another source says of a container; alone it links nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nri_claim2core.claims.cdi_names import CdiNameError, parse_cdi_name
from nri_claim2core.claims.codes_table import finding
from nri_claim2core.claims.environment import EnvClaims, claim_variable
from nri_claim2core.claims.extractors_table import NamedClaim, maybe_named_claim
from nri_claim2core.claims.specs import read_device_name
from nri_claim2core.claims.text import shown, shown_rule
from nri_claim2core.model.claim import Finding
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.evidence import Answer, CheckpointSnapshot, Evidence, Source
from nri_claim2core.model.ids import ClaimUid, PodUid

CHECKPOINT = "kubelet's checkpoint"


class Listed(enum.Enum):
    """What the runtime's CDI device list of the container has on a claim."""

    NAMED = "named"
    OTHER_DEVICES = "other-devices"
    "Devices of the claim, but none that comes with its CPUs."
    ABSENT = "absent"
    UNREPORTED = "unreported"
    "This runtime reports no CDI devices: nothing follows."


class Held(enum.Enum):
    """What kubelet's checkpoint has on a claim and a pod."""

    BY_POD = "by-pod"
    BY_POD_NO_CPUS = "by-pod-no-cpus"
    "The pod holds the claim, whose device ids have no CPU device (not yet prepared, or none)."
    BY_OTHERS = "by-others"
    UNKNOWN_CLAIM = "unknown-claim"
    UNAVAILABLE = "unavailable"


class Said(enum.Enum):
    """What the environment says of a claim, beside what its spec says."""

    SAME = "same"
    OTHER = "other"
    "Other CPUs than the spec, or CPUs and no spec to compare with."
    MALFORMED = "malformed"
    NOTHING = "nothing"


class ListedAnswer(NamedTuple):
    """The CDI list's answer."""

    state: Listed
    evidence: Evidence


class HeldAnswer(NamedTuple):
    """The checkpoint's answer."""

    state: Held
    evidence: Evidence


class SaidAnswer(NamedTuple):
    """The environment's answer."""

    state: Said
    evidence: Evidence


class DeviceList(NamedTuple):
    """A container's CDI device list, read."""

    reported: bool
    claims: Mapping[ClaimUid, tuple[tuple[str, NamedClaim], ...]]
    "Claim -> its devices in the list as (qualified name, meaning), sorted by name."
    nr_devices: int = 0
    findings: tuple[Finding, ...] = ()
    "About names that cannot be read, in their order."

    def spec_names(self, uid: ClaimUid) -> tuple[str, ...]:
        """Give the listed devices of a claim whose specs name its CPUs."""
        return tuple(name for name, named in self.claims.get(uid, ()) if named.cpu_variable)


def read_device_list(names: Iterable[str] | None) -> DeviceList:
    """Read the names a runtime reports for a container; None = it does not report them."""
    if names is None:
        return DeviceList(reported=False, claims={})
    distinct = sorted(set(names))
    claims: dict[ClaimUid, list[tuple[str, NamedClaim]]] = {}
    findings: list[Finding] = []
    for text in distinct:
        try:
            named = maybe_named_claim(parse_cdi_name(text))
        except CdiNameError as error:
            findings.append(finding("C2C-CLAIM-29", error.message))
            continue
        if named is not None:
            claims.setdefault(named.uid, []).append((text, named))
    return DeviceList(
        reported=True,
        claims={uid: tuple(found) for uid, found in claims.items()},
        nr_devices=len(distinct),
        findings=tuple(findings),
    )


def ask_device_list(devices: DeviceList, uid: ClaimUid) -> ListedAnswer:
    """Ask the runtime's CDI device list of the container."""
    state, answer, detail = _device_list(devices, uid)
    return ListedAnswer(state, Evidence(source=Source.CDI_LIST, answer=answer, detail=detail))


def ask_checkpoint(checkpoint: CheckpointSnapshot, uid: ClaimUid, pod_uid: PodUid) -> HeldAnswer:
    """Ask kubelet's DRA checkpoint whether the pod holds the claim and its CPU device."""
    state, answer, detail = _checkpoint(checkpoint, uid, pod_uid)
    return HeldAnswer(state, Evidence(source=Source.CHECKPOINT, answer=answer, detail=detail))


def ask_environment(env: EnvClaims, uid: ClaimUid, spec_cpus: CpuSet) -> SaidAnswer:
    """Compare the environment's words with the spec's CPUs (empty = the spec names none)."""
    state, answer, detail = _environment(env, uid, spec_cpus)
    return SaidAnswer(state, Evidence(source=Source.ENVIRONMENT, answer=answer, detail=detail))


def _device_list(devices: DeviceList, uid: ClaimUid) -> tuple[Listed, Answer, str]:
    if not devices.reported:
        return (
            Listed.UNREPORTED,
            Answer.UNAVAILABLE,
            "this runtime does not report CDI devices to plugins",
        )
    found = devices.claims.get(uid, ())
    holding = [name for name, named in found if named.holds_cpus]
    if holding:
        return Listed.NAMED, Answer.CONFIRMS, f"the runtime gives the container {_few(holding)}"
    if found:
        names = _few([name for name, _ in found])
        return (
            Listed.OTHER_DEVICES,
            Answer.SILENT,
            f"the runtime gives the container {names}, which comes without CPUs",
        )
    return (
        Listed.ABSENT,
        Answer.DENIES,
        f"none of the {devices.nr_devices} CDI devices of the container is of this claim"
        if devices.nr_devices
        else "the runtime gives the container no CDI device",
    )


def _checkpoint(
    checkpoint: CheckpointSnapshot, uid: ClaimUid, pod_uid: PodUid
) -> tuple[Held, Answer, str]:
    if not checkpoint.readable:
        why = shown_rule(checkpoint.problem) or "not readable"
        return Held.UNAVAILABLE, Answer.UNAVAILABLE, f"{CHECKPOINT}: {why}"
    claim = checkpoint.claims.get(uid)
    if claim is None:
        return Held.UNKNOWN_CLAIM, Answer.DENIES, f"{CHECKPOINT} has no claim of this UID"
    name = f"{CHECKPOINT} has claim {claim.namespace}/{claim.name}"
    if not pod_uid:
        # Its sandbox was not listed, or not described: no proof that it is another pod.
        return Held.UNAVAILABLE, Answer.UNAVAILABLE, f"{name}, but the container's pod is unknown"
    if pod_uid not in claim.pod_uids:
        return (
            Held.BY_OTHERS,
            Answer.DENIES,
            f"{name}, held by {len(claim.pod_uids)} other pods and not by pod {shown(pod_uid)}",
        )
    for cdi_id in sorted(claim.cdi_ids):
        named = read_device_name(cdi_id)
        if named is not None and named.holds_cpus and named.uid == uid:
            return Held.BY_POD, Answer.CONFIRMS, f"{name}, held by this pod, with {cdi_id}"
    return (
        Held.BY_POD_NO_CPUS,
        Answer.SILENT,
        f"{name}, held by this pod, with no CPU device among its {len(claim.cdi_ids)} CDI ids",
    )


def _environment(env: EnvClaims, uid: ClaimUid, spec_cpus: CpuSet) -> tuple[Said, Answer, str]:
    problem = env.malformed.get(uid)
    if problem is not None:
        return Said.MALFORMED, Answer.UNAVAILABLE, str(problem)
    cpus = env.well_formed.get(uid)
    variable = claim_variable(uid)
    if cpus is None:
        return Said.NOTHING, Answer.SILENT, f"{variable} is not set"
    if cpus == spec_cpus:
        return Said.SAME, Answer.CONFIRMS, f"{variable}={cpus}"
    if not spec_cpus:
        return Said.OTHER, Answer.CONFIRMS, f"{variable}={cpus}, and no spec to compare with"
    return Said.OTHER, Answer.DENIES, f"{variable}={cpus}, but the CDI spec says {spec_cpus}"


def _few(names: list[str]) -> str:
    more = len(names) - 2
    text = ", ".join(names[:2])
    return f"{text} and {more} more" if more > 0 else text
