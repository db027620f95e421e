"""The key of a container's rows: its own cgroup of the default hierarchy, or none."""

from __future__ import annotations

import pytest

from nri_claim2core.host.default_cgroup import find_default_cgroup
from nri_claim2core.model.errors import HostError
from tests.host.trees import Tree

V2 = "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
HYBRID = (
    "30 1 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "31 1 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
SCOPE = "kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope"


def node(tmp_path, mounts, cgroup):
    tree = Tree(tmp_path)
    tree.write("/proc/self/mountinfo", mounts)
    tree.write("/proc/7/cgroup", cgroup)
    return tree.root


@pytest.mark.parametrize(
    ("announced", "actual", "found"),
    [
        ("/kubepods/pod1/abc", "/kubepods/pod1/abc", "/kubepods/pod1/abc"),
        ("kubepods-pod1.slice:cri-containerd:abc", f"/{SCOPE}", f"/{SCOPE}"),
        # crun
        ("kubepods-pod1.slice:cri-containerd:abc", f"/{SCOPE}/container", f"/{SCOPE}"),
        # A node that is a container itself.
        ("/kubepods/pod1/abc", "/docker/x/kubepods/pod1/abc", "/docker/x/kubepods/pod1/abc"),
    ],
)
def test_on_v2_it_is_the_containers_own(tmp_path, announced, actual, found):
    root = node(tmp_path, V2, f"0::{actual}\n")
    assert find_default_cgroup(7, announced, root) == f"/sys/fs/cgroup{found}"


def test_on_a_hybrid_node_it_is_in_the_unified_tree(tmp_path):
    root = node(tmp_path, HYBRID, "4:cpuset:/pods/abc\n0::/pods/abc\n")
    assert find_default_cgroup(7, "/pods/abc", root) == "/sys/fs/cgroup/unified/pods/abc"


@pytest.mark.parametrize(
    ("mounts", "cgroup"),
    [
        (HYBRID, "4:cpuset:/pods/abc\n0::/\n"),  # everybody's
        (HYBRID, "4:cpuset:/pods/abc\n0::/pods\n"),  # the pod's
        (HYBRID, "4:cpuset:/pods/abc\n"),
        (HYBRID.splitlines()[0], "4:cpuset:/pods/abc\n0::/pods/abc\n"),
    ],
)
def test_what_is_not_its_own_is_no_key(tmp_path, mounts, cgroup):
    with pytest.raises(HostError) as refused:
        find_default_cgroup(7, "/pods/abc", node(tmp_path, mounts, cgroup))
    assert refused.value.code == "C2C-HOST-06"


def test_a_process_that_is_gone_is_an_error(tmp_path):
    with pytest.raises(HostError):
        find_default_cgroup(8, "/pods/abc", node(tmp_path, V2, "0::/pods/abc\n"))
