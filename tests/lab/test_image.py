"""Images are checked as a registry client would: digests and sizes of every descriptor."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

from nri_claim2core.lab.image import Image, write_archive

IMAGE = Image(
    reference="claim2core.lab/x:1",
    files={"/bin/tool": b"\x7fELF", "/etc/deep/file": b"text"},
    links={"/bin/alias": "tool"},
    entrypoint=("/bin/tool", "run"),
)


def members(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {entry.name: (entry, entry.isfile() and archive.extractfile(entry).read())
                for entry in archive}  # fmt: skip


def resolve(files, descriptor):
    algorithm, _, digest = descriptor["digest"].partition(":")
    content = files[f"blobs/{algorithm}/{digest}"][1]
    assert hashlib.sha256(content).hexdigest() == digest
    assert len(content) == descriptor["size"]
    return content


def test_layout_resolves_from_index_to_layer(tmp_path):
    target = tmp_path / "images.tar"
    write_archive(target, [IMAGE])
    files = members(target.read_bytes())
    assert json.loads(files["oci-layout"][1]) == {"imageLayoutVersion": "1.0.0"}
    (descriptor,) = json.loads(files["index.json"][1])["manifests"]
    assert descriptor["annotations"]["io.containerd.image.name"] == "claim2core.lab/x:1"
    assert descriptor["annotations"]["org.opencontainers.image.ref.name"] == "1"
    manifest = json.loads(resolve(files, descriptor))
    config = json.loads(resolve(files, manifest["config"]))
    assert config["config"]["Entrypoint"] == ["/bin/tool", "run"]
    layer_content = resolve(files, manifest["layers"][0])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer_content).hexdigest()}"]
    layer = members(layer_content)
    # Directories come before what is in them.
    assert list(layer) == ["bin", "etc", "etc/deep", "bin/tool", "etc/deep/file", "bin/alias"]
    assert layer["bin/tool"][1] == b"\x7fELF"
    assert layer["bin/tool"][0].mode == 0o755
    assert layer["bin/alias"][0].linkname == "tool"


def test_archive_depends_on_content_alone(tmp_path):
    first, second = tmp_path / "1.tar", tmp_path / "2.tar"
    write_archive(first, [IMAGE])
    write_archive(second, [IMAGE])
    assert first.read_bytes() == second.read_bytes()
