"""What starts the virtual machine, without starting one: needs Python only."""

from __future__ import annotations

import gzip
import lzma
import shlex
import shutil
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest

from e2e.vm import __main__ as starter
from e2e.vm.extract_vmlinux import extract
from e2e.vm.keep_logs import keep
from e2e.vm.machine import GuestError, GuestImage, Shape, find_image, run_guest
from e2e.vm.payload import write_payload
from e2e.vm.requirements import requirements
from e2e.vm.tier import TESTS, TIER
from nri_claim2core.lab.errors import LabError, MissingError

# -- the kernel -----------------------------------------------------------------------------


def boot_image(payload: bytes) -> bytes:
    """Two setup sectors, then the payload 64 bytes into the code, then its size.

    Offsets of Documentation/arch/x86/boot.rst, written out here.
    """
    image = bytearray(3 * 512 + 64)
    image[0x1F1] = 2
    struct.pack_into("<II", image, 0x248, 64, len(payload))
    return bytes(image) + payload + struct.pack("<I", 1000)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_kernel_comes_out_of_its_boot_image(compress):
    kernel = b"\x7fELF" + bytes(range(256)) * 4
    assert extract(boot_image(compress(kernel))) == kernel


@pytest.mark.parametrize(
    "payload", [b"\x04\x22\x4d\x18lz4", gzip.compress(b"MZ no ELF")], ids=["lz4", "no ELF"]
)
def test_payload_that_is_no_kernel_we_can_read_is_refused(payload):
    with pytest.raises(ValueError, match="no ELF kernel"):
        extract(boot_image(payload))


# -- what goes in ---------------------------------------------------------------------------


def test_guest_needs_the_package_and_what_runs_its_tests():
    text = """
[project]
dependencies = ["b>=1", "a"]
[project.optional-dependencies]
demo = ["grpcio>=1.70,<2"]
[dependency-groups]
dev = ["mypy>=1.15", "pytest>=8.3", "pytest-cov", "ruff", "hypothesis>=6"]
"""
    assert requirements(text) == ["a", "b>=1", "grpcio>=1.70,<2", "hypothesis>=6", "pytest>=8.3"]


def test_payload_holds_the_wheel_beside_the_tests(tmp_path):
    write_payload(tmp_path / "payload.tar", "echo it is me\n")
    with tarfile.open(tmp_path / "payload.tar") as archive:
        names = set(archive.getnames())
        command = archive.extractfile("command")
        assert command is not None
        assert command.read() == b"echo it is me\n"
    assert {"init.sh", "session.sh", "repo/pyproject.toml", "repo/e2e/conftest.py"} <= names
    assert {"wheel/nri_claim2core/__init__.py", "wheel/nri_claim2core/py.typed"} <= names
    assert [name for name in names if name.endswith(".dist-info/RECORD")]
    assert [name for name in names if name.startswith("repo/nri_claim2core")] == []


def test_tests_of_the_tier_exist():
    repository = Path(__file__).parents[1]
    for file, _, name in (each.partition("::") for each in TESTS):
        text = (repository / file).read_text()
        assert f"\ndef {name.partition('[')[0] or 'test_'}" in text


# -- the command ----------------------------------------------------------------------------


def script_of(*arguments, **environment):
    return starter.guest_script(starter.parse(list(arguments)), environment)


def command_of(script):
    """What the script's last line has the shell run."""
    words = shlex.split(script.splitlines()[-1])
    assert words[:2] == ["exec", "timeout"]
    assert words[-3:-1] == ["sh", "-c"]
    return words[-1]


def test_without_arguments_the_whole_tier_runs():
    assert command_of(script_of()).endswith(f" {shlex.join(TIER)}")


def test_arguments_of_pytest_arrive_as_they_were():
    command = command_of(script_of("--", "e2e/test_bed.py", "-k", "restart or kill"))
    assert shlex.split(command)[-3:] == ["e2e/test_bed.py", "-k", "restart or kill"]


def test_command_runs_as_given_and_its_code_comes_out(tmp_path):
    """The script itself, run here, in a directory that stands for the guest's."""
    script = script_of("--shell", 'echo "$CLAIM2CORE_GUEST|it\'s me"; exit 7', "--cpus", "4")
    script = script.replace("cd /c2c/in/repo", f"cd {shlex.quote(str(tmp_path))}")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("4,2|it's me\n", 7)


