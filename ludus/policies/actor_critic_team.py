"""Teams whose agents have networks of their own: one `actor_critic` network for each, told apart by what they observe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.core.errors import PolicyError
from ludus.core.types import Act, Array, Enumeration, PolicySpec, Weights
from ludus.policies.actor_critic import ActorCritic, make_network, shapes_of
from ludus.policies.actor_critic_policy import ActorCriticPolicy, StackedActorCritic
from ludus.policies.categorical import CategoricalPolicy, check_mode, masked_softmax, one_hot_best
from ludus.policies.checks import fitted, integer, one_spec


def member_spec(spec: PolicySpec) -> PolicySpec:
    """The spec of one agent's network, of a team's spec."""
    return PolicySpec("actor_critic", {key: value for key, value in spec.config.items() if key != "agents"})


def agents_of(observation: Array, agents: int) -> NDArray[np.int32]:
    """Which agent sees each of n flat observations, from the one-hot id int32[n] that the wrapper `agent_ids` puts at their end. Raises
    PolicyError if that is none."""
    if not len(observation):
        return np.zeros(0, np.int32)
    ids = observation.reshape(len(observation), -1)[:, -agents:]
    index: NDArray[np.int32] = ids.argmax(axis=1).astype(np.int32)
    wrong = (ids != (np.arange(agents) == index[:, None])).any(axis=1)
    if ids.shape[1] != agents or wrong.any():
        shown = ids[int(wrong.argmax())].tolist()
        raise PolicyError(
            f"a team with a network for each of its {agents} agents tells them apart by the last {agents} entries of what they observe, "
            f"one of which is 1 and the others 0; it was given {shown}. Put the wrapper agent_ids around the environment, as the last one "
            "that changes observations."
        )
    return index


class TeamNetwork(nn.Module):
    """The networks of an `actor_critic_team` spec: rows go through that of the agent that sees them."""

    def __init__(self, spec: PolicySpec, *, seed: int = 0, initial_std: float = 1.0) -> None:
        super().__init__()
        own, agents = member_spec(spec), integer(spec, "agents", least=2)
        self.members = nn.ModuleList(
            make_network(own, seed=(seed + k) % 2**63, initial_std=initial_std) for k in range(agents)
        )

    @property
    def networks(self) -> list[ActorCritic]:
        """One for each agent."""
        return [member for member in self.members if isinstance(member, ActorCritic)]

    def unroll(
        self, x: Tensor, memory: Tensor | None, start: Array | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """As `ActorCritic.unroll`; a segment is one agent's. Raises PolicyError for observations without an agent's id."""
        agent = agents_of(x.detach().numpy(), len(self.members))
        owner = agent if start is None else agent[start[:-1]]
        answers, rows, segments = [], [], []
        for k, network in enumerate(self.networks):
            mine, own = np.flatnonzero(agent == k), np.flatnonzero(owner == k)
            if not len(mine) and (k or len(x)):
                continue
            where, kept = torch.from_numpy(mine), torch.from_numpy(own)
            starts = None if start is None else np.concatenate([[0], np.cumsum(np.diff(start)[own])])
            before, seen = None if memory is None else memory[kept], None if state is None else state[where]
            answers.append(network.unroll(x[where], before, starts, seen))
            rows.append(mine)
            segments.append(own)
        out, value, after = zip(*answers, strict=True)
        return _back(out, rows), _joined(value, rows), _joined(after, segments)

    def value_of(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """As `ActorCritic.value_of`."""
        agent = agents_of(x.detach().numpy(), len(self.members))
        out = x.new_empty(len(x))
        for k, network in enumerate(self.networks):
            rows = torch.from_numpy(np.flatnonzero(agent == k))
            if len(rows):
                out[rows] = network.value_of(x[rows], None if state is None else state[rows])
        return out


def _back(parts: Sequence[Tensor], rows: Sequence[NDArray[np.int64]]) -> Tensor:
    """Parts, of the rows that are listed, as one in the order of rows."""
    return torch.cat(list(parts))[torch.from_numpy(np.argsort(np.concatenate(rows)))]


def _joined(parts: Sequence[Tensor | None], rows: Sequence[NDArray[np.int64]]) -> Tensor | None:
    there = [part for part in parts if part is not None]
    return _back(there, rows) if there else None


class ActorCriticTeam(CategoricalPolicy):
    """Kind `actor_critic_team`; config as `team_spec` makes it. Flat observations [n, width] end in the agent's one-hot id.

    Weights are named `members.K.…`, and then as an `ActorCriticPolicy`'s. All agents are evaluated in one call, as a stack of policies is.
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.agents = integer(spec, "agents", least=2)
        own = member_spec(spec)
        with torch.random.fork_rng(devices=[]):
            shapes = shapes_of(ActorCritic(own))
        prefixes = [f"members.{k}." for k in range(self.agents)]
        self._weights = fitted(
            spec, weights, {prefix + name: shape for prefix in prefixes for name, shape in shapes.items()}
        )
        self.members = [
            ActorCriticPolicy(own, {name: self._weights[prefix + name] for name in shapes}) for prefix in prefixes
        ]
        first = self.members[0]
        self.noise_width, self.memory_shape, self.actions = first.noise_width, first.memory_shape, first.actions
        self._stacked = ActorCriticPolicy.stack(self.members)

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> Act:
        """As `Policy.act`. Raises PolicyError as `ActorCriticPolicy.act` does, and for observations without an agent's id."""
        check_mode(self, mode)
        return self._stacked.act(observation, mask, memory, noise, agents_of(observation, self.agents), mode)

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        """As `CategoricalPolicy.probabilities`. Raises PolicyError if it has none."""
        if not self.actions or self.memory_shape is not None:
            raise PolicyError(
                "this 'actor_critic_team' policy has no table of action probabilities: it remembers, or plays vectors."
            )
        out = self._stacked.evaluate(observation, None, agents_of(observation, self.agents)).out
        return (one_hot_best if mode == "greedy" else masked_softmax)(out, mask), {}

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """None: enumerated games have no ids of agents."""
        return None

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}

    @staticmethod
    def stack(policies: Sequence[ActorCriticTeam]) -> StackedTeams:
        """Policies of one spec as one. Raises PolicyError if their specs differ."""
        return StackedTeams(policies)


class StackedTeams:
    """K teams of one architecture: all their networks in one stack."""

    def __init__(self, policies: Sequence[ActorCriticTeam]) -> None:
        one_spec(policies)
        self._first = policies[0]
        self._stacked = StackedActorCritic([member for policy in policies for member in policy.members])

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
    ) -> Act:
        """As `Policy.act`, where row i is played by policy index[i], int[n] in 0 … K - 1."""
        check_mode(self._first, mode)
        agents = self._first.agents
        member = (index * np.int32(agents) + agents_of(observation, agents)).astype(np.int32)
        return self._stacked.act(observation, mask, memory, noise, member, mode)
