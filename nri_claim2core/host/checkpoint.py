"""Kubelet's DRA checkpoint: which claims were prepared on this node, and for which pods.

Trusted is only what can be checked. The current layout carries a CRC-32 of its data, so a torn
or damaged file shows. The layout of kubelet 1.31 and older has a checksum over an in-memory
dump of another language's objects, which nobody else can compute: such a file, like one of a
version not known here, is reported and not used. A file that cannot be used is `readable=False`
with the reason; it is never "no claims", because absence would count against a container.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterable
from typing import Final

from nri_claim2core.host.files import KUBELET_DIR, MALFORMED, CachedFile, Clock
from nri_claim2core.model.errors import HostError
from nri_claim2core.model.evidence import CheckpointClaim, CheckpointSnapshot
from nri_claim2core.model.ids import ClaimUid, PodUid

CHECKPOINT_NAME: Final = "dra_manager_state"
CHECKPOINT: Final = f"{KUBELET_DIR}/{CHECKPOINT_NAME}"

MAX_CHECKPOINT_BYTES: Final = 16 << 20
"""A claim takes about half a kilobyte."""

_KIND: Final = "DRACheckpoint"
_VERSION: Final = "checkpoint.dra.kubelet.k8s.io/v1"


class CheckpointReader:
    """Reads the checkpoint of the node whose file system is at `root`; safe for several threads."""

    def __init__(
        self, root: str = "/", path: str = CHECKPOINT, *, clock: Clock = time.time_ns
    ) -> None:
        self._file = CachedFile(
            root, path, limit=MAX_CHECKPOINT_BYTES, parse=parse_checkpoint, clock=clock
        )

    def read(self) -> CheckpointSnapshot:
        """Give the checkpoint as it is now; the same object when the file is unchanged.

        Raises: nothing; a problem is in the snapshot. Blocking: host read.
        """
        try:
            return self._file.read()
        except HostError as error:
            return CheckpointSnapshot(readable=False, problem=str(error))


def parse_checkpoint(data: bytes) -> CheckpointSnapshot:
    """Read the checkpoint file's bytes.

    Raises: nothing; what is wrong is in `problem`. Blocking: never.
    Source: pkg/kubelet/cm/dra/state/checkpoint.go; the checksum is CRC-32 (IEEE) over the UTF-8
    of the text in `Data`.
    """
    try:
        claims = _claims(_checked_data(data))
    except _Unusable as error:
        return CheckpointSnapshot(readable=False, problem=error.message)
    return CheckpointSnapshot(claims=claims)


class _Unusable(HostError):
    code = MALFORMED


def _checked_data(data: bytes) -> dict[str, object]:
    outer = _mapping(_json(data, "the file"), "the file")
    if "Data" not in outer and "checksum" in outer:
        raise _Unusable(
            "written in the layout of kubelet 1.31 and older, whose checksum cannot be verified"
        )
    text, checksum = outer.get("Data"), outer.get("Checksum")
    if not isinstance(text, str) or type(checksum) is not int:
        raise _Unusable("the file has no Data and Checksum")
    try:
        actual = zlib.crc32(text.encode())
    except UnicodeEncodeError:
        raise _Unusable("Data has half a surrogate pair") from None
    if actual != checksum:
        raise _Unusable(f"checksum {checksum} does not match the data, which has {actual}")
    inner = _mapping(_json(text, "Data"), "Data")
    kind, version = inner.get("kind"), inner.get("apiVersion")
    if kind != _KIND or version != _VERSION:
        raise _Unusable(f"Data is {kind!r} of {version!r}, not {_KIND!r} of {_VERSION!r}")
    return inner


def _claims(inner: dict[str, object]) -> dict[ClaimUid, CheckpointClaim]:
    if "ClaimInfoStateList" not in inner:
        raise _Unusable("Data has no ClaimInfoStateList")
    claims: dict[ClaimUid, CheckpointClaim] = {}
    for item in _list(inner["ClaimInfoStateList"], "ClaimInfoStateList"):
        entry = _mapping(item, "a claim")
        uid = ClaimUid(_text(entry, "ClaimUID"))
        if uid in claims:
            raise _Unusable(f"claim {uid} stands twice")
        drivers = _mapping(entry.get("DriverState") or {}, f"claim {uid}: DriverState")
        claims[uid] = CheckpointClaim(
            uid=uid,
            name=_text(entry, "ClaimName"),
            namespace=_text(entry, "Namespace"),
            pod_uids=frozenset(map(PodUid, _pod_uids(entry, uid))),
            cdi_ids=frozenset(_cdi_ids(drivers, uid)),
            drivers=tuple(sorted(drivers)),
        )
    return claims


def _pod_uids(entry: dict[str, object], uid: ClaimUid) -> Iterable[str]:
    return _mapping(entry.get("PodUIDs") or {}, f"claim {uid}: PodUIDs")


def _cdi_ids(drivers: dict[str, object], uid: ClaimUid) -> Iterable[str]:
    for name, state in drivers.items():
        where = f"claim {uid}: driver {name}"
        for device in _list(_mapping(state, where).get("Devices"), f"{where}: Devices"):
            ids = _mapping(device, f"{where}: a device").get("CDIDeviceIDs")
            for cdi_id in _list(ids, f"{where}: CDIDeviceIDs"):
                if not isinstance(cdi_id, str):
                    raise _Unusable(f"{where}: a CDI device id is not a text")
                yield cdi_id


def _json(text: bytes | str, where: str) -> object:
    try:
        # Decoded here: given bytes, the decoder would accept UTF-16 and UTF-32 as well.
        return json.loads(text.decode("utf-8") if isinstance(text, bytes) else text)
    except RecursionError:
        raise _Unusable(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise _Unusable(f"{where} is not JSON: {error}") from error


def _mapping(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _Unusable(f"{where} is not a JSON object")
    return value


def _list(value: object, where: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _Unusable(f"{where} is not a list")
    return value


def _text(entry: dict[str, object], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise _Unusable(f"a claim has no text in {key}")
    return value
