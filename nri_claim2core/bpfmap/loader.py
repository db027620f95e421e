"""Load the maps object: adopt the pinned set or make one, and get the programs that use it.

The plugin owns the set. Maps outlive it, programs do not: each start loads its own, so an
upgraded plugin never runs an old mutation program. A new set is frozen for user space before
it is pinned - from then on only programs write - and creators exclude each other by a lock on
the directory, which ends with the process.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nri_claim2core.bpfmap import syscall
from nri_claim2core.bpfmap.abi import ABI, CONTROL, MAPS
from nri_claim2core.bpfmap.errors import LoadError, MapsMissingError, OtherAbiError, PinGoneError
from nri_claim2core.bpfmap.libbpf import Object
from nri_claim2core.bpfmap.pins import (
    CONTROL_KEY,
    DIRECTORY,
    Maps,
    check_bpffs,
    open_maps,
    remove_pins,
)

OBJECT: Final = str(Path(__file__).parent / "objects" / "maps.bpf.o")
REQUESTS_MAP: Final = "c2c_requests"
_PROGRAMS: Final = ("c2c_mutate", "c2c_resolve", "c2c_iterate")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The set and this process's programs on it; descriptors are this object's to close."""

    maps: Maps
    programs: Mapping[str, int]
    requests_fd: int
    fresh: bool
    "The set was made now: it is empty, and a scheduler may still use an older one."
    _closed: list[bool] = field(default_factory=list)

    def close(self) -> None:
        """Close everything; pins stay."""
        if not self._closed:
            self._closed.append(True)
            self.maps.close()
            for fd in (*self.programs.values(), self.requests_fd):
                os.close(fd)


def load(
    directory: str = DIRECTORY,
    *,
    object_path: str = OBJECT,
    replace: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> Loaded:
    """Adopt the set pinned in `directory`, or make one; load the programs.

    `replace` makes a new set where the pinned one is incomplete or of another ABI. `sizes`
    gives maps other numbers of entries, when they are made.

    Raises: LoadError, OtherAbiError, PinGoneError, BpffsError, CapabilityError.
    Blocking: some tens of milliseconds, and as long as another process is doing the same.
    """
    check_bpffs(directory)
    if not Path(object_path).exists():
        raise LoadError(f"{object_path} is not there", path=object_path, hint="built by `make bpf`")
    Path(directory).mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        maps = _adopt(directory, replace=replace)
        return _load_object(directory, object_path, maps, sizes or {})
    finally:
        os.close(lock)


def _adopt(directory: str, *, replace: bool) -> Maps | None:
    try:
        return open_maps(directory)
    except MapsMissingError:
        pass
    except (OtherAbiError, PinGoneError):
        if not replace:
            raise
    remove_pins(directory)
    return None


def _load_object(
    directory: str, object_path: str, adopted: Maps | None, sizes: Mapping[str, int]
) -> Loaded:
    with Object(object_path) as bpf:
        if adopted:
            for name, fd in adopted.fds.items():
                bpf.reuse(name, fd)
        else:
            for name, count in sizes.items():
                bpf.set_max_entries(name, count)
        bpf.load()
        maps = adopted or _publish(directory, {spec.name: bpf.map_fd(spec.name) for spec in MAPS})
        return Loaded(
            maps,
            {name: bpf.program_fd(name) for name in _PROGRAMS},
            bpf.map_fd(REQUESTS_MAP),
            fresh=adopted is None,
        )


def _publish(directory: str, fds: dict[str, int]) -> Maps:
    control = bytearray(CONTROL.size)
    struct.pack_into("=I", control, CONTROL.offset("abi"), ABI)
    error = syscall.map_update(fds["c2c_control"], CONTROL_KEY, bytes(control))
    if error:
        raise syscall.refusal(error, "cannot write the control row")
    for name, fd in fds.items():
        syscall.map_freeze(fd)
        syscall.obj_pin(fd, f"{directory}/{name}")
    return Maps(directory, fds, {name: syscall.map_info(fd) for name, fd in fds.items()})
