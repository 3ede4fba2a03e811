"""How much faster CPU kernels learn than autograd: updates of two equal learners from the same batches, in turn, in one process.

    python -m benchmarks.kernel_speed [CASE …]

Both learn with the algorithm's own settings (`CASES`). Times are process times of one update, the least of several rounds, one thread.
Kernels of an algorithm are kept where they are 1.3 times as fast as autograd or more.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import ludus
from benchmarks.contestants import Repetition
from benchmarks.machine import ROOT
from benchmarks.results import Outcome, result_path, write
from ludus.algorithms.common.base import Algorithm, Learner, LearnerContext
from ludus.core.machine import thread_limits
from ludus.core.types import DeviceChoice, Mixture, PolicyRef
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.replay.base import ItemColumns, Sample
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

WANTED, ROUNDS = 1.3, 15


@dataclass(frozen=True, slots=True)
class Case:
    """An algorithm in an environment. table: what it learns from; rows: of a batch, 0 for the whole rollout; updates: of a round."""

    algorithm: Callable[[], Algorithm]
    env: str
    decisions: int
    table: str
    rows: int = 0
    updates: int = 40
    options: Mapping[str, Any] = field(default_factory=dict)


LEDUC = "openspiel/leduc_poker"
CASES = {
    "ppo, CartPole": Case(
        lambda: ludus.PPO(epochs=4, minibatches=8), "gymnasium/CartPole-v1", 2048, "rollouts", updates=4
    ),
    "mmd, Leduc": Case(lambda: ludus.MMD(), LEDUC, 6000, "rollouts", updates=4),
    "dqn, CartPole": Case(lambda: ludus.DQN(), "gymnasium/CartPole-v1", 5000, "replay", 64),
    "sac, Pendulum": Case(lambda: ludus.SAC(), "gymnasium/Pendulum-v1", 5000, "replay", 256),
    "nfsp, Leduc": Case(lambda: ludus.NFSP(), LEDUC, 20_000, "reservoir", 2048),
    "nfsp, Leduc without its tree": Case(
        lambda: ludus.NFSP(), LEDUC, 20_000, "reservoir", 2048, options={"tree": "off"}
    ),
}


class Side:
    """One of the two learners of a case, with what its table would hold. written: whether CPU kernels compute its updates."""

    def __init__(self, case: Case, *, written: bool) -> None:
        algorithm, env = case.algorithm(), make_env(case.env, num_envs=8, **case.options)
        seats = tuple(range(env.spec.num_players))
        self.learner: Learner = algorithm.learner(
            LearnerContext(env.spec, seats, 0, device=DeviceChoice("cpu", written=written))
        )
        policy, ref = build_policy(self.learner.spec, self.learner.weights()), PolicyRef(0, "learner", 1)
        collect = algorithm.collect()
        request = RolloutRequest(
            ref, seats, Mixture(()), "decisions", case.decisions, 1, together=len(seats) > 1, state=collect.state
        )
        rows = RolloutWorker(env, LocalBank(env.spec, 8)).play(request, [(ref, policy)]).trajectories
        assert rows is not None
        self.columns = dict(self.learner.items(rows))[case.table]

    def updates(self, case: Case, number: int) -> float:
        """Return the seconds of one update, the mean of a round's."""
        samples = [drawn(self.columns, case.rows, seed) for seed in range(number, number + case.updates)]
        begun = time.process_time()
        for sample in samples:
            self.learner.update(sample)
        return (time.process_time() - begun) / len(samples)


def drawn(columns: ItemColumns, rows: int, seed: int) -> Sample:
    """Return random rows as a batch; 0 rows: all."""
    count = len(next(iter(columns.values())))
    index = np.random.default_rng(seed).integers(count, size=rows) if rows else np.arange(count)
    return Sample({name: column[index] for name, column in columns.items()}, index, np.ones(len(index)))


def measured(case: Case) -> tuple[float, float]:
    """Return the seconds of an update by kernels, and by autograd."""
    sides = Side(case, written=True), Side(case, written=False)
    least = [float("inf"), float("inf")]
    for turn in range(1 + ROUNDS):  # the first compiles
        for k, side in enumerate(sides):
            seconds = side.updates(case, 1000 * turn)
            least[k] = min(least[k], seconds) if turn else least[k]
    return least[0], least[1]


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, and bars."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel_speed")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"one of {', '.join(CASES)}; none: all")
    names = parser.parse_args(argv).cases
    figures, outcomes = {}, []
    print(f"{'case':32}{'kernels ms':>12}{'autograd ms':>13}{'times':>8}")
    for name in names or CASES:
        with thread_limits(torch_threads=1):
            kernels, autograd = measured(CASES[name])
        times = autograd / kernels
        print(f"{name:32}{1e3 * kernels:>12.3f}{1e3 * autograd:>13.3f}{times:>8.2f}", flush=True)
        figures[name] = [Repetition(0, {"kernels seconds": kernels, "autograd seconds": autograd})]
        outcomes.append(Outcome(name, f">= {WANTED}", "", times, "met" if times >= WANTED else "short"))
    path = result_path("kernel_speed", part=bool(names), folder=ROOT / "benchmarks" / "results")
    write(path, name="kernel_speed", quick=False, measured=figures, carried={}, outcomes=outcomes)
    for outcome in outcomes:
        print(outcome.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
