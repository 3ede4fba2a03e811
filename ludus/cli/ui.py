"""ludus ui"""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from pathlib import Path

from ludus.cli.command import Command, folder, whole_number
from ludus.cli.output import write
from ludus.core.errors import ConfigError
from ludus.storage.run_dirs import RUNS

SECRET = "LUDUS_UI_SECRET"
"""Of the environment: what the tokens are made from, so that addresses and cookies outlive a restart (default: random)."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN|EXPERIMENT",
        nargs="*",
        help="what to show: names below ./runs, or directories (default: all runs below ./runs, new ones too)",
    )
    parser.add_argument("--root", type=folder, default=RUNS, help="a folder of runs other than ./runs")
    parser.add_argument("--port", type=whole_number, help="where to listen (default: 8300, or the next that is free)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: this machine alone)")
    parser.add_argument("--no-open", action="store_true", help="open no browser")
    parser.add_argument("--watch-only", action="store_true", help="nobody may steer a run or play")


def _execute(options: argparse.Namespace) -> int:
    from ludus.view.server.access import WATCH, Access, Hosts, Tokens
    from ludus.view.server.known_runs import KnownRuns
    from ludus.view.server.serving import serve

    access = Access(hosts=Hosts.of(options.host), **({"granted": (WATCH,)} if options.watch_only else {}))
    if secret := os.environ.get(SECRET):
        if len(secret) < 32:
            raise ConfigError(f"{SECRET} has {len(secret)} characters; at least 32 random ones were expected.")
        access.tokens = Tokens(secret.encode())
    served = serve(
        KnownRuns(options.runs, root=Path(options.root)), access=access, host=options.host, port=options.port
    )
    link = served.link(access.most)
    write(f"{link}  (Ctrl-C ends it)")
    sys.stdout.flush()
    if not options.no_open:
        webbrowser.open(link)
    served.run()
    return 0


COMMAND = Command(
    name="ui",
    summary="Open the page: see runs live, steer them, play against what they trained.",
    examples=(
        ("ludus ui", "all runs below ./runs"),
        ("ludus ui leduc-20261120-120000", "one of them"),
        ("ludus ui --watch-only --no-open", "print the address only; nobody may change anything"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