def test_hanging_command_is_interrupted_before_the_guests_deadline():
    words = shlex.split(script_of("--deadline", "900").splitlines()[-1])
    assert words[2:5] == ["--signal=INT", "--kill-after=20", "840"]


def test_guest_requires_what_the_host_does():
    script = script_of(CLAIM2CORE_REQUIRE="vm, containerd-2.4,go-peers")
    assert "export CLAIM2CORE_REQUIRE=containerd-2.1,containerd-2.4\n" in script
    assert "export CLAIM2CORE_REQUIRE=containerd-2.1\n" in script_of()


# -- where there is no guest ----------------------------------------------------------------


@pytest.fixture
def no_guest(tmp_path, monkeypatch):
    """A machine on which the guest's maker gives up."""
    maker = tmp_path / "vm.sh"
    maker.write_text("#!/bin/sh\necho 'vm.sh: cannot be had here: no such thing' >&2\nexit 3\n")
    maker.chmod(0o755)
    monkeypatch.setattr(starter, "_SETUP", maker)
    return maker


@pytest.mark.parametrize(
    ("required", "code"), [("", 77), ("containerd-2.1", 77), ("containerd-2.1, vm", 1)]
)
def test_missing_guest_skips_unless_it_is_required(no_guest, capfd, monkeypatch, required, code):
    monkeypatch.setenv("CLAIM2CORE_REQUIRE", required)
    assert starter.main([]) == code
    assert "cannot run here: no such thing" in capfd.readouterr().err


def test_broken_maker_is_a_failure(no_guest, capfd, monkeypatch):
    monkeypatch.delenv("CLAIM2CORE_REQUIRE", raising=False)
    no_guest.write_text("#!/bin/sh\necho 'syntax error' >&2\nexit 2\n")
    assert starter.main([]) == 1
    said = capfd.readouterr().err
    assert "code 2: syntax error" in said


def test_image_that_was_not_made_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAIM2CORE_CACHE", str(tmp_path))
    with pytest.raises(MissingError, match="guest of trixie with the kernel of sid"):
        find_image("trixie", "sid")


@pytest.mark.parametrize(("cpus", "nodes"), [(8, 3), (2, 4), (4, 0)])
def test_cpus_that_cannot_be_dealt_to_the_nodes_are_refused(cpus, nodes):
    with pytest.raises(LabError, match=f"{cpus} CPUs"):
        Shape(cpus=cpus, nodes=nodes)


# -- what comes out -------------------------------------------------------------------------


def test_guest_that_does_not_boot_says_where_its_console_is(tmp_path):
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip("no qemu-system-x86_64 on PATH")
    (tmp_path / "nothing").write_bytes(b"\x7fELF is not enough")
    image = GuestImage(release="0", vmlinux=tmp_path / "nothing", root=tmp_path / "nothing")
    said: list[str] = []
    with pytest.raises(GuestError, match="before its command began") as ended:
        run_guest(image, tmp_path / "nothing", tmp_path, deadline_s=60, say=said.append)
    assert str(tmp_path) in str(ended.value)
    # qemu's own words are passed on.
    assert said


def test_logs_of_a_failing_test_are_kept_by_its_name(tmp_path):
    beds, out = tmp_path / "tmp", tmp_path / "out"
    for name in ("c2c-bed/containerd.log", "c2c-bed/pods/a/b/0.log", "c2c-bed/images.tar",
                 "c2c-node/plugin.log", "other/containerd.log"):  # fmt: skip
        (beds / name).parent.mkdir(parents=True, exist_ok=True)
        (beds / name).write_text(name)
    keep("e2e/test_bed.py::test_it[containerd-2.1.9]", beds, out)
    kept = {str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file()}
    directory = "e2e-test_bed.py-test_it-containerd-2.1.9-"
    assert set(kept) == {
        f"{directory}/{name}"
        for name in ("c2c-bed/containerd.log", "c2c-bed/pods/a/b/0.log", "c2c-node/plugin.log")
    }
    assert kept[f"{directory}/c2c-node/plugin.log"].read_text() == "c2c-node/plugin.log"
