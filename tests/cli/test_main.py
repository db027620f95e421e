"""The command frame: finding commands, exit codes, errors in words."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import types
from collections.abc import Callable

import pytest

from nri_claim2core.cli import main as frame
from nri_claim2core.cli.commands_table import COMMANDS
from nri_claim2core.model.errors import (
    Claim2CoreError,
    ConfigError,
    HostError,
    PeerError,
    StaleError,
    UsageError,
)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], None]:
    def install(run: Callable[[], int]) -> None:
        module = types.ModuleType("probe")
        module.DESCRIPTION = "probe"
        module.add_arguments = lambda parser: parser.add_argument("--flag", action="store_true")
        module.run = lambda args: run()
        monkeypatch.setitem(sys.modules, "probe", module)
        monkeypatch.setitem(COMMANDS, "probe", ("probe", "probe"))

    return install


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_listed_command_exists_and_explains_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module_name, help_line = COMMANDS[name]
    assert len(help_line) <= 60
    module = importlib.import_module(module_name)
    module.add_arguments(argparse.ArgumentParser())
    with pytest.raises(SystemExit) as done:
        frame.main([name, "--help"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: nri-claim2core {name}")
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["help"]])
def test_help_lists_all_commands_in_80_columns(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert frame.main(argv) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert all(len(line) <= 80 for line in text.splitlines())


def test_no_command_is_wrong_usage_and_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main([]) == 2
    assert "commands:" in capsys.readouterr().out


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main(["confg"]) == 2
    assert "did you mean config?" in capsys.readouterr().err


def test_wrong_arguments_are_wrong_usage(command: Callable[[Callable[[], int]], None]) -> None:
    command(lambda: 0)
    with pytest.raises(SystemExit) as done:
        frame.main(["probe", "--flog"])
    assert done.value.code == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("c"), 1),
        (ConfigError("c", code="C2C-CONFIG-04"), 3),
        (UsageError("u"), 2),
        (HostError("h", path="/x"), 3),
        (PeerError("p"), 3),
        (StaleError("s"), 4),
    ],
)
def test_an_error_is_told_in_words_with_hint_and_code(
    error: Claim2CoreError,
    code: int,
    command: Callable[[Callable[[], int]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    error.hint = "do this"

    def run() -> int:
        raise error

    command(run)
    assert frame.main(["probe"]) == code
    err = capsys.readouterr().err
    assert err == f"error: {error.message}\n  hint: do this\n  code: {error.code}\n"


def test_ctrl_c_ends_quietly(
    command: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> int:
        raise KeyboardInterrupt

    command(run)
    assert frame.main(["probe"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("argv", [["config", "schema"], ["--help"]])
def test_a_reader_that_leaves_early_is_no_error(argv: list[str]) -> None:
    program = "import sys; from nri_claim2core.cli.main import main; sys.exit(main(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_help_imports_no_command_and_no_library() -> None:
    program = (
        "import sys; from nri_claim2core.cli.main import main; main(['--help']);"
        "heavy = {'argparse', 'yaml', 'msgspec', 'google', 'logging', 'prometheus_client'};"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
