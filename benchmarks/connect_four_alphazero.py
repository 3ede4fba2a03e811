"""AlphaZero on connect four after an hour of two cores: its search against Monte Carlo tree search, its network alone, and how often it
moves as a perfect player does.

    python -m benchmarks.connect_four_alphazero [--quick]

Trains the preset `connect-four-alphazero` with two worker processes, for at most an hour. Then the last snapshot, searching with 200
simulations a move, plays OpenSpiel's search with 1,000 (uniformly random rollouts, uct_c 2, proven wins), in both seats equally; its
network alone plays those with 100 and 1,000. Shares are of games won, with 95% intervals (Wilson's); a score counts draws half. Moves are
compared with `benchmarks.connect_four_solver` in 500 random positions with 14 to 26 stones in which some move throws something away.

The run is kept in runs/benchmarks/connect_four_alphazero-SEED: the command can be stopped, and goes on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.connect_four_solver import Solver
from benchmarks.harness import Bar, Benchmark, Contestant
from benchmarks.lines import Lines
from benchmarks.machine import ROOT

PACKAGES = ("ludus", "numpy", "numba", "open-spiel", "torch")
MINUTES = 60.0
OWN = 200
"""Simulations of a move of its own."""
MATCHES = {
    "search against 1000": (OWN, 1_000, 200),
    "network against 100": (0, 100, 200),
    "network against 1000": (0, 1_000, 100),
}
"""Name -> its own simulations (0: the network alone), the opponent's, games in each seat."""
POSITIONS = 500
_NAME = "AlphaZero"

BENCHMARK = Benchmark(
    name="connect_four_alphazero",
    contestants=(
        Contestant(
            _NAME,
            "benchmarks.connect_four_alphazero",
            arguments=("--worker",),
            seeds=(0,),
            quick_arguments=("--brief",),
            timeout_s=4 * 3600,
            pinned=False,
        ),
    ),
    bars=(
        Bar(
            "wins with 200 simulations against 1,000", ">= 0.95", lambda m: m(_NAME, "search against 1000"), quick=False
        ),
        Bar("seconds of training on two cores", "<= 3600", lambda m: m(_NAME, "seconds"), unit=" s", quick=False),
    ),
)


def _work(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if not args.brief:
        _measure(ROOT / "runs" / "benchmarks" / f"connect_four_alphazero-{args.seed}", args.seed)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        brief = {name: (min(own, 32), 50, 5) for name, (own, _, _) in MATCHES.items()}
        _measure(Path(folder), args.seed, minutes=0.5, matches=brief, positions=20, more=("response.episodes=256",))
    return 0


def _measure(
    folder: Path,
    seed: int,
    *,
    minutes: float = MINUTES,
    matches: dict[str, tuple[int, int, int]] = MATCHES,
    positions: int = POSITIONS,
    more: Sequence[str] = (),
) -> None:
    from benchmarks.connect_four_matches import member, play, train
    from ludus.storage.reader import Reader
    from ludus.storage.stored_run import StoredRun

    lines = Lines(PACKAGES)
    runtime = "runtime={kind: processes, workers: 2}"
    train(
        "connect-four-alphazero", folder / "run", [runtime, f"seed={seed}", f"stop={{seconds: {60 * minutes}}}", *more]
    )
    stored = StoredRun(folder / "run")
    with Reader(folder / "run") as reader:
        last = reader.generations()[-1]
    place = len(stored.members[0]) - 1
    figures = {"seconds": last.seconds, "episodes": float(last.episodes)}
    for name, (own, simulations, games) in matches.items():
        sides = play(
            stored, place=place, simulations=simulations, games=games, folder=folder / "matches", seed=seed, own=own
        )
        both = sides[0] + sides[1]
        figures[name], figures[f"{name}: low"], figures[f"{name}: high"] = both.wins
        figures |= {f"{name}: score": both.score, f"{name}: games": float(both.games)}
        figures |= {
            f"{name}: wins as {seat}": side.wins[0] for seat, side in zip(("first", "second"), sides, strict=True)
        }
    figures |= _optimal(member(stored, 0, place, OWN), positions)
    lines.figures(figures)


def _optimal(policy: Any, count: int) -> dict[str, float]:
    """Shares of its moves after which a position is worth what it was."""
    rules, solver, rng = policy.model.rules, Solver(), np.random.default_rng(0)
    chosen, best = list[Any](), list[list[int]]()
    while len(chosen) < count:
        position = _random_position(rules, int(rng.integers(14, 27)), rng)
        keeping = solver.best(position)
        if len(keeping) < int(rules.legal(position[None]).sum()):
            chosen.append(position)
            best.append(keeping)
    positions, noise = np.stack(chosen), np.zeros((count, policy.noise_width), np.float32)
    observation, legal = rules.observe(positions), rules.legal(positions)
    out = {}
    for name, mode in (("network", "greedy"), ("search", "search")):
        actions = policy.act(observation, legal, None, noise, mode=mode).action.tolist()
        out[f"optimal moves, {name}"] = float(np.mean([a in keeping for a, keeping in zip(actions, best, strict=True)]))
    return out


def _random_position(rules: Any, stones: int, rng: np.random.Generator) -> Any:
    """After so many random moves that end no game."""
    position, left = np.zeros((1, rules.width), np.int8), stones
    while left:
        moved = rules.step(position, rng.choice(np.flatnonzero(rules.legal(position)[0]), 1).astype(np.int32))
        over = moved.discount[0] == 0.0
        position, left = (np.zeros_like(position), stones) if over else (moved.positions, left - 1)
    return position[0]


if __name__ == "__main__":
    sys.exit(_work(sys.argv[1:]) if "--worker" in sys.argv else BENCHMARK.main())
