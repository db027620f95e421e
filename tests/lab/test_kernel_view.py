"""What the kernel says, against what was set through another interface of the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nri_claim2core.lab.errors import LabError
from nri_claim2core.lab.kernel_view import effective_files, look_at

V1 = "33 24 0:28 / /sys/fs/cgroup/cpuset rw,nosuid - cgroup cgroup rw,cpuset\n"
V1_JOINED = "33 24 0:28 / /sys/fs/cgroup/cpu,cpuset rw - cgroup cgroup rw,cpu,cpuset\n"
UNIFIED = "34 24 0:29 / /sys/fs/cgroup/unified rw shared:1 - cgroup2 cgroup2 rw\n"


@pytest.fixture
def child():
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        process.stdout.readline()
        yield process.pid


@pytest.mark.skipif(
    not any("cpuset" in line for line in Path("/proc/self/mountinfo").read_text().splitlines()),
    reason="no cpuset hierarchy is mounted here",
)
def test_affinity_is_seen(child):
    mine = os.sched_getaffinity(0)
    assert set(look_at(child).thread_cpus) == mine
    os.sched_setaffinity(child, {min(mine)})
    view = look_at(child)
    assert set(view.thread_cpus) == {min(mine)}
    assert mine <= set(view.cgroup_cpus)


def test_process_that_is_gone(child):
    with pytest.raises(LabError, match="cannot be looked at"):
        look_at(2**22 + 5)


@pytest.mark.parametrize("mounts", [V1 + UNIFIED, UNIFIED + V1])
def test_v1_hierarchy_wins_on_a_hybrid_machine(mounts):
    files = effective_files("4:cpuset:/a/b\n0::/x\n", mounts)
    assert files == (
        Path("/sys/fs/cgroup/cpuset/a/b/cpuset.effective_cpus"),
        Path("/sys/fs/cgroup/cpuset/a/b/cpuset.effective_mems"),
    )


def test_joined_controllers():
    files = effective_files("3:cpu,cpuset:/a\n", V1_JOINED)
    assert files is not None
    assert files[0] == Path("/sys/fs/cgroup/cpu,cpuset/a/cpuset.effective_cpus")


def test_v2_goes_up_to_the_cgroup_that_governs(tmp_path):
    (tmp_path / "pod/container/child").mkdir(parents=True)
    (tmp_path / "pod/container/cpuset.cpus.effective").write_text("1\n")
    mounts = f"34 24 0:29 / {tmp_path} rw - cgroup2 cgroup2 rw\n"
    files = effective_files("0::/pod/container/child\n", mounts)
    assert files is not None
    assert files[0] == tmp_path / "pod/container/cpuset.cpus.effective"
    assert effective_files("0::/pod\n", mounts) is None


def test_no_hierarchy():
    assert effective_files("0::/\n", "") is None
