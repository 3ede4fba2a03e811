"""Exploitability after a budget of moves in games of 3 × 3 hidden cells, computed exactly, where no tree would fit.

    python -m benchmarks.hidden_boards                       the cells of the table, those first that close it
    python -m benchmarks.hidden_boards --games dark_hex --methods mmd --steps 10000000 --seeds 0 1
    python -m benchmarks.hidden_boards --plot docs/images/hidden_boards.svg

Games: phantom tic-tac-toe and dark hex of 3 × 3 cells, classical and abrupt. A step is a move of either player, failed tries included. The
measure is NashConv / 2 of what the method announces (`ludus evaluate --exact`). Settings were chosen on other seeds (from 100 on).

One run per cell (game, method, steps, seed), on one core; its result is a file of its own, benchmarks/results/hidden_boards/
GAME/METHOD-STEPS-SEED.json, and cells that have one are not run again. A run is kept in runs/benchmarks until its result is there: the
command can be stopped, and continues. `--quick` trains for a fiftieth of a million moves and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Contestant, Repetition, measure
from benchmarks.harness import Bar, Medians
from benchmarks.hidden_boards_plot import svg
from benchmarks.hidden_boards_run import GAMES, METHODS
from benchmarks.machine import ROOT
from benchmarks.results import write_cell

RESULTS = ROOT / "benchmarks" / "results" / "hidden_boards"
TITLES = {
    "phantom_ttt": "phantom tic-tac-toe",
    "dark_hex": "dark hex, 3 × 3",
    "abrupt_phantom_ttt": "phantom tic-tac-toe, abrupt",
    "abrupt_dark_hex": "dark hex, 3 × 3, abrupt",
}
"""Games in words."""
PUBLISHED = {
    "phantom_ttt": "0.144, NashDreamer with R-NaD; 0.222, R-NaD with replay; 0.240, MMD that was not tuned: 1.9 M games, arXiv 2609.01549",
    "dark_hex": "drawn, without numbers: arXiv 2502.08938",
    "abrupt_phantom_ttt": "drawn, without numbers: arXiv 2502.08938",
    "abrupt_dark_hex": "drawn, without numbers: arXiv 2502.08938",
}
"""What others came to, and where it was read. The first is the mean of ten seeds' raw files, in the repository of its authors."""
SHORT, LONG = 1_000_000, 10_000_000
"""Budgets in moves."""
POPULATION = ("psro", "snapshots of mmd")
"""Methods whose result is a mixture of policies."""
BEST = ("mmd", "snapshots of mmd")
"""The best two methods of phantom tic-tac-toe after a million moves, which go on to ten."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A run: its game, method, budget in moves, and seed."""

    game: str
    method: str
    steps: int
    seed: int

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"{self.game}/{self.method.replace(' ', '-')}-{self.steps}-{self.seed}"


CELLS = (
    *(Cell("phantom_ttt", method, SHORT, 0) for method in METHODS),
    *(Cell("phantom_ttt", method, LONG, seed) for seed in range(3) for method in BEST),
    *(Cell(game, method, LONG, 0) for game in GAMES if game != "phantom_ttt" for method in BEST),
)
"""What is measured without options."""


def contestant(game: str, method: str, steps: int) -> str:
    """Return the name under which runs of one setting are judged."""
    return f"{game}: {method}, {steps / 1e6:g} M"


def _least(medians: Medians, game: str, steps: int, methods: Sequence[str]) -> float:
    names = [name for method in methods if (name := contestant(game, method, steps)) in medians.names]
    return min((medians(name, "exploitability") for name in names), default=math.nan)


def _of_best(medians: Medians) -> float:
    """Return the population's exploitability relative to the best of the others."""
    others = [method for method in METHODS if method not in POPULATION]
    return _least(medians, "phantom_ttt", LONG, POPULATION) / _least(medians, "phantom_ttt", LONG, others)


BARS = (
    Bar(
        "phantom_ttt, exploitability after 10 M moves",
        "<= 0.1",
        lambda medians: _least(medians, "phantom_ttt", LONG, tuple(METHODS)),
        quick=False,
    ),
    Bar("phantom_ttt, a population relative to the best of the others", "<= 1.1", _of_best, quick=False),
)
"""Judged over the seeds that there are: the wish of 0.1 is below the best figure known to us, 0.109."""


