from __future__ import annotations

import signal
import subprocess
import sys

from nri_claim2core.lab.processes import in_mount_namespace, kill_all, mount_namespace

# Ignores SIGTERM, so that only SIGKILL ends it; stdin keeps it from outliving a failed test.
STUBBORN = (
    "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True); sys.stdin.read()"
)


def start():
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"up\n"
    return process


def test_kill_all_ends_members_that_appear_late():
    with start() as first, start() as second:
        alive = {first.pid: first, second.pid: second}
        rounds = []

        def members():
            rounds.append(None)
            left = {pid for pid, process in alive.items() if process.poll() is None}
            # The second one is only seen once the first is gone.
            return left & {first.pid} or left

        assert kill_all(members, deadline_s=10) == set()
        assert {process.returncode for process in alive.values()} == {-signal.SIGKILL}


def test_kill_all_spares_a_number_that_is_no_member_any_more():
    with start() as process:
        answers = iter([{process.pid}, set(), set()])
        assert kill_all(lambda: next(answers), deadline_s=10) == set()
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(10) == 0


def test_kill_all_reports_survivors_at_its_deadline():
    assert kill_all(lambda: {1}, deadline_s=0) == {1}


def test_processes_of_our_own_namespace():
    with start() as process:
        assert mount_namespace(process.pid) == mount_namespace("self")
        assert process.pid in in_mount_namespace(mount_namespace("self"))
        process.stdin.close()
    assert mount_namespace(process.pid) is None
