"""A container's cgroup: where it is, who is in it, and the cpuset in force there.

The directory is computed from the path the runtime announced and, where a process is known,
confirmed by the kernel's own word in /proc/PID/cgroup. The kernel's word also settles what the
announced path leaves open: the part above it on nested nodes (kind, kubelet --cgroup-root), the
child that crun adds. A process that is not in the announced cgroup proves nothing - it may be a
virtual machine monitor's, or another namespace's number - so the computed directory stands,
unconfirmed, or there is an error. It is never replaced by a guess.

In force is `effective`, not what was written: on v2 a cpuset disjoint from its parent's is
accepted and has no effect. Where a v2 cgroup has no cpuset files of its own, the nearest one
above that has them governs it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Final, NamedTuple

from nri_claim2core.host.cgroup_mounts import NO_CPUSET, Hierarchy, find_hierarchy
from nri_claim2core.host.cgroup_paths import CRUN_CHILD, is_systemd_form, parse_cgroups_path
from nri_claim2core.host.files import MALFORMED, host_path, read_kernel_text
from nri_claim2core.model.cpuset import CpuSet, parse_kernel
from nri_claim2core.model.errors import CpuListError, HostError

NOT_FOUND: Final = "C2C-HOST-05"
"""Code of a container whose cgroup directory is not there."""

MAX_CHILDREN: Final = 4096
"""Cgroups below one container that are searched for processes."""


class Effective(NamedTuple):
    """The CPUs and memory nodes that the kernel lets a cgroup's tasks use now."""

    cpus: CpuSet
    mems: CpuSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCgroup:
    """Where a container's cgroup is, in the hierarchy that has the cpuset controller."""

    path: str
    "The directory that the runtime made for the container."
    leaf: str
    "Where its processes are: `path`, or a child of it."
    confirmed: bool
    "The kernel said that the given process is in it."


