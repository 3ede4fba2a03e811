"""The PSRO family, self-play and leagues on four games whose exploitability is computed exactly, under one budget of training episodes
per game: exploitability of the announced meta-strategies, and of the least exploitable mixture of the populations, which compares methods
whose meta-strategies mean different things.

    python -m benchmarks.psro_family [--games leduc …] [--methods psro …] [--seeds 0 1 …] [--quick]
    python -m benchmarks.psro_family --findings [--page docs/concepts/psro-family.md]
    python -m benchmarks.psro_family --plot docs/images/psro_family.svg

One run per cell (game, method, seed), on one core; its result is a file of its own, benchmarks/results/psro_family/GAME/METHOD-SEED.json,
and cells that have one are not run again: the command can be stopped and goes on. The table shows means over the seeds with 95%
intervals (Student's t). `--quick` runs a twentieth of the budget of Kuhn and Leduc poker with one seed and writes nothing. `--findings`
prints the tables, `--page` writes them into the page, `--plot` draws the curves; none of them runs a cell.

What is announced, and so measured as "exploitability": PSRO and its kin, the meta-strategies of the solver (JPSRO: the marginals of the
joint one); anytime, self-play and efficient PSRO, the mean of the distributions that the rule has moved through during the last task;
XDO, the equilibrium of the restricted game, computed on the tree, and NXDO what was learned in it; ODO, the mean since a player's set last
grew; pipeline PSRO and NeuPL, the solution of the game among the newest snapshots of their levels and rows; self-play, PFSP and the league,
the newest (main) policy, played with its own randomness; fictitious self-play, the uniform average of all snapshots.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Contestant, Repetition, measure
from benchmarks.harness import Bar, Medians, Missing
from benchmarks.psro_family_cells import RESULTS, SEEDS, cell_path, interval, load
from benchmarks.psro_family_methods import GAMES, METHODS
from benchmarks.psro_family_plot import svg
from benchmarks.psro_family_report import inserted, report
from benchmarks.results import write_cell

_SHOWN = ("exploitability", "population exploitability", "seconds")
BARS = (
    Bar("best member on leduc, mean exploitability of 5 seeds", "<= 0.40", lambda m: _best(m, "leduc")[1], quick=False),
    Bar("best member on kuhn, mean exploitability of 5 seeds", "<= 0.01", lambda m: _best(m, "kuhn")[1], quick=False),
    Bar(
        "best member on kuhn, the slowest seed",
        "<= 60",
        lambda m: max(m.values(_best(m, "kuhn")[0], "seconds")),
        " s",
        quick=False,
    ),
)


def contestant(game: str, method: str, *, share: float = 1.0) -> Contestant:
    """The worker of the cells of a game and a method."""
    arguments = ("--game", game, "--method", method, "--share", str(share))
    return Contestant(f"{game}: {method}", "benchmarks.psro_family_run", arguments=arguments, timeout_s=3600)


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.findings or args.page or args.plot:
        return _report(args.results, page=args.page, plot=args.plot)
    games, seeds = (("kuhn", "leduc"), (0,)) if args.quick else (args.games, args.seeds)
    found: dict[str, list[Repetition]] = {}
    for seed in seeds:
        for game in games:
            for method in args.methods:
                repetition = _cell(game, method, seed, quick=args.quick, core=args.core, folder=args.results)
                found.setdefault(f"{game}: {method}", []).append(repetition)
    _show(found)
    print("\n".join(_judged(found, quick=args.quick)))
    return 1 if any(r.error for many in found.values() for r in many) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true", help="a small version, a minute or two")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--findings", action="store_true", help="print what the cells say, and run none")
    parser.add_argument("--page", type=Path, help="a page to write it into")
    parser.add_argument("--plot", type=Path, help="a picture of the curves to write")
    return parser


def _judged(found: Mapping[str, Sequence[Repetition]], *, quick: bool = False) -> list[str]:
    return [bar.judge(Medians(found), quick=quick).line() for bar in BARS]


def _report(folder: Path, *, page: Path | None, plot: Path | None) -> int:
    cells = load(folder)
    found = {
        f"{game}: {method}": [_read(cell_path(game, method, cell.seed, folder=folder)) for cell in some]
        for (game, method), some in cells.of.items()
        if some
    }
    measured = report(cells)
    print("\n".join([measured, "", *_judged(found)]))
    if page:
        page.write_text(inserted(page.read_text(encoding="utf-8"), measured), encoding="utf-8")
    if plot:
        plot.write_text(svg(cells), encoding="utf-8")
    return 0


def _cell(game: str, method: str, seed: int, *, quick: bool, core: int, folder: Path) -> Repetition:
    path = cell_path(game, method, seed, folder=folder)
    if path.exists() and not quick:
        return _read(path)
    worker = contestant(game, method, share=0.05 if quick else 1.0)
    repetition = measure(worker, python=Path(sys.executable), core=core, seed=seed, quick=False)
    print(f"{worker.name}, seed {seed}: {repetition.figures.get('wall seconds', 0):.0f} s", file=sys.stderr, flush=True)
    if not quick and not repetition.error:
        write_cell(path, repetition)
    return repetition


def _read(path: Path) -> Repetition:
    return Repetition(**json.loads(path.read_text(encoding="utf-8"))["repetition"])


def _show(found: dict[str, list[Repetition]]) -> None:
    table = Table(title="means over seeds, with 95% intervals")
    for column in ("game: method", "seeds", *_SHOWN):
        table.add_column(column, justify="left" if column.startswith("game") else "right")
    for name, many in found.items():
        values = [[r.figures[figure] for r in many if figure in r.figures] for figure in _SHOWN]
        table.add_row(name, str(len(values[0])), *(interval(some) for some in values))
    Console().print(table)


def _best(medians: Medians, game: str) -> tuple[str, float]:
    """The member with the least mean exploitability of those with all seeds, and that. Raises Missing if there is none."""
    found = {name: medians.values(name, "exploitability") for name in medians.names if name.startswith(f"{game}: ")}
    means = {name: mean(values) for name, values in found.items() if len(values) == len(SEEDS)}
    if not means:
        raise Missing(f"no member has {len(SEEDS)} seeds of {game}")
    name = min(means, key=means.__getitem__)
    return name, means[name]


if __name__ == "__main__":
    sys.exit(main())
