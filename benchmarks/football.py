"""Does football get learned? MAPPO on four academies: how often the trained team scores, the curve by steps, and its slope at the end.

    python -m benchmarks.football [CELL …] [--seeds 0 1 …]
    python -m benchmarks.football --report     prints what is measured, and measures nothing
    python -m benchmarks.football --quick      a few thousand steps of every cell, one seed; writes nothing, judges nothing

Cells: empty-goal, run-to-score, pass-and-shoot, 3-vs-1, each a preset (`ludus train football-CELL`), one after the other, on all cores. The
result of a cell and a seed is a file of its own, benchmarks/results/football/CELL/SEED.json, with machine, date, commit and settings; what
has one is not made again, and a run that was stopped goes on from its last checkpoint (runs/benchmarks/football). Scored: the share of 500
episodes that are not in training in which the policy scores, with its most probable actions. The curve is of training episodes, in which
it draws them. `seconds` are by wall clock, of the whole run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Repetition, measure
from benchmarks.football_cells import CELLS, RESULTS, Cell, contestant, stored, write
from benchmarks.harness import Bar, Medians, Missing

Found = Mapping[str, Sequence[Repetition]]


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    names = [name for name in CELLS if not args.cells or name in args.cells]
    found: dict[str, list[Repetition]] = {name: [] for name in names}
    failed = False
    for turn in range(1 if args.quick else 64):
        for name in names:
            seeds = args.seeds or CELLS[name].seeds
            if turn < len(seeds):
                repetition = _measured(name, seeds[turn], args)
                failed |= repetition is not None and bool(repetition.error)
                if repetition is not None and not repetition.error:
                    found[name].append(repetition)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table(found))
    for name, repetitions in found.items():
        for repetition in repetitions:
            print(f"{name}, seed {repetition.seed}: {curve_line(repetition)}")
    if not args.quick:
        print("\n".join(bar.judge(Medians(_own(found))).line() for bar in bars(names)))
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"{', '.join(CELLS)}; all, if none is given")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: those of each cell")
    parser.add_argument("--quick", action="store_true", help="a small version that writes nothing")
    parser.add_argument("--report", action="store_true", help="print what is measured, and run none")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser


def _measured(name: str, seed: int, args: argparse.Namespace) -> Repetition | None:
    """As stored, or measured now and stored; None of `--report` where nothing is."""
    if not args.quick and (known := stored(name, seed, args.results)):
        return known
    if args.report:
        return None
    made = contestant(name, quick=args.quick)
    repetition = measure(made, python=Path(sys.executable), core=0, seed=seed, quick=False)
    if not repetition.error and not args.quick:
        write(name, repetition, args.results)
    said = repetition.error or f"scored {repetition.figures['scored']:.3f}"
    print(f"{name}, seed {seed}: {said}, {repetition.figures.get('wall seconds', 0) / 60:.0f} min", file=sys.stderr)
    return repetition


def _own(found: Found) -> dict[str, list[Repetition]]:
    """Runs of the cells' own seeds: others, which somebody chose, prove nothing."""
    return {name: [r for r in many if r.seed in CELLS[name].seeds] for name, many in found.items()}


def bars(names: Sequence[str]) -> list[Bar]:
    """Those of the cells that have one."""
    return [_bar(name, CELLS[name]) for name in names if CELLS[name].wanted]


def _bar(name: str, cell: Cell) -> Bar:
    def value(medians: Medians) -> float:
        scored = medians.values(name, "scored")
        if len(scored) < len(cell.seeds):
            raise Missing(f"{name!r} has {len(scored)} seeds of {len(cell.seeds)}")
        return mean(scored)

    return Bar(f"{name}, mean share scored of {len(cell.seeds)} seeds", cell.wanted, value, quick=False)


def table(found: Found) -> Table:
    """A row for each cell and seed that was measured."""
    out = Table(title="share of episodes with a goal")
    for column in ("cell", "seed", "env steps", "minutes", "scored", "slope per M steps", "wanted", "published"):
        out.add_column(column, justify="left" if column in ("cell", "published") else "right")
    for name, repetitions in found.items():
        cell = CELLS[name]
        for repetition in repetitions:
            figures = repetition.figures
            out.add_row(
                name,
                str(repetition.seed),
                f"{figures['env steps']:,.0f}",
                f"{figures['seconds'] / 60:.0f}",
                f"{figures['scored']:.3f} ± {figures['half width']:.3f}",
                f"{figures['slope']:+.2f}" if "slope" in figures else "",
                cell.wanted,
                cell.published,
            )
        if not repetitions:
            out.add_row(name, "", "", "", "", "", cell.wanted, cell.published)
    return out


def curve_line(repetition: Repetition) -> str:
    """Ten points of a curve: share scored by environment steps."""
    steps, scored = repetition.curve.get("steps", []), repetition.curve.get("scored", [])
    every = max(len(steps) // 10, 1)
    shown = list(zip(steps, scored, strict=True))[every - 1 :: every]
    return ", ".join(f"{share:.2f} at {at / 1e3:,.0f}k" for at, share in shown)


if __name__ == "__main__":
    raise SystemExit(main())
