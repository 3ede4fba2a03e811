"""MuZero's targets and loss, of unrolled sequences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.dqn.losses import cross_entropy
from ludus.contrib.algorithms.muzero.policy import MuZeroNetwork, two_hot
from ludus.core.types import Array


class Windows(NamedTuple):
    """Windows of K + 1 rows that start at each of n rows of games: row int64[n, K + 1], the last one of the game where
    it is over; there bool[n, K + 1], whether it is a row of the game; over bool[n, K + 1], whether the game has
    terminated by then."""

    row: NDArray[np.int64]
    there: NDArray[np.bool_]
    over: NDArray[np.bool_]

    @staticmethod
    def of(start: NDArray[np.int64], terminated: NDArray[np.bool_], moves: int) -> Windows:
        """Return the windows of games that own rows start[g] … start[g + 1] - 1, and terminated or were cut."""
        length = np.diff(start)
        end = np.repeat(start[1:], length)[:, None]
        row = np.arange(start[-1])[:, None] + np.arange(moves + 1)
        there = row < end
        return Windows(np.minimum(row, end - 1), there, ~there & np.repeat(terminated, length)[:, None])


class UnrolledTargets(NamedTuple):
    """A batch of n sequences: x float[n, inputs]; action int64[n, K]; reward float[n, K]; value float[n, K + 1]; policy
    float[n, K + 1, A]; and weights of the targets, float: reward_weight [n, K], value_weight, policy_weight [n, K + 1]."""

    x: Tensor
    action: Tensor
    reward: Tensor
    value: Tensor
    policy: Tensor
    reward_weight: Tensor
    value_weight: Tensor
    policy_weight: Tensor


def unrolled_loss(network: MuZeroNetwork, batch: UnrolledTargets) -> tuple[Tensor, Tensor, Tensor]:
    """Return (policy, value, reward) losses, each summed over the sequences [n].

        Σ_k w_k [ℓ^p(π_{t+k}, p^k) , ℓ^v(z_{t+k}, v^k) , ℓ^r(u_{t+k}, r^k)],   w_0 = 1, w_k = 1/K

    (Schrittwieser et al. 2020, equation 1), rewards and values as distributions; half of each gradient flows through
    the state to the move before (appendix G).
    """
    moves = batch.action.shape[1]
    state = network.represented(batch.x)
    states = [state]
    for k in range(moves):
        state = network.moved(0.5 * state + 0.5 * state.detach(), batch.action[:, k])
        states.append(state)
    imagined = torch.stack(states, dim=1)  # [n, K + 1, L]: each head looks once at all of them
    later = torch.full((moves,), 1.0 / moves, device=imagined.device)
    each = torch.cat([torch.ones_like(later[:1]), later])

    def summed(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        return (cross_entropy(logits, target) * weight).sum()

    def numbers(x: Tensor) -> Tensor:
        return two_hot(x, network.support, most=network.most)

    policy = summed(network.policy(imagined), batch.policy, each * batch.policy_weight)
    value = summed(network.value(imagined), numbers(batch.value), each * batch.value_weight)
    reward = summed(network.reward(imagined[:, 1:]), numbers(batch.reward), later * batch.reward_weight)
    return policy, value, reward


def merged(episode: Array, t: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (order of rows by episode and then by step, start of each episode in it): both players' moves of a game as
    one sequence."""
    order = np.lexsort((t, episode))
    starts = np.flatnonzero(np.diff(episode[order])) + 1
    return order.astype(np.int64), np.concatenate([[0], starts, [len(order)]]).astype(np.int64)
