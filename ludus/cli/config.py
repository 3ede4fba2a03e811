"""ludus config"""

from __future__ import annotations

import argparse

from ludus.cli.command import Command, add_scenario, scenario_of
from ludus.cli.output import write


def _execute(options: argparse.Namespace) -> int:
    write(scenario_of(options).to_yaml())
    return 0


COMMAND = Command(
    name="config",
    summary="Print a scenario resolved in full, as YAML that `ludus train` takes.",
    examples=(
        ("ludus config leduc", "every setting of the preset"),
        ("ludus config gymnasium/CartPole-v1 --algorithm dqn", "what there is for an environment, to start from"),
        ("ludus config leduc algorithm.entropy=0.01 > my.yaml", "a scenario of your own"),
    ),
    add_arguments=add_scenario,
    execute=_execute,
)
