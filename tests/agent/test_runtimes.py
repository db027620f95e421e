"""Which runtimes report CDI devices: the versions of their releases, from their histories."""

from __future__ import annotations

import pytest

from nri_claim2core.agent.runtimes import is_known, reports_cdi_devices


@pytest.mark.parametrize(
    ("name", "version", "nri_version", "known", "reports"),
    [
        ("containerd", "1.7.34", "", True, False),
        ("containerd", "v2.1.9", "", True, False),
        ("containerd", "v2.2.7", "", True, False),
        # containerd's first release with NRI 0.12 fills the list; plain builds have a suffix.
        ("containerd", "v2.3.0", "v0.12.0", True, True),
        ("containerd", "2.3.4+unknown", "", True, True),
        ("containerd", "v2.4.0", "v0.12.2", True, True),
        # No CRI-O release does, whatever its NRI.
        ("cri-o", "1.36.3", "", True, False),
        ("cri-o", "1.37.0", "v0.12.0", True, False),
        ("containerd", "unknown", "", False, False),
        ("another", "1.0.0", "v0.12.2", False, False),
        ("", "", "", False, False),
    ],
)
def test_runtimes(name, version, nri_version, known, reports):
    assert is_known(name, version, nri_version) is known
    assert reports_cdi_devices(name, version, nri_version) is reports
