"""Subscriptions, StateChange, split Synchronize and answers, without a socket."""

from __future__ import annotations

import gc

import pytest

from nri_claim2core.nri import Call, Code, Plugin, RpcError
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.dispatch import Dispatcher
from nri_claim2core.nri.errors import NotAllowedError
from nri_claim2core.nri.events_table import EVENTS


class Everything(Plugin):
    """Handles every event and notes what it got."""

    def __init__(self):
        self.got = []


def _handler(name):
    def handler(self, request, call):
        self.got.append((name, request))

    return handler


for _event in EVENTS:
    setattr(Everything, _event.handler, _handler(_event.handler))


class Two(Plugin):
    wanted = None

    def configure(self, request):
        return self.wanted

    def create_container(self, request, call):
        return None

    def validate_container_adjustment(self, request, call):
        return None


def run(dispatcher, method, request):
    call = Call(method, request, 0.0, 1.0)
    outcome = dispatcher.answer(dispatcher.routes[method], call)
    return call, outcome


def configure(dispatcher, **fields):
    _, outcome = run(dispatcher, "Configure", api.ConfigureRequest(**fields))
    if outcome.error is not None:
        raise outcome.error
    return api.ConfigureResponse.FromString(outcome.payload).events


@pytest.mark.parametrize(
    ("fields", "mask"),
    [
        ({"runtime_name": "containerd", "runtime_version": "v1.7.34"}, 0x7FF),
        ({"runtime_name": "cri-o", "runtime_version": "1.33.1"}, 0x1FFF),
        ({"runtime_name": "containerd", "runtime_version": "v2.2.1"}, 0x3FFF),
        ({"runtime_name": "new", "runtime_version": "1.0.0", "NRI_version": "v0.12.2"}, 0x3FFF),
        ({"runtime_name": "unheard-of", "runtime_version": "1.0.0"}, 0x7FF),
        ({}, 0x7FF),
    ],
)
def test_a_plugin_of_everything_gets_what_the_runtime_knows(fields, mask):
    assert configure(Dispatcher(Everything()), **fields) == mask


def test_events_subscribed_are_the_handlers_that_exist():
    new = {"runtime_name": "containerd", "runtime_version": "v2.3.0"}
    old = {"runtime_name": "containerd", "runtime_version": "v2.1.0"}
    assert configure(Dispatcher(Two()), **new) == 0x2008
    assert configure(Dispatcher(Two()), **old) == 0x0008


@pytest.mark.parametrize("wanted", [0x0008, 0, None])
def test_the_plugin_may_choose_some_and_nothing_means_all(wanted):
    plugin = Two()
    plugin.wanted = wanted
    mask = configure(Dispatcher(plugin), runtime_name="containerd", runtime_version="v2.3.0")
    assert mask == (0x0008 if wanted else 0x2008)


def test_choosing_what_is_not_handled_is_refused():
    plugin = Two()
    plugin.wanted = 0x0009
    with pytest.raises(RpcError, match="does not handle: 0x9"):
        configure(Dispatcher(plugin))


# A mask of 0 would mean every event, validation included.
def test_a_mask_of_zero_is_never_sent():
    plugin = Two()
    plugin.wanted = 0x2000
    with pytest.raises(RpcError, match="knows none of the events") as caught:
        configure(Dispatcher(plugin), runtime_name="containerd", runtime_version="v1.7.34")
    assert caught.value.status == Code.FAILED_PRECONDITION


def test_a_plugin_without_handlers_is_refused():
    with pytest.raises(NotAllowedError, match="Plugin handles no event"):
        Dispatcher(Plugin())


def test_the_registration_is_what_the_runtime_said():
    dispatcher = Dispatcher(Two())
    configure(
        dispatcher,
        runtime_name="containerd",
        runtime_version="v2.3.4",
        registration_timeout=5000,
        request_timeout=1500,
        NRI_version="v0.12.0",
    )
    registration = dispatcher.registration
    assert str(registration) == "containerd v2.3.4 (NRI 0.12.0)"
    assert (registration.registration_timeout_ms, registration.request_timeout_ms) == (5000, 1500)
    assert not registration.updates_are_safe


