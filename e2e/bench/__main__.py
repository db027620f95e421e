"""Compare our plugin with a minimal Go plugin, through the same Go runtime library.

usage: python -m e2e.bench [-o json] [--quick | --smoke] [--ours COMMAND] [--without ours,binding]

Candidates take turns in every measurement, so that a machine that gets busy in between
hits all of them. Each has a runtime of its own and is the only plugin on it; times are those
of the runtime, around the library call. Figures are reported, never enforced.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from e2e.bench.candidates import (
    BINDING,
    GO,
    NONE,
    OURS,
    TITLES,
    Bench,
    Candidate,
    Running,
    binding_candidate,
    check_pins,
    go_candidate,
    own_candidate,
)
from e2e.bench.cgroups import claim_cgroups
from e2e.bench.figures import Figure, Goal, quantile, table
from e2e.bench.machine import Machine, read_cpu_ms, read_machine, read_memory, wait_idle
from e2e.peers.go_runtime import PeerError

OWN_COMMAND = "{python} -m nri_claim2core.cli.main plugin --config {config} --run-dir {dir}"

# Containers before the counted ones of each round.
WARMUP = 20

SYNC_SIZES = (110, 500, 2000)

MIB_KIB = 1024.0
MS_NS = 1e6
US_NS = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    starts: int
    rounds: int
    calls: int
    """In each round, of each candidate."""
    syncs: int
    sample_s: float
    """How long to look at the machine's other work before."""


FULL = Size(starts=9, rounds=20, calls=250, syncs=5, sample_s=1.0)
QUICK = Size(starts=3, rounds=4, calls=100, syncs=1, sample_s=1.0)
SMOKE = Size(starts=1, rounds=1, calls=20, syncs=1, sample_s=0.1)

