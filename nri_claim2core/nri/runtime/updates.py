"""Collect the container updates that plugins ask for in one round, and find their targets.

A round is one CreateContainer, UpdateContainer or StopContainer request. Updates of one
container by several plugins are merged, field by field, under the ledger of owners. In an
UpdateContainer round the container at hand starts from what kubelet asked for, and the next
plugin sees that request as changed so far.

Known and kept: `evict` is never read, and pids in an update are lost.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime.owners import ConflictError, Owners
from nri_claim2core.nri.runtime.resources import take_resources, with_empty_parts


class SelfUpdateError(Claim2CoreError):
    """A plugin named the container being created in its updates, which fails the creation."""

    code = "C2C-NRI-21"

    def __init__(self, plugin: str, container: str) -> None:
        super().__init__(f'plugin "{plugin}" asked update of "{container}" during creation')


class UpdateRound:
    """The updates asked for so far in one request.

    `requested` is kubelet's request in an UpdateContainer round, changed in place.
    """

    def __init__(
        self,
        owners: Owners,
        *,
        creating: str = "",
        updating: str = "",
        requested: api.LinuxResources | None = None,
    ) -> None:
        self.requested = requested
        self._owners = owners
        self._creating = creating
        self._updating = updating
        self._updates: dict[str, api.ContainerUpdate] = {}

    def take(self, updates: Iterable[api.ContainerUpdate], plugin: str) -> None:
        """Add one plugin's updates; raises ConflictError or SelfUpdateError: the round is void."""
        for update in updates:
            if self._creating and update.container_id == self._creating:
                raise SelfUpdateError(plugin, update.container_id)
            merged = self._merged(update)
            try:
                self._take_one(merged, update, plugin)
            except ConflictError:
                if not update.ignore_failure:
                    raise

    def others(self) -> list[api.ContainerUpdate]:
        """Give the updates of containers other than the one being updated, in order of asking."""
        return [update for key, update in self._updates.items() if key != self._updating]

    def own(self) -> api.LinuxResources | None:
        """Give the resources for the container being updated, None if no plugin named it."""
        found = self._updates.get(self._updating)
        return None if found is None else found.linux.resources

    def _merged(self, update: api.ContainerUpdate) -> api.ContainerUpdate:
        known = self._updates.get(update.container_id)
        if known is not None:
            known.ignore_failure = known.ignore_failure and update.ignore_failure
            return known
        known = api.ContainerUpdate(
            container_id=update.container_id, ignore_failure=update.ignore_failure
        )
        with_empty_parts(known.linux.resources)
        self._updates[update.container_id] = known
        return known

    def _take_one(
        self, merged: api.ContainerUpdate, update: api.ContainerUpdate, plugin: str
    ) -> None:
        if not update.HasField("linux") or not update.linux.HasField("resources"):
            return
        container = update.container_id
        is_requested = self.requested is not None and container == self._updating
        # A copy, since nothing may stick when a failure is to be ignored.
        resources = api.LinuxResources()
        resources.CopyFrom(
            self.requested
            if is_requested and self.requested is not None
            else merged.linux.resources
        )

        def claim(field: int, key: str | None) -> None:
            self._owners.claim(container, field, plugin, key)

        take_resources(update.linux.resources, (resources,), claim)
        merged.linux.resources.CopyFrom(resources)
        if is_requested and self.requested is not None:
            self.requested.CopyFrom(resources)


def find_by_prefix(known: Mapping[str, object], text: str) -> str | None:
    """Give the one id in `known` that is or starts with `text`; None if none or several do."""
    if not text:
        return None
    if text in known:
        return text
    matches = [key for key in known if key.startswith(text)]
    return matches[0] if len(matches) == 1 else None
