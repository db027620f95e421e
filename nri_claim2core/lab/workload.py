"""What runs in a bed's containers, and reading what it said.

The workload's first act is to print its own affinity, so that "pinned from the first
instruction" is the workload's own testimony rather than a look from outside. Where a C
compiler is at hand, the image gets a program without any C library, which asks in its very
first instructions; else a busybox shell does the same as early as a shell can (it reads
/proc/self/status in-process, without a fork). Both print the same line and know the same
argument: ``pause`` to stay, anything else to end.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nri_claim2core.lab.errors import LabError
from nri_claim2core.lab.image import Image
from nri_claim2core.lab.installation import find_busybox, is_static_elf
from nri_claim2core.lab.patience import SCALE

PAUSE_IMAGE = "claim2core.lab/pause:1"
BUSYBOX_IMAGE = "claim2core.lab/busybox:1"
FIRST_MASK_IMAGE = "claim2core.lab/firstmask:1"
FIRST_MASK = "/bin/firstmask"
"""Path of the workload in FIRST_MASK_IMAGE."""

PREBUILT = "CLAIM2CORE_FIRST_MASK"
"""Variable that names the workload compiled before, for a machine without a compiler."""

_COMPILE_FLAGS = ("-nostdlib", "-static", "-ffreestanding", "-fno-stack-protector", "-O2")
_APPLETS = ("sh", "sleep", "cat", "taskset", "true", "false")
_FOREVER_S = "2147483647"
_LINES_DEADLINE_S = 10.0 * SCALE
_POLL_S = 0.005

# busybox sh reads and matches without forking, so the shell's own status is what it sees.
FIRST_MASK_SCRIPT = """#!/bin/sh
while read -r key value; do
  case "$key" in
    Cpus_allowed:) cpus=$value ;;
    Mems_allowed:) mems=$value ;;
  esac
done < /proc/self/status
echo "cpus=$cpus mems=$mems pid=$$"
while [ "$1" = pause ]; do sleep 2147483647; done
"""

_LINE = re.compile(
    r"cpus=(?P<cpus>[0-9a-f,]+)(?: cpu=(?P<cpu>[0-9]+))?(?: mems=(?P<mems>[0-9a-f,]+))?"
    r" pid=(?P<pid>[0-9]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstMask:
    """What a workload saw of itself as its first act."""

    cpus: frozenset[int]
    """Affinity: CPUs it may run on."""
    cpu: int | None
    """CPU it was running on; None where the shell asked."""
    mems: frozenset[int] | None
    """Memory nodes it may allocate from; None if the kernel did not say."""


def parse_mask(text: str) -> frozenset[int]:
    """Bits set in a hexadecimal mask, most significant word first, commas ignored."""
    value = int(text.replace(",", ""), 16)
    return frozenset(bit for bit in range(value.bit_length()) if value >> bit & 1)


def parse_first_mask(line: str) -> FirstMask:
    """Read the workload's line.

    Raises:
        LabError: it is another line.
    """
    found = _LINE.search(line)
    if found is None:
        raise LabError(f"not a line of the first-mask workload: {line!r}")
    return FirstMask(
        cpus=parse_mask(found["cpus"]),
        cpu=int(found["cpu"]) if found["cpu"] else None,
        mems=parse_mask(found["mems"]) if found["mems"] else None,
    )


def log_lines(log_path: Path) -> list[str]:
    """Complete lines that a container has written so far; empty before the log exists.

    CRI's log format puts time, stream and a tag before each line.
    """
    try:
        text = log_path.read_text()
    except FileNotFoundError:
        return []
    return [line.split(" ", 3)[3] for line in text.splitlines() if line.count(" ") >= 3]  # noqa: PLR2004


def wait_for_lines(
    log_path: Path, count: int = 1, *, deadline_s: float = _LINES_DEADLINE_S
) -> list[str]:
    """The first `count` lines of a container's log, or more.

    Blocking: until they are there; the runtime copies the output asynchronously.

    Raises:
        LabError: fewer lines when `deadline_s` had passed.
    """
    deadline = time.monotonic() + deadline_s
    while len(lines := log_lines(log_path)) < count:
        if time.monotonic() >= deadline:
            raise LabError(f"{log_path} holds {len(lines)} lines after {deadline_s} s")
        time.sleep(_POLL_S)
    return lines


def wait_for_first_mask(log_path: Path, *, deadline_s: float = _LINES_DEADLINE_S) -> FirstMask:
    """What the first-mask workload of a container saw; blocks as wait_for_lines does."""
    return parse_first_mask(wait_for_lines(log_path, deadline_s=deadline_s)[0])


def prebuilt_first_mask() -> bytes | None:
    """The workload that the environment names, None without.

    Raises:
        LabError: it cannot be read, or needs libraries, which the image does not have.
    """
    name = os.environ.get(PREBUILT)
    if not name:
        return None
    try:
        program = Path(name).read_bytes()
    except OSError as error:
        raise LabError(f"{PREBUILT}: {error}") from error
    if not is_static_elf(program):
        raise LabError(f"{PREBUILT}: {name} is not a static program")
    return program


def compile_first_mask(source: Path) -> bytes | None:
    """The workload as a static program, None without a C compiler.

    Raises:
        LabError: the compiler refused the source.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="c2c-cc-") as directory:
        target = Path(directory) / "firstmask"
        command = [compiler, *_COMPILE_FLAGS, "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise LabError(f"{source} does not compile: {done.stderr.strip()}")
        return target.read_bytes()


def lab_images(first_mask_source: Path | None = None) -> Sequence[Image]:
    """Pause, busybox and first-mask images of a bed.

    `first_mask_source` is the C source of the workload; without it, or without a compiler,
    the shell takes its place, unless the environment names a program compiled before.

    Raises:
        MissingError: no static busybox here.
        LabError: the source does not compile, or the program compiled before is unfit.
    """
    busybox = find_busybox().read_bytes()
    shell = {"/bin/busybox": busybox}
    links = {f"/bin/{applet}": "busybox" for applet in _APPLETS}
    program = prebuilt_first_mask()
    if program is None and first_mask_source is not None:
        program = compile_first_mask(first_mask_source)
    return (
        Image(
            reference=PAUSE_IMAGE,
            files=shell,
            entrypoint=("/bin/busybox", "sleep", _FOREVER_S),
        ),
        Image(reference=BUSYBOX_IMAGE, files=shell, links=links, entrypoint=("/bin/sh",)),
        Image(
            reference=FIRST_MASK_IMAGE,
            files={FIRST_MASK: program}
            if program is not None
            else {**shell, FIRST_MASK: FIRST_MASK_SCRIPT.encode()},
            links={} if program is not None else links,
            entrypoint=(FIRST_MASK,),
        ),
    )
