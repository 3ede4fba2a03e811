"""MADDPG's learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.team_specs import state_width, team_size
from ludus.algorithms.ddpg.learner import td_target
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
# MADDPG's sampling and gradients: pure functions of rows.


def gumbel_softmax(
    logits: Array, gumbel: Array, mask: NDArray[np.bool_] | None, *, temperature: float
) -> tuple[Array, Array]:
    """Return (one-hot choice, softmax((logits + gumbel) / temperature)) of legal actions, float[r, A] each; 0 where
    illegal.

    The choice is the softmax's largest entry, and so, for standard Gumbel deviates, a sample from softmax(logits). Rows
    without a legal action are 0. (Jang, Gu and Poole 2017, "Categorical reparameterization with Gumbel-softmax",
    equations 1 and 2; Maddison et al. 2017.)
    """
    noisy = (logits + gumbel) / temperature
    legal = np.ones(noisy.shape, np.bool_) if mask is None else mask
    top = np.where(legal, noisy, -np.inf).max(axis=1, keepdims=True, initial=np.finfo(noisy.dtype).min)
    soft = np.where(legal, np.exp(np.minimum(noisy - top, 0.0)), 0.0)
    soft /= np.maximum(soft.sum(axis=1, keepdims=True), np.finfo(soft.dtype).tiny)
    hard = np.zeros_like(soft)
    hard[np.arange(len(soft)), soft.argmax(axis=1)] = 1.0
    return hard * legal, soft


def straight_through(soft: Array, grad: Array, *, temperature: float) -> Array:
    """Return dS/dlogits float[r, A] from dS/daction, `grad`, by the straight-through estimator: the softmax's Jacobian
    times the gradient. (Jang et al. 2017, section 2.2.)"""
    out: Array = soft * (grad - (grad * soft).sum(axis=1, keepdims=True)) / temperature
    return out


def replaced(actions: Array, own: Array) -> Array:
    """Return joint actions float[m, n, n, d] in which, at index i of the second axis, agent i takes own[m, i] and the
    others their recorded actions. actions, own: float[m, n, d]. (Lowe et al. 2017, equation 6 and algorithm 1.)"""
    n = actions.shape[1]
    out = np.repeat(actions[:, None], n, axis=1)
    out[:, np.arange(n), np.arange(n)] = own
    return out


def own_action_gradients(grads: Array) -> Array:
    """Return the gradients by each agent's own action, float[m, n, d], from dQ/da float[m, n, n, d] of `replaced` joint
    actions."""
    n = grads.shape[1]
    out: Array = grads[:, np.arange(n), np.arange(n)]
    return out


# --------------------------------------------------------------------------------------------------------------------
# How MADDPG's learner sees actions: as points of [-1, 1]^d, or one-hot.


class ActionRows(NamedTuple):
    """Actions of r rows: action float[r, d], as the critic sees it; through float[r, d], what gradients flow through."""

    action: Array
    through: Array


class ActionKind(Protocol):
    """One kind of action space.

    Attributes:
        width: d, outputs of the actor per agent, and inputs of the critic per agent.
        random: Whether `answer` needs Gumbel deviates float32[r, d].
    """

    width: int
    random: bool

    def stored(self, action: Array) -> Array:
        """Return actions [T, n, …] as the table stores them."""
        ...

    def critic_actions(self, stored: Array) -> Array:
        """Return stored actions [m, n, …] as the critic sees them, float32[m, n, d]."""
        ...

    def critic_actions_tensor(self, stored: Tensor) -> Tensor:
        """Return the same on a device."""
        ...

    def answer(self, out: Array, gumbel: Array | None, mask: NDArray[np.bool_] | None) -> ActionRows:
        """Return the actions that the actor's outputs float32[r, d] stand for."""
        ...

    def backward(self, answer: ActionRows, grad: Array) -> Array:
        """Return dS/doutputs float[r, d], given dS/daction."""
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

    def critic_actions(self, stored: Array) -> Array:
        """Return the same as `ActionKind`."""
        return stored

    def critic_actions_tensor(self, stored: Tensor) -> Tensor:
        """Return the same as `ActionKind`."""
        return stored

    def answer(self, out: Array, gumbel: Array | None, mask: NDArray[np.bool_] | None) -> ActionRows:
        """Return the same as `ActionKind`: tanh."""
        action = np.tanh(out)
        return ActionRows(action, action)

    def backward(self, answer: ActionRows, grad: Array) -> Array:
        """Return the same as `ActionKind`."""
        out: Array = grad * (1.0 - answer.through * answer.through)
        return out

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

    def critic_actions(self, stored: Array) -> Array:
        """Return the same as `ActionKind`: one-hot."""
        out: Array = (stored[..., None] == np.arange(self.width)).astype(np.float32)
        return out

    def critic_actions_tensor(self, stored: Tensor) -> Tensor:
        """Return the same as `ActionKind`: one-hot."""
        return (stored[..., None] == torch.arange(self.width, device=stored.device)).float()

    def answer(self, out: Array, gumbel: Array | None, mask: NDArray[np.bool_] | None) -> ActionRows:
        """Return the same as `ActionKind`: a draw from the softmax."""
        assert gumbel is not None
        return ActionRows(*gumbel_softmax(out, gumbel, mask, temperature=self._temperature))

    def backward(self, answer: ActionRows, grad: Array) -> Array:
        """Return the same as `ActionKind`."""
        return straight_through(answer.through, grad, temperature=self._temperature)

    def sample(self, out: Tensor, gumbel: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return the same as `ActionKind`: `gumbel_softmax` and `straight_through`."""
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

    def __init__(self, config: MADDPG, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        super().__init__(config, context, spec, start)
        self._env, self._seats = context.env, context.seats
        self.team = team_size(context.env, context.seats, algorithm=type(config).__name__)
        self._boxed = spec.config["action"]["kind"] == "point"
        self.acting: ActionKind = (
            BoxActions(spec) if self._boxed else OneHotActions(spec, temperature=config.temperature)
        )
        self.inputs = self.features
        sees = self.team * self.inputs if config.critic == "observations" else state_width(context.env, context.seats)
        self.actions = slice(sees + self.team, sees + self.team * (1 + self.acting.width))  # of what a critic is given
        critic = Layout((self.actions.stop, *config.hidden, 1), config.activation)
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
            after = self._critic_tensor(c["next_state" if state else "next"], c["next_present"], following)
            target = c["reward"] + c["discount"] * self.critics(after, target=True)[..., 0].amin(dim=0)
        now = self._critic_tensor(
            c["state" if state else "observation"], c["present"], self.acting.critic_actions_tensor(c["action"])
        )
        return self.critics(now)[..., 0], target

    def actor_loss(self, batch: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """Return the actor's loss: each agent's own action varies, with the others' recorded actions fixed."""
        c, config, n, present = batch, self.config, self.team, batch["present"]
        out = self.answers(c["observation"])
        own, actions = self._sample(out, c["gumbel"][1], c.get("mask")), self.acting.critic_actions_tensor(c["action"])
        alone = torch.eye(n, dtype=torch.bool, device=self.device)[None, :, :, None]
        wide = torch.where(alone, own[:, None], actions[:, None]).flatten(0, 1)
        sees = c["state" if config.critic == "state" else "observation"]
        x = self._critic_tensor(sees.repeat_interleave(n, dim=0), present.repeat_interleave(n, dim=0), wide)
        penalty = config.output_penalty / self.acting.width * out.square().sum(dim=1)
        values = self.critics(x, None, 1)[0, :, 0]
        return (((penalty - values) * present.flatten()).sum() / (rows * n),)

    def _sample(self, out: Tensor, gumbel: Tensor, mask: Tensor | None) -> Tensor:
        """Return actions float[m, n, d] of all agents."""
        noise = gumbel.reshape(out.shape) if self.acting.random else None
        actions = self.acting.sample(out, noise, None if mask is None else mask.reshape(out.shape))
        return actions.reshape(-1, self.team, self.acting.width)

    def _critic_tensor(self, sees: Tensor, present: Tensor, actions: Tensor) -> Tensor:
        """Return the critics' inputs float[m, ·]; see `_critic_inputs`."""
        return torch.cat([sees.flatten(1), present, (actions * present[..., None]).flatten(1)], dim=1)

    def written(self, columns: ItemColumns, rows: int) -> Metrics:
        config, gumbel, actor, critics = (
            self.config,
            self._gumbel(rows),
            self.actor,
            self.critics,
        )
        x, after = (self._rows(columns[name]) for name in ("observation", "next"))
        out = actor.forward(after, target=True)[0]
        following = self._answer(out, gumbel[0], columns.get("next_mask")).action
        there = columns["next_present"]
        critic_x = self._critic_inputs(
            columns, "next", "next_state", there, following.reshape(*there.shape, self.acting.width)
        )
        values = critics.forward(torch.from_numpy(critic_x), target=True)
        reward = self._rewards.normalize(columns["reward"], columns["span"])
        target = td_target(values, reward, columns["discount"])
        actions = self.acting.critic_actions(columns["action"])
        critic_x = self._critic_inputs(columns, "observation", "state", columns["present"], actions)
        fitted = self.fit(torch.from_numpy(critic_x), np.zeros(len(critic_x), np.int32), target, rows)
        self._improve(columns, x, critic_x, gumbel[1], rows)
        critics.update_target(config.polyak)
        actor.update_target(config.polyak)
        return fitted

    def update(self, batch: Sample) -> Metrics:
        return {**super().update(batch), **({"noise": self.rate(self.config.noise)} if self._boxed else {})}

    def _improve(self, columns: ItemColumns, x: torch.Tensor, critic_x: Array, gumbel: Array, rows: int) -> None:
        """Take one step of the actor up the first critic's gradient, each agent by its own action with the others'
        recorded actions fixed."""
        actor, critics, present, width = (
            self.actor,
            self.critics,
            columns["present"],
            self.acting.width,
        )
        m, n = present.shape
        out = actor.forward(x)[0]
        answer = self._answer(out, gumbel, columns.get("mask"))
        wide = np.repeat(critic_x[:, None], n, axis=1)
        own = answer.action.reshape(m, n, width)  # of those who are absent, too, whose rows count for nothing
        wide[..., self.actions] = replaced(critic_x[:, self.actions].reshape(m, n, width), own).reshape(m, n, n * width)
        q = critics.forward(torch.from_numpy(wide.reshape(m * n, self.actions.stop)), count=1)[0]
        critics.gradients[0][:] = 1.0
        grads = critics.input_gradient(self.actions, count=1).reshape(m, n, n, width)
        there, every = present.reshape(-1, 1), max(1, rows * n)
        penalty = self.config.output_penalty / width
        actor.sums[0] = float((penalty * np.square(out).sum(axis=1, keepdims=True) - q)[there].sum()) / every
        grad = self.acting.backward(answer, own_action_gradients(grads).reshape(m * n, width))
        actor.gradients[0][:] = np.where(there, 2.0 * penalty * out - grad, 0.0) / every
        actor.backward(x)
        self.step_actor()

    def _answer(self, out: Array, gumbel: Array, mask: Array | None) -> ActionRows:
        legal = None if mask is None else mask.reshape(out.shape)
        return self.acting.answer(out, gumbel.reshape(out.shape) if self.acting.random else None, legal)

    def _critic_inputs(
        self, columns: ItemColumns, observation: str, state: str, present: NDArray[np.bool_], actions: Array
    ) -> NDArray[np.float32]:
        """Return the critics' inputs float32[m, ·], of actions float32[m, n, d]."""
        m, width = len(present), self.actions.stop - self.actions.start
        sees = columns[state if self.config.critic == "state" else observation]
        sees = sees.reshape(m, self.actions.start - self.team)
        parts = [sees, present, (actions * present[..., None]).reshape(m, width)]
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def _rows(self, observation: Array) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(observation, np.float32).reshape(-1, self.inputs))

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
