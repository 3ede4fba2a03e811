"""ludus config"""

from __future__ import annotations

import argparse

from ludus.cli.command import Command, whole_number
from ludus.cli.output import write


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenario", metavar="PRESET|FILE.yaml", help="a preset (`ludus list presets`) or a scenario file"
    )
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="changes to it, such as oracle.learning_rate=3e-4"
    )
    parser.add_argument("--seed", type=whole_number, help="seed of all random streams")


def _execute(options: argparse.Namespace) -> int:
    from ludus.scenario import load_scenario

    write(load_scenario(options.scenario, options.overrides, options.seed).to_yaml())
    return 0


COMMAND = Command(
    name="config",
    summary="Print a scenario resolved in full, as YAML that `ludus train` takes.",
    examples=(
        ("ludus config leduc", "every setting of the preset"),
        ("ludus config leduc oracle.entropy=0.01 > my.yaml", "a scenario of your own"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
