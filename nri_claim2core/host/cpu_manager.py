"""Kubelet's CPU manager state: its policy, its shared pool, the exclusive CPUs of containers.

The file tells whose cpuset a value is that arrives with a new container, and whether kubelet
pins at all. Its checksum is over an in-memory dump of another language's objects and cannot be
verified here; kubelet writes a temporary file and renames it, so a torn file is not expected,
and nothing is granted on its word.
"""

from __future__ import annotations

import errno
import json
import time
from typing import Final

from nri_claim2core.host.files import KUBELET_DIR, CachedFile, Clock
from nri_claim2core.model.cpuset import CpuSet, parse_kubernetes
from nri_claim2core.model.errors import CpuListError, HostError
from nri_claim2core.model.ids import PodUid
from nri_claim2core.model.kubelet import CpuManagerState

STATE_NAME: Final = "cpu_manager_state"
STATE: Final = f"{KUBELET_DIR}/{STATE_NAME}"

MAX_STATE_BYTES: Final = 4 << 20
"""An entry takes about a hundred bytes."""


class CpuManagerReader:
    """Reads the state of the node whose file system is at `root`; safe for several threads."""

    def __init__(self, root: str = "/", path: str = STATE, *, clock: Clock = time.time_ns) -> None:
        self._file = CachedFile(
            root, path, limit=MAX_STATE_BYTES, parse=parse_cpu_manager, clock=clock
        )

    def read(self) -> CpuManagerState | None:
        """Give the state as it is now, or None when there is no such file.

        Raises: nothing; a problem is in the state. Blocking: host read.
        """
        try:
            return self._file.read()
        except HostError as error:
            if error.errno == errno.ENOENT:
                return None
            return CpuManagerState(readable=False, problem=str(error))


def parse_cpu_manager(data: bytes) -> CpuManagerState:
    """Read the state file's bytes.

    Raises: nothing; what is wrong is in `problem`. Blocking: never.
    Source: pkg/kubelet/cm/cpumanager/state/checkpoint.go, CPUManagerCheckpoint (V2).
    """
    try:
        top = json.loads(data.decode("utf-8"))
        return CpuManagerState(
            policy=_text(top, "policyName"),
            default_cpus=parse_kubernetes(_text(top, "defaultCpuSet")),
            entries={
                PodUid(pod): _containers(containers)
                for pod, containers in _mapping(top.get("entries") or {}).items()
            },
        )
    except RecursionError:
        problem = "is nested too deeply"
    except (ValueError, CpuListError) as error:
        problem = str(error)
    return CpuManagerState(readable=False, problem=problem)


def _containers(value: object) -> dict[str, CpuSet]:
    made: dict[str, CpuSet] = {}
    for name, text in _mapping(value).items():
        if not isinstance(text, str):
            raise ValueError(f"the CPUs of container {name} are not a text")  # noqa: TRY004 - content
        made[name] = parse_kubernetes(text)
    return made


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError("an object was expected")  # noqa: TRY004 - content, not a caller's type
    return value


def _text(top: object, key: str) -> str:
    value = _mapping(top).get(key)
    if not isinstance(value, str):
        raise ValueError(f"has no text in {key}")  # noqa: TRY004 - content
    return value
