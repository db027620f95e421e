"""How each DRA driver writes a claim's UID into CDI device names, one row a convention.

A UUID in a device name proves nothing by itself: SR-IOV puts the *pod's* UID there, others a
share ID or a GPU's own UUID. So a name is read only by the row of its vendor and class, always
from the start of the name and to its end; without a row it names no claim. The first row that
fits vendor and class decides: a name it cannot read is not offered to later rows.

`cpu_variable` of a row is the promise that a device's CDI spec names the claim's CPUs in that
environment variable. Rows without one name a claim but prove no CPUs of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from nri_claim2core.claims.cdi_names import CdiName
from nri_claim2core.claims.environment import CLAIM_VARIABLE_PREFIX
from nri_claim2core.model.ids import ClaimUid

_UID: Final = r"(?P<uid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
_CLAIM: Final = re.compile(rf"claim-{_UID}", re.ASCII)
_CLAIM_INDEX: Final = re.compile(rf"claim-{_UID}-[0-9]+", re.ASCII)
_UID_REQUEST: Final = re.compile(rf"{_UID}_.+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extractor:
    """One driver's convention."""

    driver: str
    "The DRA driver's name; for a vendor pattern, the pattern."
    vendor: str
    "CDI vendor, exact; a leading `*.` stands for anything (no vendor begins with a dot)."
    cls: str
    pattern: re.Pattern[str]
    "Must match the whole device name; its group `uid` is the claim's UID."
    holds_cpus: bool
    "A container that is given such a device holds the claim's CPUs."
    cpu_variable: str = ""
    "Prefix of the variable, before the UID, in which the device's spec lists the CPUs."

    def fits(self, name: CdiName) -> bool:
        """Tell whether this row is the one for the name's vendor and class."""
        if self.cls != name.cls:
            return False
        if self.vendor.startswith("*"):
            return name.vendor.endswith(self.vendor[1:])
        return self.vendor == name.vendor


EXTRACTORS: Final = (
    Extractor(
        driver="dra.cpu",
        vendor="dra.k8s.io",
        cls="cpu",
        pattern=_CLAIM,
        holds_cpus=True,
        cpu_variable=CLAIM_VARIABLE_PREFIX,
    ),
    # A metadata file of one request (KEP-5304): kubelet hands it out together with the CPUs.
    Extractor(
        driver="dra.cpu", vendor="dra.cpu", cls="metadata", pattern=_UID_REQUEST, holds_cpus=True
    ),
    # Same vendor as dra.cpu, another class: a claim's memory is not its CPUs.
    Extractor(
        driver="dra.memory", vendor="dra.k8s.io", cls="memory", pattern=_CLAIM, holds_cpus=False
    ),
    # Balloons says which balloon, in a variable of its own, and never which CPUs.
    Extractor(
        driver="balloons.nri.io",
        vendor="balloons.nri.io",
        cls="device",
        pattern=_CLAIM_INDEX,
        holds_cpus=False,
    ),
    # topology-aware, template and policies to come; every device of a claim repeats one value.
    Extractor(
        driver="*.nri.io",
        vendor="*.nri.io",
        cls="device",
        pattern=_CLAIM_INDEX,
        holds_cpus=True,
        cpu_variable=CLAIM_VARIABLE_PREFIX,
    ),
)


class NamedClaim(NamedTuple):
    """The claim that a device name stands for."""

    uid: ClaimUid
    driver: str
    holds_cpus: bool
    cpu_variable: str
    "Full name of the variable in the device's spec; empty when the spec names no CPUs."


def maybe_named_claim(name: CdiName) -> NamedClaim | None:
    """Give the claim a device name stands for, or None: no row, or not of the row's form."""
    for row in EXTRACTORS:
        if row.fits(name):
            found = row.pattern.fullmatch(name.name)
            if found is None:
                return None
            uid = ClaimUid(found["uid"])
            return NamedClaim(
                uid=uid,
                driver=row.driver if not row.driver.startswith("*") else name.vendor,
                holds_cpus=row.holds_cpus,
                cpu_variable=row.cpu_variable + uid if row.cpu_variable else "",
            )
    return None
