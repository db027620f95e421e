"""Who set which field of which container, and what happens when a second plugin tries.

One ledger lives for one request. The first plugin (in index order) that sets a field owns it;
a later one that sets the same field - even to the same value - makes the whole request fail.
Compound fields (annotations, mounts, environment, ...) are owned per key. A plugin takes a key
over by first removing it: the removal is recorded as ``-NN-name`` and only lets that plugin
through. Hooks accumulate and never conflict.

Runtimes with NRI below 0.10 have the same rule with two differences, kept here: their own words
for the fields, and a removal that simply forgets the owner. They do not pass owners on.
"""

from __future__ import annotations

from typing import Final

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri import nri_pb2 as api

REMOVAL_MARKER: Final = "-"

_WORDS_BEFORE_0_10: Final[dict[int, str]] = {
    api.Annotations: "annotation",
    api.Mounts: "mount",
    api.Devices: "device",
    api.CdiDevices: "CDI device",
    api.Env: "env",
    api.MemLimit: "memory limit",
    api.MemReservation: "memory reservation",
    api.MemSwapLimit: "memory swap limit",
    api.MemKernelLimit: "memory kernel limit",
    api.MemTCPLimit: "memory TCP limit",
    api.MemSwappiness: "memory swappiness",
    api.MemDisableOomKiller: "memory disable OOM killer",
    api.MemUseHierarchy: "memory 'UseHierarchy'",
    api.CPUShares: "CPU shares",
    api.CPUQuota: "CPU quota",
    api.CPUPeriod: "CPU period",
    api.CPURealtimeRuntime: "CPU realtime runtime",
    api.CPURealtimePeriod: "CPU realtime period",
    api.CPUSetCPUs: "CPU pinning",
    api.CPUSetMems: "memory pinning",
    api.PidsLimit: "pids pinning",
    api.HugepageLimits: "hugepage limit of size",
    api.BlockioClass: "block I/O class",
    api.RdtClass: "RDT class",
    api.CgroupsUnified: "unified resource",
    api.CgroupsPath: "cgroups path",
    api.Rlimits: "rlimit",
}


class ConflictError(Claim2CoreError):
    """Two plugins set the same field in one request; the text is the runtime's own."""

    code = "C2C-NRI-20"

    def __init__(self, plugin: str, other: str, subject: str) -> None:
        super().__init__(f'plugins "{plugin}" and "{other}" both tried to set {subject}')
        self.plugin = plugin
        self.other = other


class Owners:
    """The ledger of one request. Plugin names in it are ``NN-name``."""

    def __init__(self, *, by_field: bool = True) -> None:
        self._by_field = by_field
        self._owners: dict[str, dict[tuple[int, str | None], str]] = {}

    def claim(self, container: str, field: int, plugin: str, key: str | None = None) -> None:
        """Record `plugin` as owner of the field (of `key` in it); raises ConflictError."""
        owned = self._owners.setdefault(container, {})
        other = owned.get((field, key))
        if other is not None and other != REMOVAL_MARKER + plugin:
            raise ConflictError(plugin, other.removeprefix(REMOVAL_MARKER), self._words(field, key))
        owned[field, key] = plugin

    def clear(self, container: str, field: int, plugin: str, key: str | None = None) -> None:
        """Record that `plugin` removed the value, so that it may set it anew."""
        owned = self._owners.setdefault(container, {})
        if self._by_field:
            owned[field, key] = REMOVAL_MARKER + plugin
        else:
            owned.pop((field, key), None)

    def add_hooks(self, container: str, plugin: str) -> None:
        """Add `plugin` to those that injected OCI hooks."""
        owned = self._owners.setdefault(container, {})
        earlier = owned.get((api.OciHooks, None))
        owned[api.OciHooks, None] = plugin if earlier is None else f"{earlier},{plugin}"

    def message(self) -> api.OwningPlugins:
        """Give the ledger in the form that validators get."""
        message = api.OwningPlugins()
        for container, owned in self._owners.items():
            fields = message.owners[container]
            for (field, key), plugin in owned.items():
                if key is None:
                    fields.simple[field] = plugin
                else:
                    fields.compound[field].owners[key] = plugin
        return message

    def _words(self, field: int, key: str | None) -> str:
        # The Go side leaves a blank at the end when there is no key; it is not kept.
        words: str = api.Field.Name(api.Field.ValueType(field))
        if not self._by_field:
            words = _WORDS_BEFORE_0_10.get(field, words)
        return words if key is None else f"{words} {key}"


def removed_key(key: str) -> str | None:
    """Give the key that a removal marker takes away, or None if `key` carries no marker."""
    return key[1:] if key.startswith(REMOVAL_MARKER) else None
