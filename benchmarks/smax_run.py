"""The worker of `benchmarks.smax`: one preset, one seed, and how many battles the trained team wins that training never saw.

python -m benchmarks.smax_run --preset smax-3m --seed 0 --budget 3000000 --folder runs/benchmarks/smax-3m-0
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import ludus
from benchmarks.learning_run import Curve, run_seconds, trained
from benchmarks.lines import Lines
from ludus.core.seeding import keys
from ludus.envs.base import VectorEnv
from ludus.runs.scenario_files import load_scenario

PACKAGES = ("ludus", "numpy", "torch", "jax", "jaxmarl")
BATTLES, AT_ONCE = 128, 32


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    args = parser.parse_args(argv)
    made = scenario(args.preset, args.seed, args.budget)
    lines = Lines(PACKAGES)
    curve = Curve(lines, exact=False)
    trained(made.to_yaml(), args.folder, curve)
    lines.figures({"seconds": max(lines.seconds, run_seconds(args.folder)), **curve.counters})
    env = made.env.make(num_envs=AT_ONCE)
    lines.figures(battles(env, ludus.load_policy(f"{args.folder}@newest"), episodes=BATTLES // AT_ONCE))


def scenario(preset: str, seed: int, budget: int) -> ludus.Scenario:
    """A cell's. budget: in the unit of the preset."""
    unit = next(iter(load_scenario(preset).model_dump()["response"]))
    changes = [f"response.{unit}={budget}", f"seed={seed}", "evaluation.episodes=2", "checkpoints.iterations=50"]
    return load_scenario(preset, changes)


def battles(env: VectorEnv, policy: ludus.TrainedPolicy, *, episodes: int) -> dict[str, float]:
    """Of so many episodes in each environment, played greedily: the share that was won, and the mean return of a unit. Whoever wins has
    taken all of the enemies' health, 1, and gets the bonus of 1."""
    units, returns = len(env.spec.agents), []
    timestep = env.reset(keys(7, "smax battles", count=env.num_envs), episodes=episodes)
    while len(timestep.due[0].slot):
        due = timestep.due[0]
        actions, _ = policy.predict(due.observation, due.mask, deterministic=True)
        timestep = env.step((np.asarray(actions),))
        returns.extend((timestep.finished.returns[:, 0] / units).tolist())
    paid = np.array(returns)
    return {"win rate": float((paid > 1.99).mean()), "return": float(paid.mean()), "battles": float(len(paid))}


if __name__ == "__main__":
    main()
