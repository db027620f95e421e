"""From a scenario's YAML to its values, refusing whatever a typo could be.

Every key is known or named with its nearest neighbor; every name that is used was declared;
every CPU list that the scenario itself writes parses (what a pod author or driver wrote may be
as broken as one likes: those are `env`, and `cpus` of a claim marked `raw: true`). An error
says `file:line` and the field. A file with several mistakes is corrected one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from nri_claim2core.agent.config_load import nearest
from nri_claim2core.lab.scenario import (
    CLAIM_VERBS,
    CONTAINER_VERBS,
    FILE_VERBS,
    KIND,
    POD_VERBS,
    ClaimSpec,
    ContainerExpect,
    ContainerSpec,
    CpuManagerSpec,
    Driver,
    Expect,
    NodeSpec,
    NumaSpec,
    OtherPlugin,
    PodSpec,
    Scenario,
    Step,
    Verb,
    derived_uid,
)
from nri_claim2core.lab.yaml_tree import Item, parse
from nri_claim2core.model.claim import Verdict
from nri_claim2core.model.cpuset import parse_kubernetes, union
from nri_claim2core.model.envelope import Ownership
from nri_claim2core.model.errors import ConfigError, CpuListError
from nri_claim2core.nri.runtime.profiles_table import PROFILES

API_VERSION: Final = "claim2core.gthulhu.io/v1alpha1"
DEFAULT_RUNTIME: Final = "containerd-2.4"

_TOP = (
    "apiVersion", "kind", "name", "description", "runtime", "config", "node", "claims", "pods",
    "containers", "otherPlugins", "steps",
)  # fmt: skip
_INDEX: Final = re.compile("[0-9]{2}")
_CONTAINER_EXPECT = ("cpus", "mems", "shares", "verdicts", "ownership", "codes")
_STEP_OPTIONS: Final[Mapping[Verb, tuple[str, ...]]] = {
    Verb.UPDATE: ("cpus", "mems", "shares"),
    Verb.WRITE_FILE: ("text",),
}


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file.

    Raises: ConfigError with file and line. Blocking: host read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", code="C2C-LAB-11") from error
    return parse_scenario(data, str(path))


def parse_scenario(data: bytes, source: str) -> Scenario:
    """Read a scenario's bytes; `source` is its name in messages. Raises ConfigError."""
    root = parse(data, source)
    top = root.as_mapping(_TOP)
    _head(root, top)
    pods = {name: _pod(name, item) for name, item in _mapping(top, "pods").items()}
    containers = {
        key: _container(key, item, pods) for key, item in _mapping(top, "containers").items()
    }
    claims = {
        alias: _claim(alias, item, pods, containers)
        for alias, item in _mapping(top, "claims").items()
    }
    for key, item in _mapping(top, "containers").items():
        _check_claims(item, containers[key], claims)
    config = top.get("config")
    if config is not None:
        config.as_mapping()
    steps = tuple(
        _step(item, pods, containers, claims)
        for item in (top["steps"].as_list() if "steps" in top else [])
    )
    if not steps:
        raise root.error("no steps", hint="steps: [{runPod: NAME}, ...]")
    return Scenario(
        name=top["name"].as_text() if "name" in top else Path(source).stem,
        source=source,
        description=" ".join(_text(top, "description").split()),
        runtime=top["runtime"].one_of(PROFILES) if "runtime" in top else DEFAULT_RUNTIME,
        config=config.as_document() if config is not None else "",
        node=_node(top["node"], pods, containers) if "node" in top else None,
        claims=claims,
        pods=pods,
        containers=containers,
        other_plugins=tuple(
            _other_plugin(item, containers)
            for item in (top["otherPlugins"].as_list() if "otherPlugins" in top else [])
        ),
        steps=steps,
    )


def _head(root: Item, top: Mapping[str, Item]) -> None:
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if key not in top:
            raise root.error(f"{key} is missing", hint=f"{key}: {wanted}")
        top[key].one_of([wanted])


def _node(
    item: Item, pods: Mapping[str, PodSpec], containers: Mapping[str, ContainerSpec]
) -> NodeSpec:
    fields = item.as_mapping(("cpus", "possible", "isolated", "numa", "cpuManager"))
    numa = tuple(
        _numa(element) for element in (fields["numa"].as_list() if "numa" in fields else [])
    )
    if "cpus" in fields:
        online = _cpus(fields["cpus"])
    elif numa:
        online = str(union(parse_kubernetes(node.cpus) for node in numa))
    else:
        raise item.error("says neither cpus nor numa", hint="cpus: 0-7")
    return NodeSpec(
        online=online,
        possible=_cpus(fields["possible"]) if "possible" in fields else online,
        isolated=_cpus(fields["isolated"]) if "isolated" in fields else "",
        numa=numa or (NumaSpec(id=0, cpus=online),),
        cpu_manager=_cpu_manager(fields["cpuManager"], pods, containers)
        if "cpuManager" in fields
        else None,
    )


