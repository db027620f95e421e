"""Registration, time-outs, connections that end, Synchronize, restart - over real sockets."""

import dataclasses
import itertools
import socket
import stat
import struct
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from nri_claim2core.model.errors import UsageError
from nri_claim2core.nri import Plugin, RpcError, Runner
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.connection import Connection, RequestReceived, Role
from nri_claim2core.nri.errors import RegistrationError
from nri_claim2core.nri.events_table import RUNTIME_SERVICE
from nri_claim2core.nri.runtime import (
    PROFILES,
    Exchange,
    PluginCall,
    PluginChange,
    Quirks,
    link,
    profile,
    registration,
)
from nri_claim2core.nri.status import Code

CONTAINERD = "containerd-2.3"
CRIO = "cri-o-1.36"


def changes(runtime):
    return [(e.plugin, e.change, e.reason) for e in runtime.events if isinstance(e, PluginChange)]


def wait_for_change(runtime, change, nr=1):
    runtime.wait_until(lambda: sum(c[1] == change for c in changes(runtime)) >= nr)


def sent(runtime, method):
    return [e for e in runtime.events if isinstance(e, Exchange) and e.method == method]


# -- the plugin end of this package, on every release


class Recorder(Plugin):
    """Handles every event, pins each container, and keeps what it saw."""

    def __init__(self):
        self.seen = []
        self.synchronized = None

    def synchronize(self, pods, containers):
        self.synchronized = ([p.id for p in pods], [c.id for c in containers])

    def create_container(self, request, call):
        self.seen.append("create_container")
        reply = api.CreateContainerResponse()
        reply.adjust.linux.resources.cpu.cpus = "2-3"
        return reply

    def update_container(self, request, call):
        self.seen.append("update_container")
        reply = api.UpdateContainerResponse()
        update = reply.update.add(container_id=request.container.id)
        update.linux.resources.cpu.cpus = "2-3"
        return reply


def _note(name):
    def handler(self, request, call):
        self.seen.append(name)

    return handler


LIFE = [
    "run_pod_sandbox",
    "create_container",
    "validate_container_adjustment",
    "post_create_container",
    "start_container",
    "post_start_container",
    "update_container",
    "post_update_container",
    "update_pod_sandbox",
    "post_update_pod_sandbox",
    "stop_container",
    "remove_container",
    "stop_pod_sandbox",
    "remove_pod_sandbox",
]
for _name in LIFE:
    if _name not in vars(Recorder):
        setattr(Recorder, _name, _note(_name))


@pytest.mark.parametrize("key", PROFILES)
def test_both_ends_of_this_package_over_a_socket(key, runtimes, tmp_path, pods, containers):
    runtime = runtimes(key)
    runtime.listen(tmp_path / "nri.sock")
    plugin = Recorder()
    runner = Runner(plugin, "recorder", "50", socket_path=str(tmp_path / "nri.sock"))
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        runtime.wait_for_plugins(1)
        runtime.run_pod(pods()).check()
        created = runtime.create_container("pod1", containers(cpus="0-7"))
        created.check()
        runtime.start_container("ctr1").check()
        runtime.update_cpuset("ctr1", "0-7").check()
        assert runtime.container("ctr1").linux.resources.cpu.cpus == "2-3"
        runtime.update_pod("pod1", resources=api.LinuxResources()).check()
        for result in (
            runtime.stop_container("ctr1"),
            runtime.remove_container("ctr1"),
            runtime.stop_pod("pod1"),
            runtime.remove_pod("pod1"),
        ):
            assert result.ok
            assert not result.logged
    finally:
        runner.stop()
        thread.join(10)
    assert not thread.is_alive()
    assert plugin.synchronized == ([], [])
    lacking = set()
    if profile(key).valid_events != 0x3FFF:
        lacking.add("validate_container_adjustment")
    if key not in {"containerd-2.3", "containerd-2.4"}:
        lacking.add("post_update_pod_sandbox")
        if key.startswith("containerd"):
            lacking.add("update_pod_sandbox")
    assert plugin.seen == [name for name in LIFE if name not in lacking]
    (info,) = [e.request for e in runtime.events if isinstance(e, PluginCall)]
    assert (info.plugin_name, info.plugin_idx) == ("recorder", "50")


# -- registration


