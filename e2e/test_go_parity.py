"""The embedded runtime and the Go NRI library make the same of the same plugins.

Three plugins on the bare protocol core are attached to both: two answer CreateContainer with
generated adjustments, the third only looks. Compared are refusal and its text, the collected
adjustment, and the container as the third plugin sees it. Go walks maps in random order, so
removal marks are compared as sets and of several conflicts any may be the one reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from e2e.peers.go_runtime import GoRuntime
from e2e.peers.need import need_go_peers, short_directory
from e2e.peers.wire import WirePlugin
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime import EmbeddedRuntime
from nri_claim2core.nri.runtime.resources import from_cri

CREATE_AND_UPDATE = 0x8 | 0x80
FIRST, SECOND, LAST = "10", "20", "90"

POD = api.PodSandbox(id="pod-1", name="web", uid="uid-1", namespace="default")


def base_container(container_id: str) -> api.Container:
    """Give a container that already has something of most kinds."""
    container = api.Container(
        id=container_id,
        pod_sandbox_id=POD.id,
        name="main",
        args=["serve"],
        env=["A=base", "C=base"],
        annotations={"a": "base", "c": "base"},
        mounts=[api.Mount(destination="/m1", source="/base", type="bind")],
    )
    linux = container.linux
    linux.devices.add(path="/dev/a", type="c", major=1, minor=1)
    linux.namespaces.add(type="network", path="/base")
    linux.resources.cpu.shares.value = 2
    linux.resources.cpu.cpus = "0-1"
    linux.resources.unified["memory.high"] = "1"
    return container


# Few names each, so that two plugins often want the same; "-" marks a removal.
names = st.sampled_from
values = st.sampled_from(["", "1", "2"])
numbers = st.sampled_from([0, 1, 5])


def lists(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(elements, max_size=3)


def by_key(elements: st.SearchStrategy[Any], key: str) -> st.SearchStrategy[list[Any]]:
    # One plugin naming a key twice is its own bug and no conflict of two.
    return st.lists(elements, max_size=3, unique_by=lambda each: getattr(each, key))


def namespaces() -> st.SearchStrategy[list[Any]]:
    # Of namespaces a removal is a claim as well.
    return st.lists(
        st.builds(
            api.LinuxNamespace, type=names(["network", "-network", "ipc", "-ipc"]), path=values
        ),
        max_size=2,
        unique_by=lambda each: each.type.removeprefix("-"),
    )


def optional(kind: type, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.builds(kind, value=value)


hooks = st.builds(
    api.Hooks,
    prestart=lists(st.builds(api.Hook, path=names(["/h1", "/h2"]))),
    poststop=lists(st.builds(api.Hook, path=names(["/h1"]))),
)
cpus = st.builds(
    api.LinuxCPU,
    cpus=names(["", "0", "1"]),
    mems=names(["", "0"]),
    shares=optional(api.OptionalUInt64, numbers),
    quota=optional(api.OptionalInt64, numbers),
    period=optional(api.OptionalUInt64, numbers),
    realtime_runtime=optional(api.OptionalInt64, numbers),
    realtime_period=optional(api.OptionalUInt64, numbers),
)
memory = st.builds(
    api.LinuxMemory,
    limit=optional(api.OptionalInt64, numbers),
    reservation=optional(api.OptionalInt64, numbers),
    swap=optional(api.OptionalInt64, numbers),
    swappiness=optional(api.OptionalUInt64, numbers),
    disable_oom_killer=optional(api.OptionalBool, st.booleans()),
)
resources = st.builds(
    api.LinuxResources,
    cpu=st.none() | cpus,
    memory=st.none() | memory,
    hugepage_limits=by_key(
        st.builds(api.HugepageLimit, page_size=names(["2MB", "1GB"]), limit=numbers), "page_size"
    ),
    unified=st.dictionaries(names(["memory.high", "cpu.weight"]), values, max_size=2),
    blockio_class=optional(api.OptionalString, values),
    rdt_class=optional(api.OptionalString, values),
    pids=st.none() | st.builds(api.LinuxPids, limit=numbers),
)
linux = st.builds(
    api.LinuxContainerAdjustment,
    devices=by_key(
        st.builds(
            api.LinuxDevice,
            path=names(["/dev/a", "/dev/b", "-/dev/a", "-/dev/b"]),
            type=names(["c"]),
            major=numbers,
        ),
        "path",
    ),
    resources=st.none() | resources,
    cgroups_path=names(["", "/one", "/two"]),
    oom_score_adj=optional(api.OptionalInt, numbers),
    io_priority=st.none() | st.builds(api.LinuxIOPriority, priority=numbers),
    namespaces=namespaces(),
    sysctl=st.dictionaries(names(["s1", "s2", "-s1"]), values, max_size=2),
    net_devices=st.dictionaries(
        names(["n1", "n2", "-n1"]), st.builds(api.LinuxNetDevice, name=values), max_size=2
    ),
    scheduler=st.none() | st.builds(api.LinuxScheduler, nice=numbers),
    rdt=st.none()
    | st.builds(
        api.LinuxRdt,
        clos_id=optional(api.OptionalString, values),
        enable_monitoring=optional(api.OptionalBool, st.booleans()),
        remove=st.booleans(),
    ),
    memory_policy=st.none() | st.builds(api.LinuxMemoryPolicy, nodes=names(["0", "1"])),
)
adjustments = st.builds(
    api.ContainerAdjustment,
    annotations=st.dictionaries(names(["a", "b", "-a", "-b"]), values, max_size=3),
    env=by_key(st.builds(api.KeyValue, key=names(["A", "B", "-A", "-B"]), value=values), "key"),
    mounts=by_key(
        st.builds(
            api.Mount, destination=names(["/m1", "/m2", "-/m1", "-/m2"]), source=names(["/s"])
        ),
        "destination",
    ),
    args=names([[], ["x"], ["", "y"]]),
    hooks=st.none() | hooks,
    linux=st.none() | linux,
    rlimits=by_key(
        st.builds(api.POSIXRlimit, type=names(["RLIMIT_CORE", "RLIMIT_NOFILE"]), hard=numbers),
        "type",
    ),
    CDI_devices=by_key(st.builds(api.CDIDevice, name=names(["v/c=x", "v/c=y"])), "name"),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a runtime made of one round, in comparable form."""

    error: str
    collected: object
    seen_by_last: object


