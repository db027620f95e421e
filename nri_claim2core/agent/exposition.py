"""From the plain counters to the Prometheus formats, through the official client.

Imported on the first scrape only: prometheus_client brings ssl and an HTTP server with it,
tens of milliseconds and more than ten MiB that the start path must not pay. A private
registry keeps the client's default collectors out; of those, only the process figures
(memory, CPU, open files) are taken.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family

from nri_claim2core import __version__
from nri_claim2core.agent.metrics import Metrics, Sample
from nri_claim2core.agent.metrics_table import DURATION_BUCKETS_S, Kind, Metric


class Exposition:
    """Renders one `Metrics` object; thread-safe, blocks on nothing but procfs."""

    def __init__(self, metrics: Metrics) -> None:
        self._registry: Final = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(metrics))
        ProcessCollector(registry=self._registry)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Give the body and its content type; OpenMetrics if `accept` asks for it."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type


class _Collector:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        build = GaugeMetricFamily(
            "claim2core_build_info",
            "Always 1; the labels say what is running.",
            labels=["version", "python"],
        )
        build.add_metric([__version__, platform.python_version()], 1)
        yield build
        for metric, samples in self._metrics.snapshot():
            yield _family(metric, samples)


def _family(metric: Metric, samples: list[Sample]) -> Family:
    names = list(metric.labels)
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=names)
        for sample in samples:
            histogram.add_metric(list(sample.labels), _cumulative(sample.buckets), sample.value)
        return histogram
    if metric.kind is Kind.COUNTER:
        counter = CounterMetricFamily(metric.name, metric.help, labels=names)
        for sample in samples:
            counter.add_metric(list(sample.labels), sample.value)
        return counter
    gauge = GaugeMetricFamily(metric.name, metric.help, labels=names)
    for sample in samples:
        gauge.add_metric(list(sample.labels), sample.value)
    return gauge


def _cumulative(counts: tuple[int, ...]) -> list[tuple[str, int]]:
    total = 0
    made = []
    for bound, count in zip((*map(str, DURATION_BUCKETS_S), "+Inf"), counts, strict=True):
        total += count
        made.append((bound, total))
    return made
