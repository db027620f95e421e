"""Every metric of the plugin role in one table: name, kind, help text, labels, buckets.

Rules that hold for all of them: prefix `claim2core_`, base units in the name, `_total` on
counters only, and closed label sets - no pod, claim or container names, so the number of
series is known from this file alone and every series exists, at zero, from the start.
Where a value could come from outside, its label set holds `other`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


class Kind(enum.Enum):
    """What a metric does over time."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


OTHER: Final = "other"
"""Label value for whatever a closed set does not list."""

DURATION_BUCKETS_S: Final = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0,
)  # fmt: skip
"""From a quarter millisecond (a quiet node) to 2 s, the runtimes' default request timeout."""

OPERATIONS: Final = (
    "Configure",
    "Synchronize",
    "Shutdown",
    "RunPodSandbox",
    "UpdatePodSandbox",
    "PostUpdatePodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "PostCreateContainer",
    "StartContainer",
    "PostStartContainer",
    "UpdateContainer",
    "PostUpdateContainer",
    "StopContainer",
    "RemoveContainer",
    "ValidateContainerAdjustment",
    OTHER,
)
"""RPC names of the NRI Plugin service; StateChange counts as the event that it carries."""

RESULTS: Final = ("ok", "refused", "failed", "deadline")
READBACKS: Final = ("inside", "narrower", "outside", "unreadable", "gone")
"""`narrower`: less than the envelope and nothing beyond it, as below a narrower parent."""
"""Answered; refused on purpose; an unexpected error of ours; time ran out."""

VERDICTS: Final = ("verified", "mismatch", "unverified", "forged", "malformed", "stale")
OWNERSHIPS: Final = ("own", "foreign", "none")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family."""

    name: str
    kind: Kind
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    "Label name to its closed set of values."


METRICS: Final = (
    Metric(
        "claim2core_nri_connected",
        Kind.GAUGE,
        "1 while registered with the runtime and synchronized, else 0.",
    ),
    Metric(
        "claim2core_nri_registrations_total",
        Kind.COUNTER,
        "Attempts to register with the runtime.",
        {"result": ("success", "failure")},
    ),
    Metric(
        "claim2core_nri_connections_lost_total",
        Kind.COUNTER,
        "Registered connections that ended without our asking for it.",
    ),
    Metric(
        "claim2core_nri_request_timeout_seconds",
        Kind.GAUGE,
        "Request timeout that the runtime announced; 0 until it did.",
    ),
    Metric(
        "claim2core_nri_handler_deadline_seconds",
        Kind.GAUGE,
        "Time a handler may take before it is answered for; 0 until registered.",
    ),
    Metric(
        "claim2core_nri_requests_total",
        Kind.COUNTER,
        "Requests of the runtime by how they were answered.",
        {"operation": OPERATIONS, "result": RESULTS},
    ),
    Metric(
        "claim2core_nri_request_duration_seconds",
        Kind.HISTOGRAM,
        "Time from a request being read to its answer being written.",
        {"operation": OPERATIONS},
    ),
    Metric(
        "claim2core_nri_budget_exhausted_total",
        Kind.COUNTER,
        "Requests whose handler ran past its deadline and was answered for.",
    ),
    Metric("claim2core_pods", Kind.GAUGE, "Pod sandboxes known on this node."),
    Metric(
        "claim2core_containers",
        Kind.GAUGE,
        "Containers known on this node by who writes their cpuset.",
        {"ownership": OWNERSHIPS},
    ),
    Metric(
        "claim2core_claims",
        Kind.GAUGE,
        "Links between a container and a claim by verdict.",
        {"state": VERDICTS},
    ),
    Metric(
        "claim2core_claim_verdicts_total",
        Kind.COUNTER,
        "Verdicts reached when containers were created or found.",
        {"verdict": VERDICTS},
    ),
    Metric(
        "claim2core_creations_refused_total",
        Kind.COUNTER,
        "Container creations refused by us: for what was decided, or because time ran out.",
        {"reason": ("decision", "deadline")},
    ),
    Metric(
        "claim2core_cpusets_reasserted_total",
        Kind.COUNTER,
        "Updates that would have moved a container off its claims and were corrected.",
    ),
    Metric(
        "claim2core_envelope_violations_total",
        Kind.COUNTER,
        "Read-backs that found a container outside its envelope.",
    ),
    Metric(
        "claim2core_envelope_violated_containers",
        Kind.GAUGE,
        "Containers whose last read-back was outside their envelope.",
    ),
    Metric(
        "claim2core_envelope_unverified_containers",
        Kind.GAUGE,
        "Claiming containers whose effective cpuset has not been read back.",
    ),
    Metric(
        "claim2core_readbacks_total",
        Kind.COUNTER,
        "Readings of the effective cpuset by outcome.",
        {"result": READBACKS},
    ),
    Metric(
        "claim2core_seeding_available",
        Kind.GAUGE,
        "1 while the maps are open and ours to write; 0 also where seeding is off.",
    ),
    Metric(
        "claim2core_seeds_total",
        Kind.COUNTER,
        "Containers whose policy was to be put in force, by outcome.",
        {"result": ("seeded", "failed", "unavailable")},
    ),
    Metric(
        "claim2core_map_writes_total",
        Kind.COUNTER,
        "Rows written or removed, by the kernel side's answer.",
        {"result": ("ok", "refused")},
    ),
    Metric(
        "claim2core_map_entries",
        Kind.GAUGE,
        "Rows of cgroups and threads, by whether the ledger says why they are there.",
        {"origin": ("explained", "unexplained")},
    ),
    Metric(
        "claim2core_sweep_removed_total",
        Kind.COUNTER,
        "Rows removed that two passes found without provenance.",
    ),
    Metric(
        "claim2core_config_reloads_total",
        Kind.COUNTER,
        "Configuration reloads; refused ones left the running configuration in place.",
        {"result": ("applied", "unchanged", "refused")},
    ),
    Metric(
        "claim2core_config_last_reload_successful",
        Kind.GAUGE,
        "1 if the files as they are now are in force, 0 if the last reload was refused.",
    ),
    Metric(
        "claim2core_config_restart_pending",
        Kind.GAUGE,
        "Options changed in the files that take effect with the next start only.",
    ),
)
