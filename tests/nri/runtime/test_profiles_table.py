"""Rows against the table that the plugin end keeps of the same releases (another author's)."""

import pytest

from nri_claim2core.model.errors import UsageError
from nri_claim2core.nri.events_table import nri_version_of, sends_dedicated_rpcs, valid_mask
from nri_claim2core.nri.runtime import PROFILES, profile


@pytest.mark.parametrize("key", PROFILES)
def test_nri_version_and_mask_are_what_a_plugin_infers(key):
    row = profile(key)
    inferred = nri_version_of(row.runtime_name, row.runtime_version)
    assert inferred[:2] == row.nri_version[:2]
    assert valid_mask(inferred) == row.valid_events
    assert sends_dedicated_rpcs(inferred) == row.has_dedicated_rpcs


def test_the_releases_that_differ_in_kind():
    # Valid masks by NRI version: 0x7FF up to 0.9, 0x1FFF in CRI-O 1.33, 0x3FFF from 0.10.
    assert {key: row.valid_events for key, row in PROFILES.items()} == {
        "containerd-1.7.25": 0x7FF,
        "containerd-1.7": 0x7FF,
        "containerd-2.0": 0x7FF,
        "containerd-2.1": 0x7FF,
        "containerd-2.2": 0x3FFF,
        "containerd-2.3": 0x3FFF,
        "containerd-2.4": 0x3FFF,
        "cri-o-1.33": 0x1FFF,
        "cri-o-1.34": 0x3FFF,
        "cri-o-1.35": 0x3FFF,
        "cri-o-1.36": 0x3FFF,
    }
    assert [key for key, row in PROFILES.items() if row.has_dedicated_rpcs] == [
        "containerd-2.3",
        "containerd-2.4",
    ]
    assert [key for key, row in PROFILES.items() if not row.splits_synchronize] == [
        "containerd-1.7.25"
    ]


def test_an_unknown_profile_names_the_known_ones():
    with pytest.raises(UsageError, match=r"containerd-9.*containerd-2\.3, "):
        profile("containerd-9")
