"""What the CDI spec files on this node say about claims: which CPUs, in which file.

A snapshot is indexed once by claim UID and then asked for one claim at a time; a restart asks
two thousand times, and as long as the files stay as they are so does every creation. A spec is
root-owned and still only believed where it is unambiguous: a device that two files define is
unusable, a variable that cannot be read names no CPUs, and devices of one claim that disagree
cancel each other. Each such case is named with its file.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from nri_claim2core.claims.cdi_names import CdiNameError, parse_cdi_name
from nri_claim2core.claims.codes_table import finding
from nri_claim2core.claims.environment import claim_variable, parse_claim_env
from nri_claim2core.claims.extractors_table import NamedClaim, maybe_named_claim
from nri_claim2core.claims.text import shown_rule
from nri_claim2core.model.claim import Finding
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.evidence import Answer, CdiDevice, CdiSnapshot, Evidence, Source
from nri_claim2core.model.ids import ClaimUid


class SpecState(enum.Enum):
    """What the spec files have on a claim."""

    PRESENT = "present"
    MISSING = "missing"
    "Every file could be read and none defines a CPU device of the claim."
    UNUSABLE = "unusable"
    "There is something, or could be, that cannot be believed or read."


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecAnswer:
    """The spec files' answer about one claim."""

    state: SpecState
    evidence: Evidence
    cpus: CpuSet = field(default_factory=CpuSet)
    "Non-empty exactly when the state is PRESENT."
    findings: tuple[Finding, ...] = ()


class ClaimSpecs:
    """An index of a CDI snapshot, `cdi`, by claim UID. Safe for several threads."""

    def __init__(self, cdi: CdiSnapshot) -> None:
        self.cdi = cdi
        self._whole: dict[ClaimUid, SpecAnswer] = {}  # of claims in the index
        self._by_uid: dict[ClaimUid, list[str]] = {}
        for text in sorted({*cdi.devices, *cdi.conflicts}):
            named = read_device_name(text)
            if named is not None and named.cpu_variable:
                self._by_uid.setdefault(named.uid, []).append(text)

    def names_of(self, uid: ClaimUid) -> tuple[str, ...]:
        """Give the names of a claim's CPU devices, sorted; defined twice counts as well."""
        return tuple(self._by_uid.get(uid, ()))

    def ask(self, uid: ClaimUid, listed: Iterable[str] = ()) -> SpecAnswer:
        """Give what the files say about the claim's CPUs.

        `listed` are the CPU devices of the claim that the container is known to have: then
        those are looked at, else every CPU device of the claim.
        """
        names, known = sorted(listed), self._by_uid.get(uid)
        if known is None or (names and names != known):
            return self._ask(uid, names)
        answer = self._whole.get(uid)
        if answer is None:
            answer = self._whole[uid] = self._ask(uid, known)
        return answer

    def _ask(self, uid: ClaimUid, names: list[str]) -> SpecAnswer:
        if not self.cdi.readable:
            return _answer(
                SpecState.UNUSABLE, Answer.UNAVAILABLE, "no CDI spec directory could be read"
            )
        found, findings, words = self._read(uid, names)
        if len(set(found.values())) > 1:
            said = ", ".join(f"{self.cdi.devices[name].path} {found[name]}" for name in found)
            findings.append(finding("C2C-CLAIM-24", f"claim {uid}: {shown_rule(said)}"))
            words.append(f"its devices disagree: {shown_rule(said)}")
        elif found:
            name, cpus = next(iter(found.items()))
            device = self.cdi.devices[name]
            detail = f"{device.path} defines {name} with {claim_variable(uid)}={cpus}"
            return _answer(
                SpecState.PRESENT,
                Answer.CONFIRMS,
                "; ".join([detail, *words]),
                cpus=cpus,
                findings=findings,
            )
        if words:
            return _answer(
                SpecState.UNUSABLE, Answer.UNAVAILABLE, "; ".join(words), findings=findings
            )
        return self._missing(uid)

    def _read(
        self, uid: ClaimUid, names: list[str]
    ) -> tuple[dict[str, CpuSet], list[Finding], list[str]]:
        """Read each device: the CPUs of those that can be used, and words for the others."""
        found: dict[str, CpuSet] = {}
        findings: list[Finding] = []
        words: list[str] = []
        for name in names:
            if name in self.cdi.conflicts:
                files = " and ".join(sorted(self.cdi.conflicts[name]))
                words.append(f"{name} is unusable, defined by {files}")
                findings.append(finding("C2C-CLAIM-22", f"{name} is defined by {files}"))
                continue
            device = self.cdi.devices.get(name)
            if device is None:
                continue
            cpus = _cpus_of(device, uid)
            if isinstance(cpus, CpuSet):
                found[name] = cpus
            else:
                words.append(f"{device.path}, device {name}: {cpus}")
                findings.append(finding("C2C-CLAIM-23", f"{device.path}, device {name}: {cpus}"))
        return found, findings, words

    def _missing(self, uid: ClaimUid) -> SpecAnswer:
        problems = self.cdi.problems
        for problem in problems:
            # Drivers that write one file a claim put its UID into the file's name.
            if uid in problem.path:
                detail = f"{problem.path} cannot be used: {shown_rule(problem.reason)}"
                return _answer(SpecState.UNUSABLE, Answer.UNAVAILABLE, detail)
        if problems:
            detail = (
                "no usable spec file defines a CPU device of the claim, but "
                f"{problems[0].path} cannot be used: {shown_rule(problems[0].reason)}"
            )
            more = len(problems) - 1
            return _answer(
                SpecState.UNUSABLE,
                Answer.UNAVAILABLE,
                f"{detail} (and {more} more)" if more else detail,
            )
        return _answer(
            SpecState.MISSING, Answer.DENIES, "no spec file defines a CPU device of the claim"
        )


def read_device_name(text: str) -> NamedClaim | None:
    """Give the claim that a qualified device name stands for; None for everything else."""
    try:
        return maybe_named_claim(parse_cdi_name(text))
    except CdiNameError:
        return None


def _cpus_of(device: CdiDevice, uid: ClaimUid) -> CpuSet | str:
    """Give the CPUs that a device's edits name for the claim, or what is wrong with them."""
    env = parse_claim_env(entry for entry in device.env if entry.startswith(claim_variable(uid)))
    problem = env.malformed.get(uid)
    if problem is not None:
        return str(problem)
    cpus = env.well_formed.get(uid)
    return cpus if cpus is not None else f"does not set {claim_variable(uid)}"


def _answer(
    state: SpecState,
    answer: Answer,
    detail: str,
    *,
    cpus: CpuSet | None = None,
    findings: Iterable[Finding] = (),
) -> SpecAnswer:
    return SpecAnswer(
        state=state,
        evidence=Evidence(source=Source.CDI_SPEC, answer=answer, detail=detail),
        cpus=CpuSet() if cpus is None else cpus,
        findings=tuple(findings),
    )