class Side:
    """One runtime with three plugins."""

    def __init__(self, socket_path: Any, stack: ExitStack) -> None:
        self.wishes = {FIRST: b"", SECOND: b""}
        self.seen: list[bytes] = []
        self._socket_path, self._stack = socket_path, stack

    def attach(self) -> None:
        for index in (FIRST, SECOND):
            self._attach(index, lambda _payload, index=index: self.wishes[index])
        self._attach(LAST, self._look)

    def _attach(self, index: str, answer: Any) -> None:
        self._stack.enter_context(
            WirePlugin(
                self._socket_path,
                mask=CREATE_AND_UPDATE,
                index=index,
                answers={"CreateContainer": answer, "UpdateContainer": answer},
            )
        )

    def _look(self, payload: bytes) -> bytes:
        self.seen.append(payload)
        return b""

    def last_seen(self) -> bytes | None:
        seen, self.seen = self.seen, []
        return seen[-1] if seen else None


class GoSide(Side):
    """The Go library."""

    def __init__(self, directory: Any, stack: ExitStack) -> None:
        self.runtime = stack.enter_context(GoRuntime(directory / "go.sock"))
        super().__init__(self.runtime.socket_path, stack)
        assert self.runtime.start().ok
        self.attach()
        for index in (FIRST, SECOND, LAST):
            self.runtime.wait_registered(f"{index}-wire")

    def create(self, container: api.Container) -> Outcome:
        reply = self.runtime.relay("create", POD, container)
        assert reply.plugins == 3
        adjustment = reply.adjust if reply.ok else None
        if adjustment is not None:
            self._settle(adjustment)
        return outcome(reply.error, adjustment, self.last_seen())

    def update(self, container: api.Container, asked: api.LinuxResources) -> Outcome:
        # Outside of the library: containerd's own way from CRI to NRI messages and back.
        asked = from_cri(asked)
        reply = self.runtime.relay("update", POD, container, resources=asked)
        assert reply.plugins == 3
        updates = {} if not reply.ok else {each.container_id: each for each in reply.updates}
        own = updates.pop(container.id, None)
        applied = asked if own is None else from_cri(own.linux.resources)
        return update_outcome(reply.error, applied, updates, self.last_seen())

    def _settle(self, adjustment: api.ContainerAdjustment) -> None:
        # In maps the library collects both an entry of the first plugin and its removal by
        # the second; which of them counts is up to the order of a Go map. Ours removes.
        wish = api.CreateContainerResponse.FromString(self.wishes[SECOND]).adjust
        for collected, wanted in (
            (adjustment.annotations, wish.annotations),
            (adjustment.linux.sysctl, wish.linux.sysctl),
            (adjustment.linux.net_devices, wish.linux.net_devices),
        ):
            for mark in wanted:
                if mark.startswith("-") and mark[1:] not in wanted:
                    collected.pop(mark[1:], None)


