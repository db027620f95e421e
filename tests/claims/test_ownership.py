"""Who writes the cpuset: the rule as a table, mode by mode."""

import pytest

from nri_claim2core.claims.ownership import decide_ownership
from nri_claim2core.model.envelope import Mode, Ownership

AUTO, ENFORCE, VERIFY, OBSERVE = Mode.AUTO, Mode.ENFORCE, Mode.VERIFY, Mode.OBSERVE


@pytest.mark.parametrize(
    ("mode", "arrived", "entry", "default", "owned", "owner"),
    [
        (AUTO, "", None, None, False, "own"),
        (AUTO, "\n", None, None, False, "own"),
        (AUTO, "", "4-7", None, False, "own"),
        (AUTO, "4-7", "4-7", None, False, "own"),
        (AUTO, "7,6,5,4", "4-7", None, False, "own"),
        (AUTO, "8-15", None, "8-15", False, "own"),
        (AUTO, "8-15", "4-7", "8-15", False, "own"),
        (AUTO, "4-7", None, None, False, "foreign"),
        (AUTO, "4-6", "4-7", "8-15", False, "foreign"),
        (AUTO, "4-8", "4-7", "8-15", False, "foreign"),
        (AUTO, "4-15", "4-7", "8-15", False, "foreign"),
        (AUTO, "not a list", None, None, False, "foreign"),
        (AUTO, "4-7", None, None, True, "own"),
        (ENFORCE, "4-7", None, None, False, "own"),
        (ENFORCE, "not a list", None, None, False, "own"),
        (VERIFY, "", None, None, False, "foreign"),
        (VERIFY, "4-7", "4-7", None, True, "foreign"),
        (OBSERVE, "", None, None, False, "foreign"),
        (OBSERVE, "4-7", None, None, False, "foreign"),
    ],
)
def test_the_owner(bed, *, mode, arrived, entry, default, owned, owner):
    decided = decide_ownership(
        mode,
        arrived,
        has_claims=True,
        kubelet_entry=None if entry is None else bed.cpus(entry),
        kubelet_default=None if default is None else bed.cpus(default),
        owned=owned,
    )
    assert decided.value == owner


@pytest.mark.parametrize(
    ("arrived", "owner"), [("2-3", "own"), ("3,2", "own"), ("2", "own"), ("3", "foreign")]
)
def test_what_we_would_have_set_ourselves_is_ours_after_a_restart(bed, arrived, owner):
    put_back = (bed.cpus("2-3"), bed.cpus("2"))
    decided = decide_ownership(AUTO, arrived, has_claims=True, put_back=put_back)
    assert decided.value == owner


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("arrived", ["", "0-3", "x"])
def test_without_claims_nobody_has_to_write(mode, arrived):
    assert decide_ownership(mode, arrived, has_claims=False, owned=True) is Ownership.NONE
