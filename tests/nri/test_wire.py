"""Bounded writes: partial ones, a peer that reads in drips, one that does not, ends."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from nri_claim2core.nri import wire as module
from nri_claim2core.nri.errors import ConnectionLostError, PeerStalledError, ProtocolError
from nri_claim2core.nri.wire import Wire


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield Wire(ours, 0.05), theirs
    ours.close()
    theirs.close()


class Dripping:
    """A socket that takes one byte at a time, each after a second."""

    def __init__(self, clock):
        self.clock, self.taken = clock, b""
        self.shut = False

    def settimeout(self, timeout):
        assert timeout is None

    def setsockopt(self, *_):
        pass

    def recv_into(self, buffer):
        raise AssertionError

    def send(self, data, flags):
        assert flags & socket.MSG_NOSIGNAL
        self.clock.now += 1
        self.taken += bytes(data[:1])
        return 1

    def shutdown(self, how):
        self.shut = True


def test_slow_readers_have_one_limit_for_the_whole_message(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(module, "time", clock)
    sock = Dripping(clock)
    Wire(sock, 10).write(b"123456789")
    assert (sock.taken, sock.shut) == (b"123456789", False)
    sock.taken = b""
    wire = Wire(sock, 3)
    wire.write(b"123456789")
    assert (sock.taken, sock.shut) == (b"123", True)
    assert isinstance(wire.reason, PeerStalledError)


def test_a_peer_that_does_not_read(pair):
    wire, _ = pair
    wire.write(bytes(8 << 20))
    assert isinstance(wire.reason, PeerStalledError)
    assert wire.receive_into(bytearray(1)) == 0


def test_a_peer_that_is_gone_is_an_end_and_no_signal(pair):
    wire, theirs = pair
    theirs.close()
    wire.write(b"x")
    assert isinstance(wire.reason, ConnectionLostError)
    assert "Broken pipe" in wire.reason.message


def test_the_first_reason_stays(pair):
    wire, _ = pair
    wire.fail(ProtocolError("first"))
    wire.fail(ProtocolError("second"))
    wire.write(b"x")
    assert wire.reason.message == "first"


def test_what_had_arrived_is_still_read_and_answered(pair):
    wire, theirs = pair
    theirs.sendall(b"request")
    wire.stop_reading()
    buffer = bytearray(10)
    assert wire.receive_into(buffer) == 7
    wire.write(b"answer")
    assert theirs.recv(10) == b"answer"
    assert wire.receive_into(buffer) == 0
    wire.close()
    assert wire.is_closed
    assert theirs.recv(10) == b""
    wire.stop_reading()  # after the end: nothing
