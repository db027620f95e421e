"""What each CRI-like call sends to plugins, in which order, and what an error does."""

import pytest

from nri_claim2core.model.errors import UsageError
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.errors import RpcError
from nri_claim2core.nri.runtime import PROFILES, BackendError, Exchange, PluginCall, profile
from nri_claim2core.nri.status import Code

CONTAINERD = "containerd-2.3"
CRIO = "cri-o-1.36"
BOTH = pytest.mark.parametrize("key", [CONTAINERD, CRIO])

# The nine that came as StateChange before NRI 0.12.
STATE_CHANGES = {
    "RunPodSandbox": "RUN_POD_SANDBOX",
    "PostUpdatePodSandbox": "POST_UPDATE_POD_SANDBOX",
    "StopPodSandbox": "STOP_POD_SANDBOX",
    "RemovePodSandbox": "REMOVE_POD_SANDBOX",
    "PostCreateContainer": "POST_CREATE_CONTAINER",
    "StartContainer": "START_CONTAINER",
    "PostStartContainer": "POST_START_CONTAINER",
    "PostUpdateContainer": "POST_UPDATE_CONTAINER",
    "RemoveContainer": "REMOVE_CONTAINER",
}


class Backend:
    """Notes its calls; refuses those named in `refuses`."""

    def __init__(self, refuses=()):
        self.calls = []
        self.refuses = set(refuses)

    def note(self, what, container, result=None):
        self.calls.append((what, container.id))
        if what in self.refuses:
            raise BackendError(f"{what} refused")
        return result

    def create(self, container):
        return self.note("create", container, 4321)

    def start(self, container):
        self.note("start", container)

    def update(self, container, resources):
        self.note("update", container)

    def stop(self, container):
        return self.note("stop", container, 137)


def adjust_cpus(cpus):
    def answer(request):
        reply = api.CreateContainerResponse()
        reply.adjust.linux.resources.cpu.cpus = cpus
        return reply

    return answer


def update_of(key, cpus, response=api.UpdateContainerResponse, **fields):
    reply = response()
    update = reply.update.add(container_id=key, **fields)
    update.linux.resources.cpu.cpus = cpus
    return reply


def cpus_of(runtime, key):
    return runtime.container(key).linux.resources.cpu.cpus


def refuse(text="no", status=Code.UNKNOWN):
    return RpcError(status, text)


@pytest.fixture
def bed(runtimes, scripted, pods, containers):
    """Give runtime and plugin after one pod ran."""

    def make(key=CONTAINERD, *, label="10-a", backend=None, **options):
        runtime = runtimes(key, backend=backend)
        plugin = scripted(runtime, label, **options)
        runtime.run_pod(pods()).check()
        return runtime, plugin

    return make


@pytest.mark.parametrize("key", PROFILES)
def test_a_whole_life_in_the_form_of_each_release(key, bed, pods, containers):
    runtime, plugin = bed(key)
    row = profile(key)
    runtime.create_container("pod1", containers()).check()
    runtime.start_container("ctr1").check()
    runtime.update_cpuset("ctr1", "1").check()
    runtime.update_pod("pod1", resources=api.LinuxResources()).check()
    runtime.stop_container("ctr1").check()
    runtime.remove_container("ctr1").check()
    runtime.stop_pod("pod1").check()
    runtime.remove_pod("pod1").check()
    pod_update = ["UpdatePodSandbox"] if key[:5] == "cri-o" else []
    if key in {"containerd-2.3", "containerd-2.4"}:
        pod_update = ["UpdatePodSandbox", "PostUpdatePodSandbox"]
    validates = ["ValidateContainerAdjustment"] if row.valid_events == 0x3FFF else []
    expected = [
        "RunPodSandbox",
        "CreateContainer",
        *validates,
        "PostCreateContainer",
        "StartContainer",
        "PostStartContainer",
        "UpdateContainer",
        "PostUpdateContainer",
        *pod_update,
        "StopContainer",
        "RemoveContainer",
        "StopPodSandbox",
        "RemovePodSandbox",
    ]
    if key not in {"containerd-2.3", "containerd-2.4"}:
        expected = [
            f"StateChange:{STATE_CHANGES[e]}" if e in STATE_CHANGES else e for e in expected
        ]
    assert plugin.methods() == expected


