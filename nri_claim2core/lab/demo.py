"""The demo's script: what happens to a node in a day, in about half a minute.

Each act does one thing a node does - a pod starts, kubelet changes a cpuset, a plugin dies - and
then asks the kernel where every container may run. Expectations are written down before: a
claiming container has exactly its claims' CPUs and their memory nodes, from its first
instruction on; one without claims has all; one that was created while no plugin ran is put on
its CPUs later and keeps its memory nodes. What fails is said in words, and the play goes on as
far as it can.

The script plays the driver and kubelet as well: CDI specs and the checkpoint are written before
a pod's containers are created, and removed after the pod is gone.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nri_claim2core.lab import node
from nri_claim2core.lab.demo_plan import DemoPlan
from nri_claim2core.lab.demo_report import DemoReport, Row
from nri_claim2core.lab.demo_stage import Confinement, Running, Stage
from nri_claim2core.lab.patience import SCALE
from nri_claim2core.lab.plugin_process import PluginProcess
from nri_claim2core.model.cpuset import CpuSet, union
from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.model.topology import NodeTopology

_START_EVENTS: Final = ("CreateContainer", "PostCreateContainer", "StartContainer")
_UPDATE_EVENTS: Final = ("UpdateContainer", "PostUpdateContainer")
_SETTLE_DEADLINE_S: Final = 5.0 * SCALE
_POLL_S: Final = 0.01


class Demo:
    """One performance; `say` is told what is going on, one line at a time."""

    def __init__(
        self,
        stage: Stage,
        plugin: PluginProcess,
        plan: DemoPlan,
        topology: NodeTopology,
        say: Callable[[str], None],
    ) -> None:
        self._stage = stage
        self._plugin = plugin
        self._plan = plan
        self._topology = topology
        self._say = say
        self._claims: dict[str, tuple[str, CpuSet]] = {}
        self._holders: dict[str, tuple[str, ...]] = {}
        self._pods: dict[str, str] = {}
        self._running: list[Running] = []
        self._moved: dict[str, CpuSet] = {}
        self._unattended: set[str] = set()
        self._rows: list[Row] = []
        self._failures: list[str] = []
        self._times: dict[str, float] = {}

    def play(self, machine: Mapping[str, str]) -> DemoReport:
        """Play all acts and report. Raises nothing that an act may raise."""
        try:
            self._play()
        except Claim2CoreError as error:
            self._failures.append(f"the demo stopped: {error}")
        return DemoReport(
            stage=self._stage.title,
            machine=machine,
            rows=tuple(self._rows),
            times_ms={name: round(seconds * 1e3, 1) for name, seconds in self._times.items()},
            not_shown=(*self._plan.limits, *self._stage.limits),
            failures=tuple(
                [f"{row.act}: {row.container}: {why}" for row in self._rows for why in row.failures]
                + self._failures
            ),
        )

    def _play(self) -> None:
        first, second = self._plan.first, self._plan.second
        self._times["pluginStartToRegistered"] = self._plugin.start()

        act = self._begin("two claims")
        self._prepare({"c": first, "d": second}, "wide")
        self._start(act, "wide", "main", ("c", "d"))
        self._end_pod("wide")

        act = self._begin("one claim")
        self._prepare({"a": first}, "solver")
        solver = self._start(act, "solver", "main", ("a",))

        act = self._begin("claim shared")
        self._prepare({"b": second}, "pair")
        for name in ("one", "two"):
            self._start(act, "pair", name, ("b",))

        act = self._begin("no claim")
        self._prepare({}, "plain")
        plain = self._start(act, "plain", "main", ())

        # The second is the control: without a claim the same update does move a container.
        act = self._begin(f"update to {self._plan.elsewhere}")
        self._update(act, solver)
        self._update(act, plain)

        act = self._begin("restart")
        self._stage.stop(solver)
        self._running.remove(solver)
        solver = self._start(act, "solver", "main", ("a",), attempt=1)

        act = self._begin("plugin killed")
        self._plugin.kill()
        self._look_at_all(act, asking_plugin=False)
        late = self._start_unattended(act, "pair", "late", ("b",))

        act = self._begin("plugin back")
        self._times["pluginRestartToRegistered"] = self._plugin.start()
        self._settle(late)
        self._look_at_all(act)

        act = self._begin("runtime restart")
        before = self._plugin.registrations()
        self._stage.restart_runtime()
        self._times["runtimeBackToRegistered"] = self._plugin.wait_registered(before + 1)
        self._look_at_all(act)

        act = self._begin("and still")
        self._update(act, solver)
        self._start(act, "solver", "second", ("a",))

    def _begin(self, act: str) -> str:
        self._say(act)
        return act

    def _prepare(self, claims: Mapping[str, CpuSet], pod: str) -> None:
        """Let a pod be admitted: its claims prepared, its checkpoint stored, its sandbox run."""
        self._pods[pod] = str(uuid.uuid4())
        self._holders[pod] = tuple(claims)
        for alias, cpus in claims.items():
            self._claims[alias] = (str(uuid.uuid4()), cpus)
            node.write_dra_cpu_spec(self._stage.cdi_dir, self._claims[alias][0], str(cpus))
        self._write_checkpoint()
        self._stage.run_pod(pod, self._pods[pod])

    def _end_pod(self, pod: str) -> None:
        """Let a pod go: its containers and sandbox removed, its claims unprepared."""
        self._stage.remove_pod(pod)
        self._running = [each for each in self._running if each.pod != pod]
        for alias in self._holders.pop(pod):
            uid, _ = self._claims.pop(alias)
            node.remove_dra_cpu_spec(self._stage.cdi_dir, uid)
        del self._pods[pod]
        self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        node.write_dra_manager_state(
            self._stage.kubelet_dir,
            [
                node.PreparedClaim(
                    uid=self._claims[alias][0],
                    name=alias,
                    namespace="default",
                    pod_uids=[self._pods[pod]],
                    cdi_device_ids=[node.dra_cpu_device(self._claims[alias][0])],
                )
                for pod, aliases in self._holders.items()
                for alias in aliases
            ],
        )

    def _start(
        self, act: str, pod: str, name: str, claims: Sequence[str], *, attempt: int = 0
    ) -> Running:
        container = self._launch(pod, name, claims, attempt)
        self._look(act, container, self._stage.first_act(container), events=_START_EVENTS)
        return container

    def _start_unattended(self, act: str, pod: str, name: str, claims: Sequence[str]) -> Running:
        """Start a container while no plugin runs: unconfined now, to be put right later."""
        container = self._launch(pod, name, claims, 0)
        self._unattended.add(container.id)
        found = self._stage.confinement(container)
        failures = _differences("", self._plan.usable, self._topology.memory_nodes, found)
        self._rows.append(
            Row(
                act=act,
                container=container.title,
                claims=tuple(claims),
                asked=self._asked(container),
                cpus=found.cpus,
                mems=found.mems,
                first_act=self._stage.first_act(container).cpus,
                failures=tuple(failures),
                remark="no plugin",
            )
        )
        return container

    def _launch(self, pod: str, name: str, claims: Sequence[str], attempt: int) -> Running:
        devices = [node.dra_cpu_device(self._claims[alias][0]) for alias in claims]
        container = self._stage.start(pod, name, devices, attempt=attempt)
        self._running.append(container)
        return container

    def _update(self, act: str, container: Running) -> None:
        """Try to move a container as kubelet's CPU manager would."""
        if not self._aliases(container):
            self._moved[container.id] = self._plan.elsewhere
        self._stage.update(container, self._plan.elsewhere)
        self._look(act, container, events=_UPDATE_EVENTS)

    def _look_at_all(self, act: str, *, asking_plugin: bool = True) -> None:
        for container in self._running:
            self._look(act, container, asking_plugin=asking_plugin)

    def _look(
        self,
        act: str,
        container: Running,
        first: Confinement | None = None,
        *,
        events: Iterable[str] = (),
        asking_plugin: bool = True,
    ) -> None:
        aliases = self._aliases(container)
        asked = self._asked(container)
        # Memory nodes are set at creation only: what was allocated since stays where it is.
        has_own_nodes = aliases and container.id not in self._unattended
        mems = (
            self._topology.memory_nodes_of(asked) if has_own_nodes else self._topology.memory_nodes
        )
        found = self._stage.confinement(container)
        failures = _differences("", asked, mems, found)
        if first is not None:
            failures += _differences("at its first instruction ", asked, mems, first)
        verdicts: dict[str, str] = {}
        added: dict[str, float] = {}
        if asking_plugin and aliases:
            known = self._known(container)
            verdicts = {link["claimUid"]: link["verdict"] for link in known.get("links", ())}
            added = {e: ms for e, ms in known.get("addedMs", {}).items() if e in events}
            expected = {self._claims[alias][0] for alias in aliases}
            if set(verdicts) != expected or set(verdicts.values()) != {"verified"}:
                failures.append(f"the plugin says {verdicts or 'nothing'} of its claims")
        self._rows.append(
            Row(
                act=act,
                container=container.title,
                claims=aliases,
                asked=asked,
                cpus=found.cpus,
                mems=found.mems,
                first_act=first.cpus if first is not None else None,
                verdict=",".join(sorted(set(verdicts.values()))),
                added_ms=added,
                failures=tuple(failures),
            )
        )

    def _settle(self, container: Running) -> None:
        """Wait until the runtime has applied what the Synchronize reply asked for."""
        asked = self._asked(container)
        deadline = time.monotonic() + _SETTLE_DEADLINE_S
        while self._stage.confinement(container).cpus != asked and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _aliases(self, container: Running) -> tuple[str, ...]:
        return tuple(
            alias
            for alias, (uid, _) in self._claims.items()
            if node.dra_cpu_device(uid) in container.devices
        )

    def _asked(self, container: Running) -> CpuSet:
        """Where it has to be: on its claims' CPUs, else where it was moved, else anywhere."""
        claimed = union(self._claims[alias][1] for alias in self._aliases(container))
        return claimed or self._moved.get(container.id, self._plan.usable)

    def _known(self, container: Running) -> dict[str, Any]:
        for known in self._plugin.state().get("containers", ()):
            if known["container"]["id"] == container.id:
                return dict(known)
        return {}


def _differences(when: str, cpus: CpuSet, mems: CpuSet, found: Confinement) -> list[str]:
    differences = []
    if found.cpus != cpus:
        differences.append(f"{when}it may use CPUs {found.cpus}, expected {cpus}")
    if found.mems is not None and found.mems != mems:
        differences.append(f"{when}it may use memory nodes {found.mems}, expected {mems}")
    return differences


def workload_source() -> Path | None:
    """Give the C source of the workload in a checkout, None in an installed package."""
    source = Path(__file__).parents[2] / "e2e" / "workload" / "firstmask.c"
    return source if source.is_file() else None
