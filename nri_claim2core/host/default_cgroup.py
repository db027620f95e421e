"""The cgroup of a process in the default (v2) hierarchy, by which the maps key their rows.

On a v2 node it is the container's cgroup. On hybrid nodes a runtime with v1 drivers may leave
its containers in the root of that hierarchy, which is everybody's: then there is no key.
"""

from __future__ import annotations

import errno
from typing import Final

from nri_claim2core.host.files import host_path, read_kernel_text
from nri_claim2core.model.errors import HostError

SHARED: Final = "C2C-HOST-06"
"""Code of a process whose cgroup in the default hierarchy is not its container's own."""


def find_default_cgroup(tgid: int, cgroups_path: str, root: str = "/") -> str:
    """Give the directory of the container's cgroup in the default hierarchy.

    It is the one that a process of the container is in, or the nearest above it whose name
    ends as the container's announced path does (crun keeps its processes in a child).

    Raises: HostError; C2C-HOST-06 when that cgroup is not the container's own. Blocking: host
    read, two files.
    """
    mount = _find_mount(root)
    text = read_kernel_text(host_path(root, f"/proc/{tgid}/cgroup"))
    path = next((line[3:] for line in text.splitlines() if line.startswith("0::")), "")
    name = _own_name(cgroups_path)
    parts = path.strip("/").split("/")
    while parts and parts[-1] != name:
        parts.pop()
    if not name or not parts:
        raise HostError(
            f"process {tgid} is in {path or 'no cgroup'} of the default hierarchy, which is not"
            f" the container's own ({name or cgroups_path!r})",
            path=f"{mount}{path}",
            errno=errno.ENOENT,
            hint="rows need cgroup v2: on cgroup v1 nodes only cpusets are kept",
            code=SHARED,
        )
    return f"{mount}/{'/'.join(parts)}"


def _own_name(cgroups_path: str) -> str:
    # `slice:prefix:id` is the scope prefix-id.scope; else the last directory.
    if cgroups_path.count(":") == 2 and "/" not in cgroups_path:  # noqa: PLR2004 - OCI form
        _, prefix, name = cgroups_path.split(":")
        return name if name.endswith(".slice") else f"{prefix}-{name}.scope"
    return cgroups_path.rstrip("/").rpartition("/")[2]


def _find_mount(root: str) -> str:
    text = read_kernel_text(host_path(root, "/proc/self/mountinfo"))
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        # The whole hierarchy only: of a part of it nothing says where its top is.
        if after.split(" ", 1)[0] == "cgroup2" and fields[3] == "/":
            return fields[4]
    raise HostError(
        "the default cgroup hierarchy is not mounted",
        path="/proc/self/mountinfo",
        hint="mount -t cgroup2 none /sys/fs/cgroup",
        code=SHARED,
    )