@pytest.mark.parametrize(
    ("key", "at_post_create", "at_start"),
    [(CONTAINERD, 0, 4321), ("cri-o-1.35", 0, 0), (CRIO, 4321, 4321)],
)
def test_when_the_process_exists_and_its_pid_shows(key, at_post_create, at_start, bed, containers):
    backend = Backend()
    moments = {}

    def note(request):
        name = type(request).__name__
        event = api.Event.Name(request.event) if name == "StateChangeEvent" else name
        moments[event] = (list(backend.calls), request.container.pid, request.container.state)
        return b""

    names = ["StateChange", "PostCreateContainer", "StartContainer", "PostStartContainer"]
    runtime, _ = bed(key, backend=backend, answers=dict.fromkeys(names, note))
    runtime.create_container("pod1", containers()).check()
    runtime.start_container("ctr1").check()
    dedicated = key == CONTAINERD
    post_create = "PostCreateContainerRequest" if dedicated else "POST_CREATE_CONTAINER"
    start = "StartContainerRequest" if dedicated else "START_CONTAINER"
    post_start = "PostStartContainerRequest" if dedicated else "POST_START_CONTAINER"
    created = [("create", "ctr1")]
    before = [] if dedicated else created
    assert moments[post_create] == (before, at_post_create, api.CONTAINER_CREATED)
    assert moments[start] == (created, at_start, api.CONTAINER_CREATED)
    assert moments[post_start] == (
        [*created, ("start", "ctr1")],
        at_start,
        api.CONTAINER_RUNNING,
    )


@BOTH
def test_states_and_pids_at_the_ends_of_a_life(key, bed, containers):
    runtime, plugin = bed(key, backend=Backend())
    runtime.create_container("pod1", containers())
    runtime.start_container("ctr1")
    runtime.stop_container("ctr1")
    runtime.remove_container("ctr1")
    runtime.remove_pod("pod1")
    by_event = {api.Event.Name(r.event) if m == "StateChange" else m: r for m, r in plugin.seen}
    assert by_event["CreateContainer"].container.state == api.CONTAINER_UNKNOWN
    stop = by_event["StopContainer"].container
    assert (stop.pid, stop.state, stop.exit_code) == (4321, api.CONTAINER_STOPPED, 137)
    removal = by_event["RemoveContainer" if key == CONTAINERD else "REMOVE_CONTAINER"]
    state = api.CONTAINER_UNKNOWN if key == CONTAINERD else api.CONTAINER_STOPPED
    assert (removal.container.pid, removal.container.state) == (0, state)
    run = by_event["RunPodSandbox" if key == CONTAINERD else "RUN_POD_SANDBOX"]
    last = by_event["RemovePodSandbox" if key == CONTAINERD else "REMOVE_POD_SANDBOX"]
    assert last.pod.pid == 0
    assert bool(run.pod.pid) is (key == CONTAINERD)


def test_a_synthetic_pid_can_belong_to_no_process(bed, containers):
    runtime, plugin = bed()
    runtime.create_container("pod1", containers())
    runtime.start_container("ctr1")
    pid = next(r for m, r in plugin.seen if m == "StartContainer").container.pid
    assert pid > 4194304  # PID_MAX_LIMIT on 64 bit
    assert pid < 1 << 32


# -- refusals


@BOTH
def test_an_error_in_run_pod_fails_it_and_undoes_it(key, runtimes, scripted, pods):
    runtime = runtimes(key)
    answer = refuse() if key == CONTAINERD else lambda r: refuse() if r.event == 1 else b""
    method = "RunPodSandbox" if key == CONTAINERD else "StateChange"
    plugin = scripted(runtime, answers={method: answer})
    result = runtime.run_pod(pods())
    assert str(result.error) == "rpc error: code = Unknown desc = no"
    names = ["RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"]
    if key == CRIO:
        names = [f"StateChange:{STATE_CHANGES[name]}" for name in names]
    assert plugin.methods() == names
    with pytest.raises(UsageError):
        runtime.stop_pod("pod1")
    assert len(runtime.plugins) == 1


