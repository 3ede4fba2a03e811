"""Soft actor-critic's learner, for continuous actions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ludus.algorithms.base import LearnerContext
from ludus.algorithms.off_policy.box import BoxLearner
from ludus.algorithms.sac.config import SAC
from ludus.algorithms.sac.temperature import Temperature
from ludus.algorithms.sac.terms import soft_target, squash, squash_gradient
from ludus.data.base import Columns
from ludus.types import Array, Metrics, State, Weights


class SACLearner(BoxLearner):
    """A squashed Gaussian that follows the slope of the lesser of its critics, and of its own entropy."""

    name = "sac"

    def __init__(self, config: SAC, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        super().__init__(config, context, spec, start, critics=1 + config.twin)
        self.config = config
        self._temperature = Temperature(config.temperature, learned=config.learn_temperature)
        self._wanted = -float(self.box.size) if config.target_entropy is None else config.target_entropy

    def learn(self, columns: Columns, rows: int) -> Metrics:
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
