"""The learner of tabular Q-learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ludus.algorithms.common.base import TRANSITIONS, LearnerContext
from ludus.algorithms.common.config import Budget
from ludus.algorithms.common.returns import gather_next, n_step
from ludus.core.arrays import kernel
from ludus.core.errors import ScenarioError, TrainingError
from ludus.core.types import Metrics, State, Weights
from ludus.policies.categorical import epsilon_mix, one_hot_best
from ludus.policies.registry import build_policy
from ludus.policies.specs import information_state_ids
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.contrib.algorithms.tabular_q.config import TabularQ

_LEAST_GREED = 1e-9  # how much the best action keeps where epsilon is 1, so that the greedy mode knows it
_PREFERENCE = 1e-6  # how much a warm start's actions are preferred while nothing is known


class TabularQLearner:
    """Sweeps over each rollout once, last decision first, so that an episode's return reaches its first decision in one
    sweep."""

    def __init__(self, config: TabularQ, context: LearnerContext, start: Weights | None = None) -> None:
        if context.ranks.size > 1:
            raise ScenarioError(
                f"tabular Q-learning was given {context.ranks.size} ranks and has no gradients that they could add up: each of its changes "
                "starts from the one before. Train it with one rank (a sweep costs less than handing out its rows), or use dqn or ppo."
            )
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        assert context.env.enumeration is not None
        ids = information_state_ids(context.env.enumeration, context.seats)
        self._mask = np.ascontiguousarray(context.env.enumeration.mask[ids])
        self._base = ids.start
        self._q = np.zeros(self._mask.shape)
        if start is not None:
            self._q += _PREFERENCE * np.asarray(build_policy(self.spec, start).weights()["probs"])
        self._visits = np.zeros(self._mask.shape, np.int64)
        self._budget = Budget.of(config.collect(), context)
        self._updates = 0
        self._waiting = 0
        self._unknown_bootstraps = 0

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return one-step transitions; `next` is an id, or -1 where nothing follows or the id is unknown."""
        rows = trajectories
        reward, discount, next_index = n_step(rows.start, rows.reward, rows.tail, self.config.gamma, 1)
        after = gather_next(rows.observation, rows.bootstrap_observation, next_index)
        after = np.where(discount > 0.0, after, -1)
        self._unknown_bootstraps += int(np.count_nonzero((discount > 0.0) & (after < 0)))
        columns = {
            "observation": rows.observation,
            "action": rows.action,
            "reward": reward,
            "discount": discount,
            "next": after.astype(np.int32),
            "version_lo": np.repeat(rows.version_lo, np.diff(rows.start)),
        }
        self._budget.add(rows)
        self._waiting += rows.num_rows
        return [(TRANSITIONS, columns)]

    def batches(self) -> Sequence[tuple[str, int]]:
        return [(TRANSITIONS, 0)] if self._waiting else []

    def update(self, batch: Sample) -> Metrics:
        """Run one sweep. Raise TrainingError if a reward is not finite, before anything is changed."""
        columns = batch.columns
        if not np.isfinite(columns["reward"]).all():
            raise TrainingError(
                f"tabular Q-learning, update {self._updates + 1}: a reward is NaN or infinite. The values from before this update are "
                "kept; check the environment's rewards."
            )
        rate = self.config.learning_rate.at(self._budget.progress)
        power = self.config.power if self.config.step == "visits" else 0.0
        error = _sweep(
            self._q,
            self._visits,
            self._mask,
            columns["observation"] - self._base,
            np.ascontiguousarray(columns["action"], np.int32),
            columns["reward"],
            columns["discount"],
            np.where(columns["next"] >= 0, columns["next"] - self._base, -1),
            rate,
            power,
        )
        self._updates += 1
        self._waiting = 0
        return {
            "rows": float(len(columns["reward"])),
            "td_error": float(error),
            "epsilon": self._epsilon,
            "learning_rate": rate,
            "visited": float(np.count_nonzero(self._visits)) / max(1, int(np.count_nonzero(self._mask))),
            "tails_without_value": float(self._unknown_bootstraps),
        }

    @property
    def _epsilon(self) -> float:
        return min(1.0, self.config.epsilon.at(self._budget.progress))

    def weights(self) -> Weights:
        """Return epsilon-greedy probabilities; among unvisited actions of equal value the first is the best."""
        epsilon = min(self._epsilon, 1.0 - _LEAST_GREED)
        return {"probs": epsilon_mix(one_hot_best(self._q, self._mask), self._mask, epsilon)}

    def state_dict(self) -> State:
        return {
            "q": self._q.copy(),
            "visits": self._visits.copy(),
            "budget": self._budget.state_dict(),
            "updates": self._updates,
            "waiting": self._waiting,
            "blind": self._unknown_bootstraps,
        }

    def load_state_dict(self, state: State) -> None:
        self._q[:], self._visits[:] = state["q"], state["visits"]
        self._budget.load_state_dict(state["budget"])
        self._updates, self._waiting, self._unknown_bootstraps = (
            int(state[key]) for key in ("updates", "waiting", "blind")
        )


@kernel
def _sweep(q, visits, mask, state, action, reward, discount, after, rate, power):  # type: ignore[no-untyped-def]
    """Update Q(s, a) += α (r + γ max_b Q(s', b) - Q(s, a)) for all rows, last first. Return the mean |error|. α = rate
    / visits^power, at most 1."""
    total = 0.0
    for k in range(len(state) - 1, -1, -1):
        target = reward[k]
        if after[k] >= 0:
            best = -np.inf
            for b in range(mask.shape[1]):
                if mask[after[k], b]:
                    best = max(best, q[after[k], b])
            target += discount[k] * best
        s, a = state[k], action[k]
        visits[s, a] += 1
        error = target - q[s, a]
        q[s, a] += min(1.0, rate * float(visits[s, a]) ** -power) * error
        total += abs(error)
    return total / max(1, len(state))
