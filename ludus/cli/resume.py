"""ludus resume"""

from __future__ import annotations

import argparse
from pathlib import Path

from ludus.cli.command import (
    Command,
    add_json,
    add_page,
    add_parallel,
    add_profile,
    add_runtime,
    add_track,
    prepare_processes,
    refuse_page,
    runtime_overrides,
    track_overrides,
    whole_number,
)
from ludus.core.errors import ConfigError
from ludus.storage.run_dirs import find_experiment, find_run


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="name of a run or experiment in ./runs, or its directory")
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="changes from now on, such as generations=40"
    )
    parser.add_argument("--algorithm", metavar="NAME", help="the same as algorithm=NAME")
    parser.add_argument("--seed", type=whole_number, help="must be the run's seed")
    add_profile(parser)
    add_page(parser)
    add_json(parser)
    add_parallel(parser)
    add_track(parser)
    add_runtime(parser)


def _execute(options: argparse.Namespace) -> int:
    named = [f"{name}={value}" for name in ("algorithm", "seed") if (value := getattr(options, name)) is not None]
    overrides = [*named, *runtime_overrides(options), *track_overrides(options), *options.overrides]
    if (folder := find_experiment(options.run)) is not None:
        return _experiment(folder, overrides, options)
    if options.parallel is not None:
        raise ConfigError(f"--parallel is for experiments, and {options.run!r} is none.")
    run_dir = find_run(options.run, zoo=False)
    prepare_processes(options)
    from ludus.cli.run_command import execute
    from ludus.runs.runner import resume

    return execute(
        lambda observer, stop: resume(run_dir, overrides, observer=observer, stop=stop),
        profile=options.profile,
        page=options.ui,
        as_json=options.json,
    )


def _experiment(folder: Path, overrides: list[str], options: argparse.Namespace) -> int:
    if options.profile:
        raise ConfigError(f"--profile is for one run, and {options.run!r} is an experiment.")
    refuse_page(options)
    from ludus.apps.common.experiments import read_experiment
    from ludus.cli.experiment import resume_experiment_command

    return resume_experiment_command(
        read_experiment(folder), overrides, parallel=options.parallel, as_json=options.json
    )


COMMAND = Command(
    name="resume",
    summary="Resume a stopped or killed run, or extend a finished one.",
    examples=(
        ("ludus resume leduc-20261120-120000", "continue from its last barrier"),
        ("ludus resume runs/leduc-20261120-120000 generations=40", "extend a finished run"),
        ("ludus resume try1 algorithms.player_1=dqn", "change one player's algorithm, by its agent's name"),
        ("ludus resume leduc-20261120-130000", "an experiment: resume its unfinished runs"),
        ("ludus resume leduc-20261120-120000 --workers 2", "with two worker processes from now on"),
        ("ludus resume leduc-20261120-120000 --track mlflow", "send its records to MLflow, earlier ones too"),
        ("ludus resume leduc-20261120-120000 --address 10.0.0.5:6379", "on another cluster"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
