"""Which hierarchy confines CPUs, from mount tables as kernels print them and from bare trees."""

from __future__ import annotations

import pytest

from nri_claim2core.host.cgroup_mounts import Layout, find_hierarchy
from nri_claim2core.model.errors import HostError
from tests.host.trees import Tree

V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_CPUSET = "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
V1_MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
V1_NAMED = "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
TMPFS = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
OTHER = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/cgroup rw,cpuset\n"


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def found(tree, mountinfo=None, owner="1"):
    if mountinfo is not None:
        tree.write(f"/proc/{owner}/mountinfo", mountinfo)
    value = find_hierarchy(tree.root)
    return value.layout, value.mount.removeprefix(tree.root), value.is_v2, value.subtree


def test_v2(tree):
    tree.unified()
    assert found(tree, OTHER + V2) == (Layout.V2, "/sys/fs/cgroup", True, "")


def test_v1(tree):
    tree.directory("/sys/fs/cgroup/cpuset")
    tree.directory("/sys/fs/cgroup/memory")
    table = OTHER + TMPFS + V1_MEMORY + V1_CPUSET + V1_NAMED
    assert found(tree, table) == (Layout.V1, "/sys/fs/cgroup/cpuset", False, "")


def test_hybrid_has_its_cpuset_in_v1(tree):
    tree.directory("/sys/fs/cgroup/cpuset")
    tree.write("/sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n")
    table = UNIFIED + V1_CPUSET
    assert found(tree, table) == (Layout.HYBRID, "/sys/fs/cgroup/cpuset", False, "")


def test_hybrid_whose_cpuset_is_in_the_unified_tree(tree):
    tree.directory("/sys/fs/cgroup/memory")
    tree.write("/sys/fs/cgroup/unified/cgroup.controllers", "cpuset cpu\n")
    table = V1_MEMORY + UNIFIED
    assert found(tree, table) == (Layout.HYBRID, "/sys/fs/cgroup/unified", True, "")


def test_co_mounted_controllers_and_an_escaped_mount_point(tree):
    tree.directory("/sys/fs/cg roup/cpu,cpuset")
    table = (
        "34 31 0:31 / /sys/fs/cg\\040roup/cpu,cpuset rw,relatime master:3 - cgroup none "
        "rw,cpu,cpuset\n"
    )
    assert found(tree, table) == (Layout.V1, "/sys/fs/cg roup/cpu,cpuset", False, "")


def test_the_whole_hierarchy_before_a_part_of_it(tree):
    tree.directory("/part")
    tree.directory("/sys/fs/cgroup/cpuset")
    part = "33 31 0:31 /docker/abc /part rw - cgroup cgroup rw,cpuset\n"
    assert found(tree, part + V1_CPUSET)[1:] == ("/sys/fs/cgroup/cpuset", False, "")
    assert found(tree, part)[1:] == ("/part", False, "/docker/abc")


def test_init_s_table_before_our_own(tree):
    tree.unified()
    tree.write("/proc/self/mountinfo", V1_CPUSET.replace("/sys/fs/cgroup", "/other"))
    tree.directory("/other/cpuset")
    assert found(tree, V2, owner="1")[1] == "/sys/fs/cgroup"
    tree.path("/proc/1/mountinfo").unlink()
    assert found(tree)[1] == "/other/cpuset"


def test_a_table_that_does_not_fit_the_tree_is_passed_over(tree):
    tree.v1_cgroup("", "0-3")
    assert found(tree, V2 + V1_CPUSET.replace("/sys/fs/cgroup", "/elsewhere"))[:2] == (
        Layout.V1,
        "/sys/fs/cgroup/cpuset",
    )


# Captured trees: no /proc.


def test_captured_v2(tree):
    tree.unified()
    assert found(tree) == (Layout.V2, "/sys/fs/cgroup", True, "")


def test_captured_v1(tree):
    tree.v1_cgroup("", "0-3")
    assert found(tree) == (Layout.V1, "/sys/fs/cgroup/cpuset", False, "")


def test_captured_hybrid(tree):
    tree.v1_cgroup("", "0-3")
    tree.write("/sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n")
    assert found(tree) == (Layout.HYBRID, "/sys/fs/cgroup/cpuset", False, "")


def test_captured_hybrid_with_cpuset_in_the_unified_tree(tree):
    tree.write("/sys/fs/cgroup/unified/cgroup.controllers", "cpuset\n")
    assert found(tree) == (Layout.HYBRID, "/sys/fs/cgroup/unified", True, "")


@pytest.mark.parametrize("controllers", [None, "cpu memory", "cpusets"])
def test_no_cpuset_controller_is_an_error_that_says_what_to_do(tree, controllers):
    if controllers is not None:
        tree.unified(controllers)
    with pytest.raises(HostError, match=r"cpuset controller.*mount") as caught:
        find_hierarchy(tree.root)
    assert caught.value.code == "C2C-HOST-04"
    assert caught.value.path == f"{tree.root}/sys/fs/cgroup"
