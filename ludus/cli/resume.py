"""ludus resume"""

from __future__ import annotations

import argparse
from contextlib import closing

from ludus.cli.command import Command, add_profile, add_runtime, runtime_overrides
from ludus.storage.run_dirs import find_run


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's name below ./runs, or its directory")
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="changes from here on, such as generations=40"
    )
    add_profile(parser)
    add_runtime(parser)


def _execute(options: argparse.Namespace) -> int:
    run_dir = find_run(options.run)
    from ludus.cli.result import show_how_to_go_on, show_profile, show_result, status_of
    from ludus.driver.control import stop_on_signals
    from ludus.driver.runner import resume
    from ludus.view.progress import compilation_told, progress_for

    with (
        closing(progress_for()) as observer,
        stop_on_signals(tell=observer.stopping) as stop,
        compilation_told(observer.message),
    ):
        result = resume(run_dir, [*runtime_overrides(options), *options.overrides], observer=observer, stop=stop)
    show_result(result)
    if options.profile:
        show_profile(result.run_dir)
    if stop.requested:
        show_how_to_go_on(result)
    return status_of(result, stop.status)


COMMAND = Command(
    name="resume",
    summary="Go on with a run that was stopped or killed, or extend a finished one.",
    examples=(
        ("ludus resume leduc-20261120-120000", "from its last barrier"),
        ("ludus resume runs/leduc-20261120-120000 generations=40", "a finished run, further"),
        ("ludus resume leduc-20261120-120000 --workers 2", "with as many processes as there are now"),
        ("ludus resume leduc-20261120-120000 --address 10.0.0.5:6379", "on another cluster"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
