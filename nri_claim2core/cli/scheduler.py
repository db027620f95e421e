"""`scheduler`: keep the sched_ext scheduler attached, or attach, detach and look at it once."""

from __future__ import annotations

import argparse
import signal
from typing import TYPE_CHECKING, Any, Final

from nri_claim2core.cli import output
from nri_claim2core.cli.arguments import add_root_argument

if TYPE_CHECKING:
    from nri_claim2core.agent.scheduler import Situation

DESCRIPTION: Final = (
    "The sched_ext scheduler that follows the plugin's maps. It is opt-in: without it every task"
    " stays with the kernel's own scheduler, and cpusets hold all the same."
)

_PIN_DIR: Final = "/sys/fs/bpf/claim2core"
_RUN_DIR: Final = "/run/claim2core"

_NEXT: Final = {
    "maps-only": "nothing to do: this kernel cannot load one",
    "no-maps": "start the plugin with scheduling on",
    "foreign": "end the other scheduler, then `nri-claim2core scheduler load`",
    "running": "",
    "stale": "`nri-claim2core scheduler load` attaches it to the new maps",
    "ejected": "see the reason, then `nri-claim2core scheduler load`",
    "stopped": "`nri-claim2core scheduler load` attaches it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("run", "Acts: attach it and keep it attached until SIGTERM; it then stays attached."),
        ("load", "Acts: attach it once, if no other scheduler is active."),
        ("unload", "Acts: detach it and remove its pins; the plugin's maps stay."),
        ("status", "Say whether it is attached, and what it counted. Reads only."),
    ):
        action = actions.add_parser(
            name, help=text.partition(". ")[0].rstrip("."), description=text
        )
        action.add_argument(
            "--pin-dir", default=_PIN_DIR, metavar="DIR", help="where the maps are pinned"
        )
        if name != "run":
            output.add_output_argument(action)
        if name == "status":
            add_root_argument(action)
        else:
            action.add_argument(
                "--run-dir", default=_RUN_DIR, metavar="DIR", help="where lock and last dump are"
            )


def run(args: argparse.Namespace) -> int:
    """Do what `action` says."""
    return _ACTIONS[args.action](args)


def _run(args: argparse.Namespace) -> int:
    from nri_claim2core.agent.instance import InstanceLock  # noqa: PLC0415 - help comes at once
    from nri_claim2core.agent.logs import configure_logging  # noqa: PLC0415
    from nri_claim2core.agent.scheduler import SchedulerRole  # noqa: PLC0415

    configure_logging("info", "auto")
    role = SchedulerRole(args.pin_dir, run_dir=args.run_dir)
    with InstanceLock(args.run_dir, "scheduler"):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: role.stop())
        role.run()
    return output.ExitCode.OK


def _load(args: argparse.Namespace) -> int:
    from nri_claim2core.agent.instance import InstanceLock  # noqa: PLC0415
    from nri_claim2core.agent.scheduler import load  # noqa: PLC0415

    with InstanceLock(args.run_dir, "scheduler"):
        return _show(args, load(args.pin_dir))


def _unload(args: argparse.Namespace) -> int:
    from nri_claim2core.agent.instance import InstanceLock  # noqa: PLC0415
    from nri_claim2core.agent.scheduler import look, unload  # noqa: PLC0415

    with InstanceLock(args.run_dir, "scheduler"):
        unload(args.pin_dir)
        return _show(args, look(args.pin_dir))


def _status(args: argparse.Namespace) -> int:
    from nri_claim2core.agent.scheduler import look  # noqa: PLC0415

    return _show(args, look(args.pin_dir, args.root))


def _show(args: argparse.Namespace, found: Situation) -> int:
    from nri_claim2core.agent.scheduler import Phase, read_counters  # noqa: PLC0415

    counters = read_counters(args.pin_dir)
    made = output.document("SchedulerStatus", _fields(found, counters))
    output.emit(args.output, made, lambda: _text(found, counters))
    is_bad = found.phase in (Phase.EJECTED, Phase.STALE)
    return output.ExitCode.FINDINGS if is_bad else output.ExitCode.OK


def _fields(found: Situation, counters: dict[str, int]) -> dict[str, Any]:
    record = found.exit
    return {
        "phase": found.phase.value,
        "detail": found.words,
        "kernel": {
            "state": found.kernel.state.value,
            "ops": found.kernel.ops,
            "enableSeq": found.kernel.enable_seq,
            "switchAll": found.kernel.switch_all,
            "nrRejected": found.kernel.nr_rejected,
        },
        "linkPinned": found.is_pinned,
        "counters": counters,
        "exit": None
        if record is None
        else {
            "kind": record.kind,
            "code": record.code,
            "reason": record.reason,
            "message": record.message,
        },
    }


def _text(found: Situation, counters: dict[str, int]) -> str:
    lines = [
        f"Scheduler  {found.phase.value}",
        output.paragraph(found.words, indent="  "),
        f"Kernel     {found.kernel.state.value}"
        + (f", scheduler {output.printable(found.kernel.ops)}" if found.kernel.ops else ""),
    ]
    lines += [f"  {name:<24} {value}" for name, value in counters.items()]
    if step := _NEXT[found.phase.value]:
        lines.append(output.paragraph(f"Next: {step}", hanging="  "))
    return "\n".join(lines)


_ACTIONS: Final = {"run": _run, "load": _load, "unload": _unload, "status": _status}
