"""The bed itself: pods run in it, live through containerd's restart, and leave nothing."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import uuid
from contextlib import nullcontext
from pathlib import Path

import pytest

from e2e.plugin_node import wait_until
from nri_claim2core.lab import node
from nri_claim2core.lab.cgroups import BedCgroups
from nri_claim2core.lab.containerd import BedOptions, Containerd
from nri_claim2core.lab.cri import ContainerState, Resources
from nri_claim2core.lab.errors import CriError, LabError
from nri_claim2core.lab.patience import SCALE
from nri_claim2core.lab.processes import in_mount_namespace, mount_namespace
from nri_claim2core.lab.workload import FIRST_MASK_IMAGE, wait_for_first_mask

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1"),
]


@pytest.fixture
def pod(containerd):
    pod = containerd.cri.run_pod("bed")
    yield pod
    containerd.cri.remove_pod(pod)


def start_pausing(bed, pod, name="work", **kwargs):
    container = bed.cri.create_container(
        pod, name, image=FIRST_MASK_IMAGE, args=["pause"], **kwargs
    )
    bed.cri.start(container.id)
    return container


def kernel_cpus(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(
        line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list")
    )


def bed_processes(bed: Containerd) -> set[int]:
    namespace = mount_namespace(bed.namespace_pid)
    assert namespace not in {None, mount_namespace("self")}
    return in_mount_namespace(namespace) | BedCgroups(bed.cgroup_parent).processes()


def wait_for_exit(pids: set[int], deadline_s: float = 15 * SCALE) -> None:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([descriptor], [], [], deadline_s)
        os.close(descriptor)
        assert ready, f"process {pid} is still there"


def traces(base: Path, cgroup_parent: str) -> list[str]:
    """What is left of a bed, looked for with the kernel's own lists."""
    name = cgroup_parent.strip("/")
    found = subprocess.run(
        ["find", "/sys/fs/cgroup", "-maxdepth", "3", "-name", name],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines()
              if str(base) in line]  # fmt: skip
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(base) in command:
                found.append(f"process {entry.name}: {command!r}")
    if base.exists():
        found.append(str(base))
    return found


def test_container_starts_with_its_cpuset(containerd, pod):
    container = start_pausing(
        containerd, pod, resources=Resources(cpuset_cpus="1", cpuset_mems="0")
    )
    seen = wait_for_first_mask(container.log_path)
    assert seen.cpus == {1}
    assert seen.mems == {0}
    assert kernel_cpus(containerd.cri.status(container.id).pid) == "1"


def test_cpuset_update_reaches_the_process(containerd, pod):
    container = start_pausing(containerd, pod, resources=Resources(cpuset_cpus="1"))
    containerd.cri.update_resources(container.id, Resources(cpuset_cpus="0"))
    assert kernel_cpus(containerd.cri.status(container.id).pid) == "0"


def test_workload_that_ends_reports_its_exit(containerd, pod):
    container = containerd.cri.create_container(pod, "short", image=FIRST_MASK_IMAGE)
    assert containerd.cri.list_containers()[container.id] is ContainerState.CREATED
    containerd.cri.start(container.id)
    assert wait_for_first_mask(container.log_path).cpus == os.sched_getaffinity(0)
    # To stop it while it ends can fail in the shim.
    wait_until(
        lambda: containerd.cri.status(container.id).state is ContainerState.EXITED, "its end"
    )
    containerd.cri.stop(container.id)
    status = containerd.cri.status(container.id)
    assert (status.state, status.exit_code) == (ContainerState.EXITED, 0)
    containerd.cri.remove(container.id)
    assert container.id not in containerd.cri.list_containers()


@pytest.mark.parametrize("way", ["restart", "kill"])
def test_container_survives_containerd(containerd, pod, way):
    container = start_pausing(containerd, pod)
    before = containerd.cri.status(container.id)
    first_pid = containerd.pid
    if way == "restart":
        containerd.restart()
    else:
        containerd.kill()
        containerd.start()
    assert containerd.pid != first_pid
    after = containerd.cri.status(container.id)
    assert (after.state, after.pid) == (ContainerState.RUNNING, before.pid)
    assert containerd.cri.list_pods()[pod.id]


def test_nri_is_on(containerd):
    assert containerd.paths.nri_socket.is_socket()
    assert "NRI" in containerd.paths.log_file.read_text()


def write_v02(cdi_dir, claim):
    node.write_dra_cpu_spec(cdi_dir, claim, "1")
    return node.dra_cpu_device(claim)


def write_v01(cdi_dir, claim):
    node.write_dra_cpu_v01_spec(cdi_dir, {str(uuid.uuid4()): "0", claim: "1"})
    return node.dra_cpu_device(claim)


