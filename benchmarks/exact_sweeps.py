"""Exact exploitability of hidden boards: seconds of both players' sweeps against uniform play, and what comes out.

    python -m benchmarks.exact_sweeps [--quick]

Best responses of both players, in the games of 3 × 3 cells, with two threads and with one, to policies that see their view or the sequence
of their tries. `seconds before`: to list what they may see and ask them, which a network makes longer. Compilation is in `cold seconds`.
`load`: how many processes wanted to run in the minute before. `--quick` has one repetition of two threads.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Bar, Benchmark, Contestant
from benchmarks.lines import Lines
from ludus.envs.hidden_boards import HiddenBoard
from ludus.envs.registry import make_env
from ludus.evaluation.hidden_boards.opponents import Opponent, by_sequences, by_views, sequences_of
from ludus.evaluation.hidden_boards.sweeps import best_response_values, size_of

PACKAGES = ("ludus", "numpy", "numba", "open-spiel")
GAMES = {
    "phantom tic-tac-toe": ("phantom_ttt", "observation"),
    "phantom tic-tac-toe, abrupt": ("phantom_ttt(gameversion=abrupt)", "observation"),
    "dark hex": ("dark_hex(board_size=3)", "observation"),
    "dark hex, abrupt": ("dark_hex(board_size=3,gameversion=adh)", "observation"),
    "phantom tic-tac-toe, by sequences": ("phantom_ttt", "information_state"),
    "dark hex, by sequences": ("dark_hex(board_size=3)", "information_state"),
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


def board_of(name: str, observation: str) -> HiddenBoard:
    """Return the board of one of OpenSpiel's games."""
    env: Any = make_env(f"openspiel/{name}", num_envs=1, tree="off", fast="on", observation=observation)
    board: HiddenBoard = env.hidden_board
    env.close()
    return board


def _work(threads: int) -> None:
    for form in ("cdh", "adh"):  # compiles
        small = board_of(f"dark_hex(gameversion={form},num_rows=2,num_cols=2)", "observation")
        best_response_values(small, opponents(small))
    lines = Lines(PACKAGES)
    lines.figures({"load": os.getloadavg()[0]})
    for game, (name, observation) in GAMES.items():
        board = board_of(name, observation)
        begun = time.perf_counter()
        against = opponents(board)
        asked = time.perf_counter() - begun
        best = best_response_values(board, against, threads=threads)
        figures = {
            "seconds": time.perf_counter() - begun - asked,
            "seconds before": asked,
            "MB": size_of(board, (1, 1), threads).bytes / 1e6,
            "exploitability": best.sum() / 2,
            "best 0": best[0],
            "best 1": best[1],
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
