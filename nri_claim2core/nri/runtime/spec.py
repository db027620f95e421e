"""Apply a gathered adjustment to a container, as a runtime applies it to its OCI spec.

The Container message stands in for the OCI spec: every later event shows what is stored here.
What the spec has and the message does not (block I/O parameters, memory policy) is not kept.
Pure.
"""

from __future__ import annotations

import posixpath

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime.adjust import HOOK_KINDS, RDT_FIELDS, SINGLE_MESSAGES
from nri_claim2core.nri.runtime.edits import Field, drop_items, put_entry, replace_items
from nri_claim2core.nri.runtime.owners import removed_key
from nri_claim2core.nri.runtime.profiles_table import Profile
from nri_claim2core.nri.runtime.resources import put_hugepage_limit


def apply_adjustment(
    container: api.Container, adjust: api.ContainerAdjustment, profile: Profile
) -> tuple[str, ...]:
    """Change `container` as a runtime changes its OCI spec; give the CDI devices to inject.

    CDI names are handed back unresolved, and none for a runtime that does not inject them.
    """
    _apply_map(container.annotations, adjust.annotations)
    _apply_env(container, adjust)
    if adjust.args:
        container.args[:] = adjust.args
    for kind in HOOK_KINDS:
        getattr(container.hooks, kind).extend(getattr(adjust.hooks, kind))
    _apply_linux(container.linux, adjust.linux)
    for mount in adjust.mounts:
        removed = removed_key(mount.destination)
        drop_items(
            container.mounts, "destination", {mount.destination if removed is None else removed}
        )
        if removed is None:
            container.mounts.append(mount)
    if adjust.mounts:
        replace_items(container.mounts, sorted(container.mounts, key=_mount_order))
    container.rlimits.extend(adjust.rlimits)
    if not profile.injects_cdi_devices:
        return ()
    return tuple(device.name for device in adjust.CDI_devices)


def _apply_linux(linux: api.LinuxContainer, wish: api.LinuxContainerAdjustment) -> None:
    for device in wish.devices:
        removed = removed_key(device.path)
        drop_items(linux.devices, "path", {device.path if removed is None else removed})
        if removed is None:
            linux.devices.append(device)
            _allow(linux.resources, device)
    if wish.cgroups_path:
        linux.cgroups_path = wish.cgroups_path
    for name, _ in SINGLE_MESSAGES:
        if wish.HasField(name):
            getattr(linux, name).CopyFrom(getattr(wish, name))
            getattr(linux, name).SetInParent()
    for namespace in wish.namespaces:
        removed = removed_key(namespace.type)
        drop_items(linux.namespaces, "type", {namespace.type if removed is None else removed})
        if removed is None:
            linux.namespaces.append(namespace)
    _apply_map(linux.sysctl, wish.sysctl)
    _apply_map(linux.net_devices, wish.net_devices)
    _apply_resources(linux.resources, wish.resources)
    _apply_rdt(linux, wish)


def _apply_env(container: api.Container, adjust: api.ContainerAdjustment) -> None:
    if not adjust.env:
        return
    wishes = {variable.key: variable.value for variable in adjust.env}
    env = []
    for text in container.env:
        name, equals, _ = text.partition("=")
        if not equals:
            continue  # the runtime's generator keeps no variable without a value
        env.append(f"{name}={wishes.pop(name)}" if name in wishes else text)
    env.extend(f"{name}={value}" for name, value in wishes.items())
    container.env[:] = env


def _apply_resources(stored: api.LinuxResources, wish: api.LinuxResources) -> None:
    for name in ("period", "quota", "shares", "realtime_runtime", "realtime_period"):
        if wish.cpu.HasField(name):
            getattr(stored.cpu, name).CopyFrom(getattr(wish.cpu, name))
            getattr(stored.cpu, name).SetInParent()
    if wish.cpu.cpus:
        stored.cpu.cpus = wish.cpu.cpus
    if wish.cpu.mems:
        stored.cpu.mems = wish.cpu.mems
    if wish.memory.limit.value:  # the only memory field that reaches the spec at creation
        stored.memory.limit.value = wish.memory.limit.value
        stored.memory.swap.value = wish.memory.limit.value
    for limit in wish.hugepage_limits:
        put_hugepage_limit(stored, limit)
    for key, value in wish.unified.items():
        stored.unified[key] = value
    if wish.HasField("pids"):
        stored.pids.CopyFrom(wish.pids)
        stored.pids.SetInParent()
    stored.devices.extend(wish.devices)


def _apply_rdt(linux: api.LinuxContainer, wish: api.LinuxContainerAdjustment) -> None:
    if wish.resources.HasField("rdt_class"):
        linux.ClearField("rdt")
        if wish.resources.rdt_class.value:
            linux.rdt.clos_id.value = wish.resources.rdt_class.value
    if wish.HasField("rdt"):
        if wish.rdt.remove:
            linux.ClearField("rdt")
        for name, _ in RDT_FIELDS:
            if wish.rdt.HasField(name):
                getattr(linux.rdt, name).CopyFrom(getattr(wish.rdt, name))
                getattr(linux.rdt, name).SetInParent()


def _apply_map(stored: Field, wish: Field) -> None:
    for mark in wish:
        if (key := removed_key(mark)) is not None:
            stored.pop(key, None)
    for key in wish:
        if removed_key(key) is None:
            put_entry(stored, key, wish[key])


def _allow(resources: api.LinuxResources, device: api.LinuxDevice) -> None:
    rule = resources.devices.add(allow=True, type=device.type, access="rwm")
    rule.major.value = device.major
    rule.minor.value = device.minor


def _mount_order(mount: api.Mount) -> tuple[int, str]:
    return posixpath.normpath(mount.destination).count("/"), mount.destination
