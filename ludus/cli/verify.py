"""ludus verify"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ludus.cli.command import Command
from ludus.cli.output import table, write, write_json
from ludus.storage.run_dirs import find_experiment, find_run, run_name

DAMAGED = 2
"""Exit code where something is damaged."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN|EXPERIMENT", help="name of a run or experiment in ./runs, or its directory")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _execute(options: argparse.Namespace) -> int:
    from ludus.apps.hub.copies import verify, without_hashes

    folder = find_experiment(options.run) or find_run(options.run, zoo=False)
    damages = verify(folder)
    rows = [(name, damage.place, damage.what, damage.cost) for name, listed in damages.items() for damage in listed]
    if options.json:
        write_json(
            {name or run_name(folder): [asdict(damage) for damage in listed] for name, listed in damages.items()}
        )
    elif not rows:
        write(f"{run_name(folder)}: nothing is damaged.")
        if old := [name for name in damages if without_hashes(folder / name)]:
            where = f" of {', '.join(old)}" if old != [""] else ""
            write(
                f"The rows{where} have no hashes, so changed numbers are not seen: an earlier version of Ludus wrote them. "
                "`ludus resume` adds them."
            )
    else:
        columns = ("run", "where", "damage", "what it costs")
        table(columns, [(name or run_name(folder), *others) for name, *others in rows], left=(0, 1, 2, 3))
    return DAMAGED if rows else 0


COMMAND = Command(
    name="verify",
    summary="Check the files and the database of a run or an experiment, and say what each damage costs.",
    examples=(
        ("ludus verify try1", "files, rows of the database, checkpoints, scenario"),
        ("ludus verify try1 --json", "the same for programs"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
