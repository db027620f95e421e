"""The embedded runtime: a runtime's NRI end in a library, for tests, scenarios and benchmarks.

    with EmbeddedRuntime("containerd-2.3") as runtime:
        runtime.listen("/tmp/nri.sock")        # a plugin connects and registers
        runtime.wait_for_plugins(1)
        runtime.run_pod(pod)
        created = runtime.create_container(pod, container)

Threads: one accepts and registers external plugins, one at a time; one watches idle sockets.
Every event is sent, and its answer read, on the thread of the caller. One lock orders calls,
registrations and the plugins' own calls.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nri_claim2core.model.errors import UsageError
from nri_claim2core.nri.errors import RegistrationError
from nri_claim2core.nri.runtime.backend import ContainerBackend
from nri_claim2core.nri.runtime.journal import Entry
from nri_claim2core.nri.runtime.launching import parse_file_name, read_drop_in, spawn
from nri_claim2core.nri.runtime.lifecycle import Lifecycle
from nri_claim2core.nri.runtime.link import PluginLink
from nri_claim2core.nri.runtime.profiles_table import Profile
from nri_claim2core.nri.runtime.profiles_table import profile as profile_of
from nri_claim2core.nri.runtime.registration import Quirks, Registrar
from nri_claim2core.nri.runtime.watcher import Watcher

_SHUTDOWN = "the runtime closed the connection"
_NO_QUIRKS = Quirks()


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """A registered plugin."""

    index: str
    name: str
    events: int
    """Subscribed events; mask 0 in its answer is shown as all valid events."""
    uses_state_change: bool
    """Whether the nine events without a reply go to it as StateChange."""
    process_id: int
    """Of a plugin that this runtime launched, else 0."""

    @property
    def label(self) -> str:
        """``NN-name``."""
        return f"{self.index}-{self.name}"


class EmbeddedRuntime(Lifecycle):
    """A containerd or CRI-O as NRI plugins know it. Close it, or use it as a context.

    `profile` is a Profile or its key. `config_text` is the configuration of plugins that are
    attached or launched, unless given there; external plugins always get "". `backend` runs
    the containers (none: nothing runs).
    """

    def __init__(
        self,
        profile: Profile | str,
        *,
        config_text: str = "",
        request_timeout_ms: int = 2000,
        registration_timeout_ms: int = 5000,
        backend: ContainerBackend | None = None,
        quirks: Quirks = _NO_QUIRKS,
        wall_ns: Callable[[], int] = time.time_ns,
        is_recording: bool = True,
    ) -> None:
        self._watcher = Watcher(self._on_ready)
        super().__init__(
            profile_of(profile) if isinstance(profile, str) else profile,
            self._watcher,
            backend=backend,
            request_timeout_ms=request_timeout_ms,
            wall_ns=wall_ns,
            is_recording=is_recording,
        )
        self._config_text = config_text
        self._registrar = Registrar(
            self.profile,
            self._relay,
            self._journal,
            registration_timeout_ms=registration_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            quirks=quirks,
        )
        self._path: Path | None = None
        self._listener: socket.socket | None = None
        self._accepting: threading.Thread | None = None
        self._joining: PluginLink | None = None
        self._abandoned: list[PluginLink] = []
        self._launched: list[tuple[Path, str]] = []
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- plugins

    @property
    def plugins(self) -> tuple[PluginInfo, ...]:
        """The registered plugins in the order in which they are asked."""
        with self._lock:
            return tuple(
                PluginInfo(
                    index=link.index,
                    name=link.name,
                    events=link.events,
                    uses_state_change=link.uses_state_change,
                    process_id=link.process_id,
                )
                for link in self._relay.plugins
                if not link.lost
            )

    @property
    def events(self) -> list[Entry]:
        """What happened since the start or the last `clear_events`, in order (a copy)."""
        return list(self._journal.entries)

    def clear_events(self) -> None:
        """Forget what happened so far."""
        self._journal.entries.clear()

    def listen(self, path: str | os.PathLike[str]) -> None:
        """Accept external plugins at a unix socket; a file in its place is removed.

        Raises OSError; UsageError when it listens already.
        """
        if self._listener is not None or self._is_closed:
            raise UsageError("this runtime listens already, or is closed")
        self._path = Path(path)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(self._path))
            listener.listen()
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._accepting = threading.Thread(
            target=self._accept, args=(listener,), name="nri-accept", daemon=True
        )
        self._accepting.start()

    def attach(
        self, sock: socket.socket, name: str, index: str, *, config_text: str | None = None
    ) -> None:
        """Take in a plugin at the other end of `sock`, as one that the runtime launched.

        Blocking until it is registered and synchronized; raises RegistrationError. The socket
        belongs to the runtime from here on.
        """
        self._take(sock, name, index, self._config_text if config_text is None else config_text)

    def launch(
        self,
        executable: str | os.PathLike[str],
        *,
        config_text: str | None = None,
        config_directory: str | os.PathLike[str] | None = None,
    ) -> int:
        """Start a plugin's executable, named ``NN-name``, and take it in; give its process id.

        Its configuration is `config_text`, else a drop-in of `config_directory`, else the
        runtime's. Blocking as `attach`; raises IdentityError for the file name, OSError when
        it cannot be started, RegistrationError (it is killed then).
        """
        path = Path(executable).absolute()
        index, name = parse_file_name(path.name)
        if config_text is None:
            config_text = self._config_text
            if config_directory is not None:
                config_text = read_drop_in(Path(config_directory), index, name)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                process_id = spawn(path, index, name, theirs)
        except OSError:
            ours.close()
            raise
        self._take(ours, name, index, config_text, process_id)
        self._launched.append((path, config_text))
        return process_id

    def disconnect(self, label: str) -> None:
        """Close the connection of the plugin ``NN-name``, as the runtime does after an error."""
        with self._lock:
            for link in self._relay.plugins:
                if link.label == label:
                    link.close(_SHUTDOWN)
            self._relay.drop_lost()

    def wait_for_plugins(self, count: int = 1, timeout_s: float = 10.0) -> None:
        """Wait until at least `count` plugins are registered; raises TimeoutError. Blocking."""
        self.wait_until(lambda: len(self._relay.plugins) >= count, timeout_s)
        with self._lock:
            pass  # a registration holds it to its end

    def wait_until(self, holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """Wait until `holds()`, asked whenever something has happened; raises TimeoutError.

        `holds` must not take long and must not call the runtime. Blocking.
        """
        if not self._journal.wait(holds, timeout_s):
            raise TimeoutError(f"waited {timeout_s} s in vain")

    def restart(self, *, relaunches: bool = True) -> None:
        """Restart as a runtime process: every connection ends, the node's state stays.

        Listens again at the same path (a new socket) and launches again what was launched.
        What NRI was told about pods and containers is forgotten. Blocking.
        """
        path, launched = self._path, list(self._launched)
        self._end()
        with self._lock:
            self.node.told.clear()
        self._launched.clear()
        if relaunches:
            for executable, config_text in launched:
                with contextlib.suppress(RegistrationError):  # skipped, as at a real start
                    self.launch(executable, config_text=config_text)
        if path is not None:
            self.listen(path)

    def close(self) -> None:
        """End: close all sockets, kill launched plugins, join the threads. Idempotent."""
        if not self._is_closed:
            self._end()
            self._is_closed = True
            self._watcher.close()

    # -- threads

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return  # closed by _end
            link = PluginLink(sock, self.profile)
            self._joining = link
            if self._listener is not listener:
                link.close(_SHUTDOWN)  # _end came between, and did not see this one
            with contextlib.suppress(RegistrationError):  # it is in the journal
                self._join(link, is_external=True, config_text="")
            self._joining = None

    def _on_ready(self, link: PluginLink) -> None:
        with self._lock:
            link.read_available()
            if link in self._abandoned:
                self._hear_abandoned(link)
                return
            self._plugin_calls.serve(link)
            self._relay.drop_lost()

    # Nobody listens to it; but when the peer goes, the socket does not stay.
    def _hear_abandoned(self, link: PluginLink) -> None:
        link.inbox.clear()
        if link.lost:
            self._abandoned.remove(link)
            self._watcher.forget(link)
            self._journal.note(link.label, "dropped", link.lost)

    # -- joining and leaving

    def _take(
        self, sock: socket.socket, name: str, index: str, config_text: str, process_id: int = 0
    ) -> None:
        link = PluginLink(sock, self.profile)
        link.name, link.index, link.process_id = name, index, process_id
        try:
            self._join(link, is_external=False, config_text=config_text)
        except RegistrationError:
            link.close(_SHUTDOWN)
            self._on_drop(link)
            raise

    def _join(self, link: PluginLink, *, is_external: bool, config_text: str) -> None:
        try:
            self._registrar.admit(link, is_external=is_external, config_text=config_text)
            with self._lock:
                self._registrar.synchronize(link, self.node, self._updater)
                self._relay.add(link)
                self._watcher.add(link)
                self._journal.note(link.label, "registered")
                self._plugin_calls.serve(link)
        except RegistrationError as error:
            if is_external and not link.lost:
                with self._lock:
                    self._abandoned.append(link)
                    self._watcher.add(link)
            self._journal.note(link.label, "refused", error.message)
            raise

    def _on_drop(self, link: PluginLink) -> None:
        self._watcher.forget(link)
        if link.process_id:
            # Only a child is killed here, and it stays one until it is waited for.
            with contextlib.suppress(ProcessLookupError):
                os.kill(link.process_id, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(link.process_id, 0)

    def _end(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        joining = self._joining
        if joining is not None:
            joining.close(_SHUTDOWN)
        if self._accepting is not None:
            self._accepting.join()
            self._accepting = None
        if listener is not None:
            listener.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None
        with self._lock:
            for link in [*self._relay.plugins, *self._abandoned]:
                link.close(_SHUTDOWN)
            self._abandoned.clear()
            self._relay.drop_lost()
