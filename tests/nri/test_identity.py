"""Name, index and socket: option, environment, program name; what each refusal says."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from nri_claim2core.nri.errors import IdentityError, SocketError
from nri_claim2core.nri.identity import connect, maybe_inherited_socket, parse_identity

ENVIRONMENT = {"NRI_PLUGIN_NAME": "env", "NRI_PLUGIN_IDX": "42"}


@pytest.mark.parametrize(
    ("name", "index", "environment", "program", "identity"),
    [
        ("opt", "01", ENVIRONMENT, "/opt/nri/plugins/95-file", "01-opt"),
        (None, None, ENVIRONMENT, "/opt/nri/plugins/95-file", "42-env"),
        (None, None, {}, "/opt/nri/plugins/95-file", "95-file"),
        (None, "10", {}, "/usr/bin/claim2core", "10-claim2core"),
        ("opt", None, {}, "95-file", "95-opt"),
        (None, "10", {}, "95-file", "10-file"),
        (None, None, {}, "00-a-b_c.d+E9", "00-a-b_c.d+E9"),
    ],
)
def test_identity(name, index, environment, program, identity):
    assert str(parse_identity(name, index, environment, program)) == identity


@pytest.mark.parametrize(
    ("name", "index", "environment", "program", "said"),
    [
        (None, None, {}, "claim2core", "index '' .program name"),
        (None, None, {}, "5-claim2core", "index '' .program name"),
        ("x", "1", {}, "p", "index '1' .option"),
        ("x", "100", {}, "p", "index '100' .option"),
        ("x", "0x", {}, "p", "index '0x'"),
        ("x", "٠١", {}, "p", "index '٠١'"),  # noqa: RUF001 - digits, and not ASCII
        ("x", "10\n", {}, "p", "index '10.n'"),
        ("x", None, {"NRI_PLUGIN_IDX": ""}, "10-p", "index '' .NRI_PLUGIN_IDX"),
        ("", "10", {}, "p", "name '' .option"),
        ("a b", "10", {}, "p", "name 'a b'"),
        ("a/b", "10", {}, "p", "name 'a/b'"),
        ("é", "10", {}, "p", "name 'é'"),
        (None, None, {}, "10-a b", "name 'a b' .program name"),
    ],
)
def test_what_runtimes_do_not_accept(name, index, environment, program, said):
    with pytest.raises(IdentityError, match=said):
        parse_identity(name, index, environment, program)


def test_no_socket_is_inherited_by_default():
    assert maybe_inherited_socket({"PATH": "/bin"}) is None


def test_the_inherited_socket_is_used_and_not_passed_on():
    ours, theirs = socket.socketpair()
    os.set_inheritable(ours.fileno(), True)
    number = ours.detach()
    inherited = maybe_inherited_socket({"NRI_PLUGIN_SOCKET": str(number)})
    assert inherited.fileno() == number
    assert not inherited.get_inheritable()
    theirs.sendall(b"x")
    assert inherited.recv(1) == b"x"
    inherited.close()
    theirs.close()


@pytest.mark.parametrize("text", ["", "x", "-1", "3.0", "٣", "999999", "9" * 30])
def test_a_variable_that_names_no_descriptor(text):
    with pytest.raises(IdentityError, match="NRI_PLUGIN_SOCKET="):
        maybe_inherited_socket({"NRI_PLUGIN_SOCKET": text})


def test_a_descriptor_that_is_no_stream_socket_stays_open():
    reading, writing = os.pipe()
    with pytest.raises(IdentityError, match=f"NRI_PLUGIN_SOCKET={reading}"):
        maybe_inherited_socket({"NRI_PLUGIN_SOCKET": str(reading)})
    datagrams = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with pytest.raises(IdentityError, match="not a stream socket"):
        maybe_inherited_socket({"NRI_PLUGIN_SOCKET": str(datagrams[0].fileno())})
    os.write(writing, b"x")
    datagrams[1].send(b"y")
    assert (os.read(reading, 1), datagrams[0].recv(1)) == (b"x", b"y")
    for descriptor in (reading, writing):
        os.close(descriptor)
    for sock in datagrams:
        sock.close()


def test_connecting_says_what_is_wrong_with_the_path(tmp_path):
    missing = str(tmp_path / "nri.sock")
    with pytest.raises(SocketError, match="No such file") as caught:
        connect(missing)
    assert (caught.value.path, caught.value.errno) == (missing, errno.ENOENT)
    assert "is the runtime running" in caught.value.hint

    left_over = str(tmp_path / "old.sock")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(left_over)
    with pytest.raises(SocketError, match="refused") as caught:
        connect(left_over)
    assert "left over" in caught.value.hint

    (tmp_path / "file").write_text("")
    with pytest.raises(SocketError, match="refused"):
        connect(str(tmp_path / "file"))

    with pytest.raises(SocketError, match="longer than 107 bytes") as caught:
        connect("/" + "x" * 107)
    assert caught.value.errno == errno.ENAMETOOLONG


def test_connecting_to_a_listener(tmp_path):
    path = str(tmp_path / "nri.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        sock = connect(path)
        accepted, _ = listener.accept()
        sock.sendall(b"x")
        assert accepted.recv(1) == b"x"
        sock.close()
        accepted.close()
