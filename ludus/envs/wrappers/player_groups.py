"""Agents under fewer players: those that play together are one strategic side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError, nearest
from ludus.core.types import ActionRequests, AgentSpec, Array, ClosedDecisions, EnvSpec, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.device_vector import DeviceVectorEnv, OffersDevice
from ludus.envs.spaces import Choices
from ludus.envs.wrappers.base import Wrapper, boxes, refuse_enumerated

if TYPE_CHECKING:
    import torch

# --------------------------------------------------------------------------------------------------------------------
# A state for games that publish none: what all agents see.


def joint_state(env: VectorEnv, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Set the environment's state to the newest observation of each agent in the episode, for central critics and mixers.

    The state is float32[n]: observations are flattened and concatenated in the spec's order, with zeros for an agent that has not been due
    yet. A state of the environment itself is replaced.

    Args:
        env: The vector.
        players: Whose agents count; None: all players'.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: The game is compiled, or observations are not in a Box.
    """
    spaces = boxes(env, players, "joint_state")
    return _JointStateOnDevices(env, spaces) if isinstance(env, OffersDevice) else _JointState(env, spaces)


class _JointState(Wrapper):
    def __init__(self, env: VectorEnv, spaces: Mapping[int, Box]) -> None:
        agents = {p: len(env.spec.agents_of(p)) for p in spaces}
        widths = [int(np.prod(spaces[p].shape)) for p in spaces]
        ends = np.cumsum([0, *(agents[p] * width for p, width in zip(spaces, widths, strict=True))])
        size = int(ends[-1])
        super().__init__(env, replace(env.spec, state=_box(env, spaces, size)))
        self._sides = [np.zeros((env.num_envs, size), np.float32) for _ in range(2)]
        self._now = 0
        self._final = np.zeros((0, size), np.float32)
        # [environments × agents, width] of the player's part of a side
        self._part = {p: (slice(ends[i], ends[i + 1]), agents[p], widths[i]) for i, p in enumerate(spaces)}

    def _see(self, timestep: Timestep) -> Timestep:
        state = self._sides[1 - self._now]
        state[:] = self._sides[self._now]
        self._now ^= 1
        for p in self._part:
            self._write(state, p, timestep.ended[p].slot, timestep.ended[p].observation)
        over = timestep.finished.environment
        self._final = state[over]
        state[over] = 0
        for p in self._part:
            self._write(state, p, timestep.due[p].slot, timestep.due[p].observation)
        return self._with_state(timestep)

    def _write(self, state: Array, player: int, slot: Array, observation: Array) -> None:
        columns, agents, width = self._part[player]
        rows = observation.reshape(len(slot), width)
        if len(slot) == len(state) * agents:
            state[:, columns] = rows.reshape(len(state), agents * width)
        elif len(slot):
            state[:, columns].reshape(len(state), agents, width)[slot // agents, slot % agents] = rows

    def _with_state(self, timestep: Timestep) -> Timestep:
        return timestep._replace(state=self._sides[self._now], final_state=self._final)

    def _forget(self) -> None:
        self._sides[self._now][:] = 0
        self._final = self._final[:0]

    def _columns(self) -> Mapping[str, Array]:
        return {"state": self._sides[self._now], "final": self._final}

    def _restored(self, timestep: Timestep, columns: Mapping[str, Array]) -> Timestep:
        self._sides[self._now][:] = columns["state"]
        self._final = columns["final"]
        return self._with_state(timestep)


class _JointStateOnDevices(_JointState):
    """Of a vector that can live on a device."""

    env: Any

    def __init__(self, env: VectorEnv, spaces: Mapping[int, Box]) -> None:
        super().__init__(env, spaces)
        self._players = tuple(spaces)

    def on_device(self, device: torch.device, *, num_envs: int) -> DeviceVectorEnv:
        """Make the environments on a device as `OffersDevice` describes."""
        from ludus.envs.wrappers.ondevice import DeviceJointState  # loads torch

        return DeviceJointState(self.env.on_device(device, num_envs=num_envs), self.spec, self._players)


def _box(env: VectorEnv, spaces: Mapping[int, Box], size: int) -> Box:
    """Return the observations' bounds, with zero in them."""
    low, high = (
        np.concatenate([np.tile(getattr(box, end).ravel(), len(env.spec.agents_of(p))) for p, box in spaces.items()])
        for end in ("low", "high")
    )
    return Box(np.minimum(low, 0).astype(np.float32), np.maximum(high, 0).astype(np.float32), (size,), np.float32)


def group_players(env: VectorEnv, mapping: Mapping[str, int]) -> VectorEnv:
    """Merge players. A new player's return is the sum of its old ones', and so are its statistics; each agent keeps its own reward.

    Args:
        env: The vector.
        mapping: The new player of each agent, by name or pattern, as in {"adversary_*": 0, "agent_*": 1}; the first pattern that matches an
            agent counts.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: A pattern matches no agent, no pattern matches an agent, an old player would be split, or agents of one new player have
            different spaces.
    """
    refuse_enumerated(env, "group_players")
    new = _players(env.spec, mapping)
    owner = _owners(env.spec, new)
    members = [[p for p in range(env.spec.num_players) if owner[p] == q] for q in range(max(owner) + 1)]
    _check_spaces(env.spec, members)
    return _GroupPlayers(env, members)


def _players(spec: EnvSpec, mapping: object) -> list[int]:
    """Return the new player of each agent."""
    if not isinstance(mapping, Mapping) or not mapping:
        raise ConfigError(
            f"group_players: mapping={mapping!r} was given; agents to players is needed, such as {{'adversary_*': 0, 'agent_*': 1}}."
        )
    names = [agent.name for agent in spec.agents]
    for pattern, player in mapping.items():
        if not isinstance(player, int) or isinstance(player, bool) or player < 0:
            raise ConfigError(f"group_players: {pattern!r} was given the player {player!r}; players are 0, 1, 2 …")
        if not any(fnmatchcase(name, str(pattern)) for name in names):
            raise ConfigError(f"group_players: {pattern!r} fits no agent of {spec.id}{nearest(str(pattern), names)}")
    new = [next((q for pattern, q in mapping.items() if fnmatchcase(name, str(pattern))), -1) for name in names]
    if -1 in new:
        raise ConfigError(f"group_players: nothing fits agent {names[new.index(-1)]!r} of {spec.id}; give it a player.")
    if set(new) != set(range(max(new) + 1)):
        raise ConfigError(
            f"group_players: the players {sorted(set(new))} were given; number them 0, 1, 2 … without gaps."
        )
    return new


def _owners(spec: EnvSpec, new: Sequence[int]) -> list[int]:
    """Return the new player of each old one."""
    owner = [-1] * spec.num_players
    for agent, q in zip(spec.agents, new, strict=True):
        if owner[agent.player] not in (-1, q):
            raise ConfigError(
                f"group_players: player {agent.player} of {spec.id} controls {[a.name for a in spec.agents_of(agent.player)]}, which "
                f"were given to players {owner[agent.player]} and {q}; players are merged, not torn apart."
            )
        owner[agent.player] = q
    return owner


def _check_spaces(spec: EnvSpec, members: Sequence[Sequence[int]]) -> None:
    for q, olds in enumerate(members):
        agents = [agent for p in olds for agent in spec.agents_of(p)]
        for other in agents[1:]:
            if other.observation != agents[0].observation or other.action != agents[0].action:
                raise ConfigError(
                    f"group_players: {agents[0].name!r} and {other.name!r} would both be player {q} and have other spaces: "
                    f"{agents[0].observation}, {agents[0].action} and {other.observation}, {other.action}. Make them equal, or give "
                    "them to different players."
                )


def _merged(spec: EnvSpec, members: Sequence[Sequence[int]]) -> EnvSpec:
    group = {p: g for g, players in enumerate(spec.symmetry) for p in players}
    agents: list[AgentSpec] = []
    alike: dict[tuple[int, ...], list[int]] = {}
    for q, olds in enumerate(members):
        agents += [replace(agent, player=q) for p in olds for agent in spec.agents_of(p)]
        alike.setdefault(tuple(group[p] for p in olds), []).append(q)
    bounds = [[spec.utility_range[p] for p in olds] for olds in members]
    ranges = tuple((sum(low for low, _ in b), sum(high for _, high in b)) for b in bounds)
    most = None if spec.max_decisions is None else spec.max_decisions * max(len(olds) for olds in members)
    symmetry = tuple(tuple(players) for players in alike.values())
    return replace(spec, agents=tuple(agents), utility_range=ranges, symmetry=symmetry, max_decisions=most)


class _Team:
    """One new player: where the rows of its old ones go. Old slot e × n + i becomes e × N + start + i."""

    def __init__(self, spec: EnvSpec, olds: Sequence[int], num_envs: int) -> None:
        self.olds = olds
        counts = [len(spec.agents_of(p)) for p in olds]
        total, start = sum(counts), np.cumsum([0, *counts])
        self.slots = [
            (np.arange(num_envs)[:, None] * total + start[i] + np.arange(n)).ravel().astype(np.int32)
            for i, n in enumerate(counts)
        ]
        first = spec.agents_of(olds[0])[0]
        rows = num_envs * total
        space = first.observation
        choices = Choices.of(first.action)
        self.observation = np.empty((rows, *(space.shape or ())), space.dtype)
        self.mask = np.empty((rows, 0 if choices is None else choices.width), np.bool_)
        self.reward = np.empty(rows, np.float32)
        self.first = np.empty(rows, np.bool_)
        self._everybody = self._sorted([np.arange(len(new_slots), dtype=np.int32) for new_slots in self.slots])

    def order(self, slots: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], list[NDArray[np.int64]]]:
        """Sort the slots of each old player's rows. Returns the new slots, rising; and for each old player, the places of its rows among
        them."""
        if sum(map(len, slots)) == len(self.reward):
            return self._everybody
        return self._sorted(slots)

    def _sorted(self, slots: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], list[NDArray[np.int64]]]:
        new = np.concatenate([new_slots[slot] for new_slots, slot in zip(self.slots, slots, strict=True)])
        order = np.argsort(new, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return new[order], np.split(place, np.cumsum([len(slot) for slot in slots])[:-1])


class _GroupPlayers(Wrapper):
    def __init__(self, env: VectorEnv, members: Sequence[Sequence[int]]) -> None:
        super().__init__(env, _merged(env.spec, members))
        self._sides = [[_Team(env.spec, olds, env.num_envs) for olds in members] for _ in range(2)]
        self._now = 0
        self._places: list[list[NDArray[np.int64]]] = []

    def _before(self, actions: tuple[Array, ...]) -> tuple[Array, ...]:
        old: list[Array] = [np.empty(0)] * self.env.spec.num_players
        for q, (team, places) in enumerate(zip(self._sides[0], self._places, strict=True)):
            team_actions, rows = np.asarray(actions[q]), sum(map(len, places))
            if len(team_actions) != rows:
                raise EnvError(
                    f"player {q} was given {len(team_actions)} actions for {rows} due decisions; one each is needed."
                )
            for p, place in zip(team.olds, places, strict=True):
                old[p] = team_actions[place]
        return tuple(old)

    def _see(self, timestep: Timestep) -> Timestep:
        teams = self._sides[self._now]
        self._now ^= 1
        due, self._places = [], []
        for team in teams:
            rows, places = _due(team, timestep.due)
            due.append(rows)
            self._places.append(places)
        ended = tuple(_ended(team, timestep.ended) for team in teams)
        finished = timestep.finished
        if len(finished.environment):
            returns = np.stack([finished.returns[:, team.olds].sum(axis=1) for team in teams], axis=1)
        else:
            returns = np.empty((0, len(teams)))
        if (old := finished.statistics) is not None:
            statistics = np.stack([old[:, team.olds].sum(axis=1) for team in teams], axis=1)
            finished = finished._replace(statistics=statistics)
        finished = finished._replace(returns=returns)
        return Timestep(tuple(due), ended, finished, timestep.state, timestep.final_state)


def _due(team: _Team, old: Sequence[ActionRequests]) -> tuple[ActionRequests, list[NDArray[np.int64]]]:
    rows = [old[p] for p in team.olds]
    slot, places = team.order([row.slot for row in rows])
    n = len(slot)
    masked = any(row.mask is not None for row in rows)
    for row, place in zip(rows, places, strict=True):
        team.observation[place] = row.observation
        team.reward[place] = row.reward
        team.first[place] = row.first
        if masked:
            team.mask[place] = True if row.mask is None else row.mask
    mask = team.mask[:n] if masked else None
    return ActionRequests(slot, team.observation[:n], mask, team.reward[:n], team.first[:n]), places


def _ended(team: _Team, old: Sequence[ClosedDecisions]) -> ClosedDecisions:
    rows = [old[p] for p in team.olds]
    slot, places = team.order([row.slot for row in rows])
    n = len(slot)
    observation = np.empty((n, *team.observation.shape[1:]), team.observation.dtype)
    reward, terminated = np.empty(n, np.float32), np.empty(n, np.bool_)
    mask = None if all(row.mask is None for row in rows) else np.ones((n, team.mask.shape[1]), np.bool_)
    for row, place in zip(rows, places, strict=True):
        observation[place], reward[place], terminated[place] = row.observation, row.reward, row.terminated
        if mask is not None and row.mask is not None:
            mask[place] = row.mask
    return ClosedDecisions(slot, reward, terminated, observation, mask)
