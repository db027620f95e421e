"""The pod annotation that leaves a container's cpuset alone.

    cpu.preserve.claim2core.gthulhu.io: "true"                      the whole pod
    cpu.preserve.claim2core.gthulhu.io/container.<name>: "true"     one container

The container's own annotation wins over the pod's, in both directions. A Kubernetes annotation
key has at most one slash and at most 63 characters after it, so a container whose name is
longer than 53 characters can only be covered by the pod's annotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from nri_claim2core.claims.codes_table import finding
from nri_claim2core.claims.text import shown
from nri_claim2core.model.claim import Finding

PRESERVE_ANNOTATION: Final = "cpu.preserve.claim2core.gthulhu.io"

_VALUES: Final = {"true": True, "false": False}


class OptOut(NamedTuple):
    """Whether a container is left alone, and by which annotation."""

    preserved: bool = False
    annotation: str = ""
    findings: tuple[Finding, ...] = ()


def read_opt_out(annotations: Mapping[str, str], container_name: str) -> OptOut:
    """Give whether a pod's annotations leave this container's cpuset alone."""
    findings: list[Finding] = []
    for key in (f"{PRESERVE_ANNOTATION}/container.{container_name}", PRESERVE_ANNOTATION):
        text = annotations.get(key)
        if text is None:
            continue
        preserved = _VALUES.get(text)
        if preserved is not None:
            return OptOut(preserved=preserved, annotation=key, findings=tuple(findings))
        findings.append(finding("C2C-ENV-02", f"annotation {key} is {shown(text)}"))
    return OptOut(findings=tuple(findings))
