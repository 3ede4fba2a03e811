"""The worker of `benchmarks.psro_family`: one method on one game, and how exploitable what it made is, on the whole game.

python -m benchmarks.psro_family_run --game leduc --method psro --seed 0
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.lines import Lines
from benchmarks.psro_family_methods import GAMES, METHODS, scenario
from ludus.core.config import to_yaml
from ludus.envs.tree.game_tree import find_tree
from ludus.evaluation.population_exploitability import population_exploitability, stored_plans
from ludus.runs.runner import run
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.base import GenerationRecord, NullObserver
from ludus.storage.reader import Reader
from ludus.storage.stored_run import StoredRun

PACKAGES = ("ludus", "numpy", "numba", "scipy", "torch", "open-spiel")
_POINTS = 10  # of the curve of population exploitability, which takes seconds each


class _Curve(NullObserver):
    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def generation_done(self, record: GenerationRecord) -> None:
        self._lines.point(nash_conv=record.nash_conv or 0.0, generation=record.number, episodes=record.episodes)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", required=True, choices=GAMES)
    parser.add_argument("--method", required=True, choices=METHODS)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        small = {**scenario("kuhn", args.method, 0), "stop": {"episodes": 5_000}}  # compiles
        run(parse_scenario(to_yaml(small)), run_dir=Path(folder) / "warm-up", report=False)
        chosen = parse_scenario(to_yaml(scenario(args.game, args.method, args.seed, share=args.share)))
        lines = Lines(PACKAGES)
        result = run(chosen, run_dir=Path(folder) / "run", observer=_Curve(lines), report=False)
        seconds = lines.seconds
        known = [value for value in result.nash_conv if value is not None]
        figures = {
            "seconds": seconds,
            "exploitability": known[-1] / 2,
            "best exploitability": min(known) / 2,
            "episodes": result.episodes,
            "policies": sum(len(names) for names in _populations(Path(folder) / "run")),
        }
        for share, value in _population_curve(Path(folder) / "run"):
            figures[f"population exploitability at {share:.0%}"] = value
        lines.figures({**figures, "population exploitability": value})


def _populations(folder: Path) -> list[list[str]]:
    stored = StoredRun(folder)
    return [stored.names(player) for player in range(len(stored.population))]


def _population_curve(folder: Path) -> list[tuple[float, float]]:
    """(share of the generations, half the NashConv of the least exploitable mixture of the policies that there were)."""
    stored = StoredRun(folder)
    env = stored.env.make(num_envs=1)
    tree = find_tree(env)
    env.close()
    assert tree is not None
    plans = stored_plans(stored, tree)
    with Reader(folder) as reader:
        sizes = [tuple(len(m) for m in record.marginals) for record in reader.generations()]
    out = []
    for share in np.linspace(1 / _POINTS, 1, _POINTS):
        there = sizes[round(share * (len(sizes) - 1))]
        found = population_exploitability(tree, [stack[:n] for stack, n in zip(plans, there, strict=True)])
        out.append((float(share), found.nash_conv / 2))
    return out


if __name__ == "__main__":
    main()
