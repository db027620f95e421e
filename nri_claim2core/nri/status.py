"""The status codes of ttrpc, which are those of gRPC.

Source: google.rpc.Code. A Go handler's plain error travels as UNKNOWN; a method that a peer
does not implement is answered with UNIMPLEMENTED, which NRI runtimes take as "fall back to
StateChange".
"""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """A status code on the wire; 0, or no status at all, is success."""

    OK = 0
    CANCELED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16
