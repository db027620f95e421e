"""Run tests, or one command, inside the virtual machine.

    python -m e2e.vm [--cpus N] [--nodes M] -- e2e/test_bed.py -k restart
    python -m e2e.vm --shell 'cat /sys/kernel/sched_ext/state'

Exit code: that of pytest or the command; 3 when this machine cannot run the guest (1 where
CLAIM2CORE_REQUIRE names `vm`), 1 when the guest broke. A run that failed keeps its directory
and says where it is.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from e2e.vm.machine import GuestError, Outcome, Shape, find_image, run_guest
from e2e.vm.payload import FIRST_MASK, GUEST_REPO, write_payload
from nri_claim2core.lab.errors import LabError, MissingError
from nri_claim2core.lab.workload import PREBUILT

_EXIT_BROKEN = 1
_EXIT_MISSING = 3
_PYTEST = "python3 -m pytest --color=no -p no:cacheprovider --junitxml=/c2c/out/junit.xml"


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
    parser.add_argument("pytest", nargs="*", metavar="ARG", help="arguments of pytest")
    return parser.parse_args(arguments)


def guest_script(options: argparse.Namespace) -> str:
    """Shell script that runs in the guest."""
    environment = {
        "CLAIM2CORE_CACHE": "/opt/claim2core/cache",
        "CLAIM2CORE_TIME_SCALE": os.environ.get("CLAIM2CORE_TIME_SCALE", "10"),
        "CLAIM2CORE_REQUIRE": "containerd-2.1",
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines.append(f"[ ! -e /c2c/in/{FIRST_MASK} ] || export {PREBUILT}=/c2c/in/{FIRST_MASK}")
    lines.append(f"cd /c2c/in/{GUEST_REPO}")
    lines.append(options.shell or f"{_PYTEST} {shlex.join(options.pytest)}")
    return "\n".join(lines) + "\n"


def run(options: argparse.Namespace) -> Outcome:
    """Boot, run, bring back; raises as `run_guest` does."""
    image = find_image()
    shape = Shape(cpus=options.cpus, nodes=options.nodes, memory_mib=options.memory)
    print(f"vm: Linux {image.release}, {shape.cpus} CPUs, {shape.nodes} nodes", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="c2c-vm-"))
    try:
        payload = directory / "payload.tar"
        write_payload(payload, guest_script(options))
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
        required = "vm" in os.environ.get("CLAIM2CORE_REQUIRE", "").split(",")
        return _EXIT_BROKEN if required else _EXIT_MISSING
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
