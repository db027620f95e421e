"""Whatever ends and comes back - plugin, runtime, socket - the running containers stay right.

Also what an operator sees when the plugin cannot do its work: no socket, no permission, a
second instance. The kernel is asked about the containers, exit codes and words of the process
about the rest.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.peers.need import short_directory
from e2e.plugin_node import (
    HAS_CPUS_0_AND_1,
    NEEDS_CPUS_0_AND_1,
    VALIDATES_SINCE,
    Workload,
    all_cpus,
    kernel_view,
    wait_until,
)
from nri_claim2core.lab import node as labnode
from nri_claim2core.lab.containerd import BedOptions, Containerd
from nri_claim2core.lab.cri import ContainerState, Resources
from nri_claim2core.lab.errors import CriError
from nri_claim2core.lab.plugin_process import PluginProcess
from nri_claim2core.lab.workload import FIRST_MASK_IMAGE, wait_for_first_mask

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(not HAS_CPUS_0_AND_1, reason=NEEDS_CPUS_0_AND_1),
]

REPOSITORY = Path(__file__).parents[1]
UNREACHABLE = 3
"""Exit code: what was asked for cannot be reached."""


# -- the plugin ends ------------------------------------------------------------------------


def test_running_containers_stay_right_without_the_plugin_and_after_its_return(node):
    claim, kept = node.run_claiming("1")
    _, moved = node.run_claiming("0", name="moved")
    unclaimed = node.run(node.pod(name="unclaimed"))
    before = [node.pid(each) for each in (kept, moved, unclaimed)]
    node.plugin.kill()
    assert node.kernel(kept).cpus == {1}
    # Nobody re-asserts now, and the runtime lets kubelet do it.
    node.update(moved, cpuset_cpus="1")
    assert node.kernel(moved).cpus == {1}
    since = node.log_size()
    node.plugin.start()
    # The update is in the answer to Synchronize, which is applied after it.
    wait_until(lambda: node.kernel(moved).cpus == {0}, "the cpuset put back")
    assert node.kernel(kept).cpus == {1}
    assert node.kernel(unclaimed).cpus == all_cpus()
    [line] = node.logged("synchronized", since)
    assert (line["claiming"], line["cpusets_put_back"]) == (2, 1)
    assert [node.pid(each) for each in (kept, moved, unclaimed)] == before
    assert node.verdicts(kept) == {claim.uid: "verified"}
    # Restored means: updates are answered as before.
    node.update(kept, cpuset_cpus="0")
    assert node.kernel(kept).cpus == {1}


def test_container_started_meanwhile_gets_its_cpuset_at_synchronize(node):
    claim = node.claim("1")
    pod = node.pod(claim)
    node.plugin.kill()
    workload = node.run(pod, claim)
    assert workload.first.cpus == all_cpus()
    assert node.kernel(workload).cpus == all_cpus()
    node.plugin.start()
    wait_until(lambda: node.kernel(workload).cpus == {1}, "the cpuset")
    # The plugin looks when the runtime had time to set it, and finds it in force.
    wait_until(lambda: node.entry(workload)["observed"] is not None, "the read-back")
    assert node.entry(workload)["observed"]["cpus"] == "1"
    assert node.metric("claim2core_envelope_violations_total") == 0
    node.update(workload, cpuset_cpus="0")
    assert node.kernel(workload).cpus == {1}


def test_container_put_right_at_synchronize_is_ours_at_the_next_start_too(node):
    claim = node.claim("1")
    pod = node.pod(claim)
    node.plugin.kill()
    workload = node.run(pod, claim)
    node.plugin.start()
    wait_until(lambda: node.kernel(workload).cpus == {1}, "the cpuset")
    node.plugin.kill()
    node.plugin.start()
    node.update(workload, cpuset_cpus="0")
    assert node.kernel(workload).cpus == {1}


def test_container_created_meanwhile_starts_confined(node):
    claim = node.claim("1")
    pod = node.pod(claim)
    node.plugin.kill()
    ref = node.create(pod, claim)
    node.plugin.start()
    wait_until(lambda: node.spec_cpu(ref).get("cpus") == "1", "the cpuset")
    assert node.start(ref).first.cpus == {1}


def test_nothing_is_refused_or_taken_away_at_synchronize(node):
    """Forged, malformed, gone: what runs goes on as it is, with every effect set to reject."""
    claim, workload = node.run_claiming("1")
    thief = node.run(node.pod(name="thief"), env={claim.variable: "1"})
    odd = node.run(node.pod(name="odd"), env={f"DRA_CPUSET_{claim.uid[::-1]}": "a-b"})
    labnode.remove_dra_cpu_spec(node.bed.paths.cdi_dir, claim.uid)
    node.configure(claims={"onForged": "reject", "onMalformed": "reject", "onUnverified": "reject"})
    for each, cpus in ((workload, {1}), (thief, all_cpus()), (odd, all_cpus())):
        assert node.bed.cri.status(each.id).state is ContainerState.RUNNING
        assert node.kernel(each).cpus == cpus
    assert node.verdicts(workload) == {claim.uid: "stale"}


def test_orderly_end_leaves_containers_as_they_are(node):
    _, workload = node.run_claiming("1")
    since = node.log_size()
    node.plugin.close()
    assert node.logged("stopped", since)
    assert node.kernel(workload).cpus == {1}


def test_many_restarts_in_a_row(node):
    _, workload = node.run_claiming("1")
    for _ in range(5):
        node.plugin.kill()
        node.update(workload, cpuset_cpus="0")
        node.plugin.start()
        wait_until(lambda: node.kernel(workload).cpus == {1}, "the cpuset put back")


def test_restarts_while_containers_come(node):
    """A start may fall into any moment of a registration; in the end nobody is forgotten.

    Between the OCI create and our StartContainer the runtime lets a plugin synchronize, and
    then keeps its update for later: such a start is refused, and kubelet tries again. So each
    plugin lives for two starts; one that dies within that start would leave it as it is.
    """
    claims = [node.claim("0"), node.claim("1")]
    pod = node.pod(*claims)

    def run_as_kubelet_does(number: int) -> Workload:
        claim, attempt = claims[number % 2], 0
        while True:
            try:
                return node.run(pod, claim, name=f"c{number}", attempt=attempt)
            except CriError as error:
                if "start refused: C2C-ENV-10" not in error.details:
                    raise
                attempt += 1

    with ThreadPoolExecutor(1) as kubelet:
        runs = [kubelet.submit(run_as_kubelet_does, number) for number in range(24)]
        while not runs[-1].done():
            node.plugin.kill()
            node.plugin.start()
            wait(runs[: sum(run.done() for run in runs) + 2])
        made = [(run.result(), {number % 2}) for number, run in enumerate(runs)]
    wait_until(
        lambda: all(node.kernel(workload).cpus == cpus for workload, cpus in made),
        "every cpuset",
    )
    assert {v for workload, _ in made for v in node.verdicts(workload).values()} == {"verified"}


# -- the runtime ends -----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["restart", "kill"])
def test_runtime_restart(node, way):
    claim, workload = node.run_claiming("1")
    pid, before = node.pid(workload), node.plugin.registrations()
    if way == "restart":
        node.bed.restart()
    else:
        node.bed.kill()
        # The kernel keeps the cpuset; nobody else is there.
        assert kernel_view(pid).cpus == {1}
        node.bed.start()
    node.plugin.wait_registered(before + 1)
    assert node.pid(workload) == pid
    assert node.kernel(workload).cpus == {1}
    node.update(workload, cpuset_cpus="0")
    assert node.kernel(workload).cpus == {1}
    # A new container of the old pod, and one of a new pod.
    assert node.run(workload.ref.pod, claim, name="again").first.cpus == {1}
    assert node.run_claiming("0")[1].first.cpus == {0}


def test_runtime_that_is_away_for_a_while(node):
    _, workload = node.run_claiming("1")
    before = node.plugin.registrations()
    node.bed.stop()
    node.bed.paths.nri_socket.unlink(missing_ok=True)
    since = node.log_size()
    wait_until(lambda: bool(node.logged("runtime not reached", since)), "the failure named")
    [line] = node.logged("runtime not reached", since)[:1]
    assert str(node.bed.paths.nri_socket) in line["reason"]
    assert "trying again" in line["effect"]
    node.bed.start()
    node.plugin.wait_registered(before + 1)
    assert node.kernel(workload).cpus == {1}
    assert node.run_claiming("0")[1].first.cpus == {0}


def test_update_that_the_plugin_missed_with_the_runtimes_restart(node):
    """The plugin dies, kubelet moves the container, the runtime dies; then all come back."""
    _, workload = node.run_claiming("1")
    node.plugin.kill()
    node.update(workload, cpuset_cpus="0")
    node.bed.kill()
    node.bed.start()
    assert node.kernel(workload).cpus == {0}
    node.plugin.start()
    wait_until(lambda: node.kernel(workload).cpus == {1}, "the cpuset put back")


# -- the socket -----------------------------------------------------------------------------


def run_plugin(*arguments, directory, prefix=()):
    """The command to its end; it gives up by itself."""
    (directory / "none.yaml").write_text('metrics:\n  listen: ""\n')
    return subprocess.run(
        [
            *prefix,
            sys.executable,
            "-m",
            "nri_claim2core",
            "plugin",
            "--config",
            str(directory / "none.yaml"),
            "--run-dir",
            str(directory / "run"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )


def check_gave_up(done, path, *words):
    assert done.returncode == UNREACHABLE, done.stderr
    last = done.stderr.splitlines()
    assert not any("Traceback" in line for line in last)
    error = "\n".join(line for line in last if not line.startswith("{"))
    for word in (str(path), *words):
        assert word in error


@pytest.fixture
def directory():
    with short_directory() as path:
        yield path


def test_missing_socket(directory):
    path = directory / "nothing" / "nri.sock"
    done = run_plugin("--socket", str(path), "--attempts", "2", directory=directory)
    check_gave_up(done, path, "No such file", "hint")


def test_socket_that_nobody_serves(directory):
    path = directory / "nri.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    done = run_plugin("--socket", str(path), "--attempts", "2", directory=directory)
    check_gave_up(done, path, "Connection refused", "hint")


def test_file_that_is_no_socket(directory):
    path = directory / "nri.sock"
    path.write_text("")
    done = run_plugin("--socket", str(path), "--attempts", "2", directory=directory)
    check_gave_up(done, path, "Connection refused")


def test_socket_without_permission(directory):
    """Root without the capability that overrides file permissions is like anybody else."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("needs root and setpriv")
    path = directory / "nri.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        path.chmod(0)
        done = run_plugin(
            "--socket", str(path), "--attempts", "2",
            directory=directory,
            prefix=(setpriv, "--bounding-set=-dac_override", "--inh-caps=-dac_override"),
        )  # fmt: skip
    check_gave_up(done, path, "Permission denied", "hint")


