"""The book under events that come twice, late and out of order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nri_claim2core.agent.book import Book, Entry, Observed
from nri_claim2core.model.claim import ClaimLink, Finding, Links, Verdict
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.envelope import Envelope, Ownership
from nri_claim2core.model.records import ContainerRecord, PodRecord

CLAIM = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"


def pod(sandbox_id="s1"):
    return PodRecord(sandbox_id=sandbox_id, uid=f"uid-{sandbox_id}")


def entry(container_id, *, claims=True, sandbox_id="s1", name=""):
    links = (ClaimLink(claim_uid=CLAIM, verdict=Verdict.VERIFIED, cpus=CpuSet([1])),)
    return Entry(
        pod=pod(sandbox_id),
        container=ContainerRecord(id=container_id, sandbox_id=sandbox_id, name=name),
        links=Links(links=links if claims else ()),
        envelope=Envelope(
            ownership=Ownership.OWN if claims else Ownership.NONE,
            cpus=CpuSet([1] if claims else []),
            mems=CpuSet(),
        ),
    )


def ids(book):
    return [e.container.id for e in book.claiming()]


@pytest.fixture
def book():
    return Book()


def test_putting_twice_replaces(book):
    book.put(entry("a", name="first"))
    book.put(entry("a", name="second"))
    assert [e.container.name for e in book.claiming()] == ["second"]
    book.put(entry("a", claims=False))
    assert book.claiming() == []
    assert book.get("a").container.id == "a"


def test_dropping_what_is_not_there_is_nothing(book):
    assert book.drop("a") is None
    book.drop_pod("s1")
    book.observe("a", Observed(cpus=CpuSet(), mems=CpuSet(), when="x"), ())
    book.note_time("a", "x", 1)
    assert book.get("a") is None


def test_a_pod_takes_its_containers_along(book):
    book.put(entry("a"))
    book.put(entry("b", sandbox_id="s2"))
    book.drop_pod("s1")
    assert ids(book) == ["b"]


def test_a_container_that_comes_again_in_another_pod_is_that_pods(book):
    book.put(entry("a"))
    book.put(entry("a", sandbox_id="s2"))
    book.drop_pod("s1")
    assert ids(book) == ["a"]
    book.drop_pod("s2")
    assert book.get("a") is None


def test_a_change_starts_from_what_is_in_the_book_now(book):
    book.put(entry("a", name="first"))
    book.observe("a", Observed(cpus=CpuSet([2]), mems=CpuSet(), when="x"), ())
    changed = book.change("a", lambda now: replace(now, links=Links()))
    assert changed.observed.when == "x"
    assert (book.get("a"), ids(book)) == (changed, [])
    book.drop("a")
    assert book.change("a", lambda now: now) is None
    assert book.get("a") is None


def test_a_read_back_during_registration_is_not_news_of_the_runtime(book):
    book.put(entry("gone"))
    book.begin()
    book.observe("gone", Observed(cpus=CpuSet([1]), mems=CpuSet(), when="recheck"), ())
    book.rebuild([pod()], [])
    assert book.get("gone") is None


def test_observing_keeps_the_decision_and_counts_violations(book):
    book.put(entry("a"))
    assert (book.tally().nr_unverified, book.tally().nr_violated) == (1, 0)
    finding = Finding(code="C", severity="error", message="m")
    book.observe("a", Observed(cpus=CpuSet([2]), mems=CpuSet(), when="x"), (finding,))
    assert (book.tally().nr_unverified, book.tally().nr_violated) == (0, 1)
    assert book.get("a").envelope.cpus == CpuSet([1])


def test_rebuild_forgets_what_the_runtime_does_not_list(book):
    book.put_pod(pod("gone"))
    book.put(entry("gone"))
    book.begin()
    book.rebuild([pod()], [entry("a"), entry("b", claims=False)])
    assert ids(book) == ["a"]
    assert book.get("gone") is None
    tally = book.tally()
    assert (tally.nr_pods, tally.nr_containers) == (1, 2)
    assert dict(tally.by_verdict) == {"verified": 1}


def test_a_late_rebuild_does_not_undo_newer_events(book):
    book.begin()
    # Synchronize lists "removed" and "changed", and is answered late; meanwhile:
    book.put(entry("created"))
    book.put(entry("changed", name="newer"))
    book.drop("removed")
    book.rebuild([pod()], [entry("removed"), entry("changed", name="older"), entry("kept")])
    assert ids(book) == ["changed", "created", "kept"]
    assert book.get("changed").container.name == "newer"
    # The next connection's state is the truth again.
    book.begin()
    book.rebuild([pod()], [entry("changed", name="listed")])
    assert [e.container.name for e in book.claiming()] == ["listed"]


def test_events_are_remembered_from_begin_to_rebuild_and_no_longer(book):
    for at in ("before", "during", "after"):
        if at == "during":
            book.begin()
        if at == "after":
            book.rebuild([pod()], [])
        book.put(entry(at))
    # A set that only grows would take a node's memory within weeks.
    book.rebuild([pod()], [entry("listed")])
    assert ids(book) == ["listed"]
