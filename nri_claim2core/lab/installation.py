"""The containerds that this machine can run: those of the cache, then the one on PATH.

The cache is filled by the provisioning scripts (`make setup`); nothing is ever downloaded
from here. A version found twice is taken from the cache, so that a test names the same
binaries everywhere. containerd before 1.7 has no NRI and is left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nri_claim2core.lab.errors import MissingError

Version = tuple[int, int, int]

_COMMANDS = ("containerd", "ctr", "containerd-shim-runc-v2")
_FIRST_WITH_NRI: Version = (1, 7, 0)
_VERSION = re.compile(r"(?<![\w.])v?([0-9]+)\.([0-9]+)\.([0-9]+)")
_ELF_MAGIC = b"\x7fELF"
_ELF_CLASS_64 = 2
_PT_INTERP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One containerd with the OCI runtime that it is to use."""

    version: Version
    bin_dir: Path
    """Holds containerd, ctr and containerd-shim-runc-v2."""
    runc: Path

    @property
    def text(self) -> str:
        """Version as text, such as ``2.4.2``."""
        return ".".join(map(str, self.version))

    @property
    def label(self) -> str:
        """Name for reports and test ids, such as ``containerd-2.4.2``."""
        return f"containerd-{self.text}"

    @property
    def series(self) -> str:
        """Name of the release series, such as ``containerd-2.4``."""
        return f"containerd-{self.version[0]}.{self.version[1]}"


def cache_dir() -> Path:
    """Directory that the provisioning scripts fill; it need not exist."""
    if own := os.environ.get("CLAIM2CORE_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nri-claim2core"


def parse_version(text: str) -> Version | None:
    """First x.y.z in a text, be it a directory name or the output of ``--version``."""
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def find_installations(cache: Path | None = None) -> list[Installation]:
    """Usable containerds, oldest version first; empty if there is none or no runc.

    Blocking: reads directories, runs ``containerd --version`` of the one on PATH.
    """
    cache = cache or cache_dir()
    runc = _find_runc(cache)
    if runc is None:
        return []
    found: dict[Version, Installation] = {}
    for entry in _versions_in(cache / "containerd"):
        version = parse_version(entry.name)
        if version is not None and _is_complete(entry / "bin"):
            found[version] = Installation(version=version, bin_dir=entry / "bin", runc=runc)
    installed = shutil.which("containerd")
    if installed is not None and _is_complete(bin_dir := Path(installed).resolve().parent):
        version = _ask_version(bin_dir / "containerd")
        if version is not None and version >= _FIRST_WITH_NRI and version not in found:
            found[version] = Installation(version=version, bin_dir=bin_dir, runc=runc)
    return [found[version] for version in sorted(found)]


def find_busybox(cache: Path | None = None) -> Path:
    """A statically linked busybox, fit for an image without libraries.

    Raises:
        MissingError: neither the cache nor PATH has one.
    """
    cache = cache or cache_dir()
    candidates = [entry / "bin" / "busybox" for entry in _versions_in(cache / "busybox")]
    if on_path := shutil.which("busybox"):
        candidates.append(Path(on_path))
    for candidate in candidates:
        if candidate.is_file() and is_static_elf(candidate.read_bytes()):
            return candidate
    raise MissingError(
        "no static busybox on this machine",
        hint="run e2e/setup/containerd-distro.sh or install the package busybox-static",
    )


def is_static_elf(image: bytes) -> bool:
    """Whether an ELF file names no interpreter, so that it runs in an empty root."""
    if image[:4] != _ELF_MAGIC:
        return False
    is_64_bit = image[4] == _ELF_CLASS_64
    order: Literal["little", "big"] = "little" if image[5] == 1 else "big"

    def field(offset: int, size: int) -> int:
        return int.from_bytes(image[offset : offset + size], order)

    table, entry_size, entries = (
        (field(32, 8), field(54, 2), field(56, 2))
        if is_64_bit
        else (field(28, 4), field(42, 2), field(44, 2))
    )
    kinds = (field(table + index * entry_size, 4) for index in range(entries))
    return _PT_INTERP not in kinds


def _versions_in(directory: Path) -> list[Path]:
    # Newest first, by number rather than by text.
    entries: Iterable[Path] = directory.iterdir() if directory.is_dir() else ()
    return sorted(entries, key=lambda entry: parse_version(entry.name) or (0, 0, 0), reverse=True)


def _is_complete(bin_dir: Path) -> bool:
    return all(os.access(bin_dir / command, os.X_OK) for command in _COMMANDS)


def _find_runc(cache: Path) -> Path | None:
    for entry in _versions_in(cache / "runc"):
        if os.access(entry / "bin" / "runc", os.X_OK):
            return entry / "bin" / "runc"
    on_path = shutil.which("runc")
    return Path(on_path) if on_path else None


def _ask_version(containerd: Path) -> Version | None:
    try:
        answer = subprocess.run(  # noqa: S603 - a path found on PATH, no shell
            [containerd, "--version"], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stdout)
