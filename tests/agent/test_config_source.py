"""Layers, their precedence, and reloads on real files - also as a ConfigMap volume swaps them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nri_claim2core.agent import config_source
from nri_claim2core.agent.config import Config
from nri_claim2core.agent.config_load import Settings
from nri_claim2core.agent.config_problem import ConfigProblems, Problem, Rule
from nri_claim2core.agent.config_source import ConfigSource, diff
from nri_claim2core.model.envelope import Mode


@pytest.fixture
def main_file(tmp_path: Path) -> Path:
    return tmp_path / "claim2core.yaml"


def drop_in(main_file: Path, name: str, text: str) -> Path:
    directory = main_file.parent / "conf.d"
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(text)
    return path


def origins(source: ConfigSource) -> dict[str, str]:
    return {path: str(setting.place) for path, setting in source.current.settings.items()}


def test_without_files_the_defaults_hold(tmp_path: Path) -> None:
    source = ConfigSource(root=tmp_path)
    assert source.load().config == Config()
    assert source.path == tmp_path / "etc/claim2core/claim2core.yaml"
    assert source.current.files == ()


def test_a_file_that_was_asked_for_has_to_exist(main_file: Path) -> None:
    with pytest.raises(ConfigProblems, match="No such file or directory") as caught:
        ConfigSource(main_file).load()
    assert caught.value.problems[0].rule is Rule.UNREADABLE


def test_each_layer_wins_over_the_one_before(main_file: Path) -> None:
    main_file.write_text("mode: enforce\nclaims:\n  onForged: reject\nlog:\n  level: error\n")
    second = drop_in(
        main_file, "20-b.yaml", "log:\n  level: debug\nclaims:\n  onMalformed: reject\n"
    )
    first = drop_in(main_file, "10-a.yaml", "log:\n  level: warning\nmode: verify\n")
    source = ConfigSource(main_file, overrides=["mode=observe"])
    source.load()
    outcome = source.take_runtime_text(
        "mode: auto\nclaims:\n  onForged: ignore\n  onUnverified: enforce\n"
    )
    assert outcome.result == "applied"
    assert origins(source) == {
        "mode": "command line",
        "claims.onForged": f"{main_file}:3",
        "claims.onUnverified": "text from the runtime:4",
        "claims.onMalformed": f"{second}:4",
        "log.level": f"{second}:2",
    }
    assert source.current.config.mode is Mode.OBSERVE
    assert source.current.config.log.level.value == "debug"
    assert source.current.files == (str(main_file), str(first), str(second))


def test_the_runtimes_text_holds_where_there_is_no_own_file(tmp_path: Path) -> None:
    source = ConfigSource(root=tmp_path)
    source.load()
    source.take_runtime_text("mode: verify\n")
    assert source.current.config.mode is Mode.VERIFY


def test_lists_are_replaced_not_joined(main_file: Path) -> None:
    main_file.write_text("reservedNamespaces: [a, b]\n")
    drop_in(main_file, "x.yaml", "reservedNamespaces: [c]\n")
    assert ConfigSource(main_file).load().config.reserved_namespaces == ("c",)


def test_problems_of_all_layers_come_together_even_of_overridden_values(main_file: Path) -> None:
    main_file.write_text("mode: sometimes\n")
    other = drop_in(main_file, "x.yaml", "mode: auto\nlogs: {}\n")
    with pytest.raises(ConfigProblems) as caught:
        ConfigSource(main_file, overrides=["log.level=loud"]).load()
    assert [str(p.place) for p in caught.value.problems] == [
        f"{main_file}:1",
        f"{other}:2",
        "command line",
    ]
    assert str(caught.value).startswith("configuration has 3 problems:\n")


def test_only_visible_yaml_files_are_dropped_in_and_others_are_named(main_file: Path) -> None:
    main_file.write_text("")
    drop_in(main_file, ".hidden.yaml", "mode: nonsense")
    drop_in(main_file, "README", "mode: nonsense")
    ignored = drop_in(main_file, "mine.yml", "mode: nonsense")
    loaded = ConfigSource(main_file).load()
    assert loaded.config == Config()
    assert [str(note) for note in loaded.notes] == [
        f"{ignored}: not read: only *.yaml is - rename it"
    ]


def test_a_fifo_in_place_of_a_file_is_refused_and_not_waited_for(main_file: Path) -> None:
    os.mkfifo(main_file)
    with pytest.raises(ConfigProblems, match="is not a regular file"):
        ConfigSource(main_file).load()


def test_a_bad_new_file_keeps_what_is_in_force_and_is_not_tried_again(main_file: Path) -> None:
    main_file.write_text("mode: enforce\n")
    source = ConfigSource(main_file)
    before = source.load()
    main_file.write_text("mode: enforced\n")
    assert source.changed()
    outcome = source.reload()
    assert outcome.result == "refused"
    assert outcome.loaded is before
    assert source.current is before
    assert [str(p.place) for p in outcome.problems] == [f"{main_file}:1"]
    assert not source.changed()
    main_file.write_text("mode: verify\n")
    assert source.changed()
    assert source.reload().result == "applied"
    assert source.current.config.mode is Mode.VERIFY


def test_a_file_that_vanishes_does_not_mean_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "etc/claim2core/claim2core.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("mode: enforce\n")
    source = ConfigSource(root=tmp_path)
    source.load()
    path.unlink()
    assert source.changed()
    assert source.reload().result == "refused"
    assert source.current.config.mode is Mode.ENFORCE


def test_a_drop_in_that_vanishes_no_longer_holds(main_file: Path) -> None:
    main_file.write_text("")
    path = drop_in(main_file, "x.yaml", "mode: enforce\n")
    source = ConfigSource(main_file)
    source.load()
    path.unlink()
    outcome = source.reload()
    assert [str(change) for change in outcome.changes] == ["mode: 'enforce' -> 'auto'"]


def test_options_that_need_a_start_are_reported_and_keep_their_running_value(
    main_file: Path,
) -> None:
    main_file.write_text('plugin:\n  index: "90"\n')
    source = ConfigSource(main_file)
    source.load()
    main_file.write_text(
        'plugin:\n  index: "10"\n  socketPath: /x\n'
        "validateAdjustments: true\nlog:\n  level: debug\n"
    )
    outcome = source.reload()
    assert [str(c) for c in outcome.pending] == [
        "plugin.index: '90' -> '10'",
        "plugin.socketPath: '/var/run/nri/nri.sock' -> '/x'",
    ]
    assert [str(c) for c in outcome.changes] == [
        "validateAdjustments: False -> True",
        "log.level: 'info' -> 'debug'",
    ]
    assert source.current.config.plugin.index == "90"
    assert origins(source)["plugin.index"] == f"{main_file}:2"
    assert "plugin.socketPath" not in source.current.settings
    # Still pending when nothing else changes.
    again = source.reload()
    assert again.result == "unchanged"
    assert len(again.pending) == 2


def test_the_swap_of_a_configmap_volume_is_seen_as_one_change(tmp_path: Path) -> None:
    # The layout and the order of steps are those of the kubelet's AtomicWriter: data in a
    # directory named by time, `..data` a link to it, visible names links through `..data`.
    volume = tmp_path / "volume"
    volume.mkdir()

    def publish(stamp: str, mode: str) -> None:
        data = volume / stamp
        data.mkdir()
        (data / "claim2core.yaml").write_text(f"mode: {mode}\n")
        (volume / "..data_tmp").symlink_to(stamp)
        (volume / "..data_tmp").rename(volume / "..data")

    publish("..2026_01_01", "verify")
    (volume / "claim2core.yaml").symlink_to("..data/claim2core.yaml")
    source = ConfigSource(volume / "claim2core.yaml")
    source.load()
    assert not source.changed()
    publish("..2026_01_02", "enforce")
    assert source.changed()
    assert source.reload().result == "applied"
    assert source.current.config.mode is Mode.ENFORCE
    assert not source.changed()


def test_a_configmap_mounted_as_the_drop_in_directory_is_read_once(main_file: Path) -> None:
    main_file.write_text("")
    data = drop_in(main_file, "x.yaml", "").parent / "..2026_01_01"
    data.mkdir()
    (data / "x.yaml").write_text("mode: verify\n")
    (data.parent / "..data").symlink_to(data.name)
    (data.parent / "x.yaml").unlink()
    (data.parent / "x.yaml").symlink_to("..data/x.yaml")
    loaded = ConfigSource(main_file).load()
    assert loaded.config.mode is Mode.VERIFY
    assert loaded.files == (str(main_file), str(data.parent / "x.yaml"))


def test_a_bad_text_from_the_runtime_is_refused_and_forgotten(main_file: Path) -> None:
    main_file.write_text("log:\n  level: debug\n")
    source = ConfigSource(main_file)
    source.load()
    source.take_runtime_text("mode: verify\n")
    outcome = source.take_runtime_text("mode: maybe\n")
    assert outcome.result == "refused"
    assert [str(p.place) for p in outcome.problems] == ["text from the runtime:1"]
    assert source.reload().result == "unchanged"
    assert source.current.config.mode is Mode.VERIFY


def test_files_that_change_while_they_are_read_are_read_again(
    main_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_file.write_text("mode: verify\n")
    drop_in(main_file, "x.yaml", "log:\n  level: debug\n")
    source = ConfigSource(main_file)
    once = source._read_once
    reads = []

    def read_and_swap() -> object:
        loaded = once()
        if not reads:
            main_file.write_text("mode: enforce # now longer\n")
        reads.append(loaded.config.mode)
        return loaded

    monkeypatch.setattr(source, "_read_once", read_and_swap)
    assert source.load().config.mode is Mode.ENFORCE
    assert reads == [Mode.VERIFY, Mode.ENFORCE]
    assert not source.changed()


def test_diff_of_equal_configurations_is_empty() -> None:
    assert diff(Config(), Config()) == ()


def test_a_node_without_files_does_not_load_a_yaml_parser() -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from nri_claim2core.agent.config_source import ConfigSource;"
        "ConfigSource(root=Path('/nowhere')).load();"
        "heavy = {'yaml', 'json', 'logging', 'asyncio', 'ssl', 'socket', 'google'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_what_is_in_force_can_be_read_while_files_are(
    main_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_file.write_text("mode: verify\n")
    source = ConfigSource(main_file)
    source.load()
    reading, go_on = threading.Event(), threading.Event()
    real = config_source.read_file

    def hanging(path: Path) -> tuple[Settings, list[Problem]]:
        reading.set()
        assert go_on.wait(10)
        return real(path)

    monkeypatch.setattr(config_source, "read_file", hanging)
    reload = threading.Thread(target=source.reload)
    reload.start()
    found: list[Mode] = []
    try:
        assert reading.wait(10)
        reader = threading.Thread(target=lambda: found.append(source.current.config.mode))
        reader.start()
        reader.join(5)
        assert found == [Mode.VERIFY]
    finally:
        go_on.set()
        reload.join(10)