@BOTH
def test_an_error_in_create_fails_it_and_undoes_it(key, bed, containers):
    runtime, plugin = bed(key, answers={"CreateContainer": refuse("not here")})
    result = runtime.create_container("pod1", containers())
    text = "rpc error: code = Unknown desc = not here"
    prefix = "failed to get NRI adjustment for container: " if key == CONTAINERD else ""
    assert str(result.error) == prefix + text
    tail = ["CreateContainer", "StopContainer", "RemoveContainer"]
    if key == CRIO:
        tail[2] = "StateChange:REMOVE_CONTAINER"
    assert plugin.methods()[-3:] == tail
    assert "ctr1" not in runtime.node.containers
    runtime.create_container("pod1", containers("ctr2"))


@BOTH
def test_an_error_in_start_aborts_on_containerd_only(key, bed, containers):
    backend = Backend()
    if key == CONTAINERD:
        answers = {"StartContainer": refuse("not seeded")}
    else:
        answers = {"StateChange": lambda r: refuse("not seeded") if r.event == 6 else b""}
    runtime, plugin = bed(key, backend=backend, answers=answers)
    runtime.create_container("pod1", containers())
    result = runtime.start_container("ctr1")
    text = "rpc error: code = Unknown desc = not seeded"
    if key == CONTAINERD:
        assert str(result.error) == f"NRI container start failed: {text}"
        assert plugin.methods()[-2:] == ["StartContainer", "StopContainer"]
        assert backend.calls == [("create", "ctr1"), ("stop", "ctr1")]
        assert runtime.node.containers["ctr1"].exit_code == 128
        runtime.remove_container("ctr1").check()
        assert plugin.methods().count("StopContainer") == 1
    else:
        assert result.ok
        assert [str(e) for e in result.logged] == [text]
        assert backend.calls == [("create", "ctr1"), ("start", "ctr1")]


@BOTH
def test_an_error_in_update_fails_it_and_applies_nothing(key, bed, containers):
    backend = Backend()
    runtime, plugin = bed(key, backend=backend, answers={"UpdateContainer": refuse()})
    runtime.create_container("pod1", containers(cpus="0"))
    runtime.start_container("ctr1")
    result = runtime.update_cpuset("ctr1", "1")
    assert not result.ok
    assert cpus_of(runtime, "ctr1") == "0"
    assert plugin.methods()[-1] == "UpdateContainer"
    assert ("update", "ctr1") not in backend.calls


@pytest.mark.parametrize(
    "method",
    [
        "PostCreateContainer",
        "PostStartContainer",
        "PostUpdateContainer",
        "StopContainer",
        "RemoveContainer",
        "StopPodSandbox",
        "RemovePodSandbox",
        "PostUpdatePodSandbox",
    ],
)
def test_errors_that_are_only_logged(method, bed, containers):
    runtime, plugin = bed(answers={method: refuse()})
    results = [
        runtime.create_container("pod1", containers()),
        runtime.start_container("ctr1"),
        runtime.update_cpuset("ctr1", "1"),
        runtime.update_pod("pod1", resources=api.LinuxResources()),
        runtime.stop_container("ctr1"),
        runtime.remove_container("ctr1"),
        runtime.stop_pod("pod1"),
        runtime.remove_pod("pod1"),
    ]
    assert all(result.ok for result in results)
    assert sum(len(result.logged) for result in results) == 1
    assert len(plugin.methods()) == 14  # the other events all came


def test_an_error_in_a_pod_update_fails_it(bed):
    runtime, plugin = bed(answers={"UpdatePodSandbox": refuse()})
    resources = api.LinuxResources(cpu={"shares": {"value": 5}})
    assert not runtime.update_pod("pod1", resources=resources).ok
    assert plugin.methods()[-1] == "UpdatePodSandbox"
    sent = plugin.seen[-1][1]
    assert sent.linux_resources.cpu.shares.value == 5
    assert sent.linux_resources.memory.HasField("limit")  # explicit zero
    assert not sent.HasField("overhead_linux_resources")


def test_even_deadline_exceeded_as_a_status_keeps_the_plugin(bed, containers):
    answers = {"CreateContainer": refuse("x", Code.DEADLINE_EXCEEDED)}
    runtime, _ = bed(answers=answers)
    result = runtime.create_container("pod1", containers())
    assert "code = DeadlineExceeded desc = x" in str(result.error)
    assert [p.label for p in runtime.plugins] == ["10-a"]


