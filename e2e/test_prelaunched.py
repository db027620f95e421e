"""The plugin as the runtime's own child: the script of `deploy`, a drop-in, no PATH, no output."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nri_claim2core.lab.containerd import BedOptions, Containerd, Installation
from nri_claim2core.lab.patience import SCALE

pytestmark = pytest.mark.runtime

REPOSITORY = Path(__file__).parents[1]
SCRIPT = REPOSITORY / "deploy" / "prelaunched" / "95-claim2core"


@dataclass(frozen=True)
class Launched:
    bed: Containerd
    log: Path
    http_socket: Path


@pytest.fixture(scope="module")
def launched(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Launched]:
    directory = tmp_path_factory.mktemp("prelaunched")
    log, http_socket = directory / "plugin.log", directory / "http.sock"
    program = directory / "nri-claim2core"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m nri_claim2core "$@"'
        f" --run-dir {directory}\n"
    )
    program.chmod(0o755)
    text = SCRIPT.read_text()
    for shipped, here in (
        ("/opt/claim2core/bin/nri-claim2core", program),
        ("/var/log/nri-claim2core.log", log),
    ):
        assert text.count(shipped) == 1
        text = text.replace(shipped, str(here))
    drop_in = f'mode: verify\nplugin:\n  index: "10"\nmetrics:\n  listen: unix:{http_socket}\n'
    options = BedOptions(
        plugins={SCRIPT.name: text}, plugin_configs={f"{SCRIPT.name}.conf": drop_in}
    )
    with Containerd(installation, options=options) as bed:
        yield Launched(bed, log, http_socket)


def lines_of(launched: Launched) -> dict[str, dict[str, object]]:
    lines = [json.loads(line) for line in launched.log.read_text().splitlines()]
    return {line["msg"]: line for line in lines}


def get(launched: Launched, path: str) -> tuple[int, str]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        deadline = time.monotonic() + 10 * SCALE
        # The endpoint is opened after the runtime has had its answers.
        while client.connect_ex(str(launched.http_socket)) and time.monotonic() < deadline:
            time.sleep(0.02)
        client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = http.client.HTTPResponse(client)
        answer.begin()
        return answer.status, answer.read().decode()


def test_the_file_name_is_the_identity_and_the_script_keeps_the_log(launched: Launched) -> None:
    lines = lines_of(launched)
    assert lines["starting"]["plugin"] == "95-claim2core"
    assert lines["starting"]["socket"] == "inherited"
    assert "registered" in lines
    assert "synchronized" in lines


def test_the_drop_in_is_in_force_and_what_came_too_late_is_said(launched: Launched) -> None:
    lines = lines_of(launched)
    assert lines["configuration"]["from"] == "the runtime's drop-in"
    assert any("mode: 'auto' -> 'verify'" in change for change in lines["configuration"]["changes"])
    assert "plugin.index has no effect here" in launched.log.read_text()


def test_it_is_ready_where_the_drop_in_says(launched: Launched) -> None:
    assert get(launched, "/readyz") == (200, "ok\n")
    assert json.loads(get(launched, "/state")[1])["mode"] == "verify"


def test_it_is_a_child_of_the_runtime_without_a_path(launched: Launched) -> None:
    children = [
        pid
        for task in Path(f"/proc/{launched.bed.pid}/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children}
    (pid,) = [pid for pid, words in commands.items() if b"nri_claim2core" in words]
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert b"NRI_PLUGIN_IDX=95" in environment
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path("/dev/null")
