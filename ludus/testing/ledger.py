"""Book-keeping over a vector environment's timesteps: which decisions are open, what they were paid, and who broke the contract."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus import seeding
from ludus.types import Array, Due, Ended, EnvSpec, Timestep

Team: TypeAlias = Literal["shared", "split"]
_MONEY = 1e-4  # rewards are float32, returns float64


class Actor:
    """Random legal actions; those of an environment depend on its seed and its own decisions only, not on its neighbours."""

    def __init__(self, spec: EnvSpec, seeds: NDArray[np.uint64]) -> None:
        self._spec = spec
        self._seeds = seeds
        self._count = [np.zeros(len(seeds) * len(spec.agents_of(p)), np.uint64) for p in range(spec.num_players)]

    def actions(self, timestep: Timestep) -> tuple[Array, ...]:
        """One action per due row of each player."""
        return tuple(self._of(p, due) for p, due in enumerate(timestep.due))

    def _of(self, player: int, due: Due) -> Array:
        agents = self._spec.agents_of(player)
        space = agents[0].action
        keys = self._seeds[due.slot // len(agents)] + np.uint64(1 + player) * (due.slot % len(agents) + 1).astype(
            np.uint64
        )
        noise = seeding.uniforms(keys, self._count[player][due.slot])
        self._count[player][due.slot] += np.uint64(1)
        if isinstance(space, Box):
            low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)
            return (
                np.stack([low + u * (high - low) for u in noise]).astype(space.dtype)
                if len(noise)
                else np.empty((0, *space.shape))
            )
        assert isinstance(space, Discrete), f"check_env knows Discrete and Box actions; player {player} has {space}."
        legal = legal_actions(self._spec, due, int(space.n))
        return np.array([options[int(u * len(options))] for u, options in zip(noise, legal, strict=True)], np.int64)


def legal_actions(spec: EnvSpec, due: Due, actions: int) -> list[NDArray[np.int64]]:
    """The legal actions of each due row."""
    if due.mask is not None:
        return [np.flatnonzero(row) for row in due.mask]
    if spec.enumeration is not None:
        return [np.flatnonzero(row) for row in spec.enumeration.mask[due.observation]]
    return [np.arange(actions)] * len(due.slot)


class Ledger:
    """Checks every timestep against the contract and what was before it. Raises AssertionError with one sentence."""

    def __init__(self, spec: EnvSpec, num_envs: int, *, team: Team, early_rewards: bool) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self._team = team
        self._early = early_rewards
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        slots = [num_envs * n for n in self._agents]
        self._seen = [np.zeros(n, np.bool_) for n in slots]  # in this episode
        self._there = [np.zeros(n, np.bool_) for n in slots]  # since its agent came (back) to it
        self._open = [np.zeros(n, np.bool_) for n in slots]
        self._paid = [np.zeros(n) for n in slots]
        self._closed_early = [np.zeros(n, np.bool_) for n in slots]
        self._from_start = [np.zeros(n, np.bool_) for n in slots]
        self._length = np.zeros(num_envs, np.int64)
        self.finished = np.zeros(num_envs, np.int64)
        self._busy = np.zeros(num_envs, np.bool_)

    def see(self, timestep: Timestep) -> None:
        """Check one timestep, the answer of a reset or of a step."""
        spec = self.spec
        assert len(timestep.due) == len(timestep.ended) == spec.num_players, (
            "`due` and `ended` need one entry for each player."
        )
        self._length[self._busy] += 1
        for p, ended in enumerate(timestep.ended):
            self._see_ended(p, ended, timestep.finished.environment)
        self._see_finished(timestep)
        self._busy[:] = False
        for p, due in enumerate(timestep.due):
            self._see_due(p, due)

    def _see_due(self, p: int, due: Due) -> None:
        n = len(due.slot)
        self._check_rows(p, due.slot, due.reward, "due")
        _typed(due.first, np.bool_, (n,), f"player {p}: `first`")
        self._check_observation(p, due.observation, n)
        self._check_mask(p, due)
        odd = due.slot[due.first == self._there[p][due.slot]]
        assert not len(odd), (
            f"player {p}: `first` must mark exactly the slots' first decisions in their episodes; slots {odd} differ."
        )
        assert not due.reward[due.first].any(), (
            f"player {p}: a first decision came with a reward; nothing was decided before it."
        )
        self._paid[p][due.slot] += due.reward
        environment = due.slot // self._agents[p]
        self._from_start[p][due.slot[due.first]] = self._length[environment[due.first]] == 0
        self._seen[p][due.slot] = self._there[p][due.slot] = True
        self._open[p][due.slot] = True
        self._busy[environment] = True

    def _see_ended(self, p: int, ended: Ended, finished: NDArray[np.int32]) -> None:
        self._check_rows(p, ended.slot, ended.reward, "ended")
        assert ended.terminated.shape == ended.slot.shape, (
            f"player {p}: `terminated` needs one entry for each ended row."
        )
        closed = ended.slot[~self._open[p][ended.slot]]
        assert not len(closed), f"player {p}: slots {closed} are in `ended` and had no open decision."
        self._paid[p][ended.slot] += ended.reward
        self._open[p][ended.slot] = self._there[p][ended.slot] = False
        self._closed_early[p][ended.slot] = ~np.isin(ended.slot // self._agents[p], finished)
        shape = (len(ended.slot),) if self.spec.enumeration is not None else self._shape(p, len(ended.slot))
        assert ended.observation.shape == shape, (
            f"player {p}: final observations have shape {ended.observation.shape}, expected {shape}."
        )

    def _see_finished(self, timestep: Timestep) -> None:
        finished = timestep.finished
        environment = finished.environment
        assert (np.diff(environment) > 0).all(), "`finished` must list environments in rising order."
        assert finished.returns.shape == (len(environment), self.spec.num_players), (
            "`finished.returns` must be float64[k, P]."
        )
        assert np.isfinite(finished.returns).all(), "an episode's return is not finite."
        assert np.array_equal(finished.length, self._length[environment]), (
            f"episodes took {self._length[environment]} steps and `finished.length` says {finished.length}."
        )
        low, high = np.array(self.spec.utility_range).T
        inside = (finished.returns >= low - _MONEY) & (finished.returns <= high + _MONEY)
        assert inside.all(), (
            f"returns {finished.returns[~inside.all(axis=1)]} are outside of the utility range {self.spec.utility_range}."
        )
        for p in range(self.spec.num_players):
            self._settle(p, environment, finished.returns[:, p])
        self._length[environment] = 0
        self.finished[environment] += 1

    def _settle(self, p: int, environment: NDArray[np.int32], returns: NDArray[np.float64]) -> None:
        agents = self._agents[p]
        slots = environment[:, None] * agents + np.arange(agents)
        left = slots[self._open[p][slots]]
        assert not len(left), (
            f"player {p}: the episodes of slots {left} ended and their open decisions are not in `ended`."
        )
        paid = np.where(self._seen[p][slots], self._paid[p][slots], np.nan)
        believed = self._from_start[p][slots] | (self._seen[p][slots] & (not self._early))
        if agents == 1 or self._team == "shared":
            believed &= ~self._closed_early[p][slots]
            wrong = believed & (np.abs(paid - returns[:, None]) > _MONEY * (1 + np.abs(returns[:, None])))
            assert not wrong.any(), (
                f"player {p}: rewards of slots {slots[wrong]} sum to {paid[wrong]}, their episodes' returns are "
                f"{np.broadcast_to(returns[:, None], wrong.shape)[wrong]}."
            )
        else:
            whole = believed.all(axis=1)
            wrong = whole & (np.abs(paid.sum(axis=1) - returns) > _MONEY * (1 + np.abs(returns)))
            assert not wrong.any(), (
                f"player {p}: the agents' rewards sum to {paid[wrong].sum(axis=1)}, returns are {returns[wrong]}."
            )
        for column in (self._seen[p], self._there[p], self._from_start[p], self._closed_early[p]):
            column[slots] = False
        self._paid[p][slots] = 0

    def _check_rows(self, p: int, slot: NDArray[Any], reward: NDArray[Any], what: str) -> None:
        assert slot.dtype == np.int32, f"player {p}: `{what}.slot` must be int32, it is {slot.dtype}."
        assert (np.diff(slot) > 0).all(), f"player {p}: `{what}.slot` must rise, it is {slot}."
        most = self.num_envs * self._agents[p]
        assert not len(slot) or (slot[0] >= 0 and slot[-1] < most), (
            f"player {p}: `{what}.slot` must lie in 0 … {most - 1}: {slot}."
        )
        _typed(reward, np.float32, slot.shape, f"player {p}: `{what}.reward`")
        assert np.isfinite(reward).all(), f"player {p}: a reward in `{what}` is not finite."

    def _check_observation(self, p: int, observation: Array, n: int) -> None:
        enumeration = self.spec.enumeration
        if enumeration is not None:
            ids = enumeration.ids(p)
            _typed(observation, np.int32, (n,), f"player {p}: observations, as ids,")
            assert ((observation >= ids.start) & (observation < ids.stop)).all(), (
                f"player {p} was shown an id of another player."
            )
            return
        assert observation.shape == self._shape(p, n), (
            f"player {p}: observations are {observation.shape}, expected {self._shape(p, n)}."
        )
        for row in observation:
            assert self.spec.agents_of(p)[0].observation.contains(row), (
                f"player {p}: an observation is not in its space: {row}."
            )

    def _check_mask(self, p: int, due: Due) -> None:
        if due.mask is None:
            return
        space = self.spec.agents_of(p)[0].action
        assert isinstance(space, Discrete), f"player {p} has a mask over actions that are not discrete."
        shape = (len(due.slot), int(space.n))
        _typed(due.mask, np.bool_, shape, f"player {p}: the mask")
        assert due.mask.any(axis=1).all(), (
            f"player {p}: slots {due.slot[~due.mask.any(axis=1)]} are due without a legal action."
        )

    def _shape(self, p: int, n: int) -> tuple[int, ...]:
        return (n, *(self.spec.agents_of(p)[0].observation.shape or ()))


def _typed(array: Array, dtype: Any, shape: tuple[int, ...], what: str) -> None:
    given = f"{array.dtype}{list(array.shape)}"
    assert given == f"{np.dtype(dtype)}{list(shape)}", f"{what} must be {np.dtype(dtype)}{list(shape)}; it is {given}."
