"""The demo's script and judgment on the embedded runtime, with the real plugin process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nri_claim2core.host.topology import read_topology
from nri_claim2core.lab.demo import Demo
from nri_claim2core.lab.demo_embedded import EmbeddedStage
from nri_claim2core.lab.demo_plan import MIN_CPUS, plan_claims
from nri_claim2core.lab.demo_report import COLUMNS, DemoReport, Row
from nri_claim2core.lab.demo_run import choose
from nri_claim2core.lab.errors import LabError, MissingError
from nri_claim2core.lab.installation import Installation
from nri_claim2core.lab.plugin_process import PluginProcess
from nri_claim2core.model.cpuset import CpuSet

needs_cpus = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < MIN_CPUS, reason=f"needs {MIN_CPUS} CPUs"
)
ACTS = [
    "two claims", "one claim", "claim shared", "no claim", "update to", "restart",
    "plugin killed", "plugin back", "runtime restart", "and still",
]  # fmt: skip


@pytest.fixture
def short_path(tmp_path_factory, monkeypatch):
    """A directory whose sockets fit into 107 bytes."""
    path = tmp_path_factory.mktemp("p")
    if len(str(path)) > 80:
        pytest.skip("the temporary directory's path is too long for sockets")
    return path


def live_members(group):
    """Processes of a group that are not just waiting to be reaped; proc_pid_stat(5)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, _, pgrp, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(pgrp) == group and state != "Z":
                found.append(entry.name)
    return found


def play(stage_class, directory, config=None):
    topology = read_topology()
    usable = CpuSet(os.sched_getaffinity(0))
    with stage_class(topology, usable) as stage:
        plan = plan_claims(topology, stage.usable)
        options = {**stage.plugin_config, **(config or {})}
        with PluginProcess(directory, options, root=stage.root) as plugin:
            said = []
            return Demo(stage, plugin, plan, topology, said.append).play({}), said


@needs_cpus
def test_every_expectation_holds(short_path):
    report, said = play(EmbeddedStage, short_path)
    assert report.failures == ()
    assert [text.rstrip(" 0123456789,-") for text in said] == ACTS
    assert {row.verdict for row in report.rows if row.claims and not row.remark} <= {
        "verified",
        "",
    }
    assert set(report.times_ms) == {
        "pluginStartToRegistered",
        "pluginRestartToRegistered",
        "runtimeBackToRegistered",
    }


@needs_cpus
def test_plugin_that_only_looks_fails_the_demo(short_path):
    """The demo can fail: in mode observe nobody confines, and it has to say so in words."""
    report, _ = play(EmbeddedStage, short_path, {"mode": "observe"})
    assert any(
        failure.startswith("one claim: solver/main: it may use CPUs") for failure in report.failures
    )
    assert any("at its first instruction" in failure for failure in report.failures)
    row = next(row for row in report.rows if row.container == "solver/main")
    assert row.cells[COLUMNS.index("RESULT")] == "FAILED"


@needs_cpus
def test_stage_that_breaks_ends_the_play_with_words(short_path):
    class Broken(EmbeddedStage):
        def stop(self, container):
            raise LabError("the stage broke")

    report, said = play(Broken, short_path)
    assert report.failures == ("the demo stopped: the stage broke",)
    assert said[-1] == "restart"
    assert report.rows


def test_plugin_that_ends_is_told_with_its_log(short_path):
    plugin = PluginProcess(short_path, {"nonsense": True})
    with pytest.raises(LabError, match=r"(?s)the plugin ended.*nonsense"):
        plugin.start()
    plugin.close()


@needs_cpus
def test_processes_of_the_embedded_stage_end_with_it():
    with EmbeddedStage(read_topology(), CpuSet(os.sched_getaffinity(0))) as stage:
        stage.run_pod("p", "uid")
        running = stage.start("p", "c")
        assert stage.first_act(running).cpus == stage.usable
        group = os.getpgid(stage._backend.tgid(running.id))
        assert live_members(group)
    assert live_members(group) == []


def test_report_as_data_and_cells():
    row = Row(
        act="one claim",
        container="p/c",
        claims=("a",),
        asked=CpuSet([1]),
        cpus=CpuSet([0, 1]),
        mems=None,
        first_act=CpuSet([1]),
        verdict="verified",
        added_ms={"CreateContainer": 0.5, "StartContainer": 0.25},
        failures=("why",),
    )
    assert row.cells == ("p/c", "a", "1", "0-1", "-", "1", "verified", "0.75", "FAILED")
    assert replace(row, first_act=row.cpus).cells[COLUMNS.index("FIRST")] == "="
    assert replace(row, first_act=None).cells[COLUMNS.index("FIRST")] == "-"
    assert replace(row, failures=(), remark="no plugin").cells[-1] == "no plugin"
    assert replace(row, failures=()).cells[-1] == "ok"
    report = DemoReport(
        stage="s", machine={}, rows=(row,), times_ms={}, not_shown=(), failures=("x",)
    )
    assert report.fields()["ok"] is False
    assert report.fields()["rows"][0]["effective"] == {"cpus": "0-1", "mems": None}


def installation(text, tmp_path):
    version = tuple(map(int, text.split(".")))
    return Installation(version=version, bin_dir=tmp_path, runc=tmp_path)


def test_choice_of_containerd(tmp_path):
    found = [installation(text, tmp_path) for text in ("2.1.9", "2.4.2", "2.14.0")]
    assert choose(found, None).text == "2.14.0"
    assert choose(found, "2.4").text == "2.4.2"
    assert choose(found, "2.1").text == "2.1.9"
    assert choose(found, "2.1.9").text == "2.1.9"
    with pytest.raises(MissingError, match=r"no containerd 2\.2 .*2\.1\.9, 2\.4\.2, 2\.14\.0"):
        choose(found, "2.2")
    with pytest.raises(MissingError, match="found: none"):
        choose([], None)


@needs_cpus
def test_command_says_first_where_it_plays(short_path):
    done = subprocess.run(
        [sys.executable, "-m", "nri_claim2core", "demo", "--embedded"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "TMPDIR": str(short_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Demo on the embedded runtime")
    assert "Not shown here: a real runtime" in done.stdout.replace("\n  ", " ")
    assert list(short_path.iterdir()) == []
