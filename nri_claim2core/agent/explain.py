"""Explain one container: read its description, decide as the live plugin would, say why.

The description is what NRI shows a plugin, as protobuf JSON (original and camelCase field names),
next to the runtime's name and version, because an empty CDI device list means something only
where the runtime fills it. The decision is `decide`'s on the evidence below a root directory:
this node's, or a captured tree's. Fields that this program does not know are passed over with a
note, so that a description from a newer runtime is still of use.

A container that exists already (its state says so) is decided as after a restart of the
plugin, where nothing is refused; any other as at its creation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from nri_claim2core.agent.book import Entry, Observed
from nri_claim2core.agent.config import Config
from nri_claim2core.agent.decide import Decider, Decision
from nri_claim2core.agent.documents import (
    envelope_document,
    findings_document,
    links_document,
)
from nri_claim2core.agent.readback import ReadBack
from nri_claim2core.agent.records import container_record, pod_record
from nri_claim2core.agent.role import evidence_reader_of, rules_of
from nri_claim2core.agent.runtimes import is_known, reports_cdi_devices
from nri_claim2core.host.cgroups import CgroupReader
from nri_claim2core.model.claim import Finding
from nri_claim2core.model.errors import UsageError
from nri_claim2core.model.records import ContainerRecord, ContainerState, PodRecord
from nri_claim2core.nri import nri_pb2 as api

MAX_DESCRIPTION_BYTES: Final = 4 << 20
"""The largest message that a runtime can send."""

_CODE: Final = "C2C-EXPLAIN-01"
_KEYS: Final = ("pod", "container", "runtime")
_RUNTIME_KEYS: Final = ("name", "version", "nriVersion")
_EXISTS: Final = frozenset({ContainerState.CREATED, ContainerState.PAUSED, ContainerState.RUNNING})
_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A container as a runtime shows it."""

    pod: PodRecord
    container: ContainerRecord
    runtime_name: str
    runtime_version: str
    cdi_reported: bool
    notes: tuple[str, ...]
    "What was passed over or assumed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A decision with everything that led to it."""

    description: Description
    decision: Decision
    mode: str
    at_creation: bool
    observed: Observed | None
    "The cpuset in force, where the container's cgroup is there."
    violations: tuple[Finding, ...]
    envelope: Mapping[str, Any]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything found about the container itself."""
        return self.decision.findings

    @property
    def has_error(self) -> bool:
        """Whether it would be refused, or a link or finding is of severity error."""
        severities = [self.decision.severity, *(each.severity for each in self.violations)]
        return bool(self.decision.refusal) or "error" in severities

    def fields(self) -> dict[str, Any]:
        """Give it as plain data, in the shapes that the plugin's own state has."""
        description, observed = self.description, self.observed
        return {
            "pod": {
                "namespace": description.pod.namespace,
                "name": description.pod.name,
                "uid": description.pod.uid,
            },
            "container": {"id": description.container.id, "name": description.container.name},
            "runtime": {
                "name": description.runtime_name,
                "version": description.runtime_version,
                "reportsCdiDevices": description.cdi_reported,
            },
            "decidedAs": "creation" if self.at_creation else "synchronization",
            "links": links_document(self.decision.links),
            "envelope": dict(self.envelope),
            "observed": None
            if observed is None
            else {"cpus": str(observed.cpus), "mems": str(observed.mems), "when": observed.when},
            "findings": findings_document(self.findings),
            "violations": findings_document(self.violations),
            "notes": list(description.notes),
        }


def read_description(data: bytes) -> Description:
    """Read a description of a container.

    Raises: UsageError C2C-EXPLAIN-01 that names what is wrong with it.
    """
    if len(data) > MAX_DESCRIPTION_BYTES:
        raise _bad(f"is longer than {MAX_DESCRIPTION_BYTES} bytes")
    try:
        document = json.loads(data)
    except (UnicodeDecodeError, RecursionError) as error:
        raise _bad(f"is not JSON: {error}") from error
    except json.JSONDecodeError as error:
        raise _bad(f"is not JSON: line {error.lineno}: {error.msg}") from error
    if not isinstance(document, dict):
        raise _bad("is no object")
    unknown = sorted(set(document) - set(_KEYS))
    if unknown:
        raise _bad(f"has the unknown key {unknown[0]!r}", hint="keys are " + ", ".join(_KEYS))
    if "container" not in document:
        raise _bad("has no container")
    notes: list[str] = []
    pod = _message(document, "pod", api.PodSandbox(), notes)
    container = _message(document, "container", api.Container(), notes)
    name, version, nri_version = _runtime(document.get("runtime"), notes)
    reported = reports_cdi_devices(name, version, nri_version)
    if "pod" not in document:
        notes.append("no pod given: nothing can show that its claims are this pod's")
    return Description(
        pod=pod_record(pod),
        container=container_record(container, cdi_reported=reported),
        runtime_name=name,
        runtime_version=version,
        cdi_reported=reported,
        notes=tuple(notes),
    )


def explain(description: Description, config: Config, root: str) -> Explanation:
    """Decide about a container on the evidence below `root`. Blocking: host read."""
    decider = Decider(evidence_reader_of(config, root).read, rules_of(config))
    pod, container = description.pod, description.container
    at_creation = container.state not in _EXISTS
    if at_creation:
        decision = decider.at_create(pod, container)
    else:
        pods = {container.sandbox_id: pod}
        [(_, decision)] = decider.at_synchronize(pods, [container])
    observed: Observed | None = None
    violations: tuple[Finding, ...] = ()
    if not at_creation and container.cgroups_path:
        entry = Entry(
            pod=pod, container=container, links=decision.links, envelope=decision.envelope
        )
        readback = ReadBack(CgroupReader(root), lambda: decider)
        observed, violations, _ = readback.check(entry, "explain", list)
    return Explanation(
        description=description,
        decision=decision,
        mode=config.mode.value,
        at_creation=at_creation,
        observed=observed,
        violations=violations,
        envelope={
            **envelope_document(decision.envelope, config.mode),
            "refusal": decision.refusal,
        },
    )


def _message(document: Mapping[str, Any], key: str, message: _M, notes: list[str]) -> _M:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise _bad(f"{key} is no object")
    strict = type(message)()
    try:
        return ParseDict(value, strict)
    except ParseError as first:
        try:
            parsed = ParseDict(value, message, ignore_unknown_fields=True)
        except ParseError as error:
            raise _bad(f"{key}: {error}") from error
        # Its first line names the field; the rest lists all that there are.
        notes.append(f"{key}: passed over: {str(first).splitlines()[0]}")
        return parsed


def _runtime(value: object, notes: list[str]) -> tuple[str, str, str]:
    if value is None:
        notes.append("no runtime given: an absent CDI device list is taken to say nothing")
        return "", "", ""
    if not isinstance(value, dict):
        raise _bad("runtime is no object")
    for key, text in value.items():
        if key not in _RUNTIME_KEYS:
            hint = "keys are " + ", ".join(_RUNTIME_KEYS)
            raise _bad(f"runtime has the unknown key {key!r}", hint=hint)
        if not isinstance(text, str):
            raise _bad(f"runtime.{key} is no text")
    name, version = value.get("name", ""), value.get("version", "")
    nri_version = value.get("nriVersion", "")
    if not is_known(name, version, nri_version):
        notes.append(
            f"runtime {name!r} {version!r} is not known: it is taken to report no CDI devices"
        )
    return name, version, nri_version


def _bad(problem: str, *, hint: str = "") -> UsageError:
    return UsageError(f"container description: {problem}", hint=hint, code=_CODE)
