"""The announced cgroup path as a directory; expectations are kubelet's and systemd's own forms."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from nri_claim2core.host.cgroup_paths import expand_slice, is_systemd_form, parse_cgroups_path
from nri_claim2core.model.errors import HostError

UID = "1f0e9d8c_7b6a_4958_8473_625140392817"
BURSTABLE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID}.slice"


@pytest.mark.parametrize(
    ("announced", "directory"),
    [
        (
            f"kubepods-burstable-pod{UID}.slice:cri-containerd:abc123",
            f"{BURSTABLE}/cri-containerd-abc123.scope",
        ),
        (f"kubepods-burstable-pod{UID}.slice:crio:abc", f"{BURSTABLE}/crio-abc.scope"),
        (
            f"kubepods-pod{UID}.slice:cri-containerd:abc",
            f"/kubepods.slice/kubepods-pod{UID}.slice/cri-containerd-abc.scope",
        ),
        (
            "kubelet-kubepods-besteffort-podab12.slice:cri-containerd:x",
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
                "kubelet-kubepods-besteffort-podab12.slice/cri-containerd-x.scope"
            ),
        ),
        (":cri-containerd:x", "/system.slice/cri-containerd-x.scope"),
        ("system.slice:docker:x", "/system.slice/docker-x.scope"),
        ("-.slice:p:x", "/p-x.scope"),
        ("a.slice:p:b.slice", "/a.slice/b.slice"),
        ("/kubepods/burstable/podU/abc", "/kubepods/burstable/podU/abc"),
        ("/kubepods/besteffort/podU/crio-abc/", "/kubepods/besteffort/podU/crio-abc"),
        ("/kubelet//kubepods/./podU/abc", "/kubelet/kubepods/podU/abc"),
        ("kubepods/podU/abc", "/kubepods/podU/abc"),
        ("/k8s.io/a:b:c", "/k8s.io/a:b:c"),
    ],
)
def test_directory(announced, directory):
    assert parse_cgroups_path(announced) == directory


@pytest.mark.parametrize(
    ("announced", "rule"),
    [
        ("", "empty"),
        ("/", "empty"),
        ("/a/../../b", "climbs"),
        ("a.slice:p:", "no container id"),
        ("a:p:x", "not a slice name"),
        ("a--b.slice:p:x", "not a slice name"),
        ("-a.slice:p:x", "not a slice name"),
        ("a-.slice:p:x", "not a slice name"),
        (".slice:p:x", "not a slice name"),
    ],
)
def test_refused(announced, rule):
    with pytest.raises(HostError, match=rule) as caught:
        parse_cgroups_path(announced)
    assert caught.value.code == "C2C-HOST-03"


def test_forms():
    assert is_systemd_form("a.slice:p:x")
    assert not is_systemd_form("/a:b:c")
    assert not is_systemd_form("/kubepods/podU/abc")


SYSTEMD_ESCAPE = shutil.which("systemd-escape")


@pytest.mark.skipif(SYSTEMD_ESCAPE is None, reason="needs systemd-escape")
@pytest.mark.parametrize("path", ["a", "a/b", "kubepods/burstable/podx"])
def test_nesting_is_that_of_systemd_paths(path):
    """A slice's name is the escaped path of its position: systemd.slice(5)."""
    done = subprocess.run(
        [SYSTEMD_ESCAPE, "--path", path], capture_output=True, text=True, check=True, timeout=30
    )
    parts = path.split("/")
    expected = "".join(f"/{'-'.join(parts[: i + 1])}.slice" for i in range(len(parts)))
    assert expand_slice(done.stdout.strip() + ".slice") == expected