def test_bytes_of_the_handshake_are_those_recorded_from_go(runtimes, tmp_path):
    row = dataclasses.replace(profile(CONTAINERD), runtime_version="v2.3.0", nri_version=(0, 12, 2))
    runtime = runtimes(row, request_timeout_ms=2000)
    runtime.listen(tmp_path / "nri.sock")
    register = bytes.fromhex(
        "0000004f00000001 0100 0a1c 6e72692e706b672e6170692e7631616c706861312e52756e74696d65"
        "120e 5265676973746572506c7567696e 1a19 0a0a6e72692d6c6f67676572 12023130"
        "1a0776302e31322e32 20c4dd85d012"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(str(tmp_path / "nri.sock"))
        sock.settimeout(10)
        sock.sendall(struct.pack(">II", 2, len(register)) + register)
        reader = sock.makefile("rb")

        def frame():
            conn, size = struct.unpack(">II", reader.read(8))
            return conn, reader.read(size)

        assert frame() == (2, bytes.fromhex("00000000 00000001 0200"))
        conn, configure = frame()
        recorded = bytes.fromhex(
            "00000053 00000001 0100 0a1b 6e72692e706b672e6170692e7631616c706861312e506c7567696e"
            "1209 436f6e666967757265 1a23 120a636f6e7461696e657264 1a0676322e332e30 208827 28d00f"
            "320776302e31322e32 20d3c4d3b907"
        )
        # The last five bytes are what was left of the two seconds.
        assert (conn, len(configure), configure[:-5]) == (1, len(recorded), recorded[:-5])
        reply = bytes.fromhex("00000005 00000001 0200 1203 10a901")
        sock.sendall(struct.pack(">II", 1, len(reply)) + reply)
        assert frame()[0] == 1  # Synchronize
        reply = bytes.fromhex("00000000 00000003 0200")
        sock.sendall(struct.pack(">II", 1, len(reply)) + reply)
        runtime.wait_for_plugins(1)
        (info,) = runtime.plugins
        assert (info.label, info.events) == ("10-nri-logger", 0xA9)
        reader.close()


@pytest.mark.parametrize("key", PROFILES)
def test_what_configure_tells(key, runtimes, scripted):
    runtime = runtimes(key, config_text="text", registration_timeout_ms=5000)
    plugin = scripted(runtime, mask=0x8)
    request = plugin.seen[0][1]
    row = profile(key)
    assert (request.config, request.runtime_name, request.runtime_version) == (
        "text",
        row.runtime_name,
        row.runtime_version,
    )
    has_timeouts = key != "containerd-1.7.25"
    assert (request.registration_timeout, request.request_timeout) == (
        (5000, 5000) if has_timeouts else (0, 0)
    )
    versions = {"containerd-2.3": "v0.12.0", "containerd-2.4": "v0.12.3"}
    assert request.NRI_version == versions.get(key, "")


@pytest.mark.parametrize("key", PROFILES)
@pytest.mark.parametrize("extra", [0x800, 0x2000, 0x4000])
def test_one_bit_too_many_drops_the_plugin(key, extra, runtimes, scripted):
    runtime = runtimes(key)
    if extra & PROFILES[key].valid_events:
        scripted(runtime, mask=0x8 | extra)
        assert len(runtime.plugins) == 1
    else:
        with pytest.raises(RegistrationError, match=f"invalid plugin events: 0x{extra:x}"):
            scripted(runtime, mask=0x8 | extra)
        assert runtime.plugins == ()


def test_external_plugins_get_no_configuration(runtimes, connected, tmp_path):
    runtime = runtimes(config_text="text")
    runtime.listen(tmp_path / "nri.sock")
    plugin = connected(tmp_path / "nri.sock")
    runtime.wait_for_plugins(1)
    assert plugin.seen[0][1].config == ""


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("7-a", 'invalid plugin index: invalid plugin index "7", must be 2 digits'),
        ("ab-a", 'invalid plugin index: invalid plugin index "ab" (not [0-9][0-9])'),
        ("10-", "invalid plugin name: invalid plugin name: name is empty"),
        (
            "10-a b",
            "invalid plugin name: invalid plugin name \"a b\": contains invalid character ' '",
        ),
    ],
)
def test_a_bad_identity_is_answered_and_the_socket_left_open(
    label, text, runtimes, connected, tmp_path
):
    runtime = runtimes()
    runtime.listen(tmp_path / "nri.sock")
    plugin = connected(tmp_path / "nri.sock", label)
    reply = plugin.wait_reply(1)
    assert (reply.status, reply.message) == (Code.UNKNOWN, text)
    wait_for_change(runtime, "refused")
    assert plugin.is_alive()  # nobody closed its socket
    good = connected(tmp_path / "nri.sock", "10-good", mask=0x8)
    runtime.wait_for_plugins(1)
    assert good.is_alive()
    runtime.close()
    plugin.join(10)
    assert not plugin.is_alive()


