"""What learning from rows of older weights costs, with and without V-trace.

    python -m benchmarks.gradients_lag [--quick] [--seeds N] [--only SETTING …]

Every rollout is played by the weights of `lag` updates ago, as in `async` where rows arrive late; everything else is as in `sync`, in one
process, deterministic under its seed. Scores, as means and standard errors over seeds, are

    CartPole    mean return of 100 episodes of the final weights (500 is the most)
    Leduc       best response to the uniform player, seat 0: exact value of the final greedy policy, as a share of the best one's

and beside them the mean return of all training episodes. The result file has every repetition.

A2C has a third column, `a3c`: as in A3C, the slope is that of the weights which acted, values and all, and moves the newest weights
(`gradients: acting`).
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import deque
from collections.abc import Sequence

from benchmarks.contestants import Repetition
from benchmarks.gradients_tasks import CARTPOLE, LEDUC, ActorCritic, Play, Setting, context_of, learner_of, sample
from benchmarks.machine import ROOT
from benchmarks.results import result_path, write
from ludus.algorithms.common.base import Algorithm, Learner, notify_version
from ludus.algorithms.common.config import Schedule
from ludus.algorithms.on_policy.a3c import A3CLearner
from ludus.algorithms.ppo.config import PPO
from ludus.core.machine import thread_limits
from ludus.policies.registry import build_policy

LAGS, CORRECTIONS = (0, 2, 4, 8), ("none", "vtrace")
STALE = "a3c"


def _cartpole_ppo(correction: str) -> Algorithm:
    return PPO(
        correction=correction,  # type: ignore[arg-type]
        batch=512,
        batch_unit="decisions",
        epochs=10,
        minibatches=8,
        activation="tanh",
        value_network="separate",
        learning_rate=Schedule(start=1e-3, end=0.0),
        entropy=Schedule(start=0.0),
        gamma=0.98,
        gae_lambda=0.8,
        clip=0.2,
        max_gradient_norm=0.5,
        value_coefficient=0.5,
    )


def _cartpole_a2c(correction: str) -> Algorithm:
    return ActorCritic(
        correction=correction,  # type: ignore[arg-type]
        max_lag=max(LAGS),
        batch=512,
        batch_unit="decisions",
        learning_rate=Schedule(start=2e-3),
        gamma=0.98,
        gae_lambda=0.95,
    )


def _leduc_ppo(correction: str) -> Algorithm:
    return PPO(correction=correction)  # type: ignore[arg-type]


SETTINGS = (
    Setting("Leduc, PPO", LEDUC, 750, 30, _leduc_ppo),
    Setting("CartPole, PPO", CARTPOLE, 16, 80, _cartpole_ppo),
    Setting("CartPole, A2C", CARTPOLE, 16, 120, _cartpole_a2c),
)


def corrections_of(setting: Setting) -> tuple[str, ...]:
    """The columns of its table."""
    return (*CORRECTIONS, STALE) if setting.algorithm is _cartpole_a2c else CORRECTIONS


def run(setting: Setting, *, lag: int, correction: str, seed: int, quick: bool) -> dict[str, float]:
    """One training run: score, and mean return while it trained."""
    algorithm = setting.algorithm("none" if correction == STALE else correction)
    rollouts = max(2 * lag + 2, setting.rollouts // 8) if quick else setting.rollouts
    play = Play(setting.env, algorithm, num_envs=setting.num_envs, amount=algorithm.collect().amount, seed=seed)
    if correction == STALE:
        context = context_of(play, algorithm, seed=seed, rollouts=rollouts)
        learner: Learner = A3CLearner(algorithm, algorithm.model(context), context)  # type: ignore[attr-defined]
    else:
        learner = learner_of(play, algorithm, seed=seed, rollouts=rollouts)
    notify_version(learner, 0)
    acting = deque([(0, learner.weights())], maxlen=lag + 1)  # the oldest is as old as the lag, once there are so many
    returns, episodes = 0.0, 0
    for version in range(1, rollouts + 1):
        made_with, weights = acting[0]
        rollout = play.rollout(build_policy(learner.spec, weights), made_with)
        returns += float(rollout.episodes.returns[:, 0].sum())
        episodes += len(rollout.episodes.index)
        assert rollout.trajectories is not None
        learner.update(sample(learner, rollout.trajectories))
        notify_version(learner, version)
        acting.append((version, learner.weights()))
    score = play.score(learner)
    play.close()
    return {"score": score, "training return": returns / max(1, episodes)}


def _cell(values: Sequence[float]) -> str:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    mean = statistics.mean(values)
    digits = 0 if abs(mean) >= 10 else 3
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def _print(measured: dict[str, list[Repetition]], setting: Setting, figure: str) -> None:
    corrections = corrections_of(setting)
    rule = "| ---: " * (1 + len(corrections)) + "|"
    print(f"\n{setting.name}: {figure}\n\n| lag | " + " | ".join(corrections) + f" |\n{rule}")
    for lag in LAGS:
        cells = [[r.figures[figure] for r in measured[f"{setting.name}, lag {lag}, {c}"]] for c in corrections]
        print(f"| {lag} | " + " | ".join(map(_cell, cells)) + " |", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table per setting, and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradients_lag")
    parser.add_argument("--quick", action="store_true", help="an eighth of the training, two seeds")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[s.name for s in SETTINGS], default=())
    args = parser.parse_args(argv)
    seeds = range(2 if args.quick else args.seeds)
    measured: dict[str, list[Repetition]] = {}
    with thread_limits(torch_threads=1):
        for setting in SETTINGS:
            if args.only and setting.name not in args.only:
                continue
            for lag in LAGS:
                for correction in corrections_of(setting):
                    measured[f"{setting.name}, lag {lag}, {correction}"] = [
                        Repetition(s, run(setting, lag=lag, correction=correction, seed=s, quick=args.quick))
                        for s in seeds
                    ]
            for figure in ("score", "training return"):
                _print(measured, setting, figure)
    path = result_path("gradients_lag", part=args.quick or bool(args.only), folder=ROOT / "benchmarks" / "results")
    write(path, name="gradients_lag", quick=args.quick, measured=measured, carried={}, outcomes=())
    return 0


if __name__ == "__main__":
    sys.exit(main())