# -- a second instance ----------------------------------------------------------------------


def test_second_instance_is_refused_and_the_first_goes_on(node):
    before = node.plugin.registrations()
    done = run_plugin("--socket", str(node.bed.paths.nri_socket), directory=node.directory)
    assert done.returncode == UNREACHABLE
    assert "another nri-claim2core plugin" in done.stderr
    assert f"pid {node.plugin.pid}" in done.stderr
    assert node.plugin.registrations() == before
    assert node.run_claiming("1")[1].first.cpus == {1}


def test_second_instance_that_got_past_the_lock_is_named(node):
    """With a lock directory of its own, as in a container that does not share the host's."""
    validates = node.bed.installation.version >= VALIDATES_SINCE
    node.configure(validateAdjustments=True)
    claim = node.claim("1")
    pod = node.pod(claim)
    since = node.log_size()
    with short_directory() as place, PluginProcess(place, node.config) as second:
        second.start()
        assert node.plugin.registrations() == 1
        # Where nothing is written nothing conflicts, and validators are told of all plugins.
        assert node.run(pod, name="unclaimed").first.cpus == all_cpus()
        with pytest.raises(CriError, match='"95-claim2core" and "95-claim2core" both tried'):
            node.create(pod, claim)
    said = node.logged("second instance", since)
    if validates:
        assert [(line["level"], line["plugin"]) for line in said] == [("error", "95-claim2core")]
    # A validator that is gone fails one more creation before the runtime knows.
    with suppress(CriError):
        node.run(node.pod(name="between"))
    assert node.run(pod, claim, name="alone").first.cpus == {1}


