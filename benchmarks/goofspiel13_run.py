"""The worker of `benchmarks.goofspiel13`: trains one method, and finds out how exploitable its population is.

python -m benchmarks.goofspiel13_run --method psro --folder FOLDER [--steps 76800000]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.lines import Lines

GAME = "openspiel/goofspiel(egocentric=True,imp_info=True,num_cards=13,points_order=descending)"
PACKAGES = ("ludus", "numpy", "numba", "scipy", "torch", "open-spiel")
STEPS, CARDS = 19_200_000, 12
"""Environment steps of the budget; of an episode."""
EPISODES = 312 * 256
"""Of one training task."""
RESPONDER, ROUNDS = 400_000, 4
"""Episodes that a responder trains for; responders of each population."""
ORACLE: dict[str, Any] = {
    "kind": "ppo",
    "batch": 256,
    "epochs": 2,
    "minibatches": 6,
    "hidden": [128, 128],
    "learning_rate": 1e-3,
    "clip": 0.2,
    "max_gradient_norm": 0.5,
}
LOW, FALLING = {"start": 0.02, "end": 0.0}, {"start": 1e-3, "end": 1e-4}
METHODS: dict[str, dict[str, Any]] = {
    "psro": {
        "scenario": "psro",
        "algorithm": {**ORACLE, "entropy": LOW, "learning_rate": FALLING},
        "meta_solver": {"kind": "nash", "slack": 0.5},
        "warm_start": "last",
    },
    "self-play psro": {
        "scenario": "self_play_psro",
        "algorithm": {**ORACLE, "entropy": LOW, "learning_rate": FALLING},
        "warm_start": "last",
    },
    "self-play, regularised": {
        "scenario": "self_play",
        "algorithm": {**ORACLE, "entropy": {"start": 0.1, "end": 0.02}, "learning_rate": FALLING},
        "latest": 0.8,
        "past": "uniform",
        "cells": "all",
    },
    "self-play, magnetic mirror descent": {
        "scenario": "self_play",
        "algorithm": {
            **ORACLE,
            "kind": "mmd",
            "alpha": 0.15,
            "eta": 0.0,
            "magnet": "moving",
            "magnet_rate": 0.005,
            "announce": "magnet",
            "learning_rate": {**FALLING, "over": 0.5},
        },
        "every_seat": True,
    },
}
"""Keys beside those that all have in common. PSRO's responses are played greedily; snapshots of self-play as they are, since with an
entropy bonus or a magnet they are themselves a mixture. The magnet's alpha, its rate and both seats are of one trial at a quarter of the
budget with the same seed."""


def scenario(method: str, seed: int, *, steps: int, episodes: int = EPISODES) -> dict[str, Any]:
    """What is trained. steps: the budget. episodes: of a task."""
    return {
        "env": {"id": GAME, "num_envs": 256},
        "generations": steps // (CARDS * episodes),
        "response": {"episodes": episodes},
        "evaluation": {"episodes": 200},
        "share": "always",
        "seed": seed,
        **METHODS[method],
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", required=True, choices=METHODS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--brief", action="store_true", help="the smaller version of --quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True, help="of the run, which goes on if it is there")
    args = parser.parse_args(argv)
    if args.brief:
        with tempfile.TemporaryDirectory() as folder:
            brief = scenario(args.method, args.seed, steps=STEPS // 100, episodes=8_192)
            _measure(Path(folder) / "run", brief, budget=4_096, rounds=2)
        return
    chosen = scenario(args.method, args.seed, steps=args.steps)
    _measure(args.folder, chosen, budget=RESPONDER, rounds=ROUNDS)
    shutil.rmtree(args.folder)


def _measure(folder: Path, chosen: dict[str, Any], *, budget: int, rounds: int) -> None:
    from ludus.algorithms.ppo.config import PPO
    from ludus.evaluation.exploiters import exploit_population

    lines = Lines(PACKAGES)
    facts = train(folder, chosen)
    algorithm = PPO.model_validate(
        {**{k: v for k, v in ORACLE.items() if k != "kind"}, "entropy": LOW, "learning_rate": FALLING}
    )
    begun = lines.seconds
    found = exploit_population(folder, budget=budget, rounds=rounds, episodes=500, checks=10_000, algorithm=algorithm)
    for number, gains in enumerate(found.curve):
        lines.point(round=number, gain_of_first=float(gains[0]), gain_of_second=float(gains[1]))
    low, high = found.interval
    lines.figures(
        {
            **facts,
            "exploitability": found.exploitability,
            "low": low,
            "high": high,
            "floor": found.floor,
            "seconds of responders": lines.seconds - begun,
            "episodes of a responder": float(budget),
        }
    )


def train(folder: Path, chosen: dict[str, Any]) -> dict[str, float]:
    """Train a scenario, or go on with it.

    Args:
        folder: Of the run.
        chosen: Keys of the scenario.

    Returns:
        Seconds, environment steps, episodes, generations and policies.
    """
    import ludus
    from benchmarks.results import in_full
    from ludus.core.config import to_yaml
    from ludus.storage.database import FILE
    from ludus.storage.reader import Reader

    if (folder / FILE).is_file():
        ludus.resume(folder, report=False)
    else:
        ludus.run(in_full(to_yaml(chosen)), run_dir=folder, report=False)
    with Reader(folder) as reader:
        last, summary = reader.generations()[-1], reader.summary()
        policies = len(reader.policies())
    assert summary is not None
    return {
        "seconds": last.seconds,
        "environment steps": float(summary.counters.get("env_steps", 0)),
        "episodes": float(last.episodes),
        "generations": float(last.number),
        "policies": float(policies),
    }


if __name__ == "__main__":
    main()
