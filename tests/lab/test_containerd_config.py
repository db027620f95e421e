"""The TOML is read back with the standard library's parser."""

from __future__ import annotations

import tomllib
from pathlib import Path

from nri_claim2core.lab.containerd_config import BedOptions, BedPaths, render_config, to_toml
from nri_claim2core.lab.installation import Installation

PATHS = BedPaths(base=Path("/b"))


def config(version, **options):
    installation = Installation(version=version, bin_dir=Path("/x/bin"), runc=Path("/x/runc"))
    return tomllib.loads(
        render_config(installation, PATHS, BedOptions(**options), pause_image="lab/pause:1")
    )


def test_nested_tables_survive():
    table = {
        "version": 3,
        "a": {"b.c/d": {"on": True, "list": ["x", 'quote"d'], "deep": {"n": 1}}},
    }
    assert tomllib.loads(to_toml(table)) == table


def test_form_of_2x():
    parsed = config((2, 1, 9))
    assert parsed["version"] == 3
    runtime = parsed["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["cdi_spec_dirs"] == ["/b/cdi"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["containerd"]["runtimes"]["runc"]["options"] == {
        "BinaryName": "/x/runc",
        "SystemdCgroup": False,
    }
    images = parsed["plugins"]["io.containerd.cri.v1.images"]
    assert images["pinned_images"] == {"sandbox": "lab/pause:1"}


def test_form_of_1_7():
    parsed = config((1, 7, 24), cgroup_driver="systemd")
    assert parsed["version"] == 2
    cri = parsed["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == "lab/pause:1"
    assert cri["enable_cdi"] is True
    assert cri["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is True


def test_nri_section():
    section = config((2, 4, 2), nri_request_timeout_ms=250, required_plugins=("c2c",))["plugins"][
        "io.containerd.nri.v1.nri"
    ]
    assert section["disable"] is False
    assert section["socket_path"] == "/b/nri.sock"
    assert section["plugin_request_timeout"] == "250ms"
    assert section["default_validator"] == {"enable": True, "required_plugins": ["c2c"]}


def test_no_validator_before_2_2():
    plugins = config((2, 1, 9), required_plugins=("c2c",))["plugins"]
    assert "default_validator" not in plugins["io.containerd.nri.v1.nri"]