class EmbeddedSide(Side):
    """Our runtime endpoint, as the containerd that links the same library."""

    def __init__(self, directory: Any, stack: ExitStack) -> None:
        self.runtime = stack.enter_context(EmbeddedRuntime("containerd-2.4"))
        super().__init__(directory / "embedded.sock", stack)
        self.runtime.listen(directory / "embedded.sock")
        self.attach()
        self.runtime.wait_for_plugins(3)
        self.runtime.run_pod(POD).check()

    def create(self, container: api.Container) -> Outcome:
        result = self.runtime.create_container(POD, container)
        self.runtime.clear_events()
        error = ""
        if result.error is not None:
            # containerd's CRI side puts its own words before the library's.
            error = str(result.error.__cause__ or result.error)
        else:
            self.runtime.remove_container(container.id)
        return outcome(error, None if error else result.adjustment, self.last_seen())

    def update(self, container: api.Container, asked: api.LinuxResources) -> Outcome:
        wishes, self.wishes = self.wishes, {FIRST: b"", SECOND: b""}
        self.runtime.create_container(POD, container).check()
        self.runtime.start_container(container.id).check()
        self.wishes, self.seen = wishes, []
        result = self.runtime.update_container(container.id, asked)
        error = "" if result.error is None else str(result.error.__cause__ or result.error)
        seen = self.last_seen()
        self.runtime.remove_container(container.id)
        self.runtime.clear_events()
        updates = {} if error else {each.container_id: each for each in result.updates}
        return update_outcome(error, result.resources, updates, seen)


def update_outcome(
    error: str,
    applied: api.LinuxResources,
    others: dict[str, api.ContainerUpdate],
    seen: bytes | None,
) -> Outcome:
    collected = {"": comparable(applied)} if not error else {}
    collected |= {key: comparable(update) for key, update in sorted(others.items())}
    request = None if seen is None else api.UpdateContainerRequest.FromString(seen)
    return Outcome(
        error=error,
        collected=collected,
        seen_by_last=None if request is None else comparable(request.linux_resources),
    )


def outcome(
    error: str, adjustment: api.ContainerAdjustment | None, payload: bytes | None
) -> Outcome:
    seen = None
    if payload is not None:
        seen = api.CreateContainerRequest.FromString(payload).container
        # Kept by the runtime around the library, not by the library.
        for field in ("id", "state", "pid", "created_at"):
            seen.ClearField(field)
    return Outcome(error=error, collected=comparable(adjustment), seen_by_last=comparable(seen))


