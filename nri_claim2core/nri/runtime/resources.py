"""The fields of LinuxResources: which one plugin owns, and how values move between messages.

Three kinds of move exist and must not be mixed up:
- a plugin's wish (`take_resources`): everything present counts, an explicit zero as well, and
  each field is claimed in the ledger of owners before it is written;
- kubelet's update (`from_cri`): only what CRI can say, with shares, quota, period and memory
  limit always present, zero when kubelet did not send them;
- the runtime's store (`merge_update`): zero and empty mean "unchanged".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from nri_claim2core.nri import nri_pb2 as api

MEMORY_FIELDS: Final = (
    ("limit", api.MemLimit),
    ("reservation", api.MemReservation),
    ("swap", api.MemSwapLimit),
    ("kernel", api.MemKernelLimit),
    ("kernel_tcp", api.MemTCPLimit),
    ("swappiness", api.MemSwappiness),
    ("disable_oom_killer", api.MemDisableOomKiller),
    ("use_hierarchy", api.MemUseHierarchy),
)
CPU_FIELDS: Final = (
    ("shares", api.CPUShares),
    ("quota", api.CPUQuota),
    ("period", api.CPUPeriod),
    ("realtime_runtime", api.CPURealtimeRuntime),
    ("realtime_period", api.CPURealtimePeriod),
)
CPUSET_FIELDS: Final = (("cpus", api.CPUSetCPUs), ("mems", api.CPUSetMems))
CLASS_FIELDS: Final = (("blockio_class", api.BlockioClass), ("rdt_class", api.RdtClass))

_CRI_WRAPPERS: Final = (
    ("cpu", "shares"),
    ("cpu", "quota"),
    ("cpu", "period"),
    ("memory", "limit"),
)

M = TypeVar("M", bound=Message)

Claim = Callable[[int, str | None], None]
"""Records (field, key) as owned by the plugin at hand; raises ConflictError."""


def take_resources(
    wish: api.LinuxResources, targets: Sequence[api.LinuxResources], claim: Claim
) -> None:
    """Write what a plugin wishes into each of `targets`, claiming field by field.

    Pids and device rules are not covered: creation and update treat them differently.
    Raises ConflictError at the first field that another plugin owns.
    """
    _take_wrapped(wish, targets, "memory", MEMORY_FIELDS, claim)
    _take_wrapped(wish, targets, "cpu", CPU_FIELDS, claim)
    _take_cpuset(wish, targets, claim)
    for limit in wish.hugepage_limits:
        claim(api.HugepageLimits, limit.page_size)
        for target in targets:
            target.hugepage_limits.append(limit)
    for key, value in wish.unified.items():
        claim(api.CgroupsUnified, key)
        for target in targets:
            target.unified[key] = value
    for name, field in CLASS_FIELDS:
        if wish.HasField(name):
            claim(field, None)
            for target in targets:
                _set(target, name, getattr(wish, name))


def with_empty_parts(resources: api.LinuxResources) -> api.LinuxResources:
    """Make memory and cpu present, as a runtime does before it sends resources; give them back."""
    resources.memory.SetInParent()
    resources.cpu.SetInParent()
    return resources


def from_cri(asked: api.LinuxResources) -> api.LinuxResources:
    """Give an update as a runtime passes it on: what CRI can carry, with explicit zeros."""
    sent = with_empty_parts(api.LinuxResources())
    for part, name in _CRI_WRAPPERS:
        # Assigning makes the wrapper present, a zero as well.
        getattr(getattr(sent, part), name).value = getattr(getattr(asked, part), name).value
    sent.cpu.cpus = asked.cpu.cpus
    sent.cpu.mems = asked.cpu.mems
    sent.hugepage_limits.extend(asked.hugepage_limits)
    for key, value in asked.unified.items():
        sent.unified[key] = value
    return sent


def merge_update(stored: api.LinuxResources, update: api.LinuxResources, *, full: bool) -> None:
    """Change `stored` as `update` says; zero and empty are unchanged.

    With `full` every field of the message counts (CRI-O's updates of other containers), else
    only those that CRI has. A new memory limit is the swap limit as well, so that a container
    does not start to swap.
    """
    names = (
        [("memory", name) for name, _ in MEMORY_FIELDS] + [("cpu", name) for name, _ in CPU_FIELDS]
        if full
        else list(_CRI_WRAPPERS)
    )
    for part, name in names:
        value = getattr(getattr(update, part), name).value
        if value:
            getattr(getattr(stored, part), name).value = value
    if update.memory.limit.value and not (full and update.memory.swap.value):
        stored.memory.swap.value = update.memory.limit.value
    if update.cpu.cpus:
        stored.cpu.cpus = update.cpu.cpus
    if update.cpu.mems:
        stored.cpu.mems = update.cpu.mems
    for limit in update.hugepage_limits:
        put_hugepage_limit(stored, limit)
    for key, value in update.unified.items():
        stored.unified[key] = value


def copy_of(message: M) -> M:
    """Give an independent copy of a message."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def put_hugepage_limit(stored: api.LinuxResources, limit: api.HugepageLimit) -> None:
    """Set the limit of one page size, replacing an earlier one."""
    for known in stored.hugepage_limits:
        if known.page_size == limit.page_size:
            known.limit = limit.limit
            return
    stored.hugepage_limits.append(limit)


def _take_cpuset(
    wish: api.LinuxResources, targets: Sequence[api.LinuxResources], claim: Claim
) -> None:
    for name, field in CPUSET_FIELDS:
        text = getattr(wish.cpu, name)
        if text:
            claim(field, None)
            for target in targets:
                setattr(target.cpu, name, text)


def _take_wrapped(
    wish: api.LinuxResources,
    targets: Sequence[api.LinuxResources],
    part: str,
    fields: Sequence[tuple[str, int]],
    claim: Claim,
) -> None:
    if not wish.HasField(part):
        return
    source = getattr(wish, part)
    for name, field in fields:
        if source.HasField(name):
            claim(field, None)
            for target in targets:
                _set(getattr(target, part), name, getattr(source, name))


def _set(target: Any, name: str, value: Any) -> None:  # noqa: ANN401 - any optional wrapper
    wrapper = getattr(target, name)
    wrapper.CopyFrom(value)
    wrapper.SetInParent()  # an explicit zero is present and empty
