"""A pod sandbox and a container as we remember them: the few fields that decisions need.

The agent makes these from NRI messages and drops the messages, so that two thousand
containers cost kilobytes each at most, not an arena of protobuf. Environment values other
than claim variables are never kept (they hold secrets).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from nri_claim2core.model.ids import ContainerId, PodUid, SandboxId


class ContainerState(enum.Enum):
    """State as the runtime reports it; UNKNOWN at creation on containerd."""

    UNKNOWN = "unknown"
    CREATED = "created"
    PAUSED = "paused"
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """A pod sandbox."""

    sandbox_id: SandboxId
    uid: PodUid
    "The pod's UID as kubelet gave it to the runtime; for static pods a config hash, no UUID."
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    "Those that mean something to this product; a pod may carry 256 KiB of others."


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    """A container; resource fields are what the runtime is about to apply or has applied."""

    id: ContainerId
    sandbox_id: SandboxId
    name: str = ""
    state: ContainerState = ContainerState.UNKNOWN
    claim_env: tuple[str, ...] = ()
    "Environment entries that start with DRA_CPUSET, verbatim and in order; nothing else."
    cdi_devices: tuple[str, ...] | None = None
    "Names the runtime reports; None when this runtime does not report them (not: has none)."
    cgroups_path: str = ""
    "The OCI value: `slice:prefix:id` for systemd, an absolute path for cgroupfs."
    pid: int = 0
    "TGID of init in the host's pid namespace; 0 while unknown."
    owned: bool = False
    "Its creation was answered by us with a cpuset (remembered in a container annotation)."
    cpus: str = ""
    "cpuset.cpus text as it arrived; empty = not set."
    mems: str = ""
    shares: int | None = None
    "cgroup v1 CPU shares; None or 0 = not given."
