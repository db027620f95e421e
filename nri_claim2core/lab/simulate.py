"""Play a scenario: our plugin against the embedded runtime, in a node made of files.

Everything is real but the containers: the plugin's code, the messages over a socket, the files
it reads. A step is one call to the runtime or one change of the node; it is over, with all its
events answered, before the next begins. An error that no step expects is a failed check, so
that a scenario without expectations still says when something was refused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from nri_claim2core.host.topology import read_topology
from nri_claim2core.lab.expectations import check_container, check_error
from nri_claim2core.lab.messages import container_id, container_message, pod_message
from nri_claim2core.lab.plugin_in_process import AttachedPlugin, InProcessPlugin, read_config
from nri_claim2core.lab.replies import reply_of
from nri_claim2core.lab.scenario import NodeSpec, OtherPlugin, Scenario, Step, Verb
from nri_claim2core.lab.simulated_kernel import SimulatedKernel
from nri_claim2core.lab.simulation_report import (
    Check,
    ContainerState,
    SimulationReport,
    StepReport,
)
from nri_claim2core.lab.world import World
from nri_claim2core.model.cpuset import parse_kubernetes
from nri_claim2core.model.errors import Claim2CoreError, UsageError
from nri_claim2core.model.topology import NodeTopology, NumaNode
from nri_claim2core.nri import Call, Plugin
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime import CallResult, EmbeddedRuntime, Exchange

_NOTHING: Final = CallResult()


def simulate(
    scenario: Scenario, *, root: Path | None = None, runtime: str | None = None
) -> SimulationReport:
    """Play a scenario in `root` (kept afterwards) or in a temporary directory.

    `runtime` plays it on another runtime than it names.

    Raises: ConfigProblems for its configuration, UsageError for a root or runtime that cannot
    be used. Blocking: milliseconds per step.
    """
    with ExitStack() as stack:
        if root is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="c2c-simulate-"))
            root = Path(directory)
        return Simulation(scenario, World(root), runtime or scenario.runtime).play()


class Simulation:
    """One run of one scenario in one world."""

    def __init__(self, scenario: Scenario, world: World, profile: str) -> None:
        self._scenario = scenario
        self._world = world
        self._config = read_config(scenario.config, scenario.source)
        self._attempts: dict[str, int] = {}
        self._kernel = SimulatedKernel(world, self._prepare_world())
        self._runtime = EmbeddedRuntime(profile, backend=self._kernel)
        self._ours: InProcessPlugin | None = None
        self._others = [
            AttachedPlugin(_CpusetPlugin(self._ids_of(other)), other.name, other.index)
            for other in scenario.other_plugins
        ]

    def play(self) -> SimulationReport:
        """Play all steps."""
        try:
            for other in self._others:
                other.attach(self._runtime)
            self._start_plugin()
            steps = [self._step(step) for step in self._scenario.steps]
            containers = [self._state(key) for key in self._attempts]
        finally:
            self._runtime.close()
            for plugin in (*self._others, *([self._ours] if self._ours else [])):
                plugin.join()
        return SimulationReport(
            name=self._scenario.name,
            source=self._scenario.source,
            description=self._scenario.description,
            runtime=self._runtime.profile.key,
            steps=steps,
            containers=[state for state in containers if state is not None],
        )

    def _prepare_world(self) -> NodeTopology:
        spec = self._scenario.node
        if spec is None:
            topology = read_topology(str(self._world.root))
        else:
            topology = topology_of(spec)
            self._world.write_topology(topology)
            if spec.cpu_manager is not None:
                self._world.write_cpu_manager(spec.cpu_manager, self._scenario.pods)
        self._world.prepare(
            [claim for claim in self._scenario.claims.values() if claim.prepared],
            self._scenario.pods,
        )
        return topology

    def _step(self, step: Step) -> StepReport:
        self._runtime.clear_events()
        error = ""
        logged: tuple[str, ...] = ()
        try:
            result = self._do(step)
        except Claim2CoreError as failure:
            error = failure.message
        else:
            error = result.error.message if result.error is not None else ""
            logged = tuple(each.message for each in result.logged)
        names = {self._id(key): key for key in self._attempts}
        return StepReport(
            line=step.line,
            title=step.title,
            error=error,
            logged=logged,
            replies=tuple(
                reply_of(entry, names)
                for entry in self._runtime.events
                if isinstance(entry, Exchange)
            ),
            checks=tuple(self._checks(step, error)),
        )

    def _checks(self, step: Step, error: str) -> list[Check]:
        expect = step.expect
        checks = check_error(expect.error if expect is not None else None, error)
        for key, wanted in (expect.containers if expect is not None else {}).items():
            state = self._state(key)
            if state is None:
                checks.append(Check(what=key, expected="exists", found="does not exist", ok=False))
            else:
                shares = self._runtime.container(state.id).linux.resources.cpu.shares.value
                checks += check_container(wanted, state, shares, self._scenario.claims)
        return checks

    def _do(self, step: Step) -> CallResult:
        verb, target, scenario = step.verb, step.target, self._scenario
        if verb in _ON_PODS:
            return _ON_PODS[verb](self._runtime, pod_message(scenario.pods[target]))
        if verb is Verb.CREATE:
            return self._create(target)
        if verb is Verb.UPDATE:
            resources = api.LinuxResources()
            resources.cpu.cpus, resources.cpu.mems = step.cpus, step.mems
            resources.cpu.shares.value = step.shares
            return self._runtime.update_container(self._existing(target), resources)
        if verb in _ON_CONTAINERS:
            return _ON_CONTAINERS[verb](self._runtime, self._existing(target))
        self._change(step)
        return _NOTHING

    def _change(self, step: Step) -> None:
        verb, claims, pods = step.verb, self._scenario.claims, self._scenario.pods
        match verb:
            case Verb.PREPARE:
                self._world.prepare([claims[step.target]], pods)
            case Verb.UNPREPARE:
                self._world.unprepare(claims[step.target], pods)
            case Verb.REMOVE_SPEC:
                self._world.remove_spec(claims[step.target])
            case Verb.WRITE_FILE:
                self._world.write_file(step.target, step.text)
            case Verb.REMOVE_FILE:
                self._world.remove_file(step.target)
            case Verb.RESTART_RUNTIME:
                self._restart_runtime()
            case Verb.STOP_PLUGIN:
                self._stop_plugin()
            case Verb.START_PLUGIN:
                self._start_plugin()
            case Verb.RESTART_PLUGIN:
                self._stop_plugin()
                self._start_plugin()
            case _:
                raise UsageError(f"{verb.value} is no change of the node")

    def _create(self, key: str) -> CallResult:
        spec = self._scenario.containers[key]
        attempt = self._attempts.get(key, -1) + 1
        message = container_message(
            self._scenario.pods[spec.pod], spec, self._scenario.claims, attempt
        )
        self._attempts[key] = attempt
        return self._runtime.create_container(message.pod_sandbox_id, message)

    def _start_plugin(self) -> None:
        if self._ours is not None:
            raise UsageError("the plugin runs already")
        ours = InProcessPlugin(self._config, self._world.root)
        ours.attach(self._runtime)
        self._ours = ours

    def _stop_plugin(self) -> None:
        if self._ours is None:
            raise UsageError("the plugin does not run")
        self._ours.detach(self._runtime)
        self._ours = None

    def _restart_runtime(self) -> None:
        self._runtime.restart()
        for plugin in (*self._others, *([self._ours] if self._ours else [])):
            plugin.join()
            plugin.attach(self._runtime)

    def _id(self, key: str) -> str:
        spec = self._scenario.containers[key]
        attempt = self._attempts[key]
        return container_id(self._scenario.pods[spec.pod], spec.name, attempt)

    def _existing(self, key: str) -> str:
        if key not in self._attempts or self._id(key) not in self._runtime.node.containers:
            raise UsageError(f"{key} does not exist: it was not created, or refused, or removed")
        return self._id(key)

    def _ids_of(self, other: OtherPlugin) -> dict[str, str]:
        """Pod UID and container name, as the plugin sees them, to CPUs."""
        containers, pods = self._scenario.containers, self._scenario.pods
        return {
            f"{pods[containers[key].pod].uid}/{containers[key].name}": cpus
            for key, cpus in other.cpus.items()
        }

    def _state(self, key: str) -> ContainerState | None:
        own = self._id(key) if key in self._attempts else ""
        record = self._runtime.node.containers.get(own)
        if record is None:
            return None
        cpus, mems = self._kernel.in_force(record.spec)
        return ContainerState(
            key=key,
            id=own,
            phase=record.phase.value,
            cpus=str(cpus),
            mems=str(mems),
            known=self._ours.entry(own) if self._ours is not None else {},
        )


class _CpusetPlugin(Plugin):
    """Sets CPUs at creation, as resource managers among NRI plugins do."""

    def __init__(self, cpus: Mapping[str, str]) -> None:
        super().__init__()
        self._cpus = cpus

    def create_container(
        self, request: api.CreateContainerRequest, call: Call
    ) -> api.CreateContainerResponse | None:
        """Set what was given for this container."""
        del call
        cpus = self._cpus.get(f"{request.pod.uid}/{request.container.name}")
        if cpus is None:
            return None
        response = api.CreateContainerResponse()
        response.adjust.linux.resources.cpu.cpus = cpus
        return response


_ON_PODS: Final[Mapping[Verb, Callable[[EmbeddedRuntime, api.PodSandbox], CallResult]]] = {
    Verb.RUN_POD: lambda runtime, pod: runtime.run_pod(pod),
    Verb.STOP_POD: lambda runtime, pod: runtime.stop_pod(pod.id),
    Verb.REMOVE_POD: lambda runtime, pod: runtime.remove_pod(pod.id),
}
_ON_CONTAINERS: Final[Mapping[Verb, Callable[[EmbeddedRuntime, str], CallResult]]] = {
    Verb.START: EmbeddedRuntime.start_container,
    Verb.STOP: EmbeddedRuntime.stop_container,
    Verb.REMOVE: EmbeddedRuntime.remove_container,
}


def topology_of(spec: NodeSpec) -> NodeTopology:
    """Give the topology that a scenario describes."""
    online = parse_kubernetes(spec.online)
    possible = parse_kubernetes(spec.possible) | online
    return NodeTopology(
        online=online,
        possible=possible,
        present=possible,
        isolated=parse_kubernetes(spec.isolated),
        nodes=tuple(
            NumaNode(id=node.id, cpus=parse_kubernetes(node.cpus) & online, has_memory=node.memory)
            for node in sorted(spec.numa, key=lambda node: node.id)
        )
        or (NumaNode(id=0, cpus=online, has_memory=True),),
    )
