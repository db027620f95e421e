"""The cgroups of one bed: finding them, who is in them, and removing them.

A bed keeps every pod below one cgroup of its own name, which exists once per mounted
hierarchy (each v1 controller, the v2 tree, both on hybrid machines) and, under systemd, as
a slice of that name. Only directories of that name are ever touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def cgroup_mounts(mountinfo: str) -> list[Path]:
    """Mount points of all cgroup hierarchies, v1 and v2.

    Source: proc(5), /proc/PID/mountinfo: the mount point is field 5, the file system type
    the first field after the lone ``-``.
    """
    mounts: list[Path] = []
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        if separator and after.split(" ", 1)[0] in {"cgroup", "cgroup2"}:
            mounts.append(Path(before.split(" ")[4]))
    return mounts


class BedCgroups:
    """The cgroups below `parent` (``/name`` or ``name.slice``) in every hierarchy."""

    def __init__(self, parent: str, mounts: list[Path] | None = None) -> None:
        self._name = parent.strip("/")
        self._mounts = (
            cgroup_mounts(Path("/proc/self/mountinfo").read_text()) if mounts is None else mounts
        )

    def directories(self) -> list[Path]:
        """Existing cgroups of the bed, children before their parents.

        Blocking: walks the hierarchies.
        """
        found: list[Path] = []
        for mount in self._mounts:
            top = mount / self._name
            found.extend(Path(directory) for directory, _, _ in os.walk(top, topdown=False))
        return found

    def processes(self) -> set[int]:
        """TGIDs of all processes in the bed's cgroups.

        Blocking: reads every ``cgroup.procs``.
        """
        return set(self._each_process())

    def remove(self) -> list[Path]:
        """Remove the cgroups; returns those that stayed, because somebody is still in them."""
        for directory in self.directories():
            try:
                directory.rmdir()
            except OSError:
                # Busy, or gone meanwhile: what is left is what directories() still finds.
                continue
        return self.directories()

    def _each_process(self) -> Iterator[int]:
        for directory in self.directories():
            try:
                text = (directory / "cgroup.procs").read_text()
            except OSError:
                continue
            yield from map(int, text.split())
