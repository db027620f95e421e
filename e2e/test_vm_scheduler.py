"""The scheduler in a real kernel: attach, follow rows from the first instruction on, end.

Judged by the kernel: sched_ext's own state, and counts that the scheduler object keeps where a
thread is about to run. Rows are written as the plugin writes them; starts are clone3 into the
cgroup and exec, as runtimes do them.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nri_claim2core.agent.scheduler import Phase, SchedulerRole, load, look, read_counters, unload
from nri_claim2core.bpfmap import requests
from nri_claim2core.bpfmap.abi import CellState, ExecClass
from nri_claim2core.bpfmap.errors import SchedulerTakenError
from nri_claim2core.bpfmap.identity import read_cgroup_id, read_pid_ino
from nri_claim2core.bpfmap.loader import load as load_maps
from nri_claim2core.bpfmap.mutate import Writer
from nri_claim2core.bpfmap.pins import open_maps
from nri_claim2core.bpfmap.readback import read_cells, read_cgroups, read_tasks
from nri_claim2core.bpfmap.rows import CgroupRow, Policy, TaskRow
from nri_claim2core.bpfmap.struct_ops import attach, read_exit, read_runs
from nri_claim2core.model.cpuset import CpuSet

KERNEL = Path("/sys/kernel/sched_ext")
ROOT = Path("/sys/fs/cgroup")
BPFFS = Path("/sys/fs/bpf")

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(not (KERNEL / "state").exists(), reason="needs a kernel with sched_ext"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

_NUMBERS = itertools.count()
_CLONE3 = 435
_CLONE_INTO_CGROUP = 1 << 33


def state():
    return (KERNEL / "state").read_text().strip()


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


@pytest.fixture
def pins():
    if not BPFFS.is_mount():
        subprocess.run(["mount", "-t", "bpf", "bpf", str(BPFFS)], check=True)
    directory = BPFFS / f"c2c-test-{os.getpid()}-{next(_NUMBERS)}"
    yield str(directory)
    if directory.exists():
        unload(str(directory))
        for pin in directory.iterdir():
            pin.unlink()
        directory.rmdir()
    assert state() == "disabled"


@pytest.fixture
def writer(pins):
    loaded = load_maps(pins)
    one = Writer(loaded)
    one.take()
    yield one
    one.close()
    loaded.close()


@pytest.fixture
def maps(pins, writer):
    opened = open_maps(pins)
    yield opened
    opened.close()


@pytest.fixture
def scheduler(pins, writer):
    assert load(pins).phase is Phase.RUNNING
    return pins


@pytest.fixture
def cgroup():
    """A cgroup of CPUs 2-3 below one that has the cpuset controller."""
    (ROOT / "cgroup.subtree_control").write_text("+cpuset")
    made = []

    def make(cpus="2-3"):
        path = ROOT / f"c2c-test-{os.getpid()}-{next(_NUMBERS)}"
        path.mkdir()
        made.append(path)
        (path / "cpuset.cpus").write_text(cpus)
        return path

    yield make
    for path in made:
        (path / "cgroup.kill").write_text("1")
        wait_for(lambda path=path: "populated 0" in (path / "cgroup.events").read_text())
        path.rmdir()


def clone_into(cgroup):
    """Fork by clone3 into a cgroup; 0 in the child."""
    fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, ..., cgroup
        words = (ctypes.c_uint64 * 11)(_CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, *[0] * 5, fd)
        pid = ctypes.CDLL(None, use_errno=True).syscall(_CLONE3, words, ctypes.sizeof(words))
        assert pid >= 0, os.strerror(ctypes.get_errno())
        return pid
    finally:
        os.close(fd)


class Start:
    """A container's start: init waits in its cgroup, then calls exec."""

    def __init__(self, cgroup, *command):
        reading, self._go = os.pipe()
        self.pid = clone_into(cgroup)
        if self.pid == 0:
            try:
                os.close(self._go)
                os.read(reading, 1)
                # As a runtime's init: exec is called in a file tree of its own.
                os.unshare(os.CLONE_NEWNS)
                os.execv(command[0], command)
            finally:
                os._exit(127)
        os.close(reading)

    def go(self):
        os.write(self._go, b"x")
        os.close(self._go)

    def wait(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def seed(writer, cgroup, *, cpus="2-3", cell=1, kind=ExecClass.LATENCY_CRITICAL):
    row = CgroupRow(
        cgroup_id=read_cgroup_id(str(cgroup)), policy=Policy(cell=cell, exec_class=kind)
    )
    numbers = [int(each) for each in cpus.split("-")]
    cpus = CpuSet(range(numbers[0], numbers[-1] + 1))
    writer.put(requests.put_cell(cell, cpus), requests.put_cgroup(row))
    return row.cgroup_id


SHELL = ("/bin/sh", "-c", "(:) & (:) & wait; exec /bin/true")
_FOUR_THREADS = """
import threading
threads = [threading.Thread(target=sum, args=(range(99),)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
THREADS = (sys.executable, "-S", "-c", _FOUR_THREADS)


def test_attach_is_known_by_the_kernel_and_detach_leaves_nothing(pins, writer):
    before = int((KERNEL / "enable_seq").read_text())
    assert look(pins).phase is Phase.STOPPED
    assert load(pins).phase is Phase.RUNNING
    assert (state(), (KERNEL / "root/ops").read_text().strip()) == ("enabled", "claim2core")
    assert int((KERNEL / "enable_seq").read_text()) == before + 1
    # A second time is nothing.
    assert load(pins).kernel.enable_seq == before + 1
    assert unload(pins) is True
    assert state() == "disabled"
    assert sorted(pin.name for pin in Path(pins).iterdir()) == [
        "c2c_cells",
        "c2c_cgroups",
        "c2c_control",
        "c2c_stats",
        "c2c_tasks",
    ]
    assert unload(pins) is False


def test_it_outlives_the_process_that_attached_it(pins, writer):
    run_dir = f"/tmp/c2c-{os.getpid()}"
    command = [sys.executable, "-m", "nri_claim2core.cli.main", "scheduler", "load"]
    command += ["--pin-dir", pins, "--run-dir", run_dir, "-o", "json"]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert (told["kind"], told["phase"]) == ("SchedulerStatus", "running")
    assert state() == "enabled"


def test_a_second_set_of_maps_is_refused_by_name(scheduler, tmp_path):
    other = f"{scheduler}-other"
    made = load_maps(other)
    try:
        with pytest.raises(SchedulerTakenError):
            attach(made.maps)
    finally:
        made.close()
        for pin in Path(other).iterdir():
            pin.unlink()
        Path(other).rmdir()
    assert state() == "enabled"


@pytest.mark.parametrize("command", [SHELL, THREADS], ids=["forks", "threads"])
def test_no_run_of_a_workload_is_without_its_policy(scheduler, writer, cgroup, command):
    place = cgroup()
    start = Start(place, *command)
    cgroup_id = seed(writer, place)
    start.go()
    assert start.wait() == 0
    counts = read_runs(scheduler)[cgroup_id]
    assert counts.without_policy == 0
    assert counts.with_policy >= 3


def test_a_late_seed_shows(scheduler, writer, cgroup):
    """The figure can fail: a row written after the start, as in PostStartContainer."""
    place = cgroup()
    start = Start(place, "/bin/sh", "-c", "while :; do :; done")
    start.go()
    cgroup_id = read_cgroup_id(str(place))
    wait_for(lambda: cgroup_id in read_runs(scheduler))
    late = read_counters(scheduler)["lateCgroups"]
    seed(writer, place)
    wait_for(lambda: read_runs(scheduler)[cgroup_id].with_policy > 0)
    assert read_runs(scheduler)[cgroup_id].without_policy > 0
    assert read_counters(scheduler)["lateCgroups"] == late + 1
    os.kill(start.pid, signal.SIGKILL)
    start.wait()


def test_an_exec_into_a_running_container_has_its_policy(scheduler, writer, cgroup):
    place = cgroup()
    cgroup_id = seed(writer, place)
    late = Start(place, *SHELL)
    late.go()
    assert late.wait() == 0
    assert read_runs(scheduler)[cgroup_id].without_policy == 0


def test_a_child_cgroup_is_governed_by_its_parents_row(scheduler, writer, cgroup):
    place = cgroup()
    child = place / "container"
    child.mkdir()
    try:
        start = Start(child, *SHELL)
        seed(writer, place)
        start.go()
        assert start.wait() == 0
        counts = read_runs(scheduler)[read_cgroup_id(str(child))]
        assert (counts.without_policy, counts.with_policy > 0) == (0, True)
    finally:
        child.rmdir()


def test_rows_end_with_their_thread_and_cgroup(scheduler, writer, maps):
    place = ROOT / f"c2c-test-{os.getpid()}-{next(_NUMBERS)}"
    place.mkdir()
    start = Start(place, "/bin/true")
    cgroup_id = seed(writer, place, cpus="2-3")
    writer.put(
        requests.put_task(
            TaskRow(tid=start.pid, pid_ino=read_pid_ino(start.pid), policy=Policy(cell=1))
        )
    )
    assert [row.tid for row in read_tasks(maps)] == [start.pid]
    start.go()
    assert start.wait() == 0
    wait_for(lambda: not read_tasks(maps))
    assert [row.cgroup_id for row in read_cgroups(maps)] == [cgroup_id]
    place.rmdir()
    wait_for(lambda: not read_cgroups(maps))


def test_a_cell_drains_and_is_used_again(scheduler, writer, cgroup, maps):
    place = cgroup()
    seed(writer, place)
    start = Start(place, *SHELL)
    start.go()
    assert start.wait() == 0
    writer.put(requests.delete_cgroup(read_cgroup_id(str(place))), requests.drain_cell(1))
    wait_for(lambda: [c.state for c in read_cells(maps) if c.index == 1] == [CellState.DRAINED])
    writer.put(requests.free_cell(1))
    assert [cell.index for cell in read_cells(maps)] == [0]
    other = cgroup("1-1")
    cgroup_id = seed(writer, other, cpus="1-1")
    start = Start(other, *SHELL)
    start.go()
    assert start.wait() == 0
    assert read_runs(scheduler)[cgroup_id].without_policy == 0


def test_cpusets_that_flip_under_load_eject_nobody(scheduler, writer, cgroup):
    place = cgroup("0-3")
    seed(writer, place, cpus="0-3")
    starts = [Start(place, "/bin/sh", "-c", "while :; do :; done") for _ in range(6)]
    for start in starts:
        start.go()
    for flip in range(60):
        (place / "cpuset.cpus").write_text(("0-3", "2", "1-2", "0,3")[flip % 4])
    assert state() == "enabled"
    for start in starts:
        os.kill(start.pid, signal.SIGKILL)
        assert start.wait() == -signal.SIGKILL
    assert read_exit(scheduler) is None


def test_a_machine_full_of_hogs_leaves_no_class_waiting(scheduler, writer, cgroup):
    """A background shell gets through though every CPU of its cell is busy in a better class."""
    hogs, meek = cgroup(), cgroup()
    seed(writer, hogs)
    starts = [Start(hogs, "/bin/sh", "-c", "while :; do :; done") for _ in range(4)]
    for start in starts:
        start.go()
    row = CgroupRow(
        cgroup_id=read_cgroup_id(str(meek)),
        policy=Policy(cell=1, exec_class=ExecClass.BACKGROUND),
    )
    writer.put(requests.put_cgroup(row))
    start = Start(meek, *SHELL)
    start.go()
    assert start.wait() == 0
    for start in starts:
        os.kill(start.pid, signal.SIGKILL)
        start.wait()


def test_an_ejection_is_noticed_and_undone_and_its_dump_kept(scheduler, tmp_path):
    now = [0.0]
    role = SchedulerRole(scheduler, run_dir=str(tmp_path), clock=lambda: now[0])
    assert role.step() is Phase.RUNNING
    seq = look(scheduler).kernel.enable_seq
    # SysRq-S: the kernel takes every task back, the pin stays and looks alive.
    Path("/proc/sys/kernel/sysrq").write_text("1")
    Path("/proc/sysrq-trigger").write_text("S")
    wait_for(lambda: state() == "disabled")
    found = look(scheduler)
    assert (found.phase, found.exit.kind) == (Phase.EJECTED, 67)
    assert role.step() is Phase.EJECTED
    assert "SysRq" in (tmp_path / "scheduler-exit.txt").read_text()
    assert state() == "disabled"
    now[0] += 2.0
    assert role.step() is Phase.EJECTED
    assert (state(), look(scheduler).kernel.enable_seq) == ("enabled", seq + 1)


def test_hotplug_is_followed_by_a_new_attach_at_once(scheduler, tmp_path):
    role = SchedulerRole(scheduler, run_dir=str(tmp_path), clock=lambda: 0.0)
    online = Path("/sys/devices/system/cpu/cpu5/online")
    online.write_text("0")
    try:
        wait_for(lambda: state() == "disabled")
        assert look(scheduler).exit.wants_restart
        role.step()
        assert state() == "enabled"
    finally:
        online.write_text("1")
    wait_for(lambda: state() == "disabled")
    role.step()
    assert state() == "enabled"


def test_maps_made_anew_are_noticed(scheduler, tmp_path):
    for pin in ("c2c_control", "c2c_cells", "c2c_cgroups", "c2c_tasks", "c2c_stats"):
        (Path(scheduler) / pin).unlink()
    assert look(scheduler).phase is Phase.STALE
    made = load_maps(scheduler)
    try:
        assert look(scheduler).phase is Phase.STALE
        assert SchedulerRole(scheduler, run_dir=str(tmp_path)).step() is Phase.STALE
        assert look(scheduler).phase is Phase.RUNNING
        assert made.maps.read_control().scheduler_ns > 0
    finally:
        made.close()


@pytest.mark.long
def test_a_thousand_starts_without_one_run_without_policy(scheduler, writer, cgroup):
    place = cgroup()
    cgroup_id = seed(writer, place)
    for number in range(1000):
        start = Start(place, *(SHELL if number % 10 == 0 else ("/bin/true",)))
        start.go()
        assert start.wait() == 0
    counts = read_runs(scheduler)[cgroup_id]
    assert counts.without_policy == 0
    assert counts.with_policy >= 1000
    assert read_counters(scheduler)["lateCgroups"] == 0
