"""Serve what plugins call on the runtime once they are registered: UpdateContainers.

Requests wait in a link's inbox until the runtime's lock is free: a plugin that calls from
inside a handler, and waits for the answer there, waits for itself.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.connection import RequestReceived
from nri_claim2core.nri.runtime.journal import Journal, PluginCall
from nri_claim2core.nri.runtime.link import PluginLink
from nri_claim2core.nri.runtime.node import Node
from nri_claim2core.nri.runtime.updater import Updater
from nri_claim2core.nri.runtime.updates import find_by_prefix
from nri_claim2core.nri.status import Code

_MAX_REGISTRATIONS: Final = 2
"""A second registration on a connection is taken without effect, a third is never answered."""


class PluginCalls:
    """Answers the requests in a link's inbox. The caller holds the runtime's lock."""

    def __init__(
        self, node: Node, updater: Updater, journal: Journal, *, answer_timeout_ns: int
    ) -> None:
        self._node = node
        self._updater = updater
        self._journal = journal
        self._timeout_ns = answer_timeout_ns

    def serve(self, link: PluginLink) -> None:
        """Answer all that waits."""
        while link.inbox:
            request = link.inbox.popleft()
            if request.method == "UpdateContainers":
                self._update(link, request)
            else:
                self._register_again(link, request)

    def _register_again(self, link: PluginLink, request: RequestReceived) -> None:
        link.nr_registrations += 1
        if link.nr_registrations <= _MAX_REGISTRATIONS:
            link.reply(request.stream_id, b"", self._timeout_ns)

    def _update(self, link: PluginLink, request: RequestReceived) -> None:
        sequence = self._journal.number()
        try:
            asked = api.UpdateContainersRequest.FromString(request.payload)
        except DecodeError as error:
            text = f"ttrpc: error unmarshalling payload: {error}"
            link.reply_error(request.stream_id, Code.INTERNAL, text, self._timeout_ns)
            return
        unknown = tuple(
            update.container_id
            for update in asked.update
            if find_by_prefix(self._node.containers, update.container_id) is None
        )
        failure = self._updater.apply_all(asked.update)
        self._journal.add(
            PluginCall(
                sequence=sequence,
                plugin=link.label,
                method=request.method,
                request=asked,
                failure="" if failure is None else failure.message,
                unknown=unknown,
            )
        )
        if failure is None:
            link.reply(request.stream_id, b"", self._timeout_ns)
        else:  # an error carries no payload: the list of failed updates does not arrive
            link.reply_error(request.stream_id, Code.UNKNOWN, failure.message, self._timeout_ns)
