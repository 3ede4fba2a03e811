"""ludus report"""

from __future__ import annotations

import argparse
import sys
import webbrowser

from ludus.cli.command import Command
from ludus.cli.output import write
from ludus.storage.run_dirs import find_run


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's name below ./runs, or its directory; it may be going on")
    parser.add_argument("--open", action="store_true", help="open the report in the browser")


def _execute(options: argparse.Namespace) -> int:
    run_dir = find_run(options.run)
    from ludus.view.report import write_report

    path = write_report(run_dir)
    write(str(path))
    if options.open and not webbrowser.open(path.resolve().as_uri()):
        sys.stderr.write("No browser was found on this machine; open the file yourself.\n")
    return 0


COMMAND = Command(
    name="report",
    summary="Write a run's report.html from its database, and print its path.",
    examples=(("ludus report leduc-20261120-120000 --open", "write it and look at it"),),
    add_arguments=_add_arguments,
    execute=_execute,
)