def _numa(item: Item) -> NumaSpec:
    fields = item.as_mapping(("id", "cpus", "memory"))
    if "id" not in fields:
        raise item.error("id is missing")
    return NumaSpec(
        id=fields["id"].as_int(),
        cpus=_cpus(fields["cpus"]) if "cpus" in fields else "",
        memory=fields["memory"].as_bool() if "memory" in fields else True,
    )


def _cpu_manager(
    item: Item, pods: Mapping[str, PodSpec], containers: Mapping[str, ContainerSpec]
) -> CpuManagerSpec:
    fields = item.as_mapping(("policy", "defaultCpus", "entries"))
    if "policy" not in fields:
        raise item.error("policy is missing", hint="none or static")
    entries = {}
    for key, value in _mapping(fields, "entries").items():
        _declared(value, key, containers, "container")
        _declared(value, key.partition("/")[0], pods, "pod")
        entries[key] = _cpus(value)
    return CpuManagerSpec(
        policy=fields["policy"].as_text(),
        default_cpus=_cpus(fields["defaultCpus"]) if "defaultCpus" in fields else "",
        entries=entries,
    )


def _pod(name: str, item: Item) -> PodSpec:
    fields = item.as_mapping(("uid", "namespace", "labels", "annotations"))
    if not name or "/" in name:
        raise item.error(f"{name!r} is no pod name")
    return PodSpec(
        name=name,
        uid=_text(fields, "uid") or derived_uid("pod", name),
        namespace=_text(fields, "namespace") or "default",
        labels={key: value.as_text() for key, value in _mapping(fields, "labels").items()},
        annotations={
            key: value.as_text() for key, value in _mapping(fields, "annotations").items()
        },
    )


def _container(key: str, item: Item, pods: Mapping[str, PodSpec]) -> ContainerSpec:
    fields = item.as_mapping(
        ("claims", "env", "envAfterCdi", "cdiDevices", "shares", "cpus", "mems")
    )
    pod, slash, name = key.partition("/")
    if not slash or not name or "/" in name:
        raise item.error(f"{key!r} is no container", hint="containers are called POD/NAME")
    _declared(item, pod, pods, "pod")
    return ContainerSpec(
        key=key,
        claims=_texts(fields, "claims"),
        env=_texts(fields, "env"),
        env_after_cdi=_texts(fields, "envAfterCdi"),
        cdi_devices=_texts(fields, "cdiDevices") if "cdiDevices" in fields else None,
        shares=fields["shares"].as_int() if "shares" in fields else 2,
        cpus=_cpus(fields["cpus"]) if "cpus" in fields else "",
        mems=_cpus(fields["mems"]) if "mems" in fields else "",
    )


def _claim(
    alias: str,
    item: Item,
    pods: Mapping[str, PodSpec],
    containers: Mapping[str, ContainerSpec],
) -> ClaimSpec:
    fields = item.as_mapping(
        ("uid", "cpus", "raw", "driver", "results", "pods", "prepared", "checkpointed")
    )
    if "cpus" not in fields:
        raise item.error("cpus is missing")
    raw = fields["raw"].as_bool() if "raw" in fields else False
    holders = tuple(dict.fromkeys(c.pod for c in containers.values() if alias in c.claims))
    if "pods" in fields:
        holders = _texts(fields, "pods")
        for pod in holders:
            _declared(fields["pods"], pod, pods, "pod")
    drivers = {driver.value: driver for driver in Driver}
    return ClaimSpec(
        alias=alias,
        uid=_text(fields, "uid") or derived_uid("claim", alias),
        cpus=fields["cpus"].as_text() if raw else _cpus(fields["cpus"]),
        driver=drivers[fields["driver"].one_of(drivers)] if "driver" in fields else Driver.DRA_CPU,
        results=fields["results"].as_int() if "results" in fields else 1,
        pods=holders,
        prepared=fields["prepared"].as_bool() if "prepared" in fields else True,
        checkpointed=fields["checkpointed"].as_bool() if "checkpointed" in fields else True,
    )


def _other_plugin(item: Item, containers: Mapping[str, ContainerSpec]) -> OtherPlugin:
    fields = item.as_mapping(("name", "index", "cpus"))
    for key in ("name", "index"):
        if key not in fields:
            raise item.error(f"{key} is missing")
    index = fields["index"].as_text()
    if not _INDEX.fullmatch(index):
        raise fields["index"].error(f"{index!r} is no plugin index", hint='two digits, like "90"')
    cpus = {}
    for key, value in _mapping(fields, "cpus").items():
        _declared(value, key, containers, "container")
        cpus[key] = _cpus(value)
    return OtherPlugin(name=fields["name"].as_text(), index=index, cpus=cpus)


