"""Memory follows the claim on machines with several memory nodes.

Judged by the kernel: the container's cgroup, every thread's Mems_allowed_list and what the
workload itself was told as its first act. CPUs are chosen from sysfs, not from the product's
topology.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nri_claim2core.lab.kernel_view import look_at

NODES = Path("/sys/devices/system/node")


def kernel_list(path):
    """Numbers of a list in sysfs such as `0-3,8`; cpuset(7), "List format"."""
    numbers = []
    for part in path.read_text().strip().split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def nodes_with_memory_and_cpus():
    try:
        found = kernel_list(NODES / "has_memory")
    except (OSError, ValueError):
        return []
    return [node for node in found if (NODES / f"node{node}" / "cpulist").read_text().strip()]


pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(
        len(nodes_with_memory_and_cpus()) < 2, reason="needs two memory nodes with CPUs"
    ),
]


def first_cpu(node):
    return kernel_list(NODES / f"node{node}" / "cpulist")[0]


def last_cpu(node):
    return kernel_list(NODES / f"node{node}" / "cpulist")[-1]


def assert_memory(node, workload, expected):
    """The cgroup and all threads agree with the workload's own first word."""
    assert workload.first.mems == expected
    assert_memory_now(node, workload, expected)


def assert_memory_now(node, container, expected):
    view = look_at(node.pid(container))
    assert set(view.cgroup_mems) == expected
    assert set(view.thread_mems) == expected


def test_memory_of_the_last_node(node):
    far = nodes_with_memory_and_cpus()[-1]
    _, workload = node.run_claiming(f"{first_cpu(far)}")
    assert_memory(node, workload, {far})


def test_claim_across_nodes_has_the_memory_of_both(node):
    near, *_, far = nodes_with_memory_and_cpus()
    _, workload = node.run_claiming(f"{last_cpu(near)},{first_cpu(far)}")
    assert_memory(node, workload, {near, far})


def test_container_without_a_claim_has_all_memory(node):
    workload = node.run(node.pod())
    assert_memory(node, workload, set(kernel_list(NODES / "has_memory")))


def test_update_keeps_the_memory_node(node):
    near, *_, far = nodes_with_memory_and_cpus()
    _, workload = node.run_claiming(f"{last_cpu(far)}")
    node.update(workload, cpuset_cpus=f"{first_cpu(near)}")
    assert set(look_at(node.pid(workload)).cgroup_cpus) == {last_cpu(far)}
    assert_memory_now(node, workload, {far})


def test_restarts_keep_the_memory_node(node):
    """Of the container, of the plugin and of the runtime, in this order."""
    far = nodes_with_memory_and_cpus()[-1]
    claim = node.claim(f"{last_cpu(far)}")
    pod = node.pod(claim)
    node.bed.cri.stop(node.run(pod, claim, name="work").id)
    workload = node.run(pod, claim, name="work", attempt=1)
    assert_memory(node, workload, {far})
    node.plugin.kill()
    node.plugin.start()
    assert_memory_now(node, workload, {far})
    registered = node.plugin.registrations()
    node.bed.restart()
    node.plugin.wait_registered(registered + 1)
    assert_memory_now(node, workload, {far})
