"""Container images made here, so that a bed needs no registry: OCI layouts as tar files.

Each image is one uncompressed layer. The archive is a function of its content alone (no
clock, fixed owners), so the same files give the same digests. `containerd` imports it with
``ctr -n k8s.io images import``; the reference is taken from the annotation in index.json.

Source: OCI image-spec v1.1, image-layout.md and config.md.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nri_claim2core.lab.errors import LabError

# What containerd calls the image; the standard key carries only the tag by convention.
_NAME_ANNOTATION = "io.containerd.image.name"
_REF_ANNOTATION = "org.opencontainers.image.ref.name"
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Content of one image."""

    reference: str
    """Full name with host and tag, as pods name it."""
    files: Mapping[str, bytes]
    """Absolute path to content; all executable."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Absolute path to the target of a symbolic link."""
    entrypoint: Sequence[str] = ()


def write_archive(target: Path, images: Sequence[Image]) -> None:
    """Write one tar holding an OCI layout with all `images`.

    Raises:
        LabError: OCI has no name here for this machine's architecture.
        OSError: the file cannot be written.
    """
    blobs: dict[str, bytes] = {}

    def add(media_type: str, content: bytes) -> dict[str, str | int]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    manifests = []
    for image in images:
        layer = _layer(image)
        config = {
            "architecture": _architecture(),
            "os": "linux",
            "config": {"Entrypoint": list(image.entrypoint), "Env": ["PATH=/bin"]},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
            },
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": add(_CONFIG, _json(config)),
            "layers": [add(_LAYER, layer)],
        }
        annotations = {
            _NAME_ANNOTATION: image.reference,
            _REF_ANNOTATION: image.reference.rpartition(":")[2],
        }
        manifests.append({**add(_MANIFEST, _json(manifest)), "annotations": annotations})
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        _add_file(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add_file(archive, "index.json", _json(index))
        for digest, content in sorted(blobs.items()):
            _add_file(archive, f"blobs/sha256/{digest}", content)


def _layer(image: Image) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        paths = [*image.files, *image.links]
        for directory in sorted({str(parent) for path in paths for parent in Path(path).parents}):
            if directory != "/":
                entry = tarfile.TarInfo(directory.lstrip("/"))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
        for path, content in sorted(image.files.items()):
            _add_file(archive, path.lstrip("/"), content, mode=0o755)
        for path, destination in sorted(image.links.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, destination
            archive.addfile(entry)
    return buffer.getvalue()


def _add_file(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _architecture() -> str:
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise LabError(f"images cannot be made for the architecture {machine}")
    return _ARCHITECTURES[machine]
