"""Skip a test by name, or fail it where the peer has to be there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.peers.go_runtime import PeerMissingError, peer_binary

REQUIREMENT = "go-peers"


def need_go_peers() -> None:
    """Skip when the Go peers are not built; fail when CLAIM2CORE_REQUIRE names them."""
    try:
        peer_binary("adaptation")
        peer_binary("minimal")
    except PeerMissingError as error:
        required = [name.strip() for name in os.environ.get("CLAIM2CORE_REQUIRE", "").split(",")]
        if REQUIREMENT in required:
            pytest.fail(f"CLAIM2CORE_REQUIRE names {REQUIREMENT}: {error}", pytrace=False)
        pytest.skip(str(error))


@contextmanager
def short_directory() -> Iterator[Path]:
    """Give a directory with room for a socket path; pytest's own can be too long for one."""
    with tempfile.TemporaryDirectory(prefix="c2c-") as name:
        yield Path(name)
