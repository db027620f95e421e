"""Drive the Go NRI runtime library (``adaptation/``) from Python.

``GoRuntime`` starts the program, sends one command per line and sorts what comes back into
replies (in order) and events (whenever they happen). Everything waits with a limit, nothing
polls: a reader thread wakes the waiters.

The program is built by ``e2e/setup/peers.sh``; ``peer_binary`` says where it is, or why not.
Messages travel in protobuf JSON, so a field that one side does not know is an error here.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from nri_claim2core.nri import nri_pb2 as api

Line = Mapping[str, Any]
M = TypeVar("M", bound=Message)

# Generous: the machine may be busy; only a hang gets here.
DEFAULT_WAIT_S = 30.0


class PeerError(Exception):
    """The Go program ended, or did not answer in time."""


class PeerMissingError(PeerError):
    """The Go program has not been built on this machine."""


def peer_binary(name: str) -> Path:
    """Give the path of a built Go peer (``adaptation`` or ``minimal``).

    Raises: PeerMissingError, naming the script that builds it.
    """
    cache = os.environ.get("CLAIM2CORE_CACHE")
    if not cache:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        cache = str(Path(base) / "nri-claim2core")
    path = Path(cache) / "peers" / name
    if not os.access(path, os.X_OK):
        raise PeerMissingError(f"{path} is missing; run e2e/setup/peers.sh")
    return path


def claim_uid(claim: int) -> str:
    """Give the UID of a claim of generated containers (``bench``, ``generate_state``)."""
    return f"c1a10000-0000-4000-8000-{claim:012d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Answer to one command."""

    command: str
    ok: bool
    error: str
    duration_ns: int
    """Time of the library call alone: what the runtime was held up."""
    plugins: int
    """How many plugins the library kept after the call."""
    line: Line
    """The whole line."""

    @property
    def adjust(self) -> api.ContainerAdjustment:
        """The collected adjustment of a ``create``."""
        return _parse(self.line["adjust"], api.ContainerAdjustment())

    @property
    def container(self) -> api.Container:
        """The container of a ``create`` with all adjustments applied by the library."""
        return _parse(self.line["container"], api.Container())

    @property
    def updates(self) -> list[api.ContainerUpdate]:
        """The collected container updates."""
        return parse_updates(self.line)


def parse_updates(line: Line) -> list[api.ContainerUpdate]:
    """Give the container updates of a reply or event line."""
    return [_parse(entry, api.ContainerUpdate()) for entry in line.get("update") or ()]


