"""Soft actor-critic's learner, for discrete actions."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ludus import seeding
from ludus.algorithms.base import LearnerContext
from ludus.algorithms.off_policy.ensemble import Ensemble
from ludus.algorithms.off_policy.learner import OffPolicyLearner
from ludus.algorithms.returns import follow
from ludus.algorithms.sac.config import SACDiscrete
from ludus.algorithms.sac.learner import least_of
from ludus.algorithms.sac.temperature import Temperature
from ludus.algorithms.sac.terms import policy_terms, soft_values
from ludus.algorithms.states import StateTable
from ludus.data.base import Columns
from ludus.data.trajectories import Trajectories
from ludus.policies.mlp import as_rows
from ludus.policies.network import MLPPolicy, initial_weights, layouts
from ludus.types import Array, Metrics, State, Weights


class SACDiscreteLearner(OffPolicyLearner):
    """A softmax policy over legal actions; critics answer all actions at once, so that expectations are sums and nothing is drawn.

    Fresh policies are nearly uniform, so warming up needs nothing else.
    """

    name = "sac discrete"

    def __init__(self, config: SACDiscrete, context: LearnerContext, start: Weights | None = None) -> None:
        super().__init__(config, context, config.policy(context.env, context.seats), fresh_start=start is None)
        if start is None:
            start = initial_weights(self.spec, seeding.generator(context.seed, self.name, "actor"))
        layout = layouts(self.spec)["policy"]
        self.actor = Ensemble(layout, MLPPolicy(self.spec, start).weights(), ("policy",), ranks=context.ranks)
        self.critics = self.fresh_critics(layout, count=1 + config.twin)
        enumeration = context.env.enumeration
        self._states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        self._inputs, self._actions = layout.widths[0], layout.widths[-1]
        self._temperature = Temperature(config.temperature, learned=config.learn_temperature)
        self.config = config

    # ------------------------------------------------------------------------------------------ data

    def stored(self, rows: Trajectories, following: NDArray[np.int64]) -> Columns:
        """See `OffPolicyLearner.stored`; with masks, where observations are no ids that imply them."""
        columns = {
            "observation": rows.observation,
            "action": rows.action.astype(np.int32),
            "next": follow(rows.observation, rows.tail_observation, following),
        }
        if self._states is None and rows.mask is not None:
            tails = rows.tail_mask
            if tails is None:
                tails = np.ones((len(rows.tail), self._actions), np.bool_)
            columns |= {"mask": rows.mask, "next_mask": follow(rows.mask, tails, following)}
        return columns

    def _seen(self, observation: Array, mask: Array | None) -> tuple[torch.Tensor, NDArray[np.bool_]]:
        """Inputs float32[n, inputs] and legal actions bool[n, A]. Of an id of -1 nothing is known, and it counts as the first state."""
        if self._states is not None:
            ids = np.maximum(observation - self._states.base, 0)
            return self._states.x[torch.from_numpy(ids.astype(np.int64))], self._states.mask[ids]
        if mask is None:
            mask = np.ones((len(observation), self._actions), np.bool_)
        return as_rows(observation, self._inputs), mask

    # ------------------------------------------------------------------------------------------ learning

    def learn(self, columns: Columns, rows: int) -> Metrics:
        """See `OffPolicyLearner.learn`."""
        alpha, config = self._temperature.value, self.config
        x, mask = self._seen(columns["observation"], columns.get("mask"))
        after, after_mask = self._seen(columns["next"], columns.get("next_mask"))
        discount = columns["discount"]
        if self._states is not None:
            discount = np.where(columns["next"] < 0, 0.0, discount)
        least = least_of(self.critics.forward(after, target=True))
        value = soft_values(self.actor.forward(after)[0], after_mask, least, alpha)
        fitted = self.fit(x, columns["action"], columns["reward"] + discount * value, rows)

        actor = self.actor
        least = least_of(self.critics.forward(x))
        actor.sums[:] = policy_terms(actor.forward(x)[0], mask, least, alpha, max(1, rows), actor.gradients[0])
        actor.backward(x)
        actor.join()
        loss, entropy, most = map(float, actor.sums)
        norm = self.step(actor, "the actor")
        wanted = config.target_entropy * most
        self._temperature.move(entropy=entropy, target=wanted, rate=self.rate(config.learning_rate))
        self.critics.follow(config.polyak)
        return {
            "critic_loss": fitted.loss,
            "q_mean": fitted.value,
            "critic_gradient_norm": fitted.norm,
            "actor_loss": loss,
            "actor_gradient_norm": norm,
            "entropy": entropy,
            "target_entropy": wanted,
            "temperature": alpha,
        }

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return self.actor.weights()

    def state_dict(self) -> State:
        return {**super().state_dict(), "temperature": self._temperature.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._temperature.load_state_dict(state["temperature"])
