"""Our plugin as a process of its own, the way a node runs it, watched from outside.

It is started with a configuration file and asked through its own listener, so what is shown
is what an operator would see. It never outlives its owner: ended on close, and by the kernel
when the owner dies without closing (where setpriv knows how to ask for that).
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import nri_claim2core
from nri_claim2core.lab.errors import LabError
from nri_claim2core.lab.patience import SCALE

_READY_DEADLINE_S = 20.0 * SCALE
_STOP_DEADLINE_S = 10.0 * SCALE
_LISTEN_DEADLINE_S = 5.0 * SCALE
_POLL_S = 0.01
_LOG_TAIL_LINES = 15
_REGISTERED = 'claim2core_nri_registrations_total{result="success"}'
_CONNECTED = "claim2core_nri_connected"


class PluginProcess:
    """One plugin process; `directory` takes its configuration, log, lock and socket.

    `config` is written as JSON, which is YAML; the listener is set here. Keep the directory's
    path short, socket paths are limited to 107 bytes.
    """

    def __init__(
        self, directory: Path, config: Mapping[str, Any], *, root: Path = Path("/")
    ) -> None:
        self._directory = directory
        self._socket = directory / "state.sock"
        self._root = root
        self._config = {**config, "metrics": {"listen": f"unix:{self._socket}"}}
        self._process: subprocess.Popen[bytes] | None = None
        self.log_file = directory / "plugin.log"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """TGID of the running plugin. Raises LabError when it does not run."""
        if self._process is None or self._process.poll() is not None:
            raise LabError(f"the plugin does not run\n{self.log_tail()}")
        return self._process.pid

    def start(self) -> float:
        """Start it; returns when it is registered and synchronized, with the seconds that took.

        Raises: LabError with its log's tail when it ends or is not ready in time.
        """
        file = self._directory / "claim2core.yaml"
        file.write_text(json.dumps(self._config, indent=2))
        notices = self._directory / "notify.sock"
        notices.unlink(missing_ok=True)
        started = time.monotonic()
        # As systemd does it: the plugin says READY=1 to a datagram socket.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(notices))
            listener.settimeout(_POLL_S)
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                    [*_bound_to_parent(), *self._command(file)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={
                        **os.environ,
                        "PYTHONPATH": _python_path(),
                        "NOTIFY_SOCKET": str(notices),
                    },
                    # Ctrl-C in the caller's terminal is the caller's.
                    start_new_session=True,
                )
            while not self._said_ready(listener):
                if self._process.poll() is not None:
                    raise LabError(f"the plugin ended\n{self.log_tail()}")
                if time.monotonic() - started > _READY_DEADLINE_S:
                    raise LabError(f"the plugin did not become ready\n{self.log_tail()}")
        return time.monotonic() - started

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End it with SIGTERM, then SIGKILL; may be called again."""
        self._end(signal.SIGTERM)

    def state(self) -> dict[str, Any]:
        """Give the PluginState document. Raises LabError when it cannot be had."""
        document = json.loads(self._get("/state"))
        if not isinstance(document, dict):
            raise LabError("the plugin's state is no object")
        return document

    def registrations(self) -> int:
        """Give how often it has registered since it started."""
        return int(self.metric(_REGISTERED))

    def metric(self, series: str) -> float:
        """Give the value of one series of its metrics, named with its labels.

        Raises: LabError when it has none of that name.
        """
        for line in self._get("/metrics").splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        raise LabError(f"the plugin has no metric {series}")

    def wait_registered(self, count: int, deadline_s: float = _READY_DEADLINE_S) -> float:
        """Wait until it has registered `count` times and is connected; gives the seconds.

        Raises: LabError with its log's tail when that takes longer.
        """
        started = time.monotonic()
        while self.registrations() < count or self.metric(_CONNECTED) != 1:
            if time.monotonic() - started > deadline_s:
                raise LabError(f"the plugin did not register again\n{self.log_tail()}")
            time.sleep(_POLL_S)
        return time.monotonic() - started

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """Give the last lines of its log, empty if there is none."""
        with suppress(OSError):
            return "\n".join(self.log_file.read_text("utf-8", "replace").splitlines()[-lines:])
        return ""

    @staticmethod
    def _said_ready(listener: socket.socket) -> bool:
        try:
            return b"READY=1" in listener.recv(4096).split(b"\n")
        except TimeoutError:
            return False

    def _command(self, config: Path) -> Sequence[str]:
        return (
            sys.executable, "-m", "nri_claim2core", "plugin",
            "--config", str(config),
            "--root", str(self._root),
            "--run-dir", str(self._directory / "run"),
        )  # fmt: skip

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _get(self, path: str) -> str:
        deadline = time.monotonic() + _LISTEN_DEADLINE_S
        while True:
            try:
                return self._get_once(path)
            except OSError as error:
                # The listener opens shortly after the registration, which comes first.
                if time.monotonic() > deadline or self._process is None:
                    tail = self.log_tail()
                    raise LabError(f"the plugin does not answer: {error}\n{tail}") from error
            time.sleep(_POLL_S)

    def _get_once(self, path: str) -> str:
        connection = _UnixConnection(self._socket)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
        except http.client.HTTPException as error:
            raise LabError(f"the plugin answers {path} with nonsense: {error}") from error
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise LabError(f"the plugin answers {path} with {response.status}: {body[:200]}")
        return body


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _bound_to_parent() -> Sequence[str]:
    setpriv, shell = shutil.which("setpriv"), shutil.which("sh")
    if not (setpriv and shell):
        return ()
    # An owner that died before the kernel was asked sends no signal any more: look once.
    alive = '[ "$PPID" = "$0" ] && exec "$@"'
    return (setpriv, "--pdeathsig", "TERM", shell, "-c", alive, str(os.getpid()))


def _python_path() -> str:
    # Also from a checkout that is not installed, and with what our own process was given.
    own = str(Path(nri_claim2core.__file__).parent.parent)
    return os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH"))))
