"""ludus train"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.cli.command import (
    Command,
    add_json,
    add_page,
    add_parallel,
    add_profile,
    add_runtime,
    add_scenario,
    add_track,
    folder,
    prepare_processes,
    refuse_page,
    runtime_overrides,
    scenario_of,
    track_overrides,
)
from ludus.core.errors import ConfigError
from ludus.storage.run_dirs import check_run_name

if TYPE_CHECKING:
    from ludus.runs.control import StopRequest
    from ludus.runs.runner import Result
    from ludus.runs.scenario import Scenario
    from ludus.storage.base import Observer

_ASYNC_HERE = (
    "runtime.mode=async in one process: data are some versions old, and nobody plays while the learner learns. This is for looking at what "
    "old data do to a learner; what is faster is --runtime processes --workers N."
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument(
        "--seeds",
        metavar="N|LIST",
        help="run one run per seed as an experiment: N seeds (0 to N - 1), or a list such as 0-4 or 0,3,7",
    )
    add_parallel(parser)
    parser.add_argument("--run-dir", type=folder, help="directory of the run (default: ./runs/<name>)")
    add_profile(parser)
    add_page(parser)
    add_json(parser)
    add_track(parser)
    add_runtime(parser)
    parser.add_argument(
        "--name",
        help="name of the run (default: the scenario's name, else the preset or environment and the time)",
    )


def _execute(options: argparse.Namespace) -> int:
    _check_name(options.name, options.run_dir)
    if options.seeds is None:
        prepare_processes(options)
    scenario = scenario_of(options, *runtime_overrides(options), *track_overrides(options))
    if options.seeds is not None:
        return _train_seeds(scenario, options)
    if options.parallel is not None:
        raise ConfigError(
            f"--parallel {options.parallel} was given, and one run has nothing beside it. Give --seeds too."
        )
    scenario.runtime.prepare(learns=scenario.learns)
    from ludus.cli.run_command import execute
    from ludus.core.machine import available_cpus
    from ludus.runs.runner import run

    def go(observer: Observer, stop: StopRequest) -> Result:
        for hint in hints(scenario, cores=available_cpus()):
            observer.message(hint)
        return run(scenario, run_dir=options.run_dir, name=options.name, observer=observer, stop=stop)

    return execute(go, profile=options.profile, page=options.ui, as_json=options.json)


def _train_seeds(scenario: Scenario, options: argparse.Namespace) -> int:
    from ludus.apps.experiments.experiment import new_experiment, parse_seeds
    from ludus.cli.experiment import resume_experiment_command

    refuse_page(options)
    seeds = parse_seeds(options.seeds)
    if options.seed is not None or options.profile:
        option = "--profile" if options.seed is None else "--seed"
        raise ConfigError(f"{option} and --seeds were both given; {option} is for one run.")
    experiment = new_experiment(scenario, seeds, run_dir=options.run_dir, name=options.name)
    return resume_experiment_command(experiment, parallel=options.parallel, as_json=options.json)


def hints(scenario: Scenario, *, cores: int) -> Iterator[str]:
    """Yield what a user of one process, which may run on so many cores, would want to know before it starts."""
    from ludus.policies.specs import IMAGES

    runtime, algorithms = scenario.runtime, (scenario.algorithm, *scenario.algorithms.values())
    if runtime.kind != "inprocess":
        return
    if runtime.mode == "async":
        yield _ASYNC_HERE
    images = any(getattr(algorithm, key, None) in IMAGES for algorithm in algorithms for key in ("network", "body"))
    if images and runtime.threads == 1 < cores:
        yield f"learning from images, on one of {cores} cores: runtime.threads={cores} uses all of them, and rounds differently."


def _check_name(name: str | None, run_dir: Path | None) -> None:
    if name is None:
        return
    if run_dir is not None:
        raise ConfigError("--name and --run-dir were both given; --run-dir alone says where the run is written.")
    check_run_name(name, "--name", more=", or give --run-dir")


COMMAND = Command(
    name="train",
    summary="Train a preset, a scenario file or an environment in a new run.",
    examples=(
        ("ludus train leduc", "the preset, unchanged"),
        ("ludus train leduc generations=40 --seed 1", "more generations, another seed"),
        ("ludus train leduc --seeds 5", "an experiment of five runs, one per seed"),
        ("ludus train leduc --ui", "open the run's page in the browser"),
        (
            "ludus train leduc --track mlflow --track wandb,project=leduc",
            "send its records to MLflow and to Weights & Biases",
        ),
        ("ludus train leduc --track tensorboard", "write TensorBoard's files into the run's folder"),
        ("ludus train leduc --profile", "print a breakdown of the time at the end"),
        ("ludus train leduc --json > results.json", "results for programs; progress goes to standard error"),
        ("ludus train leduc --runtime processes --workers 8", "eight worker processes on this machine"),
        (
            "ludus train leduc --runtime processes --workers 8 --mode async",
            "the same, without waiting for the slowest worker",
        ),
        ("ludus train leduc --runtime ray --workers 64 --address 10.0.0.5:6379", "on a Ray cluster"),
        ("ludus train gymnasium/CartPole-v1 --algorithm dqn", "any environment, without a scenario file"),
        (
            "ludus train my.yaml algorithm.learning_rate=3e-4 --name try1",
            "your own scenario file, written to ./runs/try1",
        ),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
