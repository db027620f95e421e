"""What is said in the log about one container: what was decided, what was read back."""

from __future__ import annotations

import logging
from typing import Final

from nri_claim2core.agent.book import Entry
from nri_claim2core.agent.decide import Decision
from nri_claim2core.model.claim import Finding
from nri_claim2core.model.records import ContainerRecord, PodRecord

log = logging.getLogger(__name__)

_LEVELS: Final = {
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "": logging.INFO,
}


def is_worth_saying(decision: Decision) -> bool:
    """Tell whether a decision about a container that runs already needs somebody's eye."""
    return _LEVELS[decision.severity] > logging.INFO


def log_decision(pod: PodRecord, container: ContainerRecord, decision: Decision, op: str) -> None:
    """Say what a container holds and gets, at the level of the worst that was found.

    `op` is the call's id; "" = found at a restart.
    """
    links, envelope = decision.links, decision.envelope
    problems = [link for link in links.links if link.code]
    log.log(
        max(_LEVELS[decision.severity], logging.WARNING if decision.refusal else logging.INFO),
        "container refused" if decision.refusal else "container linked",
        extra={
            "op": op,
            "pod": f"{pod.namespace}/{pod.name}",
            "container": container.id,
            "container_name": container.name,
            "claims": {link.claim_uid: link.verdict.value for link in links.links},
            "cpus": str(envelope.cpus),
            "mems": str(envelope.mems),
            "ownership": envelope.ownership.value,
            "findings": [
                *(f"{link.code}: {link.reason}" for link in problems),
                *(f"{f.code}: {f.message}" for f in decision.findings),
            ],
        },
    )


def log_read_back(
    entry: Entry, event: str, violations: tuple[Finding, ...], *, is_right: bool
) -> None:
    """Say what differs from the envelope, or that nothing does any more."""
    if is_right:
        log.info("cpuset as it has to be again", extra={"container": entry.container.id})
    for violation in violations:
        log.log(
            _LEVELS[violation.severity],
            "cpuset read back",
            extra={
                "container": entry.container.id,
                "pod": f"{entry.pod.namespace}/{entry.pod.name}",
                "event": event,
                "code": violation.code,
                "finding": violation.message,
            },
        )