def test_a_reply_that_cannot_be_parsed_fails_the_call_only(bed, containers):
    runtime, _ = bed(answers={"CreateContainer": b"\xff\xff"})
    assert not runtime.create_container("pod1", containers()).ok
    assert len(runtime.plugins) == 1


# -- several plugins


def test_plugins_are_asked_in_the_order_of_their_index_text(runtimes, scripted, pods, containers):
    runtime = runtimes()
    for label, cpus in (("20-b", "2"), ("05-c", "3"), ("10-a", "1")):
        scripted(runtime, label, mask=0x8, answers={"CreateContainer": cpus and b""})
    assert [p.label for p in runtime.plugins] == ["05-c", "10-a", "20-b"]
    runtime.run_pod(pods())
    result = runtime.create_container("pod1", containers())
    assert [x.plugin for x in result.exchanges] == ["05-c", "10-a", "20-b"]
    assert all(x.duration_ns > 0 for x in result.exchanges)


@pytest.mark.parametrize(
    ("key", "words"), [("containerd-2.3", "CPUSetCPUs"), ("containerd-2.1", "CPU pinning")]
)
def test_two_plugins_that_set_the_cpus_fail_the_creation(key, words, runtimes, scripted, make):
    pods, containers = make
    runtime = runtimes(key)
    scripted(runtime, "10-a", mask=0x8, answers={"CreateContainer": adjust_cpus("1")})
    scripted(runtime, "20-b", mask=0x8, answers={"CreateContainer": adjust_cpus("1")})
    runtime.run_pod(pods())
    result = runtime.create_container("pod1", containers())
    assert str(result.error).endswith(f'plugins "20-b" and "10-a" both tried to set {words}')
    assert len(runtime.plugins) == 2


def test_a_later_plugin_sees_what_an_earlier_one_set(runtimes, scripted, pods, containers):
    runtime = runtimes()
    scripted(runtime, "10-a", mask=0x8, answers={"CreateContainer": adjust_cpus("1")})
    second = scripted(runtime, "20-b", mask=0x8)
    runtime.run_pod(pods())
    runtime.create_container("pod1", containers(cpus="0")).check()
    assert second.seen[-1][1].container.linux.resources.cpu.cpus == "1"
    assert cpus_of(runtime, "ctr1") == "1"


def test_the_first_refusal_ends_the_round(runtimes, scripted, pods, containers):
    runtime = runtimes()
    first = scripted(runtime, "10-a", mask=0x8 | 0x200, answers={"CreateContainer": refuse()})
    second = scripted(runtime, "20-b", mask=0x8 | 0x200)
    runtime.run_pod(pods())
    runtime.create_container("pod1", containers())
    assert first.methods() == ["CreateContainer", "StopContainer"]
    assert second.methods() == ["StopContainer"]


def test_only_subscribed_events_are_sent(bed, containers):
    runtime, plugin = bed(mask=0x20)
    runtime.create_container("pod1", containers())
    runtime.start_container("ctr1")
    runtime.remove_pod("pod1")
    assert plugin.methods() == ["StartContainer"]


def test_a_plugin_that_lacks_a_call_gets_state_changes_from_then_on(bed, containers):
    runtime, plugin = bed(lacks={"PostCreateContainer"})
    runtime.create_container("pod1", containers())
    assert runtime.plugins[0].uses_state_change
    runtime.start_container("ctr1")
    assert plugin.methods()[-3:] == [
        "StateChange:POST_CREATE_CONTAINER",
        "StateChange:START_CONTAINER",
        "StateChange:POST_START_CONTAINER",
    ]
    first = next(x for x in runtime.events if isinstance(x, Exchange) and x.failure)
    assert (first.method, first.failure.status) == ("PostCreateContainer", Code.UNIMPLEMENTED)


# -- validation


