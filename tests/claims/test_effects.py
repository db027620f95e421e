"""Effects: every verdict under every choice, as a table; nothing is refused but a creation."""

from itertools import product

import pytest

from nri_claim2core.claims.effects import (
    Effects,
    RefusalEffect,
    UnverifiedEffect,
    apply_effects,
)
from nri_claim2core.model.claim import ClaimLink, Links, Verdict

IGNORE, ENFORCE, REJECT = UnverifiedEffect.IGNORE, UnverifiedEffect.ENFORCE, UnverifiedEffect.REJECT
KEEP, REFUSE = RefusalEffect.IGNORE, RefusalEffect.REJECT


def links(bed, *verdicts):
    uids = [bed.B, bed.A, bed.C]
    return Links(
        links=tuple(
            ClaimLink(
                claim_uid=uid,
                verdict=verdict,
                cpus=bed.cpus("0-3"),
                reason="because",
                code="C2C-CLAIM-99",
            )
            for uid, verdict in zip(uids, verdicts, strict=False)
        )
    )


@pytest.mark.parametrize(
    ("verdict", "effects", "granted", "refused"),
    [
        ("verified", Effects(), True, False),
        ("verified", Effects(on_unverified=REJECT, on_forged=REFUSE, on_malformed=REFUSE), True, 0),
        ("mismatch", Effects(), True, False),
        ("mismatch", Effects(on_unverified=REJECT, on_forged=REFUSE, on_malformed=REFUSE), True, 0),
        ("unverified", Effects(), False, False),
        ("unverified", Effects(on_unverified=ENFORCE), True, False),
        ("unverified", Effects(on_unverified=REJECT), False, True),
        ("unverified", Effects(on_forged=REFUSE, on_malformed=REFUSE), False, False),
        ("forged", Effects(), False, False),
        ("forged", Effects(on_forged=REFUSE), False, True),
        ("forged", Effects(on_unverified=ENFORCE, on_malformed=REFUSE), False, False),
        ("forged", Effects(on_unverified=REJECT), False, False),
        ("malformed", Effects(), False, False),
        ("malformed", Effects(on_malformed=REFUSE), False, True),
        ("malformed", Effects(on_unverified=REJECT, on_forged=REFUSE), False, False),
        ("stale", Effects(), False, False),
        ("stale", Effects(on_unverified=REJECT, on_forged=REFUSE, on_malformed=REFUSE), False, 0),
        ("stale", Effects(on_unverified=ENFORCE), False, False),
    ],
)
def test_each_verdict_under_each_choice(bed, verdict, effects, granted, refused):
    outcome = apply_effects(links(bed, Verdict(verdict)), effects, creating=True)
    assert bool(outcome.granted) == granted
    assert bool(outcome.refusal) == bool(refused)


@pytest.mark.parametrize("verdict", Verdict)
def test_what_runs_is_never_refused(bed, verdict):
    for unverified, forged, malformed in product(UnverifiedEffect, RefusalEffect, RefusalEffect):
        effects = Effects(on_unverified=unverified, on_forged=forged, on_malformed=malformed)
        creating = apply_effects(links(bed, verdict), effects, creating=True)
        running = apply_effects(links(bed, verdict), effects, creating=False)
        assert running.refusal == ""
        assert running.granted == creating.granted


def test_the_refusal_names_code_claim_verdict_and_reason_and_counts_the_rest(bed):
    found = links(bed, Verdict.VERIFIED, Verdict.FORGED, Verdict.FORGED)
    outcome = apply_effects(found, Effects(on_forged=REFUSE), creating=True)
    assert outcome.refusal == (
        f"C2C-CLAIM-99: claim {bed.A} is forged: because (and 1 more claims)"
    )
    assert [link.claim_uid for link in outcome.granted] == [bed.B]


def test_a_single_refused_claim_is_not_counted(bed):
    outcome = apply_effects(links(bed, Verdict.FORGED), Effects(on_forged=REFUSE), creating=True)
    assert outcome.refusal == f"C2C-CLAIM-99: claim {bed.B} is forged: because"


def test_nothing_comes_of_no_links():
    outcome = apply_effects(Links(), Effects(on_unverified=REJECT), creating=True)
    assert (outcome.granted, outcome.refusal) == ((), "")
