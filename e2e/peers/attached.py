"""Our plugin endpoint in a thread of the test, with a plugin that notes what it gets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from google.protobuf.message import Message

from nri_claim2core.nri import Call, Plugin, Runner
from nri_claim2core.nri import nri_pb2 as api

Handler = Callable[[Any, Call], Message | None]

ALL_BUT_VALIDATION = (
    "run_pod_sandbox",
    "update_pod_sandbox",
    "post_update_pod_sandbox",
    "stop_pod_sandbox",
    "remove_pod_sandbox",
    "create_container",
    "post_create_container",
    "start_container",
    "post_start_container",
    "update_container",
    "post_update_container",
    "stop_container",
    "remove_container",
)


class Recorder(Plugin):
    """Notes every event; answers as `on` says, or with "nothing to change"."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Message]] = []
        self.on: dict[str, Handler] = {}
        self.configured: list[api.ConfigureRequest] = []
        self.synchronized: list[tuple[list[api.PodSandbox], list[api.Container]]] = []
        self.sync_updates: list[api.ContainerUpdate] = []
        self.timed_out: list[str] = []
        self.on_deadline: Callable[[str, Message], Message | None] = lambda _method, _request: None

    def configure(self, request: api.ConfigureRequest) -> int | None:
        self.configured.append(request)
        return None

    def synchronize(
        self, pods: Sequence[api.PodSandbox], containers: Sequence[api.Container]
    ) -> Sequence[api.ContainerUpdate]:
        self.synchronized.append((list(pods), list(containers)))
        return self.sync_updates

    def deadline_reached(self, method: str, request: Message) -> Message | None:
        self.timed_out.append(method)
        return self.on_deadline(method, request)


def recorder(handlers: Iterable[str] = ALL_BUT_VALIDATION) -> Recorder:
    """Give a Recorder whose class overrides exactly these handlers."""

    def overriding(name: str) -> Callable[[Recorder, Message, Call], Message | None]:
        def handle(self: Recorder, request: Message, call: Call) -> Message | None:
            self.seen.append((name, request))
            answer = self.on.get(name)
            return answer(request, call) if answer else None

        return handle

    made = type("RecorderOfSome", (Recorder,), {name: overriding(name) for name in handlers})
    instance = made()
    assert isinstance(instance, Recorder)
    return instance


class Attached:
    """A plugin that serves the runtime at a socket, until the block ends."""

    def __init__(
        self,
        plugin: Plugin,
        socket_path: Path,
        *,
        name: str = "ours",
        index: str = "50",
        **options: Any,
    ) -> None:
        self.runner = Runner(plugin, name, index, socket_path=str(socket_path), **options)
        self._failure: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name=f"attached-{name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.runner.stop()
        self._thread.join(timeout=15)
        assert not self._thread.is_alive(), "the runner did not stop"
        if self._failure and kind is None:
            raise self._failure[0]

    def _run(self) -> None:
        try:
            self.runner.run()
        except BaseException as failure:  # noqa: BLE001 - handed to the test's thread
            self._failure.append(failure)
