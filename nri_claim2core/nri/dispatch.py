"""From a method name to the plugin's handler and back to an answer. No socket, no threads.

One dispatcher serves one connection: it holds what Configure said and the parts of a split
Synchronize. Three rules of NRI live here:

- The subscription is what the plugin implements and wants, trimmed to the events that this
  runtime knows. It is never 0 on the wire, which would mean every event.
- StateChange ends in the same handlers as the dedicated methods; events it carries that are
  unknown or have no handler are a success.
- Parts of Synchronize are answered with `more`; updates go into the last answer. An empty
  part leaves nothing behind, however many come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from google.protobuf.message import Message

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.call import Call
from nri_claim2core.nri.errors import NotAllowedError, RpcError
from nri_claim2core.nri.events_table import (
    EVENT_OF_VALUE,
    NriVersion,
    nri_version_of,
    updates_are_safe,
    valid_mask,
)
from nri_claim2core.nri.plugin import Plugin, implemented_events, mask_of
from nri_claim2core.nri.status import Code

Result = Literal["ok", "unhandled", "refused", "error", "deadline", "unreadable"]
"""How a request ended: answered by its handler; no handler, empty success; refused by the
handler; the handler failed; answered for a handler out of time; could not be read."""

DEFAULT_REQUEST_TIMEOUT_MS = 2000
"What runtimes allow an answer by default; those before NRI 0.7.0 do not tell."


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a runtime said about itself in Configure, and what the plugin subscribed to."""

    runtime_name: str
    runtime_version: str
    nri_version: NriVersion | None
    "None when neither the runtime nor our table tells."
    registration_timeout_ms: int
    "0 when the runtime does not tell."
    request_timeout_ms: int
    events: int
    "Mask of the events subscribed."

    @property
    def updates_are_safe(self) -> bool:
        """Whether this runtime may be sent unsolicited updates."""
        return updates_are_safe(self.nri_version)

    def __str__(self) -> str:
        nri = self.nri_version or "unknown"
        return f"{self.runtime_name} {self.runtime_version} (NRI {nri})"


def _do_nothing() -> None:
    pass


# Handlers are typed in `Plugin`; here they are one kind of callable.
Handler = Callable[[Any, Call], Message | None]


class Route(NamedTuple):
    """How one method is served."""

    request: type[Message]
    response: type[Message]
    handler: Handler
    is_setup: bool = False
    "Part of setting up the connection: may take most of the runtime's time-out."


class Outcome(NamedTuple):
    """What to answer a request with: `error` when set, else `payload`."""

    payload: bytes
    error: RpcError | None
    result: Result
    failure: BaseException | None
    "What a handler raised that it should not have."


