"""What `train` and `resume` say in the end."""

from __future__ import annotations

import math
import shlex
import sys
from typing import TYPE_CHECKING

from ludus.cli.output import facts
from ludus.observe.progress import duration, number

if TYPE_CHECKING:  # a run's imports take a second, which only a run should pay
    from ludus.result import Result


def show_result(result: Result) -> None:
    """The table of results on standard output, and how to go on."""
    last = result.generations[-1] if result.generations else None
    pairs = [("generations", str(last.number if last else 0))]
    known = [value for value in result.nash_conv if math.isfinite(value)]
    if known:
        bound = "" if last is None or last.exact else " (at least)"
        pairs.append(("NashConv", f"{number(known[-1])}{bound}, best {number(min(known))}"))
        if last is not None and len(last.marginals) == 2:
            pairs.append(("exploitability", f"{number(known[-1] / 2)}{bound}"))
    if last is not None:
        sizes = [len(members) for members in result.populations]
        shared = ", shared by the players" if len(sizes) < len(last.sizes) else ""
        pairs.append(("policies", " + ".join(str(size) for size in sizes) + shared))
        if last.episodes:  # a computed oracle plays none
            pairs.append(("episodes", f"{last.episodes:,}"))
    pairs.append(("time", duration(result.seconds)))
    pairs.append(("stopped", result.stopped_by))
    pairs.append(("run", str(result.run_dir)))
    if result.report is not None:
        pairs.append(("report", str(result.report)))
    facts("Results", pairs)


def show_how_to_go_on(result: Result) -> None:
    sys.stdout.write(f"\nContinue with: ludus resume {shlex.quote(str(result.run_dir))}\n")
