"""Identities as user space reads them, and what holds inside a pid namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nri_claim2core.bpfmap import readback
from nri_claim2core.bpfmap.errors import CgroupGoneError, PidNamespaceError, TaskGoneError
from nri_claim2core.bpfmap.identity import check_pid_namespace, read_cgroup_id, read_pid_ino
from nri_claim2core.model.errors import HostError
from tests.bpfmap.need import need_kernel
from tests.bpfmap.tasks import Child

# Runs as pid 1 of a pid namespace of its own; prints what became of each way to write its row.
_NESTED = """
import json, os, sys
from nri_claim2core.bpfmap import requests
from nri_claim2core.bpfmap.errors import PidNamespaceError
from nri_claim2core.bpfmap.identity import check_pid_namespace, read_pid_ino
from nri_claim2core.bpfmap.loader import load
from nri_claim2core.bpfmap.mutate import Writer
from nri_claim2core.bpfmap.rows import TaskRow
try:
    check_pid_namespace()
    namespace = "initial"
except PidNamespaceError as error:
    namespace = error.code
loaded = load(sys.argv[1])
writer = Writer(loaded)
writer.take()
ino = read_pid_ino(os.getpid())
row = TaskRow(tid=os.getpid(), pid_ino=ino, cgroup_id=int(sys.argv[2]))
elsewhere = TaskRow(tid=os.getpid(), pid_ino=ino, cgroup_id=1 << 60)
unknown = TaskRow(tid=os.getpid(), pid_ino=1 << 60, cgroup_id=int(sys.argv[2]))
ways = [
    requests.put_task(row),
    requests.put_task_of_cgroup(elsewhere),
    requests.put_task_of_cgroup(unknown),
    requests.put_task_of_cgroup(row),
]
print(json.dumps([namespace, os.getpid(), ino, [o.result.name for o in writer.apply(ways)]]))
"""


@pytest.mark.maps
def test_inside_a_pid_namespace_the_thread_is_found_in_its_cgroup(loaded, pins, cgroup):
    # The shell enters the cgroup before it unshares, so that its child is born there.
    script = f'echo $$ > {cgroup}/cgroup.procs; exec unshare --pid --fork --mount-proc "$@"'
    words = [sys.executable, "-c", _NESTED, pins, str(cgroup.stat().st_ino)]
    done = subprocess.run(
        ["sh", "-c", script, "sh", *words], check=True, capture_output=True, text=True
    )
    namespace, tid, ino, results = json.loads(done.stdout)
    assert (namespace, tid) == (PidNamespaceError.code, 1)
    # TID 1 is somebody else's here, or not to be had; never ours.
    assert results[0] in {"OTHER_TASK", "TASK_GONE"}
    assert results[1:] == ["NO_CGROUP", "TASK_GONE", "OK"]
    (row,) = readback.read_tasks(loaded.maps)
    assert row.pid_ino == ino
    assert row.tid > 1
    assert row.sealed


def test_this_process_is_in_the_initial_pid_namespace_if_pid_2_is_a_kernel_thread():
    # Another way to tell: only there kthreadd is seen.
    try:
        initial = Path("/proc/2/comm").read_text(encoding="ascii") == "kthreadd\n"
    except FileNotFoundError:
        initial = False
    if initial:
        check_pid_namespace()
    else:
        with pytest.raises(PidNamespaceError):
            check_pid_namespace()


def test_another_pid_namespace_by_its_number(tmp_path):
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").touch()
    with pytest.raises(PidNamespaceError):
        check_pid_namespace(str(tmp_path))
    with pytest.raises(HostError):
        check_pid_namespace(str(tmp_path / "nothing"))


def test_each_thread_has_an_inode_number_of_its_own_that_stays():
    need_kernel()
    with Child() as one:
        tids = [one.tid, *(one.start_thread() for _ in range(5))]
        numbers = [read_pid_ino(tid) for tid in tids]
        assert len(set(numbers)) == len(tids)
        assert numbers == [read_pid_ino(tid) for tid in tids]
        # The process's pidfd, by the call that knows no threads.
        fd = os.pidfd_open(one.tid)
        assert os.fstat(fd).st_ino == numbers[0]
        os.close(fd)
    with pytest.raises(TaskGoneError):
        read_pid_ino(one.tid)


def test_a_cgroup_that_is_not_there(tmp_path):
    with pytest.raises(CgroupGoneError):
        read_cgroup_id(str(tmp_path / "none"))
    (tmp_path / "file").touch()
    with pytest.raises(HostError):
        read_cgroup_id(str(tmp_path / "file" / "below"))
