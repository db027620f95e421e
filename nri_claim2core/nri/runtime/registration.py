"""Take a plugin in: RegisterPlugin, Configure, Synchronize.

`admit` does the first two on a fresh link, `synchronize` the third with the runtime's lock
held. Each raises RegistrationError when the plugin is not taken, with the runtime's reason.
Where a runtime closes the connection it is closed here too; after a bad name or index it stays
open and nobody listens to it, as in the runtimes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from google.protobuf.message import DecodeError, Message

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.connection import RequestReceived
from nri_claim2core.nri.errors import IdentityError, MessageTooLargeError, RegistrationError
from nri_claim2core.nri.runtime.journal import CallFailure, Journal, PluginCall, PluginFailure
from nri_claim2core.nri.runtime.launching import check_index, check_name
from nri_claim2core.nri.runtime.link import LinkLostError, PluginLink
from nri_claim2core.nri.runtime.node import Node
from nri_claim2core.nri.runtime.profiles_table import Profile
from nri_claim2core.nri.runtime.relay import Relay
from nri_claim2core.nri.runtime.sync import SplitError, Splitter
from nri_claim2core.nri.runtime.updater import Updater
from nri_claim2core.nri.status import Code
from nri_claim2core.nri.ttrpc import MAX_SENT_DATA_BYTES

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """Behavior of real runtimes that does not show every time, switched on for tests."""

    configure_first: bool = False
    """Send Configure before the answer to RegisterPlugin; two threads race in Go."""
    keeps_empty_parts: bool = False
    """Send the empty Synchronize parts that NRI 0.7.0 to 0.12.3 may send until time is up."""


class Registrar:
    """Takes plugins in, one at a time."""

    def __init__(
        self,
        profile: Profile,
        relay: Relay,
        journal: Journal,
        *,
        registration_timeout_ms: int,
        request_timeout_ms: int,
        quirks: Quirks,
    ) -> None:
        self._profile = profile
        self._relay = relay
        self._journal = journal
        self._registration_timeout_ms = registration_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._quirks = quirks

    def admit(self, link: PluginLink, *, is_external: bool, config_text: str) -> None:
        """Wait for RegisterPlugin, then configure. Blocking; raises RegistrationError.

        The name and index in the request count for external plugins only.
        """
        others: list[RequestReceived] = []
        deadline_ns = time.monotonic_ns() + self._registration_timeout_ms * _NS_PER_MS
        while (request := self._next_request(link, deadline_ns)).method != "RegisterPlugin":
            others.append(request)
        self._check_identity(link, request, is_external=is_external)
        link.nr_registrations = 1
        timeout_ns = self._request_timeout_ms * _NS_PER_MS
        if not self._quirks.configure_first:
            link.reply(request.stream_id, b"", timeout_ns)
        self._configure(link, config_text, timeout_ns)
        if self._quirks.configure_first:
            link.reply(request.stream_id, b"", timeout_ns)
        link.inbox.extendleft(reversed(others))

    def synchronize(self, link: PluginLink, node: Node, updater: Updater) -> None:
        """Send the node's state and apply the updates in the last reply.

        Blocking: at most the request time-out, for all parts together. Raises
        RegistrationError with the link closed.
        """
        try:
            updates = self._send_parts(link, node)
            failure = updater.apply_all(updates)
            if failure is not None and self._profile.update_error_fails:
                raise failure
        except (CallFailure, SplitError, LinkLostError, MessageTooLargeError) as error:
            self._give_up(link, f"failed to synchronize plugin: {error}")

    def _next_request(self, link: PluginLink, deadline_ns: int) -> RequestReceived:
        try:
            return link.next_request(deadline_ns)
        except LinkLostError as error:
            is_late = "deadline" in error.message
            raise RegistrationError(
                "plugin registration timed out"
                if is_late
                else "failed to register plugin, connection closed"
            ) from error

    def _check_identity(
        self, link: PluginLink, request: RequestReceived, *, is_external: bool
    ) -> None:
        try:
            asked = api.RegisterPluginRequest.FromString(request.payload)
        except DecodeError as error:
            text = f"ttrpc: error unmarshalling payload: {error}"
            link.reply_error(
                request.stream_id, Code.INTERNAL, text, self._request_timeout_ms * _NS_PER_MS
            )
            raise RegistrationError(text) from error
        failure = ""
        if is_external:
            try:
                what = "invalid plugin name"
                if self._profile.checks_plugin_name:
                    check_name(asked.plugin_name)
                elif not asked.plugin_name:
                    failure = "plugin registered with an empty name"
                what = "invalid plugin index"
                check_index(asked.plugin_idx)
            except IdentityError as error:
                failure = f"{what}: {error.message}"
            else:
                link.name = asked.plugin_name
                link.index = asked.plugin_idx
        self._journal.add(
            PluginCall(
                sequence=self._journal.number(),
                plugin=link.label,
                method=request.method,
                request=asked,
                failure=failure,
            )
        )
        if failure:
            link.reply_error(
                request.stream_id, Code.UNKNOWN, failure, self._request_timeout_ms * _NS_PER_MS
            )
            raise RegistrationError(f"failed to register plugin: {failure}")

    def _configure(self, link: PluginLink, config_text: str, timeout_ns: int) -> None:
        profile = self._profile
        request = api.ConfigureRequest(
            config=config_text,
            runtime_name=profile.runtime_name,
            runtime_version=profile.runtime_version,
        )
        if profile.tells_timeouts:
            request.registration_timeout = self._registration_timeout_ms
            request.request_timeout = self._request_timeout_ms
        if profile.tells_nri_version:
            request.NRI_version = "v" + ".".join(map(str, profile.nri_version))
        reply = api.ConfigureResponse()
        try:
            self._parse(
                link,
                self._relay.send(link, "Configure", request, api.ConfigureResponse, timeout_ns),
                reply,
            )
        except (PluginFailure, LinkLostError) as error:
            self._give_up(link, f"failed to configure plugin: {error}")
        extra = reply.events & ~profile.valid_events
        if extra:
            self._give_up(link, f"invalid plugin events: 0x{extra:x}")
        link.events = reply.events or profile.valid_events

    def _send_parts(self, link: PluginLink, node: Node) -> list[api.ContainerUpdate]:
        pods, containers = node.for_synchronize(self._profile)
        splitter = Splitter(pods, containers, keeps_empty_parts=self._quirks.keeps_empty_parts)
        deadline_ns = time.monotonic_ns() + self._request_timeout_ms * _NS_PER_MS
        while True:
            part = splitter.part()
            left_ns = max(deadline_ns - time.monotonic_ns(), 1)
            try:
                data = self._relay.send(link, "Synchronize", part, api.SynchronizeResponse, left_ns)
            except MessageTooLargeError:
                size = link.request_bytes("Synchronize", part.SerializeToString(), left_ns)
                splitter.shrink(size, MAX_SENT_DATA_BYTES)
                continue
            reply = api.SynchronizeResponse()
            self._parse(link, data, reply)
            if not part.more:
                return list(reply.update)
            if reply.update or not reply.more:
                raise LinkLostError("plugin does not handle split sync requests")
            splitter.advance()

    def _parse(self, link: PluginLink, data: bytes | None, reply: Message) -> None:
        if data is None:
            raise LinkLostError(link.lost)
        try:
            reply.ParseFromString(data)
        except DecodeError as error:
            text = f"ttrpc: error unmarshalling payload: {error}"
            raise PluginFailure(link.label, Code.UNKNOWN, text) from error

    def _give_up(self, link: PluginLink, reason: str) -> None:
        link.close(reason)
        raise RegistrationError(reason)
