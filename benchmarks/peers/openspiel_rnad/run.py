"""OpenSpiel's R-NaD in self-play, and the exploitability of what it answers with, its target network.

python -m benchmarks.peers.openspiel_rnad.run --env leduc_poker --episodes 2400000

Its `RNaDSolver` (open_spiel/python/algorithms/rnad, in its versions up to 1.5) as it stands: batches of 256 games, networks of 256 × 256.
Its rates are for longer runs, and learn too slowly in some thousand steps: `SETTINGS` has others (benchmarks/peers/README.md).
Exploitability is NashConv / 2, by its own exact computation, for which the clock stands still.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

import pyspiel
from open_spiel.python.algorithms import exploitability
from open_spiel.python.algorithms.rnad import rnad

from benchmarks.lines import Lines

POINTS = 24
SETTINGS = {"learning_rate": 1e-3, "target_network_avg": 0.01, "entropy_schedule_size": (500,)}
"""Its defaults are 5e-5, 0.001 and 20,000 steps until the policy that it is regularised towards is replaced."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="rnad", choices=("rnad",))
    parser.add_argument("--env", required=True, help="as OpenSpiel calls it; openspiel/… is the same")
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # float64 where JAX has float32
    game = pyspiel.load_game(args.env.removeprefix("openspiel/"))
    config = rnad.RNaDConfig(game_name=str(game), seed=args.seed, **SETTINGS)
    solver = rnad.RNaDSolver(config)
    rnad.RNaDSolver(config).step()  # compiles
    lines = Lines(("open-spiel", "jax", "dm-haiku", "optax", "numpy"))
    steps, found = max(1, args.episodes // config.batch_size), 0.0
    told = {steps * k // POINTS for k in range(1, POINTS + 1)}
    for step in range(1, steps + 1):
        solver.step()
        if step in told:
            with lines.aside():
                found = float(exploitability.exploitability(game, solver))
            lines.point(steps=step, score=found)
    played = {"episodes": steps * config.batch_size, "decisions": solver.actor_steps, "updates": steps}
    lines.figures({"seconds": lines.seconds, **played, "score": found})


if __name__ == "__main__":
    sys.exit(main())
