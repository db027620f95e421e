"""The envelope on cgroup v2, with each OCI runtime and each cgroup driver.

What differs there: one hierarchy, `cpuset.cpus.effective` as the only word that counts, weights
in place of shares, scopes below slices with the systemd driver, and crun's child cgroup, in
which the processes are while the limits are on the scope above. Judged by the kernel's files of
the cgroup that /proc/PID/cgroup names, by the workload's first word, and by a container that
the plugin leaves alone.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from e2e.peers.need import short_directory
from e2e.plugin_node import PluginNode, wait_until
from nri_claim2core.lab.containerd import BedOptions, Containerd, find_installations
from nri_claim2core.lab.cri import Resources

ROOT = Path("/sys/fs/cgroup")
NEAR, FAR = 1, len(os.sched_getaffinity(0)) - 1
"""CPUs of different memory nodes where there are several."""


def is_unified() -> bool:
    return (ROOT / "cgroup.controllers").exists()


pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(not is_unified(), reason="needs cgroup v2 alone at /sys/fs/cgroup"),
    pytest.mark.skipif(FAR < 3, reason="needs four CPUs"),
]


@pytest.fixture(scope="module", params=["cgroupfs", "systemd"])
def driver(request):
    if request.param == "systemd" and not Path("/run/systemd/system").is_dir():
        pytest.skip("needs systemd as the first process")
    return request.param


@pytest.fixture(scope="module", params=["runc", "crun"])
def oci_runtime(request):
    path = shutil.which(request.param)
    if path is None:
        pytest.skip(f"no {request.param} on PATH")
    return Path(path)


@pytest.fixture(scope="module")
def plugin_node(images, oci_runtime, driver):
    """The plugin on a bed of this OCI runtime and driver; containerd itself is the newest here."""
    if not (found := find_installations()):
        pytest.skip("no containerd with an OCI runtime on this machine")
    chosen = dataclasses.replace(found[-1], runc=oci_runtime)
    with (
        Containerd(chosen, options=BedOptions(cgroup_driver=driver)) as bed,
        short_directory() as directory,
    ):
        bed.import_images(images)
        with PluginNode(bed, directory) as node:
            yield node


def cgroup_of(node, workload) -> Path:
    """Where the kernel says that the workload is."""
    text = Path(f"/proc/{node.pid(workload)}/cgroup").read_text()
    assert text.startswith("0::/")
    assert text.count("\n") == 1
    return ROOT / text.strip().removeprefix("0::/")


def scope_of(node, workload) -> Path:
    """The cgroup that the runtime made for the container."""
    directory = cgroup_of(node, workload)
    while workload.id not in directory.name:
        assert directory != ROOT
        directory = directory.parent
    return directory


def read(directory: Path, name: str) -> str:
    return (directory / name).read_text().strip()


def assert_confined(node, workload, cpus: str) -> None:
    """The kernel confines it to one CPU, and the plugin's own reading agrees."""
    assert read(scope_of(node, workload), "cpuset.cpus") == cpus
    assert read(cgroup_of(node, workload), "cpuset.cpus.effective") == cpus
    assert node.kernel(workload).cpus == {int(cpus)}
    entry = node.entry(workload)
    assert entry["observed"]["cpus"] == cpus
    assert entry["violations"] == []


def test_container_is_where_driver_and_runtime_put_it(node, driver, oci_runtime):
    """What the other tests of this file rely on."""
    _, workload = node.run_claiming(f"{FAR}")
    below = cgroup_of(node, workload).relative_to(scope_of(node, workload))
    if driver == "systemd":
        assert scope_of(node, workload).name == f"cri-containerd-{workload.id}.scope"
        assert below == Path("container" if oci_runtime.name == "crun" else ".")
    else:
        assert scope_of(node, workload).name == workload.id
        assert below == Path()


def test_claim_holds_from_the_first_instruction_through_updates(node):
    _, workload = node.run_claiming(f"{FAR}")
    assert workload.first.cpus == {FAR}
    assert workload.first.cpu == FAR
    assert_confined(node, workload, f"{FAR}")
    for cpus in (f"{NEAR}", f"{NEAR},{FAR}"):
        node.update(workload, cpuset_cpus=cpus)
        assert_confined(node, workload, f"{FAR}")


def test_weight_and_quota_are_those_of_the_request(node):
    """The same request without a claim says what the runtime makes of it."""
    request = Resources(cpu_shares=512, cpu_quota=60_000, cpu_period=100_000)
    claim = node.claim(f"{FAR}")
    pod = node.pod(claim)
    claiming = node.run(pod, claim, name="claiming", resources=request)
    plain = node.run(pod, name="plain", resources=request)
    assert read(scope_of(node, claiming), "cpu.max") == "60000 100000"
    for name in ("cpu.weight", "cpu.max"):
        assert read(scope_of(node, claiming), name) == read(scope_of(node, plain), name)
    # A resize sends shares, quota and period and no cpuset.
    for workload in (claiming, plain):
        node.update(workload, cpu_shares=2048, cpu_quota=75_000, cpu_period=100_000)
    assert read(scope_of(node, claiming), "cpu.max") == "75000 100000"
    for name in ("cpu.weight", "cpu.max"):
        assert read(scope_of(node, claiming), name) == read(scope_of(node, plain), name)
    assert_confined(node, claiming, f"{FAR}")


def test_container_created_without_the_plugin_is_put_right_at_its_return(node):
    claim = node.claim(f"{FAR}")
    pod = node.pod(claim)
    node.plugin.kill()
    workload = node.run(pod, claim)
    assert workload.first.cpus == os.sched_getaffinity(0)
    node.plugin.start()
    # The runtime applies what Synchronize returned after it has answered.
    wait_until(lambda: node.kernel(workload).cpus == {FAR}, "the cpuset")
    wait_until(lambda: node.entry(workload)["observed"] is not None, "the read-back")
    assert_confined(node, workload, f"{FAR}")
