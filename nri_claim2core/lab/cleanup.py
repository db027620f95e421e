"""Removing a bed completely: processes, cgroups, mounts, files.

Shared by the bed itself and by its holder process, which does it when the bed's owner died
without a word. Order matters: processes first (they keep cgroups and mounts busy), cgroups,
then files. Mounts need no work: they live in the bed's private namespace and go with its
last process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from nri_claim2core.lab.cgroups import BedCgroups
from nri_claim2core.lab.patience import SCALE
from nri_claim2core.lab.processes import in_mount_namespace, kill_all

_KILL_DEADLINE_S = 10.0 * SCALE


def end_processes(cgroups: BedCgroups, namespace: int | None, spare: frozenset[int]) -> list[str]:
    """Kill all processes of a bed except `spare`; returns a line for each that survived."""

    def members() -> set[int]:
        pids = cgroups.processes()
        if namespace is not None:
            pids |= in_mount_namespace(namespace)
        return pids - spare

    survivors = kill_all(members, deadline_s=_KILL_DEADLINE_S)
    return [f"process {pid} survived SIGKILL" for pid in sorted(survivors)]


def remove_cgroups(cgroups: BedCgroups, slice_name: str | None) -> list[str]:
    """Remove the bed's cgroups, its systemd slice too; returns a line for each that stayed."""
    if slice_name is not None:
        subprocess.run(  # noqa: S603 - our own unit name, no shell
            ["systemctl", "stop", slice_name],  # noqa: S607 - systemd's own place differs
            check=False,
            capture_output=True,
            timeout=30,
        )
    return [f"cgroup {path} is still busy" for path in cgroups.remove()]


def remove_files(base: Path) -> list[str]:
    """Remove the bed's directory; returns a line if something of it stayed.

    Call it when the bed's mount namespace is gone, else its mount points are busy.
    """
    shutil.rmtree(base, ignore_errors=True)
    return [f"directory {base} could not be removed"] if os.path.lexists(base) else []
