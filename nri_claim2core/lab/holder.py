"""The process that holds a bed's mount namespace, and cleans up when the bed's owner dies.

Run as ``unshare --mount --propagation private python -m nri_claim2core.lab.holder BASE PARENT``.
containerd keeps shim sockets and runc state under /run/containerd whatever its
configuration says, so the namespace has a tmpfs of its own there; it must outlive a
containerd restart, else running containers come back as exited. containerd's root is a
tmpfs as well: overlay mounts then work whatever file system the temporary directory is on.

Protocol on the standard streams: it prints ``ready`` once the mounts are there, then reads.
``bye`` means that the owner has cleaned up. End of input without it means that the owner
was killed: everything that the bed started is ended and removed here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from nri_claim2core.lab.cgroups import BedCgroups
from nri_claim2core.lab.cleanup import end_processes, remove_cgroups, remove_files
from nri_claim2core.lab.processes import mount_namespace

READY = "ready"
BYE = "bye"

_SHARED_STATE = Path("/run/containerd")


def main(base: Path, parent: str) -> int:
    """Hold the namespace until told or abandoned; returns the exit code."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The owner decides when the bed ends; its terminal's signals are not for us.
        signal.signal(name, signal.SIG_IGN)
    for target in (_SHARED_STATE, base / "root"):
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run(  # noqa: S603 - fixed words and our own path, no shell
            ["mount", "-t", "tmpfs", "-o", "mode=0711", "c2c-bed", str(target)],  # noqa: S607
            check=True,
        )
    print(READY, flush=True)  # noqa: T201 - the protocol with the owner
    if sys.stdin.read().strip() == BYE:
        return 0
    cgroups = BedCgroups(parent)
    end_processes(cgroups, mount_namespace("self"), frozenset({os.getpid()}))
    remove_cgroups(cgroups, parent if parent.endswith(".slice") else None)
    _unmount_below(base)
    remove_files(base)
    return 0


def _unmount_below(base: Path) -> None:
    # Our own mounts (root, the containers' overlays) keep their mount points busy. Latest
    # first; lazily, because overlays use what is on the root's tmpfs.
    mountinfo = Path("/proc/self/mountinfo").read_text()
    points = [line.split(" ")[4] for line in mountinfo.splitlines()]
    for point in reversed(points):
        if Path(point).is_relative_to(base):
            subprocess.run(["umount", "--lazy", point], check=False)  # noqa: S603, S607


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
