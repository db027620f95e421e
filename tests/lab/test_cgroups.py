from __future__ import annotations

from pathlib import Path

from nri_claim2core.lab.cgroups import BedCgroups, cgroup_mounts

MOUNTINFO = """\
30 23 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset
32 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
40 23 0:40 / /mnt/cgroup rw - ext4 /dev/cgroup rw
"""


def test_mounts_of_a_hybrid_machine():
    assert cgroup_mounts(MOUNTINFO) == [
        Path("/sys/fs/cgroup/cpuset"),
        Path("/sys/fs/cgroup/unified"),
    ]


def make(mount, *paths, procs=""):
    for path in paths:
        (mount / path).mkdir(parents=True, exist_ok=True)
        (mount / path / "cgroup.procs").write_text(procs)


def test_only_the_beds_own_cgroups_children_first(tmp_path):
    cpuset, unified = tmp_path / "cpuset", tmp_path / "unified"
    make(cpuset, "c2c-1", "c2c-1/pod/ctr", "c2c-1/pod", procs="11\n12\n")
    make(cpuset, "c2c-12", "kubepods/c2c-1", procs="99\n")
    make(unified, "c2c-1", procs="12\n13\n")
    cgroups = BedCgroups("/c2c-1", [cpuset, unified, tmp_path / "absent"])
    assert cgroups.directories() == [
        cpuset / "c2c-1/pod/ctr",
        cpuset / "c2c-1/pod",
        cpuset / "c2c-1",
        unified / "c2c-1",
    ]
    assert cgroups.processes() == {11, 12, 13}


def test_remove_reports_what_stays(tmp_path):
    (tmp_path / "c2c-1" / "empty").mkdir(parents=True)
    (tmp_path / "c2c-1" / "busy").mkdir()
    # On a plain file system a directory with a file is as busy as a cgroup with a task.
    (tmp_path / "c2c-1" / "busy" / "cgroup.procs").write_text("")
    cgroups = BedCgroups("/c2c-1", [tmp_path])
    assert cgroups.remove() == [tmp_path / "c2c-1/busy", tmp_path / "c2c-1"]
    (tmp_path / "c2c-1" / "busy" / "cgroup.procs").unlink()
    assert cgroups.remove() == []
    assert not (tmp_path / "c2c-1").exists()
