"""Relay events to the registered plugins, one after the other, as NRI's adaptation does.

Plugins are asked in the order of their index text. An error status stops the round and is
handed to the caller; a time-out or a lost connection drops the plugin, and the round goes on
as if it had agreed. The nine events without a reply go as calls of their own where the
runtime has them, else as StateChange; a plugin that answers "unimplemented" once gets
StateChange for all nine from then on.

The caller holds the runtime's lock: rounds never overlap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.errors import MessageTooLargeError
from nri_claim2core.nri.events_table import EVENT_OF_RPC, EventSpec
from nri_claim2core.nri.runtime.adjust import CreateRound
from nri_claim2core.nri.runtime.journal import CallFailure, Exchange, Journal, PluginFailure
from nri_claim2core.nri.runtime.link import LinkLostError, PluginLink
from nri_claim2core.nri.runtime.owners import Owners
from nri_claim2core.nri.runtime.profiles_table import Profile
from nri_claim2core.nri.runtime.resources import with_empty_parts
from nri_claim2core.nri.runtime.updates import UpdateRound
from nri_claim2core.nri.status import Code

_STATE_CHANGE: Final = "StateChange"
_REGISTRATION: Final = frozenset({"Configure", "Synchronize"})
_VALIDATE: Final = "ValidateContainerAdjustment"

Reply = TypeVar("Reply", bound=Message)


class Watching(Protocol):
    """What keeps an eye on idle sockets."""

    def pause(self, link: PluginLink) -> None:
        """Leave the link alone."""

    def resume(self, link: PluginLink) -> None:
        """Watch the link again."""


class Relay:
    """The ordered list of registered plugins, and the rounds of requests over it.

    `exchanges` collects what was sent since it was last cleared.
    """

    def __init__(
        self,
        profile: Profile,
        journal: Journal,
        watcher: Watching,
        *,
        request_timeout_ns: int,
        on_drop: Callable[[PluginLink], None],
    ) -> None:
        self.plugins: list[PluginLink] = []
        self.exchanges: list[Exchange] = []
        self._profile = profile
        self._journal = journal
        self._watcher = watcher
        self._timeout_ns = request_timeout_ns
        self._on_drop = on_drop

    def add(self, link: PluginLink) -> None:
        """Take a plugin in, at its place in the order."""
        self.plugins.append(link)
        self.plugins.sort(key=lambda plugin: plugin.index)

    def drop_lost(self) -> None:
        """Take plugins out whose connection has ended."""
        lost = [link for link in self.plugins if link.lost]
        if lost:
            self.plugins = [link for link in self.plugins if not link.lost]
            for link in lost:
                self._journal.note(link.label, "dropped", link.lost)
                self._on_drop(link)

    def notify(
        self,
        rpc: str,
        pod: api.PodSandbox,
        container: api.Container | None = None,
        *,
        request: Message | None = None,
    ) -> PluginFailure | None:
        """Relay an event without a reply; give the error that stopped the round, or None.

        `request` replaces the plain request of pod and container.
        """
        event = EVENT_OF_RPC[rpc]
        if request is None:
            request = event.request(
                **({"pod": pod} if container is None else {"pod": pod, "container": container})
            )
        payload = request.SerializeToString()
        change = b""
        if event.state_change:
            change = api.StateChangeEvent(
                event=event.name, pod=pod, container=container
            ).SerializeToString()
        try:
            for link in self._subscribers(event):
                self._notify_one(link, event, payload, change)
        except PluginFailure as failure:
            return failure
        finally:
            self.drop_lost()
        return None

    def create(
        self, pod: api.PodSandbox, container: api.Container
    ) -> tuple[CreateRound, UpdateRound]:
        """Relay CreateContainer; `container` becomes what the last plugin left of it.

        Raises CallFailure, ConflictError or SelfUpdateError: the creation fails.
        """
        event = EVENT_OF_RPC["CreateContainer"]
        owners = Owners(by_field=self._profile.has_field_owners)
        round_ = CreateRound(container, self._profile, owners)
        updates = UpdateRound(owners, creating=container.id)
        validation = None
        if any(link.events & EVENT_OF_RPC[_VALIDATE].mask for link in self.plugins):
            validation = api.ValidateContainerAdjustmentRequest(pod=pod, container=container)
        try:
            for link in self.plugins:
                if validation is not None:
                    validation.plugins.add(name=link.name, index=link.index)
                if not link.events & event.mask:
                    continue
                request = api.CreateContainerRequest(pod=pod, container=container)
                reply = self._ask(link, event, request, api.CreateContainerResponse())
                if reply is not None:
                    if reply.HasField("adjust"):
                        round_.take(reply.adjust, link.label)
                    updates.take(reply.update, link.label)
            if validation is not None:
                self._validate(validation, round_, updates)
        finally:
            self.drop_lost()
        return round_, updates

    def update(
        self, pod: api.PodSandbox, container: api.Container, resources: api.LinuxResources
    ) -> UpdateRound:
        """Relay UpdateContainer; raises CallFailure or ConflictError: the update fails."""
        event = EVENT_OF_RPC["UpdateContainer"]
        round_ = UpdateRound(
            Owners(by_field=self._profile.has_field_owners),
            updating=container.id,
            requested=with_empty_parts(resources),
        )
        try:
            for link in self._subscribers(event):
                request = api.UpdateContainerRequest(
                    pod=pod, container=container, linux_resources=round_.requested
                )
                reply = self._ask(link, event, request, api.UpdateContainerResponse())
                if reply is not None:
                    round_.take(reply.update, link.label)
        finally:
            self.drop_lost()
        return round_

    def stop(self, pod: api.PodSandbox, container: api.Container) -> UpdateRound:
        """Relay StopContainer; raises CallFailure or ConflictError, which are logged."""
        event = EVENT_OF_RPC["StopContainer"]
        round_ = UpdateRound(Owners(by_field=self._profile.has_field_owners))
        request = api.StopContainerRequest(pod=pod, container=container)
        try:
            for link in self._subscribers(event):
                reply = self._ask(link, event, request, api.StopContainerResponse())
                if reply is not None:
                    round_.take(reply.update, link.label)
        finally:
            self.drop_lost()
        return round_

    def send(
        self, link: PluginLink, rpc: str, request: Message, reply: type[Message], timeout_ns: int
    ) -> bytes | None:
        """Send one request outside of a round (Configure, Synchronize).

        Gives the reply's bytes, None when the plugin is lost. Raises PluginFailure and
        MessageTooLargeError.
        """
        payload = request.SerializeToString()
        return self._exchange(link, rpc, rpc, (type(request), reply), payload, timeout_ns)

    def _subscribers(self, event: EventSpec) -> Iterator[PluginLink]:
        for link in self.plugins:
            if link.events & event.mask:
                yield link

    def _notify_one(
        self, link: PluginLink, event: EventSpec, payload: bytes, change: bytes
    ) -> None:
        deadline_ns = time.monotonic_ns() + self._timeout_ns
        types: tuple[type[Message], type[Message]] = (event.request, event.response)
        if not (event.state_change and link.uses_state_change):
            try:
                self._exchange(link, event.rpc, event.rpc, types, payload, self._timeout_ns)
            except PluginFailure as failure:
                if not event.state_change or failure.status != Code.UNIMPLEMENTED:
                    raise
                link.uses_state_change = True
            else:
                return
        left_ns = max(deadline_ns - time.monotonic_ns(), 1)
        types = (api.StateChangeEvent, api.Empty)
        self._exchange(link, event.rpc, _STATE_CHANGE, types, change, left_ns)

    def _ask(
        self, link: PluginLink, event: EventSpec, request: Message, reply: Reply
    ) -> Reply | None:
        payload = request.SerializeToString()
        types = (event.request, event.response)
        try:
            data = self._exchange(link, event.rpc, event.rpc, types, payload, self._timeout_ns)
        except MessageTooLargeError as error:
            raise PluginFailure(link.label, Code.RESOURCE_EXHAUSTED, error.message) from error
        if data is None:
            return None
        try:
            reply.ParseFromString(data)
        except DecodeError as error:
            text = f"ttrpc: error unmarshalling payload: {error}"
            raise PluginFailure(link.label, Code.UNKNOWN, text) from error
        return reply

    def _validate(
        self,
        request: api.ValidateContainerAdjustmentRequest,
        round_: CreateRound,
        updates: UpdateRound,
    ) -> None:
        event = EVENT_OF_RPC[_VALIDATE]
        request.adjust.CopyFrom(round_.adjustment)
        request.update.extend(updates.others())
        request.owners.CopyFrom(round_.owners.message())
        errors = []
        for link in self._subscribers(event):
            try:
                reply = self._ask(link, event, request, api.ValidateContainerAdjustmentResponse())
            except PluginFailure as failure:
                errors.append(CallFailure(f"validator plugin {link.label} failed: {failure}"))
                continue
            if reply is None:
                errors.append(CallFailure(f"validator plugin {link.label} failed: {link.lost}"))
            elif reply.reject:
                reason = reply.reason or "unknown rejection reason"
                errors.append(
                    CallFailure(
                        f'validator "{link.label}" rejected container adjustment, reason: {reason}'
                    )
                )
        if errors:
            raise errors[0]

    def _exchange(  # noqa: PLR0917 - private, one line per call
        self,
        link: PluginLink,
        event: str,
        method: str,
        types: tuple[type[Message], type[Message]],
        payload: bytes,
        timeout_ns: int,
    ) -> bytes | None:
        reply: bytes | None = None
        failure: PluginFailure | None = None
        sequence = self._journal.number()
        self._watcher.pause(link)
        started_ns = time.perf_counter_ns()
        try:
            reply = link.call(method, payload, timeout_ns)
        except PluginFailure as error:
            failure = error
        except LinkLostError:
            pass
        finally:
            self._watcher.resume(link)
        duration_ns = time.perf_counter_ns() - started_ns
        exchange = Exchange(
            sequence=sequence,
            plugin=link.label,
            event=event,
            method=method,
            request_type=types[0],
            reply_type=types[1],
            request_bytes=payload,
            reply_bytes=reply,
            failure=failure,
            lost=link.lost,
            duration_ns=duration_ns,
        )
        self._journal.add(exchange)
        if event not in _REGISTRATION:  # that runs beside a call, on another thread
            self.exchanges.append(exchange)
        if failure is not None:
            raise failure
        return reply
