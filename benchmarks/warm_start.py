"""What new policies of PSRO start from: `warm_start` random, last or best, on four games whose exploitability is computed exactly, with
PPO's responses and about the settings of a user who gives the id of a game.

    python -m benchmarks.warm_start [--games leduc …] [--starts last …] [--seeds 0 1 …] [--quick]
    python -m benchmarks.warm_start --findings [--page docs/concepts/algorithms.md]

Two games are trained on their trees, with exact payoffs; two are played step by step, and payoffs are means of episodes, as in an
environment of the user's own. (By its id, Goofspiel with 4 GPUs would be trained on its tree.) A response has 10,000 episodes on a tree,
5,000 in Goofspiel and 4,000 in the sealed bids; all settings are written out in the worker. One run per cell (game, start, seed); its
result is a file of its own, benchmarks/results/warm_start/GAME/START-SEED.json, and cells that have one are not run again: the command can
be stopped and goes on. Each seed is finished before the next begins. `--quick` runs a tenth of the generations with one seed and writes
nothing. `--findings` prints the table and runs no cell, `--page` writes it into the page.

The default is chosen by a rule that was written down before the cells ran, after one trial of each game. A start's score is the geometric
mean, over games and seeds, of the exploitability (NashConv / 2) of the meta-strategies that the last generation announced. The start with
the lowest score is the default if it is below `random` by the 95% interval of the difference: of the logarithms, paired by game and seed,
averaged over the games, Student's t over the seeds. Otherwise the default is `random`, the only one that cannot hand on a policy that has
stopped exploring.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from scipy.stats import t as student

from benchmarks.contestants import Contestant, Repetition, measure
from benchmarks.machine import ROOT
from benchmarks.psro_family_cells import interval
from benchmarks.psro_family_report import inserted
from benchmarks.results import write_cell
from benchmarks.warm_start_run import GAMES, STARTS

RESULTS = ROOT / "benchmarks" / "results" / "warm_start"
SEEDS = (0, 1, 2, 3, 4)
BEGIN, END = "<!-- measured by benchmarks.warm_start: begin -->", "<!-- measured by benchmarks.warm_start: end -->"
_LEAST = 1e-4  # exploitability below which it makes no difference

Cells = Mapping[tuple[str, str], Mapping[int, Repetition]]
"""Of a game and a start, by seed."""


def cell_path(game: str, start: str, seed: int, *, folder: Path = RESULTS) -> Path:
    """Where a cell's result lies."""
    return folder / game / f"{start}-{seed}.json"


def load(folder: Path = RESULTS) -> Cells:
    """All cells in `folder`."""
    return {
        (game, start): {
            seed: _read(path) for seed in SEEDS if (path := cell_path(game, start, seed, folder=folder)).exists()
        }
        for game in GAMES
        for start in STARTS
    }


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    args = _parser().parse_args(argv)
    if args.findings or args.page:
        return _report(load(args.results), page=args.page)
    games, seeds = (list(GAMES), (0,)) if args.quick else (args.games, args.seeds)
    measured: dict[tuple[str, str], dict[int, Repetition]] = {(game, start): {} for game in GAMES for start in STARTS}
    for seed in seeds:
        for game in games:
            for start in args.starts:
                measured[game, start][seed] = _cell(game, start, seed, args)
    if any(repetition.error for some in measured.values() for repetition in some.values()):
        return 1
    return _report(measured)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true", help="a small version, a minute or two")
    parser.add_argument("--core", type=int, help="the core that workers run on (default: any)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--findings", action="store_true", help="print what the cells say, and run none")
    parser.add_argument("--page", type=Path, help="a page to write it into")
    return parser


