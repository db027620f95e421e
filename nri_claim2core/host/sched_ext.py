"""What the kernel says of its sched_ext scheduler: /sys/kernel/sched_ext.

Pins prove nothing here: after the kernel has ejected a scheduler its link and maps still look
alive. `state` and `root/ops` are the truth, and `enable_seq` tells whether somebody loaded one
in between.
"""

from __future__ import annotations

import enum
import errno
from dataclasses import dataclass
from typing import Final

from nri_claim2core.host.files import host_path, read_kernel_text
from nri_claim2core.model.errors import HostError

DIRECTORY: Final = "/sys/kernel/sched_ext"


class ExtState(enum.Enum):
    """State of the scheduler class."""

    ABSENT = "absent"
    "The kernel is built without it."
    ENABLING = "enabling"
    ENABLED = "enabled"
    DISABLING = "disabling"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedExt:
    """The scheduler class as of now."""

    state: ExtState
    ops: str = ""
    "Name of the loaded scheduler; empty without one."
    enable_seq: int = 0
    "How many schedulers this kernel has loaded since it was booted."
    switch_all: bool = False
    "All ordinary tasks are the scheduler's, not only those that asked for it."
    nr_rejected: int = 0

    @property
    def is_loaded(self) -> bool:
        """Tell whether any scheduler decides, or is about to or just ending."""
        return self.state not in (ExtState.ABSENT, ExtState.DISABLED)


def read_sched_ext(root: str = "/") -> SchedExt:
    """Read the state of the node whose file system is at `root`.

    Raises: HostError for a file that is there and cannot be read or understood. Blocking: host
    read, five small files. Source: Documentation/scheduler/sched-ext.rst.
    """
    directory = host_path(root, DIRECTORY)
    text = _maybe_read(f"{directory}/state")
    if text is None:
        return SchedExt(state=ExtState.ABSENT)
    try:
        state = ExtState(text)
    except ValueError as error:
        raise HostError(
            f"{directory}/state says {text[:40]!r}, which is no state known here",
            path=f"{directory}/state",
        ) from error
    return SchedExt(
        state=state,
        ops=_maybe_read(f"{directory}/root/ops") or "",
        enable_seq=_number(directory, "enable_seq"),
        switch_all=bool(_number(directory, "switch_all")),
        nr_rejected=_number(directory, "nr_rejected"),
    )


def _maybe_read(path: str) -> str | None:
    try:
        return read_kernel_text(path).strip()
    except HostError as error:
        # `root` goes away while it is looked at.
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENOTDIR):
            return None
        raise


def _number(directory: str, name: str) -> int:
    text = _maybe_read(f"{directory}/{name}") or "0"
    if not (text.isascii() and text.isdecimal()):
        raise HostError(
            f"{directory}/{name} says {text[:40]!r}, not a number", path=f"{directory}/{name}"
        )
    return int(text)
