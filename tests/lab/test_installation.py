from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nri_claim2core.lab.errors import MissingError
from nri_claim2core.lab.installation import (
    cache_dir,
    find_busybox,
    find_installations,
    is_static_elf,
    parse_version,
)


def make_commands(bin_dir: Path, *names: str, version: str = "") -> None:
    bin_dir.mkdir(parents=True)
    for name in names:
        (bin_dir / name).write_text(f"#!/bin/sh\necho '{version}'\n")
        (bin_dir / name).chmod(0o755)


COMMANDS = ("containerd", "ctr", "containerd-shim-runc-v2")


@pytest.fixture(autouse=True)
def empty_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("containerd github.com/containerd/containerd/v2 2.1.9 0123abc", (2, 1, 9)),
        ("containerd containerd.io v1.7.28 b98a3aace656320842a23f4a392a33f46af97866", (1, 7, 28)),
        ("containerd github.com/containerd/containerd 1.7.24~ds1", (1, 7, 24)),
        ("2.4.2", (2, 4, 2)),
        ("containerd without a version", None),
    ],
)
def test_parse_version(text, version):
    assert parse_version(text) == version


def test_cache_is_sorted_by_number_and_incomplete_ones_are_left_out(tmp_path):
    for version in ("2.10.0", "2.4.2", "2.1.9"):
        make_commands(tmp_path / "containerd" / version / "bin", *COMMANDS)
    make_commands(tmp_path / "containerd" / "2.3.0" / "bin", "containerd")
    make_commands(tmp_path / "runc" / "1.1.5" / "bin", "runc")
    found = find_installations(tmp_path)
    assert [each.label for each in found] == [
        "containerd-2.1.9",
        "containerd-2.4.2",
        "containerd-2.10.0",
    ]
    assert found[0].series == "containerd-2.1"
    assert {each.runc for each in found} == {tmp_path / "runc" / "1.1.5" / "bin" / "runc"}


def test_nothing_without_runc(tmp_path):
    make_commands(tmp_path / "containerd" / "2.1.9" / "bin", *COMMANDS)
    assert find_installations(tmp_path) == []


@pytest.mark.parametrize(
    ("installed", "labels"), [("1.7.24", ["containerd-1.7.24"]), ("1.6.20", [])]
)
def test_installed_containerd_counts_from_1_7(tmp_path, monkeypatch, installed, labels):
    make_commands(tmp_path / "path", *COMMANDS, "runc", version=f"containerd x {installed}")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    assert [each.label for each in find_installations(tmp_path / "cache")] == labels


def test_cached_version_is_preferred_to_the_same_one_installed(tmp_path, monkeypatch):
    make_commands(tmp_path / "path", *COMMANDS, "runc", version="containerd x 2.1.9")
    make_commands(tmp_path / "containerd" / "2.1.9" / "bin", *COMMANDS)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    (only,) = find_installations(tmp_path)
    assert only.bin_dir == tmp_path / "containerd" / "2.1.9" / "bin"


def test_cache_dir_follows_the_environment(monkeypatch):
    monkeypatch.setenv("CLAIM2CORE_CACHE", "/somewhere")
    assert cache_dir() == Path("/somewhere")
    monkeypatch.delenv("CLAIM2CORE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_dir() == Path("/xdg/nri-claim2core")


def test_busybox_that_is_missing_or_dynamic(tmp_path):
    with pytest.raises(MissingError, match="no static busybox"):
        find_busybox(tmp_path)
    make_commands(tmp_path / "busybox" / "1.35.0" / "bin", "busybox")
    with pytest.raises(MissingError, match="no static busybox"):
        find_busybox(tmp_path)


def test_static_elf_agrees_with_readelf(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
    image = Path(sys.executable).resolve()
    try:
        headers = subprocess.run(
            ["readelf", "-lW", image], capture_output=True, text=True, check=True
        ).stdout
    except FileNotFoundError:
        pytest.skip("no readelf on this machine")
    assert is_static_elf(image.read_bytes()) == ("INTERP" not in headers)
    assert not is_static_elf(b"#!/bin/sh\n")