@pytest.mark.parametrize("said", [0, -5])
def test_runtimes_that_tell_no_time_out_have_the_default(said):
    dispatcher = Dispatcher(Two())
    configure(dispatcher, request_timeout=said)
    assert dispatcher.registration.request_timeout_ms == 2000


def test_a_failing_configure_is_an_error_with_a_constant_text():
    class Failing(Two):
        def configure(self, request):
            raise ValueError("secret")

    dispatcher = Dispatcher(Failing(), name="x", index="10")
    _, outcome = run(dispatcher, "Configure", api.ConfigureRequest())
    assert outcome.error.status == 2
    assert outcome.error.message == "internal error of plugin 10-x"
    assert isinstance(outcome.failure, ValueError)


# -- StateChange ------------------------------------------------------------------------------

POD, CONTAINER = api.PodSandbox(id="p"), api.Container(id="c")


@pytest.mark.parametrize(
    "event", [event for event in EVENTS if event.state_change], ids=lambda event: event.rpc
)
def test_state_change_reaches_the_handler_of_its_event(event):
    plugin = Everything()
    change = api.StateChangeEvent(event=event.value, pod=POD, container=CONTAINER)
    call, outcome = run(Dispatcher(plugin), "StateChange", change)
    assert (outcome.payload, outcome.error) == (b"", None)
    ((name, request),) = plugin.got
    assert name == event.handler
    assert type(request) is event.request
    assert request.pod == POD
    if event.has_container:
        assert request.container == CONTAINER
    assert (call.method, call.request) == (event.rpc, request)


def test_state_change_keeps_absence():
    plugin = Everything()
    run(Dispatcher(plugin), "StateChange", api.StateChangeEvent(event=5))
    ((_, request),) = plugin.got
    assert not request.HasField("pod")
    assert not request.HasField("container")


@pytest.mark.parametrize("value", [0, 4, 8, 10, 14, 15, 99, -1])
def test_state_changes_of_other_events_are_an_empty_success(value):
    plugin = Everything()
    _, outcome = run(Dispatcher(plugin), "StateChange", api.StateChangeEvent(event=value))
    assert (outcome.payload, outcome.error, plugin.got) == (b"", None, [])


def test_a_handler_can_refuse_through_state_change():
    class Refusing(Plugin):
        def start_container(self, request, call):
            raise RpcError(Code.ABORTED, "not yet")

    _, outcome = run(Dispatcher(Refusing()), "StateChange", api.StateChangeEvent(event=6))
    assert (outcome.error.status, outcome.result) == (10, "refused")
    _, outcome = run(Dispatcher(Refusing()), "StateChange", api.StateChangeEvent(event=7))
    assert (outcome.payload, outcome.error) == (b"", None)


# -- Synchronize ------------------------------------------------------------------------------


class Collecting(Plugin):
    def __init__(self):
        self.states = []

    def create_container(self, request, call):
        return None

    def synchronize(self, pods, containers):
        self.states.append(([p.id for p in pods], [c.id for c in containers]))
        return [api.ContainerUpdate(container_id="u")]


class Streaming(Collecting):
    def __init__(self):
        super().__init__()
        self.parts = []

    def synchronize_part(self, pods, containers):
        self.parts.append(([p.id for p in pods], [c.id for c in containers]))


def part(pods, containers, *, more):
    return api.SynchronizeRequest(
        pods=[api.PodSandbox(id=i) for i in pods],
        containers=[api.Container(id=i) for i in containers],
        more=more,
    )


def synchronize(dispatcher, *parts):
    answers = []
    for request in parts:
        _, outcome = run(dispatcher, "Synchronize", request)
        answers.append(api.SynchronizeResponse.FromString(outcome.payload))
    return [(answer.more, [u.container_id for u in answer.update]) for answer in answers]


PARTS = [
    part("a", "", more=True),
    part("", "x", more=True),
    part("b", "yz", more=False),
]


