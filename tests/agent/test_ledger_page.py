"""The ledger page as tools read it: whoever answers, whatever the answer."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from nri_claim2core.agent.config_values import ListenAddress
from nri_claim2core.agent.http import HttpServer, Response
from nri_claim2core.agent.ledger_page import parse_ledger, read_ledger

ROW = {
    "map": "cgroups",
    "key": 4711,
    "generation": 12,
    "claims": ["u1", "u2"],
    "pod": "batch/solver",
    "container": "main",
    "containerId": "c0ffee",
    "cgroup": "/kubepods/c0ffee",
    "cgroupId": 4711,
    "class": "latency-critical",
    "cell": 3,
    "state": "done",
}


def page(*rows, **changes):
    made = {"apiVersion": "claim2core.gthulhu.io/v1alpha1", "kind": "Ledger", "rows": list(rows)}
    return json.dumps(made | changes).encode()


def test_a_row_as_the_plugin_writes_it():
    row = parse_ledger(page(ROW)).maybe_row("cgroups", 4711)
    assert (row.generation, row.claims, row.pod, row.container) == (
        12,
        ("u1", "u2"),
        "batch/solver",
        "main",
    )
    assert (row.container_id, row.cgroup, row.cgroup_id) == ("c0ffee", "/kubepods/c0ffee", 4711)
    assert (row.exec_class, row.cell, row.state) == ("latency-critical", 3, "done")


def test_the_maps_own_name_is_the_same_table():
    assert parse_ledger(page(ROW | {"map": "c2c_cgroups"})).maybe_row("cgroups", 4711)


@pytest.mark.parametrize(
    "row",
    [7, None, [], {}, {"map": "tasks"}, {"map": "tasks", "key": "12"}],
)
def test_what_names_no_row_is_left_out(row):
    assert set(parse_ledger(page(row, ROW)).rows) == {("cgroups", 4711)}


def test_fields_of_another_type_are_unknown():
    row = {"map": "tasks", "key": 5, "claims": "u1", "pod": 3, "generation": "x", "cell": None}
    found = parse_ledger(page(row)).maybe_row("tasks", 5)
    assert (found.claims, found.pod, found.generation, found.cell) == ((), "", 0, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"\xff",
        b"[]",
        b"3",
        b"[" * 100_000,
        page(kind="PluginState"),
        page(apiVersion="v1"),
        page(rows=None),
    ],
)
def test_what_is_no_ledger(body):
    with pytest.raises(ValueError, match=r".+"):
        parse_ledger(body)


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(routes):
        address = ListenAddress.parse(f"unix:{tmp_path}/http.sock")
        server = HttpServer(address, routes)
        server.start()
        servers.append(server)
        return address

    yield start
    for server in servers:
        server.close()


def test_over_a_unix_socket(serve):
    found = read_ledger(serve({"/ledger": lambda _: Response(page(ROW))}))
    assert found.has_answered
    assert set(found.rows) == {("cgroups", 4711)}


def test_over_tcp():
    # The port is the kernel's choice, which the configuration cannot ask for.
    server = HttpServer(
        ListenAddress("127.0.0.1", 0), {"/ledger": lambda _: Response(page(ROW, ROW))}
    )
    server.start()
    try:
        found = read_ledger(ListenAddress("127.0.0.1", server.port))
    finally:
        server.close()
    assert (found.has_answered, len(found.rows)) == (True, 1)


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ({}, "this version serves no /ledger"),
        ({"/ledger": lambda _: Response(b"no", 503)}, "HTTP status 503"),
        ({"/ledger": lambda _: Response(b"no")}, "not a ledger"),
    ],
)
def test_an_answer_that_is_none(serve, routes, words):
    found = read_ledger(serve(routes))
    assert not found.has_answered
    assert words in found.problem


def test_nobody_there(tmp_path):
    found = read_ledger(ListenAddress.parse(f"unix:{tmp_path}/none.sock"))
    assert (found.has_answered, found.problem) == (False, "No such file or directory")
    assert (
        read_ledger(ListenAddress()).problem == "its HTTP endpoint is switched off (metrics.listen)"
    )


def answering(tmp_path, data):
    """A server of one connection that is no HTTP server; None never answers."""
    path = f"{tmp_path}/raw.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1)

    def work():
        connection, _ = listener.accept()
        with connection:
            if data is not None:
                connection.sendall(data)
            while connection.recv(4096):
                pass

    thread = threading.Thread(target=work)
    thread.start()
    return ListenAddress(path=path), thread, listener


@pytest.mark.parametrize(
    ("data", "timeout_s", "words"),
    [
        (None, 0.2, "no answer within 0.2 s"),
        (b"SSH-2.0-OpenSSH\r\n", 30, "not a ledger"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", 0.2, "no answer within 0.2 s"),
    ],
)
def test_another_program_on_the_address(tmp_path, data, timeout_s, words):
    address, thread, listener = answering(tmp_path, data)
    found = read_ledger(address, timeout_s=timeout_s)
    thread.join()
    listener.close()
    assert not found.has_answered
    assert words in found.problem