def test_validators_get_owners_and_plugins(runtimes, scripted, pods, containers):
    runtime = runtimes()
    scripted(runtime, "10-a", mask=0x8, answers={"CreateContainer": adjust_cpus("1")})
    validator = scripted(runtime, "20-b", mask=0x2000)
    runtime.run_pod(pods())
    runtime.create_container("pod1", containers(cpus="0")).check()
    request = validator.seen[-1][1]
    assert request.container.linux.resources.cpu.cpus == "0"  # as it came
    assert request.adjust.linux.resources.cpu.cpus == "1"
    assert request.owners.owners["ctr1"].simple[api.CPUSetCPUs] == "10-a"
    assert [(p.index, p.name) for p in request.plugins] == [("10", "a"), ("20", "b")]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            api.ValidateContainerAdjustmentResponse(reject=True, reason="mine"),
            'validator "10-a" rejected container adjustment, reason: mine',
        ),
        (
            api.ValidateContainerAdjustmentResponse(reject=True),
            'validator "10-a" rejected container adjustment, reason: unknown rejection reason',
        ),
        (refuse("x"), "validator plugin 10-a failed: rpc error: code = Unknown desc = x"),
    ],
)
def test_a_validator_fails_the_creation(answer, text, bed, containers):
    runtime, plugin = bed(answers={"ValidateContainerAdjustment": answer})
    result = runtime.create_container("pod1", containers())
    assert str(result.error).endswith(text)
    assert plugin.methods()[-2:] == ["StopContainer", "RemoveContainer"]


def test_a_plugin_that_lacks_validation_breaks_every_creation(bed, containers):
    # Mask 0 subscribes it.
    runtime, _ = bed(mask=0, lacks={"ValidateContainerAdjustment"})
    error = runtime.create_container("pod1", containers()).error
    assert "validator plugin 10-a failed" in str(error)


# -- updates


def test_kubelets_cpuset_stands_unless_the_plugin_answers(bed, containers):
    answers = {"CreateContainer": adjust_cpus("1"), "UpdateContainer": b""}
    runtime, plugin = bed(answers=answers)
    runtime.create_container("pod1", containers(cpus="0"))
    runtime.start_container("ctr1")
    result = runtime.update_cpuset("ctr1", "0")
    assert result.resources.cpu.cpus == "0"
    assert cpus_of(runtime, "ctr1") == "0"
    plugin.answers["UpdateContainer"] = update_of("ctr1", "1")
    result = runtime.update_cpuset("ctr1", "0")
    assert result.resources.cpu.cpus == "1"
    assert cpus_of(runtime, "ctr1") == "1"
    sent = plugin.seen[-2][1].linux_resources
    assert sent.cpu.HasField("shares")
    assert sent.cpu.HasField("quota")
    assert sent.cpu.HasField("period")
    assert sent.memory.HasField("limit")
    assert sent.cpu.shares.value == 0


def test_zero_and_empty_keep_what_is_stored(bed, containers):
    runtime, _ = bed()
    container = containers(cpus="2-3")
    container.linux.resources.cpu.shares.value = 512
    runtime.create_container("pod1", container)
    runtime.update_container("ctr1", api.LinuxResources(memory={"limit": {"value": 1 << 30}}))
    stored = runtime.container("ctr1").linux.resources
    assert (stored.cpu.cpus, stored.cpu.shares.value) == ("2-3", 512)
    assert stored.memory.limit.value == 1 << 30


def test_an_update_without_an_id_changes_nothing(bed, containers):
    runtime, _ = bed(answers={"UpdateContainer": update_of("", "1")})
    runtime.create_container("pod1", containers(cpus="0"))
    assert runtime.update_cpuset("ctr1", "2").ok
    assert cpus_of(runtime, "ctr1") == "2"


@BOTH
def test_updates_in_a_creation_change_others_first(key, bed, containers):
    reply = api.CreateContainerResponse()
    reply.evict.add(container_id="old", reason="ignored by every version")
    runtime, plugin = bed(key, backend=Backend(), answers={"CreateContainer": b""})
    runtime.create_container("pod1", containers("old", cpus="0-3"))
    runtime.start_container("old")
    reply.update.add(container_id="old").linux.resources.cpu.cpus = "0-1"
    reply.update.add(container_id="nobody").linux.resources.cpu.cpus = "9"
    plugin.answers["CreateContainer"] = reply
    result = runtime.create_container("pod1", containers("new"))
    result.check()
    assert [u.container_id for u in result.updates] == ["old", "nobody"]
    assert cpus_of(runtime, "old") == "0-1"
    assert runtime.node.containers["old"].phase.value == "running"


