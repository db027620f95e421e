"""What verdicts lead to: which claims are granted, and whether a creation is refused.

Verified claims (mismatching variables included) are always granted, stale and forged ones
never; what an operator can choose is how to take claims that are not proven. A refusal is an
answer to a creation only: what already runs is never refused.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from nri_claim2core.model.claim import ClaimLink, Links, Verdict


class UnverifiedEffect(enum.Enum):
    """What an unverified claim leads to."""

    IGNORE = "ignore"
    ENFORCE = "enforce"
    "Granted, where spec and environment agree."
    REJECT = "reject"


class RefusalEffect(enum.Enum):
    """What a forged or malformed claim leads to; it never grants anything."""

    IGNORE = "ignore"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The operator's choices; the defaults grant nothing and refuse nothing."""

    on_unverified: UnverifiedEffect = UnverifiedEffect.IGNORE
    on_forged: RefusalEffect = RefusalEffect.IGNORE
    on_malformed: RefusalEffect = RefusalEffect.IGNORE

    def rejects(self, verdict: Verdict) -> bool:
        """Tell whether a creation with such a link is to be refused."""
        match verdict:
            case Verdict.UNVERIFIED:
                return self.on_unverified is UnverifiedEffect.REJECT
            case Verdict.FORGED:
                return self.on_forged is RefusalEffect.REJECT
            case Verdict.MALFORMED:
                return self.on_malformed is RefusalEffect.REJECT
            case _:
                return False

    def grants(self, link: ClaimLink) -> bool:
        """Tell whether the link's CPUs are granted."""
        return link.verdict.grants or (
            link.verdict is Verdict.UNVERIFIED and self.on_unverified is UnverifiedEffect.ENFORCE
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a container's links lead to."""

    granted: tuple[ClaimLink, ...] = ()
    "In UID order; may hold links without CPUs."
    refusal: str = ""
    "Non-empty: refuse the creation with this message."


def apply_effects(links: Links, effects: Effects, *, creating: bool) -> Outcome:
    """Give what is granted and, while the container is being created, whether it is refused."""
    refused = [link for link in links.links if effects.rejects(link.verdict)] if creating else []
    return Outcome(
        granted=tuple(link for link in links.links if effects.grants(link)),
        refusal=_refusal(refused),
    )


def _refusal(refused: list[ClaimLink]) -> str:
    if not refused:
        return ""
    first = refused[0]
    more = f" (and {len(refused) - 1} more claims)" if len(refused) > 1 else ""
    return f"{first.code}: claim {first.claim_uid} is {first.verdict.value}: {first.reason}{more}"
