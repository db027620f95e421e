"""Readiness for systemd: datagrams to NOTIFY_SOCKET, nothing where there is none.

Source: sd_notify(3). Never raises and never blocks for long: a service manager that does not
listen must not disturb the start of containers.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

log = logging.getLogger(__name__)

_SEND_TIMEOUT_S: Final = 0.5
_MAX_STATUS_CHARACTERS: Final = 200


class Notifier:
    """Tells the service manager about this process; every method says whether it was sent."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        if address.startswith("@"):  # abstract namespace
            address = "\0" + address[1:]
        self._address: Final = address if address.startswith(("/", "\0")) else ""
        self.watchdog_interval_s: Final = _watchdog_interval(environment)
        "Half of the time within which a ping is wanted; 0 = none is wanted."

    def ready(self, status: str) -> bool:
        """Say that the start, or a reload, is complete."""
        return self._send("READY=1", _status(status))

    def status(self, text: str) -> bool:
        """Set the line that `systemctl status` shows."""
        return self._send(_status(text))

    def reloading(self) -> bool:
        """Say that a reload began; `ready` ends it."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> bool:
        """Say that the shutdown began."""
        return self._send("STOPPING=1", _status(status))

    def ping(self) -> bool:
        """Say that the service is alive; due every `watchdog_interval_s`."""
        return self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> bool:
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(_SEND_TIMEOUT_S)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.debug("service manager not reached", extra={"reason": error.strerror})
            return False
        return True


def _status(text: str) -> str:
    # A newline would begin the next assignment.
    return "STATUS=" + " ".join(text.split())[:_MAX_STATUS_CHARACTERS]


def _watchdog_interval(environment: Mapping[str, str]) -> float:
    wanted_us = environment.get("WATCHDOG_USEC", "")
    for_process = environment.get("WATCHDOG_PID", "")
    if not wanted_us.isdecimal() or (for_process and for_process != str(os.getpid())):
        return 0.0
    return int(wanted_us) / 2e6