class CgroupReader:
    """Reads container cgroups of the node whose file system is at `root`; safe for threads.

    `prefixes` are directories to look below in turn when the announced path is not at the top,
    for a node that is itself a container on this machine.
    """

    def __init__(self, root: str = "/", *, prefixes: tuple[str, ...] = ()) -> None:
        self._root = root
        self._prefixes = ("", *(f"/{prefix.strip('/')}" for prefix in prefixes))
        self._hierarchy: Hierarchy | None = None

    @property
    def hierarchy(self) -> Hierarchy:
        """Where the cpuset controller is mounted; found once.

        Raises: HostError when there is none. Blocking: host read, the first time.
        """
        found = self._hierarchy
        if found is None:
            found = self._hierarchy = find_hierarchy(self._root)
        return found

    def locate(self, cgroups_path: str, tgid: int = 0) -> ContainerCgroup:
        """Find the cgroup of a container by its OCI `cgroupsPath` and, if known, its init.

        Raises: HostError, C2C-HOST-05 with ENOENT when no such directory exists (before the
        runtime made it, after it removed it). Blocking: host read.
        """
        relative = parse_cgroups_path(cgroups_path)
        mount = self.hierarchy.mount
        actual = self._maybe_cgroup_of(tgid) if tgid > 0 else None
        if actual is not None:
            confirmed = _confirm(mount, relative, actual)
            if confirmed is not None:
                return confirmed
        for prefix in self._prefixes:
            path = f"{mount}{prefix}{relative}"
            if _is_directory(path):
                child = f"{path}/{CRUN_CHILD}"
                nested = is_systemd_form(cgroups_path) and _is_directory(child)
                return ContainerCgroup(path=path, leaf=child if nested else path, confirmed=False)
        elsewhere = f"; process {tgid} is in {actual}" if actual is not None else ""
        raise HostError(
            f"{mount}{relative}: no such cgroup{elsewhere}",
            path=f"{mount}{relative}",
            errno=errno.ENOENT,
            hint="it exists from the start of the container to its end; on a nested node, "
            "check the kubelet's cgroup root",
            code=NOT_FOUND,
        )

    def read_effective(self, directory: str) -> Effective:
        """Give the cpuset in force in a cgroup directory.

        Raises: HostError; C2C-HOST-05 when the cgroup is gone, also while it is being read.
        Blocking: host read.
        Source: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpusets.rst.
        """
        try:
            if self.hierarchy.is_v2:
                governing = self._governing(directory)
                return Effective(
                    _read_list(f"{governing}/cpuset.cpus.effective"),
                    _read_list(f"{governing}/cpuset.mems.effective"),
                )
            return Effective(
                _read_list(f"{directory}/cpuset.effective_cpus"),
                _read_list(f"{directory}/cpuset.effective_mems"),
            )
        except HostError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV) and not _is_directory(directory):
                raise _gone(directory, error.errno) from error
            raise

    def read_tgids(self, directory: str) -> tuple[int, ...]:
        """Give the TGIDs of all processes in a cgroup and below it, ascending, unique.

        A cgroup that vanishes meanwhile has none; nor have processes of namespaces that we
        cannot see. Raises: HostError when `directory` itself cannot be read.
        Blocking: host read.
        """
        found = set(_read_tgids(directory))
        pending = [directory]
        seen = 0
        while pending and seen < MAX_CHILDREN:
            for child in _children(pending.pop()):
                seen += 1
                pending.append(child)
                try:
                    found.update(_read_tgids(child))
                except HostError:
                    continue
        return tuple(sorted(found))

    def _governing(self, directory: str) -> str:
        mount = self.hierarchy.mount
        if not _is_directory(directory):
            raise _gone(directory, errno.ENOENT)
        at = directory.rstrip("/")
        while not os.path.exists(f"{at}/cpuset.cpus.effective"):  # noqa: PTH110 - text paths
            if not at.startswith(f"{mount}/"):
                raise HostError(
                    f"{directory}: no cgroup above it has cpuset files",
                    path=directory,
                    errno=errno.ENOENT,
                    hint="enable the cpuset controller in cgroup.subtree_control",
                    code=NO_CPUSET,
                )
            at = at.rpartition("/")[0]
        return at

    def _maybe_cgroup_of(self, tgid: int) -> str | None:
        """Path in the hierarchy as mounted, or None: no such process, or not below the mount."""
        hierarchy = self.hierarchy
        try:
            text = read_kernel_text(host_path(self._root, f"/proc/{tgid}/cgroup"))
        except HostError:
            return None
        for line in text.splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if hierarchy.is_v2:
                ours = number == "0" and not controllers
            else:
                ours = "cpuset" in controllers.split(",")
            if ours:
                if hierarchy.subtree and not f"{path}/".startswith(f"{hierarchy.subtree}/"):
                    return None
                inside = path[len(hierarchy.subtree) :]
                return None if ".." in inside.split("/") else inside
        return None


def _confirm(mount: str, relative: str, actual: str) -> ContainerCgroup | None:
    # Whole components only: /kubepods/podA must not be found in /x/kubepods/podAB.
    at = f"{actual}/".find(f"{relative}/")
    if at < 0:
        return None
    path = f"{mount}{actual[: at + len(relative)]}"
    if not _is_directory(path):
        return None
    leaf = f"{mount}{actual}"
    return ContainerCgroup(path=path, leaf=leaf if _is_directory(leaf) else path, confirmed=True)


def _gone(directory: str, number: int) -> HostError:
    return HostError(f"{directory}: no such cgroup", path=directory, errno=number, code=NOT_FOUND)


def _is_directory(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - text paths throughout


def _children(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _read_tgids(directory: str) -> list[int]:
    path = f"{directory}/cgroup.procs"
    try:
        # 0 stands for a process that our pid namespace has no number for.
        return [number for number in map(int, read_kernel_text(path).split()) if number > 0]
    except ValueError as error:
        raise HostError(f"{path}: not a list of numbers", path=path, code=MALFORMED) from error


def _read_list(path: str) -> CpuSet:
    text = read_kernel_text(path)
    try:
        return parse_kernel(text)
    except CpuListError as error:
        raise HostError(f"{path}: {error}", path=path, code=MALFORMED) from error
