"""Goofspiel with 13 cards: approximate population exploitability after a budget of environment steps, where no tree gives an exact one.

    python -m benchmarks.goofspiel13 [--methods psro …] [--seeds 0 …] [--steps 19200000] [--quick]
    python -m benchmarks.goofspiel13 --plot docs/images/goofspiel13.svg

The game is `goofspiel(imp_info=True,num_cards=13,points_order=descending)`, seen from one's own side (`egocentric=True`), so that one
network plays both; the winner earns 1 and the loser −1. An environment step is one card of both players, 12 of them an episode (the last
cards play themselves). The measure is `ludus.exploit_population`: double oracle between the mixtures of the population and responders,
trained by PPO for a stated budget; what the best responder found gains against the best mixture found, and what no mixture of the
population can avoid losing, both on fresh matches. The steps of responders and matches are no part of the budget; `--steps 76800000` is
the long version.

One run per cell (method, seed, steps), on one core; its result is a file of its own, benchmarks/results/goofspiel13/METHOD-SEED-STEPS.json,
and cells that have one are not run again. A run is kept in runs/benchmarks until its result is there: the command can be stopped, and
goes on. `--quick` trains for a hundredth of the budget and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Contestant, Repetition, measure
from benchmarks.goofspiel13_plot import svg
from benchmarks.goofspiel13_run import METHODS, STEPS
from benchmarks.harness import Bar, Medians
from benchmarks.machine import ROOT
from benchmarks.results import write_cell

RESULTS = ROOT / "benchmarks" / "results" / "goofspiel13"
_SHOWN = ("exploitability", "low", "high", "floor", "seconds", "environment steps", "policies", "seconds of responders")


def best(medians: Medians) -> float:
    """The least of the methods that were measured."""
    return min((medians(name, "exploitability") for name in medians.names), default=math.nan)


def bar(steps: int) -> Bar:
    """The best published figure for a budget: that of 19.2 million steps, or of four times as many."""
    wanted = "<= 0.056" if steps >= 4 * STEPS else "<= 0.244"
    return Bar(f"approximate population exploitability at {steps / 1e6:g}M steps", wanted, best, quick=False)


def cell(method: str, seed: int, steps: int) -> str:
    """The name of its files."""
    return f"{re.sub('[^a-z0-9]+', '-', method.lower()).strip('-')}-{seed}-{steps}"


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.plot is not None:
        args.plot.write_text(svg(_measured(args.results, args.steps)), encoding="utf-8")
        return 0
    found: dict[str, list[Repetition]] = {}
    for seed in args.seeds:
        for method in args.methods:
            repetition = _cell(method, seed, args)
            found.setdefault(method, []).append(repetition)
    table = Table("method", *_SHOWN, title=f"Goofspiel with 13 cards, {args.steps:,} steps: medians over seeds")
    measured = {name: many for name, many in found.items() if not any(r.error for r in many)}
    medians = Medians(measured)
    for name in measured:
        table.add_row(name, *(f"{medians(name, figure):,.4g}" for figure in _SHOWN))
    Console().print(table)
    print(bar(args.steps).judge(medians, quick=args.quick).line())
    return 1 if len(measured) < len(found) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=(0,))
    parser.add_argument("--steps", type=int, default=STEPS, help="environment steps of training")
    parser.add_argument("--quick", action="store_true", help="a small version, a minute or two")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="only draw what was measured")
    return parser


def _measured(results: Path, steps: int) -> dict[str, list[Repetition]]:
    """Return the runs of each method that have a result, by seed."""
    runs = {
        method: [
            Repetition(**json.loads(path.read_text(encoding="utf-8"))["repetition"])
            for path in sorted(results.glob(cell(method, 0, steps).replace(f"-0-{steps}", f"-[0-9]-{steps}.json")))
        ]
        for method in METHODS
    }
    return {method: many for method, many in runs.items() if many}


def _cell(method: str, seed: int, args: argparse.Namespace) -> Repetition:
    name = cell(method, seed, args.steps)
    path: Path = args.results / f"{name}.json"
    if path.exists() and not args.quick:
        return Repetition(**json.loads(path.read_text(encoding="utf-8"))["repetition"])
    arguments = ["--method", method, "--steps", str(args.steps), "--folder", str(ROOT / "runs" / "benchmarks" / name)]
    worker = Contestant(
        method,
        "benchmarks.goofspiel13_run",
        arguments=tuple(arguments),
        quick_arguments=("--brief",),
        timeout_s=24 * 3600,
    )
    repetition = measure(worker, python=Path(sys.executable), core=args.core, seed=seed, quick=args.quick)
    print(f"{method}, seed {seed}: {repetition.figures.get('wall seconds', 0):.0f} s", file=sys.stderr, flush=True)
    if not args.quick and not repetition.error:
        write_cell(path, repetition)
    return repetition


if __name__ == "__main__":
    sys.exit(main())
