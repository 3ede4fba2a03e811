"""Connect four by self-play with the clock running: how often the networks, without search, win against Monte Carlo tree search.

    python -m benchmarks.connect_four_mcts [--quick]

Trains the preset `connect-four-self-play` on one core with one thread, for at most an hour; afterwards the snapshots of every five minutes
play OpenSpiel's search with 100 simulations, and the last ones search with 1,000 and 10,000, in both seats equally. The networks take their
likeliest actions; the search is OpenSpiel's with uniformly random rollouts, uct_c 2 and proven wins, begun anew at each decision. A share
is that of games won, a draw being none, with its 95% interval (Wilson's); a score counts draws half.

The run is kept in runs/benchmarks/connect_four_mcts-SEED: the command can be stopped, and goes on; delete the folder for a new measurement.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Bar, Benchmark, Contestant
from benchmarks.lines import Lines
from benchmarks.machine import ROOT

PACKAGES = ("ludus", "numpy", "numba", "open-spiel", "torch")
MINUTES = 58.0
"""Of training, if the preset has not ended before."""
EVERY = 300.0
"""Seconds of training between two snapshots that play."""
GAMES = {100: 500, 1_000: 200, 10_000: 50}
"""Simulations of a decision -> games in each seat of the last snapshots."""
CURVE = 200
"""Games in each seat of a snapshot before."""
_NAME = "self-play"
_SEATS = ("first", "second")

BENCHMARK = Benchmark(
    name="connect_four_mcts",
    contestants=(
        Contestant(
            _NAME,
            "benchmarks.connect_four_mcts",
            arguments=("--worker",),
            seeds=(0,),
            quick_arguments=("--brief",),
            timeout_s=4 * 3600,
        ),
    ),
    bars=(
        Bar("wins against 100 simulations", ">= 0.9", lambda m: m(_NAME, "wins against 100"), quick=False),
        Bar("seconds of training on one core", "<= 3600", lambda m: m(_NAME, "seconds"), unit=" s", quick=False),
    ),
)


def points(seconds: Sequence[float], *, every: float) -> list[int]:
    """Places of the snapshots that play: the last one of each whole `every` seconds, and the last of all. seconds: when each was made."""
    last = {int(second // every): place for place, second in enumerate(seconds)}
    return sorted(set(last.values()))


def _work(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if not args.brief:
        _measure(ROOT / "runs" / "benchmarks" / f"connect_four_mcts-{args.seed}", args.seed)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        _measure(Path(folder), args.seed, minutes=0.5, games={100: 20}, curve=10, more=("response.episodes=2048",))
    return 0


def _measure(
    folder: Path,
    seed: int,
    *,
    minutes: float = MINUTES,
    games: dict[int, int] = GAMES,
    curve: int = CURVE,
    more: Sequence[str] = (),
) -> None:
    """Trains and plays. games, curve: as `GAMES` and `CURVE`. more: changes to the preset."""
    from benchmarks.connect_four_matches import play, train
    from ludus.storage.reader import Reader
    from ludus.storage.stored_run import StoredRun

    lines = Lines(PACKAGES)
    train("connect-four-self-play", folder / "run", [f"seed={seed}", f"stop={{seconds: {60 * minutes}}}", *more])
    stored = StoredRun(folder / "run")
    with Reader(folder / "run") as reader:
        generations = reader.generations()
    seconds = [record.seconds for record in generations]
    *before, last = points(seconds, every=EVERY)
    figures = {"seconds": seconds[-1], "episodes": float(generations[-1].episodes)}
    for place in before:
        first, second = play(stored, place=place, simulations=100, games=curve, folder=folder / "matches", seed=seed)
        share, low, high = (first + second).wins
        lines.point(trained=seconds[place], episodes=generations[place].episodes, wins=share, low=low, high=high)
    for simulations, number in games.items():
        sides = play(stored, place=last, simulations=simulations, games=number, folder=folder / "matches", seed=seed)
        both = sides[0] + sides[1]
        share, low, high = both.wins
        figures[f"wins against {simulations}"] = share
        figures |= {f"{simulations}: low": low, f"{simulations}: high": high, f"{simulations}: score": both.score}
        figures |= {f"{simulations}: wins as {name}": r.wins[0] for name, r in zip(_SEATS, sides, strict=True)}
        figures |= {f"{simulations}: games": float(both.games)}
        if simulations == min(games):
            lines.point(trained=seconds[last], episodes=generations[last].episodes, wins=share, low=low, high=high)
    lines.figures(figures)


if __name__ == "__main__":
    sys.exit(_work(sys.argv[1:]) if "--worker" in sys.argv else BENCHMARK.main())
