"""DDPG's and TD3's learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.replay_learner import initial_priorities
from ludus.algorithms.off_policy.learner import BoxLearner
from ludus.backend.device import to_device
from ludus.core.types import Array, Metrics, Weights
from ludus.policies.specs import joined, part_of
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.ddpg.config import DDPG

# --------------------------------------------------------------------------------------------------------------------
# DDPG's and TD3's targets and gradients: pure functions of rows, whose actions are in [-1, 1].


def smoothed(action: Array, normal: Array, *, std: float, clip: float) -> Array:
    """Return action[n, d] + std × normal[n, d], moved by `clip` at most, within [-1, 1]. (Fujimoto et al. 2018,
    equation 14.)"""
    out: Array = np.clip(action + np.clip(std * normal, -clip, clip), -1.0, 1.0)
    return out


def td_target(values: Sequence[Array], reward: Array, discount: Array) -> NDArray[np.float64]:
    """Return reward + discount × the minimum of the critics' next values, float[n, 1] each -> float64[n]. With one
    critic: Lillicrap et al. 2016, algorithm 1; with two: Fujimoto et al. 2018, equation 10."""
    least = values[0][:, 0] if len(values) == 1 else np.minimum(values[0][:, 0], values[1][:, 0])
    out: NDArray[np.float64] = reward + discount * least.astype(np.float64)
    return out


def action_gradient(action: Array, q_grad: Array, rows: int) -> Array:
    """Return the gradient of the mean of -Q over `rows` by the argument of tanh, of action[n, d]; q_grad[n, d] is dQ/da.
    (Lillicrap et al. 2016, equation 6.)"""
    return -q_grad * (1.0 - action * action) / max(1, rows)


class DDPGLearner(BoxLearner):
    """A deterministic actor that follows the gradient of a critic, the first of two."""

    config: DDPG

    name = "ddpg"
    cuda_graph_safe = True

    def __init__(self, config: DDPG, context: LearnerContext, start: Weights | None = None) -> None:
        actor = config.actor(context.env, context.seats)
        published = config.policy(context.env, context.seats)
        if start is not None and published != actor:
            start = part_of(start, "actor")
        super().__init__(config, context, actor, start, critics=1 + config.twin)
        self.spec = published

    def priority_columns(
        self, rows: Trajectories, columns: ItemColumns, next_index: NDArray[np.int64]
    ) -> dict[str, Array]:
        if self.config.initial_priority == "largest":
            return {}
        return {"priority": initial_priorities(rows, columns, next_index)}

    def autograd(self, columns: Mapping[str, Tensor], rows: int) -> Mapping[str, Tensor]:
        config = self.config
        fitted = self.fit_modules(columns, rows)
        if self._step_turn == 0:
            self.improve(columns, rows)
            self.critics.update_target(config.polyak)
            self.actor.update_target(config.polyak)
        return fitted

    def random_columns(self, rows: int) -> Mapping[str, Tensor]:
        if self.config.target_noise <= 0.0:
            return {}
        return {"normal": to_device(self.normals(1, rows, self.box.size)[0], self.device)}

    @property
    def turn(self) -> int:
        """Return 0 for updates in which the actor moves, else 1."""
        return int((self.updates + 1) % self.config.policy_delay > 0)

    def values_and_targets(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        config = self.config
        with torch.no_grad():
            after = self.answers(batch["next"], target=True).tanh()
            if config.target_noise > 0.0:
                moved = (config.target_noise * batch["normal"]).clamp(-config.target_clip, config.target_clip)
                after = (after + moved).clamp(-1.0, 1.0)
            least = self.values_of(batch["next"], after, target=True).amin(dim=0)
            target = batch["reward"] + batch["discount"] * least
        return self.values_of(batch["observation"], batch["action"]), target

    def actor_loss(self, batch: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        x = batch["observation"]
        return (-self.values_of(x, self.answers(x).tanh(), count=1)[0].sum() / rows,)

    def written(self, columns: ItemColumns, rows: int) -> Metrics:
        config, critics = self.config, self.critics
        self.place(columns)
        out = self.actor.forward(self.next_observation_rows, target=True)[0]
        after = np.tanh(out)
        if config.target_noise > 0.0:
            normal = self.normals(1, rows, self.box.size)[0]
            after = smoothed(after, normal, std=config.target_noise, clip=config.target_clip)
        self.next_action[:] = after
        values = critics.forward(self.after, target=True)
        target = td_target(values, columns["reward"], columns["discount"])
        fitted = self.fit(self.now, self.output_index, target, rows)
        if self.turn == 0:
            self._improve(rows)
            critics.update_target(config.polyak)
            self.actor.update_target(config.polyak)
        return fitted

    def update(self, batch: Sample) -> Metrics:
        return {**super().update(batch), "noise": self._exploration}

    def _improve(self, rows: int) -> None:
        """Take one step of the actor up the first critic's gradient."""
        actor, critics = self.actor, self.critics
        self.action[:] = action = np.tanh(actor.forward(self.observation_rows)[0])
        actor.sums[0] = -float(critics.forward(self.now, count=1)[0].sum()) / max(1, rows)
        critics.gradients[0][:] = 1.0
        actor.gradients[0][:] = action_gradient(action, self.action_grad(count=1), rows)
        actor.backward(self.observation_rows)
        self.step_actor()

    @property
    def _exploration(self) -> float:
        return self.rate(self.config.noise)

    def weights(self) -> Weights:
        numbers = {"noise": self._exploration, "warm_up": float(self.warm_up)}
        actor = {**self.actor.weights(), **{name: np.array([n], np.float32) for name, n in numbers.items()}}
        if self.config.initial_priority == "largest":
            return actor
        return joined({"actor": actor, "critics": self.critics.weights()})
