"""The JSON documents that tools read: claim links, envelopes, the state of the plugin.

One shape for `explain`, `simulate`, `/state` and tests. Keys are camelCase as in Kubernetes;
CPU lists are canonical text; within a version only additions are made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from nri_claim2core.agent.book import Entry
from nri_claim2core.model.claim import Finding, Links
from nri_claim2core.model.envelope import Envelope, Mode
from nri_claim2core.nri.dispatch import Registration

API_VERSION: Final = "claim2core.gthulhu.io/v1alpha1"

Document = dict[str, Any]


def links_document(links: Links) -> list[Document]:
    """Give one object per claim with its verdict and every piece of evidence looked at."""
    return [
        {
            "claimUid": link.claim_uid,
            "verdict": link.verdict.value,
            "cpus": str(link.cpus),
            "evidence": [
                {"source": e.source.value, "answer": e.answer.value, "detail": e.detail}
                for e in link.evidence
            ],
            "reason": link.reason,
            "code": link.code,
        }
        for link in links.links
    ]


def envelope_document(envelope: Envelope, mode: Mode) -> Document:
    """Give the envelope with the mode it was decided under."""
    return {
        "cpus": str(envelope.cpus),
        "mems": str(envelope.mems),
        "mode": mode.value,
        "ownership": envelope.ownership.value,
        "shares": envelope.shares,
        "reason": envelope.reason,
        "refusal": envelope.refusal,
    }


def findings_document(findings: Iterable[Finding]) -> list[Document]:
    """Give findings in the order they were made."""
    return [
        {"code": f.code, "severity": f.severity, "message": f.message, "hint": f.hint}
        for f in findings
    ]


def entry_document(entry: Entry, mode: Mode) -> Document:
    """Give everything known about one container."""
    observed = entry.observed
    return {
        "pod": {
            "namespace": entry.pod.namespace,
            "name": entry.pod.name,
            "uid": entry.pod.uid,
        },
        "container": {"id": entry.container.id, "name": entry.container.name},
        "links": links_document(entry.links),
        "envelope": envelope_document(entry.envelope, mode),
        "observed": None
        if observed is None
        else {"cpus": str(observed.cpus), "mems": str(observed.mems), "when": observed.when},
        "findings": findings_document((*entry.links.findings, *entry.envelope.findings)),
        "violations": findings_document(entry.violations),
        "addedMs": {event: round(ns / 1e6, 3) for event, ns in entry.added_ns.items()},
    }


def state_document(
    entries: Iterable[Entry],
    mode: Mode,
    registration: Registration | None,
    nr_registrations: int,
) -> Document:
    """Give the state of the plugin: its runtime, and every claiming container."""
    return {
        "apiVersion": API_VERSION,
        "kind": "PluginState",
        "mode": mode.value,
        "runtime": None
        if registration is None
        else {
            "name": registration.runtime_name,
            "version": registration.runtime_version,
            "nriVersion": str(registration.nri_version or ""),
            "requestTimeoutMs": registration.request_timeout_ms,
            "events": registration.events,
        },
        "registrations": nr_registrations,
        "containers": [entry_document(entry, mode) for entry in entries],
    }
