"""What the parent knows of running episodes from what was published: enough to close them when their subprocess is gone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.envs.publisher_kernels import episode_seed
from ludus.envs.subprocess_memory import SideViews
from ludus.envs.subprocess_worker import Rows, Written
from ludus.types import Array, Due, EnvSpec, Timestep


class Record:
    """Open decisions, returns and lengths of E environments. `repairs`: also keeps what each open decision was made on.

    seeds, began: what an environment's vector was last reset with, and how many episodes were finished by then: their difference to
    `episode` is the episode's number in that vector.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, *, repairs: bool) -> None:
        self.num_envs = num_envs
        self.seeds = np.zeros(num_envs, np.uint64)
        self.began = np.zeros(num_envs, np.int64)
        self.episode = np.zeros(num_envs, np.int64)  # finished since the reset
        self.length = np.zeros(num_envs, np.int32)  # timesteps with due decisions; 0: no episode is seen to run
        self._given = np.zeros(num_envs, np.uint64)
        self._quota: NDArray[np.int64] | None = None
        self._returns = np.zeros((num_envs, spec.num_players))
        self._repairs = repairs
        self._players = [_PlayerRecord(len(spec.agents_of(p)), num_envs) for p in range(spec.num_players)]
        self._state: Array | None = None

    def reset(self, seeds: NDArray[np.uint64], episodes: int | NDArray[np.int64] | None) -> None:
        """Forget everything."""
        self.seeds[:] = self._given[:] = seeds
        self._quota = None
        if episodes is not None:
            self._quota = np.zeros(self.num_envs, np.int64)
            self._quota[:] = episodes
        for array in (self.began, self.episode, self.length, self._returns):
            array.fill(0)
        for player in self._players:
            player.forget()

    def following(self, first: int, count: int) -> tuple[NDArray[np.uint64], NDArray[np.int64] | None]:
        """What a vector that takes over the environments `first` … is reset with: seeds by (the seed that was given, number of its first
        episode), and how many episodes are left to be played. Those that are running are over; episode 0 has the seed itself."""
        at = slice(first, first + count)
        number = self._next(at)
        seeds = [
            int(seed) if k == 0 else int(episode_seed(seed, np.uint64(k)))
            for seed, k in zip(self._given[at], number, strict=True)
        ]
        return np.array(seeds, np.uint64), None if self._quota is None else self._quota[at] - number

    def _next(self, at: slice) -> NDArray[np.int64]:
        """Numbers of the next episodes."""
        return self.episode[at] + (self.length[at] > 0)

    def see(self, timestep: Timestep) -> None:
        """Take note of a timestep. It must stay valid until the next one is seen."""
        finished = timestep.finished.environment
        for p, player in enumerate(self._players):
            ended, due = timestep.ended[p], timestep.due[p]
            self._returns[:, p] += player.paid(ended.slot, ended.reward)
            player.open[ended.slot] = False
            self._returns[finished, p] = 0
            self._returns[:, p] += player.paid(due.slot, due.reward)
            if self._repairs:
                player.keep(due)
            player.open[due.slot] = True
        if len(finished):
            self.episode[finished] += 1
            self.length[finished] = 0
        busy = np.zeros(self.num_envs, np.bool_)
        for player, due in zip(self._players, timestep.due, strict=True):
            busy[due.slot // player.agents] = True
        self.length += busy
        if self._repairs and timestep.state is not None:
            self._state = timestep.state

    def truncate(self, side: SideViews, first: int, count: int, fresh: Written) -> Written:
        """Add to what a new subprocess wrote into `side` that the open episodes of its environments `first` … ended as truncated: nothing
        more was earned, the final observations are those that the open decisions were made on."""
        at = slice(first, first + count)
        self.seeds[at], self.began[at] = self.following(first, count)[0], self._next(at)
        rows: list[Rows] = []
        for player, views, (n, masked, _, _) in zip(self._players, side.players, fresh[0], strict=True):
            base = first * player.agents
            slots = base + np.flatnonzero(player.open[base : (first + count) * player.agents])
            at = slice(base, base + len(slots))
            views.end_slot[at] = slots
            views.end_reward[at] = 0
            views.end_terminated[at] = False
            rows.append((n, masked, len(slots), player.recall(slots, views.end_observation[at], views.end_mask, at)))
        over = first + np.flatnonzero(self.length[first : first + count])
        at = slice(first, first + len(over))
        side.environment[at] = over
        side.returns[at] = self._returns[over]
        side.terminated[at] = False
        side.length[at] = self.length[over]
        if side.final_state is not None and self._state is not None:
            side.final_state[at] = self._state[over]
        return tuple(rows), len(over)


class _PlayerRecord:
    """One player's slots. Decisions that were due last are looked up in that timestep; older open ones are kept here."""

    def __init__(self, agents: int, num_envs: int) -> None:
        self.agents = agents
        self._num_envs = num_envs
        self.open = np.zeros(num_envs * agents, np.bool_)
        self._last: Due | None = None
        self._row = np.full(num_envs * agents, -1, np.int64)  # in the last timestep's rows
        self._observation: Array | None = None  # made when a decision is open for longer than a step
        self._mask: NDArray[np.bool_] | None = None

    def forget(self) -> None:
        self.open.fill(False)
        self._row.fill(-1)
        self._last = None

    def paid(self, slot: NDArray[np.int32], reward: NDArray[np.float32]) -> NDArray[np.float64]:
        """float64[E]: rewards by environment."""
        return np.bincount(slot // self.agents, reward, self._num_envs).astype(np.float64, copy=False)

    def keep(self, due: Due) -> None:
        """Take over the last timestep's decisions that are still open and are not due again."""
        last = self._last
        self._last = due
        if last is not None and len(due.slot) < len(self.open):
            again = np.zeros(len(self.open), np.bool_)
            again[due.slot] = True
            still = self.open[last.slot] & ~again[last.slot]
            if still.any():
                self._store(last, still)
        self._row.fill(-1)
        self._row[due.slot] = np.arange(len(due.slot))

    def _store(self, due: Due, which: NDArray[np.bool_]) -> None:
        slots = due.slot[which]
        if self._observation is None:
            self._observation = np.zeros((len(self.open), *due.observation.shape[1:]), due.observation.dtype)
        self._observation[slots] = due.observation[which]
        if due.mask is not None:
            if self._mask is None:
                self._mask = np.ones((len(self.open), due.mask.shape[1]), np.bool_)
            self._mask[slots] = due.mask[which]

    def recall(self, slots: NDArray[np.int64], observation: Array, masks: NDArray[np.bool_] | None, at: slice) -> bool:
        """Write what the open decisions of `slots` were made on; whether that includes masks."""
        masked = False
        for i, slot in enumerate(slots.tolist()):
            row, last = self._row[slot], self._last
            if row >= 0 and last is not None:
                observation[i] = last.observation[row]
                mask = None if last.mask is None else last.mask[row]
            else:
                assert self._observation is not None
                observation[i] = self._observation[slot]
                mask = None if self._mask is None else self._mask[slot]
            if masks is not None:
                masks[at.start + i] = True if mask is None else mask
                masked |= mask is not None
        return masked
