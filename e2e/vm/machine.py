"""Boot a virtual machine under software emulation, run one command in it, bring back the result.

Kernel and root file system come from `e2e/setup/vm.sh`. Files go in as a tar on a disk found
by its serial number and come out the same way; the command's output arrives line by line over
a virtio console, the kernel's own console goes to a file. Every run starts from the same root:
what the guest writes to it is thrown away.

The guest is bounded by a deadline and ends with its starter. The directory of a run holds
console.log and, once the guest got that far, dmesg and everything the command left in /c2c/out;
whoever reports a failure names it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nri_claim2core.lab.errors import LabError, MissingError
from nri_claim2core.lab.installation import cache_dir

GUEST_UP = "claim2core-guest-up"
"""First line on the virtio console: the guest is about to run the command."""

_QEMU = "qemu-system-x86_64"
_ROOT = "root=PARTUUID=31633263-01 rootfstype=ext4 rootwait rw init=/sbin/claim2core-boot"
# Without KVM, probing and mitigations cost seconds and protect nothing.
_QUICK = "quiet mitigations=off nokaslr no_timer_check tsc=reliable random.trust_cpu=on"
# A guest that panics ends at once instead of waiting for the deadline.
_PANIC = "panic=-1"
_OUT_DISK_BYTES = 512 << 20
_CONSOLE_TAIL_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestImage:
    """What `e2e/setup/vm.sh` made: one kernel with one root file system."""

    release: str
    """What `uname -r` says inside."""
    vmlinux: Path
    root: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The machine that the guest sees; CPUs and memory are dealt evenly to the nodes."""

    cpus: int = 8
    nodes: int = 2
    memory_mib: int = 3072

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.cpus < self.nodes or self.cpus % self.nodes:
            raise LabError(f"{self.cpus} CPUs cannot be dealt evenly to {self.nodes} nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A command that ran to its end in the guest."""

    exit_code: int
    directory: Path
    """console.log, dmesg and what the command left in /c2c/out."""
    boot_s: float
    """From starting qemu to the command."""
    total_s: float


class GuestError(LabError):
    """The guest did not get to the end of the command; `directory` holds what it left."""

    def __init__(self, message: str, directory: Path) -> None:
        super().__init__(f"{message}; console and logs are in {directory}")
        self.directory = directory


def find_image(suite: str | None = None, kernel_suite: str | None = None) -> GuestImage:
    """The guest of these releases, by default those that `e2e/setup/vm.sh` makes.

    Raises:
        MissingError: qemu or the image is not on this machine.
    """
    suite = suite or os.environ.get("CLAIM2CORE_VM_SUITE") or "forky"
    kernel_suite = kernel_suite or os.environ.get("CLAIM2CORE_VM_KERNEL_SUITE") or suite
    directory = cache_dir() / "vm" / suite / kernel_suite
    if shutil.which(_QEMU) is None or not (directory / "root.img").exists():
        raise MissingError(
            f"no {_QEMU} or no guest of {suite} with the kernel of {kernel_suite}",
            hint="as root: e2e/setup/vm.sh",
        )
    return GuestImage(
        release=(directory / "release").read_text().strip(),
        vmlinux=directory / "vmlinux",
        root=directory / "root.img",
    )


def run_guest(
    image: GuestImage,
    payload: Path,
    directory: Path,
    *,
    shape: Shape | None = None,
    deadline_s: float,
    say: Callable[[str], None],
) -> Outcome:
    """Boot, run the payload's command, shut down.

    `payload` is an uncompressed tar as `write_payload` makes it, unpacked to /c2c/in;
    `directory` is an existing empty one for results; `say` gets the command's output line by
    line.

    Raises: GuestError when the guest panics, stalls past the deadline or brings no result.
    Blocking: until the guest is off.
    """
    console, results = directory / "console.log", directory / "results.raw"
    with results.open("wb") as disk:
        disk.truncate(_OUT_DISK_BYTES)
    started = time.monotonic()
    boot_s: float | None = None
    with subprocess.Popen(  # our own words and paths, no shell
        [*_dying_with_us(), *_command(image, shape or Shape(), payload, results, console)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as qemu:
        expired = threading.Event()
        timer = threading.Timer(deadline_s, lambda: (expired.set(), qemu.kill()))
        timer.start()
        try:
            assert qemu.stdout is not None
            for line in qemu.stdout:
                if boot_s is None and line.rstrip() == GUEST_UP:
                    boot_s = time.monotonic() - started
                else:
                    say(line.rstrip("\r\n"))
        finally:
            timer.cancel()
            qemu.kill()
    try:
        exit_code = _unpack(results, directory)
    except (tarfile.TarError, OSError, ValueError) as error:
        when = "before its command began" if boot_s is None else "without bringing results"
        why = f"after {deadline_s:g} s" if expired.is_set() else f"by itself ({error})"
        message = f"the guest ended {why}, {when}; its console ends:\n{_tail(console)}\n"
        raise GuestError(message, directory) from error
    finally:
        results.unlink()
    total_s = time.monotonic() - started
    return Outcome(
        exit_code=exit_code, directory=directory, boot_s=boot_s or total_s, total_s=total_s
    )


def _command(
    image: GuestImage, shape: Shape, payload: Path, results: Path, console: Path
) -> list[str]:
    # Several host threads per guest have shown panics in kernels that patch their own text.
    words = [_QEMU, "-accel", "tcg,thread=single", "-cpu", "max", "-no-reboot", "-nodefaults"]
    words += ["-display", "none", "-m", f"{shape.memory_mib}M"]
    words += ["-smp", f"{shape.cpus},sockets={shape.nodes},cores={shape.cpus // shape.nodes}"]
    share = shape.cpus // shape.nodes
    for node in range(shape.nodes):
        size = shape.memory_mib // shape.nodes
        cpus = f"{node * share}-{(node + 1) * share - 1}"
        words += ["-object", f"memory-backend-ram,id=memory{node},size={size}M"]
        words += ["-numa", f"node,nodeid={node},cpus={cpus},memdev=memory{node}"]
    disks = ((image.root, "c2c-root", "snapshot=on"), (payload, "c2c-in", "readonly=on"),
             (results, "c2c-out", "cache=unsafe"))  # fmt: skip
    for path, serial, option in disks:
        words += ["-drive", f"file={path},format=raw,if=none,id={serial},{option}"]
        words += ["-device", f"nvme,drive={serial},serial={serial}"]
    words += ["-chardev", f"file,id=console,path={console}", "-serial", "chardev:console"]
    words += ["-chardev", "stdio,id=output,signal=off", "-device", "virtio-serial-pci"]
    words += ["-device", "virtconsole,chardev=output"]
    words += ["-kernel", str(image.vmlinux)]
    return [*words, "-append", f"console=ttyS0 {_QUICK} {_PANIC} {_ROOT}"]


def _unpack(results: Path, directory: Path) -> int:
    with tarfile.open(results, "r:") as archive:
        archive.extractall(directory, filter="data")
    return int((directory / "exit-code").read_text())


def _tail(console: Path) -> str:
    try:
        lines = console.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_CONSOLE_TAIL_LINES:])


def _dying_with_us() -> Sequence[str]:
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL") if setpriv else ()
