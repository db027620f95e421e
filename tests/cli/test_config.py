"""`config check|show|schema` as a user runs it, on files in a scratch tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from nri_claim2core.cli.main import main

SAMPLE = Path(__file__).parents[2] / "config" / "claim2core.yaml"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "etc/claim2core"
    (directory / "conf.d").mkdir(parents=True)
    (directory / "claim2core.yaml").write_text("mode: verify\nlog:\n  level: debug\n")
    (directory / "conf.d/10-x.yaml").write_text("log:\n  level: error\n")
    return tmp_path


def run_json(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> dict[str, Any]:
    assert main([*argv, "-o", "json"]) == code
    made = json.loads(capsys.readouterr().out)
    assert made["apiVersion"] == "claim2core.gthulhu.io/v1alpha1"
    return dict(made)


def test_check_takes_the_nodes_own_files(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--root", str(root)]) == 0
    assert capsys.readouterr().out == "2 files checked, no problems.\n"


def test_check_without_any_file_says_that_defaults_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "check", "--root", str(tmp_path)]) == 0
    assert "the defaults hold" in capsys.readouterr().out


def test_check_reports_problems_of_all_files(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main_file = root / "etc/claim2core/claim2core.yaml"
    dropped = root / "etc/claim2core/conf.d/10-x.yaml"
    main_file.write_text("mod: verify\n")
    dropped.write_text("\nlog: [error]\n")
    made = run_json(capsys, "config", "check", "--root", str(root), code=1)
    assert made["kind"] == "ConfigCheck"
    assert made["files"] == [str(main_file), str(dropped)]
    assert [(p["code"], p["file"], p["line"]) for p in made["problems"]] == [
        ("C2C-CONFIG-01", str(main_file), 1),
        ("C2C-CONFIG-02", str(dropped), 2),
    ]
    assert made["problems"][0]["hint"] == "did you mean mode?"


def test_check_of_named_files_ignores_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text('plugin:\n  index: 95\n  name: "' + "word " * 30 + '"\n')
    assert main(["config", "check", str(SAMPLE), str(bad)]) == 1
    text = capsys.readouterr().out
    assert f"{bad}:2: plugin.index" in " ".join(text.split())
    assert 'hint: write it in quotes: "95"' in text
    assert text.endswith("2 problems. Correct, then run this check again.\n")
    assert all(len(line) <= max(80, len(str(bad)) + 3) for line in text.splitlines())


def test_a_file_that_cannot_be_read_is_unreachable(tmp_path: Path) -> None:
    assert main(["config", "check", str(tmp_path / "none.yaml")]) == 3
    assert main(["config", "show", "--config", str(tmp_path / "none.yaml")]) == 3


def test_show_gives_every_value_and_its_origin(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = root / "95-claim2core.conf"
    runtime.write_text("mode: observe\nclaims:\n  onForged: reject\n")
    argv = ["config", "show", "--root", str(root), "--runtime-config", str(runtime)]
    made = run_json(capsys, *argv, "--origin", "--set", "plugin.index=07")
    assert made["kind"] == "EffectiveConfig"
    main_file = root / "etc/claim2core/claim2core.yaml"
    expected = yaml.safe_load(SAMPLE.read_text())
    expected["mode"] = "verify"
    expected["log"]["level"] = "error"
    expected["claims"]["onForged"] = "reject"
    expected["plugin"]["index"] = "07"
    assert made["config"] == expected
    assert {path: origin for path, origin in made["origins"].items() if origin != "default"} == {
        "mode": f"{main_file}:1",
        "log.level": f"{root}/etc/claim2core/conf.d/10-x.yaml:2",
        "claims.onForged": "text from the runtime:3",
        "plugin.index": "command line",
    }


def test_show_as_a_table_names_every_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "show", "--root", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "cdi.specDirs                /etc/cdi, /var/run/cdi\n" in text
    assert "validateAdjustments         false\n" in text
    assert "next: --origin" in text


def test_show_refuses_a_configuration_with_problems(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "etc/claim2core/claim2core.yaml").write_text("mode: nothing\n")
    assert main(["config", "show", "--root", str(root)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "claim2core.yaml:1: mode: expected" in captured.err


def test_schema_is_printed_ready_for_an_editor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(yaml.safe_load(SAMPLE.read_text()))
    assert not Draft202012Validator(schema).is_valid({"mod": "auto"})


def test_version_as_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("nri-claim2core 0.")
    assert run_json(capsys, "version")["kind"] == "Version"