def test_a_refused_peer_that_goes_leaves_no_socket_behind(runtimes, connected, tmp_path):
    runtime = runtimes()
    runtime.listen(tmp_path / "nri.sock")
    plugin = connected(tmp_path / "nri.sock", "7-a")
    wait_for_change(runtime, "refused")
    assert len(sockets_of(runtime)) == 2  # the listener's and the refused one's
    plugin.call("UpdateContainers", api.UpdateContainersRequest())  # read, and not answered
    plugin.sock.shutdown(socket.SHUT_RDWR)
    wait_for_change(runtime, "dropped")
    assert len(sockets_of(runtime)) == 1
    assert [reply.stream_id for reply in plugin.replies] == [1]


def sockets_of(runtime):
    """What the kernel lists with the path of the runtime: sockets that are bound to it."""
    path = str(runtime._path)
    lines = Path("/proc/net/unix").read_text().splitlines()
    return [line for line in lines if line.endswith(path)]


def test_older_runtimes_take_any_name(runtimes, connected, tmp_path):
    runtime = runtimes("containerd-2.2")
    runtime.listen(tmp_path / "nri.sock")
    connected(tmp_path / "nri.sock", "10-a b")
    runtime.wait_for_plugins(1)


def test_a_silent_peer_keeps_others_waiting_until_its_time_is_up(runtimes, connected, tmp_path):
    runtime = runtimes(registration_timeout_ms=200)
    runtime.listen(tmp_path / "nri.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.connect(str(tmp_path / "nri.sock"))
        connected(tmp_path / "nri.sock")
        runtime.wait_for_plugins(1)
        assert [c[1:] for c in changes(runtime)] == [
            ("refused", "plugin registration timed out"),
            ("registered", ""),
        ]
        assert silent.recv(1) == b""


def test_a_peer_that_asks_on_and_on_has_no_more_time(runtimes, monkeypatch):
    """By a clock on which each look takes 60 ms: the second read comes too late."""
    clock = SimpleNamespace(monotonic_ns=itertools.count(0, 60_000_000).__next__)
    for module in (link, registration):
        monkeypatch.setattr(module, "time", clock)
    ours, theirs = socket.socketpair()
    connection = Connection(Role.PLUGIN)
    calls = [connection.call(RUNTIME_SERVICE, "UpdateContainers", b"")[1] for _ in range(1000)]
    calls.append(connection.call(RUNTIME_SERVICE, "RegisterPlugin", b"")[1])
    with theirs:
        theirs.sendall(b"".join(calls))
        assert sum(map(len, calls)) > 1 << 16  # the runtime reads that much at a time
        with pytest.raises(RegistrationError, match="plugin registration timed out"):
            runtimes(registration_timeout_ms=100).attach(ours, "a", "10")


def test_configure_may_come_before_the_answer_to_the_registration(runtimes, scripted):
    runtime = runtimes(quirks=Quirks(configure_first=True))
    plugin = scripted(runtime)
    assert [m for m, _ in plugin.seen] == ["Configure", "Synchronize"]
    assert plugin.wait_reply(1).status == 0
    assert len(runtime.plugins) == 1


def test_an_error_in_configure_ends_the_connection(runtimes, scripted):
    runtime = runtimes()
    with pytest.raises(RegistrationError, match=r"failed to configure plugin: .* desc = no"):
        scripted(runtime, answers={"Configure": RpcError(Code.UNKNOWN, "no")})


def test_a_second_registration_is_taken_a_third_is_not_answered(bed_idle):
    plugin, runtime = bed_idle
    request = api.RegisterPluginRequest(plugin_name="other", plugin_idx="99")
    assert plugin.wait_reply(plugin.call("RegisterPlugin", request)).status == 0
    third = plugin.call("RegisterPlugin", request)
    assert plugin.wait_reply(plugin.call("UpdateContainers", api.UpdateContainersRequest()))
    assert third not in {reply.stream_id for reply in plugin.replies}
    assert runtime.plugins[0].label == "10-a"


@pytest.fixture
def bed_idle(runtimes, scripted):
    runtime = runtimes()
    return scripted(runtime), runtime


# -- time-outs and lost connections


@pytest.mark.parametrize("key", [CONTAINERD, CRIO])
def test_a_late_plugin_is_dropped_and_the_round_goes_on(key, runtimes, scripted, make, hang):
    pods, containers = make
    runtime = runtimes(key, request_timeout_ms=300)
    late = scripted(runtime, "10-late", mask=0x8, answers={"CreateContainer": hang})
    other = scripted(runtime, "20-other", mask=0x8)
    runtime.run_pod(pods())
    result = runtime.create_container("pod1", containers())
    assert result.ok
    assert [(x.plugin, x.lost) for x in result.exchanges] == [
        ("10-late", "context deadline exceeded"),
        ("20-other", ""),
    ]
    assert result.exchanges[0].duration_ns >= 300e6
    assert [p.label for p in runtime.plugins] == ["20-other"]
    assert ("10-late", "dropped", "context deadline exceeded") in changes(runtime)
    late.join(10)
    assert not late.is_alive()  # its socket was closed
    assert other.methods() == ["CreateContainer"]


def test_a_plugin_that_ends_in_a_request_counts_as_agreeing(runtimes, scripted, pods, containers):
    runtime = runtimes()

    def die(request):
        raise OSError

    scripted(runtime, mask=0x8, answers={"CreateContainer": die})
    runtime.run_pod(pods())
    result = runtime.create_container("pod1", containers())
    assert result.ok
    assert runtime.plugins == ()
    assert changes(runtime)[-1] == ("10-a", "dropped", "ttrpc: closed")


def test_a_validator_that_is_late_fails_the_creation(runtimes, scripted, pods, containers, hang):
    runtime = runtimes(request_timeout_ms=300)
    scripted(runtime, answers={"ValidateContainerAdjustment": hang})
    runtime.run_pod(pods())
    result = runtime.create_container("pod1", containers())
    assert str(result.error).endswith("validator plugin 10-a failed: context deadline exceeded")
    assert runtime.plugins == ()


def test_an_idle_plugin_that_goes_is_noticed(bed_idle):
    plugin, runtime = bed_idle
    plugin.sock.shutdown(socket.SHUT_RDWR)
    wait_for_change(runtime, "dropped")
    assert runtime.plugins == ()


def test_the_runtime_can_cut_a_plugin_off(bed_idle):
    plugin, runtime = bed_idle
    runtime.disconnect("10-a")
    plugin.join(10)
    assert not plugin.is_alive()
    assert runtime.plugins == ()


def test_a_broken_stream_drops_the_plugin(bed_idle):
    plugin, runtime = bed_idle
    plugin.sock.sendall(struct.pack(">II", 2, 1 << 31))
    wait_for_change(runtime, "dropped")
    assert "protocol error" in changes(runtime)[-1][2]


def test_a_plugin_that_does_not_read_is_dropped(runtimes, pods, containers):
    runtime = runtimes(request_timeout_ms=300)
    ours, theirs = socket.socketpair()
    peer = Connection(Role.PLUGIN)
    registration = api.RegisterPluginRequest(plugin_name="a", plugin_idx="10")

    def register_and_read_no_more():
        payload = registration.SerializeToString()
        theirs.sendall(peer.call(RUNTIME_SERVICE, "RegisterPlugin", payload)[1])
        nr_answered = 0
        while nr_answered < 2:  # Configure and Synchronize
            for event in peer.receive_data(theirs.recv(65536)):
                if isinstance(event, RequestReceived):
                    answer = api.ConfigureResponse(events=0x8).SerializeToString()
                    payload = answer if event.method == "Configure" else b""
                    theirs.sendall(peer.reply(event.stream_id, payload))
                    nr_answered += 1

    with theirs:
        thread = threading.Thread(target=register_and_read_no_more)
        thread.start()
        runtime.attach(ours, "a", "10")
        thread.join(10)
        runtime.run_pod(pods())
        big = containers(env=[f"V{i}=" + "x" * 1000 for i in range(3000)])  # above any buffer
        assert runtime.create_container("pod1", big).ok
        assert changes(runtime)[-1] == ("10-a", "dropped", "context deadline exceeded")
        assert runtime.plugins == ()


# -- Synchronize


def fill(runtime, pods, containers, counts, env_bytes=0):
    nr_pods, nr_containers = counts
    for i in range(nr_pods):
        runtime.run_pod(pods(f"p{i}"))
    for i in range(nr_containers):
        env = ["X=" + "x" * env_bytes] if env_bytes else []
        runtime.create_container("p0", containers(f"c{i:04}", env=env))


def parts_seen(plugin):
    return [(len(r.pods), len(r.containers), r.more) for m, r in plugin.seen if m == "Synchronize"]


def test_a_small_state_comes_at_once_and_updates_are_applied(runtimes, scripted, pods, containers):
    runtime = runtimes()
    fill(runtime, pods, containers, (2, 3))
    runtime.start_container("c0000")
    runtime.start_container("c0001")
    runtime.stop_container("c0001")
    reply = api.SynchronizeResponse()
    reply.update.add(container_id="c0000").linux.resources.cpu.cpus = "1"
    plugin = scripted(runtime, answers={"Synchronize": reply})
    assert parts_seen(plugin) == [(2, 2, False)]  # the exited one is not told
    assert [c.state for c in plugin.seen[1][1].containers] == [
        api.CONTAINER_RUNNING,
        api.CONTAINER_CREATED,
    ]
    assert runtime.container("c0000").linux.resources.cpu.cpus == "1"


def test_ten_megabytes_come_in_parts_and_complete(runtimes, scripted, pods, containers):
    runtime = runtimes(request_timeout_ms=20000)
    fill(runtime, pods, containers, (10, 200), 50_000)
    plugin = scripted(runtime)
    parts = parts_seen(plugin)
    assert len(parts) >= 3
    assert [more for _, _, more in parts] == [True] * (len(parts) - 1) + [False]
    ids = [c.id for m, r in plugin.seen if m == "Synchronize" for c in r.containers]
    assert ids == [f"c{i:04}" for i in range(200)]
    assert sum(p for p, _, _ in parts) == 10
    assert len(runtime.plugins) == 1


def test_an_old_runtime_sends_ten_megabytes_at_once(runtimes, scripted, pods, containers):
    runtime = runtimes("containerd-1.7.25", request_timeout_ms=20000)
    fill(runtime, pods, containers, (1, 200), 50_000)
    plugin = scripted(runtime)
    assert parts_seen(plugin) == [(1, 200, False)]


def test_empty_parts_until_time_is_up(runtimes, scripted, pods, containers):
    runtime = runtimes(request_timeout_ms=1500, quirks=Quirks(keeps_empty_parts=True))
    fill(runtime, pods, containers, (1, 200), 50_000)
    with pytest.raises(RegistrationError, match="context deadline exceeded"):
        scripted(runtime)
    parts = sent(runtime, "Synchronize")
    assert sum(not p.request.containers for p in parts[:200]) > 20
    assert runtime.plugins == ()


@pytest.mark.parametrize(
    "answer",
    [
        api.SynchronizeResponse(),
        api.SynchronizeResponse(more=True, update=[api.ContainerUpdate(container_id="x")]),
    ],
    ids=["more not echoed", "updates too early"],
)
def test_a_plugin_that_cannot_take_parts_is_dropped(answer, runtimes, scripted, pods, containers):
    runtime = runtimes()
    fill(runtime, pods, containers, (10, 200), 50_000)
    with pytest.raises(RegistrationError, match="does not handle split sync requests"):
        scripted(runtime, answers={"Synchronize": answer})


def test_an_error_in_synchronize_ends_the_connection(runtimes, scripted):
    with pytest.raises(RegistrationError, match=r"failed to synchronize plugin: .* desc = no"):
        scripted(runtimes(), answers={"Synchronize": RpcError(Code.UNKNOWN, "no")})


# -- large messages


@pytest.mark.parametrize("size", [1_000, 5_000, 100_000, 2_000_000])
def test_adjustments_of_any_size_arrive_complete(size, bed_big):
    text = "x" * size
    assert bed_big(text).annotations["k"] == text


@pytest.fixture
def bed_big(runtimes, scripted, pods, containers):
    def run(text):
        reply = api.CreateContainerResponse()
        reply.adjust.annotations["k"] = text
        runtime = runtimes()
        scripted(runtime, mask=0x8, answers={"CreateContainer": reply})
        runtime.run_pod(pods())
        result = runtime.create_container("pod1", containers())
        result.check()
        return result.container

    return run


def test_a_container_above_the_limit_fails_its_creation(runtimes, scripted, pods, containers):
    runtime = runtimes()
    plugin = scripted(runtime, mask=0x8)
    runtime.run_pod(pods())
    result = runtime.create_container("pod1", containers(env=["X=" + "x" * (5 << 20)]))
    assert "code = ResourceExhausted" in str(result.error)
    assert plugin.methods() == []
    assert runtime.create_container("pod1", containers("small")).ok


# -- listening and restarting


def test_the_socket_file(runtimes, tmp_path):
    path = tmp_path / "deep" / "nri.sock"
    path.parent.mkdir()
    path.write_text("in the way")
    runtime = runtimes()
    runtime.listen(path)
    assert stat.S_ISSOCK(path.stat().st_mode)
    with pytest.raises(UsageError):
        runtime.listen(path)
    runtime.close()
    assert not path.exists()
    runtime.close()
    with pytest.raises(UsageError):
        runtime.listen(path)


@pytest.mark.parametrize("key", [CONTAINERD, CRIO])
def test_after_a_restart(key, runtimes, connected, tmp_path, make):
    pods, containers = make
    path = tmp_path / "nri.sock"
    runtime = runtimes(key)
    runtime.listen(path)
    first = connected(path)
    runtime.wait_for_plugins(1)
    runtime.run_pod(pods())
    runtime.create_container("pod1", containers(cpus="1")).check()
    runtime.start_container("ctr1").check()
    runtime.restart()
    first.join(10)
    assert not first.is_alive()
    second = connected(path)
    runtime.wait_for_plugins(1)
    sync = next(r for m, r in second.seen if m == "Synchronize")
    assert [c.id for c in sync.containers] == ["ctr1"]
    assert sync.containers[0].linux.resources.cpu.cpus == "1"
    runtime.stop_container("ctr1").check()
    runtime.remove_container("ctr1").check()
    runtime.remove_pod("pod1").check()
    names = [name.removeprefix("StateChange:") for name in second.methods()]
    if key == CONTAINERD:  # pods of the process before are not told any more
        assert names == ["StopContainer", "RemoveContainer"]
    else:
        assert names == [
            "StopContainer",
            "REMOVE_CONTAINER",
            "STOP_POD_SANDBOX",
            "REMOVE_POD_SANDBOX",
        ]


def test_calls_from_many_threads_never_overlap(runtimes, scripted, pods, containers):
    runtime = runtimes()
    running = []
    overlaps = []

    def handler(request):
        running.append(1)
        if len(running) > 1:
            overlaps.append(request)
        running.pop()
        return b""

    methods = ("CreateContainer", "StartContainer", "StopContainer", "RemoveContainer")
    for label in ("10-a", "20-b"):
        scripted(
            runtime, label, mask=0x8 | 0x20 | 0x200 | 0x400, answers=dict.fromkeys(methods, handler)
        )
    runtime.run_pod(pods())

    def work(name):
        for i in range(20):
            key = f"{name}-{i}"
            runtime.create_container("pod1", containers(key)).check()
            runtime.start_container(key).check()
            runtime.remove_container(key).check()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not overlaps
    assert not runtime.node.containers
    assert len(runtime.events) >= 3 * 20 * 4 * 2


def test_events_can_be_forgotten_or_not_kept(runtimes, scripted, pods):
    runtime = runtimes(is_recording=False)
    scripted(runtime)
    assert runtime.run_pod(pods()).exchanges
    assert runtime.events == []
    runtime = runtimes()
    scripted(runtime, "11-b")
    assert runtime.events
    runtime.clear_events()
    assert runtime.events == []
    with pytest.raises(TimeoutError):
        runtime.wait_for_plugins(5, timeout_s=0.01)
