"""Mixers, from the values of a team's agents to the team's, as pure functions and as modules, and the weights of
weighted QMIX."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from ludus.policies.bodies import own_stream

if TYPE_CHECKING:
    from ludus.contrib.algorithms.qmix.config import VDN


class TeamActions(NamedTuple):
    """Joint actions of m teams of n agents.

    Attributes:
        chosen: float[m, n], the agents' values of their actions; 0 where an agent is absent.
        best: float[m, n], those of their best legal actions, by the same network.
        action: int64[m, n].
        present: bool[m, n].
        state: float[m, S], or None.
    """

    chosen: Tensor
    best: Tensor
    action: Tensor
    present: Tensor
    state: Tensor | None


# --------------------------------------------------------------------------------------------------------------------
# Pure functions.


def team_values(values: Tensor, present: Tensor) -> Tensor:
    """Return the mixers' inputs: values float[…], 0 where an agent is absent."""
    return torch.where(present, values, torch.zeros_like(values))


def monotonic(values: Tensor, first: Tensor, bias: Tensor, second: Tensor, last: Tensor) -> Tensor:
    """Return elu(Σ_i q_i |w₁ᵢ| + b₁) · |w₂| + b₂ [m], which increases with every agent's value. (Rashid et al. 2018,
    section 4 and figure 2a.)

    Args:
        values: float[m, n], q.
        first: float[m, n, k], w₁.
        bias: float[m, k], b₁.
        second: float[m, k], w₂.
        last: float[m], b₂.
    """
    hidden = nn.functional.elu((values[:, None] @ first.abs())[:, 0] + bias)
    return (hidden * second.abs()).sum(dim=1) + last


def duplex(chosen: Tensor, best: Tensor, weight: Tensor, bias: Tensor, attention: Tensor) -> Tensor:
    """Return Σ_i w_i v_i + b + Σ_i λ_i w_i (q_i - v_i) [m], with q_i the value of agent i's action and v_i that of its
    best one.

    Advantages q_i - v_i are 0 at each agent's best action and negative elsewhere, and so is the team's, whatever λ is:
    the best joint action consists of the agents' best ones. Written as Σ w_i q_i + b + Σ (λ_i - 1) w_i (q_i - v_i),
    without gradients through the last sum's w_i (q_i - v_i): λ learns how much advantages count, agents learn from the
    plain sum. (QPLEX: Wang et al. 2021, equations 8 to 11; the stopped gradient is in their code.)

    Args:
        chosen: float[m, n], q.
        best: float[m, n], v.
        weight: float[m, n], w > 0.
        bias: float[m], b.
        attention: float[m, n], λ > 0.
    """
    advantage = (weight * (chosen - best)).detach()
    return (weight * chosen).sum(dim=1) + bias + ((attention - 1.0) * advantage).sum(dim=1)


def central_weights(is_greedy: Tensor, target: Tensor, of_greedy: Tensor, *, least: float) -> Tensor:
    """Return the weights of CW-QMIX, float[…]: 1 where the joint action is Q_tot's best (is_greedy bool[…]), or where
    the target exceeds Q*'s value of that (of_greedy float[…]); `least` elsewhere. (Rashid et al. 2020.)"""
    return torch.where(is_greedy | (target > of_greedy), 1.0, least)


def optimistic_weights(value: Tensor, target: Tensor, *, least: float) -> Tensor:
    """Return the weights of OW-QMIX, float[…]: 1 where Q_tot is below its target, and so may underestimate; `least`
    elsewhere. (Rashid et al. 2020.)"""
    return torch.where(value < target, 1.0, least)


# --------------------------------------------------------------------------------------------------------------------
# Modules: TeamActions of m teams -> the team's value, float[m].


def made_from(inputs: int, outputs: int, hidden: int) -> nn.Module:
    """Return a network that makes a mixer's weights: linear, or with one hidden layer."""
    if not hidden:
        return nn.Linear(inputs, outputs)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class SumMixer(nn.Module):
    """Sum of the agents' values. (Sunehag et al. 2018, equation 2.)"""

    def forward(self, team: TeamActions) -> Tensor:
        return team.chosen.sum(dim=1)


