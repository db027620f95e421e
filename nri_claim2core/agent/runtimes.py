"""What the runtimes do differently that matters to decisions.

Only facts that change a decision stand here; what concerns the wire is in `nri.events_table`.
An unknown runtime is taken to do the least.
"""

from __future__ import annotations

from typing import Final

from nri_claim2core.nri.events_table import NriVersion, nri_version_of

KNOWN_RUNTIMES: Final = frozenset({"containerd", "cri-o"})
"""Names as they come in Configure."""

_CDI_REPORTED_SINCE: Final = NriVersion(0, 12, 0)


def is_known(runtime_name: str, runtime_version: str, nri_version: str = "") -> bool:
    """Tell whether this runtime's behavior is known here."""
    known = nri_version_of(runtime_name, runtime_version, nri_version) is not None
    return known and runtime_name in KNOWN_RUNTIMES


def reports_cdi_devices(runtime_name: str, runtime_version: str, nri_version: str = "") -> bool:
    """Tell whether an empty CDI device list means "none" and not "this runtime does not say".

    containerd reports them since 2.3.0, its first release with NRI 0.12; no CRI-O release
    does, whatever its NRI version (the field alone, there since 0.10, proves nothing).
    """
    version = nri_version_of(runtime_name, runtime_version, nri_version)
    return runtime_name == "containerd" and version is not None and version >= _CDI_REPORTED_SINCE
