"""bpf(2) through ctypes: pins, map reads, program runs, iterators - nothing but the call itself.

Every function is a system call or a few: blocking for microseconds. File descriptors come back
close-on-exec, as the kernel makes them.
"""

from __future__ import annotations

import ctypes
import errno as codes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from nri_claim2core.bpfmap.errors import BpfError, CapabilityError

_NUMBERS: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "s390x": 351, "ppc64le": 361}

# enum bpf_cmd, linux/bpf.h
_MAP_LOOKUP_ELEM = 1
_MAP_UPDATE_ELEM = 2
_MAP_GET_NEXT_KEY = 4
_OBJ_PIN = 6
_OBJ_GET = 7
_PROG_TEST_RUN = 10
_OBJ_GET_INFO_BY_FD = 15
_MAP_FREEZE = 22
_MAP_LOOKUP_BATCH = 24
_LINK_CREATE = 28
_ITER_CREATE = 33
_LINK_DETACH = 34

_TRACE_ITER = 28  # enum bpf_attach_type
_F_RDONLY = 1 << 3

_number = _NUMBERS.get(os.uname().machine)
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def _call(command: int, attr: Any, size: int) -> int:  # noqa: ANN401 - a ctypes array
    """Make the call; give its result, or the negative errno."""
    if _number is None:
        return -codes.ENOSYS
    result: int = _syscall(_number, command, ctypes.byref(attr), size)
    return -ctypes.get_errno() if result < 0 else result


def _bpf(command: int, attr: bytearray) -> int:
    return _call(command, (ctypes.c_char * len(attr)).from_buffer(attr), len(attr))


def _address(buffer: bytearray) -> int:
    return ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))


def refusal(result: int, what: str, path: str = "") -> BpfError | CapabilityError:
    """Give the error for a negative result of bpf(2)."""
    number = -result
    message = f"{what}: {os.strerror(number)}"
    if number in (codes.EPERM, codes.EACCES):
        return CapabilityError(
            message,
            path=path,
            errno=number,
            hint="needs CAP_BPF and CAP_PERFMON (or root) in the initial user namespace",
        )
    return BpfError(message, path=path, errno=number)


def _checked(result: int, what: str, path: str = "") -> int:
    if result < 0:
        raise refusal(result, what, path)
    return result


def obj_get(path: str, *, read_only: bool = False) -> int:
    """Open what is pinned at `path`; give its descriptor, or the negative errno."""
    name = bytearray(os.fsencode(path) + b"\0")
    flags = _F_RDONLY if read_only else 0
    return _bpf(_OBJ_GET, bytearray(struct.pack("=QII", _address(name), 0, flags)))


def obj_pin(fd: int, path: str) -> None:
    """Pin a map, program or link. Raises: BpfError (EEXIST: the name is taken)."""
    name = bytearray(os.fsencode(path) + b"\0")
    attr = bytearray(struct.pack("=QII", _address(name), fd, 0))
    _checked(_bpf(_OBJ_PIN, attr), f"cannot pin {path}", path)


def link_detach(fd: int) -> None:
    """End what a link attaches, whoever else holds it. Raises: BpfError, CapabilityError."""
    _checked(_bpf(_LINK_DETACH, bytearray(struct.pack("=I", fd))), "cannot detach a link")


@dataclass(frozen=True, slots=True)
class MapInfo:
    """What the kernel says of a map."""

    type: int
    id: int
    key_size: int
    value_size: int
    max_entries: int
    flags: int
    name: str


def map_info(fd: int) -> MapInfo:
    """Describe a map. Raises: BpfError, also for a descriptor that is no map."""
    info = bytearray(128)
    attr = bytearray(struct.pack("=IIQ", fd, len(info), _address(info)))
    _checked(_bpf(_OBJ_GET_INFO_BY_FD, attr), "cannot ask what a map is")
    kind, number, key_size, value_size, max_entries, flags = struct.unpack_from("=6I", info)
    name = bytes(info[24:40]).split(b"\0", 1)[0].decode("ascii", "replace")
    return MapInfo(kind, number, key_size, value_size, max_entries, flags, name)


