"""MADDPG's learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.space_checks import state_width, team_size
from ludus.algorithms.off_policy.learner import OffPolicyLearner
from ludus.backend.device import to_device
from ludus.backend.mlp import Layout
from ludus.contrib.algorithms.joint_steps import RewardStatistics, joint_items, versions, views
from ludus.core.types import Array, Metrics, PolicySpec, State, Weights
from ludus.policies.heads import Bounds
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.contrib.algorithms.maddpg.config import MADDPG

# --------------------------------------------------------------------------------------------------------------------
# How MADDPG's learner sees actions: as points of [-1, 1]^d, or one-hot.


class ActionKind(Protocol):
    """One kind of action space.

    Attributes:
        width: d, outputs of the actor per agent, and inputs of the critic per agent.
        random: Whether `sample` needs Gumbel deviates float32[r, d].
    """

    width: int
    random: bool

    def stored(self, action: Array) -> Array:
        """Return actions [T, n, …] as the table stores them."""
        ...

    def critic_actions(self, stored: Tensor) -> Tensor:
        """Return stored actions [m, n, …] as the critic sees them, float32[m, n, d]."""
        ...

    def sample(self, out: Tensor, gumbel: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return actions float[r, d] with gradients, by autograd."""
        ...


class BoxActions:
    """Actions in a box."""

    random = False

    def __init__(self, spec: PolicySpec) -> None:
        self._box = Bounds.of(spec.config["action"])
        self.width = self._box.size

    def stored(self, action: Array) -> Array:
        """Return the same as `ActionKind`: float32[T, n, d] in [-1, 1]."""
        return self._box.to_unit(action.reshape(-1, *self._box.shape)).reshape(*action.shape[:2], self.width)

    def critic_actions(self, stored: Tensor) -> Tensor:
        """Return the same as `ActionKind`."""
        return stored

    def sample(self, out: Tensor, gumbel: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return the same as `ActionKind`: tanh."""
        return out.tanh()


class OneHotActions:
    """Discrete actions, by the Gumbel-softmax with a straight-through gradient."""

    random = True

    def __init__(self, spec: PolicySpec, *, temperature: float) -> None:
        self.width, self._temperature = int(spec.config["action"]["actions"]), temperature

    def stored(self, action: Array) -> Array:
        """Return the same as `ActionKind`: int32[T, n]."""
        return action.astype(np.int32)

    def critic_actions(self, stored: Tensor) -> Tensor:
        """Return the same as `ActionKind`: one-hot."""
        return (stored[..., None] == torch.arange(self.width, device=stored.device)).float()

    def sample(self, out: Tensor, gumbel: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return one-hot choices float[r, A] of the legal actions with the largest softmax((out + gumbel) / temperature),
        which, for standard Gumbel deviates, are samples of softmax(out); 0 in rows without a legal action. Gradients are
        those of the softmax (the straight-through estimator). (Jang, Gu and Poole 2017, "Categorical reparameterization
        with Gumbel-softmax", equations 1 and 2, section 2.2; Maddison et al. 2017.)"""
        assert gumbel is not None
        legal = torch.ones_like(out, dtype=torch.bool) if mask is None else mask
        noisy = (out + gumbel) / self._temperature
        soft = torch.softmax(noisy.masked_fill(~legal & legal.any(dim=1, keepdim=True), -torch.inf), dim=1)
        best = soft.argmax(dim=1, keepdim=True)
        hard = torch.zeros_like(soft).scatter(1, best, 1.0)
        return (hard + soft - soft.detach()) * legal


class MADDPGLearner(OffPolicyLearner):
    """m joint steps of n agents go through the shared actor as m × n rows. Critics see, per joint step: the state, or
    all observations; who is present; and all actions, which come last, 0 of absent agents."""

    config: MADDPG

    name = "maddpg"
    autograd_only = True

    def __init__(self, config: MADDPG, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        super().__init__(config, context, spec, start)
        self._env, self._seats = context.env, context.seats
        self.team = team_size(context.env, context.seats, algorithm=type(config).__name__)
        self._boxed = spec.config["action"]["kind"] == "point"
        self.acting: ActionKind = (
            BoxActions(spec) if self._boxed else OneHotActions(spec, temperature=config.temperature)
        )
        sees = self.team * self.features if config.critic == "observations" else state_width(context.env, context.seats)
        critic = Layout((sees + self.team * (1 + self.acting.width), *config.hidden, 1), config.activation)
        self.make_networks(context, start, critic, critics=1 + config.twin)
        self._rewards = RewardStatistics(config.normalise_rewards, gamma=config.gamma, scale=self._scale)

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return joint steps with n-step targets, of each seat that was played, in the environment's rewards."""
        out = []
        for rows, view in views(self.rewarded(trajectories), self._env, self._seats):
            columns = joint_items(view, gamma=self.config.gamma, steps=self.config.n_step)
            columns |= {"action": self.acting.stored(view.action), "version_lo": versions(rows, view)}
            if self.config.critic == "observations":
                columns = {name: column for name, column in columns.items() if name not in ("state", "next_state")}
            out.append(self.table_items(columns))
            self._rewards.add(view)
        self.count(trajectories)
        return out

    # ------------------------------------------------------------------------------------------ learning

    def autograd(self, columns: Mapping[str, Tensor], rows: int) -> Mapping[str, Tensor]:
        batch = {**columns, "gumbel": to_device(self._gumbel(rows), self.device)}
        batch["reward"] = self._rewards.normalize(batch["reward"], batch["span"])
        fitted = self.fit_modules(batch, rows)
        self.improve(batch, rows)
        self.critics.update_target(self.config.polyak)
        self.actor.update_target(self.config.polyak)
        return fitted

    def values_and_targets(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        c, state = batch, self.config.critic == "state"
        with torch.no_grad():
            following = self._sample(self.answers(c["next"], target=True), c["gumbel"][0], c.get("next_mask"))
            after = self._critic_inputs(c["next_state" if state else "next"], c["next_present"], following)
            target = c["reward"] + c["discount"] * self.critics(after, target=True)[..., 0].amin(dim=0)
        now = self._critic_inputs(
            c["state" if state else "observation"], c["present"], self.acting.critic_actions(c["action"])
        )
        return self.critics(now)[..., 0], target

    def actor_loss(self, batch: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """Return the actor's loss: each agent's own action varies, with the others' recorded actions fixed."""
        c, config, n, present = batch, self.config, self.team, batch["present"]
        out = self.answers(c["observation"])
        own, actions = self._sample(out, c["gumbel"][1], c.get("mask")), self.acting.critic_actions(c["action"])
        alone = torch.eye(n, dtype=torch.bool, device=self.device)[None, :, :, None]
        wide = torch.where(alone, own[:, None], actions[:, None]).flatten(0, 1)
        sees = c["state" if config.critic == "state" else "observation"]
        x = self._critic_inputs(sees.repeat_interleave(n, dim=0), present.repeat_interleave(n, dim=0), wide)
        penalty = config.output_penalty / self.acting.width * out.square().sum(dim=1)
        values = self.critics(x, None, 1)[0, :, 0]
        return (((penalty - values) * present.flatten()).sum() / (rows * n),)

    def _sample(self, out: Tensor, gumbel: Tensor, mask: Tensor | None) -> Tensor:
        """Return actions float[m, n, d] of all agents."""
        noise = gumbel.reshape(out.shape) if self.acting.random else None
        actions = self.acting.sample(out, noise, None if mask is None else mask.reshape(out.shape))
        return actions.reshape(-1, self.team, self.acting.width)

    def _critic_inputs(self, sees: Tensor, present: Tensor, actions: Tensor) -> Tensor:
        """Return the critics' inputs float[m, ·], of actions float[m, n, d]."""
        return torch.cat([sees.flatten(1), present, (actions * present[..., None]).flatten(1)], dim=1)

    def update(self, batch: Sample) -> Metrics:
        return {**super().update(batch), **({"noise": self.rate(self.config.noise)} if self._boxed else {})}

    def _gumbel(self, rows: int) -> NDArray[np.float32]:
        """Return standard Gumbel deviates float32[2, n, agents, d] for this rank's share of `rows`: for the next step,
        and for the present one."""
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
        return {**super().state_dict(), "rewards": self._rewards.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._rewards.load_state_dict(state["rewards"])
