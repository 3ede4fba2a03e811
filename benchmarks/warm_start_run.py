"""The worker of `benchmarks.warm_start`: PSRO on one game by one rule of `warm_start`, and how exploitable each generation was, exactly.

python -m benchmarks.warm_start_run --game leduc --start random --seed 0
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import benchmarks.sealed_bids
from benchmarks.lines import Lines
from ludus.core.config import to_yaml
from ludus.envs.registry import make_env
from ludus.envs.tree.game_tree import find_tree
from ludus.evaluation.population_exploitability import population_exploitability, stored_plans
from ludus.runs.runner import run
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.reader import Reader
from ludus.storage.stored_run import StoredRun

PACKAGES = ("ludus", "numpy", "numba", "scipy", "torch", "open-spiel")

COMPUTED: dict[str, Any] = {
    "kind": "ppo",
    "batch": 750,
    "batch_unit": "episodes",
    "epochs": 30,
    "minibatches": 1,
    "learning_rate": {"start": 0.01, "end": 0.0},
    "gamma": 1.0,
    "gae_lambda": 0.95,
    "max_gradient_norm": 0.2,
    "hidden": [64, 64],
    "value_network": "shared",
    "entropy": {"start": 0.05, "end": 0.0},
    "value_coefficient": 1.0,
    "clip": 0.3,
}
"""PPO on a tree in memory: payoffs and meta-strategies are exact."""

PLAYED: dict[str, Any] = {
    **COMPUTED,
    "batch": 256,
    "epochs": 4,
    "minibatches": 8,
    "learning_rate": {"start": 0.001, "end": 0.0},
    "max_gradient_norm": 0.5,
    "hidden": [128, 128],
    "entropy": 0.01,
    "clip": 0.2,
}
"""PPO where the game is played step by step, and payoffs are means of episodes."""


@dataclass(frozen=True, slots=True)
class Game:
    """id: of the environment. computed: trained on its tree; otherwise played. num_envs: environments stepped together. task: training
    episodes of a response. evaluation: episodes of a payoff."""

    id: str
    computed: bool
    num_envs: int
    generations: int
    task: int
    evaluation: int


GAMES = {
    "leduc": Game("openspiel/leduc_poker", True, num_envs=512, generations=20, task=10_000, evaluation=400),
    "liars-dice": Game("openspiel/liars_dice", True, num_envs=512, generations=20, task=10_000, evaluation=400),
    "goofspiel-4": Game(
        "openspiel/goofspiel(imp_info=True,num_cards=4,points_order=descending)",
        False,
        num_envs=256,
        generations=10,
        task=5_000,
        evaluation=400,
    ),
    "sealed-bids": Game(
        f"openspiel/{benchmarks.sealed_bids.NAME}", False, num_envs=16, generations=10, task=4_000, evaluation=100
    ),
}
STARTS = ("random", "last", "best")
"""Sources of `warm_start`, for all generations; `file` is the user's own affair."""


def scenario(game: str, start: str, seed: int, *, share: float = 1.0) -> dict[str, Any]:
    """The scenario of one cell, nothing that matters left to a default. share: of the generations."""
    chosen = GAMES[game]
    return {
        "scenario": "psro",
        "env": {
            "id": chosen.id,
            "num_envs": chosen.num_envs,
            "tree": "auto" if chosen.computed else "off",
            "node_limit": 1_000_000,
        },
        "algorithm": COMPUTED if chosen.computed else PLAYED,
        "meta_solver": "nash",
        "responses": "best",
        "order": "simultaneous",
        "mode": "greedy",
        "share": "auto",
        "generations": max(round(share * chosen.generations), 1),
        "response": {"episodes": chosen.task},
        "evaluation": {"episodes": chosen.evaluation},
        "stop": None,
        "warm_start": start,
        "seed": seed,
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", required=True, choices=GAMES)
    parser.add_argument("--start", required=True, choices=STARTS)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    chosen = parse_scenario(to_yaml(scenario(args.game, args.start, args.seed, share=args.share)))
    lines = Lines(PACKAGES)
    with tempfile.TemporaryDirectory() as folder:
        result = run(chosen, run_dir=Path(folder) / "run", report=False)
        seconds = lines.seconds
        with lines.aside():
            curve, population = judge(Path(folder) / "run", GAMES[args.game].id)
    for generation, (episodes, value) in enumerate(curve):
        lines.point(generation=generation, episodes=episodes, nash_conv=value)
    end = curve[-1][1] / 2
    lines.figures(
        {
            "seconds": seconds,
            "episodes": result.episodes,
            "exploitability": end,
            "best exploitability": min(value for _, value in curve) / 2,
            "population exploitability": population / 2,
        }
    )


def judge(folder: Path, id: str) -> tuple[list[tuple[int, float]], float]:
    """(training episodes, NashConv of the meta-strategies) of each generation, and the NashConv of the least exploitable mixture of all
    policies: on the game's tree, whether or not the run had it."""
    env = make_env(id, num_envs=1)
    tree = find_tree(env)
    env.close()
    assert tree is not None
    plans = stored_plans(StoredRun(folder), tree)
    with Reader(folder) as reader:
        records = reader.generations()
    curve = []
    for record in records:
        mixed = [marginal @ stack[: len(marginal)] for marginal, stack in zip(record.marginals, plans, strict=True)]
        curve.append((record.episodes, tree.exploitability(mixed).nash_conv))
    return curve, population_exploitability(tree, plans).nash_conv


if __name__ == "__main__":
    main()