def map_freeze(fd: int) -> None:
    """Take the right to write away from user space, for good; programs keep it."""
    _checked(_bpf(_MAP_FREEZE, bytearray(struct.pack("=I", fd))), "cannot freeze a map")


def map_update(fd: int, key: bytes, value: bytes) -> int:
    """Write one element; give 0 or the negative errno."""
    held_key, held_value = bytearray(key), bytearray(value)
    attr = struct.pack("=I4xQQQ", fd, _address(held_key), _address(held_value), 0)
    return _bpf(_MAP_UPDATE_ELEM, bytearray(attr))


def map_lookup(fd: int, key: bytes, value_size: int) -> bytes | None:
    """Copy one element, or None. `value_size` counts every CPU for a per-CPU map."""
    held_key, value = bytearray(key), bytearray(value_size)
    attr = struct.pack("=I4xQQQ", fd, _address(held_key), _address(value), 0)
    result = _bpf(_MAP_LOOKUP_ELEM, bytearray(attr))
    if result == -codes.ENOENT:
        return None
    _checked(result, "cannot read a map")
    return bytes(value)


def map_rows(fd: int, info: MapInfo, chunk: int = 1024) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of a hash or array map, in batches.

    A row that is written meanwhile may or may not be seen; none that stays is missed.
    """
    cursor: bytearray | None = None
    # Wide enough for a bucket's cursor of any map type.
    following = bytearray(max(info.key_size, 8))
    while True:
        keys, values = bytearray(chunk * info.key_size), bytearray(chunk * info.value_size)
        attr = bytearray(
            struct.pack(
                "=QQQQIIQQ",
                _address(cursor) if cursor is not None else 0,
                _address(following),
                _address(keys),
                _address(values),
                chunk,
                fd,
                0,
                0,
            )
        )
        result = _bpf(_MAP_LOOKUP_BATCH, attr)
        if result == -codes.ENOSPC:
            chunk *= 2  # one bucket holds more than a batch
            continue
        count = struct.unpack_from("=I", attr, 32)[0]
        if result not in (0, -codes.ENOENT):
            _checked(result, "cannot read a map")
        for at in range(count):
            yield (
                bytes(keys[at * info.key_size : (at + 1) * info.key_size]),
                bytes(values[at * info.value_size : (at + 1) * info.value_size]),
            )
        if result == -codes.ENOENT:
            return
        cursor = bytearray(following)


class ProgramRun:
    """A syscall program with its argument: set `argument`, `run()`, read `argument`."""

    __slots__ = ("_argument", "_attr", "_held", "argument")

    def __init__(self, fd: int, size: int) -> None:
        self.argument: Final = bytearray(size)
        # Also keeps the arguments where the kernel was told they are: no resizing.
        self._argument: Final = (ctypes.c_char * size).from_buffer(self.argument)
        attr = struct.pack(
            "=IIIIQQIIIIQQIII4x",
            *(fd, 0, 0, 0, 0, 0, 0, 0),
            *(size, 0, ctypes.addressof(self._argument), 0, 0, 0, 0),
        )
        self._attr: Final = bytearray(attr)
        self._held: Final = (ctypes.c_char * len(attr)).from_buffer(self._attr)

    def run(self) -> None:
        """Run the program once. Raises: CapabilityError, BpfError."""
        _checked(_call(_PROG_TEST_RUN, self._held, len(self._attr)), "cannot run a BPF program")


def read_iterator(program_fd: int) -> Iterator[bytearray]:
    """Run an iterator program over its objects; yield what it writes, as it comes.

    Chunks end anywhere. Raises: BpfError, CapabilityError.
    """
    attr = bytearray(struct.pack("=IIII8x", program_fd, 0, _TRACE_ITER, 0))
    link = _checked(_bpf(_LINK_CREATE, attr), "cannot attach an iterator")
    try:
        attr = bytearray(struct.pack("=II", link, 0))
        fd = _checked(_bpf(_ITER_CREATE, attr), "cannot start an iterator")
    finally:
        os.close(link)
    with os.fdopen(fd, "rb", buffering=0) as stream:
        chunk = bytearray(65536)
        # None: a million objects without a word; there is more.
        while (count := stream.readinto(chunk)) != 0:
            if count:
                yield chunk[:count]
