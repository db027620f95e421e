"""A scenario: a node, its claims, pods and containers, and a scripted list of events.

What is here are values only; `scenario_loader` makes them from YAML and `simulate` plays
them. Names are the scenario's own: a container is `pod/name`, a claim is its alias. UIDs
that are not given follow from the names, so that a scenario plays the same way each time.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nri_claim2core.lab import node

KIND: Final = "Scenario"

_NAMESPACE = uuid.UUID("6f6dc5b6-0a52-4a57-9b0c-6c1a6de0b3a1")


def derived_uid(kind: str, name: str) -> str:
    """Give the UID of a claim or pod that names none."""
    return str(uuid.uuid5(_NAMESPACE, f"{kind}/{name}"))


class Verb(enum.Enum):
    """What a step does; the value is its key in the file."""

    RUN_POD = "runPod"
    STOP_POD = "stopPod"
    REMOVE_POD = "removePod"
    CREATE = "create"
    START = "start"
    UPDATE = "update"
    "As kubelet's CPU manager: unset fields arrive as zero, which means unchanged."
    STOP = "stop"
    REMOVE = "remove"
    PREPARE = "prepare"
    "Kubelet's checkpoint and the driver's CDI spec are written."
    UNPREPARE = "unprepare"
    "The spec goes, then the checkpoint's entry."
    REMOVE_SPEC = "removeSpec"
    "Only the spec goes, as after a reboot."
    WRITE_FILE = "writeFile"
    REMOVE_FILE = "removeFile"
    STOP_PLUGIN = "stopPlugin"
    START_PLUGIN = "startPlugin"
    RESTART_PLUGIN = "restartPlugin"
    RESTART_RUNTIME = "restartRuntime"


POD_VERBS: Final = frozenset({Verb.RUN_POD, Verb.STOP_POD, Verb.REMOVE_POD})
CONTAINER_VERBS: Final = frozenset({Verb.CREATE, Verb.START, Verb.UPDATE, Verb.STOP, Verb.REMOVE})
CLAIM_VERBS: Final = frozenset({Verb.PREPARE, Verb.UNPREPARE, Verb.REMOVE_SPEC})
FILE_VERBS: Final = frozenset({Verb.WRITE_FILE, Verb.REMOVE_FILE})


class Driver(enum.Enum):
    """Whose conventions a claim's CDI spec follows."""

    DRA_CPU = "dra.cpu"
    DRA_CPU_0_1 = "dra.cpu-0.1"
    "One spec file for all claims of the node."
    TOPOLOGY_AWARE = "topology-aware.nri.io"
    "The nri-plugins policy: YAML, one device for each allocation result."


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaSpec:
    """One memory node of the scenario's machine."""

    id: int
    cpus: str
    memory: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuManagerSpec:
    """Kubelet's CPU manager state: policy, shared pool, `pod/container` to exclusive CPUs."""

    policy: str
    default_cpus: str = ""
    entries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """The machine of a scenario."""

    online: str
    possible: str
    isolated: str = ""
    numa: tuple[NumaSpec, ...] = ()
    cpu_manager: CpuManagerSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSpec:
    """A claim as driver and kubelet know it."""

    alias: str
    uid: str
    cpus: str
    driver: Driver = Driver.DRA_CPU
    results: int = 1
    "Allocation results, each a CDI device of its own with the nri-plugins policies."
    pods: tuple[str, ...] = ()
    "Pods that kubelet's checkpoint lists for it."
    prepared: bool = True
    "Prepared before the first step."
    checkpointed: bool = True
    "Whether kubelet's checkpoint knows it at all."

    @property
    def cdi_devices(self) -> tuple[str, ...]:
        """Qualified names of its CDI devices."""
        if self.driver is Driver.TOPOLOGY_AWARE:
            return tuple(node.nri_plugins_device(self.uid, index) for index in range(self.results))
        return (node.dra_cpu_device(self.uid),)

    @property
    def variable(self) -> str:
        """The environment entry that its CDI spec adds."""
        return f"DRA_CPUSET_{self.uid}={self.cpus}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """A pod as kubelet presents it."""

    name: str
    uid: str
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """A container as kubelet asks the runtime for it."""

    key: str
    "`pod/name`."
    claims: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    "Entries of the pod author; one of a CDI spec with the same name wins, as in a runtime."
    env_after_cdi: tuple[str, ...] = ()
    "Entries that replace those of the CDI spec, as another NRI plugin would."
    cdi_devices: tuple[str, ...] | None = None
    "CDI names that kubelet passes; None = those of the claims."
    shares: int = 2
    "What kubelet sends; 2 is a container without a CPU request."
    cpus: str = ""
    mems: str = ""

    @property
    def pod(self) -> str:
        """Name of its pod."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """Name within the pod."""
        return self.key.partition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPlugin:
    """Another NRI plugin on the node, which sets cpusets at creation."""

    name: str
    index: str
    cpus: Mapping[str, str]
    "Container key to the CPUs that it sets."


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerExpect:
    """What must hold for one container after a step; None = not looked at."""

    cpus: str | None = None
    "Effective CPUs, as the (simulated) kernel has them."
    mems: str | None = None
    shares: int | None = None
    verdicts: Mapping[str, str] | None = None
    "Claim alias to verdict; exactly these links."
    ownership: str | None = None
    codes: tuple[str, ...] | None = None
    "Codes of findings, violations and links; each must be there."


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What must hold after a step."""

    error: str | None = None
    "Text within the error that the step ends with; None = it ends without one."
    containers: Mapping[str, ContainerExpect] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event."""

    verb: Verb
    line: int
    target: str = ""
    "Pod, container key, claim alias or path, by verb."
    cpus: str = ""
    mems: str = ""
    shares: int = 0
    text: str = ""
    "Content for writeFile."
    expect: Expect | None = None

    @property
    def title(self) -> str:
        """How reports name it."""
        options = [f"cpus={self.cpus}"] if self.cpus else []
        options += [f"mems={self.mems}"] if self.mems else []
        options += [f"shares={self.shares}"] if self.shares else []
        return " ".join(filter(None, (self.verb.value, self.target, *options)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything one file says."""

    name: str
    source: str
    description: str
    runtime: str
    "Key of a runtime profile."
    config: str
    "Configuration of the plugin as YAML, empty for the defaults."
    node: NodeSpec | None
    "None = as the given root has it."
    claims: Mapping[str, ClaimSpec]
    pods: Mapping[str, PodSpec]
    containers: Mapping[str, ContainerSpec]
    other_plugins: tuple[OtherPlugin, ...]
    steps: tuple[Step, ...]
