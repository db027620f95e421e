"""A container's cgroup: found, confirmed, read; on trees and on this machine's kernel."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nri_claim2core.host import cgroups
from nri_claim2core.host.cgroups import CgroupReader
from nri_claim2core.model.errors import HostError
from tests.host.trees import Tree

ANNOUNCED = "kubepods-besteffort-podab12.slice:cri-containerd:abc"
SCOPE = (
    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podab12.slice/"
    "cri-containerd-abc.scope"
)
PLAIN = "/kubepods/besteffort/podU/abc"


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def v2(tree):
    tree.unified()
    return tree


def process(tree, tgid, path, *, v1=False):
    """/proc/PID/cgroup as the kernel prints it on v2 or, with `v1`, on a hybrid machine."""
    text = f"0::{path}\n"
    if v1:
        text = f"9:name=systemd:/named\n8:pids:/pids\n3:cpu,cpuset:{path}\n1:cpuacct:/x\n0::/two\n"
    tree.write(f"/proc/{tgid}/cgroup", text)


def located(tree, announced, tgid=0, **options):
    value = CgroupReader(tree.root, **options).locate(announced, tgid)
    mount = CgroupReader(tree.root).hierarchy.mount
    return value.path.removeprefix(mount), value.leaf.removeprefix(mount), value.confirmed


# Finding it.


@pytest.mark.parametrize(("announced", "path"), [(ANNOUNCED, SCOPE), (PLAIN, PLAIN)])
def test_computed_without_a_process(v2, announced, path):
    v2.v2_cgroup(path, "0-3")
    assert located(v2, announced) == (path, path, False)


def test_confirmed_by_the_kernel(v2):
    v2.v2_cgroup(SCOPE, "0-3")
    process(v2, 77, SCOPE)
    assert located(v2, ANNOUNCED, 77) == (SCOPE, SCOPE, True)


def test_v1_asks_the_cpuset_line(tree):
    tree.v1_cgroup("", "0-7")
    tree.v1_cgroup(PLAIN, "0-3")
    process(tree, 77, PLAIN, v1=True)
    assert located(tree, PLAIN, 77) == (PLAIN, PLAIN, True)


def test_a_hybrid_node_s_unified_tree_asks_its_own_line(tree):
    tree.write("/sys/fs/cgroup/unified/cgroup.controllers", "cpuset\n")
    tree.directory("/sys/fs/cgroup/unified/two")
    process(tree, 77, "/kubepods/two", v1=True)
    assert located(tree, "/two", 77) == ("/two", "/two", True)
    tree.directory("/sys/fs/cgroup/unified/kubepods/two")
    assert located(tree, "/two", 77) == ("/two", "/two", True)


def test_crun_s_child_with_and_without_a_process(v2):
    v2.v2_cgroup(SCOPE, "0-3")
    v2.v2_cgroup(f"{SCOPE}/container", "0-3")
    assert located(v2, ANNOUNCED) == (SCOPE, f"{SCOPE}/container", False)
    process(v2, 77, f"{SCOPE}/container")
    assert located(v2, ANNOUNCED, 77) == (SCOPE, f"{SCOPE}/container", True)
    # With the cgroupfs driver crun makes none; one of that name is the workload's own.
    v2.v2_cgroup(PLAIN, "0-3")
    v2.v2_cgroup(f"{PLAIN}/container", "0-3")
    assert located(v2, PLAIN) == (PLAIN, PLAIN, False)


def test_a_nested_node_is_found_by_its_process(v2):
    outer = "/docker/0123/kubelet.slice"
    v2.v2_cgroup(f"{outer}{SCOPE}", "0-3")
    process(v2, 77, f"{outer}{SCOPE}")
    assert located(v2, ANNOUNCED, 77) == (f"{outer}{SCOPE}", f"{outer}{SCOPE}", True)


def test_a_nested_node_is_found_by_prefix(v2):
    v2.v2_cgroup(f"/docker/0123{PLAIN}", "0-3")
    with pytest.raises(HostError, match="no such cgroup"):
        located(v2, PLAIN)
    path = f"/docker/0123{PLAIN}"
    assert located(v2, PLAIN, prefixes=("kubelet", "/docker/0123/")) == (path, path, False)


def test_a_mounted_part_of_the_hierarchy(tree):
    tree.v1_cgroup("", "0-7")
    tree.v1_cgroup(PLAIN, "0-3")
    tree.write(
        "/proc/1/mountinfo",
        "34 31 0:31 /docker/abc /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
    )
    process(tree, 77, f"/docker/abc{PLAIN}", v1=True)
    assert located(tree, PLAIN, 77) == (PLAIN, PLAIN, True)
    tree.directory(f"/sys/fs/cgroup/cpusetd{PLAIN}")
    process(tree, 78, f"/docker/abcd{PLAIN}", v1=True)
    assert located(tree, PLAIN, 78) == (PLAIN, PLAIN, False)


@pytest.mark.parametrize(
    "elsewhere",
    ["/", "/kubepods/besteffort/podU/abcd", "/kubepods/besteffort/podU", f"/x{PLAIN}x", "/../..x"],
)
def test_a_process_elsewhere_confirms_nothing(v2, elsewhere):
    # A number of another pid namespace, a monitor of a virtual machine, a reused number.
    v2.v2_cgroup(PLAIN, "0-3")
    process(v2, 77, elsewhere)
    assert located(v2, PLAIN, 77) == (PLAIN, PLAIN, False)


def test_a_process_above_our_namespace_confirms_nothing(v2):
    v2.v2_cgroup(PLAIN, "0-3")
    v2.directory(f"/sys/fs/other{PLAIN}")
    process(v2, 77, f"/../other{PLAIN}")
    assert located(v2, PLAIN, 77) == (PLAIN, PLAIN, False)


def test_a_process_that_is_gone_confirms_nothing(v2):
    v2.v2_cgroup(PLAIN, "0-3")
    assert located(v2, PLAIN, 99) == (PLAIN, PLAIN, False)


def test_not_there_names_the_path_and_where_the_process_is(v2):
    process(v2, 77, "/vmm")
    with pytest.raises(HostError, match="process 77 is in /vmm") as caught:
        located(v2, PLAIN, 77)
    assert caught.value.errno == errno.ENOENT
    assert caught.value.code == "C2C-HOST-05"
    assert caught.value.path == f"{v2.root}/sys/fs/cgroup{PLAIN}"


def test_a_removed_cgroup_is_not_confirmed(v2):
    process(v2, 77, f"{PLAIN} (deleted)")
    with pytest.raises(HostError, match="no such cgroup"):
        located(v2, PLAIN, 77)


def test_the_hierarchy_is_found_once_and_looked_for_until_then(tree):
    reader = CgroupReader(tree.root)
    with pytest.raises(HostError, match="cpuset controller"):
        reader.locate(PLAIN)
    tree.unified()
    tree.v2_cgroup(PLAIN, "0")
    reader.locate(PLAIN)
    tree.path("/sys/fs/cgroup/cgroup.controllers").unlink()
    assert reader.locate(PLAIN).path.endswith(PLAIN)


# What is in force.


def effective(tree, path):
    reader = CgroupReader(tree.root)
    found = reader.read_effective(reader.hierarchy.mount + path)
    return str(found.cpus), str(found.mems)


def test_v2_reads_effective_not_what_was_asked(v2):
    path = v2.v2_cgroup(PLAIN, "2-3,8", "1")
    (path / "cpuset.cpus").write_text("0-63\n")
    (path / "cpuset.mems").write_text("0-7\n")
    assert effective(v2, PLAIN) == ("2-3,8", "1")


def test_v1_has_other_names(tree):
    tree.v1_cgroup("", "0-7")
    tree.v1_cgroup(PLAIN, "4,6", "0-1")
    assert effective(tree, PLAIN) == ("4,6", "0-1")


def test_v2_without_files_of_its_own_is_governed_from_above(v2):
    v2.v2_cgroup("/kubepods", "0-5", "0-1")
    v2.v2_cgroup("/kubepods/podU", None)
    v2.v2_cgroup("/kubepods/podU/abc", None)
    assert effective(v2, "/kubepods/podU/abc") == ("0-5", "0-1")
    v2.v2_cgroup("/other/abc", None)
    assert effective(v2, "/other/abc") == ("0-7", "0-1")
    assert effective(v2, "") == ("0-7", "0-1")


def test_v2_without_files_anywhere_is_an_error_and_never_leaves_the_mount(v2):
    v2.v2_cgroup("/a/b", None)
    v2.path("/sys/fs/cgroup/cpuset.cpus.effective").unlink()
    v2.write("/sys/fs/cpuset.cpus.effective", "0\n")
    with pytest.raises(HostError, match="subtree_control") as caught:
        effective(v2, "/a/b")
    assert caught.value.code == "C2C-HOST-04"


def test_empty_is_the_empty_set(v2):
    v2.v2_cgroup(PLAIN, "", "")
    assert effective(v2, PLAIN) == ("", "")


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_a_cgroup_that_is_gone_is_enoent(tree, layout):
    if layout == "v1":
        tree.v1_cgroup("", "0-7")
    else:
        tree.unified()
    with pytest.raises(HostError) as caught:
        effective(tree, "/gone")
    assert (caught.value.errno, caught.value.code) == (errno.ENOENT, "C2C-HOST-05")
    assert caught.value.path.endswith("/gone")


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_a_cgroup_that_vanishes_between_two_files_is_gone_not_unreadable(tree, layout, monkeypatch):
    if layout == "v1":
        tree.v1_cgroup("", "0-7")
        path = tree.v1_cgroup(PLAIN, "0-3")
    else:
        tree.unified()
        path = tree.v2_cgroup(PLAIN, "0-3")
    real = cgroups.read_kernel_text

    def vanishing(name):
        if "mems" in name:
            shutil.rmtree(path)
        return real(name)

    monkeypatch.setattr(cgroups, "read_kernel_text", vanishing)
    with pytest.raises(HostError) as caught:
        effective(tree, PLAIN)
    assert caught.value.code == "C2C-HOST-05"


def test_a_missing_file_in_a_cgroup_that_is_there_is_not_gone(tree):
    tree.v1_cgroup("", "0-7")
    (tree.v1_cgroup(PLAIN, "0-3") / "cpuset.effective_mems").unlink()
    with pytest.raises(HostError, match="effective_mems") as caught:
        effective(tree, PLAIN)
    assert caught.value.code == "C2C-HOST-01"


def test_garbage_is_named(v2):
    v2.v2_cgroup(PLAIN, "0-x")
    with pytest.raises(HostError, match=r"cpuset.cpus.effective.*'0-x'") as caught:
        effective(v2, PLAIN)
    assert caught.value.code == "C2C-HOST-02"


# Who is in it.


def test_processes_of_the_cgroup_and_below(v2):
    path = v2.v2_cgroup(SCOPE, "0", procs="30\n7\n0\n")
    v2.v2_cgroup(f"{SCOPE}/container", "0", procs="7\n12\n")
    v2.v2_cgroup(f"{SCOPE}/container/deep", None, procs="5\n")
    (path / "link").symlink_to(v2.v2_cgroup("/other", "0", procs="99\n"))
    assert CgroupReader(v2.root).read_tgids(str(path)) == (5, 7, 12, 30)


def test_processes_of_a_missing_or_damaged_cgroup(v2):
    path = v2.v2_cgroup(SCOPE, "0", procs="x\n")
    reader = CgroupReader(v2.root)
    with pytest.raises(HostError, match="not a list of numbers"):
        reader.read_tgids(str(path))
    with pytest.raises(HostError) as caught:
        reader.read_tgids(f"{path}-gone")
    assert caught.value.errno == errno.ENOENT


# This machine. The oracle is what the kernel says of a process in the cgroup.


def mounts_of_cpuset():
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options = line.split()[:4]
        if kind == "cgroup" and "cpuset" in options.split(","):
            found.append(("v1", Path(point)))
        elif kind == "cgroup2":
            control = Path(point, "cgroup.subtree_control")
            if control.exists() and "cpuset" in control.read_text().split():
                found.append(("v2", Path(point)))
    return found


def allowed(tgid):
    lines = Path(f"/proc/{tgid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return status["Cpus_allowed_list"], status["Mems_allowed_list"]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_real_cgroup(version, request):
    mount = next((point for kind, point in mounts_of_cpuset() if kind == version), None)
    if os.geteuid() != 0 or mount is None or not os.access(mount, os.W_OK):
        pytest.skip(f"needs root and a cgroup {version} cpuset hierarchy")
    parent = mount / f"claim2core-host-test-{os.getpid()}"
    ours = parent / "pod" / "abc"
    made = [parent, parent / "pod", ours]
    request.addfinalizer(lambda: [path.rmdir() for path in reversed(made) if path.exists()])
    cpu = str(max(os.sched_getaffinity(0)))
    for path in made:
        path.mkdir()
        if version == "v1":
            (path / "cpuset.cpus").write_text(cpu)
            (path / "cpuset.mems").write_text("0")
        elif path != ours:
            (path / "cgroup.subtree_control").write_text("+cpuset")
    if version == "v2":
        (ours / "cpuset.cpus").write_text(cpu)
        (ours / "cpuset.mems").write_text("0")
    reader = CgroupReader()
    announced = f"/{ours.relative_to(mount)}"
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        (ours / "cgroup.procs").write_text(str(child.pid))
        cgroup = reader.locate(announced, child.pid)
        found = reader.read_effective(cgroup.leaf)
        tgids = reader.read_tgids(str(parent))
        kernel = allowed(child.pid)
        child.stdin.close()
    assert (cgroup.path, cgroup.leaf, cgroup.confirmed) == (str(ours), str(ours), True)
    assert (str(found.cpus), str(found.mems)) == kernel
    assert str(found.cpus) == cpu
    assert tgids == (child.pid,)
    assert reader.read_tgids(str(parent)) == ()
    ours.rmdir()
    with pytest.raises(HostError, match="no such cgroup"):
        reader.locate(announced, child.pid)
