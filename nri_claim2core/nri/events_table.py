"""The events of NRI, the methods that carry them, and which runtime knows which.

One table feeds both endpoints: dispatch of the plugin, the driver of the runtime, masks. An
event's mask bit is `1 << (value - 1)`. A mask with one bit more than the runtime knows gets
the plugin dropped, and a mask of 0 means *every* event, validation included: so masks are
always trimmed to the runtime and never 0.

NRI says its version in Configure since 0.12.0 only; before, it follows from the runtime's
name and version (the NRI module in the go.mod of each release).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import Message

from nri_claim2core.nri import nri_pb2 as api

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"


class NriVersion(NamedTuple):
    """A release of NRI; pre-releases count as the release they follow."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


DEDICATED_RPC_SINCE = NriVersion(0, 12, 0)
"Runtimes before send the nine reply-less events as StateChange only."
SAFE_UPDATES_SINCE = NriVersion(0, 12, 1)
"Before, UpdateContainers during lifecycle events dead-locks the runtime for ever."


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSpec:
    """One event and the method that carries it."""

    name: str
    "As in the Event enum."
    value: int
    rpc: str
    request: type[Message]
    response: type[Message]
    handler: str
    "Name of the Plugin method that handles it."
    state_change: bool
    "Carried by StateChange on runtimes that lack the dedicated method."
    rpc_since: NriVersion
    has_container: bool
    "False for events of the pod sandbox alone."

    @property
    def mask(self) -> int:
        """Its bit in a subscription."""
        return 1 << (self.value - 1)


def _event(
    value: int,
    rpc: str,
    request: type[Message],
    response: type[Message],
    since: tuple[int, int, int],
    *,
    state_change: bool = False,
) -> EventSpec:
    handler = re.sub(r"(?<!^)(?=[A-Z])", "_", rpc).lower()
    return EventSpec(
        name=api.Event.Name(value),
        value=value,
        rpc=rpc,
        request=request,
        response=response,
        handler=handler,
        state_change=state_change,
        rpc_since=NriVersion(*since),
        has_container="container" in request.DESCRIPTOR.fields_by_name,
    )


EVENTS: tuple[EventSpec, ...] = (
    _event(
        1, "RunPodSandbox", api.RunPodSandboxRequest, api.RunPodSandboxResponse,
        (0, 12, 0), state_change=True,
    ),
    _event(
        2, "StopPodSandbox", api.StopPodSandboxRequest, api.StopPodSandboxResponse,
        (0, 12, 0), state_change=True,
    ),
    _event(
        3, "RemovePodSandbox", api.RemovePodSandboxRequest, api.RemovePodSandboxResponse,
        (0, 12, 0), state_change=True,
    ),
    _event(
        4, "CreateContainer", api.CreateContainerRequest, api.CreateContainerResponse,
        (0, 2, 0),
    ),
    _event(
        5, "PostCreateContainer", api.PostCreateContainerRequest,
        api.PostCreateContainerResponse, (0, 12, 0), state_change=True,
    ),
    _event(
        6, "StartContainer", api.StartContainerRequest, api.StartContainerResponse,
        (0, 12, 0), state_change=True,
    ),
    _event(
        7, "PostStartContainer", api.PostStartContainerRequest,
        api.PostStartContainerResponse, (0, 12, 0), state_change=True,
    ),
    _event(
        8, "UpdateContainer", api.UpdateContainerRequest, api.UpdateContainerResponse,
        (0, 2, 0),
    ),
    _event(
        9, "PostUpdateContainer", api.PostUpdateContainerRequest,
        api.PostUpdateContainerResponse, (0, 12, 0), state_change=True,
    ),
    _event(
        10, "StopContainer", api.StopContainerRequest, api.StopContainerResponse,
        (0, 2, 0),
    ),
    _event(
        11, "RemoveContainer", api.RemoveContainerRequest, api.RemoveContainerResponse,
        (0, 12, 0), state_change=True,
    ),
    _event(
        12, "UpdatePodSandbox", api.UpdatePodSandboxRequest, api.UpdatePodSandboxResponse,
        (0, 10, 0),
    ),
    _event(
        13, "PostUpdatePodSandbox", api.PostUpdatePodSandboxRequest,
        api.PostUpdatePodSandboxResponse, (0, 12, 0), state_change=True,
    ),
    _event(
        14, "ValidateContainerAdjustment", api.ValidateContainerAdjustmentRequest,
        api.ValidateContainerAdjustmentResponse, (0, 10, 0),
    ),
)  # fmt: skip

