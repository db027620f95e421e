"""Where the node mounts its cgroup hierarchies, and which of them confines CPUs.

Three layouts exist: v1 (a tree per controller), v2 (one tree), hybrid (both; the v2 tree then
normally controls nothing). What matters is in which tree the cpuset controller lives: in its
own v1 mount where there is one, else in the v2 tree. The mount table is asked first; a captured
root tree has none that fits, so the well-known places below /sys/fs/cgroup are looked at then.
"""

from __future__ import annotations

import enum
import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from nri_claim2core.host.files import host_path, read_kernel_text
from nri_claim2core.model.errors import HostError

CGROUP_DIR: Final = "/sys/fs/cgroup"

NO_CPUSET: Final = "C2C-HOST-04"
"""Code of a node on which no mounted hierarchy has the cpuset controller."""

_ESCAPE: Final = re.compile(r"\\([0-7]{3})", re.ASCII)


class Layout(enum.Enum):
    """Which versions of cgroups the node mounts."""

    V1 = "v1"
    V2 = "v2"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """The hierarchy that holds the cpuset controller."""

    layout: Layout
    mount: str
    "Directory of its root on this machine."
    is_v2: bool
    "File names and meaning are those of v2."
    subtree: str = ""
    "What part of the hierarchy is mounted there; empty = all of it."


class _Mount(NamedTuple):
    point: str
    subtree: str
    is_v2: bool
    options: frozenset[str]


def find_hierarchy(root: str = "/") -> Hierarchy:
    """Find the cpuset hierarchy of the node whose file system is at `root`.

    Raises: HostError, C2C-HOST-04 when there is none. Blocking: host read.
    Source: proc(5) mountinfo; cgroups(7).
    """
    found = _from_mounts(root) or _from_tree(root)
    if found is None:
        raise HostError(
            f"no cgroup hierarchy with the cpuset controller below {root}",
            path=host_path(root, CGROUP_DIR),
            hint="mount cgroup2, or the cpuset controller of cgroup v1, at /sys/fs/cgroup",
            code=NO_CPUSET,
        )
    return found


def _from_mounts(root: str) -> Hierarchy | None:
    # Below another root our own mount table is not the node's; that of its init is.
    for owner in ("self",) if root == "/" else ("1", "self"):
        try:
            text = read_kernel_text(host_path(root, f"/proc/{owner}/mountinfo"))
        except HostError:
            continue
        mounts = [m for m in _mounts(text, root) if os.path.isdir(m.point)]  # noqa: PTH112
        found = _choose(mounts)
        if found is not None:
            return found
    return None


def _mounts(text: str, root: str) -> Iterator[_Mount]:
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if not separator or kind[0] not in ("cgroup", "cgroup2"):
            continue
        subtree, point = _unescape(fields[3]), _unescape(fields[4])
        yield _Mount(
            point=host_path(root, point),
            subtree="" if subtree == "/" else subtree,
            is_v2=kind[0] == "cgroup2",
            options=frozenset(kind[-1].split(",")),
        )


def _unescape(field: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)


def _choose(mounts: list[_Mount]) -> Hierarchy | None:
    # A mount of the whole hierarchy first: a part of it does not show every container.
    mounts = sorted(mounts, key=lambda mount: bool(mount.subtree))
    unified = [mount for mount in mounts if mount.is_v2]
    legacy = [mount for mount in mounts if not mount.is_v2]
    layout = Layout.V2 if not legacy else Layout.HYBRID if unified else Layout.V1
    candidates = [mount for mount in legacy if "cpuset" in mount.options]
    candidates += [mount for mount in unified if _has_cpuset(mount.point)]
    if not candidates:
        return None
    chosen = candidates[0]
    return Hierarchy(layout=layout, mount=chosen.point, is_v2=chosen.is_v2, subtree=chosen.subtree)


def _from_tree(root: str) -> Hierarchy | None:
    top = host_path(root, CGROUP_DIR)
    if _has_cpuset(top):
        return Hierarchy(layout=Layout.V2, mount=top, is_v2=True)
    unified = f"{top}/unified"
    hybrid = os.path.exists(f"{unified}/cgroup.controllers")  # noqa: PTH110 - text paths
    layout = Layout.HYBRID if hybrid else Layout.V1
    if os.path.exists(f"{top}/cpuset/cpuset.cpus"):  # noqa: PTH110
        return Hierarchy(layout=layout, mount=f"{top}/cpuset", is_v2=False)
    if _has_cpuset(unified):
        return Hierarchy(layout=layout, mount=unified, is_v2=True)
    return None


def _has_cpuset(mount: str) -> bool:
    try:
        return "cpuset" in read_kernel_text(f"{mount}/cgroup.controllers").split()
    except HostError:
        return False
