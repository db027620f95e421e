"""The pinned set of maps: open it, judge it, notice when it is not ours any more.

The set is there when its control map is pinned; that one is pinned last and unpinned first.
"""

from __future__ import annotations

import contextlib
import errno as codes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nri_claim2core.bpfmap import syscall
from nri_claim2core.bpfmap.abi import ABI, CONTROL, MAPS, MapSpec
from nri_claim2core.bpfmap.errors import (
    BpffsError,
    MapsMissingError,
    OtherAbiError,
    PinGoneError,
    PinReplacedError,
)
from nri_claim2core.bpfmap.rows import Control
from nri_claim2core.bpfmap.syscall import MapInfo

DIRECTORY: Final = "/sys/fs/bpf/claim2core"
CONTROL_KEY: Final = bytes(4)
_CONTROL_MAP: Final = MAPS[-1].name
_REPLACE_HINT = "stop plugin and scheduler, remove the pins, start the plugin again"


@dataclass(frozen=True, slots=True)
class Maps:
    """An opened set of maps; the descriptors are this object's to close."""

    directory: str
    fds: dict[str, int]
    infos: dict[str, MapInfo]

    @property
    def identity(self) -> tuple[int, ...]:
        """The maps' kernel ids: another set within this boot has others."""
        return tuple(self.infos[spec.name].id for spec in MAPS)

    def close(self) -> None:
        """Close the descriptors; the pins stay."""
        for fd in self.fds.values():
            os.close(fd)
        self.fds.clear()

    def read_control(self) -> Control:
        """Copy the control row. Blocking: one system call."""
        data = syscall.map_lookup(self.fds[_CONTROL_MAP], CONTROL_KEY, CONTROL.size)
        return Control.unpack(data or bytes(CONTROL.size))

    def check_pins(self) -> None:
        """Compare what is pinned now with this set.

        Raises: PinGoneError, PinReplacedError. Blocking: ten system calls.
        """
        for name, info in self.infos.items():
            path = f"{self.directory}/{name}"
            fd = _maybe_open(path, read_only=True)
            if fd is None:
                raise PinGoneError(f"{path} is not pinned any more", path=path)
            with _closing(fd):
                found = syscall.map_info(fd)
            if found.id != info.id:
                raise PinReplacedError(
                    f"{path} is map {found.id} now, and was {info.id}",
                    path=path,
                    hint="another process loaded maps; only one plugin may run on a node",
                )


def open_maps(directory: str = DIRECTORY, *, read_only: bool = False) -> Maps:
    """Open the pinned set.

    Raises: MapsMissingError when no set is there, PinGoneError when a part of it is missing,
    OtherAbiError when it is another version's, CapabilityError, BpffsError.
    Blocking: eleven system calls.
    """
    maps = Maps(directory, {}, {})
    try:
        for spec in reversed(MAPS):
            _open_one(maps, spec, read_only=read_only)
        _check_abi(maps)
    except BaseException:
        maps.close()
        raise
    return maps


def _open_one(maps: Maps, spec: MapSpec, *, read_only: bool) -> None:
    path = f"{maps.directory}/{spec.name}"
    fd = _maybe_open(path, read_only=read_only)
    if fd is None:
        raise _missing(spec, path)
    maps.fds[spec.name] = fd
    maps.infos[spec.name] = _checked_info(spec, fd, path)


def _check_abi(maps: Maps) -> None:
    abi = maps.read_control().abi
    if abi != ABI:
        raise OtherAbiError(
            f"the maps in {maps.directory} are of ABI {abi}, this program is of ABI {ABI}",
            path=maps.directory,
            hint=_REPLACE_HINT,
        )


def remove_pins(directory: str = DIRECTORY) -> None:
    """Unpin the set, control first; what others pinned beside it stays. Needs no BPF."""
    for spec in reversed(MAPS):
        with contextlib.suppress(FileNotFoundError):
            Path(directory, spec.name).unlink()


def check_bpffs(path: str, mountinfo: str = "/proc/self/mountinfo") -> None:
    """See that a directory, or where it would be made, is on a BPF file system.

    Raises: BpffsError. Blocking: host read.
    """
    # Paths as bytes are: one character each.
    real = os.fsencode(os.path.realpath(path)).decode("latin-1")
    best, kind = "", ""
    with Path(mountinfo).open(encoding="latin-1") as lines:
        for line in lines:
            mount, _, tail = line.partition(" - ")
            point = mount.split(" ")[4].encode("latin-1").decode("unicode_escape")
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            # Of two mounts on one directory the later one is seen.
            if inside and len(point) >= len(best):
                best, kind = point, tail.split(" ", 1)[0]
    if kind != "bpf":
        raise BpffsError(
            f"{path} is on {kind or 'nothing'}, not on a BPF file system",
            path=path,
            hint="mount -t bpf bpf /sys/fs/bpf, and mount it into the plugin's container",
        )


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(fd)


def _maybe_open(path: str, *, read_only: bool) -> int | None:
    fd = syscall.obj_get(path, read_only=read_only)
    if fd == -codes.ENOENT:
        return None
    if fd == -codes.EACCES:
        check_bpffs(path)  # a better word, where that is why
    if fd < 0:
        raise syscall.refusal(fd, f"cannot open {path}", path)
    return fd


def _missing(spec: MapSpec, path: str) -> MapsMissingError | PinGoneError:
    if spec.name == _CONTROL_MAP:
        return MapsMissingError(
            f"no maps at {Path(path).parent}", path=path, hint="the plugin makes them"
        )
    return PinGoneError(f"{path} is not pinned, the rest of the set is", path=path)


def _checked_info(spec: MapSpec, fd: int, path: str) -> MapInfo:
    info = syscall.map_info(fd)
    found = (info.type, info.key_size, info.value_size)
    if found != (spec.type, spec.key_size, spec.value_size):
        raise OtherAbiError(
            f"{path} has type {info.type}, keys of {info.key_size} and values of "
            f"{info.value_size} bytes; ABI {ABI} has type {spec.type}, {spec.key_size} and "
            f"{spec.value_size}",
            path=path,
            hint=_REPLACE_HINT,
        )
    return info
