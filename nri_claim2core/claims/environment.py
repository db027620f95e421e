"""Claim variables of a container's environment: `DRA_CPUSET_<claim UID>=<CPU list>`.

A hint, never proof: image, pod author and other plugins write the environment too. So nothing
here can fail - any text whatever gives a value - and nothing here can grow with what a value
*says*: lists are bounded by the parser before a range is expanded.

Only a lower-case UUID is a claim UID. `DRA_CPUSET_ASSIGNED` is a driver's convenience variable
and is passed over in silence; any other suffix is not a claim either, but is named, because
its author probably meant one. The result does not depend on the order of the entries: two
entries of one UID agree as sets, or the claim's variable is malformed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from nri_claim2core.claims.text import shown, shown_rule
from nri_claim2core.model.cpuset import CpuSet, parse_kubernetes
from nri_claim2core.model.errors import CpuListError
from nri_claim2core.model.ids import UUID_LENGTH, ClaimUid, maybe_claim_uid

CLAIM_VARIABLE_PREFIX: Final = "DRA_CPUSET_"
"""Used by dra.cpu and by nri-plugins' policies alike."""

NOT_CLAIM_SUFFIXES: Final = frozenset({"ASSIGNED"})
"""Known variables with the prefix that hold the union of a container's CPUs, not a claim."""

MAX_NAMED: Final = 16
"""Variables that are not claims and are named one by one; the rest is only counted."""

MAX_UIDS: Final = 512
"""Claims that one environment may speak of; a pod cannot hold a tenth of that."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class EnvProblem:
    """A claim variable that cannot be used; all three texts are short and printable."""

    variable: str
    value: str
    rule: str

    def __str__(self) -> str:
        """`variable=value: rule`; without the value where the entry has none."""
        equals = f"={self.value}" if self.value else ""
        return f"{self.variable}{equals}: {self.rule}"


class EnvClaims(NamedTuple):
    """What an environment says about claims."""

    well_formed: Mapping[ClaimUid, CpuSet]
    malformed: Mapping[ClaimUid, EnvProblem]
    "Never shares a UID with `well_formed`."
    not_claims: tuple[EnvProblem, ...] = ()
    "Claim-shaped variables that are not claims: sorted, distinct, at most MAX_NAMED."
    nr_not_claims: int = 0
    "How many entries of that kind there were."


def claim_variable(uid: ClaimUid) -> str:
    """Give the name of a claim's variable."""
    return CLAIM_VARIABLE_PREFIX + uid


def parse_claim_env(entries: Iterable[str]) -> EnvClaims:
    """Read the claim variables among environment entries (`NAME=value`); others are ignored.

    Never raises. Memory is bounded whatever the entries are: at most MAX_UIDS claims, those
    with the lowest UIDs, so that the order of entries plays no role here either.
    """
    reads: dict[ClaimUid, _Read] = {}
    strangers: dict[EnvProblem, None] = {}
    nr_strangers = 0
    for entry in entries:
        if not entry.startswith(CLAIM_VARIABLE_PREFIX):
            continue
        variable, equals, value = entry.partition("=")
        suffix = variable[len(CLAIM_VARIABLE_PREFIX) :]
        uid = maybe_claim_uid(suffix)
        if uid is not None:
            read = _read_value(variable, value) if equals else _no_value(variable)
            known = reads.get(uid)
            reads[uid] = _first(read) if known is None else known.also(read)
            _keep_lowest(reads, MAX_UIDS, slack=MAX_UIDS)
        elif suffix not in NOT_CLAIM_SUFFIXES:
            nr_strangers += 1
            strangers[_not_a_claim(variable, suffix)] = None
            _keep_lowest(strangers, MAX_NAMED, slack=MAX_NAMED)
    _keep_lowest(reads, MAX_UIDS)
    _keep_lowest(strangers, MAX_NAMED)
    well_formed: dict[ClaimUid, CpuSet] = {}
    malformed: dict[ClaimUid, EnvProblem] = {}
    for uid, all_read in reads.items():
        result = all_read.result(uid)
        if isinstance(result, EnvProblem):
            malformed[uid] = result
        else:
            well_formed[uid] = result
    return EnvClaims(
        well_formed=well_formed,
        malformed=malformed,
        not_claims=tuple(sorted(strangers)),
        nr_not_claims=nr_strangers,
    )


class _Read(NamedTuple):
    """What was read for one UID so far; two values are enough to know that they disagree."""

    values: tuple[CpuSet, ...]
    problem: EnvProblem | None

    def also(self, read: CpuSet | EnvProblem) -> _Read:
        if isinstance(read, EnvProblem):
            lower = read if self.problem is None else min(self.problem, read)
            return _Read(self.values, lower)
        return _Read(tuple(sorted({*self.values, read}, key=str)[:2]), self.problem)

    def result(self, uid: ClaimUid) -> CpuSet | EnvProblem:
        if self.problem is not None:
            return self.problem
        return self.values[0] if len(self.values) == 1 else _conflict(uid, *self.values)


def _first(read: CpuSet | EnvProblem) -> _Read:
    return _Read((), read) if isinstance(read, EnvProblem) else _Read((read,), None)


_Key = TypeVar("_Key", ClaimUid, EnvProblem)
_Value = TypeVar("_Value")


def _keep_lowest(kept: dict[_Key, _Value], limit: int, slack: int = 0) -> None:
    # What is dropped has `limit` lower keys that stay: it can never be among the result.
    if len(kept) > limit + slack:
        for key in sorted(kept)[limit:]:
            del kept[key]


def _read_value(variable: str, value: str) -> CpuSet | EnvProblem:
    if value == "dynamic":
        # One driver's fork means "ask me again"; it must never be read as all CPUs.
        return EnvProblem(variable=variable, value=shown(value), rule="a word, and no list of CPUs")
    try:
        cpus = parse_kubernetes(value)
    except CpuListError as e:
        return EnvProblem(variable=variable, value=shown(value), rule=shown_rule(e.rule))
    if not cpus:
        return EnvProblem(
            variable=variable, value=shown(value), rule="an empty list confines to nothing"
        )
    return cpus


def _no_value(variable: str) -> EnvProblem:
    return EnvProblem(variable=variable, value="", rule="has no `=` and so no list of CPUs")


def _conflict(uid: ClaimUid, first: CpuSet, second: CpuSet) -> EnvProblem:
    return EnvProblem(
        variable=claim_variable(uid),
        value=shown(str(first)),
        rule=f"is set to {shown(str(second))} as well; a claim has one set of CPUs",
    )


def _not_a_claim(variable: str, suffix: str) -> EnvProblem:
    if not suffix:
        rule = "names no claim: the UID after the prefix is empty"
    elif len(suffix) == UUID_LENGTH and maybe_claim_uid(suffix.lower()) is not None:
        rule = "is not a claim: UIDs are lower case, and this one is not"
    else:
        rule = "is not a claim: what follows the prefix is no UUID"
    return EnvProblem(variable=shown(variable), value="", rule=rule)
