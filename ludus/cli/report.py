"""ludus report"""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

from ludus.cli.command import Command
from ludus.cli.compare import add_comparison, compared, left_out
from ludus.cli.output import write
from ludus.core.errors import ConfigError
from ludus.storage.run_dirs import find_experiment, find_run


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN|EXPERIMENT",
        nargs="+",
        help="name of a run in ./runs, or its directory (works while the run is still running); several runs, or an experiment, are "
        "compared in one page",
    )
    add_comparison(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE.html", help="output file (default: report.html in the run's directory)"
    )
    parser.add_argument("--open", action="store_true", help="open the report in the browser")


def _write(options: argparse.Namespace) -> Path:
    names = options.runs
    if len(names) > 1 or find_experiment(names[0]) is not None:
        from ludus.apps.ui.comparison import page_of, write_comparison

        comparison = compared(options, names)
        for group in comparison.groups:
            for line in left_out(group):
                sys.stderr.write(f"{line}\n")
        return write_comparison(comparison, options.out or page_of(names))
    if options.metric is not None or options.baseline:
        option = "--baseline" if options.metric is None else "--metric"
        raise ConfigError(f"{option} is for comparisons, and {names[0]!r} is one run.")
    run_dir = find_run(names[0], zoo=False)
    from ludus.apps.ui.report import write_report

    return write_report(run_dir, out=options.out)


def _execute(options: argparse.Namespace) -> int:
    path = _write(options)
    write(str(path))
    if options.open and not webbrowser.open(path.resolve().as_uri()):
        sys.stderr.write("No browser was found on this machine; open the file yourself.\n")
    return 0


COMMAND = Command(
    name="report",
    summary="Write report.html for a run, or one page comparing several runs, and print its path.",
    examples=(
        ("ludus report leduc-20261120-120000 --open", "write it and open it in the browser"),
        ("ludus report try1 --out try1.html", "write it to another place, for a read-only run"),
        ("ludus report try1 try2 try3", "three runs in one page"),
        ("ludus report ppo dqn --metric nash_conv", "two experiments in one page"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