def load(folder: Path = RESULTS) -> dict[Cell, Repetition]:
    """Return all cells that were measured."""
    cells = {}
    for path in sorted(folder.glob("*/*.json")):
        stored = json.loads(path.read_text(encoding="utf-8"))
        game, method, steps, seed = (stored[key] for key in ("game", "method", "steps", "seed"))
        cells[Cell(game, method, steps, seed)] = Repetition(**stored["repetition"])
    return cells


def by_setting(cells: Mapping[Cell, Repetition]) -> dict[str, list[Repetition]]:
    """Return the runs of each setting."""
    runs: dict[str, list[Repetition]] = {}
    for cell in _in_order(cells):
        runs.setdefault(contestant(cell.game, cell.method, cell.steps), []).append(cells[cell])
    return runs


def panels(cells: Mapping[Cell, Repetition]) -> dict[str, dict[str, list[Repetition]]]:
    """Return what the picture shows: a panel for each game and budget."""
    drawn: dict[str, dict[str, list[Repetition]]] = {}
    for cell in _in_order(cells):
        title = f"{TITLES[cell.game]}, {cell.steps / 1e6:g} M moves"
        drawn.setdefault(title, {}).setdefault(cell.method, []).append(cells[cell])
    return drawn


def _in_order(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells by game, budget, method and seed, games and methods as they are listed."""
    games, methods = list(GAMES), list(METHODS)
    return sorted(cells, key=lambda cell: (games.index(cell.game), cell.steps, methods.index(cell.method), cell.seed))


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.plot:
        args.plot.write_text(svg(panels(load(args.results))), encoding="utf-8")
        return 0
    failed = False
    measured: dict[Cell, Repetition] = {}
    for cell in _asked(args):
        repetition = _measured(cell, args)
        failed = failed or repetition.error is not None
        if repetition.error is None:
            measured[cell] = repetition
    table = Table(
        "run",
        "exploitability",
        "processor minutes",
        "moves",
        "policies",
        title="Exact exploitability, medians over seeds",
    )
    medians = Medians(by_setting(measured))
    for name in medians.names:
        values = [f"{value:.3f}" for value in medians.values(name, "exploitability")]
        minutes = medians(name, "cpu seconds") / 60
        table.add_row(
            name,
            " ".join(values),
            f"{minutes:.1f}",
            f"{medians(name, 'environment steps'):,.0f}",
            f"{medians(name, 'policies'):g}",
        )
    Console().print(table)
    for bar in BARS:
        print(bar.judge(medians, quick=args.quick).line())
    return int(failed)


def _asked(args: argparse.Namespace) -> Iterator[Cell]:
    """Yield the cells of the command line; without options all of `CELLS`."""
    if args.quick:
        yield Cell("phantom_ttt", "mmd", SHORT // 50, 0)
    elif not (args.games or args.methods or args.steps or args.seeds):
        yield from CELLS
    else:
        for seed in args.seeds or (0,):
            for game in args.games or GAMES:
                for method in args.methods or METHODS:
                    yield Cell(game, method, args.steps or SHORT, seed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=tuple(GAMES))
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--steps", type=int, help="moves of training")
    parser.add_argument("--quick", action="store_true", help="a small version, less than a minute")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="only draw what was measured")
    return parser


def _measured(cell: Cell, args: argparse.Namespace) -> Repetition:
    path: Path = args.results / f"{cell.name}.json"
    if path.exists() and not args.quick:
        return Repetition(**json.loads(path.read_text(encoding="utf-8"))["repetition"])
    worker = Contestant(
        cell.method,
        "benchmarks.hidden_boards_run",
        arguments=(
            *("--game", cell.game, "--method", cell.method, "--steps", str(cell.steps)),
            *(() if args.quick else ("--folder", str(ROOT / "runs" / "benchmarks" / "hidden_boards" / cell.name))),
        ),
        timeout_s=24 * 3600,
    )
    repetition = measure(worker, python=Path(sys.executable), core=args.core, seed=cell.seed, quick=False)
    print(f"{cell.name}: {repetition.figures.get('wall seconds', 0):.0f} s", file=sys.stderr, flush=True)
    if not args.quick and not repetition.error:
        write_cell(path, repetition, game=cell.game, method=cell.method, steps=cell.steps, seed=cell.seed)
    return repetition


if __name__ == "__main__":
    sys.exit(main())
