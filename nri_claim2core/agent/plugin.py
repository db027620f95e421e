"""The plugin role's handlers: what is done at each moment of a container's life.

Every handler follows one order: make records of the messages, decide (`decide`), check that
the call is still wanted, then note it in the book and answer. Nothing is noted for a call
whose time ran out: the runtime was told "no" meanwhile.

Held here: INV-ENVELOPE (own cpusets re-asserted in every update, read back after start and
update, a start outside the envelope refused) and INV-RESTART (Synchronize is the truth).
There is no network, no Kubernetes and no unbounded wait in this module.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from google.protobuf.message import Message

from nri_claim2core.agent.book import Book, Entry
from nri_claim2core.agent.config import SchedulingOptions
from nri_claim2core.agent.decide import Decider, Decision, is_unproven, orphan_pod
from nri_claim2core.agent.decision_log import log_decision
from nri_claim2core.agent.guard import unclaimed_go_on
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.agent.readback import ReadBack
from nri_claim2core.agent.records import (
    adjustment,
    container_record,
    cpuset_update,
    pod_record,
)
from nri_claim2core.agent.runtimes import reports_cdi_devices
from nri_claim2core.agent.seeding import Seeding
from nri_claim2core.agent.verifier import Verifier
from nri_claim2core.model.envelope import Ownership
from nri_claim2core.model.ids import ContainerId, SandboxId
from nri_claim2core.model.records import ContainerRecord, PodRecord
from nri_claim2core.nri import Call, Code, Plugin, RpcError, api
from nri_claim2core.nri.events_table import EVENT_OF_RPC
from nri_claim2core.nri.plugin import implemented_events, mask_of

log = logging.getLogger(__name__)

KEPT_ENV_CHARACTERS: Final = 1024
"""Of claim variables that are remembered as a matter of course: those of ten claims."""

NOTHING_ADDED: Final[Mapping[str, int]] = MappingProxyType({})

_VALIDATION: Final = EVENT_OF_RPC["ValidateContainerAdjustment"].mask


class Claim2CorePlugin(Plugin):
    """Keeps every claiming container inside its envelope.

    `decider` may be exchanged at any time (configuration reload); running containers keep
    what was decided for them.
    """

    def __init__(
        self,
        *,
        decider: Decider,
        readback: ReadBack,
        book: Book,
        metrics: Metrics,
        seeding: Seeding | None = None,
        validates: Callable[[], bool] = lambda: False,
        on_configure: Callable[[api.ConfigureRequest], None] = lambda _request: None,
    ) -> None:
        super().__init__()
        self.decider = decider
        self._book = book
        self._metrics = metrics
        self.verifier = Verifier(readback, book, metrics)
        metrics.before_reading(self._set_gauges)
        self.seeding = seeding or Seeding(SchedulingOptions(), metrics)
        self._validates = validates
        self._on_configure = on_configure
        self._cdi_reported = False
        self._pending_pods: dict[SandboxId, PodRecord] = {}
        self._pending: list[ContainerRecord] = []

    # -- registration ---------------------------------------------------------------------

    def configure(self, request: api.ConfigureRequest) -> int | None:
        """Take the runtime's text and learn what this runtime reports.

        Validation is subscribed only when asked for: a hang there fails every creation.
        """
        self._on_configure(request)
        self._cdi_reported = reports_cdi_devices(
            request.runtime_name, request.runtime_version, request.NRI_version
        )
        self._pending_pods, self._pending = {}, []
        self._book.begin()
        if self._validates():
            return None
        return mask_of(implemented_events(self)) & ~_VALIDATION

    def synchronize_part(
        self, pods: Sequence[api.PodSandbox], containers: Sequence[api.Container]
    ) -> None:
        """Make records of one part; the messages are not kept."""
        for pod in pods:
            self._pending_pods[SandboxId(pod.id)] = pod_record(pod)
        self._pending.extend(
            container_record(container, cdi_reported=self._cdi_reported) for container in containers
        )

    def synchronize(
        self, pods: Sequence[api.PodSandbox], containers: Sequence[api.Container]
    ) -> Sequence[api.ContainerUpdate] | None:
        """Rebuild everything from what exists; put back cpusets that are ours and were lost.

        Nothing is refused here. Reading back what is in force is left to the time after the
        answer, which has to come within the runtime's time-out.
        """
        del pods, containers  # taken part by part
        pods_by_id, records = self._pending_pods, self._pending
        self._pending_pods, self._pending = {}, []
        entries: list[Entry] = []
        for container, decision in self.decider.at_synchronize(pods_by_id, records):
            pod = pods_by_id.get(container.sandbox_id) or orphan_pod(container)
            entries.append(make_entry(pod, container, decision))
        self._book.rebuild(pods_by_id.values(), entries)
        verdicts = Counter(link.verdict.value for entry in entries for link in entry.links.links)
        for verdict, number in verdicts.items():
            self._metrics.count("claim2core_claim_verdicts_total", verdict, by=number)
        updates = []
        for entry in entries:
            envelope = entry.envelope
            if envelope.ownership is Ownership.OWN and entry.container.cpus != str(envelope.cpus):
                update = cpuset_update(entry.container.id, str(envelope.cpus))
                update.ignore_failure = True
                updates.append(update)
        self.verifier.expect(ContainerId(update.container_id) for update in updates)
        tally = self._book.tally()
        log.info(
            "synchronized",
            extra={
                "pods": tally.nr_pods,
                "containers": tally.nr_containers,
                "claiming": len(self._book.claiming()),
                "cpusets_put_back": len(updates),
            },
        )
        return updates

    # -- pod sandboxes --------------------------------------------------------------------

    @unclaimed_go_on
    def run_pod_sandbox(
        self, request: api.RunPodSandboxRequest, call: Call
    ) -> api.RunPodSandboxResponse | None:
        """Remember the sandbox."""
        del call
        self._book.put_pod(pod_record(request.pod))
        return None

    def stop_pod_sandbox(
        self, request: api.StopPodSandboxRequest, call: Call
    ) -> api.StopPodSandboxResponse | None:
        """Forget the sandbox and what was left in it: its containers are stopped."""
        del call
        self._forget_pod(request.pod)
        return None

    def remove_pod_sandbox(
        self, request: api.RemovePodSandboxRequest, call: Call
    ) -> api.RemovePodSandboxResponse | None:
        """Forget the sandbox, also when its stop was never seen."""
        del call
        self._forget_pod(request.pod)
        return None

    # -- containers -----------------------------------------------------------------------

    @unclaimed_go_on
    def create_container(
        self, request: api.CreateContainerRequest, call: Call
    ) -> api.CreateContainerResponse | None:
        """Link, decide and confine; an unproven claim changes nothing unless configured."""
        started = time.perf_counter_ns()
        pod = pod_record(request.pod)
        container = container_record(request.container, cdi_reported=self._cdi_reported)
        decision = self.decider.at_create(pod, container, self._book.claiming)
        call.check()
        self._report(pod, container, decision, call)
        if decision.refusal:
            self._metrics.count("claim2core_creations_refused_total", "decision")
            raise RpcError(Code.FAILED_PRECONDITION, decision.refusal)
        if decision.links.granted:
            self.seeding.preflight()
        answer = adjustment(decision.envelope, container)
        spent_ns = time.perf_counter_ns() - started
        self._book.put(make_entry(pod, container, decision, {"CreateContainer": spent_ns}))
        return answer

    @unclaimed_go_on
    def post_create_container(
        self, request: api.PostCreateContainerRequest, call: Call
    ) -> api.PostCreateContainerResponse | None:
        """Take over what only now is known (pid and cgroup on CRI-O)."""
        del call
        self._refresh(request.container)
        return None

    @unclaimed_go_on
    def start_container(
        self, request: api.StartContainerRequest, call: Call
    ) -> api.StartContainerResponse | None:
        """Before the workload's first instruction: check its cpuset, put its policy in force.

        Raises: RpcError when a container that is ours would start outside its envelope, or its
        policy has to be in force and is not; containerd then aborts the start, CRI-O only logs
        it.
        """
        started = time.perf_counter_ns()
        entry = self._refresh(request.container)
        if entry is None or entry.envelope.ownership is Ownership.NONE:
            return None
        violations = self.verifier.check(entry, "StartContainer", call)
        call.check()
        outside = [v for v in violations if v.severity == "error"]
        if not (outside and entry.envelope.ownership is Ownership.OWN):
            self.seeding.seed(entry, call)
        self._note(entry.container.id, "StartContainer", started)
        if outside and entry.envelope.ownership is Ownership.OWN:
            why = f"start refused: {outside[0].code}: {outside[0].message}"
            raise RpcError(Code.FAILED_PRECONDITION, why)
        return None

    def post_start_container(
        self, request: api.PostStartContainerRequest, call: Call
    ) -> api.PostStartContainerResponse | None:
        """Read back the cpuset the running container has."""
        self._read_back_after(request.container, "PostStartContainer", call)
        return None

    @unclaimed_go_on
    def update_container(
        self, request: api.UpdateContainerRequest, call: Call
    ) -> api.UpdateContainerResponse | None:
        """Re-assert the cpuset of a container that is ours, whatever the request asks for."""
        started = time.perf_counter_ns()
        container_id = ContainerId(request.container.id)
        entry = self._book.get(container_id) or self._adopt(request.pod, request.container, call)
        if not entry.links.links:
            return None
        asked = request.linux_resources.cpu.cpus
        decision = self.decider.at_update(entry)
        call.check()
        self._book.change(
            container_id, lambda now: replace(now, links=decision.links, envelope=decision.envelope)
        )
        self._note(container_id, "UpdateContainer", started)
        if decision.envelope.ownership is not Ownership.OWN:
            return None
        cpus = str(decision.envelope.cpus)
        if asked and asked != cpus:
            self._metrics.count("claim2core_cpusets_reasserted_total")
            log.info(
                "cpuset re-asserted",
                extra={"container": container_id, "asked": asked, "kept": cpus, "op": call.op},
            )
        return api.UpdateContainerResponse(update=[cpuset_update(container_id, cpus)])

    def post_update_container(
        self, request: api.PostUpdateContainerRequest, call: Call
    ) -> api.PostUpdateContainerResponse | None:
        """Read back the cpuset after the runtime applied an update."""
        self._read_back_after(request.container, "PostUpdateContainer", call)
        return None

    def stop_container(
        self, request: api.StopContainerRequest, call: Call
    ) -> api.StopContainerResponse | None:
        """Forget the container: its processes are gone. Late or repeated stops are nothing."""
        del call
        self._forget(request.container.id)
        return None

    def remove_container(
        self, request: api.RemoveContainerRequest, call: Call
    ) -> api.RemoveContainerResponse | None:
        """Forget the container, also when its stop was never seen (a failed creation)."""
        del call
        self._forget(request.container.id)
        return None

    def validate_container_adjustment(
        self, request: api.ValidateContainerAdjustmentRequest, call: Call
    ) -> api.ValidateContainerAdjustmentResponse | None:
        """Reject a creation whose final cpuset would leave the envelope (when subscribed)."""
        del call
        entry = self._book.get(ContainerId(request.container.id))
        if entry is None or entry.envelope.ownership is Ownership.NONE:
            return None
        final = (
            request.adjust.linux.resources.cpu.cpus or request.container.linux.resources.cpu.cpus
        )
        reason = self.decider.validate(entry, final, self._book.claiming)
        if not reason:
            return None
        log.warning("adjustment rejected", extra={"container": entry.container.id, "why": reason})
        return api.ValidateContainerAdjustmentResponse(reject=True, reason=reason)

    # -- when a handler's time is up ------------------------------------------------------

    def deadline_reached(self, method: str, request: Message) -> Message | None:
        """Give the answer for a handler that did not finish.

        An update of a container that is ours is answered with the cpuset it has: unanswered,
        it would take effect as asked. Everything else goes on unchanged.

        Raises: RpcError for a creation that has any sign of a claim: it must not start
        unconfined.
        """
        del method  # the runner counts it
        if isinstance(request, api.UpdateContainerRequest):
            return self._kept(ContainerId(request.container.id))
        if isinstance(request, api.CreateContainerRequest) and self.may_be_claimed(request):
            self._metrics.count("claim2core_creations_refused_total", "deadline")
            raise RpcError(
                Code.UNAVAILABLE,
                f"container {request.container.name!r} has signs of a claim and its CPUs could "
                "not be determined in time; kubelet tries the creation again",
            )
        return None

    def may_be_claimed(self, request: Message) -> bool:
        """Tell whether anything points at a claim of the container that a request is about."""
        container = getattr(request, "container", None)
        if not isinstance(container, api.Container):
            return False
        record = container_record(container, cdi_reported=self._cdi_reported)
        entry = self._book.get(record.id)
        known = entry is not None and entry.envelope.ownership is not Ownership.NONE
        return known or self.decider.may_hold_claim(record)

    # -- helpers --------------------------------------------------------------------------

    def _kept(self, container_id: ContainerId) -> api.UpdateContainerResponse | None:
        entry = self._book.get(container_id)
        if entry is None or entry.envelope.ownership is not Ownership.OWN:
            return None
        return api.UpdateContainerResponse(
            update=[cpuset_update(container_id, str(entry.envelope.cpus))]
        )

    def _adopt(self, pod: api.PodSandbox, container: api.Container, call: Call) -> Entry:
        # An event for a container never seen: it was created while we registered.
        record = pod_record(pod)
        made = container_record(container, cdi_reported=self._cdi_reported)
        [(_, decision)] = self.decider.at_synchronize({record.sandbox_id: record}, [made])
        self._report(record, made, decision, call)
        entry = make_entry(record, made, decision)
        self._book.put(entry)
        return entry

    def _refresh(self, container: api.Container) -> Entry | None:
        entry = self._book.get(ContainerId(container.id))
        if entry is None or not entry.links.links:
            return entry
        known = entry.container
        pid = container.pid or known.pid
        path = container.linux.cgroups_path or known.cgroups_path
        if pid == known.pid and path == known.cgroups_path:
            return entry
        moved = replace(known, pid=pid, cgroups_path=path)
        return self._book.change(known.id, lambda now: replace(now, container=moved))

    def _read_back_after(self, container: api.Container, event: str, call: Call) -> None:
        started = time.perf_counter_ns()
        entry = self._refresh(container)
        if entry is not None and entry.envelope.ownership is not Ownership.NONE:
            self.verifier.check(entry, event, call)
            self._note(entry.container.id, event, started)

    def _report(
        self, pod: PodRecord, container: ContainerRecord, decision: Decision, call: Call
    ) -> None:
        links = decision.links
        for link in links.links:
            self._metrics.count("claim2core_claim_verdicts_total", link.verdict.value)
        if links.links or links.findings:
            op = call.op
            call.afterwards(lambda: log_decision(pod, container, decision, op))

    def _note(self, container_id: ContainerId, event: str, started_ns: int) -> None:
        self._book.note_time(container_id, event, time.perf_counter_ns() - started_ns)

    def _forget(self, container_id: str) -> None:
        self._book.drop(ContainerId(container_id))
        self.seeding.release([ContainerId(container_id)])

    def _forget_pod(self, pod: api.PodSandbox) -> None:
        self.seeding.release(self._book.drop_pod(SandboxId(pod.id)))

    def _set_gauges(self) -> None:
        tally = self._book.tally()
        self._metrics.set("claim2core_pods", tally.nr_pods)
        self._metrics.set_all("claim2core_containers", tally.by_ownership)
        self._metrics.set_all("claim2core_claims", tally.by_verdict)
        self._metrics.set("claim2core_envelope_violated_containers", tally.nr_violated)
        self._metrics.set("claim2core_envelope_unverified_containers", tally.nr_unverified)


def make_entry(
    pod: PodRecord,
    container: ContainerRecord,
    decision: Decision,
    added_ns: Mapping[str, int] = NOTHING_ADDED,
) -> Entry:
    """Give the book's entry for a container and what was decided for it.

    A pod author can write a megabyte of claim variables. So many are kept only where they may
    be looked at again (`Decider.at_update`): once ours, and not proven after a restart.
    """
    length = sum(map(len, container.claim_env))
    if length > KEPT_ENV_CHARACTERS and not is_unproven(container, decision.links):
        container = replace(container, claim_env=())
    return Entry(
        pod=pod,
        container=container,
        links=decision.links,
        envelope=decision.envelope,
        added_ns=added_ns,
    )
