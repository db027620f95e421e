"""The demo as a user runs it: its judgment, and that it leaves nothing behind however it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from nri_claim2core.lab.patience import SCALE

pytestmark = pytest.mark.runtime

ROOT = Path(__file__).parents[1]


@pytest.fixture
def place():
    """A temporary directory of its own for one demo, so that its traces are told from others'."""
    directory = Path(tempfile.mkdtemp(prefix="d-", dir="/tmp"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def start_demo(place, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "nri_claim2core", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place), "PYTHONUNBUFFERED": "1"},
    )


def run_demo(place, *arguments):
    demo = start_demo(place, *arguments)
    out, err = demo.communicate(timeout=120 * SCALE)
    return demo.returncode, out, err


def command_lines():
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                yield int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue


def cgroup_parents(place):
    """Cgroups of the beds below `place`, from the command lines of their holders."""
    return {
        words[-2].decode().strip("/")
        for _, words in command_lines()
        if b"nri_claim2core.lab.holder" in words and os.fsencode(place) in words[-3]
    }


def traces(place, parents):
    """Processes and cgroups that are left, looked for in the kernel's own lists."""
    found = [
        f"process {pid}: {words}"
        for pid, words in command_lines()
        if any(os.fsencode(place) in word for word in words)
    ]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "cgroup").read_text()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state == "Z":
                # Ended; whether it is reaped is up to the machine's init.
                continue
            found += [f"process {entry.name} in {p}" for p in parents if f"/{p}/" in text]
    return found + [
        str(path) for parent in parents for path in Path("/sys/fs/cgroup").glob(f"*/{parent}")
    ]


def wait_for_line(stream, text):
    for line in stream:
        if text in line:
            return
    pytest.fail(f"the demo never said {text!r}")


def test_demo_on_containerd(installation, place):
    code, out, err = run_demo(place, "--containerd", installation.text, "-o", "json")
    assert code == 0, out + err
    report = json.loads(out)
    assert report["kind"] == "DemoReport"
    assert report["ok"]
    assert f"containerd {installation.text}" in report["stage"]
    rows = report["rows"]
    claiming = [row for row in rows if row["claims"] and not row["remark"]]
    assert len(claiming) >= 15
    for row in claiming:
        assert row["effective"]["cpus"] == row["asked"], row
        assert row["firstAct"] in (None, row["asked"]), row
    # Sets and order are those of the script: one claim, two claims, one claim shared, no claim.
    by_act = {}
    for row in rows:
        by_act.setdefault(row["act"], []).append(row)
    assert [len(row["claims"]) for row in by_act["two claims"]] == [2]
    shared = by_act["claim shared"]
    assert len(shared) == 2
    assert shared[0]["asked"] == shared[1]["asked"]
    assert by_act["no claim"][0]["claims"] == []
    started = [row for row in claiming if row["firstAct"]]
    assert all(row["addedMs"]["CreateContainer"] > 0 for row in started)
    assert list(place.iterdir()) == []


def test_table_says_where_it_ran(installation, place):
    code, out, _ = run_demo(place, "--containerd", installation.text)
    assert code == 0
    assert out.startswith(f"Demo on a private containerd {installation.text}")
    assert "expectations held" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root; without, the error is that")
def test_unknown_version_is_an_error(place):
    code, out, err = run_demo(place, "--containerd", "0.9")
    assert code == 3
    assert out == ""
    assert "no containerd 0.9 on this machine" in err


@pytest.mark.parametrize(
    ("number", "act"),
    [(signal.SIGINT, "two claims"), (signal.SIGTERM, "plugin killed"), (signal.SIGTERM, "restart")],
)
def test_interrupted_demo_leaves_nothing(installation, place, number, act):
    demo = start_demo(place, "--containerd", installation.text)
    with demo:
        wait_for_line(demo.stderr, act)
        parents = cgroup_parents(place)
        assert len(parents) == 1
        assert traces(place, parents)
        demo.send_signal(number)
        # A second one, as from an impatient user, must not stop the cleaning up.
        demo.send_signal(signal.SIGTERM)
        _, err = demo.communicate(timeout=60 * SCALE)
    assert demo.returncode == 128 + number
    assert "everything was removed" in err
    assert traces(place, parents) == []
    assert list(place.iterdir()) == []


def test_killed_demo_leaves_no_process(installation, place):
    demo = start_demo(place, "--containerd", installation.text)
    with demo:
        wait_for_line(demo.stderr, "no claim")
        parents = cgroup_parents(place)
        demo.kill()
    deadline = time.monotonic() + 30 * SCALE
    while left := traces(place, parents):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
