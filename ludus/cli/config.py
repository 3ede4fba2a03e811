"""ludus config"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ludus.cli.command import Command, add_scenario, changes_of
from ludus.cli.output import write

if TYPE_CHECKING:
    from ludus.runs.scenario_runtime import RuntimeChoice


def _execute(options: argparse.Namespace) -> int:
    from ludus.core.errors import LudusError, one_line
    from ludus.runs.assembly import learner_placements
    from ludus.runs.scenario_defaults import complete
    from ludus.runs.scenario_files import read_scenario

    scenario, lines = read_scenario(options.scenario, changes_of(options), options.seed), list[str]()
    try:
        scenario = complete(scenario)
    except LudusError as error:
        lines = [f"what is not given follows from the environment, and cannot be said here: {one_line(error)}"]
    write(scenario.to_yaml())
    for line in (*lines, *_where(scenario.runtime, lambda: learner_placements(scenario))):
        write(f"# {line}\n")
    return 0


def _where(runtime: RuntimeChoice, placements: Callable[[], Mapping[str, str]]) -> Iterator[str]:
    """Yield where it would be learned on this machine, and why, as far as that can be said here."""
    from ludus.backend.device import AUTO
    from ludus.core.errors import LudusError
    from ludus.storage.base import merged

    yield _plays(runtime)
    if runtime.device == "auto":
        yield f"device auto: {AUTO}"
    try:
        yield from (f"learns on {place}" for place in merged(placements()))
    except LudusError as error:
        yield f"where it learns cannot be said here: {' '.join(str(error).split())}"


def _plays(runtime: RuntimeChoice) -> str:
    """Return where it would be played."""
    if runtime.kind == "inprocess":
        return "plays in this process"
    where = {
        "processes": "of this machine",
        "ray": f"of the Ray at {runtime.address}" if runtime.address else "of a Ray that is started here",
    }.get(runtime.kind, f"of {runtime.kind}")
    return f"plays in {runtime.workers} {'process' if runtime.workers == 1 else 'processes'} {where}"


COMMAND = Command(
    name="config",
    summary="Print a scenario with all its settings, as YAML for `ludus train`, and the devices it would use.",
    examples=(
        ("ludus config leduc", "every setting of the preset; the last lines name the devices, and why"),
        ("ludus config gymnasium/CartPole-v1 --algorithm dqn", "the default scenario of an environment, as a start"),
        ("ludus config leduc algorithm.entropy=0.01 > my.yaml", "write your own scenario file"),
    ),
    add_arguments=add_scenario,
    execute=_execute,
)