def _cell(game: str, start: str, seed: int, args: argparse.Namespace) -> Repetition:
    path = cell_path(game, start, seed, folder=args.results)
    if path.exists() and not args.quick:
        return _read(path)
    arguments = ("--game", game, "--start", start, "--share", "0.1" if args.quick else "1.0")
    worker = Contestant(
        f"{game}: {start}",
        "benchmarks.warm_start_run",
        arguments=arguments,
        timeout_s=3600,
        pinned=args.core is not None,
    )
    repetition = measure(worker, python=Path(sys.executable), core=args.core or 0, seed=seed, quick=False)
    print(f"{worker.name}, seed {seed}: {repetition.figures.get('cpu seconds', 0):.0f} s", file=sys.stderr, flush=True)
    if not args.quick and not repetition.error:
        write_cell(path, repetition)
    return repetition


def _read(path: Path) -> Repetition:
    return Repetition(**json.loads(path.read_text(encoding="utf-8"))["repetition"])


# --------------------------------------------------------------------------------------------------------------------
# What the cells say.


def decide(cells: Cells) -> str | None:
    """The default by the rule above; None while no seed has all its cells."""
    if not _complete(cells):
        return None
    best = min(STARTS, key=lambda start: score(cells, start))
    if best == "random":
        return best
    relative = ratio(cells, best, GAMES)
    return best if relative is not None and relative[2] < 1 else "random"


def score(cells: Cells, start: str) -> float:
    """The geometric mean, over games and the seeds that have all cells, of exploitability in the end."""
    return math.exp(mean(_log(cells[game, start][seed]) for game in GAMES for seed in _complete(cells)))


def ratio(cells: Cells, start: str, games: Collection[str]) -> tuple[float, float, float] | None:
    """Exploitability in the end beside that of `random`, paired by seed, as a geometric mean over `games`, and the ends of its 95% interval
    over the seeds; None with fewer than two seeds that have the cells."""
    pairs = _pairs(cells, start, games)
    middle = mean_interval([mean(_log(own) - _log(other) for own, other in seed) for seed in pairs])
    return None if middle is None else (math.exp(middle[0]), math.exp(middle[1]), math.exp(middle[2]))


def mean_interval(values: Sequence[float]) -> tuple[float, float, float] | None:
    """The mean and the ends of its 95% interval (Student's t); None of fewer than two values."""
    if len(values) < 2:
        return None
    middle, half = mean(values), float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return middle, middle - half, middle + half


def _pairs(cells: Cells, start: str, games: Collection[str]) -> list[list[tuple[Repetition, Repetition]]]:
    """By seed and game: the cell, and that of `random`."""
    each = [(cells[game, start], cells[game, "random"]) for game in games]
    seeds = [seed for seed in SEEDS if all(seed in some for pair in each for some in pair)]
    return [[(own[seed], other[seed]) for own, other in each] for seed in seeds]


def _log(cell: Repetition) -> float:
    return math.log(max(cell.figures["exploitability"], _LEAST))


def _complete(cells: Cells) -> list[int]:
    return [seed for seed in SEEDS if all(seed in cells[game, start] for game in GAMES for start in STARTS)]


def table(cells: Cells) -> str:
    """Markdown: a row for each game with means over the seeds, and one relative to `random` over all games."""
    lines = [f"| game | {' | '.join(f'`{start}`' for start in STARTS)} |", "| --- |" + " --- |" * len(STARTS)]
    for game in GAMES:
        columns = [
            interval([cell.figures["exploitability"] for cell in cells[game, start].values()]) for start in STARTS
        ]
        lines.append(f"| {game}{', played' * (not GAMES[game].computed)} | {' | '.join(columns)} |")
    lines.append(f"| all, relative to `random` | {' | '.join(_relative(cells, start) for start in STARTS)} |")
    return "\n".join(lines)


def _relative(cells: Cells, start: str) -> str:
    values = None if start == "random" else ratio(cells, start, GAMES)
    return "" if values is None else "{:.2f} ({:.2f} to {:.2f})".format(*values)


def _report(cells: Cells, *, page: Path | None = None) -> int:
    measured = "\n".join([table(cells), "", f"Default by the rule: `{decide(cells)}`."])
    print(measured)
    if page:
        page.write_text(inserted(page.read_text(encoding="utf-8"), measured, begin=BEGIN, end=END), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