def _check_claims(item: Item, spec: ContainerSpec, claims: Mapping[str, ClaimSpec]) -> None:
    for alias in spec.claims:
        _declared(item.as_mapping()["claims"], alias, claims, "claim")


def _step(
    item: Item,
    pods: Mapping[str, PodSpec],
    containers: Mapping[str, ContainerSpec],
    claims: Mapping[str, ClaimSpec],
) -> Step:
    verbs = {verb.value: verb for verb in Verb}
    fields = item.as_mapping((*verbs, "expect", "cpus", "mems", "shares", "text"))
    found = [key for key in fields if key in verbs]
    if len(found) != 1:
        what = "two events: " + ", ".join(found) if found else "no event"
        raise item.error(f"a step is one event, found {what}", hint="one of " + ", ".join(verbs))
    verb, target = verbs[found[0]], fields[found[0]]
    for key in fields:
        if key not in (found[0], "expect", *_STEP_OPTIONS.get(verb, ())):
            raise fields[key].error(f"{found[0]} takes no {key}")
    if verb in POD_VERBS:
        _declared(target, target.as_text(), pods, "pod")
    elif verb in CONTAINER_VERBS:
        _declared(target, target.as_text(), containers, "container")
    elif verb in CLAIM_VERBS:
        _declared(target, target.as_text(), claims, "claim")
    elif verb in FILE_VERBS:
        _inside(target)
    elif not target.is_null:
        raise target.error(f"{found[0]} takes no value")
    step = Step(
        verb=verb,
        line=target.line,
        target=target.as_text(),
        cpus=fields["cpus"].as_text() if "cpus" in fields else "",
        mems=fields["mems"].as_text() if "mems" in fields else "",
        shares=fields["shares"].as_int() if "shares" in fields else 0,
        text=_text(fields, "text"),
    )
    if "expect" not in fields:
        return step
    return replace(step, expect=_expect(fields["expect"], step, containers, claims))


def _expect(
    item: Item,
    step: Step,
    containers: Mapping[str, ContainerSpec],
    claims: Mapping[str, ClaimSpec],
) -> Expect:
    direct = _CONTAINER_EXPECT if step.verb in CONTAINER_VERBS else ()
    fields = item.as_mapping(("error", "containers", *direct))
    looked_at = {}
    for key, value in _mapping(fields, "containers").items():
        _declared(value, key, containers, "container")
        looked_at[key] = _container_expect(value.as_mapping(_CONTAINER_EXPECT), claims)
    own = {key: value for key, value in fields.items() if key in direct}
    if own:
        if step.target in looked_at:
            raise item.error(f"{step.target} is spoken of twice")
        looked_at[step.target] = _container_expect(own, claims)
    return Expect(error=_text(fields, "error") or None, containers=looked_at)


def _container_expect(
    fields: Mapping[str, Item], claims: Mapping[str, ClaimSpec]
) -> ContainerExpect:
    verdicts = None
    if "verdicts" in fields:
        verdicts = {}
        for alias, value in _mapping(fields, "verdicts").items():
            _declared(value, alias, claims, "claim")
            verdicts[alias] = value.one_of(verdict.value for verdict in Verdict)
    return ContainerExpect(
        cpus=_cpus(fields["cpus"]) if "cpus" in fields else None,
        mems=_cpus(fields["mems"]) if "mems" in fields else None,
        shares=fields["shares"].as_int() if "shares" in fields else None,
        verdicts=verdicts,
        ownership=fields["ownership"].one_of(each.value for each in Ownership)
        if "ownership" in fields
        else None,
        codes=_texts(fields, "codes") if "codes" in fields else None,
    )


def _mapping(fields: Mapping[str, Item], key: str) -> dict[str, Item]:
    return fields[key].as_mapping() if key in fields else {}


def _text(fields: Mapping[str, Item], key: str) -> str:
    return fields[key].as_text() if key in fields else ""


def _texts(fields: Mapping[str, Item], key: str) -> tuple[str, ...]:
    return fields[key].as_texts() if key in fields else ()


def _cpus(item: Item) -> str:
    """Canonical text of a CPU (or memory node) list."""
    try:
        return str(parse_kubernetes(item.as_text()))
    except CpuListError as error:
        raise item.error(error.message) from error


def _declared(item: Item, name: str, known: Mapping[str, object], what: str) -> None:
    if name not in known:
        raise item.error(f"no {what} {name!r} in this scenario", hint=nearest(name, list(known)))


def _inside(item: Item) -> None:
    parts = item.as_text().strip("/").split("/")
    if not parts[0] or any(part in ("", ".", "..") for part in parts):
        raise item.error(f"{item.as_text()!r} is no path inside the root")
