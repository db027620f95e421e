"""From samples to the table and the JSON document.

A figure compares candidates in one quantity; smaller is better in all of them. The ratio is
the candidate's value over the yardstick's, the minimal Go plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


def quantile(samples: Sequence[float], share: float) -> float:
    """Give the smallest sample that at least `share` of the samples do not exceed."""
    ordered = sorted(samples)
    # Nearest rank, in integers where floats would round up by themselves.
    rank = -(-len(ordered) * round(share * 1_000_000) // 1_000_000)
    return ordered[max(rank, 1) - 1]


def summary(samples: Sequence[float]) -> dict[str, float]:
    """Give count, quantiles and extremes for the report."""
    return {
        "count": len(samples),
        "min": min(samples),
        "p50": quantile(samples, 0.5),
        "p90": quantile(samples, 0.9),
        "p99": quantile(samples, 0.99),
        "p99.9": quantile(samples, 0.999),
        "max": max(samples),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a figure should be: at most a value, or at most the yardstick's value."""

    limit: float | None = None
    """In the unit of the figure; None = the yardstick's value."""


@dataclass(slots=True, kw_only=True)
class Figure:
    """One quantity of all candidates."""

    name: str
    unit: str
    pick: Callable[[Sequence[float]], float]
    """From a candidate's samples to its value."""
    goal: Goal | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)

    def value(self, candidate: str) -> float | None:
        """Give a candidate's value; None when it has no samples."""
        samples = self.samples.get(candidate)
        return self.pick(samples) if samples else None

    def ratio(self, candidate: str, yardstick: str) -> float | None:
        """Give candidate over yardstick; None when one is missing or nothing."""
        ours, theirs = self.value(candidate), self.value(yardstick)
        return ours / theirs if ours is not None and theirs else None

    def verdict(self, candidate: str, yardstick: str) -> tuple[str, bool | None]:
        """Give the goal as text and whether the candidate meets it (None: no goal or value)."""
        if self.goal is None:
            return "", None
        value = self.value(candidate)
        limit = self.value(yardstick) if self.goal.limit is None else self.goal.limit
        text = (
            f"<= {yardstick}"
            if self.goal.limit is None
            else f"<= {_number(self.goal.limit)} {self.unit}"
        )
        return text, None if value is None or limit is None else value <= limit

    def to_json(self, yardstick: str, baseline: str) -> dict[str, object]:
        """Give all candidates' values, ratios and the distribution."""
        return {
            "name": self.name,
            "unit": self.unit,
            "candidates": {
                name: {
                    "value": self.value(name),
                    "ratio": self.ratio(name, yardstick),
                    "meetsGoal": None if name == baseline else self.verdict(name, yardstick)[1],
                    "distribution": summary(samples),
                }
                for name, samples in self.samples.items()
            },
        }


def table(
    figures: Sequence[Figure],
    candidates: Mapping[str, str],
    *,
    yardstick: str,
    baseline: str,
    ours: str,
) -> str:
    """Render the figures as aligned text; `candidates` maps names to column titles."""
    others = [name for name in candidates if name not in (yardstick, baseline)]
    header = ["", *candidates.values()]
    header += [f"{candidates[name]}/{candidates[yardstick]}" for name in others]
    header += ["goal", ""]
    rows = [header]
    for figure in figures:
        goal, met = figure.verdict(ours, yardstick)
        rows.append(
            [
                f"{figure.name} [{figure.unit}]",
                *(_number(figure.value(name)) for name in candidates),
                *(_ratio(figure.ratio(name, yardstick)) for name in others),
                goal,
                {True: "met", False: "missed", None: ""}[met],
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:-2], widths[1:-2], strict=True)]
        cells += [cell.ljust(width) for cell, width in zip(row[-2:], widths[-2:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
