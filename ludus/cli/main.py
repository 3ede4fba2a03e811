"""The `ludus` command. Heavy modules are imported by the commands that need them, when they need them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ludus import __version__
from ludus.cli import config, evaluate, list_, report, resume, train
from ludus.cli.command import Command
from ludus.errors import LudusError, UnknownName

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (train.COMMAND, resume.COMMAND, evaluate.COMMAND, report.COMMAND, list_.COMMAND, config.COMMAND)
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code: 0 done, 2 refused (one line says why), 1 a fault of Ludus itself.

    LUDUS_DEBUG=1 shows tracebacks.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if os.environ.get("LUDUS_DEBUG", "") not in ("", "0"):
        return _run(arguments)
    try:
        return _run(arguments)
    except LudusError as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`ludus list envs | head`). Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  a fault of ours still ends in one line
        return _fail(f"{type(error).__name__}: {error} (a fault of Ludus; LUDUS_DEBUG=1 shows where)", 1)


def script() -> None:
    """The console entry point. As with `python -m`, a `module:Class` of the user's own is found in the working directory."""
    sys.path.insert(0, os.getcwd())
    sys.exit(main())


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_overview())
        return 0
    if arguments[0] == "--version":
        sys.stdout.write(f"ludus {__version__}\n")
        return 0
    command = COMMANDS.get(arguments[0])
    if command is None:
        raise UnknownName("command", arguments[0], COMMANDS)
    try:
        options = command.parse(arguments[1:])
    except SystemExit as done:  # argparse printed its help
        return int(done.code or 0)
    return command.execute(options)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {command.name:<{width}}   {command.summary}" for command in COMMANDS.values()]
    first = [
        f"  {line}" for line in ("ludus train leduc", "ludus train kuhn generations=5 --seed 1", "ludus list presets")
    ]
    return "\n".join(
        [
            "Trains populations of policies against each other.",
            "",
            "usage: ludus COMMAND [...]",
            "",
            "commands:",
            *lines,
            "",
            "`ludus COMMAND --help` says more.",
            "",
            "examples:",
            *first,
            "",
        ]
    )


def _fail(message: str, code: int) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return code
