"""What the kernel says about a process's CPUs and memory nodes, asked without the product.

Demo and tests judge by this, so it shares no code with the readers in `host`: the cgroup
comes from /proc/TGID/cgroup and the mount table alone, and every thread's own mask is read as
well. A process without a cpuset cgroup of its own still has its threads' masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nri_claim2core.lab.errors import LabError
from nri_claim2core.model.cpuset import CpuSet, parse_kernel, union

_V1_FILES = ("cpuset.effective_cpus", "cpuset.effective_mems")
_V2_FILES = ("cpuset.cpus.effective", "cpuset.mems.effective")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelView:
    """CPUs and memory nodes of one process."""

    cgroup_cpus: CpuSet
    "Effective CPUs of its cgroup."
    cgroup_mems: CpuSet
    thread_cpus: CpuSet
    "Union of its threads' affinities."
    thread_mems: CpuSet


def look_at(tgid: int, proc: Path = Path("/proc")) -> KernelView:
    """Ask the kernel about a process.

    Raises: LabError when it is gone or no hierarchy confines CPUs. Blocking: host read.
    Source: proc(5), cgroups(7), cgroup-v1/cpusets.rst.
    """
    try:
        masks = [
            _thread_masks(task.joinpath("status").read_text())
            for task in (proc / str(tgid) / "task").iterdir()
        ]
        files = effective_files(
            (proc / str(tgid) / "cgroup").read_text(), (proc / "self/mountinfo").read_text()
        )
        if files is None:
            raise LabError(f"no cpuset hierarchy for process {tgid}")
        cpus, mems = (parse_kernel(file.read_text()) for file in files)
    except OSError as error:
        raise LabError(f"process {tgid} cannot be looked at: {error}") from error
    return KernelView(
        cgroup_cpus=cpus,
        cgroup_mems=mems,
        thread_cpus=union(cpus for cpus, _ in masks),
        thread_mems=union(mems for _, mems in masks),
    )


def root_cpus(proc: Path = Path("/proc")) -> CpuSet:
    """Give the CPUs of a process that no cgroup confines.

    Raises: LabError when no hierarchy confines CPUs. Blocking: host read.
    """
    files = effective_files("0:cpuset:/\n0::/\n", (proc / "self/mountinfo").read_text())
    if files is None:
        raise LabError("no cpuset hierarchy on this machine")
    return parse_kernel(files[0].read_text())


def effective_files(cgroup: str, mountinfo: str) -> tuple[Path, Path] | None:
    """Give the two files with the effective cpuset, or None where nothing confines CPUs."""
    v1, v2 = _cpuset_mounts(mountinfo)
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        if v1 is not None and "cpuset" in controllers.split(","):
            return v1 / path.lstrip("/") / _V1_FILES[0], v1 / path.lstrip("/") / _V1_FILES[1]
    for line in cgroup.splitlines():
        if v1 is None and v2 is not None and line.startswith("0::"):
            # A cgroup without cpuset files is governed by the nearest one above that has them.
            directory = v2 / line[3:].lstrip("/")
            while directory != v2 and not (directory / _V2_FILES[0]).exists():
                directory = directory.parent
            if (directory / _V2_FILES[0]).exists():
                return directory / _V2_FILES[0], directory / _V2_FILES[1]
    return None


def _cpuset_mounts(mountinfo: str) -> tuple[Path | None, Path | None]:
    v1: Path | None = None
    v2: Path | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point, kind = Path(before.split(" ")[4]), after.split(" ")[0]
        if kind == "cgroup" and "cpuset" in after.split(" ")[-1].split(","):
            v1 = v1 or point
        elif kind == "cgroup2":
            v2 = v2 or point
    return v1, v2


def _thread_masks(status: str) -> tuple[CpuSet, CpuSet]:
    found = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return (
        parse_kernel(found["Cpus_allowed_list"].strip()),
        parse_kernel(found["Mems_allowed_list"].strip()),
    )