@BOTH
@pytest.mark.parametrize("ignore", [False, True])
def test_a_failed_update_of_another_container(key, ignore, bed, containers):
    backend = Backend()
    runtime, plugin = bed(key, backend=backend)
    runtime.create_container("pod1", containers("old", cpus="0-3"))
    runtime.start_container("old")
    backend.refuses.add("update")
    plugin.answers["CreateContainer"] = update_of(
        "old", "99", api.CreateContainerResponse, ignore_failure=ignore
    )
    result = runtime.create_container("pod1", containers("new"))
    assert cpus_of(runtime, "old") == "0-3"
    if key == CRIO and not ignore:
        assert str(result.error) == "NRI update of some containers failed"
        assert "new" not in runtime.node.containers
    else:
        assert result.ok
        assert len(result.logged) == (0 if ignore else 1)


def test_naming_itself_in_updates_fails_the_creation(bed, containers):
    reply = update_of("ctr1", "1", api.CreateContainerResponse)
    runtime, _ = bed(answers={"CreateContainer": reply})
    error = str(runtime.create_container("pod1", containers()).error)
    assert error.endswith('plugin "10-a" asked update of "ctr1" during creation')


def test_updates_in_a_stop_are_applied(bed, containers):
    runtime, plugin = bed()
    for key in ("a", "b"):
        runtime.create_container("pod1", containers(key, cpus="0"))
        runtime.start_container(key)
    plugin.answers["StopContainer"] = update_of("b", "0-1", api.StopContainerResponse)
    runtime.stop_container("a").check()
    assert cpus_of(runtime, "b") == "0-1"


def test_two_plugins_that_update_the_same_field(runtimes, scripted, pods, containers):
    runtime = runtimes()
    for label in ("10-a", "20-b"):
        answers = {"UpdateContainer": update_of("ctr1", "1")}
        scripted(runtime, label, mask=0x80, answers=answers)
    runtime.run_pod(pods())
    runtime.create_container("pod1", containers(cpus="0"))
    error = str(runtime.update_cpuset("ctr1", "2").error)
    assert error == (
        'NRI container update failed: plugins "20-b" and "10-a" both tried to set CPUSetCPUs'
    )


@pytest.mark.parametrize(("key", "reaches"), [(CONTAINERD, False), (CRIO, True)])
def test_an_update_before_the_start_reaches_the_process_on_crio_only(key, reaches, bed, containers):
    backend = Backend()
    runtime, _ = bed(key, backend=backend)
    runtime.create_container("pod1", containers(cpus="0"))
    runtime.update_cpuset("ctr1", "1").check()
    assert (("update", "ctr1") in backend.calls) is reaches
    assert cpus_of(runtime, "ctr1") == "1"


def test_a_refused_update_stores_nothing(bed, containers):
    runtime, plugin = bed(backend=Backend(refuses=["update"]))
    runtime.create_container("pod1", containers(cpus="0"))
    runtime.start_container("ctr1")
    error = str(runtime.update_cpuset("ctr1", "99").error)
    assert error == "failed to update resources: update refused"
    assert cpus_of(runtime, "ctr1") == "0"
    assert "PostUpdateContainer" not in plugin.methods()


# -- unsolicited updates


def unsolicited(plugin, *updates):
    request = api.UpdateContainersRequest(update=updates)
    request.evict.add(container_id="ctr1", reason="ignored")
    return plugin.wait_reply(plugin.call("UpdateContainers", request))


def one(key, cpus, **fields):
    update = api.ContainerUpdate(container_id=key, **fields)
    update.linux.resources.cpu.cpus = cpus
    return update


def test_unsolicited_updates(bed, containers):
    backend = Backend()
    runtime, plugin = bed(backend=backend)
    runtime.create_container("pod1", containers(cpus="0"))
    runtime.start_container("ctr1")
    before = plugin.methods()
    reply = unsolicited(plugin, one("ctr1", "1"), one("nobody", "2"), one("", "3"))
    assert (reply.status, reply.payload) == (0, b"")
    assert cpus_of(runtime, "ctr1") == "1"
    assert plugin.methods() == before  # raises no event
    call = runtime.events[-1]
    assert isinstance(call, PluginCall)
    assert call.unknown == ("nobody", "")

    backend.refuses.add("update")
    reply = unsolicited(plugin, one("ctr1", "9", ignore_failure=True))
    assert reply.status == 0
    reply = unsolicited(plugin, one("ctr1", "9"))
    assert (reply.status, reply.message, reply.payload) == (
        Code.UNKNOWN,
        "NRI update of some containers failed",
        b"",
    )
    assert cpus_of(runtime, "ctr1") == "1"


