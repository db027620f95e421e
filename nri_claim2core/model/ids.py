"""Identifiers, one type each, so that a pod UID can never be passed where a claim UID belongs."""

from __future__ import annotations

import re
from typing import NewType

ClaimUid = NewType("ClaimUid", str)
PodUid = NewType("PodUid", str)
SandboxId = NewType("SandboxId", str)
ContainerId = NewType("ContainerId", str)
Tgid = NewType("Tgid", int)

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)

UUID_LENGTH = 36


def maybe_claim_uid(text: str) -> ClaimUid | None:
    """Give the claim UID that `text` is, or None: a lower-case 8-4-4-4-12 UUID and nothing else.

    Upper case is another string for the API server, hence never a claim.
    """
    return ClaimUid(text) if len(text) == UUID_LENGTH and _UUID.fullmatch(text) else None
