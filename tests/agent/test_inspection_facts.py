"""Threads and cgroups of this machine, beside what other files of the kernel say of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nri_claim2core.agent import inspection_facts as facts
from nri_claim2core.model.cpuset import CpuSet

BOOTTIME = time.CLOCK_BOOTTIME


@pytest.fixture
def thread():
    """A second thread of this process, by TID."""
    end, tids = threading.Event(), []
    started = threading.Event()

    def work():
        tids.append(threading.get_native_id())
        started.set()
        end.wait()

    one = threading.Thread(target=work, name="second")
    one.start()
    started.wait()
    yield tids[0]
    end.set()
    one.join()


@pytest.fixture
def process():
    """A process that waits for its input to end."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as one:
        yield one
        one.kill()


def test_a_thread(thread):
    os.sched_setaffinity(thread, {min(os.sched_getaffinity(0))})
    found = facts.maybe_thread(thread)
    assert (found.tid, found.tgid) == (thread, os.getpid())
    assert found.affinity == CpuSet(os.sched_getaffinity(thread))
    assert found.comm == Path(f"/proc/{thread}/comm").read_text().rstrip("\n")


def test_a_number_that_nobody_has():
    # Above the highest pid_max that the kernel takes.
    nobody = (1 << 22) + 1
    assert facts.maybe_thread(nobody) is None
    assert facts.maybe_identity(nobody, "") is None
    assert facts.has_ended(nobody, 0)


def test_a_process_runs_until_it_is_reaped(process):
    assert not facts.has_ended(process.pid, time.clock_gettime_ns(BOOTTIME))
    process.kill()
    # Dead and not yet reaped counts as ended: it does nothing any more.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert facts.has_ended(process.pid, time.clock_gettime_ns(BOOTTIME))


def test_a_number_given_to_a_later_process_is_not_the_earlier_one(process):
    assert facts.has_ended(process.pid, 1)


def test_a_name_with_brackets_hides_no_field():
    # The name is a thread's to choose, and stands in brackets in the middle of the line.
    program = "import sys; open('/proc/self/comm','w').write(') Z 1 ('); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as one:
        one.stdout.readline()
        assert not facts.has_ended(one.pid, time.clock_gettime_ns(BOOTTIME))
        assert facts.maybe_thread(one.pid).comm == ") Z 1 ("
        one.kill()


def test_the_mount_of_the_whole_hierarchy_comes_first(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(
        "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "31 23 0:27 /part /some\\040where rw - cgroup2 cgroup2 rw\n"
    )
    assert facts.maybe_find_mount(str(table)) == "/some where"
    table.write_text("30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    assert facts.maybe_find_mount(str(table)) is None


def test_the_walk_finds_what_find_finds():
    mount = facts.maybe_find_mount()
    if mount is None:
        pytest.skip("no cgroup v2 hierarchy is mounted")

    def found_by_find():
        words = ["find", mount, "-type", "d", "-printf", "%i /%P\\n"]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        return {
            (int(n), path) for n, _, path in (x.partition(" ") for x in done.stdout.splitlines())
        }

    # Cgroups come and go meanwhile: those that both looks of find saw must be there.
    before = found_by_find()
    tree = facts.read_tree()
    stayed = before & found_by_find()
    assert stayed
    assert stayed <= set(tree.paths.items())
    assert tree.is_whole is (Path(mount).stat().st_ino == 1)
