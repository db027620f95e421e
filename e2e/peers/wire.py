"""A plugin on the bare protocol core: no session, no deadlines, no reconnect.

For what a well-behaved plugin never does (a wrong mask, methods it refuses to know) and to
hold the sans-IO core alone against the Go library. One thread reads and answers.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.connection import (
    Connection,
    Refused,
    RequestReceived,
    ResponseReceived,
    Role,
    Violation,
)
from nri_claim2core.nri.events_table import PLUGIN_SERVICE, RUNTIME_SERVICE

Answer = Callable[[bytes], bytes]


class WirePlugin:
    """One connection to a runtime, registered under a name.

    `answers` maps methods to what turns a request's payload into the reply's; without an
    entry a method is answered with an empty message. `methods` are those it knows: others
    are answered with "unimplemented".
    """

    def __init__(
        self,
        socket_path: Path,
        *,
        mask: int,
        name: str = "wire",
        index: str = "50",
        answers: Mapping[str, Answer] | None = None,
        methods: frozenset[str] | None = None,
    ) -> None:
        self.requests: list[tuple[str, bytes]] = []
        "Method and payload of every request, in order; complete once `ended`."
        self.refused: list[str] = []
        "What requests were refused with, in order."
        self.ended = threading.Event()
        self._answers: dict[str, Answer] = {
            "Configure": lambda _: api.ConfigureResponse(events=mask).SerializeToString(),
            "Synchronize": self._echo_more,
            **(answers or {}),
        }
        self._connection = Connection(
            Role.PLUGIN, methods=None if methods is None else {PLUGIN_SERVICE: methods}
        )
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(socket_path))
        request = api.RegisterPluginRequest(plugin_name=name, plugin_idx=index)
        _, data = self._connection.call(
            RUNTIME_SERVICE, "RegisterPlugin", request.SerializeToString()
        )
        self._socket.sendall(data)
        self._thread = threading.Thread(target=self._serve, name="wire-plugin", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket: to the runtime, the plugin died."""
        if not self.ended.is_set():
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=10)
        self._socket.close()

    def _serve(self) -> None:
        try:
            while data := self._socket.recv(1 << 16):
                for event in self._connection.receive_data(data):
                    match event:
                        case RequestReceived():
                            self.requests.append((event.method, event.payload))
                            answer = self._answers.get(event.method, _nothing)
                            reply = self._connection.reply(event.stream_id, answer(event.payload))
                            self._socket.sendall(reply)
                        case Refused():
                            self.refused.append(event.message)
                            self._socket.sendall(event.data)
                        case Violation():
                            return
                        case ResponseReceived() | _:
                            pass
        except OSError:
            # The runtime closed the connection while we wrote.
            pass
        finally:
            self.ended.set()

    @staticmethod
    def _echo_more(payload: bytes) -> bytes:
        request = api.SynchronizeRequest.FromString(payload)
        return api.SynchronizeResponse(more=request.more).SerializeToString()


def _nothing(_: bytes) -> bytes:
    return b""
