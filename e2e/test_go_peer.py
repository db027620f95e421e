"""Our plugin endpoint against the real Go NRI runtime library, as containerd links it.

The library decides here what registration, a mask, an adjustment, a conflict or a late
answer is; what its messages must say is taken from its source, not from our code.
"""

from __future__ import annotations

import hashlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nri_claim2core
from e2e.peers.attached import ALL_BUT_VALIDATION, Attached, recorder
from e2e.peers.go_runtime import GoRuntime, parse_updates, peer_binary
from e2e.peers.need import need_go_peers, short_directory
from nri_claim2core.nri import Code, RpcError
from nri_claim2core.nri import nri_pb2 as api

POD = api.PodSandbox(
    id="pod-1",
    name="web",
    uid="uid-1",
    namespace="default",
    labels={"app": "web"},
    annotations={"note": "first"},
)
CONTAINER = api.Container(
    id="ctr-1",
    pod_sandbox_id="pod-1",
    name="main",
    env=["A=1", "DRA_CPUSET_c1a10000-0000-4000-8000-000000000000=0"],
    CDI_devices=[api.CDIDevice(name="dra.k8s.io/cpu=claim-c1a10000-0000-4000-8000-000000000000")],
)
OTHER = api.Container(id="ctr-2", pod_sandbox_id="pod-1", name="other")

# One life of a pod and its container: command of the Go runtime, method on the wire, handler.
LIFE = (
    ("run_pod", "RunPodSandbox", "run_pod_sandbox"),
    ("update_pod", "UpdatePodSandbox", "update_pod_sandbox"),
    ("post_update_pod", "PostUpdatePodSandbox", "post_update_pod_sandbox"),
    ("create", "CreateContainer", "create_container"),
    ("post_create", "PostCreateContainer", "post_create_container"),
    ("start_container", "StartContainer", "start_container"),
    ("post_start", "PostStartContainer", "post_start_container"),
    ("update", "UpdateContainer", "update_container"),
    ("post_update", "PostUpdateContainer", "post_update_container"),
    ("stop", "StopContainer", "stop_container"),
    ("remove", "RemoveContainer", "remove_container"),
    ("stop_pod", "StopPodSandbox", "stop_pod_sandbox"),
    ("remove_pod", "RemovePodSandbox", "remove_pod_sandbox"),
)


@pytest.fixture
def directory() -> Iterator[Path]:
    need_go_peers()
    with short_directory() as path:
        yield path


@pytest.fixture
def runtime(directory: Path) -> Iterator[GoRuntime]:
    with GoRuntime(directory / "nri.sock", trace=True) as go:
        assert go.start().ok
        yield go


