"""What each runtime release does differently, one row per release line.

A `Profile` is everything about a containerd or CRI-O release that a plugin can notice: the
NRI version it vendors (which gives the valid event mask and the form in which events come),
which fields of a container it fills, whether it takes CDI devices from plugins, and what an
error does.
`profile("containerd-2.3")` gives the newest release of that line; `dataclasses.replace`
makes variants (another version text, a shorter mask) for tests.

Rows state facts about published releases, so they change only when a release does.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from nri_claim2core.model.errors import UsageError

VALID_EVENTS_0_9: Final = 0x07FF
"""Events 1-11, all that NRI up to 0.9 knows."""
VALID_EVENTS_CRIO_1_33: Final = 0x1FFF
"""Events 1-13: the snapshot between 0.9.0 and 0.10.0 that CRI-O 1.33 vendors."""
VALID_EVENTS_0_10: Final = 0x3FFF
"""Events 1-14, since 0.10.0."""


class Fill(enum.Flag):
    """Groups of fields that a runtime fills in what it shows to plugins."""

    TASK_PID = enum.auto()
    """Container.pid, as soon as there is a process."""
    TIMES = enum.auto()
    """created_at, started_at, finished_at, exit_code."""
    RLIMITS_USER = enum.auto()
    CDI_DEVICES = enum.auto()
    IMAGE = enum.auto()
    SCHEDULING = enum.auto()
    """linux.io_priority, scheduler, net_devices, rdt."""
    SECCOMP_PROFILE = enum.auto()
    SECCOMP_SYSCTL = enum.auto()
    """linux.seccomp_policy and sysctl."""
    PIDS = enum.auto()
    """linux.resources.pids."""
    POD_IPS = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One runtime release as plugins meet it."""

    key: str
    """Such as ``containerd-2.3``."""
    runtime_name: str
    """As sent in Configure: ``containerd`` or ``cri-o``."""
    runtime_version: str
    """As sent in Configure; containerd's release builds have a leading v."""
    nri_version: tuple[int, int, int]
    valid_events: int
    """Mask of all events that may be subscribed, and what mask 0 stands for."""
    fills: Fill
    injects_cdi_devices: bool
    "CDI devices that plugins ask for are taken."
    sends_pod_update: bool = False
    sends_post_pod_update: bool = False
    is_crio: bool = False

    @property
    def has_dedicated_rpcs(self) -> bool:
        """Whether the nine former StateChange events come as calls of their own."""
        return self.nri_version >= (0, 12, 0)

    @property
    def tells_nri_version(self) -> bool:
        """Whether Configure carries the runtime's NRI version."""
        return self.nri_version >= (0, 12, 0)

    @property
    def tells_timeouts(self) -> bool:
        """Whether Configure carries the two time-outs."""
        return self.nri_version >= (0, 7, 0)

    @property
    def checks_plugin_name(self) -> bool:
        """Whether a registration with an odd name is refused."""
        return self.nri_version >= (0, 12, 0)

    @property
    def splits_synchronize(self) -> bool:
        """Whether a state above 4 MiB is sent in parts; before, in one message of any size."""
        return self.nri_version >= (0, 7, 0)

    @property
    def has_field_owners(self) -> bool:
        """Whether ownership is kept by Field, with its words in conflicts and validation."""
        return self.nri_version >= (0, 10, 0)

    @property
    def start_error_aborts(self) -> bool:
        """Whether an error from StartContainer prevents the start (else it is logged)."""
        return not self.is_crio

    @property
    def update_error_fails(self) -> bool:
        """Whether a failed update of another container fails the call that asked for it."""
        return self.is_crio

    @property
    def creates_process_early(self) -> bool:
        """Whether the init process exists from PostCreateContainer on (else StartContainer)."""
        return self.is_crio

    @property
    def forgets_pods_at_restart(self) -> bool:
        """Whether pods of an earlier process get no Stop and Remove events."""
        return not self.is_crio


_OLD_FILLS = Fill.TASK_PID
_CONTAINERD_2_0 = _OLD_FILLS | Fill.PIDS
_CONTAINERD_2_1 = _CONTAINERD_2_0 | Fill.POD_IPS
_CONTAINERD_2_2 = _CONTAINERD_2_1 | Fill.SCHEDULING | Fill.SECCOMP_PROFILE
_CONTAINERD_2_3 = (
    _CONTAINERD_2_2 | Fill.TIMES | Fill.RLIMITS_USER | Fill.CDI_DEVICES | Fill.SECCOMP_SYSCTL
)
_CONTAINERD_2_4 = _CONTAINERD_2_3 | Fill.IMAGE
_CRIO_1_33 = Fill.PIDS | Fill.POD_IPS
_CRIO_1_35 = _CRIO_1_33 | Fill.SCHEDULING
_CRIO_1_36 = _CRIO_1_35 | Fill.TASK_PID | Fill.TIMES | Fill.RLIMITS_USER

