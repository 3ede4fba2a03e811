"""The magnet of mirror descent and of R-NaD: a policy that the trained one is kept close to, as a term of the loss or as a
cost in the rewards; the same for both backends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.information_states import visited_states
from ludus.algorithms.on_policy.model import Floats, fresh_seed, state_table
from ludus.core.arrays import kernel
from ludus.core.types import EnvSpec, Metrics, Weights
from ludus.policies.actor_critic import first_weights
from ludus.policies.registry import build_policy
from ludus.policies.specs import joined, part_of
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.mmd.config import MMD

PolicyOf = Callable[[Tensor, NDArray[np.bool_]], Floats]
"""Log-probabilities float64[m, A] of states x float32[m, inputs], mask bool[m, A]."""
NAMES = ("policy_loss", "value_loss", "entropy", "kl_magnet", "kl", "clip_fraction")
"""Of the scalars that both backends report after the loss."""


@dataclass(frozen=True, slots=True)
class LogitBounds:
    """threshold: distance from their state's mean beyond which logits are not pushed (β). clip: largest advantage of an
    action."""

    threshold: float
    clip: float


class Magnet:
    """The magnet of both backends: a network that follows the trained one, as flat parameters, and its coefficients.
    With announce=average there is also the running average of the trained one, of which copies are then made."""

    def __init__(
        self, config: MMD, context: LearnerContext, own: Tensor, values: Tensor, average: Tensor | None
    ) -> None:
        self.config, self.parameters, self.values, self.average, self.updates = config, own, values, average, 0
        self._env, self.table = context.env, state_table(context)

    def rewards(
        self, rows: Trajectories, reward: Floats, progress: float, *, inputs: int, actions: int, policy: PolicyOf
    ) -> Floats:
        """Return rewards as `Model.rewards` does, given the magnet's policy."""
        if self.config.regularise != "reward":
            return reward
        x, mask, state = visited_states(self.table, rows.observation, rows.mask, inputs=inputs, actions=actions)
        magnet = policy(x, mask)[state, rows.action.astype(np.int64)]
        return regularized_rewards(self.config, self._env, rows, reward, rows.logp - magnet, progress)

    def loss_coefficients(self, progress: float) -> tuple[float, float, float]:
        """Return (weight of the magnet, weight of the policy before the update) in the loss, and the cost of a nat away
        from the magnet in rewards."""
        alpha, eta = self.config.alpha.at(progress), self.config.eta.at(progress)
        loss, cost = (alpha, 0.0) if self.config.regularise == "loss" else (0.0, alpha)
        return loss, 1.0 / eta if eta > 0.0 else 0.0, cost

    @property
    def bounds(self) -> LogitBounds:
        """Return the bounds of NeuRD."""
        return LogitBounds(self.config.logit_threshold, self.config.advantage_clip)

    def coefficients(self, progress: float) -> Metrics:
        """Return the coefficients as metrics."""
        return {"alpha": self.config.alpha.at(progress), "eta": self.config.eta.at(progress)}

    @torch.no_grad()
    def update(self, progress: float) -> None:
        """Move the magnet after an update."""
        self.updates += 1
        if self.average is not None:
            self.average.lerp_(self.parameters, self.config.average_rate.at(progress))
        if self.config.magnet == "moving":
            self.values.lerp_(self.parameters, self.config.magnet_rate.at(progress))
        elif self.config.magnet == "policy" and self.updates % self.config.magnet_period == 0:
            self.values.copy_(self.parameters if self.average is None else self.average)

    def published_weights(
        self, newest: Weights, magnet: Callable[[], Weights], average: Callable[[], Weights]
    ) -> Weights:
        """Return the weights of a version."""
        if self.config.announce == "newest":
            return newest
        return joined({"newest": newest, "average": (magnet if self.config.announce == "magnet" else average)()})


def initial_weights(config: MMD, context: LearnerContext, start: Weights | None) -> Weights:
    """Return the initial weights: fresh ones, or those of a published policy."""
    if start is not None and config.announce != "newest":
        start = part_of(build_policy(config.policy(context.env, context.seats), start).weights(), "average")
    return first_weights(config.plain_policy(context.env, context.seats), start, seed=fresh_seed(context))


# --------------------------------------------------------------------------------------------------------------------
# R-NaD's reward transformation (Perolat et al. 2022, "Mastering the game of Stratego", supplement A): a player pays
# η log(π/π_reg) for each of its actions, and is paid as much for each of its opponent's, so that a zero-sum game
# stays one.


def regularized(trajectories: Trajectories, reward: Floats, cost: Floats, *, opponents: bool) -> Floats:
    """Return rewards float64[N] minus cost float64[N] = η log(π(a|s) / π_reg(a|s)).

    opponents: also add each row's cost to the other seats' segments of the same episode, where they are in the
    trajectories: to the last decision at or before it. (What the opponent does before a player's first decision is not
    in its control, and is left out; so is what it does before the first one of a fragment, where that of the fragment
    before has been learned from already.)
    """
    out = reward - cost
    if opponents:
        order = np.argsort(trajectories.episode, kind="stable")
        rows = trajectories
        _pay(out, cost, rows.start, rows.t, rows.seat, rows.agent, rows.episode, order)
    return out


@kernel
def _paid_until(receiver, start, t, agent, episode):  # type: ignore[no-untyped-def]
    """Return the step at which the agent's next fragment of the episode begins, which receives what comes after."""
    until = 2**31 - 1
    for later in episode:
        if agent[later] == agent[receiver] and t[start[later]] > t[start[receiver]]:
            until = min(until, t[start[later]])
    return until


@kernel
def _pay(out, cost, start, t, seat, agent, episode, order):  # type: ignore[no-untyped-def]
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and episode[order[end]] == episode[order[begin]]:
            end += 1
        for receiver in order[begin:end]:
            until = _paid_until(receiver, start, t, agent, order[begin:end])
            for payer in order[begin:end]:
                if seat[receiver] == seat[payer]:
                    continue
                last = start[receiver] - 1
                for k in range(start[payer], start[payer + 1]):
                    if t[k] >= until:
                        break
                    while last + 1 < start[receiver + 1] and t[last + 1] <= t[k]:
                        last += 1
                    if last >= start[receiver]:
                        out[last] += cost[k]
        begin = end


def regularized_rewards(
    config: MMD, env: EnvSpec, rows: Trajectories, reward: Floats, ratio: Floats, progress: float
) -> Floats:
    """Return `regularized` rewards, given log π/π_magnet float64[N] of the actions taken."""
    cost = config.alpha.at(progress) * ratio
    return regularized(rows, reward, cost, opponents=env.zero_sum and env.num_players == 2)