class Dispatcher:
    """Serves the methods of one connection with the handlers of one plugin.

    `routes` lacks the events without a handler: they are answered with an empty success.
    Raises NotAllowedError for a plugin that handles no event at all.
    """

    def __init__(
        self,
        plugin: Plugin,
        *,
        name: str = "",
        index: str = "",
        on_duplicate: Callable[[], None] = _do_nothing,
    ) -> None:
        self._plugin = plugin
        self._name, self._index = name, index
        self._on_duplicate = on_duplicate
        self._events = implemented_events(plugin)
        if not self._events:
            raise NotAllowedError(
                f"{type(plugin).__name__} handles no event", hint="override a handler"
            )
        self._collects = type(plugin).synchronize_part is Plugin.synchronize_part
        self._pods: list[api.PodSandbox] = []
        self._containers: list[api.Container] = []
        self.registration: Registration | None = None
        "Set while Configure is handled."
        self.routes: dict[str, Route] = {
            event.rpc: Route(event.request, event.response, getattr(plugin, event.handler))
            for event in self._events
        }
        if "ValidateContainerAdjustment" in self.routes:
            self._validate = plugin.validate_container_adjustment
            self._add(
                "ValidateContainerAdjustment",
                api.ValidateContainerAdjustmentRequest,
                api.ValidateContainerAdjustmentResponse,
                self._validated,
            )
        self._add("StateChange", api.StateChangeEvent, api.Empty, self._state_changed)
        self._add(
            "Configure", api.ConfigureRequest, api.ConfigureResponse, self._configure, setup=True
        )
        self._add(
            "Synchronize",
            api.SynchronizeRequest,
            api.SynchronizeResponse,
            self._synchronize,
            setup=True,
        )
        self._add("Shutdown", api.Empty, api.Empty, self._shutdown, setup=True)

    def _add(
        self,
        method: str,
        request: type[Message],
        response: type[Message],
        handler: Handler,
        *,
        setup: bool = False,
    ) -> None:
        self.routes[method] = Route(request, response, handler, setup)

    def answer(self, route: Route, call: Call) -> Outcome:
        """Run the handler of a route. Blocking: as long as the handler does."""
        try:
            return _outcome(route, call, route.handler(call.request, call), "ok")
        except RpcError as error:
            return Outcome(b"", error, "refused", None)
        except BaseException as error:  # noqa: BLE001 - any way to fail, sys.exit and cancelling too
            return self._failed(route, error)

    def late_answer(self, call: Call) -> Outcome:
        """Give the answer to a call whose handler ran out of time."""
        route = self.routes.get(call.method)
        if isinstance(call.request, api.StateChangeEvent):
            route = self._translate(call)
        if route is None:  # a StateChange that nothing handles, translated by the handler
            return Outcome(b"", None, "deadline", None)
        try:
            return _outcome(route, call, self._late(call), "deadline")
        except RpcError as error:
            if route.response is api.ValidateContainerAdjustmentResponse:
                return Outcome(
                    _rejection(error.message).SerializeToString(), None, "deadline", None
                )
            return Outcome(b"", error, "deadline", None)
        except BaseException as error:  # noqa: BLE001 - as in a handler
            return self._failed(route, error)._replace(result="deadline")

    def _failed(self, route: Route, error: BaseException) -> Outcome:
        text = f"internal error of plugin {self._index}-{self._name}"
        if route.response is api.ValidateContainerAdjustmentResponse:
            return Outcome(_rejection(text).SerializeToString(), None, "error", error)
        return Outcome(b"", RpcError(Code.UNKNOWN, text), "error", error)

    def _late(self, call: Call) -> Message | None:
        request = call.request
        answer = self._plugin.deadline_reached(call.method, request)
        if isinstance(request, api.SynchronizeRequest) and (answer is None or request.more):
            return api.SynchronizeResponse(more=request.more)
        if isinstance(request, api.ConfigureRequest) and answer is None:
            return api.ConfigureResponse(events=self._subscribe(request, None))
        return answer

    def _configure(self, request: api.ConfigureRequest, call: Call) -> Message:
        self._forget_parts()
        # Known to the plugin before it answers; the subscription follows.
        self._subscribe(request, None)
        wanted = self._plugin.configure(request)
        # Answered for meanwhile: the runtime knows another subscription.
        call.check()
        return api.ConfigureResponse(events=self._subscribe(request, wanted))

    # Sets the registration and gives the mask to send.
    def _subscribe(self, request: api.ConfigureRequest, wanted: int | None) -> int:
        version = nri_version_of(request.runtime_name, request.runtime_version, request.NRI_version)
        implemented = mask_of(self._events)
        if wanted and wanted & ~implemented:
            raise RpcError(
                Code.INTERNAL, f"the plugin asked for events it does not handle: {wanted:#x}"
            )
        events = (wanted or implemented) & valid_mask(version)
        if not events:
            raise RpcError(
                Code.FAILED_PRECONDITION,
                "this runtime knows none of the events that the plugin handles",
            )
        self.registration = Registration(
            runtime_name=request.runtime_name,
            runtime_version=request.runtime_version,
            nri_version=version,
            registration_timeout_ms=max(0, request.registration_timeout),
            request_timeout_ms=(
                request.request_timeout
                if request.request_timeout > 0
                else DEFAULT_REQUEST_TIMEOUT_MS
            ),
            events=events,
        )
        return events

    def _synchronize(self, request: api.SynchronizeRequest, _call: Call) -> Message:
        pods: Sequence[api.PodSandbox] = request.pods
        containers: Sequence[api.Container] = request.containers
        if not self._collects:
            self._plugin.synchronize_part(pods, containers)
            pods, containers = (), ()
        elif request.more or self._pods or self._containers:
            self._pods += pods
            self._containers += containers
            pods, containers = self._pods, self._containers
        if request.more:
            return api.SynchronizeResponse(more=True)
        self._forget_parts()
        return api.SynchronizeResponse(update=self._plugin.synchronize(pods, containers) or ())

    def _forget_parts(self) -> None:
        self._pods, self._containers = [], []

    def _shutdown(self, _request: api.Empty, _call: Call) -> Message | None:
        self._plugin.shutdown()
        return None

    def _validated(
        self, request: api.ValidateContainerAdjustmentRequest, call: Call
    ) -> Message | None:
        ours = api.PluginInstance(name=self._name, index=self._index)
        if sum(plugin == ours for plugin in request.plugins) > 1:
            self._on_duplicate()
        try:
            return self._validate(request, call)
        except RpcError as error:
            return _rejection(error.message)

    def _state_changed(self, _request: api.StateChangeEvent, call: Call) -> Message | None:
        route = self._translate(call)
        if route is not None:
            _outcome(route, call, route.handler(call.request, call), "ok")
        return None

    # Turns a StateChange into the call of the method that newer runtimes have for it; None
    # when nothing handles it. An answer that could carry something cannot travel so.
    def _translate(self, call: Call) -> Route | None:
        change = call.request
        if not isinstance(change, api.StateChangeEvent):
            return None
        event = EVENT_OF_VALUE.get(int(change.event))
        if event is None or event.response.DESCRIPTOR.fields:
            return None
        parts: dict[str, Message] = {}
        if change.HasField("pod"):
            parts["pod"] = change.pod
        if event.has_container and change.HasField("container"):
            parts["container"] = change.container
        call.method, call.request = event.rpc, event.request(**parts)
        return self.routes.get(event.rpc)


# Raises where a handler gave what its method cannot answer with.
def _outcome(route: Route, call: Call, answer: Message | None, result: Result) -> Outcome:
    if answer is None:
        return Outcome(b"", None, result, None)
    if type(answer) is not route.response:
        raise TypeError(f"the handler of {call.method} gave a {type(answer).__name__}")
    return Outcome(answer.SerializeToString(), None, result, None)


def _rejection(reason: str) -> api.ValidateContainerAdjustmentResponse:
    sendable = reason.encode("utf-8", "replace").decode("utf-8")
    return api.ValidateContainerAdjustmentResponse(reject=True, reason=sendable)
