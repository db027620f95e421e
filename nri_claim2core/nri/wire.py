"""A connected stream socket as a session uses it: bounded writes, an end with a reason.

The first failure is why the connection ended and stays so. Ending only shuts the socket down,
which wakes the reader; it is closed by the thread that reads, so that no thread ever reads
from a descriptor that was closed and given away again.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri.errors import ConnectionLostError, PeerStalledError


class Wire:
    """The socket, its writer lock and the reason of its end.

    `write` is called with `lock` held, which also orders "take a stream id, then send".
    """

    def __init__(self, sock: socket.socket, send_limit_s: float) -> None:
        sock.settimeout(None)
        # A limit in the kernel leaves the socket blocking: no poll before each receive.
        seconds, rest = divmod(send_limit_s, 1)
        limit = struct.pack("@ll", int(seconds), max(1, int(rest * 1e6)))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._sock = sock
        self._send_limit_s = send_limit_s
        self.lock = threading.Lock()
        self.is_closed = False
        "Set under the lock when the reader is done: nothing is answered any more."
        self._reasons: list[Claim2CoreError] = []
        self.receive_into = sock.recv_into

    @property
    def reason(self) -> Claim2CoreError:
        """Why the connection ended; to be asked after its end."""
        return self._reasons[0] if self._reasons else ConnectionLostError("closed")

    def write(self, data: bytes) -> None:
        """Send all of `data`, or end the connection: the reader tells why.

        Blocking: twice the send limit at most, on a peer that does not read.
        """
        started = time.monotonic()
        try:
            sent = self._sock.send(data, socket.MSG_NOSIGNAL)
            while sent < len(data):
                if time.monotonic() - started >= self._send_limit_s:
                    raise BlockingIOError  # noqa: TRY301 - as the kernel's limit does
                sent += self._sock.send(memoryview(data)[sent:], socket.MSG_NOSIGNAL)
        except BlockingIOError:
            text = f"the peer has not read for {self._send_limit_s:g} s"
            self.fail(PeerStalledError(text))
        except OSError as error:
            self.fail(ConnectionLostError(f"the peer cannot be written to: {error.strerror}"))

    def fail(self, reason: Claim2CoreError) -> None:
        """End the connection at once, in both directions."""
        self._reasons.append(reason)
        self._shut(socket.SHUT_RDWR)

    def stop_reading(self) -> None:
        """End the connection after what has already arrived; answers still go out."""
        self._shut(socket.SHUT_RD)

    def close(self) -> None:
        """Release the socket; the reader's last act."""
        with self.lock:
            self.is_closed = True
            self._sock.close()

    def _shut(self, how: int) -> None:
        with contextlib.suppress(OSError):  # ended already
            self._sock.shutdown(how)
