"""The node's CPUs and memory nodes from sysfs.

CPUs and memory come and go while we run, and sysfs files have no times that would tell. The
`TopologyReader` therefore reads the few files that any such change alters each time, and the
per-node files only when one of those changed. Of the live node those few stay open.

A kernel built without NUMA has no node directory: all CPUs are then on node 0, which is what
cpusets call the only memory there is. Where nothing says which nodes have memory (an old
kernel, an incomplete capture) a node counts as having none: memory nodes are left alone then,
which is safe, while a wrong one would stop containers from starting.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from typing import Final

from nri_claim2core.host.files import MALFORMED, SysfsFile, host_path, read_kernel_text
from nri_claim2core.model.cpuset import CpuSet, parse_kernel
from nri_claim2core.model.errors import CpuListError, HostError
from nri_claim2core.model.topology import NodeTopology, NumaNode

CPU_DIR: Final = "/sys/devices/system/cpu"
NODE_DIR: Final = "/sys/devices/system/node"

_MEM_TOTAL: Final = re.compile(r"MemTotal:\s+([0-9]+)\s+kB", re.ASCII)
_NODE: Final = re.compile(r"node([0-9]{1,4})", re.ASCII)
_WATCHED: Final = (
    f"{CPU_DIR}/online",
    f"{CPU_DIR}/isolated",
    f"{NODE_DIR}/online",
    f"{NODE_DIR}/has_memory",
)
_Texts = tuple[str, str | None, str | None, str | None]


class TopologyReader:
    """Reads the topology of the node whose file system is at `root`; safe for several threads."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._kept: tuple[_Texts, NodeTopology] | None = None
        self._live = {path: SysfsFile(path) for path in _WATCHED} if root == "/" else {}

    def read(self) -> NodeTopology:
        """Give the topology as it is now; the same object when nothing changed.

        Raises: HostError when the kernel's list of online CPUs cannot be had.
        Blocking: host read.
        """
        cpu, node = host_path(self._root, CPU_DIR), host_path(self._root, NODE_DIR)
        # Compared as texts: a container's creation waits for this, and nothing has changed.
        texts = (
            self._read(f"{cpu}/online"),
            _maybe_text(f"{cpu}/isolated", self._read),
            _maybe_text(f"{node}/online", self._read),
            _maybe_text(f"{node}/has_memory", self._read),
        )
        kept = self._kept
        if kept is not None and kept[0] == texts:
            return kept[1]
        topology = _read_rest(cpu, node, texts)
        self._kept = (texts, topology)
        return topology

    def _read(self, path: str) -> str:
        live = self._live.get(path)
        return read_kernel_text(path) if live is None else live.read()


def read_topology(root: str = "/") -> NodeTopology:
    """Give the topology of the node whose file system is at `root`.

    Raises: HostError. Blocking: host read.
    Source: Documentation/ABI/stable/sysfs-devices-node, testing/sysfs-devices-system-cpu.
    """
    return TopologyReader(root).read()


def _read_rest(cpu: str, node: str, texts: _Texts) -> NodeTopology:
    online = _parse(f"{cpu}/online", texts[0])
    isolated = _maybe_parse(f"{cpu}/isolated", texts[1])
    nodes = _maybe_parse(f"{node}/online", texts[2])
    with_memory = _maybe_parse(f"{node}/has_memory", texts[3])
    present = _maybe_list(f"{cpu}/present") or online
    numbers = nodes if nodes is not None else _node_numbers(node)
    return NodeTopology(
        online=online,
        possible=_maybe_list(f"{cpu}/possible") or present,
        present=present,
        isolated=isolated or CpuSet(),
        nodes=tuple(_read_node(node, number, with_memory) for number in numbers)
        if numbers
        else (NumaNode(id=0, cpus=online, has_memory=True),),
    )


def _node_numbers(directory: str) -> CpuSet:
    try:
        with os.scandir(directory) as entries:
            found = [_NODE.fullmatch(entry.name) for entry in entries]
    except OSError:
        return CpuSet()
    return CpuSet(int(match[1]) for match in found if match)


def _read_node(directory: str, number: int, with_memory: CpuSet | None) -> NumaNode:
    own = f"{directory}/node{number}"
    cpus = _maybe_list(f"{own}/cpulist")
    has_memory = _has_memory(f"{own}/meminfo") if with_memory is None else number in with_memory
    # A node that went offline meanwhile has neither; the next read finds the list changed.
    return NumaNode(id=number, cpus=cpus or CpuSet(), has_memory=has_memory)


def _has_memory(path: str) -> bool:
    try:
        found = _MEM_TOTAL.search(read_kernel_text(path))
    except HostError:
        return False
    return found is not None and int(found[1]) > 0


def _maybe_list(path: str) -> CpuSet | None:
    return _maybe_parse(path, _maybe_text(path, read_kernel_text))


def _maybe_text(path: str, read: Callable[[str], str]) -> str | None:
    try:
        return read(path)
    except HostError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return None
        raise


def _maybe_parse(path: str, text: str | None) -> CpuSet | None:
    return None if text is None else _parse(path, text)


def _parse(path: str, text: str) -> CpuSet:
    try:
        return parse_kernel(text)
    except CpuListError as error:
        raise HostError(f"{path}: {error}", path=path, code=MALFORMED) from error