class GoRuntime:
    """One running Go runtime; a context manager that stops it.

    The library listens only after ``start()``, so that state can be set before.
    """

    def __init__(
        self,
        socket_path: Path,
        *,
        plugin_dir: Path | None = None,
        config_dir: Path | None = None,
        name: str = "containerd",
        version: str = "v2.4.2",
        request_timeout_s: float = 2.0,
        registration_timeout_s: float = 5.0,
        trace: bool = False,
    ) -> None:
        """Start the program.

        Raises: PeerMissingError when it has not been built.
        """
        self.socket_path = socket_path
        command = [
            str(peer_binary("adaptation")),
            f"-socket={socket_path}",
            f"-plugins={plugin_dir or ''}",
            f"-configs={config_dir or ''}",
            f"-name={name}",
            f"-version={version}",
            f"-request-timeout={request_timeout_s}s",
            f"-registration-timeout={registration_timeout_s}s",
            "-verbose",
            f"-trace={str(trace).lower()}",
        ]
        # A file, not a pipe: nobody has to read it, and a Go panic is long.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr
        )
        self._changed = threading.Condition()
        self._replies: list[Line] = []
        self._answered = 0
        self._events: list[Line] = []
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="go-runtime-reader", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        """Give the runtime itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the program."""
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the Go program."""
        return self._process.pid

    @property
    def events(self) -> list[Line]:
        """All events up to now, oldest first."""
        with self._changed:
            return list(self._events)

    def close(self) -> None:
        """Ask the program to stop, and make it when it does not."""
        if self._process.poll() is None:
            try:
                self._write({"cmd": "quit"})
                self._process.wait(timeout=5)
            except (PeerError, subprocess.TimeoutExpired):
                self.kill()
        self._process.wait()
        self._reader.join(timeout=DEFAULT_WAIT_S)
        self._stderr.close()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            # What a program that died has not read cannot be flushed any more.
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def kill(self) -> None:
        """Kill the program: what a plugin sees when a runtime crashes."""
        self._process.kill()
        self._process.wait()

    # Commands ---------------------------------------------------------------------------

    def start(self) -> Reply:
        """Start the library: pre-launched plugins first, then the socket."""
        return self.command("start")

    def state(
        self, pods: Iterable[api.PodSandbox] = (), containers: Iterable[api.Container] = ()
    ) -> Reply:
        """Set what plugins get in Synchronize."""
        return self.command(
            "state", pods=[_form(pod) for pod in pods], containers=[_form(c) for c in containers]
        )

    def generate_state(
        self, count: int, *, size_bytes: int = 5900, claims: int = 0, pods: int = 0
    ) -> Reply:
        """Set ``count`` generated containers; ``pods`` 0 means one pod for each."""
        return self.command("state", count=count, bytes=size_bytes, claims=claims, pod_count=pods)

    def bench(
        self,
        count: int,
        *,
        warmup: int = 0,
        size_bytes: int = 5900,
        claims: int = 0,
        cgroup_parent: str = "",
        pause_us: int = 0,
        wait_s: float = 300.0,
    ) -> tuple[list[int], list[int]]:
        """Take ``count`` containers through their life, one after the other.

        Units/shape: (CreateContainer times, StartContainer times) in nanoseconds.
        Raises: PeerError when a call failed or a plugin was lost on the way.
        """
        reply = self.command(
            "bench",
            count=count,
            warmup=warmup,
            bytes=size_bytes,
            claims=claims,
            cgroup_parent=cgroup_parent,
            pause_us=pause_us,
            wait_s=wait_s,
        )
        if not reply.ok:
            raise PeerError(f"bench: {reply.error}")
        return list(reply.line["create_ns"]), list(reply.line["start_ns"])

    def relay(
        self,
        command: str,
        pod: api.PodSandbox,
        container: api.Container | None = None,
        *,
        resources: api.LinuxResources | None = None,
    ) -> Reply:
        """Make one NRI call: run_pod, create, post_create, start_container, update, …."""
        self.submit(command, pod, container, resources=resources)
        return self.wait_reply()

    def submit(
        self,
        command: str,
        pod: api.PodSandbox,
        container: api.Container | None = None,
        *,
        resources: api.LinuxResources | None = None,
    ) -> None:
        """Send one NRI call without waiting; ``wait_reply`` gives the answer."""
        fields: dict[str, Any] = {"cmd": command, "pod": _form(pod)}
        if container is not None:
            fields["container"] = _form(container)
        if resources is not None:
            fields["resources"] = _form(resources)
        self._write(fields)

    def answer_updates(
        self, *, error: str = "", failed: Iterable[api.ContainerUpdate] = ()
    ) -> Reply:
        """Say how UpdateContainers of plugins will be answered from now on."""
        return self.command("on_update", error=error, failed=[_form(update) for update in failed])

    def command(self, command: str, *, wait_s: float = DEFAULT_WAIT_S, **fields: object) -> Reply:
        """Send a command and give its answer."""
        self._write({"cmd": command, **fields})
        return self.wait_reply(wait_s)

    # Waiting ----------------------------------------------------------------------------

    def wait_reply(self, wait_s: float = DEFAULT_WAIT_S) -> Reply:
        """Give the next answer. Raises: PeerError when none comes in time."""
        with self._changed:
            wanted = self._answered
            self._wait(lambda: len(self._replies) > wanted, wait_s, "a reply")
            line = self._replies[wanted]
            self._answered += 1
        return Reply(
            command=line["reply"],
            ok=line["ok"],
            error=line.get("error", ""),
            duration_ns=line.get("duration_ns", 0),
            plugins=line.get("plugins", 0),
            line=line,
        )

    def wait_event(
        self,
        name: str,
        *,
        after: int = 0,
        wait_s: float = DEFAULT_WAIT_S,
        where: Callable[[Line], bool] = lambda _: True,
    ) -> Line:
        """Give the first event of that name from position ``after`` of ``events`` on.

        Raises: PeerError when none comes in time.
        """

        def found() -> Line | None:
            for line in self._events[after:]:
                if line["event"] == name and where(line):
                    return line
            return None

        with self._changed:
            self._wait(lambda: found() is not None, wait_s, f"event {name!r}")
            line = found()
        assert line is not None
        return line

    def wait_registered(self, plugin: str, *, after: int = 0) -> Line:
        """Wait until ``NN-name`` is in the list of plugins that get events."""
        return self.wait_event(
            "registered", after=after, where=lambda line: bool(line["plugin"] == plugin)
        )

    def _wait(self, ready: Callable[[], bool], wait_s: float, what: str) -> None:
        # Called with the condition held.
        deadline = time.monotonic() + wait_s
        while not ready():
            if self._ended:
                raise PeerError(f"the Go runtime ended before {what}: {self._complaint()}")
            left = deadline - time.monotonic()
            if left <= 0:
                raise PeerError(f"no {what} within {wait_s} s; last: {self._events[-3:]}")
            self._changed.wait(left)

    def _write(self, fields: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(fields).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise PeerError(f"the Go runtime has ended: {self._complaint()}") from error

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            with self._changed:
                (self._replies if "reply" in line else self._events).append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _complaint(self) -> str:
        said = ""
        if not self._stderr.closed:
            self._stderr.seek(0)
            said = self._stderr.read(2000).decode(errors="replace").strip()
        failures = [line["error"] for line in self._events if line["event"] == "failed"]
        return "; ".join([*failures, said]) or "no message"


def _form(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(message)


def _parse(form: Mapping[str, Any] | None, message: M) -> M:
    if form is not None:
        json_format.ParseDict(dict(form), message)
    return message
