"""From the cgroup path in an OCI spec to the directory it means, as text alone.

The value has two forms. With the systemd driver it is `slice:prefix:id` and means a scope below a
slice, where a slice's own name tells all slices above it: `a-b-c.slice` is in `a-b.slice` is in
`a.slice`. With the cgroupfs driver it is the directory itself. Which one it is shows from the
text. Pure; nothing here knows where cgroups are mounted.
"""

from __future__ import annotations

from typing import Final

from nri_claim2core.model.errors import HostError

BAD_PATH: Final = "C2C-HOST-03"
"""Code of a cgroup path that no runtime would accept."""

CRUN_CHILD: Final = "container"
"""Child of the scope that crun moves the container's processes to on cgroup v2."""

_SLICE: Final = ".slice"
_PARTS: Final = 3


def is_systemd_form(cgroups_path: str) -> bool:
    """Tell whether the path is `slice:prefix:id`."""
    parts = cgroups_path.split(":")
    return len(parts) == _PARTS and "/" not in cgroups_path


def parse_cgroups_path(cgroups_path: str) -> str:
    """Give the directory below a hierarchy's root, starting with `/`, never ending with one.

    Raises: HostError for an empty path, one that climbs (`..`), or a malformed slice name.
    Source: OCI runtime spec, config-linux `cgroupsPath`; runc and crun for the systemd form;
    systemd.slice(5) for the nesting.
    """
    if is_systemd_form(cgroups_path):
        slice_name, prefix, name = cgroups_path.split(":")
        if not name:
            raise _bad(cgroups_path, "has no container id")
        unit = name if name.endswith(_SLICE) else f"{prefix}-{name}.scope"
        return f"{expand_slice(slice_name or 'system.slice')}/{unit}"
    parts = [part for part in cgroups_path.split("/") if part not in ("", ".")]
    if not parts:
        raise _bad(cgroups_path, "is empty")
    if ".." in parts:
        raise _bad(cgroups_path, "climbs out with `..`")
    return "/" + "/".join(parts)


def expand_slice(name: str) -> str:
    """Give the directory of a slice: `a-b.slice` is `/a.slice/a-b.slice`; `-.slice` is the root.

    Raises: HostError. Source: systemd.slice(5).
    """
    if name == "-.slice":
        return ""
    stem = name.removesuffix(_SLICE)
    words = stem.split("-")
    if stem == name or "/" in name or not all(words):
        raise _bad(name, "is not a slice name such as kubepods-burstable.slice")
    return "".join(f"/{'-'.join(words[: i + 1])}{_SLICE}" for i in range(len(words)))


def _bad(path: str, rule: str) -> HostError:
    return HostError(f"cgroup path {path[:200]!r} {rule}", path=path, code=BAD_PATH)
