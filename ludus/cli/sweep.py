"""ludus sweep"""

from __future__ import annotations

import argparse
from pathlib import Path

from ludus.cli.command import Command, add_json, add_parallel, add_track, folder, track_overrides
from ludus.core.errors import ConfigError
from ludus.storage.run_dirs import check_run_name


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.yaml", help="sweep file: scenario, options, trials, sampler, pruner")
    parser.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        default=[],
        help="changes to the file, such as trials=50 or sampler.seed=1",
    )
    add_parallel(parser)
    add_json(parser)
    add_track(parser)
    parser.add_argument("--run-dir", type=folder, help="directory of the experiment (default: ./runs/<name>)")
    parser.add_argument("--name", help="name of the experiment (default: the scenario and the time)")


def _execute(options: argparse.Namespace) -> int:
    if options.name is not None:
        if options.run_dir is not None:
            raise ConfigError("--name and --run-dir were both given; --run-dir alone says where it is written.")
        check_run_name(options.name, "--name", more=", or give --run-dir")
    from ludus.apps.experiments.sweep import load_sweep, new_sweep
    from ludus.cli.experiment import resume_experiment_command

    sweep = load_sweep(Path(options.file), [*track_overrides(options, "changes.track"), *options.overrides])
    return resume_experiment_command(
        new_sweep(sweep, run_dir=options.run_dir, name=options.name), parallel=options.parallel, as_json=options.json
    )


COMMAND = Command(
    name="sweep",
    summary="Search the options of a scenario with Optuna; each trial is one run of an experiment.",
    examples=(
        ("ludus sweep lr.yaml", "as the file specifies; `ludus resume` continues it"),
        ("ludus sweep lr.yaml --track mlflow", "each trial is a run of an MLflow experiment"),
        ("ludus sweep lr.yaml trials=50 --name lr --parallel 2", "50 trials in ./runs/lr, two at a time"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
