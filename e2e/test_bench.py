"""The benchmark: its arithmetic by hand, and one small run of the Go plugin with itself."""

from __future__ import annotations

import json

import pytest

from e2e.bench import __main__ as bench
from e2e.bench.figures import Figure, Goal, quantile, summary, table
from e2e.peers.go_runtime import peer_binary
from e2e.peers.need import need_go_peers


@pytest.mark.parametrize(
    ("share", "expected"),
    # Nearest rank: ceil(share * 10), counted from one.
    [(0.5, 5), (0.51, 6), (0.9, 9), (0.99, 10), (0.999, 10), (0.1, 1), (0.0, 1), (1.0, 10)],
)
def test_quantile_is_the_nearest_rank(share, expected):
    assert quantile([10, 3, 7, 1, 9, 2, 8, 4, 6, 5], share) == expected


def test_summary_of_a_thousand():
    samples = list(range(1, 1001))
    assert summary(samples) == {
        "count": 1000,
        "min": 1,
        "p50": 500,
        "p90": 900,
        "p99": 990,
        "p99.9": 999,
        "max": 1000,
    }


def test_table_has_ratios_and_verdicts():
    against_go = Figure(name="call", unit="us", pick=max, goal=Goal())
    against_go.samples = {"ours": [150.0], "go": [100.0], "none": [1.0]}
    limited = Figure(name="memory", unit="MiB", pick=max, goal=Goal(limit=32))
    limited.samples = {"ours": [24.0], "go": [12.0]}
    lines = table(
        [against_go, limited],
        {"ours": "ours", "go": "go", "none": "nobody"},
        yardstick="go",
        baseline="none",
        ours="ours",
    ).splitlines()
    assert lines[0].split() == ["ours", "go", "nobody", "ours/go", "goal"]
    assert lines[1].split() == ["call", "[us]", "150", "100", "1.00", "1.50x", "<=", "go", "missed"]
    assert lines[2].split()[2:] == ["24.0", "12.0", "-", "2.00x", "<=", "32.0", "MiB", "met"]


def test_a_small_run_against_itself(monkeypatch, capsys):
    need_go_peers()
    monkeypatch.setattr(bench, "SYNC_SIZES", (20,))
    command = f"{peer_binary('minimal')} -socket={{socket}} -idx={{index}} -name={{name}}"
    assert bench.main(["--smoke", "-o", "json", "--without", "binding", "--ours", command]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "BenchReport"
    figures = {figure["name"]: figure["candidates"] for figure in document["figures"]}
    assert set(figures["CreateContainer p50"]) == {"ours", "go", "none"}
    for figure, candidates in figures.items():
        for name in ("ours", "go"):
            # A run this short may use less than a clock tick.
            assert candidates[name]["value"] > 0 or figure.startswith("CPU time")
    # The runtime alone does no call at all; a plugin costs a round trip.
    calls = figures["StartContainer p50"]
    assert calls["none"]["value"] < calls["go"]["value"]
    assert calls["go"]["distribution"]["count"] == 20


def test_a_small_run_of_our_plugin(monkeypatch, capsys):
    """The default command line starts, registers with the Go library, and pins."""
    need_go_peers()
    monkeypatch.setattr(bench, "SYNC_SIZES", (20,))
    assert bench.main(["--smoke"]) == 0
    heading = capsys.readouterr().out.splitlines()[1]
    assert heading.split("  ")[0] == ""
    assert [title in heading for title in ("claim2core", "bare Plugin", "Go stub")] == [True] * 3


def test_a_missing_command_is_named(capsys):
    need_go_peers()
    assert bench.main(["--smoke", "--without", "binding", "--ours", "/nonexistent/plugin"]) == 1
    assert "/nonexistent/plugin" in capsys.readouterr().err
