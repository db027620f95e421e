"""Fixed binary layouts: the members of a C struct with their struct(3) codes, in order.

No padding is implied: every byte is named, as in the header. Numbers are of the machine's own
byte order, since both sides run on it.
"""

from __future__ import annotations

import struct
from typing import Final, cast


class Layout:
    """One C struct of integers: `members` are (name, struct code) pairs without gaps."""

    __slots__ = ("_struct", "members", "name")

    def __init__(self, name: str, *members: tuple[str, str]) -> None:
        self.name: Final = name
        self.members: Final = members
        self._struct: Final = struct.Struct("=" + "".join(code for _, code in members))

    @property
    def size(self) -> int:
        """Bytes of the struct."""
        return self._struct.size

    def offset(self, member: str) -> int:
        """Bytes before a member. Raises: KeyError for a member that is not there."""
        before = ""
        for name, code in self.members:
            if name == member:
                return struct.calcsize("=" + before)
            before += code
        raise KeyError(member)

    def pack(self, *values: int) -> bytes:
        """Give the bytes of the struct. Raises: struct.error for a value out of range."""
        return self._struct.pack(*values)

    def unpack(self, data: bytes | bytearray, offset: int = 0) -> tuple[int, ...]:
        """Give the members' values, arrays in line. Raises: struct.error for too short data."""
        return cast("tuple[int, ...]", self._struct.unpack_from(data, offset))
