"""Real maps in a BPF file system of the test's own, and cgroups in the real v2 hierarchy."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nri_claim2core.bpfmap import syscall
from nri_claim2core.bpfmap.loader import Loaded, load
from nri_claim2core.bpfmap.mutate import Writer
from tests.bpfmap.need import need_kernel, skip_or_fail
from tests.bpfmap.tasks import Child


@pytest.fixture
def bpffs(tmp_path: Path) -> Iterator[Path]:
    """An empty BPF file system; the node's own is never touched."""
    need_kernel()
    point = tmp_path / "bpf"
    point.mkdir()
    subprocess.run(["mount", "-t", "bpf", "bpf", str(point)], check=True)
    yield point
    subprocess.run(["umount", str(point)], check=True)


@pytest.fixture
def pins(bpffs: Path) -> str:
    """Where the maps are, or will be."""
    return str(bpffs / "claim2core")


@pytest.fixture
def loaded(pins: str) -> Iterator[Loaded]:
    """A new set and its programs."""
    made = load(pins)
    yield made
    made.close()


@pytest.fixture
def writer(loaded: Loaded) -> Iterator[Writer]:
    """The one writer of that set."""
    one = Writer(loaded)
    one.take()
    yield one
    one.close()


@pytest.fixture
def unfrozen(pins: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Loaded, Writer]]:
    """A set that was kept from being frozen, so that rows can be planted; and its writer."""
    monkeypatch.setattr(syscall, "map_freeze", lambda _: None)
    made = load(pins)
    one = Writer(made)
    one.take()
    yield made, one
    one.close()
    made.close()


@pytest.fixture
def cgroup(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty cgroup of the default hierarchy."""
    need_kernel()
    with Path("/proc/self/mounts").open(encoding="utf-8") as mounts:
        roots = [fields[1] for fields in map(str.split, mounts) if fields[2] == "cgroup2"]
    if not roots:
        skip_or_fail("no cgroup2 mount")
    made = Path(roots[0]) / f"claim2core-test-{os.getpid()}-{next(_NUMBERS)}"
    made.mkdir()
    yield made
    for directory in sorted(made.glob("**/"), reverse=True):
        directory.rmdir()


@pytest.fixture
def child(cgroup: Path) -> Iterator[Child]:
    """A process that sleeps in the cgroup."""
    with Child() as one:
        one.enter(cgroup)
        yield one


_NUMBERS = itertools.count()