def test_parts_are_collected_and_updates_go_into_the_last_answer():
    plugin = Collecting()
    dispatcher = Dispatcher(plugin)
    expected = [(True, []), (True, []), (False, ["u"])]
    assert synchronize(dispatcher, *PARTS) == expected
    assert synchronize(dispatcher, part("q", "", more=False)) == [(False, ["u"])]
    assert plugin.states == [(["a", "b"], ["x", "y", "z"]), (["q"], [])]


def test_a_plugin_that_takes_parts_gets_each_and_nothing_is_kept():
    plugin = Streaming()
    assert synchronize(Dispatcher(plugin), *PARTS)[-1] == (False, ["u"])
    assert plugin.parts == [(["a"], []), ([], ["x"]), (["b"], ["y", "z"])]
    assert plugin.states == [([], [])]


def test_thousands_of_empty_parts_leave_nothing_behind():
    plugin = Collecting()
    dispatcher = Dispatcher(plugin)
    empty = part("", "", more=True)
    synchronize(dispatcher, part("a", "", more=True), empty)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(5000):
        run(dispatcher, "Synchronize", empty)
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    synchronize(dispatcher, part("", "x", more=False))
    assert plugin.states == [(["a"], ["x"])]


def test_a_new_connection_forgets_the_parts_of_one_that_broke():
    plugin = Collecting()
    dispatcher = Dispatcher(plugin)
    synchronize(dispatcher, part("old", "", more=True))
    configure(dispatcher)
    synchronize(dispatcher, part("n", "", more=False))
    assert plugin.states == [(["n"], [])]


def test_a_plugin_without_synchronize_echoes_more():
    answers = synchronize(Dispatcher(Two()), part("a", "", more=True), part("", "", more=False))
    assert answers == [(True, []), (False, [])]


# -- validation, deadlines --------------------------------------------------------------------


class Judging(Plugin):
    error = None
    late = None

    def validate_container_adjustment(self, request, call):
        if self.error:
            raise self.error

    def create_container(self, request, call):
        return self.late

    def deadline_reached(self, method, request):
        if isinstance(self.late, Exception):
            raise self.late
        return self.late


def validate(dispatcher, **fields):
    request = api.ValidateContainerAdjustmentRequest(**fields)
    _, outcome = run(dispatcher, "ValidateContainerAdjustment", request)
    assert outcome.error is None
    verdict = api.ValidateContainerAdjustmentResponse.FromString(outcome.payload)
    return verdict.reject, verdict.reason


def test_errors_of_a_validation_are_a_rejection():
    plugin = Judging()
    dispatcher = Dispatcher(plugin, name="x", index="10")
    assert validate(dispatcher) == (False, "")
    plugin.error = RpcError(Code.PERMISSION_DENIED, "outside its claim")
    assert validate(dispatcher) == (True, "outside its claim")
    plugin.error = KeyError("boom")
    assert validate(dispatcher) == (True, "internal error of plugin 10-x")


def test_a_second_instance_is_noticed_in_a_validation():
    seen = []
    dispatcher = Dispatcher(Judging(), name="x", index="10", on_duplicate=lambda: seen.append(1))
    mine, other = (
        api.PluginInstance(name="x", index="10"),
        api.PluginInstance(name="x", index="11"),
    )
    validate(dispatcher, plugins=[mine, other])
    assert not seen
    validate(dispatcher, plugins=[mine, other, mine])
    assert seen


def late(dispatcher, method, request):
    return dispatcher.late_answer(Call(method, request, 0.0, 0.0))


def test_a_configure_that_was_answered_for_changes_no_subscription():
    class Slow(Two):
        def configure(self, request):
            call.cancelled = True  # the watchdog has answered
            return 0x0008

    dispatcher = Dispatcher(Slow())
    request = api.ConfigureRequest(runtime_name="containerd", runtime_version="v2.3.0")
    call = Call("Configure", request, 0.0, 1.0)
    dispatcher.answer(dispatcher.routes["Configure"], call)
    assert dispatcher.registration.events == 0x2008


