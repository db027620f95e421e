"""Counters, gauges and histograms in plain Python, cheap enough for the container start path.

All series of `metrics_table` are made once, at zero, in one flat dictionary; an update is a
lookup and an addition under one lock that is held for nanoseconds. Nothing here renders:
`exposition` does, on another thread, from a snapshot. This module must stay free of
prometheus_client, whose import costs more than the rest of the plugin together.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nri_claim2core.agent.metrics_table import DURATION_BUCKETS_S, METRICS, OTHER, Kind, Metric
from nri_claim2core.model.errors import UsageError

_Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One series at one moment."""

    labels: tuple[str, ...]
    "Label values, in the order of the metric's label names."
    value: float
    "Counter or gauge: the value. Histogram: the sum in seconds."
    buckets: tuple[int, ...] = ()
    "Histogram only: observations per bucket, not cumulative, the last above all bounds."


class Metrics:
    """The values of all metrics; every method is safe from any thread and never blocks long."""

    def __init__(self, table: Iterable[Metric] = METRICS) -> None:
        self._table: Final = {metric.name: metric for metric in table}
        self._lock: Final = threading.Lock()
        self._refresh: Callable[[], None] = lambda: None
        self._values: Final[dict[_Key, float]] = {}
        self._buckets: Final[dict[_Key, list[int]]] = {}
        for metric in self._table.values():
            for labels in _all_label_values(metric):
                self._values[metric.name, labels] = 0
                if metric.kind is Kind.HISTOGRAM:
                    self._buckets[metric.name, labels] = [0] * (len(DURATION_BUCKETS_S) + 1)

    def count(self, name: str, /, *labels: str, by: int = 1) -> None:
        """Add `by` to a counter.

        Raises: UsageError for a name or label that the table does not have.
        """
        key = self._key(name, labels)
        with self._lock:
            self._values[key] += by

    def set(self, name: str, value: float, /, *labels: str) -> None:
        """Set a gauge.

        Raises: UsageError for a name or label that the table does not have.
        """
        key = self._key(name, labels)
        with self._lock:
            self._values[key] = value

    def set_all(self, name: str, values: Mapping[str, float], /) -> None:
        """Set every series of a gauge with one label at once; those not named become 0.

        Raises: UsageError for a name or label that the table does not have.
        """
        keys = {self._key(name, (label,)): value for label, value in values.items()}
        with self._lock:
            for labels in _all_label_values(self._table[name]):
                self._values[name, labels] = keys.get((name, labels), 0)

    def observe(self, name: str, seconds: float, /, *labels: str) -> None:
        """Add one duration to a histogram.

        Raises: UsageError for a name or label that the table does not have.
        """
        key = self._key(name, labels)
        # A bound belongs to its own bucket (`le`), hence bisect_left.
        index = bisect.bisect_left(DURATION_BUCKETS_S, seconds)
        with self._lock:
            self._values[key] += seconds
            self._buckets[key][index] += 1

    def request(self, operation: str, seconds: float, result: str) -> None:
        """Count one request of the runtime with its duration and how it was answered."""
        self.observe("claim2core_nri_request_duration_seconds", seconds, operation)
        self.count("claim2core_nri_requests_total", operation, result)
        if result == "deadline":
            self.count("claim2core_nri_budget_exhausted_total")

    def value(self, name: str, /, *labels: str) -> float:
        """Give the present value of one counter or gauge, or the sum of a histogram."""
        key = self._key(name, labels)
        with self._lock:
            return self._values[key]

    def before_reading(self, refresh: Callable[[], None]) -> None:
        """Have gauges that are counted from elsewhere set just before they are read."""
        self._refresh = refresh

    def snapshot(self) -> list[tuple[Metric, list[Sample]]]:
        """Give every family with all its series, in table order, all of one moment."""
        self._refresh()
        with self._lock:
            values = dict(self._values)
            buckets = {key: tuple(counts) for key, counts in self._buckets.items()}
        return [
            (
                metric,
                [
                    Sample(
                        labels, values[metric.name, labels], buckets.get((metric.name, labels), ())
                    )
                    for labels in _all_label_values(metric)
                ],
            )
            for metric in self._table.values()
        ]

    def _key(self, name: str, labels: tuple[str, ...]) -> _Key:
        key = (name, labels)
        if key in self._values:
            return key
        metric = self._table.get(name)
        if metric is None or len(labels) != len(metric.labels):
            raise UsageError(f"no metric {name!r} with {len(labels)} labels")
        # From outside, such as a method of a newer runtime: counted, not refused.
        known = tuple(
            OTHER if value not in allowed and OTHER in allowed else value
            for value, allowed in zip(labels, metric.labels.values(), strict=True)
        )
        if (name, known) not in self._values:
            raise UsageError(f"metric {name}: no series with labels {labels}")
        return (name, known)


def _all_label_values(metric: Metric) -> list[tuple[str, ...]]:
    made: list[tuple[str, ...]] = [()]
    for values in metric.labels.values():
        made = [(*head, value) for head in made for value in values]
    return made
