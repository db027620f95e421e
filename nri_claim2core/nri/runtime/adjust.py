"""Collect what plugins ask for in one CreateContainer round.

`CreateRound` takes the replies in plugin order: it checks ownership, gathers one adjustment for
the runtime, and changes the container as the next plugin sees it. What the runtime then makes of
the gathered adjustment is `spec.apply_adjustment`; the two results differ on purpose (a removed
environment variable is hidden from later plugins, but its removal is not gathered).

Pure: messages in, messages out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime.edits import (
    Field,
    drop_items,
    put_entry,
    replace_items,
    split_removals,
)
from nri_claim2core.nri.runtime.owners import REMOVAL_MARKER, Owners, removed_key
from nri_claim2core.nri.runtime.profiles_table import Profile
from nri_claim2core.nri.runtime.resources import take_resources, with_empty_parts

HOOK_KINDS: Final = (
    "prestart",
    "poststart",
    "poststop",
    "create_runtime",
    "create_container",
    "start_container",
)
SINGLE_MESSAGES: Final = (
    ("oom_score_adj", api.OomScoreAdj),
    ("io_priority", api.IoPriority),
    ("seccomp_policy", api.SeccompPolicy),
    ("scheduler", api.LinuxSched),
)
RDT_FIELDS: Final = (
    ("clos_id", api.RdtClosID),
    ("schemata", api.RdtSchemata),
    ("enable_monitoring", api.RdtEnableMonitoring),
)


class CreateRound:
    """One CreateContainer request on its way through the plugins.

    `container` is what the next plugin sees (changed in place), `adjustment` what has been
    gathered so far.
    """

    def __init__(self, container: api.Container, profile: Profile, owners: Owners) -> None:
        self.container = container
        self.adjustment = api.ContainerAdjustment()
        self.owners = owners
        self._profile = profile
        container.hooks.SetInParent()
        with_empty_parts(container.linux.resources)
        self.adjustment.hooks.SetInParent()
        with_empty_parts(self.adjustment.linux.resources)

    def take(self, adjust: api.ContainerAdjustment, plugin: str) -> None:
        """Add one plugin's adjustment; raises ConflictError, and the round is void."""
        wish = api.ContainerAdjustment()
        wish.CopyFrom(adjust)
        forget_unknown(wish, self._profile)
        self._take_annotations(wish, plugin)
        self._take_mounts(wish, plugin)
        self._take_env(wish, plugin)
        self._take_args(wish, plugin)
        self._take_hooks(wish, plugin)
        if wish.HasField("linux"):
            self._take_linux(wish.linux, plugin)
        for rlimit in wish.rlimits:
            self._claim(plugin)(api.Rlimits, rlimit.type)
            self.container.rlimits.append(rlimit)
            self.adjustment.rlimits.append(rlimit)
        for device in wish.CDI_devices:  # references are not resolved here, nor shown to others
            self._claim(plugin)(api.CdiDevices, device.name)
            self.adjustment.CDI_devices.append(device)

    def _claim(self, plugin: str) -> Callable[[int, str | None], None]:
        container = self.container.id

        def claim(field: int, key: str | None) -> None:
            self.owners.claim(container, field, plugin, key)

        return claim

    def _take_annotations(self, wish: api.ContainerAdjustment, plugin: str) -> None:
        self._take_map(
            wish.annotations,
            self.container.annotations,
            self.adjustment.annotations,
            api.Annotations,
            plugin,
        )

    def _take_map(
        self,
        wish: Field,
        shown: Field,
        gathered: Field,
        field: int,
        plugin: str,
    ) -> None:
        removals = {key for mark in wish if (key := removed_key(mark)) is not None}
        for key in sorted(removals):
            gathered.pop(key, None)
            put_entry(gathered, REMOVAL_MARKER + key, None)
        for key in wish:
            if removed_key(key) is not None:
                continue
            if key in removals:
                self.owners.clear(self.container.id, field, plugin, key)
            self.owners.claim(self.container.id, field, plugin, key)
            put_entry(shown, key, wish[key])
            put_entry(gathered, key, wish[key])

    def _take_mounts(self, wish: api.ContainerAdjustment, plugin: str) -> None:
        removals, additions = split_removals(wish.mounts, "destination")
        added = {mount.destination for mount in additions}
        self._drop(self.adjustment.mounts, "destination", removals, api.Mounts, plugin)
        drop_items(self.container.mounts, "destination", removals.keys() | added)
        for mount in additions:
            self._claim(plugin)(api.Mounts, mount.destination)
            self.adjustment.mounts.append(mount)
        self.adjustment.mounts.extend(
            mark for destination, mark in removals.items() if destination not in added
        )
        self.container.mounts.extend(additions)

    def _take_env(self, wish: api.ContainerAdjustment, plugin: str) -> None:
        removals, additions = split_removals(wish.env, "key")
        touched = removals.keys() | {variable.key for variable in additions}
        self._drop(self.adjustment.env, "key", removals, api.Env, plugin)
        kept = [text for text in self.container.env if text.partition("=")[0] not in touched]
        del self.container.env[:]
        self.container.env.extend(kept)
        for variable in additions:
            self._claim(plugin)(api.Env, variable.key)
            self.adjustment.env.append(variable)
            self.container.env.append(f"{variable.key}={variable.value}")

    def _take_args(self, wish: api.ContainerAdjustment, plugin: str) -> None:
        args = list(wish.args)
        if not args:
            return
        if args[0] == "":  # "replace, although someone set it"
            self.owners.clear(self.container.id, api.Args, plugin)
            del args[0]
        self._claim(plugin)(api.Args, None)
        self.adjustment.args[:] = args
        self.container.args[:] = args

    def _take_hooks(self, wish: api.ContainerAdjustment, plugin: str) -> None:
        found = False
        for kind in HOOK_KINDS:
            hooks = getattr(wish.hooks, kind)
            if hooks:
                getattr(self.adjustment.hooks, kind).extend(hooks)
                getattr(self.container.hooks, kind).extend(hooks)
                found = True
        if found:
            self.owners.add_hooks(self.container.id, plugin)

    def _take_linux(self, wish: api.LinuxContainerAdjustment, plugin: str) -> None:
        shown, gathered, claim = self.container.linux, self.adjustment.linux, self._claim(plugin)
        removals, additions = split_removals(wish.devices, "path")
        self._drop(gathered.devices, "path", removals, api.Devices, plugin)
        drop_items(shown.devices, "path", removals.keys() | {device.path for device in additions})
        for device in additions:
            claim(api.Devices, device.path)
            gathered.devices.append(device)
            shown.devices.append(device)

        take_resources(wish.resources, (shown.resources, gathered.resources), claim)
        shown.resources.devices.extend(wish.resources.devices)
        gathered.resources.devices.extend(wish.resources.devices)
        if wish.resources.HasField("pids"):
            claim(api.PidsLimit, None)
            for target in (shown.resources, gathered.resources):
                target.pids.CopyFrom(wish.resources.pids)
                target.pids.SetInParent()

        if wish.cgroups_path:
            claim(api.CgroupsPath, None)
            shown.cgroups_path = gathered.cgroups_path = wish.cgroups_path
        for name, field in SINGLE_MESSAGES:
            if wish.HasField(name):
                claim(field, None)
                for part in (shown, gathered):
                    getattr(part, name).CopyFrom(getattr(wish, name))
                    getattr(part, name).SetInParent()
        self._take_namespaces(wish, plugin)
        self._take_map(wish.sysctl, shown.sysctl, gathered.sysctl, api.Sysctl, plugin)
        self._take_map(
            wish.net_devices, shown.net_devices, gathered.net_devices, api.LinuxNetDevices, plugin
        )
        self._take_rdt(wish, plugin)
        if wish.HasField("memory_policy"):
            claim(api.MemoryPolicy, None)
            gathered.memory_policy.CopyFrom(wish.memory_policy)

    def _take_namespaces(self, wish: api.LinuxContainerAdjustment, plugin: str) -> None:
        if not wish.namespaces:
            return
        shown = {namespace.type: namespace for namespace in self.container.linux.namespaces}
        for namespace in wish.namespaces:
            removed = removed_key(namespace.type)
            kind = namespace.type if removed is None else removed
            self._claim(plugin)(api.Namespace, kind)
            shown.pop(kind, None)
            if removed is None:
                shown[kind] = namespace
            self.adjustment.linux.namespaces.append(namespace)
        replace_items(self.container.linux.namespaces, list(shown.values()))

    def _take_rdt(self, wish: api.LinuxContainerAdjustment, plugin: str) -> None:
        if not wish.HasField("rdt"):
            return
        gathered = self.adjustment.linux.rdt
        if wish.rdt.remove:
            for _, field in RDT_FIELDS:
                self.owners.clear(self.container.id, field, plugin)
            gathered.Clear()
            gathered.remove = True
        for name, field in RDT_FIELDS:
            if wish.rdt.HasField(name):
                self._claim(plugin)(field, None)
                getattr(gathered, name).CopyFrom(getattr(wish.rdt, name))
                getattr(gathered, name).SetInParent()
                gathered.remove = False

    def _drop(
        self,
        gathered: Field,
        attribute: str,
        removals: dict[str, Field],
        field: int,
        plugin: str,
    ) -> None:
        # What an earlier plugin gathered goes, and with it its ownership.
        for item in gathered:
            if (key := getattr(item, attribute)) in removals:
                self.owners.clear(self.container.id, field, plugin, key)
        drop_items(gathered, attribute, removals.keys())


def forget_unknown(wish: api.ContainerAdjustment, profile: Profile) -> None:
    """Take out what the runtime's NRI version cannot decode, as its parser would."""
    if profile.nri_version < (0, 7, 0):
        wish.ClearField("CDI_devices")
    if profile.nri_version < (0, 10, 0):
        wish.ClearField("args")
    if not wish.HasField("linux"):
        return
    if profile.nri_version < (0, 7, 0):
        wish.linux.resources.ClearField("pids")
        wish.linux.ClearField("oom_score_adj")
    if profile.nri_version < (0, 10, 0):
        for name in ("io_priority", "seccomp_policy", "namespaces"):
            wish.linux.ClearField(name)
    if profile.nri_version < (0, 11, 0):
        for name in ("sysctl", "net_devices", "scheduler", "rdt"):
            wish.linux.ClearField(name)
    if profile.nri_version < (0, 12, 0):
        wish.linux.ClearField("memory_policy")
