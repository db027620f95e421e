"""The cgroups that the benchmark's containers are said to be in.

A real container has one when it starts, and our plugin reads its cpuset there. All containers
of one claim share a cgroup with that claim's CPU; nobody runs in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nri_claim2core.host.cgroup_mounts import find_hierarchy
from nri_claim2core.model.errors import HostError


@contextmanager
def claim_cgroups(nr_claims: int) -> Iterator[str]:
    """Make `<parent>/claim-N` with CPU N and give the parent's path.

    Gives "" where they cannot be made: without root, or without a cpuset hierarchy.
    """
    name = f"/c2c-bench-{os.getpid()}"
    made: list[Path] = []
    try:
        with suppress(HostError, OSError):
            hierarchy = find_hierarchy()
            top = Path(hierarchy.mount)
            parent = top / name[1:]
            if hierarchy.is_v2:
                (top / "cgroup.subtree_control").write_text("+cpuset")
            parent.mkdir()
            made.append(parent)
            if hierarchy.is_v2:
                (parent / "cgroup.subtree_control").write_text("+cpuset")
            else:
                _allow_all(parent, top)
            for claim in range(nr_claims):
                cgroup = parent / f"claim-{claim}"
                cgroup.mkdir()
                made.append(cgroup)
                (cgroup / "cpuset.cpus").write_text(str(claim))
                (cgroup / "cpuset.mems").write_text((top / _mems(hierarchy.is_v2)).read_text())
        yield name if len(made) == nr_claims + 1 else ""
    finally:
        for cgroup in reversed(made):
            cgroup.rmdir()


def _allow_all(cgroup: Path, top: Path) -> None:
    # On v1 a new cpuset is empty, and so are its children's.
    for name in ("cpuset.cpus", "cpuset.mems"):
        (cgroup / name).write_text((top / name).read_text())


def _mems(is_v2: bool) -> str:
    return "cpuset.mems.effective" if is_v2 else "cpuset.mems"