def comparable(message: Any) -> object:
    """Give a message as nested tuples, removal marks after the rest and sorted."""
    if message is None:
        return None
    parts = []
    for field, value in message.ListFields():
        is_map = (
            field.message_type is not None and field.message_type.GetOptions().map_entry is True
        )
        if is_map:
            parts.append((field.name, tuple(sorted((key, str(value[key])) for key in value))))
        elif field.is_repeated:
            items = [each if field.message_type is None else comparable(each) for each in value]
            marked = [each for each in items if "'-" in repr(each)]
            kept = [each for each in items if "'-" not in repr(each)]
            if field.name == "namespaces":
                kept.sort(key=repr)
            parts.append((field.name, (*kept, *sorted(marked, key=repr))))
        elif field.message_type is None:
            parts.append((field.name, value))
        else:
            inner = comparable(value)
            # An empty part the library filled in says nothing; an empty wrapper says "zero".
            if inner or field.message_type.name.startswith("Optional"):
                parts.append((field.name, inner))
    return tuple(parts)


CONFLICT = re.compile(r'plugins "(?P<second>[^"]+)" and "(?P<first>[^"]+)" both tried to set ')


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[GoSide, EmbeddedSide]]:
    need_go_peers()
    with ExitStack() as stack:
        directory = stack.enter_context(short_directory())
        yield GoSide(directory, stack), EmbeddedSide(directory, stack)


def pin(cpus: str) -> api.ContainerAdjustment:
    adjustment = api.ContainerAdjustment()
    adjustment.linux.resources.cpu.cpus = cpus
    return adjustment


def numbered() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


NUMBERS = numbered()


@settings(
    max_examples=300,
    derandomize=True,
    deadline=None,
    # The plugins of the fixture answer each example from what it sets first.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(first=pin("0"), second=pin("0"))
@example(first=pin("0"), second=api.ContainerAdjustment())
@example(
    first=api.ContainerAdjustment(annotations={"a": "1"}),
    second=api.ContainerAdjustment(annotations={"-a": "", "a": "2"}),
)
@example(
    first=api.ContainerAdjustment(env=[api.KeyValue(key="A", value="1")]),
    second=api.ContainerAdjustment(env=[api.KeyValue(key="-A"), api.KeyValue(key="A", value="2")]),
)
@example(first=api.ContainerAdjustment(args=["x"]), second=api.ContainerAdjustment(args=["", "y"]))
@given(first=adjustments, second=adjustments)
def test_both_make_the_same_of_two_adjustments(sides, first, second):
    container_id = f"ctr-{next(NUMBERS)}"
    outcomes = []
    for side in sides:
        for index, adjustment in ((FIRST, first), (SECOND, second)):
            side.wishes[index] = api.CreateContainerResponse(adjust=adjustment).SerializeToString()
        outcomes.append(side.create(base_container(container_id)))
    assert_same(*outcomes)


def assert_same(go: Outcome, embedded: Outcome) -> None:
    if go.error and go.error != embedded.error:
        # Several conflicts: each side reports one of them.
        ours = CONFLICT.match(embedded.error)
        theirs = CONFLICT.match(go.error)
        assert theirs is not None, f"{go.error!r} but {embedded.error!r}"
        assert ours is not None, f"{go.error!r} but {embedded.error!r}"
        assert ours.groups() == theirs.groups()
        return
    assert embedded == go


# The container that is updated has its name put in; the other one is just named.
THIS, OTHER = "this", "ctr-other"
updates = by_key(
    st.builds(
        api.ContainerUpdate,
        container_id=names([THIS, OTHER]),
        linux=st.builds(api.LinuxContainerUpdate, resources=resources),
        ignore_failure=st.booleans(),
    ),
    "container_id",
)


@settings(
    max_examples=200,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(asked=resources, first=updates, second=updates)
def test_both_make_the_same_of_two_updates(sides, asked, first, second):
    container = base_container(f"ctr-{next(NUMBERS)}")
    outcomes = []
    for side in sides:
        for index, wanted in ((FIRST, first), (SECOND, second)):
            response = api.UpdateContainerResponse(update=wanted)
            for update in response.update:
                if update.container_id == THIS:
                    update.container_id = container.id
            side.wishes[index] = response.SerializeToString()
        outcomes.append(side.update(container, asked))
    assert_same(*outcomes)
