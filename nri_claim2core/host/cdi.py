"""The CDI spec directories: which devices are defined, by which file, with which environment.

This read is in the path of every container start, so an unchanged directory costs one listing
and one stat per file, and gives back the very snapshot it gave before. A file is parsed again
when its stamp changed or was too young to be proof (see `files`).

Names are resolved as runtimes resolve them: a later directory wins over an earlier one; a name
that two files of one directory define is a conflict and belongs to no file - also when a later
directory defines it a third time. Only .json and .yaml are specs, only directly in a directory;
links to files are followed. Each file stands alone: what is wrong with one is a CdiProblem with
the file's name and changes nothing for the others.

No lock: readers share one immutable state that is replaced as a whole when a read is complete.
A reader that was stuck for a while replaces it by an older one, whose stamps then fail to match.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import Final, NamedTuple

from nri_claim2core.host.cdi_spec import parse_spec
from nri_claim2core.host.cdi_yaml import SpecTextError
from nri_claim2core.host.files import (
    Clock,
    Stamp,
    host_path,
    read_stable,
    stamp_of,
    unreadable,
)
from nri_claim2core.model.errors import HostError
from nri_claim2core.model.evidence import CdiDevice, CdiProblem, CdiSnapshot

DEFAULT_DIRS: Final = ("/etc/cdi", "/var/run/cdi")
"""Runtimes' default, lower priority first."""

MAX_SPEC_BYTES: Final = 4 << 20
"""One file with every claim of a node: 2,000 claims take half a megabyte."""

MAX_SPEC_FILES: Final = 4096
"""Per directory; one file per claim and request, on a node of at most some hundred pods."""

_ENDINGS: Final = (".json", ".yaml")
_NO_STAMP: Final = (0, 0, 0, 0, 0)
_DANGLING: Final = HostError("is a link to a file that is not there")


class _File(NamedTuple):
    """One spec file as last read; `problem` and devices exclude each other."""

    priority: int
    stamp: Stamp
    settled: bool
    devices: tuple[CdiDevice, ...]
    problem: str


class _State(NamedTuple):
    files: dict[str, _File]
    "By path on the node, in the order of the listing."
    faults: tuple[CdiProblem, ...]
    "Of directories, not of files."
    snapshot: CdiSnapshot


_NOTHING: Final = _State({}, (), CdiSnapshot(readable=False))


class CdiReader:
    """Reads the spec directories of the node whose file system is at `root`.

    Paths in what it gives are the node's, without `root`. Safe for use by several threads.
    """

    def __init__(
        self,
        root: str = "/",
        dirs: tuple[str, ...] = DEFAULT_DIRS,
        *,
        clock: Clock = time.time_ns,
    ) -> None:
        self._root = root
        self._dirs = tuple(directory.rstrip("/") for directory in dirs)
        self._clock = clock
        self._state = _NOTHING

    def read(self) -> CdiSnapshot:
        """Give the directories as they are now; the same object when nothing changed.

        Raises: nothing; problems are in the snapshot. Blocking: host read.
        """
        old = self._state
        files: dict[str, _File] = {}
        faults: list[CdiProblem] = []
        listed = False
        for priority, directory in enumerate(self._dirs):
            listed |= self._read_directory(directory, priority, old.files, files, faults)
        if listed == old.snapshot.readable and tuple(faults) == old.faults and _same(old, files):
            snapshot = old.snapshot
        else:
            snapshot = _resolve(files, faults, readable=listed)
        self._state = _State(files, tuple(faults), snapshot)
        return snapshot

    def _read_directory(
        self,
        directory: str,
        priority: int,
        old: dict[str, _File],
        files: dict[str, _File],
        faults: list[CdiProblem],
    ) -> bool:
        # This loop is the cost of an unchanged directory: nothing in it but listing and stat.
        try:
            real = host_path(self._root, directory)
            links_inside = self._root != "/"
            count = 0
            with os.scandir(real) as entries:
                for entry in entries:
                    name = entry.name
                    if not name.endswith(_ENDINGS):
                        continue
                    path = f"{directory}/{name}"
                    opened = entry.path
                    try:
                        if links_inside and entry.is_symlink():
                            opened = host_path(self._root, path)
                            status = os.stat(opened)  # noqa: PTH116 - text paths throughout
                        else:
                            status = entry.stat()
                    except (OSError, HostError) as error:
                        dangling = entry.is_symlink() and error.errno == errno.ENOENT
                        _fail(files, path, priority, _DANGLING if dangling else error)
                        continue
                    if stat.S_ISDIR(status.st_mode):
                        continue
                    count += 1
                    if count > MAX_SPEC_FILES:
                        faults.append(_too_many(directory))
                        break
                    known = old.get(path)
                    if known is not None and known.settled and known.stamp == stamp_of(status):
                        files[path] = known
                    else:
                        self._read_file(opened, path, priority, files)
        except (OSError, HostError) as error:
            fault = unreadable(directory, error) if isinstance(error, OSError) else error
            if fault.errno != errno.ENOENT:
                faults.append(CdiProblem(path=directory, reason=_reason(fault)))
            return False
        return True

    def _read_file(self, opened: str, path: str, priority: int, files: dict[str, _File]) -> None:
        try:
            content = read_stable(opened, limit=MAX_SPEC_BYTES, clock=self._clock)
        except HostError as error:
            _fail(files, path, priority, error)
            return
        try:
            devices, problem = parse_spec(content.data, path), ""
        except SpecTextError as error:
            devices, problem = (), str(error)
        files[path] = _File(priority, content.stamp, content.settled, devices, problem)


def _fail(files: dict[str, _File], path: str, priority: int, error: OSError | HostError) -> None:
    if error.errno == errno.ENOENT:
        # Removed since it was listed: as if it had never been there.
        return
    mapped = error if isinstance(error, HostError) else unreadable(path, error)
    files[path] = _File(
        priority=priority, stamp=_NO_STAMP, settled=False, devices=(), problem=_reason(mapped)
    )


def _reason(error: HostError) -> str:
    # The problem names the file already, by its path on the node.
    return str(error).removeprefix(f"{error.path}: ")


def _same(old: _State, files: dict[str, _File]) -> bool:
    if len(files) != len(old.files):
        return False
    for path, file in files.items():
        known = old.files.get(path)
        if known is file:
            continue
        if known is None or known.devices != file.devices or known.problem != file.problem:
            return False
    return True


def _resolve(files: dict[str, _File], faults: list[CdiProblem], *, readable: bool) -> CdiSnapshot:
    chosen: dict[str, tuple[int, CdiDevice]] = {}
    conflicts: dict[str, dict[str, None]] = {}
    problems = list(faults)
    for path in sorted(files, key=lambda path: (files[path].priority, path)):
        file = files[path]
        if file.problem:
            problems.append(CdiProblem(path=path, reason=file.problem))
        for device in file.devices:
            name = device.qualified_name
            other = chosen.get(name)
            if other is not None and other[0] == file.priority:
                # A dict for its order: the earlier file may be named by a conflict already.
                conflicts.setdefault(name, {}).update({other[1].path: None, path: None})
            else:
                chosen[name] = (file.priority, device)
    return CdiSnapshot(
        devices={name: device for name, (_, device) in chosen.items() if name not in conflicts},
        conflicts={name: tuple(paths) for name, paths in conflicts.items()},
        problems=tuple(problems),
        readable=readable,
    )


def _too_many(directory: str) -> CdiProblem:
    return CdiProblem(
        path=directory,
        reason=f"has more than {MAX_SPEC_FILES} spec files; the rest were not read",
    )
