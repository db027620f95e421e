"""The plugins that are compared, and how each is started.

A candidate is a command line with placeholders: {socket} {index} {name} {config} {dir}
{python}. All run as external plugins against the same build of the Go runtime library.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.peers.go_runtime import GoRuntime, Line, PeerError, claim_uid, peer_binary
from nri_claim2core.nri import nri_pb2 as api

REPOSITORY = Path(__file__).parents[2]

INDEX = "50"
START_LIMIT_S = 30.0

GO = "go"
BINDING = "binding"
OURS = "ours"
NONE = "none"

TITLES: Mapping[str, str] = {
    OURS: "claim2core",
    BINDING: "bare Plugin",
    GO: "Go stub",
    NONE: "no plugin",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One plugin under measurement."""

    name: str
    command: Sequence[str]
    """Arguments with placeholders."""

    @property
    def title(self) -> str:
        """Heading of its column."""
        return TITLES[self.name]


def go_candidate() -> Candidate:
    """Give the yardstick. Raises: PeerMissingError when it has not been built."""
    return Candidate(
        name=GO,
        command=[str(peer_binary("minimal")), "-socket={socket}", "-idx={index}", "-name={name}"],
    )


def binding_candidate() -> Candidate:
    """Give the same plugin on our nri package, without the agent."""
    return Candidate(
        name=BINDING,
        command=["{python}", "-m", "e2e.bench.bare_plugin", "{socket}", "{index}", "{name}"],
    )


def own_candidate(command: str) -> Candidate:
    """Give the plugin role, started by `command` (shell words with placeholders)."""
    return Candidate(name=OURS, command=shlex.split(command))


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A runtime with one plugin attached, or none."""

    runtime: GoRuntime
    pid: int
    """Of the plugin, as the runtime sees it; 0 without a plugin."""
    to_register_ns: int
    """From before exec until the runtime got RegisterPlugin."""
    to_registered_ns: int
    """From before exec until the plugin was in the list of those that get events."""
    synchronized: Line
    """The event of its Synchronize."""


class Bench:
    """Starts candidates in a directory of its own."""

    def __init__(self, directory: Path, *, nr_claims: int, cgroup_parent: str) -> None:
        """Write the evidence for the claims that generated containers carry.

        `cgroup_parent` is where their cgroups are; empty = nowhere.
        """
        self.directory = directory
        self.nr_claims = nr_claims
        self.cgroup_parent = cgroup_parent
        self.root = directory / "root"
        write_evidence(self.root, nr_claims)

    @contextmanager
    def run(self, candidate: Candidate | None, *, containers: int = 0) -> Iterator[Running]:
        """Run a runtime with that many containers, and the candidate on it."""
        # A socket path may have 107 bytes.
        with tempfile.TemporaryDirectory(prefix="c2c-bench-") as place:
            socket_path = Path(place) / "nri.sock"
            with GoRuntime(socket_path, request_timeout_s=10.0) as runtime:
                if containers:
                    runtime.generate_state(containers, claims=self.nr_claims)
                runtime.start()
                if candidate is None:
                    yield Running(
                        runtime=runtime,
                        pid=0,
                        to_register_ns=0,
                        to_registered_ns=0,
                        synchronized={},
                    )
                    return
                yield from self._attach(candidate, runtime, Path(place))

    def _attach(self, candidate: Candidate, runtime: GoRuntime, place: Path) -> Iterator[Running]:
        config = place / "claim2core.yaml"
        config.write_text(configuration(runtime.socket_path, self.root))
        values = {
            "socket": str(runtime.socket_path),
            "index": INDEX,
            "name": candidate.name,
            "config": str(config),
            "dir": str(place),
            "python": sys.executable,
        }
        command = [word.format_map(values) for word in candidate.command]
        # Console scripts of the environment that runs the benchmark come first.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {**os.environ, "PATH": path}
        # The first start, which is not counted, compiles our modules, as an installer does.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        log = place / "plugin.log"
        with log.open("wb") as sink:
            seen = len(runtime.events)
            begin_ns = time.monotonic_ns()
            process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        try:
            try:
                register = wait_register(runtime, process, seen)
                registered = runtime.wait_registered(str(register["plugin"]), after=seen)
                synchronized = runtime.wait_event("synchronized", after=seen)
            except PeerError as error:
                said = log.read_text(errors="replace")[-2000:]
                raise PeerError(f"{shlex.join(command)}: {error}; it said: {said}") from error
            yield Running(
                runtime=runtime,
                # "external:50-go[1234]"
                pid=int(str(register["qualified"]).rpartition("[")[2].rstrip("]")),
                to_register_ns=register["mono_ns"] - begin_ns,
                to_registered_ns=registered["mono_ns"] - begin_ns,
                synchronized=synchronized,
            )
        finally:
            process.kill()
            process.wait()


def configuration(socket_path: Path, root: Path) -> str:
    """Give the plugin role's configuration; JSON is YAML."""
    return json.dumps(
        {
            "plugin": {"index": INDEX, "socketPath": str(socket_path)},
            "cdi": {"specDirs": [str(root / "var" / "run" / "cdi")]},
            "kubelet": {"root": str(root / "var" / "lib" / "kubelet")},
            "metrics": {"listen": ""},
        }
    )


def wait_register(runtime: GoRuntime, process: subprocess.Popen[bytes], seen: int) -> Line:
    """Wait for RegisterPlugin; gives up when the plugin's process has ended."""
    begin_s = time.monotonic()
    while True:
        ended = process.poll() is not None
        try:
            return runtime.wait_event("register", after=seen, wait_s=0.1 if ended else 1.0)
        except PeerError:
            if ended or time.monotonic() > begin_s + START_LIMIT_S:
                raise


def check_pins(runtime: GoRuntime, title: str) -> None:
    """Let a container with claim 0 be created. Raises: PeerError when it is not pinned to it.

    A plugin that answers quickly because it does nothing would make a fine benchmark.
    """
    uid = claim_uid(0)
    pod = api.PodSandbox(id="check-pod", name="check", uid="check", namespace="bench")
    container = api.Container(
        id="check",
        pod_sandbox_id=pod.id,
        name="check",
        env=[f"DRA_CPUSET_{uid}=0"],
        CDI_devices=[api.CDIDevice(name=f"dra.k8s.io/cpu=claim-{uid}")],
    )
    runtime.relay("run_pod", pod)
    created = runtime.relay("create", pod, container)
    if not created.ok or created.adjust.linux.resources.cpu.cpus != "0":
        raise PeerError(f"{title} did not pin a claiming container: {created.error or 'no cpus'}")
    for command in ("stop", "remove", "stop_pod", "remove_pod"):
        runtime.relay(command, pod, container)


def write_evidence(root: Path, nr_claims: int) -> None:
    """Write CDI specs as dra.cpu does, one claim per CPU, into a captured-root tree."""
    directory = root / "var" / "run" / "cdi"
    directory.mkdir(parents=True)
    devices = [
        {
            "name": f"claim-{claim_uid(claim)}",
            "containerEdits": {"env": [f"DRA_CPUSET_{claim_uid(claim)}={claim}"]},
        }
        for claim in range(nr_claims)
    ]
    spec = {"cdiVersion": "0.8.0", "kind": "dra.k8s.io/cpu", "devices": devices}
    (directory / "dra.cpu.json").write_text(json.dumps(spec))
