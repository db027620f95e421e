"""Start a plugin's executable as a runtime does: a bare environment and a socket on fd 3.

The child gets no arguments, /dev/null for its standard streams, the runtime's working
directory, and three variables only: no PATH, no HOME. Descriptors above 3 are closed to it.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from pathlib import Path
from typing import Final

from nri_claim2core.nri.errors import IdentityError

PLUGIN_FD: Final = 3
_INDEX = re.compile(r"[0-9]{2}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.+-]+", re.ASCII)


def check_index(index: str) -> None:
    """Raise IdentityError, in the runtime's words, unless `index` is two ASCII digits."""
    if len(index) != 2:  # noqa: PLR2004 - two digits
        raise IdentityError(f'invalid plugin index "{index}", must be 2 digits')
    if not _INDEX.fullmatch(index):
        raise IdentityError(f'invalid plugin index "{index}" (not [0-9][0-9])')


def check_name(name: str) -> None:
    """Raise IdentityError, in the runtime's words, unless `name` is [A-Za-z0-9_.+-]+."""
    if not name:
        raise IdentityError("invalid plugin name: name is empty")
    if not _NAME.fullmatch(name):
        odd = next(letter for letter in name if not _NAME.fullmatch(letter))
        raise IdentityError(f"invalid plugin name \"{name}\": contains invalid character '{odd}'")


def parse_file_name(file_name: str) -> tuple[str, str]:
    """Split ``NN-name`` into index and name; raises IdentityError."""
    index, dash, name = file_name.partition("-")
    if not dash:
        raise IdentityError(f'invalid plugin name "{file_name}", idx-pluginname expected')
    check_index(index)
    return index, name


def read_drop_in(directory: Path, index: str, name: str) -> str:
    """Give a plugin's configuration: ``NN-name.conf``, else ``name.conf``, else "". Host read."""
    for file_name in (f"{index}-{name}.conf", f"{name}.conf"):
        try:
            return (directory / file_name).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
    return ""


def spawn(executable: Path, index: str, name: str, peer: socket.socket) -> int:
    """Start a plugin with `peer` as its fd 3; give its process id. Raises OSError."""
    environment = {
        "NRI_PLUGIN_NAME": name,
        "NRI_PLUGIN_IDX": index,
        "NRI_PLUGIN_SOCKET": str(PLUGIN_FD),
    }
    return os.posix_spawn(
        executable,
        [str(executable)],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            # Onto itself, dup2 clears close-on-exec as well.
            (os.POSIX_SPAWN_DUP2, peer.fileno(), PLUGIN_FD),
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
        ],
    )


def _inheritable() -> list[int]:
    # Those that this process itself was started with; its own are close-on-exec.
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        with contextlib.suppress(OSError):  # closed meanwhile
            if descriptor > PLUGIN_FD and os.get_inheritable(descriptor):
                found.append(descriptor)
    return found
