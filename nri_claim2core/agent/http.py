"""A very small HTTP server for probes, metrics and state documents.

The standard library's server costs nine MiB (it imports ssl and email), more than the rest of
the plugin; what is needed is GET, one request per connection. A connection has a few seconds
in all, a request 8 KiB, and there are never more than a handful of connections: the oldest is
dropped for a new one, so clients that hold connections open cannot keep probes out.

Runs on daemon threads of its own, started after registration. Nothing here may touch the
handlers' locks for long: providers give snapshots.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from nri_claim2core.agent.config_values import ListenAddress
from nri_claim2core.model.errors import HostError

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES: Final = 8192
MAX_CONNECTIONS: Final = 8
"""A scraper, two probes and a few people."""

REQUEST_LIMIT_S: Final = 5.0
"""From accept to the last byte of the answer."""

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_UNREAD: Final = frozenset((400, 405, 431))
"""Answers that may be given before the whole request was read."""
_LINGER_S: Final = 0.5
_LINGER_READS: Final = 8
_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """What a provider may want to know."""

    query: frozenset[str]
    "Names in the query string, such as `verbose`."
    accept: str = ""
    "The Accept header."


@dataclass(frozen=True, slots=True)
class Response:
    """What a provider gives."""

    body: bytes
    status: int = 200
    content_type: str = _TEXT


Provider = Callable[[Request], Response]


class HttpServer:
    """Serves GET on one address until closed.

    Raises on `start`: HostError when the address cannot be had.
    """

    def __init__(self, address: ListenAddress, routes: Mapping[str, Provider]) -> None:
        self._address: Final = address
        self._routes: Final = dict(routes)
        self._lock: Final = threading.Lock()
        self._connections: Final[dict[socket.socket, float]] = {}
        self._listener: socket.socket | None = None
        self._bound_inode = 0

    def start(self) -> None:
        """Listen and serve on threads of its own.

        Raises: HostError naming the address and why.
        """
        try:
            listener = self._listen()
        except OSError as error:
            raise HostError(
                f"cannot listen on {self._address}: {error.strerror or error}",
                path=self._address.path,
                errno=error.errno or 0,
                hint="set metrics.listen to another address, or to empty text for none",
                code="C2C-HTTP-01",
            ) from error
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="http", daemon=True).start()

    @property
    def port(self) -> int:
        """The TCP port that is listened on; 0 for a unix socket or before `start`."""
        if self._listener is None or self._address.path:
            return 0
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stop listening and drop what is open; a unix socket is removed if it is still ours."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        listener.close()
        with self._lock:
            for connection in self._connections:
                _drop(connection)
        if self._address.path:
            with contextlib.suppress(OSError):
                path = Path(self._address.path)
                if path.stat().st_ino == self._bound_inode:
                    path.unlink()

    def _listen(self) -> socket.socket:
        path, host = self._address.path, self._address.host
        target: str | tuple[str, int] = path
        if not path:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            target = (host, self._address.port)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            if path:
                _remove_dead_socket(Path(path))
            listener.bind(target)
            if path:
                Path(path).chmod(0o600)
                self._bound_inode = Path(path).stat().st_ino
            listener.listen(MAX_CONNECTIONS)
        except OSError:
            listener.close()
            raise
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._listener is not listener:
                    return
                # Out of descriptors or the like: the node's problem, and it may pass.
                time.sleep(1)
                continue
            with self._lock:
                if len(self._connections) >= MAX_CONNECTIONS:
                    oldest = min(self._connections, key=self._connections.__getitem__)
                    # Out of the count at once: its thread may take a while to notice.
                    del self._connections[oldest]
                    _drop(oldest)
                self._connections[connection] = time.monotonic()
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="http-request", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                # No thread to be had: as with descriptors.
                with self._lock:
                    self._connections.pop(connection, None)
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + REQUEST_LIMIT_S
        try:
            response, is_head = self._answer(connection, deadline)
            _send(connection, response, is_head, deadline)
            if response.status in _UNREAD:
                _linger(connection)
        except OSError:
            pass  # the client left, was too slow, or was dropped
        finally:
            with self._lock:
                self._connections.pop(connection, None)
            connection.close()

    def _answer(self, connection: socket.socket, deadline: float) -> tuple[Response, bool]:
        head = _read_head(connection, deadline)
        if head is None:
            return _plain(431, f"requests are at most {MAX_REQUEST_BYTES} bytes"), False
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):  # noqa: PLR2004
            return _plain(400, "not an HTTP/1 request"), False
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _plain(405, "only GET is served"), False
        path, _, query = target.partition("?")
        provider = self._routes.get(unquote(path))
        if provider is None:
            return _plain(404, "served here: " + " ".join(sorted(self._routes))), False
        request = Request(
            frozenset(part.partition("=")[0] for part in query.split("&") if part),
            _header(lines[1:], "accept"),
        )
        try:
            return provider(request), method == "HEAD"
        except Exception:
            log.exception("page failed", extra={"page": path})
            return _plain(500, "failed, see the log"), False


def _plain(status: int, text: str) -> Response:
    return Response(f"{text}\n".encode(), status)


def _header(lines: list[str], name: str) -> str:
    for line in lines:
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    return ""


def _read_head(connection: socket.socket, deadline: float) -> bytes | None:
    data = bytearray()
    while b"\r\n\r\n" not in data:
        if len(data) >= MAX_REQUEST_BYTES:
            return None
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = connection.recv(MAX_REQUEST_BYTES - len(data))
        if not chunk:
            raise ConnectionError
        data += chunk
    return bytes(data)


def _send(connection: socket.socket, response: Response, is_head: bool, deadline: float) -> None:
    head = (
        f"HTTP/1.1 {response.status} {_REASONS[response.status]}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    connection.settimeout(max(0.001, deadline - time.monotonic()))
    # With a timeout set, sendall keeps to it over all of its writes.
    connection.sendall(head.encode() + (b"" if is_head else response.body))


def _linger(connection: socket.socket) -> None:
    # Closing with unread bytes resets the connection and takes the answer with it.
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(_LINGER_S)
    for _ in range(_LINGER_READS):
        if not connection.recv(MAX_REQUEST_BYTES):
            return


def _drop(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _remove_dead_socket(path: Path) -> None:
    # Left by a process that was killed; one that answers belongs to somebody alive.
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
            path.unlink()
