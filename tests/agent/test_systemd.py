"""Readiness datagrams, received on real sockets as systemd would."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nri_claim2core.agent.systemd import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(5)
        if request.param == "path":
            name = str(tmp_path / "notify")
            receiver.bind(name)
        else:
            name = f"@claim2core-test-{os.getpid()}"
            receiver.bind("\0" + name[1:])
        yield receiver, name


def test_the_manager_hears_each_state(manager: tuple[socket.socket, str]) -> None:
    receiver, address = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    assert notifier.ready("registered with containerd")
    assert receiver.recv(4096) == b"READY=1\nSTATUS=registered with containerd"
    assert notifier.status("waiting\nREADY=1")
    assert receiver.recv(4096) == b"STATUS=waiting READY=1"
    assert notifier.reloading()
    lines = receiver.recv(4096).decode().split("\n")
    assert lines[0] == "RELOADING=1"
    assert lines[1].removeprefix("MONOTONIC_USEC=").isdecimal()
    assert notifier.stopping("bye")
    assert receiver.recv(4096) == b"STOPPING=1\nSTATUS=bye"
    assert notifier.ping()
    assert receiver.recv(4096) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1234"])
def test_without_a_manager_nothing_is_sent(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address})
    assert not notifier.ready("x")


def test_a_manager_that_is_gone_is_survived(tmp_path: Path) -> None:
    assert not Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("x")


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_watchdog_is_fed_twice_per_period(
    environment: dict[str, str], interval_s: float
) -> None:
    assert Notifier(environment).watchdog_interval_s == interval_s
