"""What DRA drivers and kubelet leave on a node, written as they write it.

CDI specs of dra-driver-cpu (one JSON file per claim since 0.2, one file for all claims in
0.1) and of the nri-plugins policies (YAML), kubelet's DRA checkpoint and CPU manager state
with their checksums. These are the writers of a test world: byte for byte what the real
ones produce, and nothing shared with the readers of the product.

Sources: dra-driver-cpu pkg/driver/cdi.go (v0.1.0 and later), container-device-interface
pkg/cdi/spec.go (temporary file, rename, mode 0600), kubelet pkg/kubelet/cm/dra/state and
pkg/kubelet/cm/cpumanager/state.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DRA_CPU_KIND = "dra.k8s.io/cpu"
DRA_CPU_DRIVER = "dra.cpu"

_DRA_CPU_CDI_VERSION = "0.8.0"
_NRI_PLUGINS_CDI_VERSION = "0.7.0"
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """One claim as the kubelet has it in its checkpoint after the driver prepared it."""

    uid: str
    name: str
    namespace: str
    pod_uids: Sequence[str]
    cdi_device_ids: Sequence[str]
    driver: str = DRA_CPU_DRIVER
    pool: str = "node-0"
    device: str = "cpudevnuma000"
    request_names: Sequence[str] = ("cpus",)


def dra_cpu_device(claim_uid: str) -> str:
    """Qualified CDI device name that dra-driver-cpu gives a claim."""
    return f"{DRA_CPU_KIND}=claim-{claim_uid}"


def nri_plugins_device(claim_uid: str, index: int = 0, *, policy: str = "topology-aware") -> str:
    """Qualified CDI device name that an nri-plugins policy gives one result of a claim."""
    return f"{policy}.nri.io/device=claim-{claim_uid}-{index}"


def write_dra_cpu_spec(cdi_dir: Path, claim_uid: str, cpus: str) -> Path:
    """Write the spec of one claim as dra-driver-cpu 0.2 and later do; returns its path."""
    name = f"claim-{claim_uid}"
    spec = {
        "cdiVersion": _DRA_CPU_CDI_VERSION,
        "kind": DRA_CPU_KIND,
        "devices": [_device(name, [f"DRA_CPUSET_{claim_uid}={cpus}"])],
        "containerEdits": {},
    }
    path = cdi_dir / f"dra.k8s.io-cpu_{name}.json"
    _replace(path, json.dumps(spec, separators=(",", ":")))
    return path


def remove_dra_cpu_spec(cdi_dir: Path, claim_uid: str) -> None:
    """Remove the spec of one claim as the driver does at unprepare; nothing if it is gone."""
    (cdi_dir / f"dra.k8s.io-cpu_claim-{claim_uid}.json").unlink(missing_ok=True)


def write_dra_cpu_v01_spec(cdi_dir: Path, claims: Mapping[str, str]) -> Path:
    """Write all claims (UID to CPUs) into one spec as dra-driver-cpu 0.1 does."""
    spec = {
        "cdiVersion": _DRA_CPU_CDI_VERSION,
        "kind": DRA_CPU_KIND,
        "devices": [
            _device(f"claim-{uid}", [f"DRA_CPUSET_{uid}={cpus}"]) for uid, cpus in claims.items()
        ],
        "containerEdits": {},
    }
    path = cdi_dir / "dra.cpu.json"
    _replace(path, json.dumps(spec, indent=2))
    return path


def write_nri_plugins_spec(
    cdi_dir: Path,
    claim_uid: str,
    cpus: str,
    *,
    results: int = 1,
    policy: str = "topology-aware",
) -> Path:
    """Write the YAML spec of one claim as an nri-plugins policy does.

    Each allocation result is a device of its own; all carry the same variable with the
    claim's whole set.
    """
    vendor = f"{policy}.nri.io"
    lines = [
        "---",
        f"cdiVersion: {_NRI_PLUGINS_CDI_VERSION}",
        f"kind: {vendor}/device",
        "devices:",
    ]
    for index in range(results):
        lines += [
            f"    - name: claim-{claim_uid}-{index}",
            "      containerEdits:",
            "        env:",
            f"            - DRA_CPUSET_{claim_uid}={cpus}",
        ]
    lines.append("containerEdits: {}")
    path = cdi_dir / f"{vendor}-device_{claim_uid}.yaml"
    _replace(path, "\n".join(lines) + "\n")
    return path


def remove_nri_plugins_spec(
    cdi_dir: Path, claim_uid: str, *, policy: str = "topology-aware"
) -> None:
    """Remove the spec of one claim as the policy does; nothing if it is gone."""
    (cdi_dir / f"{policy}.nri.io-device_{claim_uid}.yaml").unlink(missing_ok=True)


def write_dra_manager_state(kubelet_dir: Path, claims: Sequence[PreparedClaim]) -> Path:
    """Write kubelet's DRA checkpoint (form of 1.32 and later); returns its path."""
    entries = [
        {
            "ClaimUID": claim.uid,
            "ClaimName": claim.name,
            "Namespace": claim.namespace,
            "PodUIDs": {uid: {} for uid in sorted(claim.pod_uids)},
            "DriverState": {
                claim.driver: {
                    "Devices": [
                        {
                            "PoolName": claim.pool,
                            "DeviceName": claim.device,
                            "ShareID": None,
                            "RequestNames": list(claim.request_names),
                            "CDIDeviceIDs": list(claim.cdi_device_ids),
                        }
                    ]
                }
            },
        }
        for claim in claims
    ]
    data = json.dumps(
        {
            "kind": "DRACheckpoint",
            "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
            "ClaimInfoStateList": entries,
        },
        separators=(",", ":"),
    )
    path = kubelet_dir / "dra_manager_state"
    checkpoint = {"Data": data, "Checksum": zlib.crc32(data.encode())}
    _replace(path, json.dumps(checkpoint, separators=(",", ":")))
    return path


def write_cpu_manager_state(
    kubelet_dir: Path,
    *,
    policy: str,
    default_cpus: str,
    entries: Mapping[str, Mapping[str, str]] | None = None,
) -> Path:
    """Write kubelet's CPU manager state; `entries` is pod UID to container name to CPUs."""
    ordered = {
        pod: dict(sorted(containers.items())) for pod, containers in sorted((entries or {}).items())
    }
    state: dict[str, object] = {"policyName": policy, "defaultCpuSet": default_cpus}
    if ordered:
        state["entries"] = ordered
    state["checksum"] = cpu_manager_checksum(policy, default_cpus, ordered)
    path = kubelet_dir / "cpu_manager_state"
    _replace(path, json.dumps(state, separators=(",", ":")))
    return path


def cpu_manager_checksum(
    policy: str, default_cpus: str, entries: Mapping[str, Mapping[str, str]]
) -> int:
    """Kubelet's checksum of a CPU manager state: FNV-1a of the Go value's printed form."""
    pods = " ".join(
        f"{pod}:map[{' '.join(f'{name}:{cpus}' for name, cpus in sorted(containers.items()))}]"
        for pod, containers in sorted(entries.items())
    )
    printed = (
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} "
        f"DefaultCPUSet:(string){default_cpus} "
        f"Entries:(map[string]map[string]string)map[{pods}] Checksum:(checksum.Checksum)0}}"
    )
    value = _FNV_OFFSET
    for byte in printed.encode():
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


def _device(name: str, env: Sequence[str]) -> dict[str, object]:
    return {"name": name, "containerEdits": {"env": list(env)}}


def _replace(path: Path, text: str) -> None:
    # As drivers and kubelet do: readers see the old file or the new one, never a part.
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix="spec.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