def test_the_plugin_decides_what_a_late_handler_means():
    plugin = Judging()
    dispatcher = Dispatcher(plugin)
    request = api.CreateContainerRequest()
    assert late(dispatcher, "CreateContainer", request)[:3] == (b"", None, "deadline")
    plugin.late = api.CreateContainerResponse(update=[api.ContainerUpdate(container_id="c")])
    assert late(dispatcher, "CreateContainer", request).payload == bytes.fromhex("12030a0163")
    plugin.late = RpcError(Code.DEADLINE_EXCEEDED, "not decided in time")
    assert late(dispatcher, "CreateContainer", request).error is plugin.late
    outcome = late(
        dispatcher, "ValidateContainerAdjustment", api.ValidateContainerAdjustmentRequest()
    )
    assert outcome.payload == b"\x08\x01\x12\x13not decided in time"


def test_a_late_answer_that_fails_is_an_error_too():
    plugin = Judging()
    dispatcher = Dispatcher(plugin, name="x", index="10")
    plugin.late = ValueError("boom")
    outcome = late(dispatcher, "CreateContainer", api.CreateContainerRequest())
    assert (outcome.error.status, outcome.result) == (2, "deadline")
    assert outcome.failure is plugin.late
    plugin.late = api.Empty()
    outcome = late(dispatcher, "CreateContainer", api.CreateContainerRequest())
    assert isinstance(outcome.failure, TypeError)


def test_late_setup_still_sets_up():
    dispatcher = Dispatcher(Two())
    outcome = late(dispatcher, "Configure", api.ConfigureRequest())
    assert api.ConfigureResponse.FromString(outcome.payload).events == 0x0008
    outcome = late(dispatcher, "Synchronize", part("", "", more=True))
    assert api.SynchronizeResponse.FromString(outcome.payload).more

    # Updates belong into the last answer, whatever the plugin says.
    plugin = Judging()
    plugin.late = api.SynchronizeResponse(update=[api.ContainerUpdate(container_id="c")])
    outcome = late(Dispatcher(plugin), "Synchronize", part("", "", more=True))
    assert outcome.payload == bytes.fromhex("1001")
    outcome = late(Dispatcher(plugin), "Synchronize", part("", "", more=False))
    assert api.SynchronizeResponse.FromString(outcome.payload) == plugin.late


def test_late_state_changes_are_put_to_the_plugin_as_what_they_are():
    asked = []

    class Asking(Plugin):
        def start_container(self, request, call):
            return None

        def deadline_reached(self, method, request):
            asked.append((method, request))

    dispatcher = Dispatcher(Asking())
    late(dispatcher, "StateChange", api.StateChangeEvent(event=6, container=CONTAINER))
    late(dispatcher, "StateChange", api.StateChangeEvent(event=7, container=CONTAINER))
    assert asked == [("StartContainer", api.StartContainerRequest(container=CONTAINER))]


@pytest.mark.parametrize("answer", [{}, api.Empty(), "text", api.StopContainerResponse()])
def test_an_answer_of_another_type_is_the_handlers_failure(answer):
    plugin = Judging()
    plugin.late = answer
    _, outcome = run(Dispatcher(plugin), "CreateContainer", api.CreateContainerRequest())
    assert (outcome.error.status, outcome.result) == (2, "error")
    assert "CreateContainer" in str(outcome.failure)


def test_a_state_change_that_nothing_handles_may_be_late_in_the_middle():
    """The handler was interrupted between translating it and finding no handler for it."""
    outcome = late(Dispatcher(Two()), "RemoveContainer", api.RemoveContainerRequest())
    assert outcome[:3] == (b"", None, "deadline")


def test_a_rejection_can_say_anything():
    plugin = Judging()
    plugin.error = plugin.late = RpcError(Code.PERMISSION_DENIED, "CPUs of \udcff")
    dispatcher = Dispatcher(plugin)
    assert validate(dispatcher) == (True, "CPUs of ?")
    request = api.ValidateContainerAdjustmentRequest()
    assert late(dispatcher, "ValidateContainerAdjustment", request).payload == (
        b"\x08\x01\x12\x09CPUs of ?"
    )


def test_shutdown_is_passed_on():
    class Ending(Two):
        ended = False

        def shutdown(self):
            self.ended = True

    plugin = Ending()
    _, outcome = run(Dispatcher(plugin), "Shutdown", api.Empty())
    assert (plugin.ended, outcome.payload) == (True, b"")
