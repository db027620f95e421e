"""Read containers back, note and report what was found: at events, after a restart, until right.

What a read-back says goes three ways: into the book (what is known of the container), into
metrics, and into the log when it changed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from nri_claim2core.agent.book import Book, Entry
from nri_claim2core.agent.decide import Decision
from nri_claim2core.agent.decision_log import is_worth_saying, log_decision, log_read_back
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.agent.readback import ReadBack
from nri_claim2core.model.claim import Finding
from nri_claim2core.model.envelope import Ownership
from nri_claim2core.model.ids import ContainerId
from nri_claim2core.nri import Call


class Verifier:
    """Reads back the cpusets of containers in the book. Safe for several threads."""

    def __init__(self, readback: ReadBack, book: Book, metrics: Metrics) -> None:
        self._readback = readback
        self._book = book
        self._metrics = metrics
        self._put_back: frozenset[ContainerId] = frozenset()
        "Those whose cpuset the last answer to Synchronize set, and that were not read back yet."

    def expect(self, put_back: Iterable[ContainerId]) -> None:
        """Remember whose cpuset the runtime has yet to set; what was expected before is void."""
        self._put_back = frozenset(put_back)

    def check(self, entry: Entry, event: str, call: Call | None = None) -> tuple[Finding, ...]:
        """Read back one container and give what is wrong with its cpuset.

        With a `call`, what is to be said waits until that was answered. Blocking: host reads,
        about four small files.
        """
        observed, violations, result = self._readback.check(entry, event, self._book.claiming)
        self._metrics.count("claim2core_readbacks_total", result)
        if result != "gone":
            self._book.observe(entry.container.id, observed, violations)
        if result == "outside":
            self._metrics.count("claim2core_envelope_violations_total")
        if violations != entry.violations:
            is_right = observed is not None and not violations
            say = functools.partial(log_read_back, entry, event, violations, is_right=is_right)
            if call is None:
                say()
            else:
                call.afterwards(say)
        return violations

    def verify_all(self) -> None:
        """Say what is wrong with the containers that were found, and read all of them back.

        For the time after Synchronize was answered; those whose cpuset the runtime has yet to
        set come with `verify_again`. Blocking: host reads, two files each.
        """
        for entry in self._book.claiming():
            decision = Decision(links=entry.links, envelope=entry.envelope)
            if is_worth_saying(decision):
                log_decision(entry.pod, entry.container, decision, "")
            if entry.container.id not in self._put_back:
                self._verify(entry, "Synchronize")

    def verify_again(self) -> None:
        """Read back those whose cpuset Synchronize set, and those last found outside.

        Of neither does an event tell when they are right. Blocking: as `verify_all`.
        """
        put_back, self._put_back = self._put_back, frozenset()
        for entry in self._book.claiming():
            if entry.violations or entry.container.id in put_back:
                self._verify(entry, "recheck")

    def _verify(self, entry: Entry, when: str) -> None:
        if entry.envelope.ownership is not Ownership.NONE:
            self.check(entry, when)