def write_yaml(cdi_dir, claim):
    node.write_nri_plugins_spec(cdi_dir, claim, "1", results=2)
    return node.nri_plugins_device(claim, 1)


@pytest.mark.parametrize("write", [write_v02, write_v01, write_yaml])
def test_containerd_applies_the_specs_of_the_drivers(containerd, pod, write):
    """containerd's own CDI parser is the judge of what we write."""
    claim = str(uuid.uuid4())
    device = write(containerd.paths.cdi_dir, claim)
    container = containerd.cri.create_container(
        pod, "claiming", image=FIRST_MASK_IMAGE, cdi_devices=[device]
    )
    env = containerd.cri.status(container.id).runtime_spec["process"]["env"]
    assert [entry for entry in env if claim in entry] == [f"DRA_CPUSET_{claim}=1"]


def test_beds_run_side_by_side(containerd, pod, installation, images):
    mine = start_pausing(containerd, pod)
    with Containerd(installation) as other:
        other.import_images(images)
        other_pod = other.cri.run_pod("bed")
        theirs = start_pausing(other, other_pod)
        assert mine.id not in other.cri.list_containers()
        assert theirs.id not in containerd.cri.list_containers()
        base, parent = other.paths.base, other.cgroup_parent
    assert traces(base, parent) == []
    assert containerd.cri.status(mine.id).state is ContainerState.RUNNING


def test_close_after_kill_leaves_nothing(installation, images):
    bed = Containerd(installation)
    with bed:
        bed.import_images(images)
        start_pausing(bed, bed.cri.run_pod("left"))
        base, parent = bed.paths.base, bed.cgroup_parent
        assert traces(base, parent)
        pids = bed_processes(bed)
        # holder, containerd, shim, pause, workload
        assert len(pids) >= 5
        bed.kill()
    wait_for_exit(pids)
    assert traces(base, parent) == []


OWNER = """
import json, sys
from pathlib import Path
from nri_claim2core.lab.containerd import Containerd, find_installations
from nri_claim2core.lab.workload import lab_images, FIRST_MASK_IMAGE
found = next(each for each in find_installations() if each.label == sys.argv[1])
with Containerd(found) as bed:
    bed.import_images(lab_images())
    pod = bed.cri.run_pod("orphan")
    container = bed.cri.create_container(pod, "c", image=FIRST_MASK_IMAGE, args=["pause"])
    bed.cri.start(container.id)
    print(json.dumps([str(bed.paths.base), bed.cgroup_parent, bed.namespace_pid]), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_owner_dies(installation, how):
    package_root = str(Path(__file__).parents[1])
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, installation.label],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": package_root},
    )
    with owner:
        base, parent, holder_pid = json.loads(owner.stdout.readline())
        pids = in_mount_namespace(mount_namespace(holder_pid)) | BedCgroups(parent).processes()
        assert len(pids) >= 5
        owner.send_signal(how)
        owner.wait(20)
    wait_for_exit(pids)
    assert traces(Path(base), parent) == []


def test_failing_start_shows_the_log(installation):
    # A file of that name in the plugin directory keeps containerd from starting NRI.
    options = BedOptions(plugins={"no-index": "#!/bin/sh\n"})
    bed = Containerd(installation, options=options)
    with pytest.raises(LabError, match="invalid plugin index"), bed:
        pass


def test_pre_launched_plugin_is_started_with_its_socket(installation, tmp_path):
    report = tmp_path / "environment"
    options = BedOptions(
        plugins={
            "10-probe": f"#!/bin/sh\nexport -p > {report}\nreadlink /proc/$$/fd/3 >> {report}\n"
        },
        nri_registration_timeout_ms=500,
    )
    # The probe ends without registering: NRI before 0.7 takes that as its own failure.
    fails = installation.version < (1, 7, 26)
    with (
        pytest.raises(LabError, match="failed to register plugin") if fails else nullcontext(),
        Containerd(installation, options=options),
    ):
        pass
    text = report.read_text()
    assert "NRI_PLUGIN_NAME='probe'" in text
    assert "NRI_PLUGIN_IDX='10'" in text
    assert "NRI_PLUGIN_SOCKET='3'" in text
    assert "socket:" in text


def test_required_plugin_that_is_missing_fails_creation(installation, images):
    if installation.version < (2, 2, 0):
        pytest.skip(f"{installation.label} has no default validator")
    with Containerd(installation, options=BedOptions(required_plugins=("claim2core",))) as bed:
        bed.import_images(images)
        pod = bed.cri.run_pod("guarded")
        with pytest.raises(CriError, match="claim2core"):
            bed.cri.create_container(pod, "c", image=FIRST_MASK_IMAGE)