def test_lock_ends_with_its_holder(node):
    """After kill -9 nothing has to be cleaned up by hand."""
    node.plugin.kill()
    assert (node.directory / "run" / "plugin.lock").exists()
    node.plugin.start()
    assert node.run_claiming("1")[1].first.cpus == {1}


# -- launched by the runtime ----------------------------------------------------------------


@pytest.fixture(scope="module")
def launched(installation, images, tmp_path_factory):
    """A bed whose containerd launches the plugin, and where that plugin looks for claims.

    The drop-in is written before the bed has a place, so the plugin gets directories of its
    own; what a driver and kubelet write is put there too.
    """
    places = tmp_path_factory.mktemp("launched")
    cdi, kubelet = places / "cdi", places / "kubelet"
    cdi.mkdir()
    kubelet.mkdir()
    script = (
        f"#!{sys.executable}\n"
        "import os, sys\n"
        f"sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "assert 'PATH' not in os.environ and 'HOME' not in os.environ\n"
        f"log = os.open({str(places / 'log')!r}, os.O_CREAT | os.O_WRONLY | os.O_APPEND)\n"
        "os.dup2(log, 2)\n"
        "from nri_claim2core.cli.main import main\n"
        f"sys.exit(main(['plugin', '--run-dir', {str(places / 'run')!r}]))\n"
    )
    drop_in = f'cdi:\n  specDirs: [{cdi}]\nkubelet:\n  root: {kubelet}\nmetrics:\n  listen: ""\n'
    options = BedOptions(
        plugins={"95-claim2core": script}, plugin_configs={"claim2core.conf": drop_in}
    )
    with Containerd(installation, options=options) as bed:
        bed.import_images(images)
        yield bed, cdi, kubelet


