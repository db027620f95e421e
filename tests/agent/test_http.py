"""The small HTTP server, asked by the standard library's client and by rude ones."""

from __future__ import annotations

import contextlib
import errno
import http.client
import logging
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nri_claim2core.agent import http as http_module
from nri_claim2core.agent.config_values import ListenAddress
from nri_claim2core.agent.http import (
    MAX_CONNECTIONS,
    MAX_REQUEST_BYTES,
    HttpServer,
    Request,
    Response,
)
from nri_claim2core.model.errors import HostError


def echo(request: Request) -> Response:
    return Response(f"{sorted(request.query)} {request.accept}".encode())


def fail(_request: Request) -> Response:
    raise ValueError("broken page")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    made = HttpServer(ListenAddress("127.0.0.1", 0), {"/echo": echo, "/fail": fail})
    made.start()
    yield made
    made.close()


def ask(
    server: HttpServer, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, bytes, http.client.HTTPMessage]:
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        client.request(method, path, headers=headers or {})
        answer = client.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        client.close()


def raw(server: HttpServer, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := client.recv(65536):
            received += chunk
        return received


def test_a_page_is_served_with_its_query_and_accept_header(server: HttpServer) -> None:
    status, body, headers = ask(server, "/echo?verbose&x=1", headers={"ACCEPT": "a/b"})
    assert (status, body) == (200, b"['verbose', 'x'] a/b")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["Connection"] == "close"


def test_head_gives_the_length_and_no_body(server: HttpServer) -> None:
    status, body, headers = ask(server, "/echo", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) == len("[] ")
    assert raw(server, b"HEAD /echo HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")


def test_other_methods_and_paths_are_refused_with_a_way_out(server: HttpServer) -> None:
    assert ask(server, "/echo", "POST")[0] == 405
    status, body, _ = ask(server, "/")
    assert (status, body) == (404, b"served here: /echo /fail\n")


def test_a_broken_page_is_logged_and_the_server_lives(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert ask(server, "/fail")[0] == 500
    assert "broken page" in caplog.text
    assert ask(server, "/echo")[0] == 200


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /echo\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /echo HTTP/2\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n" + b"A: " + b"b" * MAX_REQUEST_BYTES, 431),
    ],
)
def test_what_is_not_a_request_is_told_so(server: HttpServer, data: bytes, status: int) -> None:
    assert raw(server, data).startswith(f"HTTP/1.1 {status} ".encode())


def test_a_client_that_leaves_early_gets_nothing(server: HttpServer) -> None:
    assert raw(server, b"GET /echo HTTP/1.1\r\n") == b""


def test_a_burst_of_connections_is_bounded_though_threads_are_slow_to_end(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Threads that never notice that their connection was dropped.
    served: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
    monkeypatch.setattr(HttpServer, "_serve", lambda _self, connection: served.put(connection))
    address = ("127.0.0.1", server.port)
    clients = [socket.create_connection(address, 10) for _ in range(2 * MAX_CONNECTIONS + 1)]
    try:
        for dropped in clients[: MAX_CONNECTIONS + 1]:
            assert dropped.recv(1) == b""
    finally:
        for client in clients:
            served.get(timeout=10).close()
            client.close()


def test_idle_connections_cannot_keep_a_probe_out(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "REQUEST_LIMIT_S", 3600.0)
    idle = [
        socket.create_connection(("127.0.0.1", server.port), timeout=10)
        for _ in range(MAX_CONNECTIONS)
    ]
    try:
        assert ask(server, "/echo")[0] == 200
        # The oldest had to make room.
        assert idle[0].recv(1) == b""
    finally:
        for connection in idle:
            connection.close()


def test_a_connection_that_says_nothing_is_dropped_in_time(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "REQUEST_LIMIT_S", 0.05)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        assert client.recv(1) == b""


def test_without_a_thread_to_be_had_a_client_is_dropped_and_the_next_is_served(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    refused: list[str] = []

    def start_second(thread: threading.Thread) -> None:
        if thread.name == "http-request" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_second)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        assert client.recv(1) == b""
    assert refused
    assert ask(server, "/echo")[0] == 200


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(HostError, match=f"127.0.0.1:{port}: Address already in use") as caught:
            HttpServer(ListenAddress("127.0.0.1", port), {}).start()
    assert "metrics.listen" in caught.value.hint


def test_after_close_nobody_answers(server: HttpServer) -> None:
    port = server.port
    server.close()
    with pytest.raises(OSError):  # noqa: PT011 - refused or reset
        socket.create_connection(("127.0.0.1", port), timeout=10)


class TestUnixSocket:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "http.sock"

    @pytest.fixture
    def serve(self, path: Path) -> Iterator[Callable[[], HttpServer]]:
        made: list[HttpServer] = []

        def start() -> HttpServer:
            server = HttpServer(ListenAddress(path=str(path)), {"/echo": echo})
            server.start()
            made.append(server)
            return server

        yield start
        for server in made:
            server.close()

    def get(self, path: Path) -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(path))
            client.sendall(b"GET /echo HTTP/1.0\r\n\r\n")
            return client.recv(65536)

    def test_only_root_may_ask(self, path: Path, serve: Callable[[], HttpServer]) -> None:
        serve()
        assert self.get(path).startswith(b"HTTP/1.1 200 OK")
        assert path.stat().st_mode & 0o777 == 0o600

    def test_the_socket_is_removed_on_close(
        self, path: Path, serve: Callable[[], HttpServer]
    ) -> None:
        serve().close()
        assert not path.exists()

    def test_a_dead_socket_is_replaced(self, path: Path, serve: Callable[[], HttpServer]) -> None:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        serve()
        assert self.get(path).startswith(b"HTTP/1.1 200 OK")

    def test_a_living_socket_is_left_alone(
        self, path: Path, serve: Callable[[], HttpServer]
    ) -> None:
        serve()
        with pytest.raises(HostError, match="Address already in use"):
            serve()
        assert self.get(path).startswith(b"HTTP/1.1 200 OK")

    def test_a_busy_socket_is_not_taken_for_a_dead_one(
        self, path: Path, serve: Callable[[], HttpServer]
    ) -> None:
        with contextlib.ExitStack() as held:
            busy = held.enter_context(socket.socket(socket.AF_UNIX))
            busy.bind(str(path))
            busy.listen(0)
            refusal = 0
            while refusal == 0:  # until the queue is full
                waiting = held.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                refusal = waiting.connect_ex(str(path))
            assert refusal == errno.EAGAIN
            with pytest.raises(HostError):
                serve()
        assert path.exists()

    def test_a_file_of_somebody_else_is_left_alone(
        self, path: Path, serve: Callable[[], HttpServer]
    ) -> None:
        path.write_text("precious")
        with pytest.raises(HostError):
            serve()
        assert path.read_text() == "precious"
