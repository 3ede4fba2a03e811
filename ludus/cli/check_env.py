"""ludus check-env"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING

from ludus.cli.command import Command, positive_number, whole_number
from ludus.cli.output import stream, write
from ludus.core.errors import ConfigError, EnvError

if TYPE_CHECKING:
    from ludus.envs.base import VectorEnv
    from ludus.envs.config import Environment
    from ludus.testing.env import Check, Make

ELSEWHERE = "other processes"
"""The check of one's own environments that a command alone can make."""
_WIDTH = 18  # of the names of checks


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="family/name (`ludus list envs`), or a custom module:Class")
    parser.add_argument(
        "options",
        metavar="key=value",
        nargs="*",
        default=[],
        help="the environment's options, and tree, workers, deadline, restarts, wrappers",
    )
    parser.add_argument(
        "--num-envs", type=positive_number, default=4, help="number of environments stepped together (default: 4)"
    )
    parser.add_argument("--steps", type=positive_number, default=100, help="steps per check (default: 100)")
    parser.add_argument("--seed", type=whole_number, default=0, help="seed of the episodes and actions (default: 0)")


def _execute(options: argparse.Namespace) -> int:
    from ludus.testing.env import checks

    environment = _environment(options.id, options.options)

    def make(num_envs: int) -> VectorEnv:
        return environment.make(num_envs=num_envs)

    _make_once(make, options)
    write(
        f"{options.id}: {options.num_envs} environments, {options.steps} steps of random legal actions in each play\n"
    )
    results = checks(
        make, num_envs=options.num_envs, steps=options.steps, seed=options.seed, team="either", early_rewards=None
    )
    outcomes = []
    for check in chain(results, _elsewhere(environment)):
        _show(check)
        outcomes.append("left out" if check.skipped else "failed" if check.failure is not None else "passed")
    failed = outcomes.count("failed")
    if not failed:
        _show_speed(make, options.num_envs, options.seed)
    write("\n" + ", ".join(f"{outcomes.count(kind)} {kind}" for kind in ("passed", "left out", "failed")))
    return 2 if failed else 0


def _make_once(make: Make, options: argparse.Namespace) -> None:
    """What cannot be made at all is one error; it may be a setting with a typo."""
    from ludus.envs.config import Environment

    try:
        make(options.num_envs).close()
    except ConfigError as error:
        for key in (text.partition("=")[0] for text in options.options):
            meant = get_close_matches(key, Environment.model_fields, n=1)
            if meant and meant[0] != key:
                raise ConfigError(f"{error} Did you mean {meant[0]!r} by {key!r}?") from error
        raise


def _environment(id: str, assignments: list[str]) -> Environment:
    """Return what a scenario's `env` with these settings stands for; what is none of them is an option of the environment."""
    from ludus.core.config import override
    from ludus.envs.config import Environment

    options = override({}, assignments)
    if wrong := sorted({"id", "num_envs"} & set(options)):
        instead = "--num-envs" if wrong[0] == "num_envs" else "it before the settings"
        raise ConfigError(f"{wrong[0]}={options[wrong[0]]} was given among the settings; give {instead}.")
    settings = {key: options.pop(key) for key in list(options) if key in Environment.model_fields}
    settings["options"] = {**options, **settings.get("options", {})}
    return Environment(**{**settings, "id": id})


def _elsewhere(environment: Environment) -> Iterator[Check]:
    """Return whether one's own environment is the same game in another process, whose sets and hashes have another order."""
    from ludus.testing.env import Check

    if ":" not in environment.id or "/" in environment.id or environment.workers:
        return
    try:
        env, game = environment.make_described(num_envs=1)
        env.close()
        environment.of_game(game.model_copy(update={"there": "this process"})).model_copy(update={"workers": 1}).make(
            num_envs=1
        ).close()
    except EnvError as error:
        advice = "Let agents, their names and spaces be the same whenever the environment is made; runs are resumed in other processes."
        yield Check(ELSEWHERE, str(error), advice=advice, error=error)
    else:
        yield Check(ELSEWHERE)


def _show(check: Check) -> None:
    name = f"{check.name:<{_WIDTH}}"
    if check.failure is not None:
        write(f"✗ failed    {name}{_line(check.failure)}\n{'':<12}{'what to do:':<{_WIDTH}}{check.advice}")
    else:
        write(f"{'– left out' if check.skipped else '✓ passed  '}  {name}{check.note}".rstrip())
    stream().flush()  # each as soon as it is known: an environment may be slow


def _line(text: str) -> str:
    return " ".join(text.split())


def _show_speed(make: Make, num_envs: int, seed: int) -> None:
    from contextlib import closing

    from ludus.core import seeding
    from ludus.testing.env import measure_speed

    with closing(make(num_envs)) as env:
        try:
            speed = measure_speed(env, seeding.keys(seed, "speed", count=num_envs))
        except EnvError as error:  # it plays longer than the checks do
            write(f"\n{'speed':<{_WIDTH + 12}}not measured: {_line(str(error))}")
            return
    write(
        f"\n{'speed':<{_WIDTH + 12}}{speed.steps:,.0f} steps/s, {speed.decisions:,.0f} decisions/s, in {num_envs} environments"
    )


COMMAND = Command(
    name="check-env",
    summary="Check that an environment satisfies the contract of Ludus, and advise where it does not.",
    examples=(
        ("ludus check-env openspiel/leduc_poker tree=off", "a game, without its compiled tree"),
        ("ludus check-env gymnasium/CartPole-v1 --num-envs 64", "with 64 environments, and their speed"),
        ("ludus check-env my_module:MyEnv size=5", "a custom environment, with an option"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
