"""What every adapter needs to keep the contract of `VectorEnv`: buffers, open decisions, returns, quotas, and checks of what it is given.

adapter steps -> fills dense arrays -> `begin_next` (whose episodes restart) -> fills their first decisions -> `publish`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import addresses
from ludus.core.errors import EnvError
from ludus.core.types import ActionRequests, Array, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep
from ludus.envs import publisher_kernels
from ludus.envs.spaces import Choices

# --------------------------------------------------------------------------------------------------------------------
# One of the two sets of buffers that a `Publisher` fills in turn.

_KEPT = 4096  # number of lengths of which records are kept


class TimestepBuffers:
    """Dense arrays by slot, and compact ones for the rows that are due or closed; see `Publisher` for what is in them."""

    def __init__(self, spec: EnvSpec, num_envs: int, masked: Sequence[bool], *, compact: bool) -> None:
        self._compact = compact
        players = range(spec.num_players)
        slots = [num_envs * len(spec.agents_of(p)) for p in players]
        spaces = [spec.agents_of(p)[0].observation for p in players]
        choices = [Choices.of(spec.agents_of(p)[0].action) for p in players]
        self.observation: list[Array] = [
            np.zeros((n, *(space.shape or ())), space.dtype) for n, space in zip(slots, spaces, strict=True)
        ]
        self.mask: list[NDArray[np.bool_] | None] = [
            np.ones((n, choice.width), np.bool_) if use and choice is not None else None
            for n, choice, use in zip(slots, choices, masked, strict=True)
        ]
        if compact:  # players have equal spaces
            self.all_observations = np.zeros((sum(slots), *self.observation[0].shape[1:]), self.observation[0].dtype)
            self.all_masks = np.concatenate([mask for mask in self.mask if mask is not None])
            self.observation = np.split(self.all_observations, len(slots))
            self.mask = [*np.split(self.all_masks, len(slots))]
        self.final: list[Array] = [np.zeros_like(dense) for dense in self.observation]
        self.final_mask = [None if mask is None else mask.copy() for mask in self.mask]
        self.slot = [np.zeros(n, np.int32) for n in slots]
        self.reward = [np.zeros(n, np.float32) for n in slots]
        self.first = [np.zeros(n, np.bool_) for n in slots]
        self.end_slot = [np.zeros(n, np.int32) for n in slots]
        self.end_reward = [np.zeros(n, np.float32) for n in slots]
        self.end_terminated = [np.zeros(n, np.bool_) for n in slots]
        self.columns = [
            (self.slot[p], self.reward[p], self.first[p], self.end_slot[p], self.end_reward[p], self.end_terminated[p])
            for p in players
        ]
        # Compact observations are made when first wanted.
        self._rows: list[Array | None] = [*self.observation] if compact else [None for _ in slots]
        self._row_masks = self.mask if compact else [None if mask is None else mask.copy() for mask in self.mask]
        self._end_rows: list[Array | None] = [*self.final] if compact else [None for _ in slots]
        self._end_masks = self.final_mask if compact else [None if mask is None else mask.copy() for mask in self.mask]
        state = spec.state
        self.state = None if state is None else np.zeros((num_envs, *(state.shape or ())), state.dtype)
        self.final_state = None if self.state is None else self.state.copy()
        self.over = (
            np.zeros(num_envs, np.int32),
            np.zeros((num_envs, len(slots))),
            np.zeros(num_envs, np.bool_),
            np.zeros(num_envs, np.int32),
        )  # environment, returns, terminated, length of what is finished
        self.statistics = unknown_statistics(spec, num_envs)  # of what is finished
        self._all_due = [
            ActionRequests(self.slot[p], self.observation[p], self.mask[p], self.reward[p], self.first[p])
            for p in players
        ]
        self._due: list[dict[int, ActionRequests]] = [{} for _ in slots]
        self._ended: list[dict[int, ClosedDecisions]] = [{} for _ in slots]
        self._finished: dict[int, FinishedEpisodes] = {}
        self._timesteps: dict[tuple[int, int], Timestep] = {}

    def due(self, player: int, n: int) -> ActionRequests:
        """Return the first n due rows; dense arrays as they are where every slot is due."""
        observation, mask, slot = self.observation[player], self.mask[player], self.slot[player]
        if n == len(slot):
            whole = self._all_due[player]
            if whole.observation is not observation or whole.mask is not mask:
                whole = self._all_due[player] = ActionRequests(
                    slot, observation, mask, self.reward[player], self.first[player]
                )
            return whole
        record = self._due[player].get(n)
        if record is None:
            record = self._due_record(player, n)
        if self._compact:
            return record
        observation.take(record.slot, axis=0, out=record.observation, mode="clip")
        if mask is not None:
            mask.take(record.slot, axis=0, out=record.mask, mode="clip")
        return record

    def ended(self, player: int, n: int) -> ClosedDecisions:
        """Return the first n closed rows, copied out of the dense arrays."""
        record = self._ended[player].get(n)
        if record is None:
            record = self._ended_record(player, n)
        if n and not self._compact:
            self.final[player].take(record.slot, axis=0, out=record.observation, mode="clip")
            mask = self.final_mask[player]
            if mask is not None:
                mask.take(record.slot, axis=0, out=record.mask, mode="clip")
        return record

    def finished(self, n: int) -> FinishedEpisodes:
        """Return the first n finished episodes."""
        record = self._finished.get(n)
        if record is None:
            environment, returns, terminated, length = self.over
            statistics = None if self.statistics is None else self.statistics[:n]
            record = FinishedEpisodes(environment[:n], returns[:n], terminated[:n], length[:n], statistics)
            _keep(self._finished, n, record)
        return record

    def gathered(self, player: int) -> tuple[Array, Array]:
        """Return where rows that are due are gathered, and closed ones."""
        return self._rows_of(player), self._end_rows_of(player)

    def timestep_of_one(self, due: int, ended: int) -> Timestep:
        """Return the timestep of a vector with one agent, of rows that are gathered. Made once: it is views of the same
        buffers."""
        record = self._timesteps.get((due, ended))
        if record is None:
            now = self._due[0].get(due) or self._due_record(0, due)
            closed = self._ended[0].get(ended) or self._ended_record(0, ended)
            record = Timestep((now,), (closed,), self.finished(ended))
            _keep(self._timesteps, (due, ended), record)
        return record

    def _rows_of(self, player: int) -> Array:
        rows = self._rows[player]
        if rows is None:
            rows = self._rows[player] = np.empty_like(self.observation[player], order="C")
        return rows

    def _end_rows_of(self, player: int) -> Array:
        rows = self._end_rows[player]
        if rows is None:
            final = self.final[player]
            rows = self._end_rows[player] = np.zeros(final.shape, final.dtype)
        return rows

    def _due_record(self, player: int, n: int) -> ActionRequests:
        rows, mask = self._rows_of(player), self._row_masks[player]
        record = ActionRequests(
            self.slot[player][:n],
            rows[:n],
            None if mask is None else mask[:n],
            self.reward[player][:n],
            self.first[player][:n],
        )
        _keep(self._due[player], n, record)
        return record

    def _ended_record(self, player: int, n: int) -> ClosedDecisions:
        rows, mask = self._end_rows_of(player), self._end_masks[player]
        record = ClosedDecisions(
            self.end_slot[player][:n],
            self.end_reward[player][:n],
            self.end_terminated[player][:n],
            rows[:n],
            None if mask is None else mask[:n],
        )
        _keep(self._ended[player], n, record)
        return record


def unknown_statistics(spec: EnvSpec, num_envs: int) -> NDArray[np.float64] | None:
    """Return NaN float64[E, P, S]; None for a spec without names."""
    return np.full((num_envs, spec.num_players, len(spec.statistics)), np.nan) if spec.statistics else None


def _keep(records: dict[Any, Any], n: Any, record: object) -> None:
    """Keep a record: those of the same length are views of the same buffers, and are made once."""
    if len(records) < _KEPT:
        records[n] = record


GOES_ON, TERMINATED, TRUNCATED = 0, 1, 2
_NONE = np.empty(0, np.int64)


class Publisher:
    """Dense arrays that an adapter fills by slot (S = E × agents of the player), and the timesteps made of them.

    A player's return is the sum of its agents' rewards, those of agents without an open decision included.

    Args:
        spec: What is played.
        num_envs: E.
        masked: masked[p]: whether player p has masks.
        compact: For libraries that can be trusted, with players that have equal spaces and masks. Row k of observation[p] and mask[p] then
            belongs to the k-th slot that is due, and is published as it is; rows are not checked; final observations are zeros, and
            `truncate` and `cut` cannot be used.

    Attributes:
        observation: By player, [S, *shape], read where due. An adapter may put another array of that shape and dtype in its place, if it
            does not change that array until the second-next step.
        mask: By player, bool[S, A] or None, likewise; A as in `Choices`.
        due: By player, bool[S], slots that must act now.
        reward: By player, float64[S], earned in this step; read and set to 0.
        gone: By player, uint8[S], GOES_ON, or how the slot's agent left; read and set to 0.
        final: By player, [S, *shape], final observations, read where slots close; final_mask likewise.
        over: uint8[E], GOES_ON, or how the environment's episode ended, which closes all of its slots.
        statistics: float64[E, P, S], totals of the present episodes, read by `begin_next` where they end, and set to NaN; None if the spec
            names none.
        all_due: The array that `due` are views of, the players concatenated; all_rewards likewise, and with `compact` also all_observations
            and all_masks, of one side.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, *, masked: Sequence[bool], compact: bool = False) -> None:
        if num_envs < 1:
            raise EnvError(f"num_envs={num_envs} was given; at least 1 is needed.")
        self.spec = spec
        self.num_envs = num_envs
        self._compact = compact
        self.agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._sides = tuple(TimestepBuffers(spec, num_envs, masked, compact=compact) for _ in range(2))
        self._now = 0
        slots = [num_envs * n for n in self.agents]
        edges = np.cumsum([0, *slots]).tolist()
        self.all_due = np.zeros(edges[-1], np.bool_)
        self.all_rewards = np.zeros(edges[-1])
        self.due = [self.all_due[a:b] for a, b in pairwise(edges)]
        self.reward = [self.all_rewards[a:b] for a, b in pairwise(edges)]
        self.gone = [np.zeros(n, np.uint8) for n in slots]
        self.over = np.zeros(num_envs, np.uint8)
        self.statistics = unknown_statistics(spec, num_envs)
        self._pending = [np.zeros(n) for n in slots]
        self._open = [np.zeros(n, np.bool_) for n in slots]
        self._known = [np.zeros(n, np.bool_) for n in slots]
        self._returns = np.zeros((num_envs, spec.num_players))
        all_choices = [Choices.of(spec.agents_of(p)[0].action) for p in range(spec.num_players)]
        self._starts = [_NONE if choices is None else choices.starts for choices in all_choices]
        self._checked = [np.issubdtype(a.dtype, np.floating) for a in self._sides[0].observation]
        self._decided = [np.zeros(n, np.int8) for n in slots]  # side of a slot's last decision
        self._ended = _NONE
        self._over_rows, self._more_rows = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._stamp = np.full(num_envs, -1, np.int64)
        self._tick = 0
        self.length = np.zeros(num_envs, np.int32)  # steps of the present episodes
        self.episode = np.zeros(num_envs, np.int64)  # episodes finished since the reset
        self.idle = np.zeros(num_envs, np.bool_)
        self.seeds = np.zeros(num_envs, np.uint64)
        self.quota = np.full(num_envs, -1, np.int64)
        self._agents = np.array(self.agents, np.int64)
        self._counts = np.zeros((spec.num_players, 2), np.int64)  # due rows and closed rows of each player
        self._tables = [self._tables_of(side) for side in self._sides]
        self._alone: list[NDArray[np.int64]] = []  # per side, the table of `publisher_kernels.update_single_agent`

    def _tables_of(self, side: TimestepBuffers) -> NDArray[np.int64]:
        """Return int64[P, k, 2]: what `publisher_kernels.update_decisions` works on when it fills this side."""
        episodes = (self.over, self._returns, self._stamp, self.length, self.episode, *side.over)
        slots = zip(
            self.due, self.reward, self.gone, self._pending, self._open, self._known, self._decided, strict=True
        )
        return np.array(
            [addresses(*held, *columns, *episodes) for held, columns in zip(slots, side.columns, strict=True)]
        )

    # ------------------------------------------------------------------------------------------ what an adapter fills

    @property
    def observation(self) -> list[Array]:
        """Return the buffers of the timestep that is being made; another pair after each `publish`."""
        return self._sides[self._now].observation

    @property
    def mask(self) -> list[NDArray[np.bool_] | None]:
        return self._sides[self._now].mask

    @property
    def all_masks(self) -> NDArray[np.bool_]:
        return self._sides[self._now].all_masks

    @property
    def all_observations(self) -> Array:
        return self._sides[self._now].all_observations

    @property
    def final(self) -> list[Array]:
        return self._sides[self._now].final

    @property
    def final_mask(self) -> list[NDArray[np.bool_] | None]:
        return self._sides[self._now].final_mask

    @property
    def state(self) -> Array | None:
        """Return [E, *shape], if the spec has a state space."""
        return self._sides[self._now].state

    @property
    def final_state(self) -> Array | None:
        """Return [E, *shape], read where episodes end."""
        return self._sides[self._now].final_state

    def tables(self, player: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the tables for `publisher_kernels.put_row`; `side` says which of the two is in use. For adapters that do not replace
        the arrays."""
        due = self.due[player]
        first, second = (
            addresses(side.observation[player], due if (mask := side.mask[player]) is None else mask, due)
            for side in self._sides
        )
        return first, second

    @property
    def side(self) -> int:
        """Return 0 or 1: which of the two sets of buffers is being filled."""
        return self._now

    # ------------------------------------------------------------------------------------------ episodes

    def reset(self, seeds: NDArray[np.uint64], episodes: int | NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Begin new episodes. Returns the environments that begin one (those with a quota of 0 are idle). Raises EnvError for a wrong
        number of seeds."""
        if len(seeds) != self.num_envs:
            raise EnvError(f"{len(seeds)} seeds were given for {self.num_envs} environments; one each is needed.")
        if episodes is not None and np.any(np.asarray(episodes) < -1):
            raise EnvError(
                f"episodes={episodes} was given to a reset; numbers from 0 on are needed, or None for no end."
            )
        self.seeds[:] = seeds
        self.quota[:] = -1 if episodes is None else episodes
        for columns in (self.due, self.reward, self.gone, self._pending, self._open, self._known):
            for column in columns:
                column.fill(0)
        for array in (self.over, self._returns, self.length, self.episode):
            array.fill(0)
        if self.statistics is not None:
            self.statistics.fill(np.nan)
        self._stamp.fill(-1)
        self._ended = _NONE
        np.equal(self.quota, 0, out=self.idle)
        return np.flatnonzero(~self.idle)

    def resume(
        self,
        seeds: NDArray[np.uint64],
        quota: NDArray[np.int64],
        *,
        idle: NDArray[np.bool_],
        episode: NDArray[np.int64],
        length: NDArray[np.int32],
        opened: Sequence[NDArray[np.bool_]],
    ) -> None:
        """Continue within episodes, before their last timestep is filled in again: arrays by environment as they were before it, quota
        -1 for none; opened[p]: slots with an open decision, whose agents have acted before."""
        self.reset(seeds, quota)
        self.idle[:], self.episode[:], self.length[:] = idle, episode, length
        for p, slots in enumerate(opened):
            self._open[p][:] = self._known[p][:] = slots

    def begin_next(self) -> NDArray[np.int64]:
        """Return those environments whose episode is `over` that play another episode; the others become idle. In each step in which an
        episode ended, before `publish`; their `seed` is then the one with ahead=1."""
        ended, more = publisher_kernels.start_episodes(
            self.over, self.episode, self.quota, self.idle, self._over_rows, self._more_rows
        )
        self._ended = self._over_rows[:ended]
        to = self._sides[self._now].statistics
        if self.statistics is not None and to is not None:  # here, since a reset may tell of the next episode
            to[:ended] = self.statistics[self._ended]
            self.statistics[self._ended] = np.nan
        return self._more_rows[:more]

    def seed(self, environment: int, *, ahead: int = 0) -> int:
        """Return a seed of 31 bits for the present (`ahead=1`: the next) episode of an environment, by (its seed, number of the
        episode)."""
        return int(
            publisher_kernels.episode_seed(self.seeds[environment], np.uint64(self.episode[environment] + ahead))
            & np.uint64(0x7FFFFFFF)
        )

    # ------------------------------------------------------------------------------------------ timesteps

    def publish(self, returns: NDArray[np.float64] | None = None) -> Timestep:
        """Return the timestep of what was filled in since the last one. returns: float64[k, P] of the k episodes that are over, by
        rising environment, where the environment counts them itself. Raises EnvError, with environment, seed and step, for a
        `find_violation`."""
        if not self._compact and (violation := self.find_violation()) is not None:
            raise self.error(*violation)
        side, ended = self._sides[self._now], self._ended
        publisher_kernels.update_decisions(
            self._tables[self._now], self._agents, self._tick, self._now, ended, self._counts
        )
        due, closed = [], []
        for p, (rows, ends) in enumerate(self._counts.tolist()):
            due.append(side.due(p, rows))
            closed.append(side.ended(p, ends))
        if returns is not None:
            side.over[1][: len(ended)] = returns
        final_state = None if side.final_state is None else side.final_state[ended]
        self._tick += 1
        self._now ^= 1
        self._ended = _NONE
        return Timestep(tuple(due), tuple(closed), side.finished(len(ended)), side.state, final_state)

    def publish_one(
        self, observation: Array, reward: Array, terminated: Array, truncated: Array, resting: NDArray[np.bool_]
    ) -> Timestep | None:
        """Publish in one pass, for vectors with one agent, flat observations and no masks whose environments rest for a step after each
        episode: of observations [E, n] of the spec's dtype, rewards [E] and how episodes ended, instead of the arrays that an adapter
        fills. resting: bool[E], kept by this.

        None, with nothing changed, where `publish` is needed: nothing would be due, a number is not finite, or there are statistics.
        """
        if self.statistics is not None:
            return None
        if not self._alone:
            self._alone = [self._table_of_one(side) for side in self._sides]
        side = self._sides[self._now]
        rows, ends = publisher_kernels.update_single_agent(
            observation, reward, terminated, truncated, resting, self._now, self._alone[self._now]
        )
        if rows < 0:
            return None
        self._tick += 1
        self._now ^= 1
        return side.timestep_of_one(rows, ends)

    def _table_of_one(self, side: TimestepBuffers) -> NDArray[np.int64]:
        held = (
            self.idle, self.quota, self.episode, self.due[0], self._open[0], self._known[0], self._decided[0], self._returns, self.length,
        )  # fmt: skip
        return addresses(*held, *side.columns[0], *side.over, *side.gathered(0))

    # ------------------------------------------------------------------------------------------ faults

    def find_violation(self) -> tuple[int, str] | None:
        """Return an environment that gave a reward or an observation that is not a number, or a mask without a legal action, and a
        sentence about it; None if all is well."""
        side = self._sides[self._now]
        for p, agents in enumerate(self.agents):
            mask = side.mask[p]
            if (
                mask is not None
                and (slot := publisher_kernels.first_without_legal(mask, self.due[p], self._starts[p])) >= 0
            ):
                return slot // agents, f"gave {self._who(p, slot)} a mask without a legal action; expected at least one"
            reward, gone = self.reward[p], self.gone[p]
            if self._checked[p]:
                observation, final = _rows(side.observation[p]), _rows(side.final[p])
                slot = publisher_kernels.first_not_finite(
                    reward, observation, self.due[p], final, agents, gone, self.over, self._open[p]
                )
            else:
                fine = np.isfinite(reward)
                slot = -1 if fine.all() else int(fine.argmin())
            if slot >= 0 and not np.isfinite(reward[slot]):
                return slot // agents, f"gave {self._who(p, slot)} the reward {reward[slot]}; expected a finite number"
            if slot >= 0:
                return slot // agents, f"gave {self._who(p, slot)} an observation that is not finite; expected numbers"
        return None

    def copy_rows(self, environment: int) -> list[tuple[Array, Array | None]]:
        """Copy the observations and masks of an environment, by player, from the side that is being filled: of some slots, those of
        their open decisions."""
        return [(rows.copy(), None if mask is None else mask.copy()) for rows, mask in self._rows_of(environment)]

    def restore_rows(self, environment: int, copies: Sequence[tuple[Array, Array | None]]) -> None:
        """Restore the rows that `copy_rows` copied, in place of what a step with a fault has written; before `truncate`."""
        for (rows, mask), (old, old_mask) in zip(self._rows_of(environment), copies, strict=True):
            rows[:] = old
            if mask is not None:
                mask[:] = old_mask

    def _rows_of(self, environment: int) -> Iterator[tuple[Array, Array | None]]:
        for p, agents in enumerate(self.agents):
            rows = slice(environment * agents, (environment + 1) * agents)
            mask = self.mask[p]
            yield self.observation[p][rows], None if mask is None else mask[rows]

    def truncate(self, environment: int) -> None:
        """End an environment's episode after a fault: its results of this step are dropped, its open decisions are closed as truncated
        with the observations and masks that they were made on."""
        side = self._sides[self._now]
        for p, agents in enumerate(self.agents):
            rows = slice(environment * agents, (environment + 1) * agents)
            self.reward[p][rows] = 0
            self.gone[p][rows] = GOES_ON
            self.due[p][rows] = False
            self._close_on(p, np.arange(rows.start, rows.stop), self._decided[p][rows])
        if side.final_state is not None:
            before = self._sides[1 - self._now].state
            assert before is not None
            side.final_state[environment] = before[environment]
        if self.statistics is not None:
            self.statistics[environment] = np.nan
        self.over[environment] = TRUNCATED

    def cut(self, environments: NDArray[np.int64]) -> None:
        """Truncate the episodes of these environments after the results of this step, unless it ended them itself; before `begin_next`. The
        final observations are those that would have been due now; for others, what their open decisions were made on."""
        side, now = (
            self._sides[self._now],
            environments[(self.over[environments] == GOES_ON) & ~self.idle[environments]],
        )
        for p, agents in enumerate(self.agents):
            slots = (now[:, None] * agents + np.arange(agents)).ravel()
            going = self.due[p][slots]
            waiting = self._open[p][slots] & ~going & (self.gone[p][slots] == GOES_ON)
            side_index = np.where(going, self._now, self._decided[p][slots])
            closed = going | waiting
            self._close_on(p, slots[closed], side_index[closed])
            self.due[p][slots] = False
        if side.state is not None and side.final_state is not None:
            side.final_state[now] = side.state[now]
        self.over[now] = TRUNCATED

    def _close_on(self, player: int, slots: NDArray[np.int64], side_index: Array) -> None:
        """Copy final observations and masks of slots from the sides, int[n], that have them."""
        side = self._sides[self._now]
        for k, source in enumerate(self._sides):
            chosen = slots[side_index == k]
            side.final[player][chosen] = source.observation[player][chosen]
            if (final_mask := side.final_mask[player]) is not None and (mask := source.mask[player]) is not None:
                final_mask[chosen] = mask[chosen]

    def error(self, environment: int, sentence: str) -> EnvError:
        """Return an EnvError that says which environment, seed and step."""
        return EnvError(
            f"{self.spec.id} {sentence}; environment {environment} of {self.num_envs}, seed {self.seeds[environment]}, episode "
            f"{self.episode[environment]}, step {self.length[environment]}."
        )

    def _who(self, player: int, slot: int) -> str:
        agents = self.spec.agents_of(player)
        return f"agent {agents[slot % len(agents)].name!r}"


def _rows(array: Array) -> Array:
    """Reshape [S, …] to [S, n]."""
    return array if array.ndim == 2 else array.reshape(len(array), -1)
