"""From NRI messages to the records we remember, and from decisions back to messages.

The one place where protobuf meets `model`. Of the environment only entries with the claim
prefix are taken over: values may be secrets, and two thousand containers are remembered.
Presence matters: a wrapper that is absent is None, one that is present and empty is 0.
"""

from __future__ import annotations

from typing import Final

from nri_claim2core.claims.optout import PRESERVE_ANNOTATION
from nri_claim2core.model.cpuset import parse_kernel
from nri_claim2core.model.envelope import Envelope, Ownership
from nri_claim2core.model.ids import ContainerId, PodUid, SandboxId
from nri_claim2core.model.records import ContainerRecord, ContainerState, PodRecord
from nri_claim2core.nri import nri_pb2 as api

CLAIM_ENV_PREFIX: Final = "DRA_CPUSET"
"""Entries that start so are kept verbatim; what they mean is decided in `claims`."""

OWNER_ANNOTATION: Final = "claim2core.gthulhu.io/cpuset-owner"
"""Container annotation that remembers who was found to write its cpuset at creation."""

OWNER_SELF: Final = "claim2core"

_STATES: Final = {
    api.CONTAINER_CREATED: ContainerState.CREATED,
    api.CONTAINER_PAUSED: ContainerState.PAUSED,
    api.CONTAINER_RUNNING: ContainerState.RUNNING,
    api.CONTAINER_STOPPED: ContainerState.STOPPED,
}


def pod_record(pod: api.PodSandbox) -> PodRecord:
    """Give the record of a pod sandbox message."""
    return PodRecord(
        sandbox_id=SandboxId(pod.id),
        uid=PodUid(pod.uid),
        name=pod.name,
        namespace=pod.namespace,
        annotations={
            key: pod.annotations[key] for key in pod.annotations if PRESERVE_ANNOTATION in key
        },
    )


def container_record(container: api.Container, *, cdi_reported: bool) -> ContainerRecord:
    """Give the record of a container message.

    `cdi_reported` tells whether this runtime fills CDI_devices at all: only then does an
    empty list mean "none", else it means nothing.
    """
    resources = container.linux.resources
    cpu = resources.cpu
    cdi = tuple(device.name for device in container.CDI_devices)
    return ContainerRecord(
        id=ContainerId(container.id),
        sandbox_id=SandboxId(container.pod_sandbox_id),
        name=container.name,
        state=_STATES.get(container.state, ContainerState.UNKNOWN),
        # A copy is iterated faster than the field of the message.
        claim_env=tuple([e for e in container.env[:] if e.startswith(CLAIM_ENV_PREFIX)]),
        cdi_devices=cdi if cdi or cdi_reported else None,
        cgroups_path=container.linux.cgroups_path,
        pid=container.pid,
        owned=container.annotations.get(OWNER_ANNOTATION, "") == OWNER_SELF,
        cpus=cpu.cpus,
        mems=cpu.mems,
        shares=cpu.shares.value if cpu.HasField("shares") else None,
    )


def cpuset_update(container_id: str, cpus: str) -> api.ContainerUpdate:
    """Give the update that puts a container's cpuset back; never without its id."""
    update = api.ContainerUpdate(container_id=container_id)
    update.linux.resources.cpu.cpus = cpus
    return update


def adjustment(
    envelope: Envelope, container: ContainerRecord
) -> api.CreateContainerResponse | None:
    """Give the creation reply that confines a container to its envelope, None for "no change".

    Memory nodes that arrived as they have to be are not written again: where they are another
    plugin's, writing even the same value fails the creation.
    The owner annotation travels with the container through restarts of plugin and runtime.
    """
    if envelope.ownership is not Ownership.OWN or not envelope.cpus:
        return None
    response = api.CreateContainerResponse()
    cpu = response.adjust.linux.resources.cpu
    cpu.cpus = str(envelope.cpus)
    arrived = container.mems
    if envelope.mems and not (arrived and parse_kernel(arrived) == envelope.mems):
        cpu.mems = str(envelope.mems)
    if envelope.shares is not None:
        cpu.shares.value = envelope.shares
    response.adjust.annotations[OWNER_ANNOTATION] = OWNER_SELF
    return response
