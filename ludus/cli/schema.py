"""ludus schema"""

from __future__ import annotations

import argparse

from ludus.cli.command import Command
from ludus.cli.output import write_json


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="scenario|sweep",
        nargs="?",
        choices=("scenario", "sweep"),
        default="scenario",
        help="the files that it describes: those of `ludus train` (default), or those of `ludus sweep`",
    )


def _execute(options: argparse.Namespace) -> int:
    from ludus.apps.options.schema import scenario_schema, sweep_schema

    write_json(sweep_schema() if options.file == "sweep" else scenario_schema())
    return 0


COMMAND = Command(
    name="schema",
    summary="Print the JSON schema of scenario files or sweeps, by which editors complete and check YAML. A file whose first line is "
    "`# yaml-language-server: $schema=scenario.schema.json` names it.",
    examples=(
        ("ludus schema > scenario.schema.json", "in the folder of your scenario files"),
        ("ludus schema sweep > sweep.schema.json", "of sweeps"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
