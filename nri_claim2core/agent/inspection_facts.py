"""Threads and cgroups of this machine as the read tools need them: a second look beside the rows.

Only /proc and the default (v2) cgroup hierarchy are read. Rows name cgroups by the inode number
of their directory, so a walk over the hierarchy gives both: whether a cgroup still exists and
where. What is not there any more is None, never an error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from nri_claim2core.bpfmap.abi import CgroupId, Tid
from nri_claim2core.bpfmap.errors import CgroupGoneError, TaskGoneError
from nri_claim2core.bpfmap.identity import read_cgroup_id, read_pid_ino
from nri_claim2core.host.files import read_kernel_text
from nri_claim2core.model.cpuset import CpuSet, parse_kernel
from nri_claim2core.model.errors import HostError

NO_V2: Final = "C2C-INSPECT-01"
"""Code of a node on which no cgroup v2 hierarchy is mounted."""

_ROOT_ID: Final = 1
"""Inode number of the directory at the top of the hierarchy; in a part of it another one."""

_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_NUM_THREADS, _START_TIME = 16, 18
"""Indices among the fields of /proc/PID/stat that follow the state; proc(5) counts to 20, 22."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupTree:
    """The cgroups of the default hierarchy as of one walk."""

    mount: str
    "Directory of the hierarchy's root on this machine; empty where it is not mounted."
    is_whole: bool = False
    "The whole hierarchy is mounted: a cgroup that is not in `paths` does not exist."
    paths: Mapping[CgroupId, str] = field(default_factory=dict)
    "Path below the root, as in /proc/PID/cgroup, by cgroup id."

    def path_of(self, cgroup_id: CgroupId) -> str:
        """Give the path of a cgroup, empty for one that was not seen."""
        return self.paths.get(cgroup_id, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a row of a thread is compared with."""

    pid_ino: int
    cgroup_id: CgroupId
    "0 when it could not be found out."


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFacts:
    """A thread as /proc shows it."""

    tid: Tid
    tgid: int
    comm: str
    cgroup: str
    "Path in the default hierarchy; empty when unknown."
    affinity: CpuSet
    "CPUs it may run on: its own mask within the cpuset."


def maybe_find_mount(mountinfo: str = "/proc/self/mountinfo") -> str | None:
    """Give the directory where cgroup v2 is mounted, all of it before a part of it.

    Raises: HostError. Blocking: host read.
    """
    found: list[tuple[bool, str]] = []
    for line in read_kernel_text(mountinfo).splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] == "cgroup2":
            point = before.split(" ")[4].encode("latin-1", "replace").decode("unicode_escape")
            found.append((_is_root(point), point))
    return max(found, key=lambda each: each[0])[1] if found else None


def find_mount() -> str:
    """Give the directory where cgroup v2 is mounted.

    Raises: HostError, C2C-INSPECT-01 where it is not. Blocking: host read.
    """
    mount = maybe_find_mount()
    if mount is None:
        raise HostError(
            "no cgroup v2 hierarchy is mounted here: cgroups have no ids",
            hint="mount -t cgroup2 none DIRECTORY, beside the v1 hierarchies if there are any",
            code=NO_V2,
        )
    return mount


def read_tree() -> CgroupTree:
    """Walk the default hierarchy. Blocking: host read, some 50 us per cgroup."""
    mount = maybe_find_mount()
    if mount is None:
        return CgroupTree(mount="")
    paths = {_id_of(mount): "/"}
    for number, path in _below(mount):
        paths[number] = path.removeprefix(mount.rstrip("/"))
    return CgroupTree(mount=mount, is_whole=_is_root(mount), paths=paths)


def subtree(mount: str, path: str) -> dict[CgroupId, str]:
    """Give the ids of a cgroup and those below it, with their paths; top first.

    Raises: CgroupGoneError, HostError. Blocking: host read.
    """
    top = f"{mount.rstrip('/')}{path}".rstrip("/") or "/"
    found = {read_cgroup_id(top): path}
    for number, directory in _below(top):
        found[number] = directory.removeprefix(mount.rstrip("/"))
    return found


def ancestors(mount: str, path: str) -> dict[CgroupId, str]:
    """Give the ids of a cgroup and those above it, with their paths; nearest first.

    Those that are gone are left out. Blocking: host read.
    """
    found: dict[CgroupId, str] = {}
    at = path.rstrip("/")
    while True:
        with contextlib.suppress(CgroupGoneError):
            found[read_cgroup_id(f"{mount.rstrip('/')}{at}" or "/")] = at or "/"
        if not at:
            return found
        at = at.rpartition("/")[0]


def read_tids(mount: str, path: str) -> list[Tid]:
    """Give the TIDs in one cgroup, ascending; none when it is gone. Blocking: host read."""
    directory = f"{mount.rstrip('/')}{path.rstrip('/')}"
    try:
        text = read_kernel_text(f"{directory}/cgroup.threads")
    except HostError:
        return []
    # 0 stands for a thread of a namespace that we cannot see.
    return sorted(Tid(number) for number in map(int, text.split()) if number)


def maybe_identity(tid: Tid, mount: str) -> Identity | None:
    """Give who has this TID now, or None. Blocking: host read, some 25 us."""
    try:
        pid_ino = read_pid_ino(tid)
    except TaskGoneError:
        return None
    path = _maybe_cgroup(tid)
    cgroup_id = CgroupId(0)
    if mount and path:
        try:
            cgroup_id = read_cgroup_id(f"{mount.rstrip('/')}{path.rstrip('/')}" or "/")
        except (CgroupGoneError, HostError):
            cgroup_id = CgroupId(0)
    return Identity(pid_ino=pid_ino, cgroup_id=cgroup_id)


def maybe_thread(tid: Tid) -> ThreadFacts | None:
    """Give a thread as /proc shows it, or None when it has ended. Blocking: host read."""
    try:
        text = read_kernel_text(f"/proc/{tid}/status")
    except HostError:
        return None
    fields = dict(line.partition(":")[::2] for line in text.splitlines())
    return ThreadFacts(
        tid=tid,
        tgid=int(fields["Tgid"]),
        comm=fields["Name"].removeprefix("\t"),
        cgroup=_maybe_cgroup(tid) or "",
        affinity=parse_kernel(fields["Cpus_allowed_list"].strip()),
    )


def has_ended(tgid: int, alive_ns: int) -> bool:
    """Tell whether the process that had this TGID at `alive_ns` (CLOCK_BOOTTIME) has ended.

    A process that started later only has its number. Blocking: host read.
    """
    try:
        text = read_kernel_text(f"/proc/{tgid}/stat")
    except HostError:
        return True
    state, *fields = text.rpartition(")")[2].split()
    # A leader that has ended while other threads run is Z as well.
    is_dead = state in ("Z", "X") and int(fields[_NUM_THREADS]) <= 1
    return is_dead or int(fields[_START_TIME]) * _TICK_NS > alive_ns


def _maybe_cgroup(tid: int) -> str | None:
    try:
        text = read_kernel_text(f"/proc/{tid}/cgroup")
    except HostError:
        return None
    for line in text.splitlines():
        if line.startswith("0::"):
            return line.removeprefix("0::")
    return None


def _below(top: str) -> Iterator[tuple[CgroupId, str]]:
    """Yield (id, directory) of all cgroups below one; those that go meanwhile are left out."""
    pending = [top.rstrip("/")]
    while pending:
        try:
            with os.scandir(pending.pop() or "/") as entries:
                found = [
                    (CgroupId(each.inode()), each.path)
                    for each in entries
                    if each.is_dir(follow_symlinks=False)
                ]
        except OSError:
            continue
        yield from found
        pending.extend(path for _, path in found)


def _id_of(directory: str) -> CgroupId:
    try:
        return read_cgroup_id(directory)
    except (CgroupGoneError, HostError):
        return CgroupId(0)


def _is_root(directory: str) -> bool:
    return _id_of(directory) == _ROOT_ID