@contextmanager
def go_plugin(runtime: GoRuntime, index: str, *flags: str) -> Iterator[str]:
    """Run the minimal Go plugin; gives its full name."""
    seen = len(runtime.events)
    process = subprocess.Popen(
        [
            str(peer_binary("minimal")),
            f"-socket={runtime.socket_path}",
            f"-idx={index}",
            "-name=minimal",
            *flags,
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        runtime.wait_registered(f"{index}-minimal", after=seen)
        yield f"{index}-minimal"
    finally:
        process.kill()
        process.wait()


def pin(cpus: str) -> api.CreateContainerResponse:
    response = api.CreateContainerResponse()
    response.adjust.linux.resources.cpu.cpus = cpus
    return response


# Registration ---------------------------------------------------------------------------


def test_registers_with_the_mask_of_its_handlers(runtime):
    plugin = recorder(["create_container", "start_container"])
    with Attached(plugin, runtime.socket_path, name="ours.v1_x+y-z", index="07"):
        runtime.wait_registered("07-ours.v1_x+y-z")
    # CREATE_CONTAINER is event 4 and START_CONTAINER event 6; bit = event - 1.
    assert runtime.wait_event("configured")["mask"] == 1 << 3 | 1 << 5


def test_learns_the_runtime_from_configure(directory):
    plugin = recorder()
    with (
        GoRuntime(
            directory / "nri.sock",
            name="cri-o",
            version="1.35.0",
            request_timeout_s=1.5,
            registration_timeout_s=4,
        ) as go,
    ):
        go.start()
        with Attached(plugin, go.socket_path):
            go.wait_registered("50-ours")
    [request] = plugin.configured
    assert (request.runtime_name, request.runtime_version) == ("cri-o", "1.35.0")
    assert (request.registration_timeout, request.request_timeout) == (4000, 1500)
    assert request.config == ""


def test_registers_with_validation_only_where_handled(runtime):
    with Attached(recorder(), runtime.socket_path):
        runtime.wait_registered("50-ours")
    with Attached(
        recorder([*ALL_BUT_VALIDATION, "validate_container_adjustment"]),
        runtime.socket_path,
        index="51",
    ):
        runtime.wait_registered("51-ours")
    masks = [line["mask"] for line in runtime.events if line["event"] == "configured"]
    assert masks == [0x1FFF, 0x3FFF]


def test_two_plugins_are_asked_in_the_order_of_their_indices(runtime):
    order: list[str] = []
    late, early = recorder(["run_pod_sandbox"]), recorder(["run_pod_sandbox"])
    late.on["run_pod_sandbox"] = lambda _request, _call: order.append("late")
    early.on["run_pod_sandbox"] = lambda _request, _call: order.append("early")
    with (
        Attached(late, runtime.socket_path, index="90"),
        Attached(early, runtime.socket_path, index="10"),
    ):
        runtime.wait_registered("90-ours")
        runtime.wait_registered("10-ours")
        assert runtime.relay("run_pod", POD).ok
    assert order == ["early", "late"]


# Events ---------------------------------------------------------------------------------


def test_every_event_arrives_through_its_own_method(runtime):
    plugin = recorder()
    with Attached(plugin, runtime.socket_path):
        runtime.wait_registered("50-ours")
        for command, _, _ in LIFE:
            reply = runtime.relay(command, POD, CONTAINER)
            assert (command, reply.ok, reply.plugins) == (command, True, 1)
    assert [handler for handler, _ in plugin.seen] == [handler for _, _, handler in LIFE]
    called = [line["method"] for line in runtime.events if line["event"] == "rpc"]
    assert called == ["Configure", "Synchronize", *(method for _, method, _ in LIFE)]
    assert not [line for line in runtime.events if line["event"] == "deprecated"]


def test_messages_arrive_whole(runtime):
    plugin = recorder()
    resources = api.LinuxResources(cpu=api.LinuxCPU(cpus="1", mems="0"))
    with Attached(plugin, runtime.socket_path):
        runtime.wait_registered("50-ours")
        runtime.relay("post_start", POD, CONTAINER)
        runtime.relay("update", POD, CONTAINER, resources=resources)
    (_, started), (_, updated) = plugin.seen
    assert isinstance(started, api.PostStartContainerRequest)
    assert started.pod == POD
    assert started.container == CONTAINER
    assert isinstance(updated, api.UpdateContainerRequest)
    assert updated.linux_resources.cpu == resources.cpu


def test_synchronize_brings_the_node_and_takes_updates(runtime):
    plugin = recorder()
    update = api.ContainerUpdate(container_id="ctr-2")
    update.linux.resources.cpu.cpus = "0-1"
    plugin.sync_updates = [update]
    runtime.state([POD], [CONTAINER, OTHER])
    with Attached(plugin, runtime.socket_path):
        runtime.wait_registered("50-ours")
    assert plugin.synchronized == [([POD], [CONTAINER, OTHER])]
    line = runtime.wait_event("synchronized", where=lambda line: line["plugin"] == "50-ours")
    assert (line["error"], parse_updates(line)) == ("", [update])


def test_split_synchronize_is_one_call(runtime):
    plugin = recorder()
    runtime.generate_state(200, size_bytes=50_000)
    with Attached(plugin, runtime.socket_path):
        runtime.wait_registered("50-ours")
    parts = [
        line
        for line in runtime.events
        if line["event"] == "rpc" and line["method"] == "Synchronize" and not line["error"]
    ]
    assert len(parts) >= 3
    [(pods, containers)] = plugin.synchronized
    assert len(pods) == 200
    # As the runtime program numbers them: see its generateContainer.
    assert [each.id for each in containers] == [
        f"{(0xC0 << 32) + index:064x}" for index in range(200)
    ]
    assert all(49_900 < each.ByteSize() <= 50_000 for each in containers)


def test_endless_empty_parts_end_in_a_new_registration(directory):
    """One pod with 200 fat containers: the library sends empty parts until its time-out."""
    plugin = recorder()
    with GoRuntime(directory / "nri.sock", request_timeout_s=0.5) as go:
        go.generate_state(200, size_bytes=50_000, pods=1)
        go.start()
        with Attached(plugin, go.socket_path):
            failed = go.wait_event("synchronized", where=lambda line: bool(line["error"]))
            assert plugin.synchronized == []
            go.state([POD], [CONTAINER])
            go.wait_registered("50-ours", after=go.events.index(failed))
    # Nothing of the broken attempt is left in the state of the next.
    assert plugin.synchronized[-1] == ([POD], [CONTAINER])


# Answers --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1_000, 5_000, 100_000, 2_000_000])
def test_adjustments_arrive_complete(runtime, size):
    value = "".join(chr(ord("a") + index * 7 % 26) for index in range(size))
    plugin = recorder(["create_container"])
    response = pin("0")
    response.adjust.annotations["claim2core/value"] = value
    plugin.on["create_container"] = lambda _request, _call: response
    with Attached(plugin, runtime.socket_path):
        runtime.wait_registered("50-ours")
        reply = runtime.relay("create", POD, CONTAINER)
    arrived = reply.adjust.annotations["claim2core/value"]
    assert hashlib.sha256(arrived.encode()).digest() == hashlib.sha256(value.encode()).digest()
    assert reply.container.linux.resources.cpu.cpus == "0"
    assert reply.plugins == 1


def test_updates_ride_on_create_update_and_stop(runtime):
    plugin = recorder()

    def update_of(container_id: str, cpus: str) -> api.ContainerUpdate:
        update = api.ContainerUpdate(container_id=container_id, ignore_failure=True)
        update.linux.resources.cpu.cpus = cpus
        return update

    plugin.on["create_container"] = lambda _request, _call: api.CreateContainerResponse(
        update=[update_of("ctr-2", "1")]
    )
    plugin.on["update_container"] = lambda _request, _call: api.UpdateContainerResponse(
        update=[update_of("ctr-1", "0"), update_of("ctr-2", "1")]
    )
    plugin.on["stop_container"] = lambda _request, _call: api.StopContainerResponse(
        update=[update_of("ctr-2", "0-1")]
    )
    asked = api.LinuxResources(cpu=api.LinuxCPU(cpus="0-1"))
    with Attached(plugin, runtime.socket_path):
        runtime.wait_registered("50-ours")
        created = runtime.relay("create", POD, CONTAINER)
        updated = runtime.relay("update", POD, CONTAINER, resources=asked)
        stopped = runtime.relay("stop", POD, CONTAINER)

    def cpus_of(updates: list[api.ContainerUpdate]) -> dict[str, str]:
        return {each.container_id: each.linux.resources.cpu.cpus for each in updates}

    assert cpus_of(created.updates) == {"ctr-2": "1"}
    # Ours supersedes what was asked for.
    assert cpus_of(updated.updates) == {"ctr-1": "0", "ctr-2": "1"}
    assert cpus_of(stopped.updates) == {"ctr-2": "0-1"}


def test_two_writers_of_one_field_fail_the_creation(runtime):
    plugin = recorder(["create_container"])
    plugin.on["create_container"] = lambda _request, _call: pin("0")
    with Attached(plugin, runtime.socket_path), go_plugin(runtime, "10", "-cpus=0") as rival:
        runtime.wait_registered("50-ours")
        reply = runtime.relay("create", POD, CONTAINER)
        assert not reply.ok
        assert f'"50-ours" and "{rival}" both tried to set CPUSetCPUs' in reply.error
        # A container that only one of them wants is created.
        assert runtime.relay("create", POD, OTHER).ok
    _, seen = plugin.seen[0]
    assert isinstance(seen, api.CreateContainerRequest)
    # The first plugin's value is visible to the second: that is how a foreign one is known.
    assert seen.container.linux.resources.cpu.cpus == "0"


def test_refusal_reaches_the_caller_and_the_plugin_stays(runtime):
    plugin = recorder(["create_container"])

    def refuse(_request: api.CreateContainerRequest, _call: object) -> None:
        raise RpcError(Code.FAILED_PRECONDITION, "claim is not for this pod")

    plugin.on["create_container"] = refuse
    with Attached(plugin, runtime.socket_path):
        runtime.wait_registered("50-ours")
        reply = runtime.relay("create", POD, CONTAINER)
        assert (reply.ok, reply.plugins) == (False, 1)
        # As Go's status package renders a code and its text.
        assert reply.error == (
            "rpc error: code = FailedPrecondition desc = claim is not for this pod"
        )
        del plugin.on["create_container"]
        assert runtime.relay("create", POD, CONTAINER).ok


def test_broken_handler_fails_its_call_and_says_nothing_of_itself(runtime, caplog):
    plugin = recorder(["create_container", "run_pod_sandbox"])

    def broken(_request: api.CreateContainerRequest, _call: object) -> None:
        raise KeyError("secret-value-of-an-environment-variable")

    plugin.on["create_container"] = broken
    with Attached(plugin, runtime.socket_path):
        runtime.wait_registered("50-ours")
        reply = runtime.relay("create", POD, CONTAINER)
        assert (reply.ok, reply.plugins) == (False, 1)
        assert "code = Unknown" in reply.error
        assert "secret" not in reply.error
        assert runtime.relay("run_pod", POD).ok
    assert any(record.exc_info for record in caplog.records)


def test_validation_rejects_what_others_adjusted(runtime):
    validator = recorder(["validate_container_adjustment"])
    asked: list[api.ValidateContainerAdjustmentRequest] = []

    def reject(
        request: api.ValidateContainerAdjustmentRequest, _call: object
    ) -> api.ValidateContainerAdjustmentResponse:
        asked.append(request)
        return api.ValidateContainerAdjustmentResponse(reject=True, reason="cpus are taken")

    validator.on["validate_container_adjustment"] = reject
    with (
        Attached(validator, runtime.socket_path, name="judge", index="99"),
        go_plugin(runtime, "10", "-cpus=1"),
    ):
        runtime.wait_registered("99-judge")
        reply = runtime.relay("create", POD, CONTAINER)
    assert not reply.ok
    assert "cpus are taken" in reply.error
    assert asked[0].adjust.linux.resources.cpu.cpus == "1"
    assert [plugin.name for plugin in asked[0].plugins] == ["minimal", "judge"]


# Time and death -------------------------------------------------------------------------


def test_slow_handler_is_answered_for_before_the_library_gives_up(runtime):
    plugin = recorder()
    release, returned = threading.Event(), threading.Event()

    def stuck(_request: api.CreateContainerRequest, _call: object) -> api.CreateContainerResponse:
        release.wait(60)
        returned.set()
        return pin("1")

    def refuse(_method: str, _request: object) -> None:
        raise RpcError(Code.UNAVAILABLE, "not decided in time")

    plugin.on["create_container"] = stuck
    plugin.on_deadline = refuse
    try:
        with Attached(plugin, runtime.socket_path):
            runtime.wait_registered("50-ours")
            reply = runtime.relay("create", POD, CONTAINER)
            assert (reply.ok, reply.plugins) == (False, 1)
            assert reply.error.endswith("code = Unavailable desc = not decided in time")
            # The stuck thread does not stand in the way of what follows.
            assert runtime.relay("run_pod", POD).ok
            release.set()
            assert returned.wait(10)
            # Its late answer went nowhere: the library would have logged an inactive stream.
            assert runtime.relay("stop_pod", POD).plugins == 1
    finally:
        release.set()
    assert plugin.timed_out == ["CreateContainer"]


def test_deadline_configured_too_long_still_ends_before_the_library_gives_up(directory):
    """The time-out comes with every request; no setting of ours can outlast it."""
    plugin = recorder()
    release = threading.Event()
    plugin.on["create_container"] = lambda _request, _call: (release.wait(60), pin("1"))[1]
    plugin.on_deadline = lambda _method, _request: pin("0")
    with GoRuntime(directory / "nri.sock", request_timeout_s=1.0) as go:
        go.start()
        try:
            with Attached(plugin, go.socket_path, handler_deadline=lambda _ms: 60.0):
                go.wait_registered("50-ours")
                reply = go.relay("create", POD, CONTAINER)
                release.set()
                assert (reply.ok, reply.plugins) == (True, 1)
                assert reply.adjust.linux.resources.cpu.cpus == "0"
                assert go.relay("run_pod", POD).plugins == 1
        finally:
            release.set()
    assert plugin.timed_out == ["CreateContainer"]


BLOCKING_PLUGIN = """\
import sys
from nri_claim2core.nri import Plugin, Runner

class Blocking(Plugin):
    def create_container(self, request, call):
        print("in handler", flush=True)
        sys.stdin.read()

Runner(Blocking(), "blocking", "50", socket_path=sys.argv[1]).run()
"""


def test_plugin_killed_in_the_middle_of_a_request(runtime):
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKING_PLUGIN, str(runtime.socket_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            runtime.wait_registered("50-blocking")
            runtime.submit("create", POD, CONTAINER)
            assert process.stdout is not None
            assert process.stdout.readline() == b"in handler\n"
            process.send_signal(signal.SIGKILL)
            process.wait()
            reply = runtime.wait_reply()
        finally:
            process.kill()
    assert (reply.ok, reply.plugins) == (True, 0)
    runtime.wait_event("lost", where=lambda line: line["plugin"] == "50-blocking")


def test_comes_back_after_the_runtime_was_killed(directory):
    plugin = recorder()
    path = directory / "nri.sock"
    first = GoRuntime(path)
    first.start()
    with Attached(plugin, path):
        first.wait_registered("50-ours")
        first.kill()
        first.close()
        with GoRuntime(path) as second:
            second.state([POD], [CONTAINER])
            second.start()
            second.wait_registered("50-ours")
            assert second.relay("run_pod", POD).plugins == 1
    assert plugin.synchronized == [([], []), ([POD], [CONTAINER])]


# Pre-launched ---------------------------------------------------------------------------

PRELAUNCHED_PLUGIN = """\
#!{python}
import os, sys
sys.path.insert(0, {source!r})
from nri_claim2core.nri import Plugin, Runner, api

class Mine(Plugin):
    def configure(self, request):
        self.config = request.config
    def create_container(self, request, call):
        response = api.CreateContainerResponse()
        response.adjust.annotations["config"] = self.config
        response.adjust.annotations["environment"] = ",".join(sorted(os.environ))
        response.adjust.annotations["arguments"] = repr(sys.argv[1:])
        response.adjust.annotations["pid"] = str(os.getpid())
        return response

Runner(Mine()).run()
open({ended!r}, "w").close()
"""


def test_prelaunched_plugin_gets_fd_identity_and_configuration(directory):
    plugins, configs = directory / "plugins", directory / "conf.d"
    plugins.mkdir()
    configs.mkdir()
    script = plugins / "30-mine"
    ended = directory / "ended"
    source = str(Path(nri_claim2core.__file__).parents[1])
    script.write_text(
        PRELAUNCHED_PLUGIN.format(python=sys.executable, source=source, ended=str(ended))
    )
    script.chmod(0o755)
    (configs / "30-mine.conf").write_text("mode: observe\n")
    (configs / "mine.conf").write_text("mode: never read\n")
    with GoRuntime(directory / "nri.sock", plugin_dir=plugins, config_dir=configs) as go:
        go.state([POD], [])
        assert go.start().ok
        assert go.wait_registered("30-mine")["prelaunched"]
        reply = go.relay("create", POD, CONTAINER)
        assert (reply.ok, reply.plugins) == (True, 1)
        said = dict(reply.adjust.annotations)
        # The process is not our child, so there is no wait() for it.
        plugin = os.pidfd_open(int(said["pid"]))
        try:
            go.kill()
            # No reconnect: the socket was inherited, and nobody would give another one.
            assert select.select([plugin], [], [], 30)[0], "the plugin outlived its runtime"
        finally:
            os.close(plugin)
    assert ended.exists()
    assert said["config"] == "mode: observe\n"
    # Python itself may add one for its locale.
    assert set(said["environment"].split(",")) - {"LC_CTYPE"} == {
        "NRI_PLUGIN_IDX",
        "NRI_PLUGIN_NAME",
        "NRI_PLUGIN_SOCKET",
    }
    assert said["arguments"] == "[]"


# Requests of the plugin -----------------------------------------------------------------


def test_plugin_updates_containers_on_its_own(runtime):
    update = api.ContainerUpdate(container_id="ctr-1")
    update.linux.resources.cpu.cpus = "0"
    with Attached(recorder(), runtime.socket_path) as attached:
        runtime.wait_registered("50-ours")
        assert list(attached.runner.update_containers([update], 10)) == []
        line = runtime.wait_event("update_containers")
        assert parse_updates(line) == [update]
        runtime.answer_updates(failed=[update])
        assert list(attached.runner.update_containers([update], 10)) == [update]
        runtime.answer_updates(error="NRI update of some containers failed")
        with pytest.raises(RpcError) as caught:
            attached.runner.update_containers([update], 10)
        assert caught.value.status == Code.UNKNOWN
        assert "some containers failed" in str(caught.value)
        # Refused requests cost nothing else.
        assert runtime.relay("run_pod", POD).plugins == 1
