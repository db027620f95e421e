"""Run tests, or one command, inside the virtual machine.

    python -m e2e.vm                                          all tests of the tier
    python -m e2e.vm [--cpus N] [--nodes M] -- e2e/test_bed.py -k restart
    python -m e2e.vm --shell 'cat /sys/kernel/sched_ext/state'

The guest is made first where it is missing or not up to date (`e2e/setup/vm.sh`, minutes).
Exit code: that of pytest or the command; 77 when this machine cannot run the guest (1 where
CLAIM2CORE_REQUIRE names `vm`), 1 when the guest broke. A run that failed keeps its directory
and says where it is.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from e2e.vm.machine import GuestError, Outcome, Shape, find_image, run_guest
from e2e.vm.payload import FIRST_MASK, GUEST_REPO, REPO, write_payload
from e2e.vm.tier import TIER
from nri_claim2core.lab.errors import LabError, MissingError
from nri_claim2core.lab.workload import PREBUILT

_EXIT_BROKEN = 1
_EXIT_MISSING = 77
_SETUP_CANNOT = 3
_SETUP = REPO / "e2e" / "setup" / "vm.sh"
_PYTEST = (
    "python3 -m pytest -v --color=no -p no:cacheprovider -p e2e.vm.keep_logs"
    " --junitxml=/c2c/out/junit.xml"
)
# What the guest needs to boot, and to bring its results when its command was cut short.
_AROUND_THE_COMMAND_S = 60
_KILL_AFTER_S = 20


def required(environment: Mapping[str, str]) -> list[str]:
    """Names in CLAIM2CORE_REQUIRE."""
    names = environment.get("CLAIM2CORE_REQUIRE", "").split(",")
    return [name.strip() for name in names if name.strip()]


def parse(arguments: list[str]) -> argparse.Namespace:
    """Command line; what follows `--` is pytest's."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.vm", description="Run tests in a virtual machine."
    )
    parser.add_argument("--cpus", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=2, help="memory nodes, CPUs dealt evenly")
    parser.add_argument("--memory", type=int, default=3072, metavar="MIB")
    parser.add_argument("--deadline", type=float, default=1200, metavar="S", help="of the guest")
    parser.add_argument("--keep", action="store_true", help="keep the results of a good run too")
    parser.add_argument("--shell", metavar="COMMAND", help="run this instead of pytest")
    parser.add_argument(
        "pytest", nargs="*", metavar="ARG", help="arguments of pytest (all tests of the tier)"
    )
    return parser.parse_args(arguments)


def guest_script(options: argparse.Namespace, environment: Mapping[str, str]) -> str:
    """Shell script that runs in the guest; `environment` is the host's.

    The command gets SIGINT a minute before the guest's deadline, so that one that hangs still
    brings its logs.
    """
    series = {name for name in required(environment) if name.startswith("containerd-")}
    exported = {
        "CLAIM2CORE_CACHE": "/opt/claim2core/cache",
        "CLAIM2CORE_GUEST": f"{options.cpus},{options.nodes}",
        # The distribution's own containerd is always in the image.
        "CLAIM2CORE_REQUIRE": ",".join(sorted({"containerd-2.1", *series})),
        "CLAIM2CORE_TIME_SCALE": environment.get("CLAIM2CORE_TIME_SCALE", "10"),
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in exported.items()]
    lines.append(f"[ ! -e /c2c/in/{FIRST_MASK} ] || export {PREBUILT}=/c2c/in/{FIRST_MASK}")
    lines.append(f"cd /c2c/in/{GUEST_REPO}")
    command = options.shell or f"{_PYTEST} {shlex.join(options.pytest or TIER)}"
    limit_s = max(options.deadline - _AROUND_THE_COMMAND_S, options.deadline / 2)
    limits = f"--signal=INT --kill-after={_KILL_AFTER_S} {limit_s:g}"
    lines.append(f"exec timeout {limits} sh -c {shlex.quote(command)}")
    return "\n".join(lines) + "\n"


def make_guest() -> None:
    """Make the guest where it is missing or not up to date.

    Raises: MissingError when this machine cannot have it; LabError when its making broke.
    Blocking: minutes the first time.
    """
    done = subprocess.run([_SETUP], stderr=subprocess.PIPE, text=True, check=False)
    said = done.stderr.strip()
    if done.returncode == _SETUP_CANNOT:
        raise MissingError(said.removeprefix(f"{_SETUP.name}: cannot be had here: "))
    if done.returncode != 0:
        raise LabError(f"{_SETUP} failed with code {done.returncode}: {said}")


def run(options: argparse.Namespace) -> Outcome:
    """Boot, run, bring back; raises as `run_guest` does."""
    make_guest()
    image = find_image()
    shape = Shape(cpus=options.cpus, nodes=options.nodes, memory_mib=options.memory)
    print(f"vm: Linux {image.release}, {shape.cpus} CPUs, {shape.nodes} nodes", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="c2c-vm-"))
    try:
        payload = directory / "payload.tar"
        write_payload(payload, guest_script(options, os.environ))
        outcome = run_guest(
            image,
            payload,
            directory,
            shape=shape,
            deadline_s=options.deadline,
            say=lambda line: print(line, flush=True),
        )
        payload.unlink()
    except GuestError:
        raise
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return outcome


def main(arguments: list[str]) -> int:
    """Run and report."""
    options = parse(arguments)
    try:
        outcome = run(options)
    except MissingError as error:
        print(f"vm: cannot run here: {error}", file=sys.stderr)
        return _EXIT_BROKEN if "vm" in required(os.environ) else _EXIT_MISSING
    except LabError as error:
        print(f"vm: {error}", file=sys.stderr)
        return _EXIT_BROKEN
    print(f"vm: up after {outcome.boot_s:.1f} s, off after {outcome.total_s:.1f} s")
    if outcome.exit_code == 0 and not options.keep:
        shutil.rmtree(outcome.directory)
    else:
        print(f"vm: exit {outcome.exit_code}; console, dmesg and logs are in {outcome.directory}")
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
