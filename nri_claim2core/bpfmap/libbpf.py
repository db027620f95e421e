"""The few functions of libbpf that loading an object takes, declared for ctypes.

libbpf resolves the types and symbols of the running kernel; nothing else here needs it, so it
is loaded with the first object and its messages are kept for the error. Any 1.x will do for
the maps object.
"""

from __future__ import annotations

import ctypes
import errno as codes
import os
from typing import Any, Final, Self

from nri_claim2core.bpfmap.errors import LoadError
from nri_claim2core.bpfmap.syscall import refusal

SONAME: Final = "libbpf.so.1"
_KEPT_LINES = 400
_DEBUG = 2  # enum libbpf_print_level

_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

_SIGNATURES: Final = {
    "libbpf_set_print": (ctypes.c_void_p, (_PRINT,)),
    "bpf_object__open_file": (ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_void_p)),
    "bpf_object__load": (ctypes.c_int, (ctypes.c_void_p,)),
    "bpf_object__close": (None, (ctypes.c_void_p,)),
    "bpf_object__find_map_by_name": (ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)),
    "bpf_object__find_program_by_name": (ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)),
    "bpf_map__fd": (ctypes.c_int, (ctypes.c_void_p,)),
    "bpf_map__reuse_fd": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    "bpf_map__set_max_entries": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_uint32)),
    "bpf_program__fd": (ctypes.c_int, (ctypes.c_void_p,)),
}


class Object:
    """An opened BPF object; a context manager that closes it. Descriptors taken out survive."""

    def __init__(self, path: str) -> None:
        """Open an object file. Raises: LoadError. Blocking: host read."""
        self.path: Final = path
        self._lines: list[str] = []
        self._library: Final = _open_library()
        self._printf: Final = _PRINT(self._keep)
        self._library.libbpf_set_print(self._printf)
        self._object: int | None = self._library.bpf_object__open_file(os.fsencode(path), None)
        if not self._object:
            raise self._failure("cannot be opened", ctypes.get_errno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.bpf_object__close(self._object)
        self._library.libbpf_set_print(_PRINT())

    def set_max_entries(self, name: str, count: int) -> None:
        """Give a map another size than the object's, before loading."""
        self._check(self._library.bpf_map__set_max_entries(self._map(name), count), name)

    def reuse(self, name: str, fd: int) -> None:
        """Use a map that exists in place of the object's, before loading."""
        self._check(self._library.bpf_map__reuse_fd(self._map(name), fd), name)

    def load(self) -> None:
        """Create the maps and let the kernel verify the programs.

        Raises: CapabilityError, LoadError.
        """
        error = self._library.bpf_object__load(self._object)
        if error == -codes.EPERM:
            raise refusal(error, f"cannot load {self.path}", self.path)
        if error:
            raise self._failure("was refused", -error)

    def map_fd(self, name: str) -> int:
        """Give a descriptor of a loaded map; the caller closes it."""
        return self._own(self._library.bpf_map__fd(self._map(name)), name)

    def program_fd(self, name: str) -> int:
        """Give a descriptor of a loaded program; the caller closes it."""
        program = self._library.bpf_object__find_program_by_name(self._object, name.encode())
        if not program:
            raise self._failure(f"has no program {name}", 0)
        return self._own(self._library.bpf_program__fd(program), name)

    def _map(self, name: str) -> int:
        found: int | None = self._library.bpf_object__find_map_by_name(self._object, name.encode())
        if not found:
            raise self._failure(f"has no map {name}", 0)
        return found

    def _own(self, fd: int, name: str) -> int:
        self._check(min(fd, 0), name)
        return os.dup(fd)

    def _check(self, error: int, name: str) -> None:
        if error:
            raise self._failure(f"does not take {name}", -error)

    def _keep(self, level: int, template: bytes, arguments: int | None) -> int:
        if level < _DEBUG and len(self._lines) < _KEPT_LINES:
            text = ctypes.create_string_buffer(4096)
            _libc().vsnprintf(text, len(text), template, ctypes.c_void_p(arguments))
            self._lines.extend(text.value.decode("utf-8", "replace").splitlines())
        return 0

    def _failure(self, what: str, number: int) -> LoadError:
        reason = f": {os.strerror(number)}" if number else ""
        words = "".join(f"\n  {line}" for line in self._lines[-20:])
        return LoadError(f"{self.path} {what}{reason}{words}", path=self.path, errno=number)


def _libc() -> Any:  # noqa: ANN401 - ctypes resolves functions by attribute
    return ctypes.CDLL(None)


def _open_library() -> Any:  # noqa: ANN401 - same
    try:
        library = ctypes.CDLL(SONAME, use_errno=True)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise LoadError(
            f"no usable {SONAME}: {error}", hint="install the package libbpf1 (1.0 or later)"
        ) from error
    return library
