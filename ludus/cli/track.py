"""ludus track"""

from __future__ import annotations

import argparse

from ludus.cli.command import Command
from ludus.cli.output import write

INCOMPLETE = 3
"""Exit code where a tracker does not have everything."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN|EXPERIMENT", help="name of a run or experiment in ./runs, or its directory")
    parser.add_argument(
        "trackers",
        metavar="NAME[,key=value…]",
        nargs="*",
        help="trackers, as `ludus train --track` takes them (default: those of the run)",
    )


def _execute(options: argparse.Namespace) -> int:
    from ludus.apps.tracking.session import track

    lines: list[str] = []
    sent = track(options.run, options.trackers or None, tell=lines.append)
    for line in lines:
        write(line)
    return 0 if all(one.complete for one in sent) else INCOMPLETE


COMMAND = Command(
    name="track",
    summary="Send what a run has recorded to trackers: Weights & Biases, MLflow, TensorBoard.",
    examples=(
        ("ludus track try1 mlflow", "a run that was trained without a tracker"),
        ("ludus track try1", "to its own trackers, what they lack: one was offline, or the run was killed with them"),
        ("ludus track leduc-20261120-130000 mlflow", "all runs of an experiment"),
        ("ludus track try1 wandb,project=leduc,mode=offline tensorboard", "to several, with options"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
