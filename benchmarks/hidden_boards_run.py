"""The worker of `benchmarks.hidden_boards`: trains one method in one game, and computes how exploitable it is.

python -m benchmarks.hidden_boards_run --game phantom_ttt --method mmd --steps 10000000 [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.goofspiel13_run import train
from benchmarks.lines import Lines

PACKAGES = ("ludus", "numpy", "numba", "scipy", "torch", "open-spiel")
GAMES = {
    "phantom_ttt": "openspiel/phantom_ttt",
    "dark_hex": "openspiel/dark_hex(board_size=3)",
    "abrupt_phantom_ttt": "openspiel/phantom_ttt(gameversion=abrupt)",
    "abrupt_dark_hex": "openspiel/dark_hex(board_size=3,gameversion=adh)",
}
"""Names in this benchmark, and of the environments. Policies see their view of the board."""
GENERATIONS = 10
"""Of a run, each with a snapshot. What a run announces is evaluated after every second one, in abrupt games in the end alone."""
NETWORK: dict[str, Any] = {
    "batch": 512,
    "batch_unit": "episodes",
    "hidden": [256, 256],
    "learning_rate": {"start": 1e-3, "end": 1e-4},
    "max_gradient_norm": 0.5,
    "gamma": 1.0,
}
EPOCHS: dict[str, Any] = {"epochs": 2, "minibatches": 6, "clip": 0.2}
SELF_PLAY: dict[str, Any] = {"scenario": "self_play", "every_seat": True, "mode": "explore"}
MMD: dict[str, Any] = {
    **NETWORK,
    **EPOCHS,
    "kind": "mmd",
    "alpha": {"start": 0.1, "end": 0.03},
    "eta": 0.0,
    "magnet": "uniform",
    "announce": "average",
}
METHODS: dict[str, dict[str, Any]] = {
    "mmd": {**SELF_PLAY, "algorithm": MMD},
    "ppo": {**SELF_PLAY, "algorithm": {**NETWORK, **EPOCHS, "kind": "ppo", "entropy": 0.1}},
    "rnad": {
        **SELF_PLAY,
        "algorithm": {**NETWORK, "batch": 64, "kind": "rnad", "alpha": 0.1, "announce": "average"},
    },
    "nfsp": {
        "scenario": "self_play",
        "mode": "explore",
        "algorithm": {
            "kind": "nfsp",
            "hidden": [256, 256],
            "best_response": {"hidden": [256, 256], "batch": 512, "rollout": 256, "rollout_unit": "episodes"},
        },
    },
    "psro": {
        "scenario": "psro",
        "mode": "explore",
        "warm_start": "last",
        "meta_solver": "nash",
        "algorithm": {**NETWORK, **EPOCHS, "kind": "ppo", "entropy": 0.1},
    },
    "snapshots of mmd": {**SELF_PLAY, "algorithm": MMD, "meta_solver": {"kind": "last_k", "k": 3}},
}
"""Keys beside those that all have in common. The first four announce a policy, `psro` a mixture of its responses, `snapshots of mmd` the
last three snapshots of its learner, alike."""
RATE = 30_000
"""The rate of an announced average is this over the budget: 0.003 of 10 million moves, so that it spans a like share of any run."""


def scenario(game: str, method: str, seed: int, *, steps: int) -> dict[str, Any]:
    """Return what is trained.

    Args:
        game: One of `GAMES`.
        method: One of `METHODS`.
        seed: Of the run.
        steps: Moves of both players, in all.
    """
    chosen = METHODS[method]
    algorithm = chosen["algorithm"]
    if algorithm.get("announce") == "average":
        algorithm = {**algorithm, "average_rate": min(1.0, RATE / steps)}
    # a learner that does not play every seat makes half of the moves
    learned = steps if chosen.get("every_seat") else steps // 2
    return {
        "env": {"id": GAMES[game], "num_envs": 256, "options": {"observation": "observation"}},
        "generations": GENERATIONS,
        "response": {"decisions": learned // GENERATIONS},
        "evaluation": {"episodes": 200},
        "share": "always",
        "seed": seed,
        **chosen,
        "algorithm": algorithm,
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", required=True, choices=GAMES)
    parser.add_argument("--method", required=True, choices=METHODS)
    parser.add_argument("--steps", type=int, required=True, help="moves of both players")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, help="of the run, which continues if it is there; default: none that stays"
    )
    args = parser.parse_args(argv)
    chosen = scenario(args.game, args.method, args.seed, steps=args.steps)
    if args.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            _measure(Path(folder) / "run", chosen, args.game)
    else:
        _measure(args.folder, chosen, args.game)
        shutil.rmtree(args.folder)


def _measure(folder: Path, chosen: dict[str, Any], game: str) -> None:
    import ludus

    lines = Lines(PACKAGES)
    facts = train(folder, chosen)
    begun = lines.seconds
    generations = int(facts["generations"])
    first = generations if game.startswith("abrupt") else 2
    for generation in range(first, generations + 1, 2):
        report = ludus.evaluate_exact(folder, of=f"@{generation}", threads=1)
        lines.point(
            steps=facts["environment steps"] * generation / generations,
            exploitability=report.nash_conv / 2,
            first=float(report.best[0]),
            second=float(report.best[1]),
        )
    lines.figures({**facts, "exploitability": report.nash_conv / 2, "seconds of sweeps": lines.seconds - begun})


if __name__ == "__main__":
    main()
