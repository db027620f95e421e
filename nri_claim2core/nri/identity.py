"""Who the plugin is and how it reaches the runtime, from options, environment, program name.

An external plugin dials the runtime's socket. A pre-launched one is started by the runtime
with an environment of three variables and nothing else - `NRI_PLUGIN_NAME`, `NRI_PLUGIN_IDX`,
`NRI_PLUGIN_SOCKET`, the number of an inherited descriptor - and lives as long as that socket.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from nri_claim2core.nri.errors import IdentityError, SocketError

DEFAULT_SOCKET_PATH = "/var/run/nri/nri.sock"
NAME_VARIABLE = "NRI_PLUGIN_NAME"
INDEX_VARIABLE = "NRI_PLUGIN_IDX"
SOCKET_VARIABLE = "NRI_PLUGIN_SOCKET"
_MAX_PATH_BYTES = 107  # sun_path less its terminator

_INDEX = re.compile(r"[0-9]{2}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.+-]+", re.ASCII)
_PROGRAM = re.compile(r"([0-9]{2})-(.+)", re.ASCII)

_HINTS = {
    errno.ENOENT: "is the runtime running with NRI enabled, and its directory mounted?",
    errno.ECONNREFUSED: "the file is left over: nobody listens on it",
    errno.EACCES: "the socket is root's",
    errno.EPERM: "the socket is root's",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Name and index; runtimes order plugins by the index as text."""

    name: str
    index: str

    def __str__(self) -> str:
        return f"{self.index}-{self.name}"


def parse_identity(
    name: str | None, index: str | None, environment: Mapping[str, str], program: str
) -> Identity:
    """Give the identity: option, else environment, else the program's file name `NN-name`.

    Raises IdentityError naming what is missing or not acceptable, and where it came from.
    """
    base = program.rpartition("/")[2]
    match = _PROGRAM.fullmatch(base)
    from_index, from_name = match.groups() if match else ("", base)
    name_source = index_source = "option"
    if name is None:
        name, name_source = environment.get(NAME_VARIABLE), NAME_VARIABLE
    if index is None:
        index, index_source = environment.get(INDEX_VARIABLE), INDEX_VARIABLE
    if name is None:
        name, name_source = from_name, "program name"
    if index is None:
        index, index_source = from_index, "program name"
    if not _INDEX.fullmatch(index):
        raise IdentityError(
            f"plugin index {index!r} ({index_source}) is not two digits",
            hint=f"give one, or set {INDEX_VARIABLE}",
        )
    if not _NAME.fullmatch(name):
        raise IdentityError(
            f"plugin name {name!r} ({name_source}) is not of letters, digits and _.+-",
            hint=f"give one, or set {NAME_VARIABLE}",
        )
    return Identity(name, index)


def maybe_inherited_socket(environment: Mapping[str, str]) -> socket.socket | None:
    """Give the socket that the runtime passed to a pre-launched plugin, None for others.

    It is not passed on to child processes. Raises IdentityError when the variable does not
    name a stream socket.
    """
    text = environment.get(SOCKET_VARIABLE)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise IdentityError(f"{SOCKET_VARIABLE}={text!r} is no descriptor number")
    descriptor = int(text)
    try:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - positional only
        inherited = socket.socket(fileno=descriptor)
    except (OSError, OverflowError) as error:
        raise IdentityError(f"{SOCKET_VARIABLE}={text}: {error}") from error
    if inherited.type != socket.SOCK_STREAM:
        inherited.detach()
        raise IdentityError(f"{SOCKET_VARIABLE}={text} is not a stream socket")
    return inherited


def connect(path: str) -> socket.socket:
    """Give a socket connected to the runtime.

    The path is looked up anew on every call: runtimes replace the file when they start.
    Raises SocketError naming path, reason and remedy. Blocking: host.
    """
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise SocketError(
            f"{path}: longer than {_MAX_PATH_BYTES} bytes", path=path, errno=errno.ENAMETOOLONG
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except OSError as error:
        sock.close()
        number = error.errno or 0
        raise SocketError(
            f"{path}: {os.strerror(number)}", path=path, errno=number, hint=_HINTS.get(number, "")
        ) from error
    return sock
