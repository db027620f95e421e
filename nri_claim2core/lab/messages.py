"""Pods and containers as an embedded runtime is asked to run them, in NRI's messages.

What a CRI runtime has done before the first NRI event is done here: labels and annotations as
kubelet sets them, CDI edits applied to the environment, resources as they arrived.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from nri_claim2core.lab.scenario import ClaimSpec, ContainerSpec, PodSpec
from nri_claim2core.nri import nri_pb2 as api


def sandbox_id(pod: PodSpec) -> str:
    """Give the id of a pod's sandbox."""
    return _id("sandbox", pod.uid)


def container_id(pod: PodSpec, name: str, attempt: int) -> str:
    """Give the id of a container; each restart has another."""
    return _id("container", pod.uid, name, str(attempt))


def pod_message(pod: PodSpec) -> api.PodSandbox:
    """Give a pod sandbox."""
    return api.PodSandbox(
        id=sandbox_id(pod),
        name=pod.name,
        uid=pod.uid,
        namespace=pod.namespace,
        labels={**pod.labels, **_pod_labels(pod)},
        annotations={**pod.annotations, "kubernetes.io/config.source": "api"},
        linux=api.LinuxPodSandbox(cgroup_parent=_cgroup(pod)),
    )


def container_message(
    pod: PodSpec, spec: ContainerSpec, claims: Mapping[str, ClaimSpec], attempt: int
) -> api.Container:
    """Give a container as it arrives at CreateContainer."""
    own = container_id(pod, spec.name, attempt)
    held = [claims[alias] for alias in spec.claims]
    devices = spec.cdi_devices
    if devices is None:
        devices = tuple(name for claim in held for name in claim.cdi_devices)
    message = api.Container(
        id=own,
        pod_sandbox_id=sandbox_id(pod),
        name=spec.name,
        labels={**_pod_labels(pod), "io.kubernetes.container.name": spec.name},
        annotations={"io.kubernetes.container.restartCount": str(attempt)},
        args=["/bin/workload"],
        env=_environment(spec, held),
        linux=api.LinuxContainer(cgroups_path=f"{_cgroup(pod)}/{own}"),
    )
    message.CDI_devices.extend(api.CDIDevice(name=name) for name in devices)
    cpu = message.linux.resources.cpu
    cpu.cpus, cpu.mems = spec.cpus, spec.mems
    cpu.shares.value = spec.shares
    return message


def _environment(spec: ContainerSpec, held: Sequence[ClaimSpec]) -> list[str]:
    # CDI edits replace what the pod said under the same name and go to the end.
    entries: dict[str, str] = {"PATH": "PATH=/bin"}
    for entry in (*spec.env, *(claim.variable for claim in held), *spec.env_after_cdi):
        name = entry.partition("=")[0]
        entries.pop(name, None)
        entries[name] = entry
    return list(entries.values())


def _pod_labels(pod: PodSpec) -> dict[str, str]:
    return {
        "io.kubernetes.pod.name": pod.name,
        "io.kubernetes.pod.namespace": pod.namespace,
        "io.kubernetes.pod.uid": pod.uid,
    }


def _cgroup(pod: PodSpec) -> str:
    return f"/kubepods/besteffort/pod{pod.uid}"


def _id(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()
