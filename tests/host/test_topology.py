"""CPUs and memory nodes: on trees written by hand, and on this machine against lscpu."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nri_claim2core.host import topology
from nri_claim2core.host.topology import TopologyReader, read_topology
from nri_claim2core.model.cpuset import CpuSet, parse_hex
from nri_claim2core.model.errors import HostError
from tests.host.trees import Tree


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def nodes(value):
    return [(node.id, str(node.cpus), node.has_memory) for node in value.nodes]


def test_two_sockets_with_a_memory_only_and_a_cpu_only_node(tree):
    tree.cpus("0-2,4-11", possible="0-15", present="0-11", isolated="10-11")
    tree.numa({0: "0-2", 1: "4-7", 2: "", 3: "8-11"}, has_memory="0-2", online="0-3")
    found = read_topology(tree.root)
    assert [str(s) for s in (found.online, found.possible, found.present, found.isolated)] == [
        "0-2,4-11",
        "0-15",
        "0-11",
        "10-11",
    ]
    assert str(found.offline) == "3,12-15"
    assert nodes(found) == [
        (0, "0-2", True),
        (1, "4-7", True),
        (2, "", True),
        (3, "8-11", False),
    ]
    assert found.memory_nodes == CpuSet([0, 1, 2])


def test_node_numbers_with_holes_and_of_two_digits(tree):
    tree.cpus("0-3", possible="0-3", present="0-3")
    tree.numa({0: "0-1", 10: "2-3", 4: "9"}, has_memory="0,10", online="0,10")
    assert nodes(read_topology(tree.root)) == [(0, "0-1", True), (10, "2-3", True)]


def test_a_kernel_without_numa_has_node_0(tree):
    tree.cpus("0-3", possible="0-7", present="0-3")
    assert nodes(read_topology(tree.root)) == [(0, "0-3", True)]


def test_without_a_list_of_nodes_their_directories_tell(tree):
    tree.cpus("0-3", possible="0-3", present="0-3")
    tree.numa({1: "2-3", 0: "0-1"}, has_memory="1", online=None)
    tree.directory("/sys/devices/system/node/power")
    assert nodes(read_topology(tree.root)) == [(0, "0-1", False), (1, "2-3", True)]


def test_without_has_memory_the_size_tells_and_else_there_is_none(tree):
    tree.cpus("0-5", possible="0-5", present="0-5")
    tree.numa({0: "0-1", 1: "2-3", 2: "4-5"}, has_memory=None, online="0-2")
    base = "/sys/devices/system/node"
    tree.write(f"{base}/node0/meminfo", "Node 0 MemTotal:       16384 kB\nNode 0 MemFree: 1 kB\n")
    tree.write(f"{base}/node1/meminfo", "Node 1 MemTotal:       0 kB\nNode 1 MemFree: 9 kB\n")
    assert [has for _, _, has in nodes(read_topology(tree.root))] == [True, False, False]


def test_only_online_is_needed(tree):
    tree.write("/sys/devices/system/cpu/online", "0-1\n")
    found = read_topology(tree.root)
    assert (str(found.possible), str(found.present), str(found.isolated)) == ("0-1", "0-1", "")


@pytest.mark.parametrize(("text", "rule"), [(None, "No such file"), ("x\n", "not a number")])
def test_no_or_bad_online_list_is_an_error_with_the_path(tree, text, rule):
    if text is not None:
        tree.write("/sys/devices/system/cpu/online", text)
    with pytest.raises(HostError, match=rule) as caught:
        read_topology(tree.root)
    assert caught.value.path == f"{tree.root}/sys/devices/system/cpu/online"


def test_a_thousand_cpus(tree):
    tree.cpus("0-1023", possible="0-1023", present="0-1023")
    tree.numa({n: f"{n * 128}-{n * 128 + 127}" for n in range(8)}, has_memory="0-7", online="0-7")
    found = read_topology(tree.root)
    assert len(found.online) == 1024
    assert found.memory_nodes_of(CpuSet([127, 128, 1023])) == CpuSet([0, 1, 7])


def test_unchanged_reads_four_files_and_hotplug_is_seen(tree, monkeypatch):
    tree.cpus("0-3", possible="0-3", present="0-3")
    tree.numa({0: "0-1", 1: "2-3"}, has_memory="0-1", online="0-1")
    names = []
    real = topology.read_kernel_text

    def counting(path):
        names.append(path.removeprefix(tree.root + "/sys/devices/system/"))
        return real(path)

    monkeypatch.setattr(topology, "read_kernel_text", counting)
    reader = TopologyReader(tree.root)
    first = reader.read()
    names.clear()
    assert reader.read() is first
    assert sorted(names) == ["cpu/isolated", "cpu/online", "node/has_memory", "node/online"]
    tree.write("/sys/devices/system/cpu/online", "0-2\n")
    tree.write("/sys/devices/system/node/node1/cpulist", "2\n")
    assert nodes(reader.read()) == [(0, "0-1", True), (1, "2", True)]
    tree.write("/sys/devices/system/node/has_memory", "0\n")
    assert nodes(reader.read()) == [(0, "0-1", True), (1, "2", False)]


# This machine.

LSCPU = shutil.which("lscpu")


@pytest.mark.skipif(LSCPU is None, reason="needs lscpu")
def test_this_machine_as_lscpu_sees_it():
    done = subprocess.run(
        [LSCPU, "--json", "--all", "--extended=CPU,NODE,ONLINE"],
        capture_output=True,
        check=True,
        timeout=30,
    )
    rows = json.loads(done.stdout)["cpus"]
    found = read_topology()
    assert set(found.online) == {int(row["cpu"]) for row in rows if row["online"] in (True, "yes")}
    assert set(found.present) >= set(found.online)
    by_node = {}
    for row in rows:
        if row["online"] in (True, "yes"):
            by_node.setdefault(int(row["node"] or 0), set()).add(int(row["cpu"]))
    assert {node.id: set(node.cpus) for node in found.nodes if node.cpus} == by_node


def test_this_machine_as_the_kernel_allows_it():
    found = read_topology()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    assert os.sched_getaffinity(0) <= set(found.online)
    allowed = parse_hex(status["Mems_allowed"].strip())
    assert set(allowed) <= set(found.memory_nodes)
