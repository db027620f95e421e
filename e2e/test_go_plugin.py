"""The embedded runtime drives a plugin that is not ours: the minimal one on the Go stub.

What a Go plugin accepts as a runtime - handshake, masks, dedicated methods or StateChange,
split Synchronize - is the Go stub's word, in every version that the embedded runtime plays.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.peers.go_runtime import peer_binary
from e2e.peers.need import need_go_peers, short_directory
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime import (
    PROFILES,
    EmbeddedRuntime,
    Exchange,
    PluginChange,
)

POD = api.PodSandbox(id="pod-1", name="web", uid="uid-1", namespace="default")
CLAIM_VARIABLE = "DRA_CPUSET_c1a10000-0000-4000-8000-000000000000=0"

# Events 1 to 11, which every runtime knows; the stub's own subscription has two more.
OLD_EVENTS = 0x7FF
STUB_EVENTS = 0x1FFF

RUNTIMES = sorted(PROFILES)


def claiming(container_id: str) -> api.Container:
    return api.Container(
        id=container_id, pod_sandbox_id=POD.id, name="main", env=["A=1", CLAIM_VARIABLE]
    )


@pytest.fixture
def directory() -> Iterator[Path]:
    need_go_peers()
    with short_directory() as path:
        yield path


@contextmanager
def go_plugin(socket_path: Path, index: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        str(peer_binary("minimal")),
        f"-socket={socket_path}",
        f"-idx={index}",
        "-name=go",
        *flags,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("key", RUNTIMES)
def test_go_plugin_lives_through_a_container(directory, key):
    with EmbeddedRuntime(key) as runtime:
        runtime.listen(directory / "nri.sock")
        with go_plugin(directory / "nri.sock", "50", f"-mask={OLD_EVENTS}", "-cpus=1"):
            runtime.wait_for_plugins(1)
            [plugin] = runtime.plugins
            assert (plugin.label, plugin.events) == ("50-go", OLD_EVENTS)
            runtime.run_pod(POD).check()
            created = runtime.create_container(POD, claiming("ctr-1"))
            created.check()
            assert created.adjustment.linux.resources.cpu.cpus == "1"
            assert created.container.linux.resources.cpu.cpus == "1"
            runtime.start_container("ctr-1").check()
            # Kubelet tries to move it; the plugin keeps it.
            updated = runtime.update_cpuset("ctr-1", "0")
            updated.check()
            assert updated.resources.cpu.cpus == "1"
            for result in (
                runtime.stop_container("ctr-1"),
                runtime.remove_container("ctr-1"),
                runtime.stop_pod(POD.id),
                runtime.remove_pod(POD.id),
            ):
                result.check()
                assert result.logged == ()
            assert [each.label for each in runtime.plugins] == ["50-go"]
            methods = [each.method for each in runtime.events if isinstance(each, Exchange)]
            events = [each.event for each in runtime.events if isinstance(each, Exchange)]
    assert events == [
        "Configure",
        "Synchronize",
        "RunPodSandbox",
        "CreateContainer",
        "PostCreateContainer",
        "StartContainer",
        "PostStartContainer",
        "UpdateContainer",
        "PostUpdateContainer",
        "StopContainer",
        "RemoveContainer",
        "StopPodSandbox",
        "RemovePodSandbox",
    ]
    # Runtimes before NRI 0.12 have four calls and StateChange for the rest.
    if PROFILES[key].nri_version < (0, 12, 0):
        own = {"Configure", "Synchronize", "CreateContainer", "UpdateContainer", "StopContainer"}
        assert set(methods) == own | {"StateChange"}
    else:
        assert methods == events


@pytest.mark.parametrize("key", RUNTIMES)
def test_mask_of_a_new_stub_is_refused_by_old_runtimes_only(directory, key):
    """The stub subscribes to all its handlers, whatever the runtime knows."""
    with EmbeddedRuntime(key) as runtime:
        runtime.listen(directory / "nri.sock")
        with go_plugin(directory / "nri.sock", "50") as process:
            if PROFILES[key].nri_version > (0, 9, 0):
                runtime.wait_for_plugins(1)
                assert [plugin.events for plugin in runtime.plugins] == [STUB_EVENTS]
                return
            runtime.wait_until(
                lambda: any(
                    isinstance(entry, PluginChange) and entry.change == "refused"
                    for entry in runtime.events
                )
            )
            assert process.wait(30) == 1
    [refused] = [entry for entry in runtime.events if isinstance(entry, PluginChange)]
    # 0x1800: update and post-update of the pod sandbox.
    assert "invalid plugin events: 0x1800" in refused.reason


def test_go_plugins_conflict_as_under_the_go_library(directory):
    """Same words as in test_go_peer, where the library says them."""
    with EmbeddedRuntime("containerd-2.4") as runtime:
        path = directory / "nri.sock"
        runtime.listen(path)
        with go_plugin(path, "10", "-cpus=0"), go_plugin(path, "20", "-cpus=0"):
            runtime.wait_for_plugins(2)
            runtime.run_pod(POD).check()
            result = runtime.create_container(POD, claiming("ctr-1"))
            assert result.error is not None
            assert 'plugins "20-go" and "10-go" both tried to set CPUSetCPUs' in str(result.error)
            unclaimed = api.Container(id="ctr-2", pod_sandbox_id=POD.id, name="other")
            runtime.create_container(POD, unclaimed).check()


def test_split_synchronize_is_taken_by_the_go_stub(directory):
    with EmbeddedRuntime("containerd-2.4") as runtime:
        for number in range(200):
            pod = api.PodSandbox(id=f"pod-{number}", name=f"pod-{number}", uid=f"uid-{number}")
            runtime.run_pod(pod).check()
            container = api.Container(
                id=f"ctr-{number}", pod_sandbox_id=pod.id, annotations={"fat": "x" * 50_000}
            )
            runtime.create_container(pod, container).check()
        runtime.clear_events()
        runtime.listen(directory / "nri.sock")
        with go_plugin(directory / "nri.sock", "50", "-cpus=1", "-always"):
            runtime.wait_for_plugins(1)
            parts = [
                entry
                for entry in runtime.events
                if isinstance(entry, Exchange) and entry.method == "Synchronize"
            ]
            assert len(parts) >= 3
            # It still gets events after that.
            runtime.create_container("pod-0", claiming("ctr-new")).check()


def test_runtime_restart_is_a_closed_socket_to_the_go_stub(directory):
    with EmbeddedRuntime("containerd-2.4") as runtime:
        runtime.listen(directory / "nri.sock")
        with go_plugin(directory / "nri.sock", "50") as process:
            runtime.wait_for_plugins(1)
            runtime.restart()
            # The stub does not reconnect: its program ends and says why.
            assert process.wait(30) == 1
            assert process.stderr is not None
            assert b"ttrpc" in process.stderr.read()
        with go_plugin(directory / "nri.sock", "51"):
            runtime.wait_for_plugins(1)
            assert [plugin.label for plugin in runtime.plugins] == ["51-go"]
