"""What `benchmarks.gradients` and `benchmarks.gradients_lag` learn: CartPole, and best responses on Leduc poker, one rollout at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ludus.algorithms.common.base import Algorithm, Learner, LearnerContext
from ludus.algorithms.common.losses import entropy, log_prob, policy_gradient, value_loss
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.config import OnPolicy
from ludus.core.types import Mixture, PolicyRef, PolicySpec
from ludus.envs.registry import make_env
from ludus.envs.tree.game_tree import compile_tree
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.replay.trajectories import Trajectories
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

UNIFORM = PolicyRef(1, "uniform")
CARTPOLE, LEDUC = "gymnasium/CartPole-v1", "leduc_poker"


class ActorCritic(OnPolicy):
    """Advantage actor-critic with a critic of its own."""

    def networks(self, inputs: int, actions: int) -> dict[str, torch.nn.Module]:
        def net(outputs: int) -> torch.nn.Module:
            hidden = torch.nn.Sequential(torch.nn.Linear(inputs, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
            return torch.nn.Sequential(hidden, torch.nn.Tanh(), torch.nn.Linear(64, outputs))

        return {"policy": net(actions), "critic": net(1)}

    def loss(self, networks: Any, batch: Batch) -> torch.Tensor:
        logits, value = networks["policy"](batch.x), networks["critic"](batch.x)[:, 0]
        actor = policy_gradient(log_prob(logits, batch.action, batch.mask), batch.advantage)
        return (actor + 0.5 * value_loss(value, batch.target) - 0.01 * entropy(logits, batch.mask)).mean()


class Play:
    """Rollouts of one learner in one environment; `amount` of the algorithm's collect unit each."""

    def __init__(self, env: str, algorithm: Algorithm, *, num_envs: int, amount: int, seed: int) -> None:
        self._tree = compile_tree(env) if env == LEDUC else None
        vector = make_env(f"openspiel/{env}" if env == LEDUC else env, num_envs=num_envs)
        self.spec, self._unit, self._amount, self._seed = vector.spec, algorithm.collect().unit, amount, seed
        self._worker = RolloutWorker(vector, LocalBank(vector.spec, num_envs))
        random = PolicySpec("random", {"actions": int(vector.spec.agents[0].action.n)})  # type: ignore[attr-defined]
        self._others: Sequence[tuple[PolicyRef, Policy]] = [(UNIFORM, build_policy(random, {}))] if self._tree else []
        self._opponents = Mixture.product({1: ([UNIFORM], [1.0])} if self._tree else {})
        self._orders = 0

    def rollout(self, policy: Policy, version: int, *, episodes: int = 0) -> Rollout:
        """The next one; `episodes`: instead so many whole episodes, which training does not go on from."""
        ref = PolicyRef(0, "learner", version)
        fresh = bool(episodes) or self._orders == 0 or self._unit == "episodes"
        request = RolloutRequest(
            ref,
            (0,),
            self._opponents,
            "episodes" if episodes else self._unit,
            episodes or self._amount,
            seed=1_000_003 * self._seed + self._orders,
            carry_on=not fresh,
        )
        self._orders += 1
        return self._worker.play(request, [(ref, policy), *self._others])

    def score(self, learner: Learner) -> float:
        """Of the final weights: mean return of 100 episodes, or the exact value of the greedy policy as a share of the best response's."""
        policy = build_policy(learner.spec, learner.weights())
        if self._tree is None:
            return float(self.rollout(policy, 1_000_000, episodes=100).episodes.returns[:, 0].mean())
        plans = [self._tree.realization(p, self._tree.uniform(p)) for p in (0, 1)]
        best, _ = self._tree.best_response(0, plans)
        plans[0] = self._tree.realization(0, policy.tabulate(self._tree.enumeration, 0, mode="greedy"))
        return float(self._tree.values(plans)[0] / best)

    def close(self) -> None:
        self._worker.close()


@dataclass(frozen=True, slots=True)
class Setting:
    """rollouts: of a whole run with one learner. algorithm: of a correction."""

    name: str
    env: str
    num_envs: int
    rollouts: int
    algorithm: Callable[[str], Algorithm]


def sample(learner: Learner, trajectories: Trajectories) -> Sample:
    """What a queue would hand out of a rollout."""
    ((_, columns),) = learner.items(trajectories)
    n = len(columns["action"])
    return Sample(columns, np.arange(n), np.ones(n))


def context_of(play: Play, algorithm: Algorithm, *, seed: int, rollouts: int, **more: Any) -> LearnerContext:
    """With a budget of so many of the algorithm's own rollouts."""
    return LearnerContext(play.spec, (0,), seed, total=rollouts * algorithm.collect().amount, **more)


def learner_of(play: Play, algorithm: Algorithm, *, seed: int, rollouts: int, **more: Any) -> Learner:
    """As `context_of`."""
    return algorithm.learner(context_of(play, algorithm, seed=seed, rollouts=rollouts, **more))
