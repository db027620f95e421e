"""Does the kernel agree: both predicates, each way they can fail."""

import pytest

from nri_claim2core.claims.predicates import check_foreign, check_own
from nri_claim2core.model.envelope import Envelope, Ownership


@pytest.mark.parametrize(
    ("effective", "envelope", "codes"),
    [
        ("0-3", "0-3", []),
        ("0-4", "0-3", ["C2C-ENV-10"]),
        ("0-2", "0-3", ["C2C-ENV-11"]),
        ("4-7", "0-3", ["C2C-ENV-10", "C2C-ENV-11"]),
        ("", "0-3", ["C2C-ENV-11"]),
        ("0-15", "", []),
    ],
)
def test_our_own_cpuset_equals_the_envelope(bed, effective, envelope, codes):
    made = Envelope(ownership=Ownership.OWN, cpus=bed.cpus(envelope), mems=bed.cpus(""))
    found = check_own(bed.cpus(effective), made)
    assert [f.code for f in found] == codes


@pytest.mark.parametrize(
    ("effective", "mems", "codes"),
    [
        ("0", "0", []),
        ("0", "0-1", []),
        ("0-1", "0", ["C2C-ENV-12"]),
        ("1", "", []),
        (None, "0", []),
    ],
)
def test_memory_nodes_stay_within_the_envelope(bed, effective, mems, codes):
    made = Envelope(ownership=Ownership.OWN, cpus=bed.cpus("0-3"), mems=bed.cpus(mems))
    nodes = None if effective is None else bed.cpus(effective)
    assert [f.code for f in check_own(bed.cpus("0-3"), made, nodes)] == codes


def test_a_violation_names_the_cpus(bed):
    made = Envelope(ownership=Ownership.OWN, cpus=bed.cpus("0-3"), mems=bed.cpus(""))
    outside, missing = check_own(bed.cpus("2-5"), made)
    assert outside.message == "effective 2-5 has 4-5 beyond 0-3"
    assert missing.message == "effective 2-5 lacks 0-1 of 0-3"
    assert (outside.severity, missing.severity) == ("error", "warning")


@pytest.mark.parametrize(
    ("effective", "claims", "others", "codes"),
    [
        ("0-3", "0-3", {}, []),
        ("0-7", "0-3", {}, []),
        ("0-7", "0-3", {"B": "8-9"}, []),
        ("0-2", "0-3", {}, ["C2C-ENV-13"]),
        ("0-7", "0-3", {"B": "7-8"}, ["C2C-ENV-14"]),
        ("0-7", "0-3", {"C": "6", "B": "7-8"}, ["C2C-ENV-14", "C2C-ENV-14"]),
        ("4-7", "0-3", {"B": "7"}, ["C2C-ENV-13", "C2C-ENV-14"]),
        ("", "", {"B": "7"}, []),
    ],
)
def test_somebody_elses_cpuset_covers_the_claims_and_meets_no_other(
    bed, effective, claims, others, codes
):
    live = {getattr(bed, k): bed.cpus(v) for k, v in others.items()}
    found = check_foreign(bed.cpus(effective), bed.cpus(claims), live)
    assert [f.code for f in found] == codes


def test_the_other_claims_are_named_in_uid_order(bed):
    others = {bed.C: bed.cpus("6"), bed.B: bed.cpus("7-8")}
    first, second = check_foreign(bed.cpus("0-7"), bed.cpus("0-3"), others)
    assert first.message == f"effective 0-7 has CPUs 7 of claim {bed.B}"
    assert second.message == f"effective 0-7 has CPUs 6 of claim {bed.C}"
