"""Pods and containers through their lives: the CRI-like calls and the events each one causes.

Every call holds the runtime's lock from its first to its last event, so that events never
overlap and no plugin is synchronized in the middle of a call. Order and effect of events, and
what an error does, are those of the profile's runtime:

    run_pod           RunPodSandbox (an error undoes it: StopPodSandbox, RemovePodSandbox)
    create_container  CreateContainer, updates of others, [CRI-O: process], PostCreateContainer
                      (an error undoes it: StopContainer, RemoveContainer)
    start_container   [containerd: process], StartContainer, workload, PostStartContainer
    update_container  UpdateContainer, updates of others, apply, PostUpdateContainer
    stop_container    process ends, StopContainer, updates of others
    remove_container  StopContainer if it was not sent, RemoveContainer
    stop_pod          its containers, StopPodSandbox
    remove_pod        its containers, RemovePodSandbox

Stored resources are the container's truth: zero and empty in an update leave them as they are.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from nri_claim2core.model.errors import Claim2CoreError, UsageError
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime.adjust import CreateRound
from nri_claim2core.nri.runtime.backend import (
    FIRST_SYNTHETIC_PID,
    BackendError,
    ContainerBackend,
    NoBackend,
)
from nri_claim2core.nri.runtime.journal import (
    CallBuilder,
    CallFailure,
    CallResult,
    CreateResult,
    Journal,
    UpdateResult,
)
from nri_claim2core.nri.runtime.link import PluginLink
from nri_claim2core.nri.runtime.node import (
    ContainerRecord,
    Node,
    Phase,
    PodRecord,
    Told,
    show_container,
    show_pod,
)
from nri_claim2core.nri.runtime.plugin_calls import PluginCalls
from nri_claim2core.nri.runtime.profiles_table import Profile
from nri_claim2core.nri.runtime.relay import Relay, Watching
from nri_claim2core.nri.runtime.resources import copy_of, from_cri, merge_update
from nri_claim2core.nri.runtime.spec import apply_adjustment
from nri_claim2core.nri.runtime.updater import Updater

START_FAILED_EXIT_CODE: Final = 128
"""Exit code of a container whose start failed, as containerd reports it."""
_NS_PER_MS: Final = 1_000_000


class Lifecycle:
    """The state of the node and the calls that change it. Thread-safe; calls block."""

    def __init__(
        self,
        profile: Profile,
        watcher: Watching,
        *,
        backend: ContainerBackend | None = None,
        request_timeout_ms: int = 2000,
        wall_ns: Callable[[], int] = time.time_ns,
        is_recording: bool = True,
    ) -> None:
        self.profile = profile
        self.node = Node()
        self._journal = Journal(is_recording=is_recording)
        self._request_timeout_ns = request_timeout_ms * _NS_PER_MS
        self._relay = Relay(
            profile,
            self._journal,
            watcher,
            request_timeout_ns=self._request_timeout_ns,
            on_drop=self._on_drop,
        )
        self._backend: ContainerBackend = NoBackend() if backend is None else backend
        self._updater = Updater(self.node, profile, self._backend)
        self._plugin_calls = PluginCalls(
            self.node, self._updater, self._journal, answer_timeout_ns=self._request_timeout_ns
        )
        self._wall_ns = wall_ns
        self._lock = threading.RLock()
        self._pod_pids = itertools.count(FIRST_SYNTHETIC_PID * 2)

    # -- pods

    def run_pod(self, pod: api.PodSandbox) -> CallResult:
        """Run a pod sandbox; on containerd it gets a pid that no process has if it has none."""
        with self._call() as call:
            if not pod.id or pod.id in self.node.pods:
                raise UsageError(f"pod id {pod.id!r} is empty or exists")
            record = PodRecord(pod=api.PodSandbox())
            record.pod.CopyFrom(pod)
            if not record.pod.pid and not self.profile.is_crio:
                record.pod.pid = next(self._pod_pids)
            call.error = self._event("RunPodSandbox", record)
            self.node.told[pod.id] = Told.RUNNING
            if call.error is not None:
                call.log(self._event("StopPodSandbox", record))
                call.log(self._event("RemovePodSandbox", record))
                del self.node.told[pod.id]
            else:
                self.node.pods[pod.id] = record
        return call.result()

    def update_pod(
        self,
        pod_id: str,
        *,
        overhead: api.LinuxResources | None = None,
        resources: api.LinuxResources | None = None,
    ) -> CallResult:
        """Resize a pod; sends events only on runtimes that have them."""
        with self._call() as call:
            record = self._pod(pod_id)
            shown = show_pod(record.pod, self.profile)
            if self.profile.sends_pod_update:
                request = api.UpdatePodSandboxRequest(
                    pod=shown,
                    overhead_linux_resources=None if overhead is None else from_cri(overhead),
                    linux_resources=None if resources is None else from_cri(resources),
                )
                call.error = self._relay.notify("UpdatePodSandbox", shown, request=request)
                self._serve_inboxes()
            if call.error is None:
                for stored, update in (
                    (record.pod.linux.pod_overhead, overhead),
                    (record.pod.linux.pod_resources, resources),
                ):
                    if update is not None:
                        merge_update(stored, update, full=False)
                if self.profile.sends_post_pod_update:
                    call.log(self._event("PostUpdatePodSandbox", record))
        return call.result()

    def stop_pod(self, pod_id: str) -> CallResult:
        """Stop a pod's containers and the pod."""
        with self._call() as call:
            self._stop_pod(call, self._pod(pod_id))
        return call.result()

    def remove_pod(self, pod_id: str) -> CallResult:
        """Remove a pod's containers and the pod, stopping what runs."""
        with self._call() as call:
            record = self._pod(pod_id)
            if record.is_ready:
                self._stop_pod(call, record)
            for container in self.node.containers_of(pod_id):
                self._remove(call, container)
            if not self.profile.forgets_pods_at_restart or self.node.needs_removal(pod_id):
                call.log(self._event("RemovePodSandbox", record, has_pid=self.profile.is_crio))
            self.node.told.pop(pod_id, None)
            del self.node.pods[pod_id]
        return call.result()

    # -- containers

    def create_container(self, pod: api.PodSandbox | str, container: api.Container) -> CreateResult:
        """Create a container in a pod; `container` is everything the runtime knows of it.

        Fields that this runtime does not show to plugins are kept and hidden.
        """
        with self._call() as call:
            pod_record = self._pod(pod if isinstance(pod, str) else pod.id)
            if not container.id or container.id in self.node.containers:
                raise UsageError(f"container id {container.id!r} is empty or exists")
            record = ContainerRecord(spec=api.Container())
            record.spec.CopyFrom(container)
            record.spec.pod_sandbox_id = pod_record.pod.id
            shown = show_container(record, self.profile)
            round_: CreateRound | None = None
            updates: list[api.ContainerUpdate] = []
            cdi_devices: tuple[str, ...] = ()
            try:
                round_, update_round = self._relay.create(
                    show_pod(pod_record.pod, self.profile), shown
                )
                updates = update_round.others()
                self._apply_others(call, updates)
                cdi_devices = apply_adjustment(record.spec, round_.adjustment, self.profile)
                self._make_process_early(record)
            except Claim2CoreError as error:
                self._undo_creation(call, pod_record, record, container)
                call.fail(error, self._words("failed to get NRI adjustment for container: "))
            else:
                self.node.told[record.spec.id] = Told.CREATED
                self.node.containers[record.spec.id] = record
                record.phase = Phase.CREATED
                record.created_at = self._wall_ns()
                call.log(self._event("PostCreateContainer", pod_record, record))
            self._serve_inboxes()
        return CreateResult(
            error=call.error,
            logged=call.logged,
            exchanges=call.exchanges,
            container=copy_of(record.spec),
            adjustment=api.ContainerAdjustment() if round_ is None else round_.adjustment,
            updates=tuple(updates),
            owners=api.OwningPlugins() if round_ is None else round_.owners.message(),
            cdi_devices=cdi_devices,
        )

    def start_container(self, container_id: str) -> CallResult:
        """Start a created container; raises UsageError in any other state."""
        with self._call() as call:
            record = self._container(container_id)
            if record.phase is not Phase.CREATED:
                raise UsageError(f"container {container_id!r} is {record.phase.value}")
            pod = self._pod_of(record)
            if self.profile.creates_process_early:
                self._start(call, pod, record)
            else:
                try:
                    record.pid = self._backend.create(record.spec)
                except BackendError as error:
                    self._note_exit(record, START_FAILED_EXIT_CODE)
                    call.fail(error, "failed to create containerd task: ")
                else:
                    self._start(call, pod, record)
        return call.result()

    def update_container(self, container_id: str, resources: api.LinuxResources) -> UpdateResult:
        """Update a container's resources as kubelet asks; zero and empty mean unchanged."""
        with self._call() as call:
            record = self._container(container_id)
            pod = self._pod_of(record)
            asked = from_cri(resources)
            applied = asked
            updates: list[api.ContainerUpdate] = []
            try:
                round_ = self._relay.update(
                    show_pod(pod.pod, self.profile),
                    show_container(record, self.profile),
                    copy_of(asked),
                )
                updates = round_.others()
                self._apply_others(call, updates)
                own = round_.own()
                applied = asked if own is None else from_cri(own)
            except Claim2CoreError as error:
                call.fail(error, self._words("NRI container update failed: "))
            else:
                try:
                    self._updater.apply(record, applied, full=False)
                except BackendError as error:
                    call.fail(error, "failed to update resources: ")
                else:
                    call.log(self._event("PostUpdateContainer", pod, record))
            self._serve_inboxes()
        return UpdateResult(
            error=call.error,
            logged=call.logged,
            exchanges=call.exchanges,
            resources=copy_of(applied),
            updates=tuple(updates),
        )

    def update_cpuset(self, container_id: str, cpus: str) -> UpdateResult:
        """Write a cpuset as the kubelet's CPU manager reconciles it: only `cpus`, no mems."""
        return self.update_container(container_id, api.LinuxResources(cpu=api.LinuxCPU(cpus=cpus)))

    def stop_container(self, container_id: str) -> CallResult:
        """Stop a container; the event follows the end of its process."""
        with self._call() as call:
            self._stop(call, self._container(container_id))
        return call.result()

    def exit_container(self, container_id: str, exit_code: int = 0) -> CallResult:
        """Note that a container's process has ended by itself."""
        with self._call() as call:
            record = self._container(container_id)
            if record.phase is not Phase.RUNNING:
                raise UsageError(f"container {container_id!r} is {record.phase.value}")
            self._note_exit(record, exit_code)
            self._stop_event(call, self._pod_of(record), record)
        return call.result()

    def remove_container(self, container_id: str) -> CallResult:
        """Remove a container, stopping it if it runs."""
        with self._call() as call:
            self._remove(call, self._container(container_id))
        return call.result()

    def container(self, container_id: str) -> api.Container:
        """Give a container as stored, with all fields, its state and pid."""
        with self._lock:
            record = self._container(container_id)
            shown = show_container(record, self.profile)
            full = copy_of(record.spec)
            full.state = shown.state
            full.pid = record.pid if record.has_process else 0
            return full

    # -- steps; the lock is held

    def _start(self, call: CallBuilder, pod: PodRecord, record: ContainerRecord) -> None:
        error = self._event("StartContainer", pod, record)
        self.node.told[record.spec.id] = Told.RUNNING
        if error is not None and self.profile.start_error_aborts:
            self._undo_start(call, pod, record)
            call.fail(error, "NRI container start failed: ")
            return
        call.log(error)
        try:
            self._backend.start(record.spec)
        except BackendError as failure:
            self._undo_start(call, pod, record)
            call.fail(failure, "failed to start container: ")
            return
        record.phase = Phase.RUNNING
        record.started_at = self._wall_ns()
        call.log(self._event("PostStartContainer", pod, record))

    def _undo_start(self, call: CallBuilder, pod: PodRecord, record: ContainerRecord) -> None:
        # The event comes first: at that moment the process still exists.
        self._stop_event(call, pod, record)
        self._end_process(record)
        self._note_exit(record, START_FAILED_EXIT_CODE)

    def _stop_pod(self, call: CallBuilder, record: PodRecord) -> None:
        for container in self.node.containers_of(record.pod.id):
            if container.has_process:
                self._stop(call, container)
        if not self.profile.forgets_pods_at_restart or self.node.needs_stop(record.pod.id):
            call.log(self._event("StopPodSandbox", record, has_pid=self.profile.is_crio))
        if record.pod.id in self.node.told:
            self.node.told[record.pod.id] = Told.STOPPED
        record.is_ready = False

    def _stop(self, call: CallBuilder, record: ContainerRecord) -> None:
        if record.has_process:
            self._note_exit(record, self._end_process(record))
        self._stop_event(call, self._pod_of(record), record)

    def _remove(self, call: CallBuilder, record: ContainerRecord) -> None:
        key = record.spec.id
        if record.has_process:
            self._note_exit(record, self._end_process(record))
        if self.node.needs_removal(key):
            pod = self._pod_of(record)
            self._stop_event(call, pod, record)
            call.log(self._removal_event(pod, record))
            self.node.told.pop(key, None)
        del self.node.containers[key]

    def _stop_event(self, call: CallBuilder, pod: PodRecord, record: ContainerRecord) -> None:
        key = record.spec.id
        if not self.node.needs_stop(key):
            return
        try:
            round_ = self._relay.stop(
                show_pod(pod.pod, self.profile), show_container(record, self.profile)
            )
            self.node.told[key] = Told.STOPPED
            call.log(self._updater.apply_all(round_.others()))
        except Claim2CoreError as error:
            self.node.told[key] = Told.STOPPED
            call.log(error)
        self._serve_inboxes()

    def _removal_event(self, pod: PodRecord, record: ContainerRecord) -> CallFailure | None:
        state = None if self.profile.is_crio else api.CONTAINER_UNKNOWN
        shown = show_container(record, self.profile, state=state, has_pid=False)
        failure = self._relay.notify("RemoveContainer", show_pod(pod.pod, self.profile), shown)
        self._serve_inboxes()
        return failure

    def _make_process_early(self, record: ContainerRecord) -> None:
        if self.profile.creates_process_early:
            record.pid = self._backend.create(record.spec)

    def _undo_creation(
        self, call: CallBuilder, pod: PodRecord, record: ContainerRecord, original: api.Container
    ) -> None:
        record.spec.CopyFrom(original)
        record.spec.pod_sandbox_id = pod.pod.id
        self.node.told[record.spec.id] = Told.CREATED
        self._stop_event(call, pod, record)
        call.log(self._removal_event(pod, record))
        self.node.told.pop(record.spec.id, None)

    def _apply_others(self, call: CallBuilder, updates: list[api.ContainerUpdate]) -> None:
        failure = self._updater.apply_all(updates)
        if failure is not None and self.profile.update_error_fails:
            raise failure
        call.log(failure)

    def _end_process(self, record: ContainerRecord) -> int:
        return self._backend.stop(record.spec) if record.pid else 0

    def _note_exit(self, record: ContainerRecord, exit_code: int) -> None:
        record.phase = Phase.EXITED
        record.finished_at = self._wall_ns()
        record.exit_code = exit_code

    def _event(
        self,
        rpc: str,
        pod: PodRecord,
        record: ContainerRecord | None = None,
        *,
        has_pid: bool = True,
    ) -> CallFailure | None:
        failure = self._relay.notify(
            rpc,
            show_pod(pod.pod, self.profile, has_pid=has_pid),
            None if record is None else show_container(record, self.profile),
        )
        self._serve_inboxes()
        return failure

    def _words(self, containerd: str) -> str:
        return "" if self.profile.is_crio else containerd

    def _pod(self, pod_id: str) -> PodRecord:
        record = self.node.pods.get(pod_id)
        if record is None:
            raise UsageError(f"no pod {pod_id!r}")
        return record

    def _pod_of(self, record: ContainerRecord) -> PodRecord:
        return self._pod(record.spec.pod_sandbox_id)

    def _container(self, container_id: str) -> ContainerRecord:
        record = self.node.containers.get(container_id)
        if record is None:
            raise UsageError(f"no container {container_id!r}")
        return record

    def _serve_inboxes(self) -> None:
        for link in list(self._relay.plugins):
            self._plugin_calls.serve(link)

    def _on_drop(self, link: PluginLink) -> None:
        # For an endpoint that launched the plugin.
        del link

    @contextmanager
    def _call(self) -> Iterator[CallBuilder]:
        with self._lock:
            self._relay.exchanges.clear()
            call = CallBuilder()
            yield call
            call.exchanges = tuple(self._relay.exchanges)
