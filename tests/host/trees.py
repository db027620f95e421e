"""Builds root trees of nodes as files: sysfs, cgroupfs, CDI directories, kubelet's state.

Texts are written here the way the kernel, drivers and kubelet write them; nothing of the
package under test is used to make them, except for values that a test passes in by hand.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

CLAIM_A = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"
CLAIM_B = "3f9a1c22-0b7d-4e88-8c55-1d2e3f405162"
POD_A = "1f0e9d8c-7b6a-4958-8473-625140392817"

LATER = 1 << 62
"""A clock reading at which every file has long settled."""


class Clock:
    """A clock that stands where it is put; every file has settled at its first reading."""

    def __init__(self) -> None:
        self.now = LATER

    def __call__(self) -> int:
        return self.now


def dra_cpu_spec(*claims: tuple[str, str]) -> dict:
    """A spec as dra-driver-cpu writes it: one device per claim, one environment entry each."""
    return {
        "cdiVersion": "0.8.0",
        "kind": "dra.k8s.io/cpu",
        "devices": [
            {
                "name": f"claim-{uid}",
                "containerEdits": {"env": [f"DRA_CPUSET_{uid}={cpus}"]},
            }
            for uid, cpus in claims
        ],
        "containerEdits": {},
    }


class Tree:
    """One node's root directory under `base`."""

    def __init__(self, base: Path) -> None:
        self.base = base

    @property
    def root(self) -> str:
        return str(self.base)

    def path(self, path: str) -> Path:
        return self.base / path.lstrip("/")

    def write(self, path: str, content: str | bytes) -> Path:
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            target.write_text(content)
        return target

    def directory(self, path: str) -> Path:
        target = self.path(path)
        target.mkdir(parents=True, exist_ok=True)
        return target

    # CDI

    def claim_file(self, uid: str, cpus: str, directory: str = "/var/run/cdi") -> Path:
        """dra-driver-cpu v0.2 and later: a file per claim."""
        return self.write(
            f"{directory}/dra.k8s.io-cpu_claim-{uid}.json", json.dumps(dra_cpu_spec((uid, cpus)))
        )

    # kubelet

    def checkpoint(self, claims: list[dict] | None, **changes: object) -> Path:
        inner = {
            "kind": "DRACheckpoint",
            "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
            "ClaimInfoStateList": claims,
        } | changes
        data = json.dumps(inner, separators=(",", ":"))
        return self.write(
            "/var/lib/kubelet/dra_manager_state",
            json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}),
        )

    # sysfs

    def cpus(self, online: str, *, possible: str, present: str, isolated: str = "") -> None:
        base = "/sys/devices/system/cpu"
        for name, text in (
            ("online", online),
            ("possible", possible),
            ("present", present),
            ("isolated", isolated),
        ):
            self.write(f"{base}/{name}", text + "\n")

    def numa(self, nodes: dict[int, str], *, has_memory: str | None, online: str | None) -> None:
        base = "/sys/devices/system/node"
        for number, cpulist in nodes.items():
            self.write(f"{base}/node{number}/cpulist", cpulist + "\n")
        if has_memory is not None:
            self.write(f"{base}/has_memory", has_memory + "\n")
        if online is not None:
            self.write(f"{base}/online", online + "\n")

    # cgroupfs

    def unified(self, controllers: str = "cpuset cpu memory") -> None:
        self.write("/sys/fs/cgroup/cgroup.controllers", controllers + "\n")
        self.write("/sys/fs/cgroup/cpuset.cpus.effective", "0-7\n")
        self.write("/sys/fs/cgroup/cpuset.mems.effective", "0-1\n")

    def v2_cgroup(self, path: str, cpus: str | None, mems: str = "0", procs: str = "") -> Path:
        base = f"/sys/fs/cgroup{path}"
        if cpus is not None:
            self.write(f"{base}/cpuset.cpus.effective", cpus + "\n")
            self.write(f"{base}/cpuset.mems.effective", mems + "\n")
        self.write(f"{base}/cgroup.procs", procs)
        return self.path(base)

    def v1_cgroup(self, path: str, cpus: str, mems: str = "0", procs: str = "") -> Path:
        base = f"/sys/fs/cgroup/cpuset{path}"
        # What was asked for differs from what is in force, so that reading the wrong file shows.
        self.write(f"{base}/cpuset.cpus", "0-63\n")
        self.write(f"{base}/cpuset.mems", "0-7\n")
        self.write(f"{base}/cpuset.effective_cpus", cpus + "\n")
        self.write(f"{base}/cpuset.effective_mems", mems + "\n")
        self.write(f"{base}/cgroup.procs", procs)
        return self.path(base)
