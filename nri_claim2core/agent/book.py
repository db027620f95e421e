"""The book: every pod and container this node's runtime told us about, and what we decided.

One lock around plain dictionaries; entries are immutable and replaced, never edited, so that
a reader outside the lock (the status page, a check after start) sees one consistent state.
Events may come twice, late, out of order or for ids never seen: adding replaces, removing
what is not there is nothing. Only claiming containers are asked about often, and pods end
while others live: the ids of both kinds are kept apart.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from nri_claim2core.model.claim import Finding, Links
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.envelope import Envelope, Ownership
from nri_claim2core.model.ids import ContainerId, SandboxId
from nri_claim2core.model.records import ContainerRecord, PodRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The cpuset in force as last read back from the kernel."""

    cpus: CpuSet
    mems: CpuSet
    when: str
    "Which event it was read after, e.g. `PostStartContainer`; `recheck` for none."


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One container: what it is, what it holds, what it is confined to, what was seen."""

    pod: PodRecord
    container: ContainerRecord
    links: Links
    envelope: Envelope
    observed: Observed | None = None
    violations: tuple[Finding, ...] = ()
    "Findings of the last read-back; empty = the predicate held."
    added_ns: Mapping[str, int] = field(default_factory=dict)
    "Time our handler took, by event."


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many of what the book holds, for gauges."""

    nr_pods: int
    nr_containers: int
    by_ownership: Mapping[str, float]
    by_verdict: Mapping[str, float]
    nr_violated: int
    "Containers whose last read-back was outside their envelope."
    nr_unverified: int
    "Containers that hold a claim and were not read back yet."


class Book:
    """All entries; every method is safe from any thread and never blocks on the host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[SandboxId, PodRecord] = {}
        self._entries: dict[ContainerId, Entry] = {}
        self._claiming: set[ContainerId] = set()
        self._of_sandbox: dict[SandboxId, set[ContainerId]] = {}
        self._touched: set[ContainerId] | None = None
        "Containers that events spoke of between `begin` and `rebuild`."

    def begin(self) -> None:
        """Begin with a new connection: what its events say wins over a later `rebuild`."""
        with self._lock:
            self._touched = set()

    def put_pod(self, pod: PodRecord) -> None:
        """Remember a pod sandbox; a second time replaces."""
        with self._lock:
            self._pods[pod.sandbox_id] = pod

    def drop_pod(self, sandbox_id: SandboxId) -> tuple[ContainerId, ...]:
        """Forget a pod sandbox and whatever containers of it are still known; give these."""
        with self._lock:
            self._pods.pop(sandbox_id, None)
            left = tuple(self._of_sandbox.get(sandbox_id, ()))
            for container_id in left:
                self._forget(container_id)
            return left

    def put(self, entry: Entry) -> None:
        """Remember a container; a second time replaces."""
        with self._lock:
            self._forget(entry.container.id)
            self._store(entry)

    def get(self, container_id: ContainerId) -> Entry | None:
        """Give the entry of a container, or None if it was never seen or is gone."""
        with self._lock:
            return self._entries.get(container_id)

    def drop(self, container_id: ContainerId) -> Entry | None:
        """Forget a container; gives what was known."""
        with self._lock:
            return self._forget(container_id)

    def change(self, container_id: ContainerId, edit: Callable[[Entry], Entry]) -> Entry | None:
        """Replace an entry by what `edit` makes of it; None, and nothing, if it is gone.

        What other events noted since the caller looked is in the entry that `edit` is given.
        """
        with self._lock:
            entry = self._entries.get(container_id)
            if entry is None:
                return None
            entry = edit(entry)
            self._store(entry)
            return entry

    def observe(
        self,
        container_id: ContainerId,
        observed: Observed | None,
        violations: tuple[Finding, ...],
    ) -> None:
        """Note a read-back, None = nothing could be read; nothing if the container is gone."""
        self.change(
            container_id, lambda entry: replace(entry, observed=observed, violations=violations)
        )

    def note_time(self, container_id: ContainerId, event: str, spent_ns: int) -> None:
        """Note how long our handler took for an event of a claiming container."""
        with self._lock:
            if container_id in self._claiming:
                entry = self._entries[container_id]
                self._entries[container_id] = replace(
                    entry, added_ns={**entry.added_ns, event: spent_ns}
                )

    def rebuild(self, pods: Iterable[PodRecord], entries: Iterable[Entry]) -> None:
        """Replace everything by what the runtime says exists (INV-RESTART).

        Its answer to Synchronize may be overtaken by events when it is late: a container that
        was created or removed meanwhile stays as the event left it.
        """
        pods_by_id = {pod.sandbox_id: pod for pod in pods}
        by_id = {entry.container.id: entry for entry in entries}
        with self._lock:
            for container_id in self._touched or ():
                by_id.pop(container_id, None)
                if container_id in self._entries:
                    by_id[container_id] = self._entries[container_id]
            self._touched = None
            self._pods = pods_by_id
            self._entries, self._claiming, self._of_sandbox = {}, set(), {}
            for entry in by_id.values():
                self._store(entry)

    def claiming(self) -> list[Entry]:
        """Give the entries with at least one link, in container id order."""
        with self._lock:
            return [self._entries[cid] for cid in sorted(self._claiming)]

    def tally(self) -> Tally:
        """Count what is in the book; the cost grows with claiming containers only."""
        with self._lock:
            claiming = [self._entries[cid] for cid in self._claiming]
            nr_pods, nr_containers = len(self._pods), len(self._entries)
        owners = Counter(entry.envelope.ownership.value for entry in claiming)
        owners[Ownership.NONE.value] += nr_containers - len(claiming)
        return Tally(
            nr_pods=nr_pods,
            nr_containers=nr_containers,
            by_ownership=owners,
            by_verdict=Counter(
                link.verdict.value for entry in claiming for link in entry.links.links
            ),
            nr_violated=sum(
                1 for entry in claiming if any(v.severity == "error" for v in entry.violations)
            ),
            nr_unverified=sum(
                1
                for entry in claiming
                if entry.observed is None and entry.envelope.ownership is not Ownership.NONE
            ),
        )

    def _store(self, entry: Entry) -> None:
        container_id = entry.container.id
        self._entries[container_id] = entry
        self._of_sandbox.setdefault(entry.pod.sandbox_id, set()).add(container_id)
        if entry.links.links:
            self._claiming.add(container_id)
        else:
            self._claiming.discard(container_id)

    def _forget(self, container_id: ContainerId) -> Entry | None:
        self._claiming.discard(container_id)
        if self._touched is not None:
            self._touched.add(container_id)
        entry = self._entries.pop(container_id, None)
        if entry is not None:
            siblings = self._of_sandbox[entry.pod.sandbox_id]
            siblings.discard(container_id)
            if not siblings:
                del self._of_sandbox[entry.pod.sandbox_id]
        return entry
