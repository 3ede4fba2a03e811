"""Exact exploitability without a tree: seconds of both players' sweeps against uniform play, and what comes out.

    python -m benchmarks.exact_sweeps [--quick]

Best responses of both players, in the games of 3 × 3 cells and in liar's dice, with two threads and with one (liar's dice has one in both),
to policies that see their view, or the sequence of their tries or bids. `seconds before`: to list what they may see and ask them, which a
network makes longer. Compilation is in `cold seconds`. `load`: how many processes wanted to run in the minute before. `--quick` has one
repetition of two threads.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Bar, Benchmark, Contestant
from benchmarks.lines import Lines
from ludus.envs.registry import make_env
from ludus.envs.sweep_rules import HiddenBoard, SweepRules, find_sweep_rules
from ludus.evaluation import liars_dice
from ludus.evaluation.hidden_boards.opponents import Opponent, by_sequences, by_views, sequences_of
from ludus.evaluation.hidden_boards.sweeps import size_of, sweep_board

PACKAGES = ("ludus", "numpy", "numba", "open-spiel")
GAMES = {
    "phantom tic-tac-toe": ("phantom_ttt", "observation"),
    "phantom tic-tac-toe, abrupt": ("phantom_ttt(gameversion=abrupt)", "observation"),
    "dark hex": ("dark_hex(board_size=3)", "observation"),
    "dark hex, abrupt": ("dark_hex(board_size=3,gameversion=adh)", "observation"),
    "phantom tic-tac-toe, by sequences": ("phantom_ttt", "information_state"),
    "dark hex, by sequences": ("dark_hex(board_size=3)", "information_state"),
    "liar's dice, two of five faces": ("liars_dice(dice_sides=5,numdice=2)", "information_state"),
}
"""OpenSpiel's names, and what policies see."""
WAYS = {"two threads": 2, "one thread": 1}
_WANTED = 120


def figure(game: str, what: str) -> str:
    """Return the name of a figure. what: seconds, seconds before, MB, exploitability, best 0 or best 1."""
    return f"{game}: {what}"


def _bars() -> Iterator[Bar]:
    for game in GAMES:
        key = figure(game, "seconds")
        yield Bar(game, f"<= {_WANTED}", lambda medians, key=key: medians("two threads", key), unit=" s")


BENCHMARK = Benchmark(
    name="exact_sweeps",
    contestants=tuple(
        Contestant(
            name=way,
            module="benchmarks.exact_sweeps",
            arguments=("--worker", str(threads)),
            seeds=(0, 1, 2),
            quick_seeds=(0,) if threads > 1 else (),
            pinned=False,
        )
        for way, threads in WAYS.items()
    ),
    bars=tuple(_bars()),
)


def uniformly(digits: NDArray[np.int8], tries: NDArray[np.int64]) -> NDArray[np.float64]:
    """Play every cell that is not known with the same probability."""
    del tries
    unknown = digits == 0
    probs: NDArray[np.float64] = unknown / unknown.sum(axis=1, keepdims=True)
    return probs


def opponents(board: HiddenBoard) -> tuple[Opponent, Opponent]:
    """Return uniform play of both players."""
    if board.sequences:
        first, second = (by_sequences(sequences_of(board, p), board.cells, np.ones(1), [uniformly]) for p in range(2))
    else:
        first, second = (by_views(board, p, np.ones(1), [uniformly]) for p in range(2))
    return first, second


def rules_of(name: str, observation: str) -> SweepRules:
    """Return the rules of one of OpenSpiel's games."""
    env = make_env(f"openspiel/{name}", num_envs=1, tree="off", fast="on", observation=observation)
    rules = find_sweep_rules(env)
    env.close()
    assert rules is not None
    return rules


class Sweep(NamedTuple):
    """Best responses of both players, seconds of asking policies and of sweeping, and bytes."""

    best: NDArray[np.float64]
    asking: float
    seconds: float
    bytes: int


def sweep(rules: SweepRules, threads: int) -> Sweep:
    """Respond to uniform play."""
    begun = time.perf_counter()
    if isinstance(rules, HiddenBoard):
        against = opponents(rules)
        asking = time.perf_counter() - begun
        best = sweep_board(rules, against, threads=threads).best
        return Sweep(best, asking, time.perf_counter() - begun - asking, size_of(rules, (1, 1), threads).bytes)
    best, asking = np.empty(2), 0.0
    for player in range(2):
        before = time.perf_counter()
        opponent = liars_dice.opponent_of(rules, 1 - player, np.ones(1), [uniform_bids])
        asking += time.perf_counter() - before
        best[player] = liars_dice.best_response_value(rules, player, opponent)
    return Sweep(best, asking, time.perf_counter() - begun - asking, liars_dice.bytes_of(rules))


def uniform_bids(rows: NDArray[np.float32], legal: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Bid, or call the other a liar, with the same probability each."""
    del rows
    probs: NDArray[np.float64] = legal / legal.sum(axis=1, keepdims=True)
    return probs


def _work(threads: int) -> None:
    for form in ("cdh", "adh"):  # compiles
        sweep(rules_of(f"dark_hex(gameversion={form},num_rows=2,num_cols=2)", "observation"), 1)
    lines = Lines(PACKAGES)
    lines.figures({"load": os.getloadavg()[0]})
    for game, (name, observation) in GAMES.items():
        measured = sweep(rules_of(name, observation), threads)
        figures = {
            "seconds": measured.seconds,
            "seconds before": measured.asking,
            "MB": measured.bytes / 1e6,
            "exploitability": measured.best.sum() / 2,
            "best 0": measured.best[0],
            "best 1": measured.best[1],
        }
        lines.figures({figure(game, what): float(value) for what, value in figures.items()})


def main() -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--worker", type=int, default=0)
    arguments, rest = parser.parse_known_args()
    if not arguments.worker:
        return BENCHMARK.main(rest)
    _work(arguments.worker)
    return 0


if __name__ == "__main__":
    sys.exit(main())
