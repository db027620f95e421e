"""What a step expected, held against what was found. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from nri_claim2core.lab.scenario import ClaimSpec, ContainerExpect
from nri_claim2core.lab.simulation_report import Check, ContainerState


def check_error(expected: str | None, found: str) -> list[Check]:
    """Check how a step ended; nothing to say about a success that was expected."""
    if expected is None:
        if not found:
            return []
        return [Check(what="error", expected="none", found=found, ok=False)]
    return [
        Check(
            what="error",
            expected=f"with {expected!r}",
            found=found or "none",
            ok=expected in found,
        )
    ]


def check_container(
    expect: ContainerExpect,
    state: ContainerState,
    shares: int,
    claims: Mapping[str, ClaimSpec],
) -> list[Check]:
    """Check one container against everything that is expected of it."""
    checks = []
    for what, expected, found in (
        ("cpus", expect.cpus, state.cpus),
        ("mems", expect.mems, state.mems),
        ("shares", expect.shares, shares),
        ("ownership", expect.ownership, state.ownership),
    ):
        if expected is not None:
            checks.append(_equal(f"{state.key} {what}", str(expected), str(found)))
    if expect.verdicts is not None:
        aliases = {claim.uid: alias for alias, claim in claims.items()}
        found_verdicts = {
            aliases.get(link["claimUid"], link["claimUid"]): link["verdict"]
            for link in state.known.get("links", ())
        }
        checks.append(
            _equal(f"{state.key} verdicts", _pairs(expect.verdicts), _pairs(found_verdicts))
        )
    if expect.codes is not None:
        codes = _codes(state)
        checks.append(
            Check(
                what=f"{state.key} codes",
                expected=" ".join(expect.codes) or "none",
                found=" ".join(sorted(codes)) or "none",
                ok=set(expect.codes) <= codes if expect.codes else not codes,
            )
        )
    return checks


def _codes(state: ContainerState) -> set[str]:
    known = state.known
    return {
        each["code"]
        for part in ("links", "findings", "violations")
        for each in known.get(part, ())
        if each["code"]
    }


def _equal(what: str, expected: str, found: str) -> Check:
    return Check(
        what=what, expected=expected or "none", found=found or "none", ok=expected == found
    )


def _pairs(verdicts: Mapping[str, str]) -> str:
    return " ".join(f"{alias}={verdict}" for alias, verdict in sorted(verdicts.items()))
