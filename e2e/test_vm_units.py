"""The shipped systemd units, started by systemd with all their restrictions.

The launcher at /opt/claim2core stands for the virtual environment that deploy/README.md makes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.plugin_node import wait_until
from nri_claim2core.bpfmap.loader import load as load_maps
from nri_claim2core.bpfmap.mutate import Writer
from nri_claim2core.bpfmap.pins import DIRECTORY, remove_pins

DEPLOY = Path(__file__).parents[1] / "deploy" / "systemd"
LAUNCHER = Path("/opt/claim2core/bin/nri-claim2core")
UNITS = Path("/run/systemd/system")
STATE = Path("/sys/kernel/sched_ext/state")

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(not STATE.exists(), reason="needs a kernel with sched_ext"),
    pytest.mark.skipif(not UNITS.is_dir(), reason="needs systemd as the first process"),
    pytest.mark.skipif(LAUNCHER.exists(), reason="something is installed at /opt/claim2core"),
]


def systemctl(*arguments):
    return subprocess.run(["systemctl", *arguments], check=True, stdout=subprocess.PIPE).stdout


@pytest.fixture
def command():
    """The installed command; units are known to systemd while it is there."""
    LAUNCHER.parent.mkdir(parents=True)
    LAUNCHER.write_text(f'#!/bin/sh\nexec {sys.executable} -m nri_claim2core.cli.main "$@"\n')
    LAUNCHER.chmod(0o755)
    names = [unit.name for unit in DEPLOY.glob("*.service")]
    for name in names:
        (UNITS / name).write_text((DEPLOY / name).read_text())
    systemctl("daemon-reload")

    def run(*arguments, check=True):
        made = [str(LAUNCHER), *arguments]
        return subprocess.run(made, check=check, capture_output=True)

    yield run
    for name in names:
        systemctl("stop", name)
        (UNITS / name).unlink()
    systemctl("daemon-reload")
    LAUNCHER.unlink()
    LAUNCHER.parent.rmdir()


@pytest.fixture
def maps():
    loaded = load_maps()
    writer = Writer(loaded)
    writer.take()
    yield
    writer.close()
    loaded.close()
    remove_pins()
    Path(DIRECTORY).rmdir()


def test_every_unit_is_as_systemd_wants_it(command):
    units = sorted(map(str, DEPLOY.glob("*.service")))
    verified = subprocess.run(
        ["systemd-analyze", "verify", *units], check=False, stderr=subprocess.PIPE, text=True
    )
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.fixture
def scheduling():
    """The plugin's service with the drop-in, and a configuration that needs it."""
    drop_in = UNITS / "nri-claim2core.service.d" / "scheduling.conf"
    drop_in.parent.mkdir()
    drop_in.write_text((DEPLOY / "scheduling.conf").read_text())
    config = Path("/etc/claim2core/claim2core.yaml")
    config.parent.mkdir()
    config.write_text("scheduling: {enabled: true}\n")
    systemctl("daemon-reload")
    yield
    systemctl("stop", "nri-claim2core")
    remove_pins()
    Path(DIRECTORY).rmdir()
    for path in (drop_in, config):
        path.unlink()
        path.parent.rmdir()


def test_the_plugins_service_may_keep_the_maps(command, scheduling):
    # There is no runtime to register with; the maps are made before that.
    systemctl("start", "--no-block", "nri-claim2core")
    wait_until((Path(DIRECTORY) / "c2c_control").exists, "the maps")
    found = json.loads(command("inspect", "map", "control", "-o", "json").stdout)
    service = systemctl("show", "nri-claim2core", "--property=MainPID", "--value")
    assert found["control"]["writerTgid"] == int(service)


def test_the_scheduler_is_attached_and_outlives_its_unit(command, maps):
    systemctl("start", "nri-claim2core-scheduler")
    wait_until(lambda: STATE.read_text() == "enabled\n", "the attachment")
    refused = command("scheduler", "unload", check=False)
    assert refused.returncode == 3
    assert b"C2C-SCHEDULER-01" in refused.stderr
    systemctl("stop", "nri-claim2core-scheduler")
    assert STATE.read_text() == "enabled\n"
    status = json.loads(command("scheduler", "status", "-o", "json").stdout)
    assert (status["phase"], status["linkPinned"]) == ("running", True)
    command("scheduler", "unload")
    assert STATE.read_text() == "disabled\n"
