"""ludus sweep"""

from __future__ import annotations

import argparse
from pathlib import Path

from ludus.cli.command import Command, add_json, add_parallel, folder
from ludus.core.errors import ConfigError
from ludus.storage.run_dirs import check_run_name


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.yaml", help="what is swept: scenario, options, trials, sampler, pruner")
    parser.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        default=[],
        help="changes to it, such as trials=50 or sampler.seed=1",
    )
    add_parallel(parser)
    add_json(parser)
    parser.add_argument("--run-dir", type=folder, help="where the experiment is written (default: ./runs/<name>)")
    parser.add_argument("--name", help="name of the experiment (default: the scenario and the time)")


def _execute(options: argparse.Namespace) -> int:
    if options.name is not None:
        if options.run_dir is not None:
            raise ConfigError("--name and --run-dir were both given; --run-dir alone says where it is written.")
        check_run_name(options.name, "--name", more=", or give --run-dir")
    from ludus.apps.experiments.sweep import load_sweep, new_sweep
    from ludus.cli.experiment import go_on

    sweep = load_sweep(Path(options.file), options.overrides)
    return go_on(
        new_sweep(sweep, run_dir=options.run_dir, name=options.name), parallel=options.parallel, as_json=options.json
    )


COMMAND = Command(
    name="sweep",
    summary="Search the options of a scenario with Optuna; each trial is a run of one experiment.",
    examples=(
        ("ludus sweep lr.yaml", "as the file says; `ludus resume` goes on with it"),
        ("ludus sweep lr.yaml trials=50 --name lr --parallel 2", "more trials, into ./runs/lr, two at a time"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