median = partial(quantile, share=0.5)
p99 = partial(quantile, share=0.99)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; exit code 3 when a part is missing on this machine."""
    options = parse_options(arguments)
    try:
        candidates = choose_candidates(options)
    except PeerError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 3
    size: Size = options.size
    machine = read_machine(size.sample_s)
    warn_if_busy(machine)
    with (
        tempfile.TemporaryDirectory(prefix="c2c-bench-") as directory,
        claim_cgroups(machine.cpus) as cgroup_parent,
    ):
        if not cgroup_parent:
            print("bench: no cgroups for containers: nothing is read back", file=sys.stderr)
        bench = Bench(Path(directory), nr_claims=machine.cpus, cgroup_parent=cgroup_parent)
        try:
            figures = [
                *measure_starts(bench, candidates, rounds=size.starts),
                *measure_calls(
                    bench, candidates, rounds=size.rounds, calls=size.calls, options=options
                ),
                *measure_sync(bench, candidates, rounds=size.syncs),
            ]
        except (PeerError, OSError) as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    document = report(machine, figures, candidates)
    if options.output == "json":
        print(json.dumps(document, indent=2))
    else:
        print_text(machine, figures, candidates)
    return 0


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench", description=__doc__)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--quick",
        dest="size",
        action="store_const",
        const=QUICK,
        help="in a few seconds, and less certain",
    )
    sizes.add_argument(
        "--smoke",
        dest="size",
        action="store_const",
        const=SMOKE,
        help="only shows that everything runs",
    )
    parser.set_defaults(size=FULL)
    parser.add_argument(
        "--ours",
        default=OWN_COMMAND,
        metavar="COMMAND",
        help="start of our plugin; placeholders {socket} {index} {name} {config} {dir} {python}",
    )
    parser.add_argument(
        "--without",
        default="",
        metavar="NAMES",
        help=f"leave out: {OURS}, {BINDING}",
    )
    parser.add_argument(
        "--pause-us", type=int, default=0, help="pause between containers: cold caches"
    )
    return parser.parse_args(arguments)


def choose_candidates(options: argparse.Namespace) -> list[Candidate]:
    """Give the candidates in the order of the columns."""
    left_out = set(filter(None, options.without.split(",")))
    chosen = []
    if OURS not in left_out:
        chosen.append(own_candidate(options.ours))
    if BINDING not in left_out:
        chosen.append(binding_candidate())
    return [*chosen, go_candidate()]


def warn_if_busy(machine: Machine) -> None:
    """Say on stderr when the machine has other work."""
    if machine.is_busy:
        print(
            f"bench: warning: other work uses {machine.busy_share:.0%} of {machine.cpus} CPUs "
            f"(load {machine.load1}); figures will be worse and uneven",
            file=sys.stderr,
        )


def progress(text: str) -> None:
    """Say on a terminal what takes its time."""
    if sys.stderr.isatty():
        print(f"bench: {text}", file=sys.stderr)


def measure_starts(bench: Bench, candidates: Sequence[Candidate], *, rounds: int) -> list[Figure]:
    """Start each candidate again and again on an empty node."""
    register = Figure(name="exec to RegisterPlugin, median", unit="ms", pick=median)
    registered = Figure(
        name="exec to registered, median", unit="ms", pick=median, goal=Goal(limit=250)
    )
    cpu = Figure(name="CPU time until idle, median", unit="ms", pick=median)
    idle = Figure(name="RSS idle, median", unit="MiB", pick=median, goal=Goal(limit=32))
    # The first start of each reads files from disk and is not counted.
    for number in range(-1, rounds):
        progress(f"start {number + 1} of {rounds}")
        for candidate in candidates:
            with bench.run(candidate) as running:
                if number < 0:
                    continue
                add(register, candidate, running.to_register_ns / MS_NS)
                add(registered, candidate, running.to_registered_ns / MS_NS)
                wait_idle(running.pid)
                add(cpu, candidate, read_cpu_ms(running.pid))
                add(idle, candidate, read_memory(running.pid).rss_kib / MIB_KIB)
    return [register, registered, cpu, idle]


def measure_calls(
    bench: Bench,
    candidates: Sequence[Candidate],
    *,
    rounds: int,
    calls: int,
    options: argparse.Namespace,
) -> list[Figure]:
    """Time what each candidate adds to CreateContainer and StartContainer, in turns."""
    create = [
        Figure(name="CreateContainer p50", unit="us", pick=median, goal=Goal()),
        Figure(name="CreateContainer p99", unit="us", pick=p99, goal=Goal()),
    ]
    start = [
        Figure(name="StartContainer p50", unit="us", pick=median, goal=Goal()),
        Figure(name="StartContainer p99", unit="us", pick=p99, goal=Goal()),
    ]
    cpu = Figure(name="CPU time per container life", unit="us", pick=median)
    after = Figure(name="RSS after the calls", unit="MiB", pick=median)
    cpu_us: dict[str, float] = {candidate.name: 0.0 for candidate in candidates}
    with ExitStack() as stack:
        attached: list[tuple[str, Running]] = [
            (candidate.name, stack.enter_context(bench.run(candidate))) for candidate in candidates
        ]
        for name, running in attached:
            check_pins(running.runtime, TITLES[name])
        attached.append((NONE, stack.enter_context(bench.run(None))))
        for number in range(-1, rounds):
            progress(f"calls, round {number + 1} of {rounds}")
            # Another order in each round: nobody always follows the same neighbor.
            turn = number % len(attached)
            for name, running in attached[turn:] + attached[:turn]:
                before_ms = read_cpu_ms(running.pid) if running.pid else 0.0
                create_ns, start_ns = running.runtime.bench(
                    calls,
                    warmup=WARMUP,
                    claims=bench.nr_claims,
                    cgroup_parent=bench.cgroup_parent,
                    pause_us=options.pause_us,
                )
                if number < 0:
                    continue
                if running.pid:
                    cpu_us[name] += (read_cpu_ms(running.pid) - before_ms) * 1000
                for figures, samples in ((create, create_ns), (start, start_ns)):
                    for figure in figures:
                        figure.samples.setdefault(name, []).extend(
                            value / US_NS for value in samples
                        )
        for name, running in attached:
            if running.pid:
                # One value for all rounds: a clock tick is as long as many calls.
                cpu.samples[name] = [cpu_us[name] / (rounds * (calls + WARMUP))]
                wait_idle(running.pid)
                memory = read_memory(running.pid)
                after.samples.setdefault(name, []).append(memory.rss_kib / MIB_KIB)
    return [*create, *start, cpu, after]


def measure_sync(bench: Bench, candidates: Sequence[Candidate], *, rounds: int) -> list[Figure]:
    """Register each candidate on nodes that already run containers."""
    figures = []
    for size in SYNC_SIZES:
        largest = size == SYNC_SIZES[-1]
        took = Figure(name=f"Synchronize of {size}, median", unit="ms", pick=median)
        memory = Figure(
            name=f"RSS after {size}, median",
            unit="MiB",
            pick=median,
            goal=Goal(limit=40) if largest else None,
        )
        peak = Figure(name=f"RSS peak of {size}, median", unit="MiB", pick=median)
        for number in range(rounds):
            progress(f"Synchronize of {size}, round {number + 1} of {rounds}")
            for candidate in candidates:
                with bench.run(candidate, containers=size) as running:
                    if running.synchronized["error"]:
                        raise PeerError(
                            f"{candidate.name}: Synchronize of {size} containers: "
                            f"{running.synchronized['error']}"
                        )
                    add(took, candidate, running.synchronized["duration_ns"] / MS_NS)
                    wait_idle(running.pid)
                    used = read_memory(running.pid)
                    add(memory, candidate, used.rss_kib / MIB_KIB)
                    add(peak, candidate, used.peak_kib / MIB_KIB)
        figures += [took, memory, *([peak] if largest else [])]
    return figures


def add(figure: Figure, candidate: Candidate, value: float) -> None:
    """Add one sample."""
    figure.samples.setdefault(candidate.name, []).append(value)


def report(
    machine: Machine, figures: Sequence[Figure], candidates: Sequence[Candidate]
) -> Mapping[str, object]:
    """Give the JSON document."""
    return {
        "apiVersion": "claim2core.gthulhu.io/v1alpha1",
        "kind": "BenchReport",
        "machine": machine.to_json(),
        "yardstick": GO,
        "candidates": [{"name": each.name, "command": list(each.command)} for each in candidates],
        "figures": [figure.to_json(GO, NONE) for figure in figures],
    }


def print_text(
    machine: Machine, figures: Sequence[Figure], candidates: Sequence[Candidate]
) -> None:
    """Print machine, table and what to make of it."""
    columns = {each.name: TITLES[each.name] for each in candidates} | {NONE: TITLES[NONE]}
    ours = OURS if OURS in columns else candidates[0].name
    print(
        f"{machine.cpus} CPUs ({machine.model}), Linux {machine.kernel}, Python {machine.python}, "
        f"load {machine.load1}, others used {machine.busy_share:.0%} before the run"
    )
    print(table(figures, columns, yardstick=GO, baseline=NONE, ours=ours))
    print(
        "Times are the runtime's, around the call of the Go NRI library; ratios below 1 are in "
        "our favor; goals are for the first column and are not enforced."
    )


if __name__ == "__main__":
    sys.exit(main())
