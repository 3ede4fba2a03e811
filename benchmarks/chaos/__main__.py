"""Plays a campaign of random harm, and writes its table.

    python -m benchmarks.chaos --minutes 60 --seed 1       cases until the time is over; the same command continues
    python -m benchmarks.chaos --only "full disk" psro     of these harms, scenarios or runtimes
    python -m benchmarks.chaos --case 1:17                 one case again, whose row it replaces; its folder is kept
    python -m benchmarks.chaos --list                      harms and scenarios
    python -m benchmarks.chaos --write                     writes benchmarks/results/chaos.json from all rows of the folder

Exit status 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.chaos.campaign import Campaign, Row, rows
from benchmarks.chaos.draw import harms
from benchmarks.chaos.scenarios import scenarios
from benchmarks.chaos.scene import PLACE, end_all
from benchmarks.chaos.table import bars, cells, summary, write


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--cases", type=int, help="at most so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="harms, scenarios, runtimes")
    parser.add_argument("--case", metavar="SEED:INDEX", help="play this one again, and keep its folder")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(PLACE) / "ludus-chaos",
        help="of references, rows and broken cases",
    )
    parser.add_argument("--list", action="store_true", help="print harms and scenarios")
    parser.add_argument("--write", action="store_true", help="write the result file from all rows of the folder")
    options = parser.parse_args(argv)
    if options.list:
        print("\n".join([*harms(), "", *scenarios()]))
        return 0
    if options.write:
        return _write(options.folder, jobs=options.jobs)
    options.folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, end_all)
    signal.signal(signal.SIGINT, end_all)
    if options.case:
        seed, _, index = options.case.partition(":")
        again = Campaign(int(seed), options.folder, options.folder / f"rows-{seed}.jsonl", only=options.only, keep=True)
        row = again.one(int(index))
        again.close()
        print(f"its folder: {options.folder / 'broken' / options.case.replace(':', '-')}")
        return int(row["outcome"] in ("broken", "fault"))
    path = options.folder / f"rows-{options.seed}.jsonl"
    campaign = Campaign(options.seed, options.folder, path, only=options.only)
    campaign.run(seconds=60 * options.minutes, jobs=options.jobs, cases=options.cases)
    campaign.close()
    return _report(rows(path), jobs=options.jobs)


def _report(played: Sequence[Row], *, jobs: int) -> int:
    document = summary(played, jobs=jobs)
    shown = Table(*cells(document)[0], title="harm and what became of it: number of cases; median and worst seconds")
    for row in cells(document)[1:]:
        shown.add_row(*row)
    Console().print(shown)
    for bar in bars(played, hours=document["minutes"] / 60):
        print(bar.line())
    return int(any(row["outcome"] in ("broken", "fault") for row in played))


def _write(folder: Path, *, jobs: int) -> int:
    """Write the result file from all rows of a folder, a file a seed."""
    played = [row for path in sorted(folder.glob("rows-*.jsonl")) for row in rows(path)]
    write(summary(played, jobs=jobs))
    return _report(played, jobs=jobs)


if __name__ == "__main__":
    sys.exit(main())
