"""DDPG's and TD3's learner."""

from __future__ import annotations

import numpy as np

from ludus.algorithms.base import LearnerContext
from ludus.algorithms.ddpg.config import DDPG
from ludus.algorithms.ddpg.terms import action_gradient, smoothed, td_target
from ludus.algorithms.off_policy.box import BoxLearner
from ludus.data.base import Columns
from ludus.types import Metrics, State, Weights


class DDPGLearner(BoxLearner):
    """A deterministic actor that follows the slope of a critic, the first of them where there are two."""

    name = "ddpg"

    def __init__(self, config: DDPG, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        super().__init__(config, context, spec, start, critics=1 + config.twin)
        self.config = config
        self._actor_metrics = {"actor_loss": 0.0, "actor_gradient_norm": 0.0}

    def learn(self, columns: Columns, rows: int) -> Metrics:
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