def claiming_container(bed, cdi, kubelet, claim_uid, pod_uid):
    for directory in (cdi, bed.paths.cdi_dir):
        labnode.write_dra_cpu_spec(directory, claim_uid, "1")
    device = labnode.dra_cpu_device(claim_uid)
    labnode.write_dra_manager_state(
        kubelet,
        [
            labnode.PreparedClaim(
                uid=claim_uid,
                name="c",
                namespace="default",
                pod_uids=[pod_uid],
                cdi_device_ids=[device],
            )
        ],
    )
    return device


def test_launched_plugin_confines_and_comes_back_with_the_runtime(launched):
    bed, cdi, kubelet = launched
    claim_uid, pod_uid = str(uuid.uuid4()), str(uuid.uuid4())
    device = claiming_container(bed, cdi, kubelet, claim_uid, pod_uid)
    pod = bed.cri.run_pod("launched", uid=pod_uid)

    def run(name):
        ref = bed.cri.create_container(
            pod, name, image=FIRST_MASK_IMAGE, args=["pause"], cdi_devices=[device]
        )
        bed.cri.start(ref.id)
        return ref

    def kernel_cpus(ref):
        return kernel_view(bed.cri.status(ref.id).pid).cpus

    first = run("first")
    assert wait_for_first_mask(first.log_path).cpus == {1}
    bed.cri.update_resources(first.id, Resources(cpuset_cpus="0"))
    assert kernel_cpus(first) == {1}
    # It ends with the runtime's socket, and the next runtime launches a new one.
    bed.kill()
    bed.start()
    assert kernel_cpus(first) == {1}
    bed.cri.update_resources(first.id, Resources(cpuset_cpus="0"))
    assert kernel_cpus(first) == {1}
    assert wait_for_first_mask(run("second").log_path).cpus == {1}
