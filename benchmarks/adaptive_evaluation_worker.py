"""The worker of `benchmarks.adaptive_evaluation`: one population sampled in one way, or how often the intervals hold.

    python -m benchmarks.adaptive_evaluation_worker --sampling adaptive|uniform --game NAME [--policies N] --seed 0
    python -m benchmarks.adaptive_evaluation_worker --coverage REPETITIONS --seed 0

Both ways solve by the same meta-solver at the same numbers of matches, each a quarter more than the one before. `matches to X` is the first
of these from which on the true NashConv stays at most X up to twice as many matches (a single good look may be luck).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.adaptive_games import EPISODES, GAMES, Game
from benchmarks.lines import Lines
from ludus.core import seeding
from ludus.core.types import MetaSolution
from ludus.metagame.solvers.confidence import mean_bounds, payoff_bounds
from ludus.metagame.solvers.match_selection import AdaptiveEvaluation, CellSelection, first_cells, impute_missing
from ludus.metagame.solvers.nash import Nash

PACKAGES = ("ludus", "numpy", "numba", "scipy")
TARGETS = (0.1, 0.05, 0.02)
GROWTH = 0.25
MOST = 10**10
"""Matches at which uniform sampling is given up."""


def adaptive(game: Game, *, most: int) -> Iterator[tuple[int, MetaSolution]]:
    """(matches, meta-strategy) at each look."""
    evaluation = AdaptiveEvaluation(solver=Nash(), budget=most // EPISODES, growth=GROWTH)
    while True:
        cells = evaluation.next_cells(game.view())
        if evaluation.standing is not None:
            yield game.blocks * EPISODES, evaluation.standing.solution
        if cells is None:
            return
        game.play(cells)


def uniform(game: Game, *, most: int) -> Iterator[tuple[int, MetaSolution]]:
    """The same, every pair as often."""
    pairs = first_cells(game.view(), profiles=None, rng=seeding.generator(0, "unused"))
    game.play(pairs)
    rounds, warm = 1, None
    while True:
        solution = Nash().solve(impute_missing(game.view()), warm=warm, rng=seeding.generator(0, "unused"))
        warm = solution.warm
        yield game.blocks * EPISODES, solution
        if game.blocks * EPISODES >= most:
            return
        more = max(1, round(GROWTH * rounds))
        game.play(CellSelection(pairs.profiles, more * pairs.units))
        rounds += more


def reached(curve: Sequence[tuple[int, float]], target: float) -> float:
    """Matches to the target, as said above; infinite where it is not reached, or not seen for long enough."""
    for k, (matches, _) in enumerate(curve):
        seen = [error for at, error in curve[k:] if at <= 2 * matches]
        if curve[-1][0] >= 2 * matches and max(seen) <= target:
            return float(matches)
    return math.inf


def sample(lines: Lines, *, sampling: str, game: Game, targets: Sequence[float], most: int) -> None:
    """One curve, until the last target is reached."""
    curve: list[tuple[int, float]] = []
    for matches, solution in (adaptive if sampling == "adaptive" else uniform)(game, most=most):
        with lines.aside():
            curve.append((matches, game.nash_conv(solution)))
            lines.point(matches=matches, nash_conv=curve[-1][1])
            found = {target: reached(curve, target) for target in targets}
        if math.isfinite(found[min(targets)]):
            break
    else:
        if game.blocks * EPISODES < most:  # it ended itself, and its last solution stays
            found = {target: reached([*curve, (most, curve[-1][1])], target) for target in targets}
    lines.figures({f"matches to {target:g}": at for target, at in found.items() if math.isfinite(at)})
    lines.figures({"seconds": lines.seconds, "looks": len(curve)})


def coverage(lines: Lines, *, repetitions: int, seed: int) -> None:
    """How often, of 100, what is promised at 95% holds."""
    tables = ends = wrong = 0
    for k in range(repetitions):
        game = Game(list(GAMES)[k % len(GAMES)], n=8, seed=seed * repetitions + k, sampling="coverage")
        evaluation = AdaptiveEvaluation(solver=Nash(), budget=20_000, tolerance=0.3, batch=50)
        held = True
        while (cells := evaluation.next_cells(game.view())) is not None:
            game.play(cells)
            bounds = payoff_bounds(game.view())
            held &= bool(((bounds.low[0] <= game.payoff) & (game.payoff <= bounds.high[0])).all())
        tables += held
        if evaluation.reason == "confident" and evaluation.standing is not None:
            ends += 1
            wrong += game.nash_conv(evaluation.standing.solution) > evaluation.tolerance
    lines.figures({"tables held": 100 * tables / repetitions, "ended confident": 100 * ends / repetitions})
    lines.figures({"confident and right": 100 * (1 - wrong / max(ends, 1))})
    always, width = cells_held(repetitions, seed)
    lines.figures({"cells held": always, "width by normal width": width, "seconds": lines.seconds})


def cells_held(repetitions: int, seed: int, *, units: int = 2000) -> tuple[float, float]:
    """Single cells looked at after each of `units` blocks: the share, of 100, that always held, for the worst chance of winning; and how
    many times wider than the usual interval for one fixed time theirs are at the end, in the mean."""
    held: list[float] = []
    width: list[float] = []
    n = np.arange(1, units + 1)
    for p in (0.5, 0.8, 0.97):
        values = seeding.generator(seed, "cells", int(100 * p)).binomial(2, p, (repetitions, units)) / 2
        mean = np.cumsum(values, axis=1) / n
        m2 = np.maximum(np.cumsum(values**2, axis=1) - n * mean**2, 0.0)
        counts = np.broadcast_to(n, mean.shape)
        low, high = mean_bounds(counts, mean, m2, least=0.0, most=1.0, alpha=0.05, min_units=8)
        held.append(100 * float(((low <= p) & (p <= high)).all(axis=1).mean()))
        width.append(float(((high - low)[:, -1] / (2 * 1.96 * np.sqrt(p * (1 - p) / 2 / units))).mean()))
    return min(held), float(np.mean(width))


def main(argv: Sequence[str] | None = None) -> None:
    """Prints lines for the harness."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sampling", choices=("adaptive", "uniform"))
    parser.add_argument("--game", choices=tuple(GAMES), default="noise")
    parser.add_argument("--policies", type=int, default=200)
    parser.add_argument("--targets", type=float, nargs="+", default=TARGETS)
    parser.add_argument("--most", type=int, default=MOST)
    parser.add_argument("--coverage", type=int, metavar="REPETITIONS")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    for _ in adaptive(Game("elo", n=4, seed=0, sampling="warm-up"), most=1000):
        pass  # compiles
    lines = Lines(PACKAGES)
    if args.coverage:
        coverage(lines, repetitions=args.coverage, seed=args.seed)
    else:
        game = Game(args.game, n=args.policies, seed=args.seed, sampling=args.sampling)
        sample(lines, sampling=args.sampling, game=game, targets=args.targets, most=args.most)


if __name__ == "__main__":
    main()