class MonotonicMixer(nn.Module):
    """`monotonic`, whose weights are made from the state. hidden: units of the hypernetworks; 0: linear, as in the
    paper. The last bias has a hidden layer of `width` units, as there."""

    def __init__(self, agents: int, state: int, *, width: int, hidden: int) -> None:
        super().__init__()
        self._shape = agents, width
        self.first, self.second = made_from(state, agents * width, hidden), made_from(state, width, hidden)
        self.bias = nn.Linear(state, width)
        self.last = made_from(state, 1, width)

    def forward(self, team: TeamActions) -> Tensor:
        state = team.state
        assert state is not None
        first = self.first(state).view(-1, *self._shape)
        return monotonic(team.chosen, first, self.bias(state), self.second(state), self.last(state)[:, 0])


_LEAST = 1e-10  # what keeps weights above 0, as in the authors' code


class DuplexMixer(nn.Module):
    """`duplex`, with weights w = |f(s)|, a bias b(s), and λ_i = Σ_k |f_k(s)| σ(g_ik(s)) σ(h_ik(s, a)), attention of
    heads k to the state and the joint action (Wang et al. 2021, equation 11). hidden: units of all these networks; 0:
    linear."""

    def __init__(self, agents: int, actions: int, state: int, *, heads: int, hidden: int) -> None:
        super().__init__()
        self._agents, self._actions, self._heads = agents, actions, heads
        self.weight, self.bias = made_from(state, agents, hidden), made_from(state, 1, hidden)
        self.key, self.by_state = made_from(state, heads, hidden), made_from(state, heads * agents, hidden)
        self.by_actions = made_from(state + agents * actions, heads * agents, hidden)

    def forward(self, team: TeamActions) -> Tensor:
        state = team.state
        assert state is not None
        weight = self.weight(state).abs() + _LEAST
        return duplex(team.chosen, team.best, weight, self.bias(state)[:, 0], self.attention(team))

    def attention(self, team: TeamActions) -> Tensor:
        """Return λ float[m, n]. An absent agent has no action."""
        state, shape = team.state, (-1, self._heads, self._agents)
        assert state is not None
        done = team.action[..., None] == torch.arange(self._actions, device=state.device)
        joint = torch.cat([state, (done & team.present[..., None]).flatten(1).to(state.dtype)], dim=1)
        by_state, by_actions = (of.view(shape).sigmoid() for of in (self.by_state(state), self.by_actions(joint)))
        out: Tensor = ((self.key(state).abs() + _LEAST)[..., None] * by_state * by_actions).sum(dim=1)
        return out


class CentralMixer(nn.Module):
    """A perceptron of three layers over the state and the agents' values, not restricted, plus a value of the state: Q*
    of Rashid et al. 2020."""

    def __init__(self, agents: int, state: int, *, width: int) -> None:
        super().__init__()
        layers, inputs = list[nn.Module](), agents + state
        for _ in range(3):
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        self.advantage = nn.Sequential(*layers, nn.Linear(width, 1))
        self.value = made_from(state, 1, width)

    def forward(self, team: TeamActions) -> Tensor:
        assert team.state is not None
        x = torch.cat([team.chosen, team.state], dim=1)
        out: Tensor = (self.advantage(x) + self.value(team.state))[:, 0]
        return out


def make_mixer(config: VDN, *, agents: int, actions: int, state: int, seed: int) -> nn.Module:
    """Make a fresh mixer, initialised from the seed alone, as torch initialises linear layers."""
    with own_stream(seed):
        if config.mixer == "monotonic":
            return MonotonicMixer(agents, state, width=config.mixing_width, hidden=config.mixing_hidden)
        if config.mixer == "duplex":
            return DuplexMixer(agents, actions, state, heads=config.mixing_heads, hidden=config.mixing_hidden)
    return SumMixer()


def make_central_mixer(config: VDN, *, agents: int, state: int, seed: int) -> nn.Module:
    """Make a fresh mixer of weighted QMIX, likewise."""
    with own_stream(seed):
        return CentralMixer(agents, state, width=config.central_width)