def test_a_backend_that_breaks_fails_the_update_and_serves_on(bed, containers):
    class Broken(Backend):
        def update(self, container, resources):
            raise OSError("no such cgroup")

    runtime, plugin = bed(backend=Broken())
    runtime.create_container("pod1", containers(cpus="0"))
    runtime.start_container("ctr1")
    for _ in range(2):
        reply = unsolicited(plugin, one("ctr1", "1"))
        assert reply.message == "NRI update of some containers failed"
    assert cpus_of(runtime, "ctr1") == "0"


def test_updates_called_for_in_a_handler_wait_until_it_has_answered(bed, containers):
    runtime, plugin = bed()
    runtime.create_container("pod1", containers(cpus="0"))
    calls = []

    def handler(request):
        asked = api.UpdateContainersRequest(update=[one("ctr1", "1")])
        calls.append(plugin.call("UpdateContainers", asked))
        assert not plugin.replies[1:]  # the first answered RegisterPlugin
        return b""

    plugin.answers["StartContainer"] = handler
    runtime.start_container("ctr1").check()
    assert plugin.wait_reply(calls[0]).status == 0
    assert cpus_of(runtime, "ctr1") == "1"


# -- the process


@BOTH
def test_a_process_that_cannot_be_created(key, bed, containers):
    runtime, plugin = bed(key, backend=Backend(refuses=["create"]))
    created = runtime.create_container("pod1", containers())
    if key == CRIO:
        assert str(created.error) == "create refused"
        assert plugin.methods()[-2:] == ["StopContainer", "StateChange:REMOVE_CONTAINER"]
        return
    created.check()
    result = runtime.start_container("ctr1")
    assert str(result.error) == "failed to create containerd task: create refused"
    assert "StartContainer" not in plugin.methods()
    runtime.remove_container("ctr1")
    assert plugin.methods()[-2:] == ["StopContainer", "RemoveContainer"]


@BOTH
def test_a_workload_that_cannot_be_started(key, bed, containers):
    backend = Backend(refuses=["start"])
    runtime, plugin = bed(key, backend=backend)
    runtime.create_container("pod1", containers())
    result = runtime.start_container("ctr1")
    assert str(result.error) == "failed to start container: start refused"
    assert plugin.methods()[-1] == "StopContainer"
    assert backend.calls[-1] == ("stop", "ctr1")


def test_a_natural_exit_sends_one_stop(bed, containers):
    runtime, plugin = bed()
    runtime.create_container("pod1", containers())
    runtime.start_container("ctr1")
    runtime.exit_container("ctr1", 3)
    runtime.stop_container("ctr1")
    runtime.remove_container("ctr1")
    assert plugin.methods().count("StopContainer") == 1
    stop = next(r for m, r in plugin.seen if m == "StopContainer")
    assert stop.container.exit_code == 3


def test_a_container_that_never_started_is_stopped_and_removed(bed, containers):
    runtime, plugin = bed()
    runtime.create_container("pod1", containers())
    runtime.remove_pod("pod1")
    assert plugin.methods()[-4:] == [
        "StopPodSandbox",
        "StopContainer",
        "RemoveContainer",
        "RemovePodSandbox",
    ]


def test_wrong_use_is_named(bed, pods, containers):
    runtime, _ = bed()
    runtime.create_container("pod1", containers())
    for call in (
        lambda: runtime.run_pod(pods()),
        lambda: runtime.create_container("nopod", containers("x")),
        lambda: runtime.create_container("pod1", containers()),
        lambda: runtime.create_container("pod1", api.Container()),
        lambda: runtime.start_container("x"),
        lambda: runtime.exit_container("ctr1"),
    ):
        with pytest.raises(UsageError):
            call()
    runtime.start_container("ctr1")
    with pytest.raises(UsageError, match="is running"):
        runtime.start_container("ctr1")
