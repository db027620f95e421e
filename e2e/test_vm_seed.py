"""Policy in force before the workload's first instruction: containerd, our plugin, our scheduler.

The kernel counts, from each workload's exec on, its runs with and without a policy; nobody of
ours writes these counts.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from e2e.peers.need import short_directory
from e2e.plugin_node import PluginNode, wait_until
from nri_claim2core.agent.scheduler import Phase, load, read_counters, unload
from nri_claim2core.bpfmap.pins import open_maps, remove_pins
from nri_claim2core.bpfmap.readback import read_cells, read_cgroups, read_tasks
from nri_claim2core.bpfmap.struct_ops import read_runs
from nri_claim2core.lab.containerd import BedOptions, Containerd, find_installations

ROOT = Path("/sys/fs/cgroup")
PINS = f"/sys/fs/bpf/c2c-seed-{os.getpid()}"
FAR = len(os.sched_getaffinity(0)) - 1

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(
        not Path("/sys/kernel/sched_ext/state").exists(), reason="needs a kernel with sched_ext"
    ),
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
    if not (found := find_installations()):
        pytest.skip("no containerd with an OCI runtime on this machine")
    chosen = dataclasses.replace(found[-1], runc=oci_runtime)
    config = {"scheduling": {"enabled": True, "pinDirectory": PINS}}
    with (
        Containerd(chosen, options=BedOptions(cgroup_driver=driver)) as bed,
        short_directory() as directory,
    ):
        bed.import_images(images)
        with PluginNode(bed, directory, config) as node:
            assert load(PINS).phase is Phase.RUNNING
            yield node
            unload(PINS)
    remove_pins(PINS)
    Path(PINS).rmdir()


@pytest.fixture
def maps():
    opened = open_maps(PINS, read_only=True)
    yield opened
    opened.close()


def cgroup_ids(node, workload):
    """Ids of the workload's own cgroup and of the one that the runtime made for it."""
    text = Path(f"/proc/{node.pid(workload)}/cgroup").read_text()
    own = ROOT / text.strip().removeprefix("0::/")
    scope = own
    while workload.id not in scope.name:
        scope = scope.parent
    return own.stat().st_ino, scope.stat().st_ino


def assert_never_without(node, workload, maps):
    own, scope = cgroup_ids(node, workload)
    counts = read_runs(PINS)[own]
    assert (counts.without_policy, counts.with_policy > 0) == (0, True)
    rows = {row.cgroup_id: row for row in read_cgroups(maps)}
    cells = {cell.index: str(cell.cpus) for cell in read_cells(maps)}
    assert cells[rows[scope].policy.cell] == str(node.entry(workload)["envelope"]["cpus"])


def test_no_run_of_a_claiming_workload_is_without_its_policy(node, maps):
    late = read_counters(PINS)["lateCgroups"]
    claim = node.claim(f"{FAR}")
    pod = node.pod(claim)
    for number in range(5):
        workload = node.run(pod, claim, name=f"w{number}")
        assert_never_without(node, workload, maps)
    assert read_counters(PINS)["lateCgroups"] == late
    assert node.metric('claim2core_seeds_total{result="failed"}') == 0


def test_who_has_no_claim_has_no_row(node, maps):
    before = {row.cgroup_id for row in read_cgroups(maps)}
    workload = node.run(node.pod(), name="plain")
    own, _ = cgroup_ids(node, workload)
    assert {row.cgroup_id for row in read_cgroups(maps)} == before
    counts = read_runs(PINS)[own]
    assert (counts.with_policy, counts.without_policy > 0) == (0, True)


def test_a_start_without_the_plugin_is_counted(node, maps):
    """The figure can fail: nobody puts the policy in force in time."""
    claim = node.claim(f"{FAR - 2}")
    pod = node.pod(claim)
    node.plugin.kill()
    workload = node.run(pod, claim)
    own, scope = cgroup_ids(node, workload)
    assert read_runs(PINS)[own].without_policy > 0
    node.plugin.start()
    wait_until(
        lambda: scope in {row.cgroup_id for row in read_cgroups(maps)}, "the policy, from then on"
    )


def test_rows_go_with_their_container_and_come_back_with_the_plugin(node, maps):
    claim = node.claim(f"{FAR - 1}")
    pod = node.pod(claim)
    workload = node.run(pod, claim)
    own, scope = cgroup_ids(node, workload)
    [row] = [each for each in read_cgroups(maps) if each.cgroup_id == scope]
    node.plugin.kill()
    # In force while the plugin is away.
    assert scope in {each.cgroup_id for each in read_cgroups(maps)}
    node.plugin.start()

    def generation():
        found = [each for each in read_cgroups(maps) if each.cgroup_id == scope]
        return found[0].policy.generation if found else 0

    wait_until(lambda: generation() > row.policy.generation, "the row to be written anew")
    assert read_runs(PINS)[own].without_policy == 0
    pid = node.pid(workload)
    node.clear()
    wait_until(lambda: not generation(), "the row to go")
    assert pid not in {each.tid for each in read_tasks(maps)}


@pytest.mark.long
def test_fifty_starts(node, maps):
    late = read_counters(PINS)["lateCgroups"]
    claim = node.claim(f"{FAR}")
    pod = node.pod(claim)
    for number in range(50):
        workload = node.run(pod, claim, name=f"w{number}")
        assert_never_without(node, workload, maps)
    assert read_counters(PINS)["lateCgroups"] == late
