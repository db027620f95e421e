"""Choose the stage that this machine can carry, set everything up, play, take it down.

The newest containerd is preferred. Where there is none, no root, or it does not come up, the
embedded runtime takes its place and the reason is part of the stage's name - unless the caller
asked for a containerd by version: then its absence is an error.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from nri_claim2core.host.cgroup_mounts import find_hierarchy
from nri_claim2core.host.topology import read_topology
from nri_claim2core.lab.demo import Demo, workload_source
from nri_claim2core.lab.demo_containerd import ContainerdStage
from nri_claim2core.lab.demo_embedded import EmbeddedStage
from nri_claim2core.lab.demo_plan import plan_claims
from nri_claim2core.lab.demo_report import DemoReport
from nri_claim2core.lab.demo_stage import Stage
from nri_claim2core.lab.errors import LabError, MissingError
from nri_claim2core.lab.installation import Installation, find_installations
from nri_claim2core.lab.plugin_process import PluginProcess
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.errors import HostError
from nri_claim2core.model.topology import NodeTopology


def play(
    *,
    version: str | None,
    embedded: bool,
    announce: Callable[[str], None],
    say: Callable[[str], None],
) -> DemoReport:
    """Play the demo; `announce` is told the stage, then `say` each act.

    Blocking: until everything is removed again, also when it is interrupted by an exception.

    Raises: MissingError for what `version` needs and this machine lacks; LabError when not
    even a stage could be set up, or something could not be removed.
    """
    topology = read_topology()
    with (
        tempfile.TemporaryDirectory(prefix="c2c-plugin-") as directory,
        _stage(topology, version, embedded=embedded) as (stage, note),
    ):
        title = f"{stage.title}{note}"
        announce(title)
        plan = plan_claims(topology, stage.usable)
        with PluginProcess(Path(directory), stage.plugin_config, root=stage.root) as plugin:
            report = Demo(stage, plugin, plan, topology, say).play(_machine(topology))
            return replace(report, stage=title, plugin_log=plugin.log_tail())


@contextmanager
def _stage(
    topology: NodeTopology, version: str | None, *, embedded: bool
) -> Iterator[tuple[Stage, str]]:
    reason = "as asked for"
    if not embedded:
        try:
            stage = _containerd(version)
            stage.__enter__()
        except LabError as error:
            if version is not None:
                raise
            reason = error.message.splitlines()[0]
        else:
            try:
                yield stage, ""
            finally:
                stage.__exit__(None, None, None)
            return
    with EmbeddedStage(topology, CpuSet(os.sched_getaffinity(0))) as played:
        yield played, f" ({reason})"


def _containerd(version: str | None) -> ContainerdStage:
    if os.geteuid() != 0:
        raise MissingError("a containerd of our own needs root", hint="run it with sudo")
    return ContainerdStage(choose(find_installations(), version), workload_source())


def choose(found: list[Installation], version: str | None) -> Installation:
    """Give the newest containerd, or the newest whose version starts as asked.

    Raises: MissingError naming those that there are.
    """
    fitting = [
        each for each in found if version is None or f"{each.text}.".startswith(f"{version}.")
    ]
    if not fitting:
        there = ", ".join(each.text for each in found) or "none"
        wanted = f"containerd {version}" if version else "containerd"
        raise MissingError(f"no {wanted} on this machine (found: {there})", hint="run make setup")
    return fitting[-1]


def _machine(topology: NodeTopology) -> dict[str, str]:
    try:
        cgroups = find_hierarchy().layout.value
    except HostError:
        cgroups = "none"
    return {
        "Linux": platform.release(),
        "cgroups": cgroups,
        "CPUs": str(topology.online),
        "memory nodes": str(topology.memory_nodes),
    }
