"""Builders of evidence as drivers, kubelet and runtimes leave it on a node."""

from types import SimpleNamespace

import pytest

from nri_claim2core.claims.link import link
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.evidence import (
    CdiDevice,
    CdiProblem,
    CdiSnapshot,
    CheckpointClaim,
    CheckpointSnapshot,
    NodeEvidence,
)
from nri_claim2core.model.ids import ClaimUid, ContainerId, PodUid, SandboxId
from nri_claim2core.model.records import ContainerRecord, ContainerState, PodRecord
from nri_claim2core.model.topology import NodeTopology, NumaNode

A = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"
B = "0c9f1e2d-3b4a-4c5d-8e6f-708192a3b4c5"
C = "f1e2d3c4-b5a6-4978-8869-5a4b3c2d1e0f"
POD = "1f0e9d8c-7b6a-4958-8473-625140392817"
OTHER_POD = "22222222-7b6a-4958-8473-625140392817"


def cpus(text):
    """A CpuSet from `0-3,8`, by a parser of this file."""
    members = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        members |= set(range(int(first), int(last or first) + 1))
    return CpuSet(members)


def device_of(uid):
    return f"dra.k8s.io/cpu=claim-{uid}"


def var(uid, value):
    return f"DRA_CPUSET_{uid}={value}"


def spec(uid, value, name=None, path=None, env=None):
    """One device as dra.cpu writes it; `env` replaces its one variable."""
    return CdiDevice(
        qualified_name=name or device_of(uid),
        path=path or f"/var/run/cdi/dra.k8s.io-cpu_claim-{uid}.json",
        env=(var(uid, value),) if env is None else tuple(env),
        version="0.8.0",
    )


def snapshot(*devices, conflicts=None, problems=(), readable=True):
    return CdiSnapshot(
        devices={d.qualified_name: d for d in devices},
        conflicts=conflicts or {},
        problems=tuple(CdiProblem(path=p, reason=r) for p, r in problems),
        readable=readable,
    )


def held(uid, pods=(POD,), cdi_ids=None):
    return CheckpointClaim(
        uid=ClaimUid(uid),
        name="cores",
        namespace="batch",
        pod_uids=frozenset(PodUid(p) for p in pods),
        cdi_ids=frozenset([device_of(uid)] if cdi_ids is None else cdi_ids),
        drivers=("dra.cpu",),
    )


def checkpoint(*claims):
    return CheckpointSnapshot(claims={c.uid: c for c in claims})


NO_CHECKPOINT = CheckpointSnapshot(
    readable=False, problem="/var/lib/kubelet/dra_manager_state: no such file"
)


def node(cdi=None, kubelet=NO_CHECKPOINT, online="0-15", possible="0-31"):
    return NodeEvidence(
        cdi=cdi or snapshot(),
        checkpoint=kubelet,
        online=None if online is None else cpus(online),
        possible=None if possible is None else cpus(possible),
    )


def pod(annotations=None, namespace="batch"):
    return PodRecord(
        sandbox_id=SandboxId("s1"),
        uid=PodUid(POD),
        name="solver-0",
        namespace=namespace,
        annotations=annotations or {},
    )


def container(env=(), cdi=None, state=ContainerState.UNKNOWN, **fields):
    return ContainerRecord(
        id=ContainerId("c1"),
        sandbox_id=SandboxId("s1"),
        name="solver",
        state=state,
        claim_env=tuple(env),
        cdi_devices=None if cdi is None else tuple(cdi),
        **fields,
    )


def links_of(env=(), cdi=None, evidence=None, state=ContainerState.UNKNOWN):
    return link(pod(), container(env, cdi, state), evidence or node())


def topology(online="0-15", nodes=None):
    """Two nodes of eight CPUs each with memory, unless given as {id: (cpus, has_memory)}."""
    nodes = {0: ("0-7", True), 1: ("8-15", True)} if nodes is None else nodes
    return NodeTopology(
        online=cpus(online),
        possible=cpus("0-31"),
        present=cpus("0-15"),
        nodes=tuple(
            NumaNode(id=number, cpus=cpus(text), has_memory=memory)
            for number, (text, memory) in nodes.items()
        ),
    )


@pytest.fixture(scope="session")
def bed():
    """Everything above, for tests."""
    return SimpleNamespace(**{k: v for k, v in globals().items() if not k.startswith("_")})
