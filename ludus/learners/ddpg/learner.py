"""DDPG's and TD3's learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Array, Metrics, State, Weights
from ludus.learners.base import LearnerContext
from ludus.learners.off_policy.learner import BoxLearner
from ludus.replay.base import ItemColumns

if TYPE_CHECKING:
    from ludus.learners.ddpg.options import DDPG

# --------------------------------------------------------------------------------------------------------------------
# DDPG's and TD3's targets and gradients: pure functions of rows, whose actions are in [-1, 1].


def smoothed(action: Array, normal: Array, *, std: float, clip: float) -> Array:
    """action[n, d] + std × normal[n, d], moved by `clip` at most, within [-1, 1]. (Fujimoto et al. 2018, equation 14.)"""
    out: Array = np.clip(action + np.clip(std * normal, -clip, clip), -1.0, 1.0)
    return out


def td_target(values: Sequence[Array], reward: Array, discount: Array) -> NDArray[np.float64]:
    """reward + discount × the least of the critics' values of what comes next, float[n, 1] each -> float64[n]. With one critic: Lillicrap
    et al. 2016, algorithm 1; with two: Fujimoto et al. 2018, equation 10."""
    least = values[0][:, 0] if len(values) == 1 else np.minimum(values[0][:, 0], values[1][:, 0])
    out: NDArray[np.float64] = reward + discount * least.astype(np.float64)
    return out


def action_gradient(action: Array, slope: Array, rows: int) -> Array:
    """Gradient of the mean of -Q over `rows`, by what tanh made action[n, d] from; slope[n, d] is dQ/da. (Lillicrap et al. 2016,
    equation 6.)"""
    return -slope * (1.0 - action * action) / max(1, rows)


class DDPGLearner(BoxLearner):
    """A deterministic actor that follows the slope of a critic, the first of them where there are two."""

    name = "ddpg"

    def __init__(self, config: DDPG, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        super().__init__(config, context, spec, start, critics=1 + config.twin)
        self.config = config
        self._actor_metrics = {"actor_loss": 0.0, "actor_gradient_norm": 0.0}

    def learn(self, columns: ItemColumns, rows: int) -> Metrics:
        """See `OffPolicyLearner.learn`."""
        config = self.config
        self.place(columns)
        out = self.actor.forward(self.next_seen, target=True)[0]
        after = np.tanh(out)
        if config.target_noise > 0.0:
            normal = self.normals(1, rows, self.box.size)[0]
            after = smoothed(after, normal, std=config.target_noise, clip=config.target_clip)
        self.next_action[:] = after
        values = self.critics.forward(self.after, target=True)
        target = td_target(values, columns["reward"], columns["discount"])
        fitted = self.fit(self.now, self.taken, target, rows)
        if (self.updates + 1) % config.policy_delay == 0:
            self._improve(rows)
            self.critics.follow(config.polyak)
            self.actor.follow(config.polyak)
        return {
            "critic_loss": fitted.loss,
            "q_mean": fitted.value,
            "critic_gradient_norm": fitted.norm,
            **self._actor_metrics,
            "noise": self._exploration,
        }

    def _improve(self, rows: int) -> None:
        """One step of the actor up the first critic's slope."""
        actor = self.actor
        self.action[:] = action = np.tanh(actor.forward(self.seen)[0])
        actor.sums[0] = -float(self.critics.forward(self.now, count=1)[0].sum()) / max(1, rows)
        self.critics.gradients[0][:] = 1.0
        actor.gradients[0][:] = action_gradient(action, self.slopes(count=1), rows)
        actor.backward(self.seen)
        actor.join()
        loss = float(actor.sums[0])
        self._actor_metrics = {"actor_loss": loss, "actor_gradient_norm": self.step(actor, "the actor")}

    @property
    def _exploration(self) -> float:
        return self.rate(self.config.noise)

    def weights(self) -> Weights:
        numbers = {"noise": self._exploration, "warm_up": float(self.warm_up)}
        return {**self.actor.weights(), **{name: np.array([n], np.float32) for name, n in numbers.items()}}

    def state_dict(self) -> State:
        return {**super().state_dict(), "actor_metrics": dict(self._actor_metrics)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._actor_metrics = {name: float(value) for name, value in state["actor_metrics"].items()}
