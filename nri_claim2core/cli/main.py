"""The command `nri-claim2core`: find the command, let its module parse and run, render errors.

A command is a module of this package and one line in `commands_table`. The module gives

    DESCRIPTION: str                           what it does, for its --help
    def add_arguments(parser) -> None          its arguments (an argparse parser)
    def run(args) -> int                       do it; returns one of `output.ExitCode`

and imports whatever weighs anything inside `run`. It raises `Claim2CoreError` for what the
user has to know; this module prints message, hint and code and chooses the exit code. Results
go through `output.emit`, so that `-o table|json|yaml` means the same everywhere. Only the
module of the command that was asked for is imported: the plugin role starts through here.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from nri_claim2core.cli.commands_table import COMMANDS

PROGRAM: Final = "nri-claim2core"

_USAGE: Final = 2
_INTERRUPTED: Final = 130
"""128 + SIGINT, as shells report it."""
_PIPE_CLOSED: Final = 141
"""128 + SIGPIPE: whoever read our output has seen enough."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give the exit code of the process."""
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes once more at exit; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    return code


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())  # noqa: T201
        return 0 if arguments else _USAGE
    name = "version" if arguments[0] in ("-V", "--version") else arguments[0]
    if name not in COMMANDS:
        print(_unknown(name), file=sys.stderr)  # noqa: T201
        return _USAGE
    return _run(name, arguments[1:])


def _run(name: str, arguments: list[str]) -> int:
    import argparse  # noqa: PLC0415 - not needed for --help

    from nri_claim2core.model.errors import Claim2CoreError  # noqa: PLC0415

    module = importlib.import_module(COMMANDS[name][0])
    parser = argparse.ArgumentParser(prog=f"{PROGRAM} {name}", description=module.DESCRIPTION)
    module.add_arguments(parser)
    args = parser.parse_args(arguments)
    try:
        return int(module.run(args))
    except Claim2CoreError as error:
        from nri_claim2core.cli.output import report_error  # noqa: PLC0415

        return int(report_error(error))


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items())
    return f"""usage: {PROGRAM} COMMAND [ARGUMENT ...]

Makes DRA claims hold on the node: containers are linked to their claims and
kept on the claims' CPUs and memory nodes.

commands:
{commands}

`{PROGRAM} COMMAND --help` explains a command.

exit codes: 0 done   1 findings of severity error   2 wrong usage
            3 what was asked for cannot be reached   4 nothing found"""


def _unknown(name: str) -> str:
    import difflib  # noqa: PLC0415

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"commands: {', '.join(COMMANDS)}"
    return f"error: no command {name!r}\n  hint: {hint}"


if __name__ == "__main__":
    sys.exit(main())