PROFILES: Final[dict[str, Profile]] = {
    row.key: row
    for row in (
        Profile(  # the last 1.7 without time-outs in Configure and without split Synchronize
            key="containerd-1.7.25",
            runtime_name="containerd",
            runtime_version="v1.7.25",
            nri_version=(0, 6, 1),
            valid_events=VALID_EVENTS_0_9,
            fills=_OLD_FILLS,
            injects_cdi_devices=False,
        ),
        Profile(
            key="containerd-1.7",
            runtime_name="containerd",
            runtime_version="v1.7.34",
            nri_version=(0, 8, 0),
            valid_events=VALID_EVENTS_0_9,
            fills=_CONTAINERD_2_0,
            injects_cdi_devices=True,
        ),
        Profile(  # drops CDI devices asked for by a plugin without a word
            key="containerd-2.0",
            runtime_name="containerd",
            runtime_version="v2.0.11",
            nri_version=(0, 8, 0),
            valid_events=VALID_EVENTS_0_9,
            fills=_CONTAINERD_2_0,
            injects_cdi_devices=False,
        ),
        Profile(
            key="containerd-2.1",
            runtime_name="containerd",
            runtime_version="v2.1.9",
            nri_version=(0, 8, 0),
            valid_events=VALID_EVENTS_0_9,
            fills=_CONTAINERD_2_1,
            injects_cdi_devices=True,
        ),
        Profile(
            key="containerd-2.2",
            runtime_name="containerd",
            runtime_version="v2.2.7",
            nri_version=(0, 11, 0),
            valid_events=VALID_EVENTS_0_10,
            fills=_CONTAINERD_2_2,
            injects_cdi_devices=True,
        ),
        Profile(
            key="containerd-2.3",
            runtime_name="containerd",
            runtime_version="v2.3.4",
            nri_version=(0, 12, 0),
            valid_events=VALID_EVENTS_0_10,
            fills=_CONTAINERD_2_3,
            injects_cdi_devices=True,
            sends_pod_update=True,
            sends_post_pod_update=True,
        ),
        Profile(
            key="containerd-2.4",
            runtime_name="containerd",
            runtime_version="v2.4.2",
            nri_version=(0, 12, 3),
            valid_events=VALID_EVENTS_0_10,
            fills=_CONTAINERD_2_4,
            injects_cdi_devices=True,
            sends_pod_update=True,
            sends_post_pod_update=True,
        ),
        Profile(
            key="cri-o-1.33",
            runtime_name="cri-o",
            runtime_version="1.33.13",
            nri_version=(0, 9, 1),
            valid_events=VALID_EVENTS_CRIO_1_33,
            fills=_CRIO_1_33,
            injects_cdi_devices=False,
            sends_pod_update=True,
            is_crio=True,
        ),
        Profile(
            key="cri-o-1.34",
            runtime_name="cri-o",
            runtime_version="1.34.11",
            nri_version=(0, 10, 0),
            valid_events=VALID_EVENTS_0_10,
            fills=_CRIO_1_33,
            injects_cdi_devices=True,
            sends_pod_update=True,
            is_crio=True,
        ),
        Profile(
            key="cri-o-1.35",
            runtime_name="cri-o",
            runtime_version="1.35.6",
            nri_version=(0, 11, 0),
            valid_events=VALID_EVENTS_0_10,
            fills=_CRIO_1_35,
            injects_cdi_devices=True,
            sends_pod_update=True,
            is_crio=True,
        ),
        Profile(
            key="cri-o-1.36",
            runtime_name="cri-o",
            runtime_version="1.36.3",
            nri_version=(0, 11, 0),
            valid_events=VALID_EVENTS_0_10,
            fills=_CRIO_1_36,
            injects_cdi_devices=True,
            sends_pod_update=True,
            is_crio=True,
        ),
    )
}


def profile(key: str) -> Profile:
    """Give the profile called `key`, such as ``containerd-2.3`` or ``cri-o-1.36``.

    Raises UsageError that lists the known ones.
    """
    found = PROFILES.get(key)
    if found is None:
        raise UsageError(f"no runtime profile {key!r}", hint="one of " + ", ".join(PROFILES))
    return found
