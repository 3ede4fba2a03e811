"""ludus check-env"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING, Any

from ludus.cli.command import Command, add_json, positive_number, seconds, whole_number
from ludus.cli.output import stream, write, write_json
from ludus.core.errors import ConfigError, EnvError

if TYPE_CHECKING:
    from ludus.envs.base import VectorEnv
    from ludus.envs.config import Environment
    from ludus.testing.detector.finding import Finding
    from ludus.testing.env import Check, Make, Speed

ELSEWHERE = "other processes"
"""The check of one's own environments that a command alone can make."""
_WIDTH = 20  # of the names of checks
_SIGNS = {"error": "✗ error   ", "warning": "! warning ", "note": "· note    "}


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
    parser.add_argument(
        "--episodes",
        type=positive_number,
        default=1000,
        help="random episodes that are searched for faults (default: 1000)",
    )
    parser.add_argument(
        "--seconds", type=seconds, default=10.0, help="time of that search, about; 0: only the checks (default: 10)"
    )
    parser.add_argument("--seed", type=whole_number, default=0, help="seed of the episodes and actions (default: 0)")
    add_json(parser)


def _execute(options: argparse.Namespace) -> int:
    from ludus.testing.env import checks

    environment = _environment(options.id, options.options)

    def make(num_envs: int) -> VectorEnv:
        return environment.make(num_envs=num_envs)

    _make_once(make, options)
    say = (lambda _: None) if options.json else write
    say(f"{options.id}: {options.num_envs} environments, {options.steps} steps of random legal actions in each play\n")
    results = []
    every = checks(
        make, num_envs=options.num_envs, steps=options.steps, seed=options.seed, team="either", early_rewards=None
    )
    for check in chain(every, _elsewhere(environment)):
        results.append(check)
        if not options.json:
            _show(check)
    failed = [check.name for check in results if check.failure is not None]
    speed, why = _speed(make, options) if not failed else (None, "")
    findings, play = _search(make, options, failed)
    findings = [*findings, *_of_the_package(environment)]
    if options.json:
        _write_json(options, results, findings, play, speed)
    else:
        _show_speed(speed, why, options.num_envs)
        _show_findings(findings, play)
        write("\n" + _totals(results, findings, searched=play is not None))
    return 1 if failed or any(one.severity == "error" for one in findings) else 0


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


def _speed(make: Make, options: argparse.Namespace) -> tuple[Speed | None, str]:
    """Return the speed; None and why, where it cannot be measured."""
    from contextlib import closing

    from ludus.core import seeding
    from ludus.testing.env import measure_speed

    with closing(make(options.num_envs)) as env:
        try:
            return measure_speed(env, seeding.keys(options.seed, "speed", count=options.num_envs)), ""
        except EnvError as error:  # it plays longer than the checks do
            return None, _line(str(error))


def _show_speed(speed: Speed | None, why: str, num_envs: int) -> None:
    name = f"\n{'speed':<{_WIDTH + 12}}"
    if speed is not None:
        write(f"{name}{speed.steps:,.0f} steps/s, {speed.decisions:,.0f} decisions/s, in {num_envs} environments")
    elif why:
        write(f"{name}not measured: {why}")


# --------------------------------------------------------------------------------------------------------------------
# The search for faults that the contract leaves open.


def _search(make: Make, options: argparse.Namespace, failed: list[str]) -> tuple[list[Finding], dict[str, Any] | None]:
    """Return (findings, what was played); nothing where the time is 0, or the description is wrong."""
    if not options.seconds or "description" in failed:
        return [], None
    from ludus.cli.progress_line import ProgressLine
    from ludus.testing.detector.detect import FAULT, detect
    from ludus.testing.detector.recording import Recording
    from ludus.testing.detector.session import Budget
    from ludus.testing.detector.summary import summarize

    line = ProgressLine(quiet=2.0, every=2.0, live=True)
    recordings: list[Recording] = []
    findings = list(
        detect(
            make,
            num_envs=options.num_envs,
            seed=options.seed,
            budget=Budget(seconds=options.seconds, episodes=options.episodes),
            progress=lambda text: line.say(f"searching for faults: {text}") if line.due() else None,
            recordings=recordings,
        )
    )
    line.close()
    others = [one for one in findings if not (failed and one.check == FAULT)]  # which a check has reported
    return others, summarize(recordings[0])


def _of_the_package(environment: Environment) -> Iterator[Finding]:
    """Yield what is known of the environment's package."""
    from ludus.envs.registry import package_faults
    from ludus.testing.detector.finding import Finding

    for sentence in package_faults(environment.id, environment.options):
        yield Finding("package", "note", sentence)


def _show_findings(findings: list[Finding], play: dict[str, Any] | None) -> None:
    if play is not None:
        write(f"\nsearched for faults in {play['episodes']:,} random episodes, {play['steps']:,} steps")
    for one in findings:
        write(f"{_SIGNS[one.severity]}  {one.check:<{_WIDTH}}{_line(one.sentence)}")
        for name, text in (("where:", one.place()), ("what to do:", one.advice)):
            if text:
                write(f"{'':<12}{name:<{_WIDTH}}{text}")


def _totals(results: list[Check], findings: list[Finding], *, searched: bool) -> str:
    from ludus.testing.detector.summary import check_data, count

    kinds = [check_data(check)["result"] for check in results]
    text = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("passed", "left out", "failed"))
    counts = ", ".join(f"{n} {name}{'s' * (n != 1)}" for name, n in count(findings).items())
    return f"{text}; {counts}" if searched or findings else text


def _write_json(
    options: argparse.Namespace,
    results: list[Check],
    findings: list[Finding],
    play: dict[str, Any] | None,
    speed: Speed | None,
) -> None:
    from dataclasses import asdict

    from ludus.core.jsonable import to_builtins
    from ludus.testing.detector.summary import check_data, count, finding_data

    data = {
        "id": options.id,
        "options": options.options,
        "num_envs": options.num_envs,
        "seed": options.seed,
        "checks": [check_data(check) for check in results],
        "findings": [finding_data(one) for one in findings],
        "counts": count(findings),
        "play": play,
        "speed": None if speed is None else asdict(speed),
    }
    write_json(to_builtins(data))


COMMAND = Command(
    name="check-env",
    summary="Check that an environment satisfies the contract of Ludus, search it for faults, and advise.",
    examples=(
        ("ludus check-env openspiel/leduc_poker tree=off", "a game, without its compiled tree"),
        ("ludus check-env gymnasium/CartPole-v1 --num-envs 64", "with 64 environments, and their speed"),
        ("ludus check-env my_module:MyEnv size=5", "a custom environment, with an option"),
        ("ludus check-env my_module:MyEnv --seconds 60 --json", "a longer search, for a program"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
