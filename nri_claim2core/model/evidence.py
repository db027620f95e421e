"""What was seen about claims, kept apart from what is concluded from it (`claim`).

Each source answers in one of three ways - it says so, it says not so, or it could not be
asked - and the third is never confused with the second: absence from a source older than the
event is *unknown*, not proof of forgery. Source: the trust order of the design, root-owned
evidence before the environment.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.ids import ClaimUid, PodUid
from nri_claim2core.model.kubelet import CpuManagerState
from nri_claim2core.model.topology import NodeTopology


class Source(enum.Enum):
    """Where a piece of evidence comes from, strongest first."""

    CDI_LIST = "cdi-list"
    CDI_SPEC = "cdi-spec"
    CHECKPOINT = "kubelet-checkpoint"
    NODE_STATE = "node-state"
    ENVIRONMENT = "environment"


class Answer(enum.Enum):
    """What a source says about one claim of one container."""

    CONFIRMS = "confirms"
    DENIES = "denies"
    SILENT = "silent"
    "Asked, and has nothing on it that proves anything either way."
    UNAVAILABLE = "unavailable"
    "Could not be asked: not reported by this runtime, unreadable, damaged, too old."


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One source's answer about one claim, with the words that `explain` prints."""

    source: Source
    answer: Answer
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiDevice:
    """One device of one CDI spec file on disk."""

    qualified_name: str
    path: str
    "File it stands in."
    env: tuple[str, ...] = ()
    "Container edits' env entries of device and spec, in order."
    version: str = ""
    "cdiVersion of the file."


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiProblem:
    """A spec file that could not be used; the others stay usable."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiSnapshot:
    """The CDI spec directories as read at one moment."""

    devices: Mapping[str, CdiDevice] = field(default_factory=dict)
    "By qualified name; a name that two files of one priority define is in none of them."
    conflicts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    "Qualified name -> paths of the files that both define it."
    problems: tuple[CdiProblem, ...] = ()
    readable: bool = True
    "False when no directory could be read at all: every answer is then UNAVAILABLE."


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointClaim:
    """A claim in kubelet's DRA checkpoint."""

    uid: ClaimUid
    name: str
    namespace: str
    pod_uids: frozenset[PodUid]
    cdi_ids: frozenset[str]
    drivers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSnapshot:
    """Kubelet's `dra_manager_state` as read at one moment."""

    claims: Mapping[ClaimUid, CheckpointClaim] = field(default_factory=dict)
    readable: bool = True
    problem: str = ""
    "Why it could not be read or trusted (missing, checksum); empty when readable."


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvidence:
    """All root-owned evidence on this node, read together for one decision."""

    cdi: CdiSnapshot
    checkpoint: CheckpointSnapshot
    online: CpuSet | None = None
    "CPUs online; None when /sys could not be read."
    possible: CpuSet | None = None
    topology: NodeTopology | None = None
    "CPUs and memory nodes; None when /sys could not be read."
    cpu_manager: CpuManagerState | None = None
    "Kubelet's exclusive CPUs; None when there is no such file."
