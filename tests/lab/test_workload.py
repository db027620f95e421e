"""The workload's testimony is compared with what Python's own system calls say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nri_claim2core.lab import workload
from nri_claim2core.lab.errors import LabError, MissingError
from nri_claim2core.lab.installation import find_busybox

SOURCE = Path(__file__).parents[2] / "e2e" / "workload" / "firstmask.c"


@pytest.mark.parametrize(
    ("text", "bits"),
    [("3", {0, 1}), ("0", set()), ("80000000", {31}), ("1,00000000", {32}), ("a5", {0, 2, 5, 7})],
)
def test_parse_mask(text, bits):
    assert workload.parse_mask(text) == bits


def test_lines_of_both_workloads():
    compiled = workload.parse_first_mask("cpus=2 cpu=1 mems=1 pid=1")
    assert (compiled.cpus, compiled.cpu, compiled.mems) == ({1}, 1, {0})
    shell = workload.parse_first_mask("cpus=00000000,00000002 mems=00000000,00000001 pid=7")
    assert (shell.cpus, shell.cpu, shell.mems) == ({1}, None, {0})
    assert workload.parse_first_mask("cpus=1 cpu=0 pid=1").mems is None
    with pytest.raises(LabError, match="not a line"):
        workload.parse_first_mask("hello")


def program(tmp_path, image):
    path = tmp_path / "firstmask"
    path.write_bytes(image)
    path.chmod(0o755)
    return path


def run_on(cpu, *command):
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
    ).stdout


def compiled_or_skip():
    image = workload.compile_first_mask(SOURCE)
    if image is None:
        pytest.skip("no C compiler on this machine")
    return image


def test_compiled_workload_sees_its_own_affinity(tmp_path):
    path = program(tmp_path, compiled_or_skip())
    cpu = max(os.sched_getaffinity(0))
    seen = workload.parse_first_mask(run_on(cpu, path))
    assert (seen.cpus, seen.cpu) == ({cpu}, cpu)
    full = workload.parse_first_mask(subprocess.check_output([path], text=True))
    assert full.cpus == os.sched_getaffinity(0)


def test_compiled_workload_asks_first(tmp_path):
    if shutil.which("strace") is None:
        pytest.skip("no strace on this machine")
    path = program(tmp_path, compiled_or_skip())
    trace = tmp_path / "trace"
    subprocess.run(["strace", "-o", trace, path], check=True, capture_output=True)
    calls = [line.partition("(")[0] for line in trace.read_text().splitlines()]
    assert calls[:2] == ["execve", "sched_getaffinity"]


@pytest.fixture
def busybox():
    try:
        return find_busybox()
    except MissingError as error:
        pytest.skip(str(error))


def test_shell_workload_sees_its_own_affinity(tmp_path, monkeypatch, busybox):
    monkeypatch.setattr(workload, "find_busybox", lambda: busybox)
    *_, image = workload.lab_images()
    script = program(tmp_path, image.files[workload.FIRST_MASK])
    cpu = max(os.sched_getaffinity(0))
    seen = workload.parse_first_mask(run_on(cpu, busybox, "sh", script))
    assert seen.cpus == {cpu}
    assert seen.mems == workload.parse_mask(
        next(
            line.split()[1]
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("Mems_allowed:")
        )
    )


def test_source_that_does_not_compile_is_named(tmp_path):
    compiled_or_skip()
    broken = tmp_path / "broken.c"
    broken.write_text("this is no C")
    with pytest.raises(LabError, match=r"broken\.c does not compile"):
        workload.compile_first_mask(broken)


def test_log_lines_drop_the_prefix_and_a_missing_log_is_empty(tmp_path):
    log = tmp_path / "0.log"
    assert workload.log_lines(log) == []
    log.write_text(
        "2026-12-01T05:30:00.000000001Z stdout F cpus=1 cpu=0 pid=1\n"
        "2026-12-01T05:30:00.000000002Z stderr F \n"
    )
    assert workload.log_lines(log) == ["cpus=1 cpu=0 pid=1", ""]
    assert workload.wait_for_first_mask(log).cpus == {0}
    with pytest.raises(LabError, match="holds 2 lines"):
        workload.wait_for_lines(log, 3, deadline_s=0)


def test_program_compiled_before_takes_the_place_of_the_compiler(monkeypatch, busybox):
    monkeypatch.setenv(workload.PREBUILT, str(busybox))
    image = workload.lab_images()[-1]
    assert image.files == {workload.FIRST_MASK: busybox.read_bytes()}


@pytest.mark.parametrize("content", [None, b"#!/bin/sh\n"])
def test_program_that_cannot_run_in_an_empty_root_is_named(tmp_path, monkeypatch, content):
    path = tmp_path / "firstmask"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv(workload.PREBUILT, str(path))
    with pytest.raises(LabError, match=workload.PREBUILT):
        workload.prebuilt_first_mask()
