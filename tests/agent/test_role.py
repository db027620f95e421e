"""What a reload, and the runtime's own text, change in a plugin that runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nri_claim2core.agent.role import PluginRole, RoleOptions
from nri_claim2core.model.envelope import Mode
from nri_claim2core.nri import api

RELOADS = "claim2core_config_reloads_total"
LAST_GOOD = "claim2core_config_last_reload_successful"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    # The role sends the process's log to standard error.
    root = logging.getLogger()
    handlers, level, raises = list(root.handlers), root.level, logging.raiseExceptions
    yield
    root.handlers[:], logging.raiseExceptions = handlers, raises
    root.setLevel(level)


@pytest.fixture
def configure(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "claim2core.yaml"
        path.write_text(text)
        return path

    return write


def reload(role: PluginRole) -> None:
    role._apply(role._source.reload(), "files")


def mode(role: PluginRole) -> Mode:
    return role.plugin.decider.rules.mode


def test_a_reload_makes_new_rules_for_the_next_decision(configure) -> None:
    role = PluginRole(RoleOptions(config_path=configure("mode: observe\n")))
    assert mode(role) is Mode.OBSERVE
    evidence = role._evidence
    configure("mode: verify\nclaims:\n  onForeignViolation: reject\n")
    reload(role)
    assert mode(role) is Mode.VERIFY
    assert role.plugin.decider.rules.rejects_foreign_violation
    assert role.metrics.value(RELOADS, "applied") == 1
    # What was read of the node is still good, unless it is read elsewhere now.
    assert role._evidence is evidence
    configure("mode: verify\nkubelet:\n  root: /elsewhere\n")
    reload(role)
    assert role._evidence is not evidence


def test_a_file_with_a_mistake_keeps_the_rules_and_says_so(configure, caplog) -> None:
    role = PluginRole(RoleOptions(config_path=configure("mode: observe\n")))
    path = configure("mode: enforce\nclaims:\n  onForgd: reject\n")
    reload(role)
    assert mode(role) is Mode.OBSERVE
    assert role.metrics.value(RELOADS, "refused") == 1
    assert role.metrics.value(LAST_GOOD) == 0
    [record] = [r for r in caplog.records if r.message == "configuration refused"]
    assert record.levelno == logging.ERROR
    assert f"{path}:3" in record.problems[0]
    assert "onForged" in record.problems[0]
    configure("mode: enforce\n")
    reload(role)
    assert (mode(role), role.metrics.value(LAST_GOOD)) == (Mode.ENFORCE, 1)


def test_the_runtimes_text_holds_where_the_nodes_own_file_is_silent(configure) -> None:
    role = PluginRole(RoleOptions(config_path=configure("log:\n  level: debug\n")))
    role._on_configure(
        api.ConfigureRequest(
            config="mode: verify\nlog:\n  level: error\n",
            runtime_name="containerd",
            runtime_version="v2.2.0",
        )
    )
    assert mode(role) is Mode.VERIFY
    assert logging.getLogger().level == logging.DEBUG


@pytest.mark.parametrize(
    ("name", "version", "warned"),
    [
        ("containerd", "v2.2.7", False),
        ("cri-o", "1.35.0", False),
        ("containerd", "main", True),
        ("runtime", "1.0.0", True),
    ],
)
def test_an_unknown_runtime_is_named(configure, caplog, name, version, warned) -> None:
    role = PluginRole(RoleOptions(config_path=configure("")))
    role._on_configure(api.ConfigureRequest(runtime_name=name, runtime_version=version))
    assert ["unknown runtime"] * warned == [r.message for r in caplog.records]


@pytest.mark.parametrize(
    ("configured", "runtime_ms", "seconds"),
    [
        # A quarter of what the runtime waits, half a second at most.
        ("auto", 1000, 0.25),
        ("auto", 20_000, 0.5),
        ("1s", 2000, 1.0),
        # An answer later than the runtime waits would end the plugin.
        ("10s", 2000, 1.5),
    ],
)
def test_the_handler_deadline(configure, configured, runtime_ms, seconds) -> None:
    text = f"plugin:\n  handlerDeadline: {configured}\n"
    role = PluginRole(RoleOptions(config_path=configure(text)))
    assert role._handler_deadline(runtime_ms) == seconds


def test_a_plugin_that_the_runtime_started_is_named_by_its_file(configure, monkeypatch) -> None:
    config = PluginRole(RoleOptions(config_path=configure("")))._source.current.config
    assert PluginRole._identity(config) == ("claim2core", "95")
    monkeypatch.setenv("NRI_PLUGIN_SOCKET", "3")
    assert PluginRole._identity(config) == (None, None)
