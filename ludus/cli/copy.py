"""ludus copy"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from ludus.cli.command import Command
from ludus.cli.output import facts
from ludus.core.errors import ConfigError
from ludus.storage.run_dirs import RUNS, check_run_name, find_experiment, find_run, run_name


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN|EXPERIMENT", help="name of a run or experiment in ./runs, or its directory")
    parser.add_argument(
        "to", metavar="NAME|DIRECTORY", help="name of the copy in ./runs, or a directory (with a /), new or empty"
    )


def _execute(options: argparse.Namespace) -> int:
    from ludus.apps.hub.copies import copy_run

    source = find_experiment(options.run) or find_run(options.run, zoo=False)
    target = Path(options.to)
    if "/" not in options.to:
        check_run_name(options.to, "NAME")
        target = RUNS / options.to
    if target.resolve().is_relative_to(source.resolve()):
        raise ConfigError(f"{options.to!r} lies in what is to be copied. Give another directory.")
    missing = copy_run(source, target, message=lambda text: _say(f"{text}\n"))
    pairs = [("copy", str(target)), *(("damaged", line) for line in missing)]
    again = f"ludus {'verify' if missing else 'resume'} {shlex.quote(run_name(target))}"
    facts(source.name, [*pairs, ("continue", again)])
    return 0


def _say(text: str) -> None:
    sys.stderr.write(text)


COMMAND = Command(
    name="copy",
    summary="Copy a run or an experiment, also while it runs.",
    examples=(
        ("ludus copy try1 try1-backup", "into ./runs/try1-backup"),
        ("ludus copy try1 /backup/try1", "into a directory"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
