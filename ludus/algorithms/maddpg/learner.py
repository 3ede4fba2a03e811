"""MADDPG's learner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ludus import seeding
from ludus.algorithms.base import LearnerContext
from ludus.algorithms.ddpg.terms import td_target
from ludus.algorithms.maddpg.acting import Acting, Answer, Choices, Points
from ludus.algorithms.maddpg.config import MADDPG
from ludus.algorithms.maddpg.terms import own_slopes, replaced
from ludus.algorithms.off_policy.config import TABLE
from ludus.algorithms.off_policy.ensemble import Ensemble
from ludus.algorithms.off_policy.learner import OffPolicyLearner
from ludus.algorithms.team_states import state_width
from ludus.algorithms.teams import RewardStatistics, joint_items, team_size, versions, views
from ludus.data.base import Columns
from ludus.data.trajectories import Trajectories
from ludus.policies.actors import actor_layout, initial_actor
from ludus.policies.mlp import Layout
from ludus.policies.network import initial_weights, layouts
from ludus.policies.registry import build_policy
from ludus.types import Array, Metrics, State, Weights


class MADDPGLearner(OffPolicyLearner):
    """m joint steps of n agents go through the shared actor as m × n rows. What critics are given of a joint step: the state, or all
    observations; who is present; and all actions, which come last, 0 of agents that are absent."""

    name = "maddpg"

    def __init__(self, config: MADDPG, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        super().__init__(config, context, spec, fresh_start=start is None)
        self.config, self._env, self._seats = config, context.env, context.seats
        self.team = team_size(context.env, context.seats, algorithm=type(config).__name__)
        boxed = spec.kind == "deterministic"
        layout = actor_layout(spec) if boxed else layouts(spec)["policy"]
        self.acting: Acting = Points(spec) if boxed else Choices(spec, temperature=config.temperature)
        rng = seeding.generator(context.seed, self.name, "actor")
        if start is not None:
            parameters = build_policy(spec, start).weights()
        else:
            parameters = initial_actor(spec, rng) if boxed else initial_weights(spec, rng)
        self.actor = Ensemble(layout, parameters, ("actor" if boxed else "policy",), ranks=context.ranks)
        self.inputs, self._boxed = layout.widths[0], boxed
        sees = self.team * self.inputs if config.critic == "observations" else state_width(context.env, context.seats)
        self.actions = slice(sees + self.team, sees + self.team * (1 + self.acting.width))  # of what a critic is given
        widths = (self.actions.stop, *layout.widths[1:-1], 1)
        self.critics = self.fresh_critics(Layout(widths, layout.activation), count=1 + config.twin)
        self._rewards = RewardStatistics(config.normalise_rewards, gamma=config.gamma, scale=self._scale)
        self._actor_metrics = {"actor_loss": 0.0, "actor_gradient_norm": 0.0}

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, Columns]]:
        """Joint steps with n-step targets, of each seat that was played, in the environment's rewards."""
        out = []
        for rows, view in views(trajectories, self._env, self._seats):
            columns = joint_items(view, gamma=self.config.gamma, steps=self.config.n_step)
            columns |= {"action": self.acting.stored(view.action), "version_lo": versions(rows, view)}
            if self.config.critic == "observations":
                columns = {name: column for name, column in columns.items() if name not in ("state", "next_state")}
            out.append((TABLE, columns))
            self._rewards.add(view)
        self.budget.add(trajectories)
        self._inserted += trajectories.num_rows
        return out

    # ------------------------------------------------------------------------------------------ learning

    def learn(self, columns: Columns, rows: int) -> Metrics:
        """See `OffPolicyLearner.learn`."""
        config, gumbel = self.config, self._gumbel(rows)
        x, after = (self._rows(columns[name]) for name in ("observation", "next"))
        out = self.actor.forward(after, target=True)[0]
        following = self._answer(out, gumbel[0], columns.get("next_mask")).action
        there = columns["next_present"]
        given = self._given(columns, "next", "next_state", there, following.reshape(*there.shape, self.acting.width))
        values = self.critics.forward(torch.from_numpy(given), target=True)
        reward = self._rewards.normalised(columns["reward"], columns["span"])
        target = td_target(values, reward, columns["discount"])
        actions = self.acting.seen(columns["action"])
        given = self._given(columns, "observation", "state", columns["present"], actions)
        fitted = self.fit(torch.from_numpy(given), np.zeros(len(given), np.int32), target, rows)
        self._improve(columns, x, given, gumbel[1], rows)
        self.critics.follow(config.polyak)
        self.actor.follow(config.polyak)
        return {
            "critic_loss": fitted.loss,
            "q_mean": fitted.value,
            "critic_gradient_norm": fitted.norm,
            **self._actor_metrics,
            **({"noise": self.rate(config.noise)} if self._boxed else {}),
        }

    def _improve(self, columns: Columns, x: torch.Tensor, given: Array, gumbel: Array, rows: int) -> None:
        """One step of the actor up the first critic's slope, each agent by its own action beside what the others did."""
        actor, present, width = self.actor, columns["present"], self.acting.width
        m, n = present.shape
        out = actor.forward(x)[0]
        answer = self._answer(out, gumbel, columns.get("mask"))
        wide = np.repeat(given[:, None], n, axis=1)
        own = answer.action.reshape(m, n, width)  # of those who are absent, too, whose rows count for nothing
        wide[..., self.actions] = replaced(given[:, self.actions].reshape(m, n, width), own).reshape(m, n, n * width)
        q = self.critics.forward(torch.from_numpy(wide.reshape(m * n, self.actions.stop)), count=1)[0]
        self.critics.gradients[0][:] = 1.0
        slopes = self.critics.input_gradient(self.actions, count=1).reshape(m, n, n, width)
        there, every = present.reshape(-1, 1), max(1, rows * n)
        penalty = self.config.output_penalty / width
        actor.sums[0] = float((penalty * np.square(out).sum(axis=1, keepdims=True) - q)[there].sum()) / every
        slope = self.acting.backward(answer, own_slopes(slopes).reshape(m * n, width))
        actor.gradients[0][:] = np.where(there, 2.0 * penalty * out - slope, 0.0) / every
        actor.backward(x)
        actor.join()
        loss = float(actor.sums[0])
        self._actor_metrics = {"actor_loss": loss, "actor_gradient_norm": self.step(actor, "the actor")}

    def _answer(self, out: Array, gumbel: Array, mask: Array | None) -> Answer:
        legal = None if mask is None else mask.reshape(out.shape)
        return self.acting.answer(out, gumbel.reshape(out.shape) if self.acting.random else None, legal)

    def _given(
        self, columns: Columns, seen: str, state: str, present: NDArray[np.bool_], actions: Array
    ) -> NDArray[np.float32]:
        """What critics are given, float32[m, ·]: actions float32[m, n, d]."""
        m, width = len(present), self.actions.stop - self.actions.start
        sees = columns[state if self.config.critic == "state" else seen]
        sees = sees.reshape(m, self.actions.start - self.team)
        parts = [sees, present, (actions * present[..., None]).reshape(m, width)]
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def _rows(self, observation: Array) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(observation, np.float32).reshape(-1, self.inputs))

    def _gumbel(self, rows: int) -> NDArray[np.float32]:
        """Standard Gumbel deviates float32[2, n, agents, d] for this rank's share of `rows`: for what comes next, and for now."""
        if not self.acting.random:
            return np.zeros((2, 0), np.float32)
        shape = (2, rows, self.team, self.acting.width)
        uniform = torch.rand(shape, generator=self._noise).numpy()[:, self.ranks.share(rows)]
        out: NDArray[np.float32] = -np.log(-np.log(np.clip(uniform, 1e-7, 1.0 - 1e-7)))
        return out

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        numbers = {"noise": self.rate(self.config.noise), "warm_up": float(self.warm_up)} if self._boxed else {}
        return {**self.actor.weights(), **{name: np.array([n], np.float32) for name, n in numbers.items()}}

    def state_dict(self) -> State:
        state = {"rewards": self._rewards.state_dict(), "actor_metrics": dict(self._actor_metrics)}
        return {**super().state_dict(), **state}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._rewards.load_state_dict(state["rewards"])
        self._actor_metrics = {name: float(value) for name, value in state["actor_metrics"].items()}
