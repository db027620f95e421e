"""A plugin that does not answer: what the runtime does, and how all comes right again.

The process is stopped with SIGSTOP, which no handler's own deadline can help against. The
runtime waits for its request timeout (short here), goes on without the plugin and drops it.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager, suppress
from os import kill
from pathlib import Path

import pytest

from e2e.peers.need import short_directory
from e2e.plugin_node import (
    HAS_CPUS_0_AND_1,
    NEEDS_CPUS_0_AND_1,
    PluginNode,
    all_cpus,
    wait_until,
)
from nri_claim2core.lab import node as labnode
from nri_claim2core.lab.containerd import BedOptions, Containerd
from nri_claim2core.lab.errors import CriError

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(not HAS_CPUS_0_AND_1, reason=NEEDS_CPUS_0_AND_1),
]

REQUEST_TIMEOUT_MS = 600


@pytest.fixture(scope="module")
def impatient_node(installation, images):
    options = BedOptions(nri_request_timeout_ms=REQUEST_TIMEOUT_MS)
    with Containerd(installation, options=options) as bed, short_directory() as directory:
        bed.import_images(images)
        with PluginNode(bed, directory) as node:
            yield node


@pytest.fixture
def node(impatient_node):
    yield impatient_node
    impatient_node.clear()


@contextmanager
def stopped(node):
    """The plugin's process does not run inside the block."""
    pid = node.plugin.pid
    kill(pid, signal.SIGSTOP)
    # The last thread is stopped a moment after the signal was sent.
    status = Path(f"/proc/{pid}/task")
    wait_until(
        lambda: all(
            task.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "T"
            for task in status.iterdir()
        ),
        "the stop",
    )
    try:
        yield
    finally:
        kill(pid, signal.SIGCONT)


def test_creation_goes_on_without_a_plugin_that_hangs_and_is_put_right(node):
    claim, running = node.run_claiming("0")
    pod = node.pod(claim, name="late")
    before = node.plugin.registrations()
    with stopped(node):
        # Fail-open: the runtime's way, which required_plugins alone can change.
        workload = node.run(pod, claim)
        assert workload.first.cpus == all_cpus()
        assert node.kernel(workload).cpus == all_cpus()
        node.update(running, cpuset_cpus="1")
        assert node.kernel(running).cpus == {1}
    node.plugin.wait_registered(before + 1)
    for each in (workload, running):
        wait_until(lambda each=each: node.kernel(each).cpus == {0}, "the cpuset")
    assert node.verdicts(workload) == {claim.uid: "verified"}
    node.update(workload, cpuset_cpus="1")
    assert node.kernel(workload).cpus == {0}


def test_start_goes_on_with_the_cpuset_of_the_creation(node):
    claim = node.claim("1")
    ref = node.create(node.pod(claim), claim)
    before = node.plugin.registrations()
    with stopped(node):
        workload = node.start(ref)
        assert workload.first.cpus == {1}
    node.plugin.wait_registered(before + 1)
    assert node.kernel(workload).cpus == {1}
    assert node.run_claiming("0")[1].first.cpus == {0}


def test_pause_shorter_than_the_runtime_waits_is_only_slow(node):
    claim = node.claim("1")
    pod = node.pod(claim)
    before = node.plugin.registrations()
    log = node.bed.paths.log_file
    since = log.stat().st_size
    made = []
    creation = threading.Thread(target=lambda: made.append(node.create(pod, claim)))
    with stopped(node):
        creation.start()
        wait_until(lambda: b"CreateContainer within sandbox" in log.read_bytes()[since:], "call")
        assert made == []
    creation.join()
    assert node.start(made[0]).first.cpus == {1}
    assert node.plugin.registrations() == before


def test_runtime_that_restarts_under_a_plugin_that_hangs(node):
    claim, workload = node.run_claiming("1")
    before = node.plugin.registrations()
    with stopped(node):
        node.bed.restart()
        other = node.pod(claim, name="other")
        assert node.run(other).first.cpus == all_cpus()
    node.plugin.wait_registered(before + 1)
    assert node.kernel(workload).cpus == {1}
    assert node.run(other, claim, name="claiming").first.cpus == {1}


def test_creation_is_refused_rather_than_late(node, tmp_path):
    """Thousands of specs to be read for the first time, and a fiftieth of a second for it."""
    for number in range(3000):
        uid = f"8d2b7a4e-5c1f-4f0b-9a34-{number:012x}"
        labnode.write_dra_cpu_spec(tmp_path, uid, "0")
    claim = node.claim("1")
    pod = node.pod(claim)
    node.configure(
        plugin={"socketPath": str(node.bed.paths.nri_socket), "handlerDeadline": "20ms"},
        cdi={"specDirs": [str(tmp_path), str(node.bed.paths.cdi_dir)]},
    )
    with pytest.raises(CriError, match="signs of a claim") as refused:
        node.create(pod, claim)
    assert "'work'" in refused.value.details
    # Without a sign of a claim nothing is refused, and nobody was dropped for being late.
    assert node.run(pod, name="unclaimed").first.cpus == all_cpus()
    assert node.metric("claim2core_nri_budget_exhausted_total") >= 1
    assert node.plugin.registrations() == 1
    # Kubelet tries again; what was read meanwhile is known by then.
    made = []

    def is_created() -> bool:
        with suppress(CriError):
            made.append(node.create(pod, claim))
        return bool(made)

    wait_until(is_created, "the creation")
    assert node.start(made[0]).first.cpus == {1}
