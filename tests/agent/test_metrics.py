"""Counters and their rendering; the official client's parser is the independent reader."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from nri_claim2core.agent.exposition import Exposition
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.agent.metrics_table import METRICS, OPERATIONS, Kind
from nri_claim2core.model.claim import Verdict
from nri_claim2core.model.envelope import Ownership
from nri_claim2core.model.errors import UsageError


def scrape(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    body, content_type = Exposition(metrics).render()
    assert content_type.startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_every_series_is_there_at_zero_before_anything_happened() -> None:
    seen = scrape(Metrics())
    assert seen["claim2core_nri_connected", ()] == 0
    for operation in ("CreateContainer", "Synchronize", "other"):
        for result in ("ok", "refused", "failed", "deadline"):
            key = (("operation", operation), ("result", result))
            assert seen["claim2core_nri_requests_total", key] == 0
    for verdict in Verdict:
        assert seen["claim2core_claims", (("state", verdict.value),)] == 0
    for ownership in Ownership:
        assert seen["claim2core_containers", (("ownership", ownership.value),)] == 0


def test_a_request_is_counted_by_operation_and_result() -> None:
    metrics = Metrics()
    metrics.request("CreateContainer", 0.003, "ok")
    metrics.request("CreateContainer", 0.5, "deadline")
    seen = scrape(metrics)
    create = ("operation", "CreateContainer")
    assert seen["claim2core_nri_requests_total", (create, ("result", "ok"))] == 1
    assert seen["claim2core_nri_requests_total", (create, ("result", "deadline"))] == 1
    assert seen["claim2core_nri_budget_exhausted_total", ()] == 1
    assert seen["claim2core_nri_request_duration_seconds_count", (create,)] == 2
    assert seen["claim2core_nri_request_duration_seconds_sum", (create,)] == pytest.approx(0.503)


def test_buckets_are_cumulative_and_a_bound_belongs_to_its_bucket() -> None:
    metrics = Metrics()
    for seconds in (0.0001, 0.00025, 0.0026, 1.9, 7.0):
        metrics.request("StartContainer", seconds, "ok")
    seen = scrape(metrics)

    def bucket(bound: str) -> float:
        labels = (("le", bound), ("operation", "StartContainer"))
        return seen["claim2core_nri_request_duration_seconds_bucket", labels]

    assert [bucket(b) for b in ("0.00025", "0.001", "0.0025", "0.005", "1.0", "2.0", "+Inf")] == [
        2, 2, 2, 3, 3, 4, 5,
    ]  # fmt: skip


def test_an_operation_of_a_newer_runtime_is_counted_as_other() -> None:
    metrics = Metrics()
    metrics.request("TeleportContainer", 0.001, "ok")
    assert metrics.value("claim2core_nri_requests_total", "other", "ok") == 1
    assert sum(metrics.value("claim2core_nri_requests_total", op, "ok") for op in OPERATIONS) == 1


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("claim2core_no_such_total", ()),
        ("claim2core_claims", ("maybe",)),
        ("claim2core_claims", ()),
        ("claim2core_pods", ("extra",)),
    ],
)
def test_a_series_outside_the_table_is_our_bug(name: str, labels: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        Metrics().count(name, *labels)


def test_a_gauge_set_as_a_whole_leaves_no_old_value() -> None:
    metrics = Metrics()
    metrics.set_all("claim2core_claims", {"verified": 3, "forged": 1})
    metrics.set_all("claim2core_claims", {"verified": 2})
    seen = scrape(metrics)
    assert seen["claim2core_claims", (("state", "verified"),)] == 2
    assert seen["claim2core_claims", (("state", "forged"),)] == 0


def test_concurrent_counts_are_all_there() -> None:
    metrics = Metrics()
    gate = threading.Barrier(4)

    def work() -> None:
        gate.wait()
        for _ in range(2000):
            metrics.count("claim2core_cpusets_reasserted_total")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.value("claim2core_cpusets_reasserted_total") == 8000


def test_openmetrics_is_given_to_who_asks_and_parses() -> None:
    body, content_type = Exposition(Metrics()).render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    names = {family.name for family in parse_openmetrics(body.decode())}
    assert {
        "claim2core_build_info",
        "claim2core_nri_requests",
        "process_resident_memory_bytes",
    } <= (names)


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        assert metric.name.startswith("claim2core_")
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert metric.help.endswith(".")
        assert not {"pod", "claim", "container", "uid"} & set(metric.labels)


def test_counting_does_not_import_the_client() -> None:
    code = (
        "import sys, nri_claim2core.agent.metrics;"
        "bad = {'prometheus_client', 'ssl', 'http', 'asyncio'} & set(sys.modules);"
        "sys.exit(repr(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
