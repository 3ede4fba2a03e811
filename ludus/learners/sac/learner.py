"""Soft actor-critic's learners, for continuous and for discrete actions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import TrainingError
from ludus.core.types import Array, Metrics, State, Weights
from ludus.learners.base import LearnerContext
from ludus.learners.off_policy.learner import BoxLearner, Ensemble, OffPolicyLearner
from ludus.learners.optimizer import Adam
from ludus.learners.returns import follow
from ludus.learners.sac.losses import policy_losses, soft_target, soft_values, squash, squash_gradient
from ludus.learners.states import StateTable
from ludus.policies.actor_critic import first_weights, layouts
from ludus.policies.mlp import Layout, as_rows
from ludus.replay.base import ItemColumns
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.learners.sac.options import SAC, SACDiscrete

# --------------------------------------------------------------------------------------------------------------------
# What entropy is worth: fixed, or moved so that the policy's entropy goes to a target.


class Temperature:
    """α > 0, kept as its logarithm. (Haarnoja et al. 2018, section 5.)"""

    def __init__(self, start: float, *, learned: bool) -> None:
        self._log, self._gradient = np.array([math.log(start)]), np.zeros(1)
        self._adam = Adam(1, epsilon=1e-8, dtype=np.float64)
        self._learned = learned

    @property
    def value(self) -> float:
        """α."""
        return math.exp(self._log[0])

    def move(self, *, entropy: float, target: float, rate: float) -> None:
        """A step of Adam down log α × (entropy - target), the loss of equation 18 by the logarithm, as its authors' code has it. Raises
        TrainingError if the entropy is no number. Nothing happens to one that is fixed."""
        if not self._learned:
            return
        self._gradient[0] = entropy - target
        if not math.isfinite(self._adam.step(self._log, self._gradient, rate=rate, max_norm=0.0)):
            raise TrainingError("the policy's entropy became NaN or infinite")

    def state_dict(self) -> State:
        return {"log": self._log.copy(), "adam": self._adam.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._log[:] = state["log"]
        self._adam.load_state_dict(state["adam"])


class SACLearner(BoxLearner):
    """A squashed Gaussian that follows the slope of the lesser of its critics, and of its own entropy."""

    name = "sac"

    def __init__(self, config: SAC, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        super().__init__(config, context, spec, start, critics=1 + config.twin)
        self.config = config
        self._temperature = Temperature(config.temperature, learned=config.learn_temperature)
        self._wanted = -float(self.box.size) if config.target_entropy is None else config.target_entropy

    def learn(self, columns: ItemColumns, rows: int) -> Metrics:
        """See `OffPolicyLearner.learn`."""
        self.place(columns)
        alpha, normal = self._temperature.value, self.normals(2, rows, self.box.size)
        logp = squash(self.actor.forward(self.next_seen)[0], normal[0], self.next_action)
        least = least_of(self.critics.forward(self.after, target=True))
        target = soft_target(least[:, 0], logp, columns["reward"], columns["discount"], alpha)
        fitted = self.fit(self.now, self.taken, target, rows)
        loss, entropy, norm = self._improve(normal[1], alpha, rows)
        self._temperature.move(entropy=entropy, target=self._wanted, rate=self.rate(self.config.learning_rate))
        self.critics.follow(self.config.polyak)
        return {
            "critic_loss": fitted.loss,
            "q_mean": fitted.value,
            "critic_gradient_norm": fitted.norm,
            "actor_loss": loss,
            "actor_gradient_norm": norm,
            "entropy": entropy,
            "temperature": alpha,
        }

    def _improve(self, normal: Array, alpha: float, rows: int) -> tuple[float, float, float]:
        """One step of the actor; its loss and entropy before, and the gradient's norm."""
        actor = self.actor
        out = actor.forward(self.seen)[0]
        logp = squash(out, normal, self.action)
        values = self.critics.forward(self.now)
        least = least_of(values)
        for q, gradient in zip(values, self.critics.gradients, strict=True):
            gradient[:] = q == least
        if len(values) == 2:  # where both are equal, the first counts
            self.critics.gradients[1][:] = 1.0 - self.critics.gradients[0]
        squash_gradient(out, normal, self.action, self.slopes(), alpha, max(1, rows), actor.gradients[0])
        actor.sums[:2] = (alpha * logp - least[:, 0]).sum() / max(1, rows), -logp.sum() / max(1, rows)
        actor.backward(self.seen)
        actor.join()
        loss, entropy = map(float, actor.sums[:2])
        return loss, entropy, self.step(actor, "the actor")

    def weights(self) -> Weights:
        return {**self.actor.weights(), "warm_up": np.array([self.warm_up], np.float32)}

    def state_dict(self) -> State:
        return {**super().state_dict(), "temperature": self._temperature.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._temperature.load_state_dict(state["temperature"])


def least_of(values: Sequence[Array]) -> Array:
    """The smaller of two critics' values, or the only one's."""
    return values[0].copy() if len(values) == 1 else np.minimum(values[0], values[1])


class SACDiscreteLearner(OffPolicyLearner):
    """A softmax policy over legal actions; critics answer all actions at once, so that expectations are sums and nothing is drawn.

    Fresh policies are nearly uniform, so warming up needs nothing else.
    """

    name = "sac discrete"

    def __init__(self, config: SACDiscrete, context: LearnerContext, start: Weights | None = None) -> None:
        super().__init__(config, context, config.policy(context.env, context.seats), fresh_start=start is None)
        layout = layouts(self.spec)["policy"]
        weights = first_weights(self.spec, start, seed=seeding.key(context.seed, self.name, "actor") % 2**63)
        self.actor = Ensemble({"policy": layout}, weights, ranks=context.ranks)
        self.critics = self.fresh_critics(Layout(layout.widths, layout.activation), count=1 + config.twin)
        enumeration = context.env.enumeration
        self._states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        self._inputs, self._actions = layout.widths[0], layout.widths[-1]
        self._temperature = Temperature(config.temperature, learned=config.learn_temperature)
        self.config = config

    # ------------------------------------------------------------------------------------------ data

    def stored(self, rows: Trajectories, following: NDArray[np.int64]) -> ItemColumns:
        """See `OffPolicyLearner.stored`; with masks, where observations are no ids that imply them."""
        columns = {
            "observation": rows.observation,
            "action": rows.action.astype(np.int32),
            "next": follow(rows.observation, rows.bootstrap_observation, following),
        }
        if self._states is None and rows.mask is not None:
            after = rows.bootstrap_mask
            if after is None:
                after = np.ones((len(rows.tail), self._actions), np.bool_)
            columns |= {"mask": rows.mask, "next_mask": follow(rows.mask, after, following)}
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

    def learn(self, columns: ItemColumns, rows: int) -> Metrics:
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
        actor.sums[:] = policy_losses(actor.forward(x)[0], mask, least, alpha, max(1, rows), actor.gradients[0])
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
