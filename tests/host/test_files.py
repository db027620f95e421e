"""Reading without being blocked, flooded or led out of the root."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from nri_claim2core.host.files import (
    SETTLE_NS,
    CachedFile,
    SysfsFile,
    host_path,
    read_kernel_text,
    read_stable,
)
from nri_claim2core.model.errors import HostError
from tests.host.trees import Clock, Tree


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_the_live_root_is_left_to_the_kernel():
    assert host_path("/", "/var/run/../run/cdi") == "/var/run/../run/cdi"


@pytest.mark.parametrize(
    ("links", "asked", "given"),
    [
        ({}, "/a//b/./c", "/a/b/c"),
        ({}, "/a/../../../b", "/b"),
        ({"var/run": "/run"}, "/var/run/cdi", "/run/cdi"),
        ({"var/run": "../run"}, "/var/run/cdi", "/run/cdi"),
        ({"var/run": "../../../../../etc"}, "/var/run/x", "/etc/x"),
        ({"one": "two", "two": "/three/four"}, "/one/x", "/three/four/x"),
    ],
)
def test_links_stay_in_the_root(tree, links, asked, given):
    for name, target in links.items():
        tree.path(name).parent.mkdir(parents=True, exist_ok=True)
        tree.path(name).symlink_to(target)
    assert host_path(tree.root, asked) == tree.root + given
    assert host_path(tree.root + "/", asked) == tree.root + given


def test_a_loop_of_links_ends(tree):
    tree.path("a").symlink_to("b")
    tree.path("b").symlink_to("a")
    with pytest.raises(HostError, match="too many symbolic links") as caught:
        host_path(tree.root, "/a")
    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize("read", [read_kernel_text, lambda p: read_stable(p, limit=10)])
def test_errors_carry_path_and_errno(tree, read):
    path = tree.root + "/missing"
    with pytest.raises(HostError, match="No such file or directory") as caught:
        read(path)
    assert (caught.value.path, caught.value.errno) == (path, errno.ENOENT)
    assert caught.value.code == "C2C-HOST-01"


@pytest.mark.parametrize("read", [read_kernel_text, lambda p: read_stable(p, limit=10)])
def test_a_fifo_without_a_writer_does_not_block(tree, read):
    os.mkfifo(tree.root + "/fifo")
    with pytest.raises(HostError, match="is a FIFO"):
        read(tree.root + "/fifo")


def test_the_limit_is_exact(tree):
    path = str(tree.write("/x", "0123456789"))
    assert read_stable(path, limit=10).data == b"0123456789"
    with pytest.raises(HostError, match="longer than 9 bytes") as caught:
        read_stable(path, limit=9)
    assert caught.value.errno == errno.EFBIG


@pytest.mark.parametrize(("age_ns", "settled"), [(SETTLE_NS, True), (SETTLE_NS - 1, False)])
def test_content_settles_with_age(tree, age_ns, settled):
    path = tree.write("/x", "a")
    # A time of modification in the past or future is a claim, not a fact.
    os.utime(path, ns=(0, 1 << 61))
    ctime = path.stat().st_ctime_ns
    assert read_stable(str(path), limit=9, clock=lambda: ctime + age_ns).settled is settled


def cached(tree, clock, parsed):
    def parse(data):
        parsed.append(data)
        return data.decode()

    return CachedFile(tree.root, "/x", limit=100, parse=parse, clock=clock)


def test_an_unchanged_file_is_parsed_once(tree):
    parsed = []
    file = cached(tree, Clock(), parsed)
    tree.write("/x", "a")
    assert [file.read(), file.read()] == ["a", "a"]
    assert parsed == [b"a"]
    tree.write("/x", "ab")
    assert file.read() == "ab"


def test_a_young_file_is_parsed_every_time(tree):
    parsed = []
    path = tree.write("/x", "a")
    clock = Clock()
    clock.now = path.stat().st_ctime_ns
    file = cached(tree, clock, parsed)
    file.read()
    file.read()
    assert len(parsed) == 2


def test_a_removed_file_is_not_remembered(tree):
    file = cached(tree, Clock(), [])
    path = tree.write("/x", "a")
    file.read()
    path.unlink()
    with pytest.raises(HostError) as caught:
        file.read()
    assert caught.value.errno == errno.ENOENT


def test_a_sysfs_file_stays_open_and_is_always_as_it_is_now():
    packets = SysfsFile("/sys/class/net/lo/statistics/rx_packets")
    before = int(packets.read())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        own.sendto(b"one more", own.getsockname())
        assert own.recv(100) == b"one more"
    assert int(packets.read()) > before


def test_a_sysfs_file_that_is_not_there_is_looked_for_by_its_name(tree):
    path = tree.root + "/later"
    file = SysfsFile(path)
    with pytest.raises(HostError, match="No such file or directory") as caught:
        file.read()
    assert (caught.value.path, caught.value.errno) == (path, errno.ENOENT)
    tree.write("/later", "0-3\n")
    assert file.read() == "0-3\n"


def test_a_sysfs_file_does_not_leave_a_descriptor():
    path = "/sys/devices/system/cpu/online"
    file = SysfsFile(path)
    descriptors = Path("/proc/self/fd")
    assert path in [os.path.realpath(each) for each in descriptors.iterdir()]
    del file
    assert path not in [os.path.realpath(each) for each in descriptors.iterdir()]
