"""Book-keeping over a vector environment's timesteps: which decisions are open, what they were paid, and who broke the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.testing import rows
from ludus.types import Due, Ended, EnvSpec, Timestep

Team: TypeAlias = Literal["either", "shared", "split"]
_MONEY = 1e-4  # rewards are float32, returns float64


class Ledger:
    """Checks every timestep against the contract and what was before it.

    team: whether each agent of a player is paid the player's whole return, or they split it; "either": one of them, throughout.
    early_rewards: a player may be paid before its first decision in an episode; such rewards belong to no decision.
    collect: go on after a failure; otherwise `see` raises AssertionError. failures: topic, one of `TOPICS` -> a sentence about its first
    failure. After one in "rows" nothing more is checked: what rows say cannot be trusted then.
    """

    TOPICS = ("rows", "observations", "masks", "first decisions", "closed decisions", "episodes", "rewards")

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        *,
        team: Team = "either",
        early_rewards: bool = False,
        collect: bool = False,
    ) -> None:
        self.spec = spec
        self.failures: dict[str, str] = {}
        self.finished = np.zeros(num_envs, np.int64)
        self.left = 0  # agents that left before their episode's end
        self._num_envs = num_envs
        self._ways: set[str] = {team} if team != "either" else {"shared", "split"}
        self._early = early_rewards
        self._collect = collect
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        slots = [num_envs * n for n in self._agents]
        self._seen = [np.zeros(n, np.bool_) for n in slots]  # in this episode
        self._there = [np.zeros(n, np.bool_) for n in slots]  # since its agent came (back) to it
        self._open = [np.zeros(n, np.bool_) for n in slots]
        self._paid = [np.zeros(n) for n in slots]
        self._closed_early = [np.zeros(n, np.bool_) for n in slots]
        self._from_start = [np.zeros(n, np.bool_) for n in slots]
        self._length = np.zeros(num_envs, np.int64)
        self._busy = np.zeros(num_envs, np.bool_)

    def see(self, timestep: Timestep) -> None:
        """Check one timestep, the answer of a reset or of a step."""
        if "rows" in self.failures or not self._try("rows", rows.layout, self.spec, self._num_envs, timestep):
            return
        self._length[self._busy] += 1
        environment = timestep.finished.environment
        for p, ended in enumerate(timestep.ended):
            self._see_ended(p, ended, environment)
        if len(environment):
            self._see_finished(timestep)
        self._busy[:] = False
        for p, due in enumerate(timestep.due):
            self._see_due(p, due)

    def _try(self, topic: str, check: Callable[..., None], *args: Any) -> bool:
        try:
            check(*args)
        except AssertionError as error:
            if not self._collect:
                raise
            self.failures.setdefault(topic, str(error))
            return False
        return True

    # ------------------------------------------------------------------------------------------ decisions

    def _see_due(self, p: int, due: Due) -> None:
        self._try("observations", rows.observations, self.spec, p, due.observation)
        self._try("masks", rows.masks, self.spec, p, due)
        self._try("first decisions", self._check_first, p, due)
        self._try("rewards", rows.rewards, p, due.reward, "due")
        self._paid[p][due.slot] += due.reward
        environment = due.slot // self._agents[p]
        self._from_start[p][due.slot[due.first]] = self._length[environment[due.first]] == 0
        self._seen[p][due.slot] = self._there[p][due.slot] = True
        self._open[p][due.slot] = True
        self._busy[environment] = True

    def _check_first(self, p: int, due: Due) -> None:
        odd = due.slot[due.first == self._there[p][due.slot]]
        assert not len(odd), (
            f"player {p}: `first` must mark exactly the slots' first decisions in their episodes; slots {odd} differ."
        )
        assert not (np.abs(due.reward[due.first]) > 0).any(), (
            f"player {p}: a first decision came with a reward; nothing was decided before it."
        )

    def _see_ended(self, p: int, ended: Ended, finished: NDArray[np.int32]) -> None:
        self._try("observations", rows.finals, self.spec, p, ended)
        self._try("closed decisions", self._check_was_open, p, ended)
        self._try("rewards", rows.rewards, p, ended.reward, "ended")
        self._paid[p][ended.slot] += ended.reward
        self._open[p][ended.slot] = self._there[p][ended.slot] = False
        early = ~np.isin(ended.slot // self._agents[p], finished)
        self._closed_early[p][ended.slot] = early
        self.left += int(early.sum())

    def _check_was_open(self, p: int, ended: Ended) -> None:
        closed = ended.slot[~self._open[p][ended.slot]]
        assert not len(closed), f"player {p}: slots {closed} are in `ended` and had no open decision."

    # ------------------------------------------------------------------------------------------ episodes

    def _see_finished(self, timestep: Timestep) -> None:
        environment, returns = timestep.finished.environment, timestep.finished.returns
        self._try("episodes", self._check_episodes, timestep)
        for p in range(self.spec.num_players):
            slots = environment[:, None] * self._agents[p] + np.arange(self._agents[p])
            self._try("closed decisions", self._check_all_closed, p, slots)
            self._try("rewards", self._check_sums, p, slots, returns[:, p])
            for column in (self._seen, self._there, self._from_start, self._closed_early, self._open):
                column[p][slots] = False
            self._paid[p][slots] = 0
        self._length[environment] = 0
        self.finished[environment] += 1

    def _check_episodes(self, timestep: Timestep) -> None:
        finished, length = timestep.finished, self._length[timestep.finished.environment]
        assert np.isfinite(finished.returns).all(), "an episode's return is not finite."
        assert np.array_equal(finished.length, length), (
            f"episodes took {length} steps and `finished.length` says {finished.length}."
        )
        low, high = np.array(self.spec.utility_range).T
        inside = (finished.returns >= low - _MONEY) & (finished.returns <= high + _MONEY)
        assert inside.all(), (
            f"returns {finished.returns[~inside.all(axis=1)]} are outside of the utility range {self.spec.utility_range}."
        )

    def _check_all_closed(self, p: int, slots: NDArray[np.int32]) -> None:
        left = slots[self._open[p][slots]]
        assert not len(left), (
            f"player {p}: the episodes of slots {left} ended and their open decisions are not in `ended`."
        )

    def _check_sums(self, p: int, slots: NDArray[np.int32], returns: NDArray[np.float64]) -> None:
        paid = np.where(self._seen[p][slots], self._paid[p][slots], np.nan)
        believed = self._from_start[p][slots] | (self._seen[p][slots] & (not self._early))
        off = _MONEY * (1 + np.abs(returns))
        wrong = {
            "shared": believed & ~self._closed_early[p][slots] & (np.abs(paid - returns[:, None]) > off[:, None]),
            "split": believed.all(axis=1) & (np.abs(paid.sum(axis=1) - returns) > off),
        }
        ways = {"shared"} if self._agents[p] == 1 else self._ways
        kept = {way for way in ways if not wrong[way].any()}
        if self._agents[p] > 1:
            self._ways = kept or ways
        if kept:
            return
        shared = wrong["shared"]
        if "shared" in ways and shared.any():
            raise AssertionError(
                f"player {p}: rewards of slots {slots[shared]} sum to {paid[shared]}, their episodes' returns are "
                f"{np.broadcast_to(returns[:, None], shared.shape)[shared]}."
            )
        split = wrong["split"]
        raise AssertionError(
            f"player {p}: the agents' rewards sum to {paid[split].sum(axis=1)}, returns are {returns[split]}."
        )
