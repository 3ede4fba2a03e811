"""ludus schema"""

from __future__ import annotations

import argparse

from ludus.cli.command import Command
from ludus.cli.output import write_json


def _add_arguments(_: argparse.ArgumentParser) -> None:
    """It has none."""


def _execute(_: argparse.Namespace) -> int:
    from ludus.apps.options.schema import scenario_schema

    write_json(scenario_schema())
    return 0


COMMAND = Command(
    name="schema",
    summary="Print the JSON schema of scenario files, by which editors complete and check YAML. A file whose first line is "
    "`# yaml-language-server: $schema=scenario.schema.json` names it.",
    examples=(("ludus schema > scenario.schema.json", "in the folder of your scenario files"),),
    add_arguments=_add_arguments,
    execute=_execute,
)
