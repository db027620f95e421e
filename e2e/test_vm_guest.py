"""The guest is the machine that the other tests of this tier take it for."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest

import nri_claim2core

pytestmark = pytest.mark.skipif(
    "CLAIM2CORE_GUEST" not in os.environ, reason="runs in the virtual machine: make e2e-vm"
)


def test_cpus_and_memory_nodes_are_those_asked_for():
    cpus, nodes = map(int, os.environ["CLAIM2CORE_GUEST"].split(","))
    assert os.sched_getaffinity(0) == set(range(cpus))
    lists = [
        Path(f"/sys/devices/system/node/node{node}/cpulist").read_text().strip()
        for node in range(nodes)
    ]
    share = cpus // nodes
    expected = [range(node * share, (node + 1) * share) for node in range(nodes)]
    assert lists == [f"{each[0]}-{each[-1]}" if share > 1 else f"{each[0]}" for each in expected]
    assert not Path(f"/sys/devices/system/node/node{nodes}").exists()


def test_kernel_has_sched_ext_and_nobody_uses_it():
    assert Path("/sys/kernel/sched_ext/state").read_text() == "disabled\n"
    assert Path("/sys/kernel/btf/vmlinux").stat().st_size > 0


def test_cgroups_are_v2_only():
    kinds = {
        line.partition(" - ")[2].split(" ")[0]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    }
    assert "cgroup2" in kinds
    assert "cgroup" not in kinds
    controllers = Path("/sys/fs/cgroup/cgroup.subtree_control").read_text().split()
    assert {"cpu", "cpuset", "io", "memory", "pids"} <= set(controllers)


def test_package_under_test_is_the_wheel():
    installed = importlib.metadata.distribution("nri-claim2core")
    files = {Path(str(installed.locate_file(file))).resolve() for file in installed.files or ()}
    assert Path(nri_claim2core.__file__).resolve() in files
    assert [file for file in files if not file.exists()] == []
