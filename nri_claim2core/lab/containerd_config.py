"""containerd's configuration for a bed, in the form that its version reads.

1.7 reads form 2 with one CRI section; 2.x reads form 3 with CRI split into images and
runtime (newer releases migrate form 3 in memory). Pure: values in, text out.

Three settings are there for the machine rather than for the bed: ``restrict_oom_score_adj``
(without CAP_SYS_RESOURCE runc fails to lower the score and dies), ``disable_apparmor`` (no
profile is loaded for a bed), and private directories instead of the host's CNI and image
verifier ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from nri_claim2core.lab.installation import Installation

CgroupDriver = Literal["cgroupfs", "systemd"]

Toml = Mapping[str, "str | int | bool | list[str] | Toml"]

_VALIDATOR_SINCE = (2, 2, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BedOptions:
    """What a caller may choose about a bed."""

    cgroup_driver: CgroupDriver = "cgroupfs"
    nri_request_timeout_ms: int = 2000
    """containerd's own default."""
    nri_registration_timeout_ms: int = 5000
    """containerd's own default."""
    plugins: Mapping[str, str] = field(default_factory=dict)
    """Pre-launched plugins: ``NN-name`` to the text of an executable script."""
    plugin_configs: Mapping[str, str] = field(default_factory=dict)
    """``NN-name.conf`` or ``name.conf`` to the text delivered in Configure."""
    required_plugins: tuple[str, ...] = ()
    """Plugins without which every creation fails; switches the default validator on
    (containerd 2.2 or newer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BedPaths:
    """Everything of one bed below one directory; nothing is created here."""

    base: Path

    @property
    def root(self) -> Path:
        """Images and snapshots; a tmpfs that only the bed's mount namespace sees."""
        return self.base / "root"

    @property
    def state(self) -> Path:
        """Bundles of running containers (``config.json``, rootfs)."""
        return self.base / "state"

    @property
    def address(self) -> Path:
        """Socket of containerd's API, CRI included."""
        return self.base / "containerd.sock"

    @property
    def nri_socket(self) -> Path:
        """Socket that external plugins connect to."""
        return self.base / "nri.sock"

    @property
    def plugin_dir(self) -> Path:
        """Where containerd looks for plugins to launch."""
        return self.base / "nri-plugins"

    @property
    def plugin_config_dir(self) -> Path:
        """Where containerd looks for the configuration of launched plugins."""
        return self.base / "nri-conf.d"

    @property
    def cdi_dir(self) -> Path:
        """CDI specs; the bed's ``/var/run/cdi``."""
        return self.base / "cdi"

    @property
    def kubelet_dir(self) -> Path:
        """Kubelet state files; the bed's ``/var/lib/kubelet``."""
        return self.base / "kubelet"

    @property
    def pod_log_dir(self) -> Path:
        """Container logs; the bed's ``/var/log/pods``."""
        return self.base / "pods"

    @property
    def config_file(self) -> Path:
        """What containerd was started with."""
        return self.base / "config.toml"

    @property
    def log_file(self) -> Path:
        """Log of containerd itself, over all its starts."""
        return self.base / "containerd.log"

    def directories(self) -> tuple[Path, ...]:
        """Directories that must exist before containerd starts."""
        return (
            self.state,
            self.plugin_dir,
            self.plugin_config_dir,
            self.cdi_dir,
            self.kubelet_dir,
            self.pod_log_dir,
        )


def render_config(
    installation: Installation, paths: BedPaths, options: BedOptions, *, pause_image: str
) -> str:
    """TOML text for one bed."""
    major = installation.version[0]
    base = paths.base
    runtime: Toml = {
        "disable_apparmor": True,
        "restrict_oom_score_adj": True,
        "enable_cdi": True,
        "cdi_spec_dirs": [str(paths.cdi_dir)],
        "cni": {"conf_dir": str(base / "cni")},
    }
    runc: Toml = {
        "runtime_type": "io.containerd.runc.v2",
        "options": {
            "BinaryName": str(installation.runc),
            "SystemdCgroup": options.cgroup_driver == "systemd",
        },
    }
    plugins: dict[str, Toml] = {
        "io.containerd.internal.v1.opt": {"path": str(base / "opt")},
        "io.containerd.nri.v1.nri": _nri_section(installation, paths, options),
    }
    if major == 1:
        plugins["io.containerd.grpc.v1.cri"] = {
            "sandbox_image": pause_image,
            **runtime,
            "containerd": {"snapshotter": "overlayfs", "runtimes": {"runc": runc}},
        }
    else:
        plugins["io.containerd.cri.v1.images"] = {
            "snapshotter": "overlayfs",
            "pinned_images": {"sandbox": pause_image},
        }
        plugins["io.containerd.cri.v1.runtime"] = {
            **runtime,
            "containerd": {"runtimes": {"runc": runc}},
        }
        plugins["io.containerd.image-verifier.v1.bindir"] = {"bin_dir": str(base / "verifiers")}
    return to_toml(
        {
            "version": 2 if major == 1 else 3,
            "root": str(paths.root),
            "state": str(paths.state),
            "temp": str(base / "tmp"),
            "grpc": {"address": str(paths.address)},
            "plugins": plugins,
        }
    )


def to_toml(table: Toml, path: tuple[str, ...] = ()) -> str:
    """A nested mapping as TOML: a table's own keys first, then its sub-tables."""
    # JSON strings, numbers, booleans and lists of strings are TOML as they are.
    lines = [
        f"{key} = {json.dumps(value)}"
        for key, value in table.items()
        if not isinstance(value, Mapping)
    ]
    if path and lines:
        lines.insert(0, f"[{'.'.join(json.dumps(part) for part in path)}]")
    text = "".join(f"{line}\n" for line in lines)
    for key, value in table.items():
        if isinstance(value, Mapping):
            text += to_toml(value, (*path, key))
    return text


def _nri_section(installation: Installation, paths: BedPaths, options: BedOptions) -> Toml:
    section: dict[str, str | int | bool | list[str] | Toml] = {
        "disable": False,
        "disable_connections": False,
        "socket_path": str(paths.nri_socket),
        "plugin_path": str(paths.plugin_dir),
        "plugin_config_path": str(paths.plugin_config_dir),
        "plugin_registration_timeout": f"{options.nri_registration_timeout_ms}ms",
        "plugin_request_timeout": f"{options.nri_request_timeout_ms}ms",
    }
    if options.required_plugins and installation.version >= _VALIDATOR_SINCE:
        section["default_validator"] = {
            "enable": True,
            "required_plugins": list(options.required_plugins),
        }
    return section
