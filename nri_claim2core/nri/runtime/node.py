"""The node's state as a runtime keeps it: pods, containers, and which events are still due.

Two kinds of state are apart, as in the runtimes: the CRI state of a container (created,
running, exited), and what NRI has been told (`due`). The latter lives in the runtime process,
is lost when it restarts, and comes back for containers only with the next Synchronize.
Pure: no clock, no socket.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime.profiles_table import Fill, Profile


class Phase(enum.Enum):
    """CRI state of a container."""

    CREATING = "creating"
    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


class Told(enum.Enum):
    """How far NRI has been told about a pod or container; absent = nothing, or all of it."""

    CREATED = "created"
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(slots=True, kw_only=True)
class PodRecord:
    """One pod sandbox."""

    pod: api.PodSandbox
    is_ready: bool = True


@dataclass(slots=True, kw_only=True)
class ContainerRecord:
    """One container; `spec` holds everything, whatever this runtime shows of it."""

    spec: api.Container
    phase: Phase = Phase.CREATING
    pid: int = 0
    """Of the process that exists or, after its end, existed."""
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0

    @property
    def has_process(self) -> bool:
        """Whether an init process exists."""
        return self.pid != 0 and self.phase in {Phase.CREATED, Phase.RUNNING}


@dataclass(slots=True)
class Node:
    """All pods and containers by id, in order of creation."""

    pods: dict[str, PodRecord] = field(default_factory=dict)
    containers: dict[str, ContainerRecord] = field(default_factory=dict)
    told: dict[str, Told] = field(default_factory=dict)

    def needs_stop(self, key: str) -> bool:
        """Whether a stop event for this pod or container is due."""
        return self.told.get(key) in {Told.CREATED, Told.RUNNING}

    def needs_removal(self, key: str) -> bool:
        """Whether a removal event is due."""
        return key in self.told

    def containers_of(self, pod: str) -> list[ContainerRecord]:
        """Give the containers of one pod."""
        return [record for record in self.containers.values() if record.spec.pod_sandbox_id == pod]

    def for_synchronize(self, profile: Profile) -> tuple[list[api.PodSandbox], list[api.Container]]:
        """Give what a plugin is synchronized with: all pods, containers that have not exited.

        Also marks these containers as told, as a runtime does at this moment.
        """
        records = [
            record
            for record in self.containers.values()
            if record.phase in {Phase.CREATED, Phase.RUNNING}
        ]
        for record in records:
            is_running = record.phase is Phase.RUNNING
            self.told[record.spec.id] = Told.RUNNING if is_running else Told.CREATED
        pods = [show_pod(record.pod, profile) for record in self.pods.values()]
        return pods, [show_container(record, profile) for record in records]


_STATES = {
    Phase.CREATING: api.CONTAINER_UNKNOWN,
    Phase.CREATED: api.CONTAINER_CREATED,
    Phase.RUNNING: api.CONTAINER_RUNNING,
    Phase.EXITED: api.CONTAINER_STOPPED,
}

_LINUX_SCHEDULING = ("io_priority", "scheduler", "net_devices", "rdt")
_LINUX_SECCOMP_SYSCTL = ("seccomp_policy", "sysctl")
_TOP_FIELDS: Final[tuple[tuple[Fill, tuple[str, ...]], ...]] = (
    (Fill.RLIMITS_USER, ("rlimits", "user")),
    (Fill.CDI_DEVICES, ("CDI_devices",)),
    (Fill.IMAGE, ("image",)),
)
_LINUX_FIELDS: Final[tuple[tuple[Fill, tuple[str, ...]], ...]] = (
    (Fill.SCHEDULING, _LINUX_SCHEDULING),
    (Fill.SECCOMP_PROFILE, ("seccomp_profile",)),
    (Fill.SECCOMP_SYSCTL, _LINUX_SECCOMP_SYSCTL),
)


def show_pod(pod: api.PodSandbox, profile: Profile, *, has_pid: bool = True) -> api.PodSandbox:
    """Give a pod as this runtime shows it."""
    shown = api.PodSandbox()
    shown.CopyFrom(pod)
    if Fill.POD_IPS not in profile.fills:
        shown.ClearField("ips")
    if not has_pid:
        shown.pid = 0
    return shown


def show_container(
    record: ContainerRecord,
    profile: Profile,
    *,
    state: api.ContainerState | None = None,
    has_pid: bool = True,
) -> api.Container:
    """Give a container as this runtime shows it; `state` overrides the one of its phase."""
    shown = api.Container()
    shown.CopyFrom(record.spec)
    _hide(shown, profile)
    shown.state = _STATES[record.phase] if state is None else state
    shown.pid = record.pid if has_pid and Fill.TASK_PID in profile.fills else 0
    if Fill.TIMES in profile.fills:
        shown.created_at = record.created_at
        shown.started_at = record.started_at
        shown.finished_at = record.finished_at
        shown.exit_code = record.exit_code
    else:
        for name in ("created_at", "started_at", "finished_at", "exit_code"):
            shown.ClearField(name)
    return shown


def _hide(shown: api.Container, profile: Profile) -> None:
    for fill, names in _TOP_FIELDS:
        if fill not in profile.fills:
            for name in names:
                shown.ClearField(name)
    if shown.HasField("linux"):
        for fill, names in _LINUX_FIELDS:
            if fill not in profile.fills:
                for name in names:
                    shown.linux.ClearField(name)
        if Fill.PIDS not in profile.fills and shown.linux.HasField("resources"):
            shown.linux.resources.ClearField("pids")
    for name in ("status_reason", "status_message"):  # no runtime fills these
        shown.ClearField(name)