EVENT_OF_VALUE: Mapping[int, EventSpec] = {event.value: event for event in EVENTS}
EVENT_OF_RPC: Mapping[str, EventSpec] = {event.rpc: event for event in EVENTS}

PLUGIN_METHODS: Mapping[str, frozenset[str]] = {
    PLUGIN_SERVICE: frozenset(
        {"Configure", "Synchronize", "Shutdown", "StateChange", *EVENT_OF_RPC}
    )
}
"What a plugin serves."
RUNTIME_METHODS: Mapping[str, frozenset[str]] = {
    RUNTIME_SERVICE: frozenset({"RegisterPlugin", "UpdateContainers"})
}
"What a runtime serves."

_MASK_OLD = 0x7FF
_MASK_UPDATE_POD = 0x1FFF
_MASK_VALIDATE = 0x3FFF


def _releases(*rows: tuple[str, str]) -> tuple[tuple[tuple[int, int, int], NriVersion], ...]:
    return tuple((_numbers(release), NriVersion(*_numbers(nri))) for release, nri in rows)


def _numbers(text: str) -> tuple[int, int, int]:
    major, minor, patch = text.split(".")
    return int(major), int(minor), int(patch)


# First release with an NRI version -> that version, ascending. Where a branch started on an
# older NRI than the branch before ended on, its .0 has a row of its own.
_NRI_OF_RELEASE: Mapping[str, tuple[tuple[tuple[int, int, int], NriVersion], ...]] = {
    "containerd": _releases(
        ("1.7.0", "0.3.0"),
        ("1.7.7", "0.4.0"),
        ("1.7.14", "0.6.0"),
        ("1.7.16", "0.6.1"),
        ("1.7.26", "0.8.0"),
        ("2.0.0", "0.8.0"),
        ("2.1.0", "0.8.0"),
        ("2.2.0", "0.10.0"),
        ("2.2.1", "0.11.0"),
        ("2.3.0", "0.12.0"),
        ("2.4.0", "0.12.1"),
    ),
    # 0.3.1 and 0.9.1 were never released: they stand for the snapshots after 0.3.0 and
    # 0.9.0 that CRI-O vendored. The latter knows UpdatePodSandbox, not validation.
    "cri-o": _releases(
        ("1.26.0", "0.2.0"),
        ("1.26.2", "0.3.0"),
        ("1.26.4", "0.3.1"),
        ("1.27.0", "0.3.0"),
        ("1.27.1", "0.3.1"),
        ("1.28.0", "0.3.1"),
        ("1.29.0", "0.5.0"),
        ("1.29.2", "0.6.0"),
        ("1.31.0", "0.6.1"),
        ("1.32.0", "0.9.0"),
        ("1.33.0", "0.9.1"),
        ("1.34.0", "0.10.0"),
        ("1.35.0", "0.11.0"),
        ("1.37.0", "0.12.0"),
    ),
}

_VERSION = re.compile(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(-0\.\d{14}-|-\d{14}-)?", re.ASCII)


def _parse_version(text: str) -> tuple[int, int, int] | None:
    match = _VERSION.match(text)
    if match is None:
        return None
    major, minor, patch = int(match[1]), int(match[2]), int(match[3])
    # A Go pseudo-version lies before the release that it names.
    if match[4] and patch:
        patch -= 1
    return major, minor, patch


def nri_version_of(
    runtime_name: str, runtime_version: str, nri_version: str = ""
) -> NriVersion | None:
    """Give the NRI version of the runtime that sent these three fields in Configure.

    `nri_version` wins where it can be read; else the closest release of the runtime that is
    not newer; None for an unknown runtime or one older than NRI.
    """
    said = _parse_version(nri_version)
    if said is not None:
        return NriVersion(*said)
    release = _parse_version(runtime_version)
    found = None
    if release is not None:
        for first, nri in _NRI_OF_RELEASE.get(runtime_name, ()):
            if first <= release:
                found = nri
    return found


def valid_mask(version: NriVersion | None) -> int:
    """Give every event bit that this NRI version accepts; None is taken as an old one."""
    if version is None or version <= (0, 9, 0):
        return _MASK_OLD
    return _MASK_UPDATE_POD if version < (0, 10, 0) else _MASK_VALIDATE


def sends_dedicated_rpcs(version: NriVersion | None) -> bool:
    """Whether this NRI version tries the dedicated methods before StateChange."""
    return version is not None and version >= DEDICATED_RPC_SINCE


def updates_are_safe(version: NriVersion | None) -> bool:
    """Whether UpdateContainers may be called without risk of dead-locking the runtime."""
    return version is not None and version >= SAFE_UPDATES_SINCE
