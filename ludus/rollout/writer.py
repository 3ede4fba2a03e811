"""Writes the learner's decisions as they come, interleaved in time, and gives them out as trajectories, segment by segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ludus.core.arrays import addresses, flat_at, inner, kernel, rows_at
from ludus.core.errors import EnvError, PolicyError, ScenarioError
from ludus.core.types import (
    ActionRequests,
    Array,
    ClosedDecisions,
    EnvSpec,
    PolicyOutput,
    PolicyRef,
    SegmentEnd,
    Timestep,
)
from ludus.replay.trajectories import Trajectories
from ludus.rollout.base import RolloutRequest, Shard

# --------------------------------------------------------------------------------------------------------------------
# The compiled parts of writing trajectories. Writers hand over these arrays as a table of addresses, made by `table`:
#
#     slots   int64[n, 3]          of one player's slots (-1 means none): OPEN, the row of its last decision, whose reward
#                                  is still to come; SEGMENT, the one that its rows go to; MINE, 1 where the learner plays
#     clock   int64[E, 2]          of the environments: STEP, the last step in which one had a decision due, and TIME, how
#                                  many such steps its episode has had
#     place   int32[rows, 2]       of each row: SEGMENT_OF and T
#     head    int64[segments, 6]   of each segment: TAIL, how it ends, SEAT, AGENT, EPISODE, VERSION and ENDING, the row of
#                                  its bootstrap observation
#     when    int64[tails]         of each bootstrap observation: its step in the episode

OPEN, SEGMENT, MINE = 0, 1, 2
STEP, TIME = 0, 1
SEGMENT_OF, T = 0, 1
TAIL, SEAT, AGENT, EPISODE, VERSION, ENDING = 0, 1, 2, 3, 4, 5
HEAD = 6
_TERMINATED, _TRUNCATED, _CUT = 0, 1, 2


class WriterArrays(NamedTuple):
    """What a table of addresses is made of. picked, opened: int64[slots], scratch that `settle` and `append` answer in."""

    slots: NDArray[np.int64]
    reward: NDArray[np.float32]
    place: NDArray[np.int32]
    head: NDArray[np.int64]
    picked: NDArray[np.int64]
    opened: NDArray[np.int64]
    clock: NDArray[np.int64]
    episode: NDArray[np.int64]
    when: NDArray[np.int64]

    def table(self) -> NDArray[np.int64]:
        """Return the table for the kernels, as long as these arrays stay."""
        return addresses(*self)


_SLOTS, _REWARD, _PLACE, _HEAD, _PICKED, _OPENED, _CLOCK, _INDEX, _WHEN = range(9)


@kernel
def settle(end_slot, end_reward, terminated, slot, reward, first, agents, tail, table):  # type: ignore[no-untyped-def]
    """Ended rows, then due rows, pay their slots' open decisions. `picked` gets the ended rows whose segments close; their observations
    are to be written to the bootstrap observations from row `tail` on, their times are. Returns how many closed, and how many due rows
    paid, or -1 - slot where a first decision finds one still open."""
    slots, rewards = rows_at(table, _SLOTS, np.int64, 3), flat_at(table, _REWARD, np.float32)
    head, picked = rows_at(table, _HEAD, np.int64, HEAD), flat_at(table, _PICKED, np.int64)
    clock, when = rows_at(table, _CLOCK, np.int64, 2), flat_at(table, _WHEN, np.int64)
    closed = 0
    for i in range(len(end_slot)):
        s = end_slot[i]
        row, segment = slots[s, OPEN], slots[s, SEGMENT]
        if row >= 0:
            rewards[row] = end_reward[i]
            head[segment, TAIL] = _TERMINATED if terminated[i] else _TRUNCATED
            head[segment, ENDING] = tail + closed
            when[tail + closed] = clock[s // agents, TIME]
            picked[closed] = i
            closed += 1
            slots[s, OPEN] = -1
            slots[s, SEGMENT] = -1
    paid = 0
    for i in range(len(slot)):
        row = slots[slot[i], OPEN]
        if row >= 0:
            if first[i]:
                return closed, -1 - slot[i]
            rewards[row] = reward[i]
            slots[slot[i], OPEN] = -1
            paid += 1
    return closed, paid


@inner
def _tick(e, clock, step):  # type: ignore[no-untyped-def]
    """Return 1 if environment e's clock moves, 0 if it has done so in this step."""
    if clock[e, STEP] == step:
        return 0
    clock[e, STEP] = step
    clock[e, TIME] += 1
    return 1


@kernel
def tick(slot, agents, clock, step):  # type: ignore[no-untyped-def]
    """Move the clocks of the environments of `slot`, unless they have done so in this step. Returns how many did."""
    ticks = 0
    for i in range(len(slot)):
        ticks += _tick(slot[i] // agents, clock, step)
    return ticks


@kernel
def append(slot, agents, step, row, segment, player, agent, version, table):  # type: ignore[no-untyped-def]
    """Append rows for the learner's decisions, from `row` on; new segments, from `segment` on, where a slot has none; and `tick`. agent:
    number of the player's first one. picked: the due rows taken; opened: the slots that opened a segment. Returns (rows, segments,
    ticks)."""
    slots, place = rows_at(table, _SLOTS, np.int64, 3), rows_at(table, _PLACE, np.int32, 2)
    head, picked = rows_at(table, _HEAD, np.int64, HEAD), flat_at(table, _PICKED, np.int64)
    opened, clock = flat_at(table, _OPENED, np.int64), rows_at(table, _CLOCK, np.int64, 2)
    episode = flat_at(table, _INDEX, np.int64)
    num_rows = fresh = ticks = 0
    for i in range(len(slot)):
        s = slot[i]
        e = s if agents == 1 else s // agents
        ticks += _tick(e, clock, step)
        if not slots[s, MINE]:
            continue
        if slots[s, SEGMENT] < 0:
            new = segment + fresh
            slots[s, SEGMENT] = new
            head[new, TAIL], head[new, SEAT], head[new, AGENT] = _CUT, player, agent + s - e * agents
            head[new, EPISODE], head[new, VERSION] = episode[e], version
            opened[fresh] = s
            fresh += 1
        picked[num_rows] = i
        place[row + num_rows, SEGMENT_OF] = slots[s, SEGMENT]
        place[row + num_rows, T] = clock[e, TIME] - 1
        slots[s, OPEN] = row + num_rows
        num_rows += 1
    return num_rows, fresh, ticks


def sort_by_segment(
    place: NDArray[np.int32], is_open: NDArray[np.bool_], segments: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Stable counting sort of the closed rows by segment: (rows in order, start[segments + 1])."""
    start, order = np.zeros(segments + 1, np.int64), np.empty(len(place), np.int64)
    _sort(place, is_open, start, np.empty(segments, np.int64), order)
    return order[: start[-1]], start


@kernel
def _sort(place, is_open, start, at, order):  # type: ignore[no-untyped-def]
    for r in range(len(place)):
        if not is_open[r]:
            start[place[r, SEGMENT_OF] + 1] += 1
    for s in range(len(at)):
        at[s] = start[s]
        start[s + 1] += start[s]
    for r in range(len(place)):
        if not is_open[r]:
            s = place[r, SEGMENT_OF]
            order[at[s]] = r
            at[s] += 1


# --------------------------------------------------------------------------------------------------------------------
# Time in each environment: which episode it is in, how far it has come, and how many it is to play.


class EnvironmentCounters:
    """Of the E environments of a shard. episode int64[E]: how many they have finished; index int64[E]: of the present ones; quota
    int64[E]: how many they play, -1 without end; clock int64[E, 2]: STEP and TIME. step: number of the present one; active: how many have
    not played their quota."""

    def __init__(self, shard: Shard) -> None:
        num_envs = shard.num_envs
        self.shard = shard
        self.episode = np.zeros(num_envs, np.int64)
        self.index = np.zeros(num_envs, np.int64)
        self.quota = np.full(num_envs, -1, np.int64)
        self.clock = np.zeros((num_envs, 2), np.int64)
        self.step = self.active = 0

    def restart(self, request: RolloutRequest) -> int | NDArray[np.int64] | None:
        """Start everything again. What the environments' reset is told about the episodes to play."""
        self.episode.fill(0)
        self.clock[:] = -1, 0
        self.step = 0
        self.index[:] = request.first_episode + self.shard.environments
        self.quota.fill(-1)
        quota: int | NDArray[np.int64] | None = None
        if request.unit == "episodes":
            self.quota[:] = self.shard.quota(request.amount)
            quota = int(self.quota[0]) if (self.quota == self.quota[0]).all() else self.quota.copy()
        self.active = int(np.count_nonzero(self.quota))
        return quota

    def with_present(self) -> NDArray[np.int64]:
        """Return how many episodes each environment will have played at the end of the present one, int64[E]; no more than its quota."""
        return np.minimum(self.episode + 1, self.quota)

    def tick(self, slots: NDArray[np.int32], agents: int) -> int:
        """Count that the environments of these slots have a decision due in this step. For how many of them it is the first to be seen."""
        return int(tick(slots, agents, self.clock, self.step))


class GrowingColumns(dict[str, Array]):
    """Named arrays with a common capacity; a column is made when it is first seen, with the shape and type it has then."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    def ensure(self, rows: int) -> None:
        """Make room for `rows` rows; the present ones stay."""
        if rows <= self.capacity:
            return
        old = self.capacity
        self.capacity = max(rows, 2 * old)
        for name, array in self.items():
            grown = np.empty((self.capacity, *array.shape[1:]), array.dtype)
            grown[:old] = array
            self[name] = grown

    def column(self, name: str, *, shape: tuple[int, ...] = (), dtype: DTypeLike) -> Array:
        """Return the column, made anew if it is not there or was made for something else."""
        array = self.get(name)
        if array is None or array.shape[1:] != shape or array.dtype != dtype:
            array = self[name] = np.empty((self.capacity, *shape), dtype)
        return array

    def put(self, name: str, values: Array, start: int, rows: NDArray[np.int64] | None = None) -> None:
        """Write values[rows] (all of them: None) from row `start` on. Row 0 decides the column's type; later rows are cast to it."""
        column = self.get(name)
        if column is None or start == 0:
            column = self.column(name, shape=values.shape[1:], dtype=values.dtype)
        if rows is None:
            column[start : start + len(values)] = values
        elif column.dtype == values.dtype:
            values.take(rows, 0, column[start : start + len(rows)], "clip")
        else:
            column[start : start + len(rows)] = values[rows]

    def move(self, rows: NDArray[np.int64]) -> None:
        """Keep only `rows`, in front."""
        for array in self.values():
            array[: len(rows)] = array[rows]


# --------------------------------------------------------------------------------------------------------------------
# The states of the environments, as a timestep has them: for central critics and mixers.


class EnvironmentStates(NamedTuple):
    """now [E, *shape]. final [k, *shape]: of the episodes that ended in this step, in the environments `over` int[k], rising."""

    now: Array
    over: NDArray[np.int32]
    final: Array | None

    @staticmethod
    def of(timestep: Timestep, env_id: str) -> EnvironmentStates:
        """Raises EnvError if an environment whose spec has a state leaves it out."""
        over = timestep.finished.environment
        if timestep.state is None or (len(over) and timestep.final_state is None):
            left_out = "state" if timestep.state is None else "final_state"
            raise EnvError(f"{env_id} has a state in its spec, and a timestep has no `{left_out}`; it must have one.")
        return EnvironmentStates(timestep.state, over, timestep.final_state)

    def after(self, environments: NDArray[np.int64]) -> Array:
        """Return [n, *shape] of the last moment of decisions that close now: the final one, where the whole episode ended."""
        out: Array = self.now[environments]
        if self.final is not None and len(self.over):
            place = np.minimum(np.searchsorted(self.over, environments), len(self.over) - 1)
            ended = self.over[place] == environments
            out[ended] = self.final[place[ended]]
        return out


_FIRST_CAPACITY = 1 << 14


RecurrentMemory: TypeAlias = Callable[[int, NDArray[np.int64]], NDArray[np.float32] | None]
"""(player, slots) -> the recurrent memory [n, …] that the last decisions of these slots started from; None: there is none."""


class TrajectoryWriter:
    """Trajectories of one learner. Buffers grow by doubling and are kept between requests.

    Slots of player p are environment × A_p + agent. After `begin`, per timestep: `settle`, and, once there is an answer, `append`;
    at the end `flush`. states: the environments' now, to be set for each timestep of requests that record them.
    """

    def __init__(self, spec: EnvSpec, clocks: EnvironmentCounters) -> None:
        num_envs = len(clocks.episode)
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._first_agent = [sum(self._agents[:p]) for p in range(spec.num_players)]
        slots = [num_envs * a for a in self._agents]
        self._clocks = clocks
        self._rows = GrowingColumns(_FIRST_CAPACITY)
        self._segments = GrowingColumns(_FIRST_CAPACITY)
        self._bootstrap = GrowingColumns(_FIRST_CAPACITY)  # in the order in which segments close
        self._slots = [np.full((n, 3), -1, np.int64) for n in slots]
        self._recall: RecurrentMemory | None = None
        self._picked = np.empty(max(slots), np.int64)
        self._opened = np.empty(max(slots), np.int64)
        self._num_rows = self._num_segments = self._num_bootstrap = self._carried = self.complete = 0
        self._learner = PolicyRef(0, "")
        self._version = -1
        self._extras: dict[str, str] = {}  # name -> its column
        self.states: EnvironmentStates | None = None
        self._hold()

    def begin(
        self,
        learner: PolicyRef,
        learner_mask: NDArray[np.bool_],
        *,
        extras: Sequence[str] = (),
        states: EnvironmentStates | None = None,
        recall: RecurrentMemory | None = None,
        carry_on: bool = False,
    ) -> None:
        """Begin a request. learner_mask: bool[P, E], which environments the learner plays each player in. recall: of a learner with
        memory; asked where segments begin. states: of the timestep that it goes on
        from. Raises ScenarioError if the request carries on and records something else than the one before."""
        if carry_on and self._carried:
            before = (*self._extras, *(["state"] if "state" in self._rows else []))
            wanted = (*extras, *(["state"] if states is not None else []))
            if before != wanted:
                raise ScenarioError(f"the request before recorded the extras {before}, this one wants {wanted}.")
        self._learner, self._extras, self.states = learner, {name: "extra " + name for name in extras}, states
        self._version = -1 if learner.version is None else learner.version
        self._recall = recall
        if not carry_on:
            self._num_rows = self._num_segments = self._num_bootstrap = self._carried = 0
            self._forget_columns()
            self._rows.pop("mask", None)  # another learner's decisions may have none
            self._bootstrap.pop("mask", None)
            self._rows.pop("state", None)
            self._segments.pop("memory0", None)
            for p, agents in enumerate(self._agents):
                self._slots[p].fill(-1)
                self._slots[p][:, MINE] = np.repeat(learner_mask[p], agents)
        self.complete = 0

    def settle(self, player: int, ended: ClosedDecisions, due: ActionRequests) -> None:
        """Decisions that ended get their reward, kind of end and final observation; the reward of due slots goes to their last decisions.
        Raises EnvError if an episode began over an open decision."""
        self._reserve_tails(len(ended.slot))
        closed, paid = settle(
            ended.slot,
            ended.reward,
            ended.terminated,
            due.slot,
            due.reward,
            due.first,
            self._agents[player],
            self._num_bootstrap,
            self._tables[player],
        )
        if closed:
            rows = None if closed == len(ended.slot) else self._picked[:closed]
            self._put_tails(ended.observation, ended.mask, rows, self._state_after(player, ended.slot, rows))
        if paid < 0:
            raise EnvError(
                f"slot {-1 - paid} of player {player} began an episode while its last decision was open; an environment must "
                "list every open decision in `ended` when its episode ends."
            )
        self.complete += closed + paid

    def append(self, player: int, due: ActionRequests, act: PolicyOutput) -> tuple[int, int]:
        """Append the learner's decisions among the due ones. Returns how many were, and how many environments' clocks this was the first to
        move in this step."""
        n = len(due.slot)
        row, segment = self._num_rows, self._num_segments
        if row + n > self._rows.capacity or segment + n > self._segments.capacity:
            self._rows.ensure(row + n)
            self._segments.ensure(segment + n)
            self._hold()
        num_rows, opened, ticks = append(
            due.slot,
            self._agents[player],
            self._clocks.step,
            row,
            segment,
            player,
            self._first_agent[player],
            self._version,
            self._tables[player],
        )
        if not num_rows:
            return 0, ticks
        self._put_rows(player, due, act, rows=None if num_rows == n else self._picked[:num_rows])
        if self.states is not None:
            slots = due.slot if num_rows == n else due.slot[self._picked[:num_rows]]
            self._rows.put("state", self.states.now, row, self._environments(player, slots))
        if opened and self._recall is not None:
            self._begin_memory(player, self._opened[:opened], slice(segment, segment + opened))
        self._num_rows += num_rows
        self._num_segments += opened
        return num_rows, ticks

    def flush(self, due: Sequence[ActionRequests]) -> Trajectories | None:
        """All complete decisions, by segment; None if there are none.

        Open segments are cut: their bootstrap observation is the slot's due observation. A decision that still waits for its reward off
        turn is the bootstrap observation itself, and goes into the next fragment.
        """
        if not self._num_rows:
            return None
        waiting = [np.flatnonzero(slots[:, OPEN] >= 0) for slots in self._slots]
        self._cut(due, waiting)
        is_open = np.zeros(self._num_rows, np.bool_)
        for slots, rows in zip(self._slots, waiting, strict=True):
            is_open[slots[rows, OPEN]] = True
        order, start = sort_by_segment(self._place[: self._num_rows], is_open, self._num_segments)
        lengths = np.diff(start)
        trajectories = self._gather(order, start, lengths) if len(order) else None
        self._carry(waiting, lengths)
        return trajectories

    # ------------------------------------------------------------------------------------------------ rows and segments

    def _hold(self) -> None:
        """Take hold of the columns that every learner has, after they were made anew."""
        self._forget_columns()
        self._place = self._rows.column("place", shape=(2,), dtype=np.int32)
        self._reward = self._rows.column("reward", dtype=np.float32)
        self._head = self._segments.column("head", shape=(HEAD,), dtype=np.int64)
        self._when = self._bootstrap.column("when", dtype=np.int64)
        self._tables = [
            WriterArrays(
                slots,
                self._reward,
                self._place,
                self._head,
                self._picked,
                self._opened,
                self._clocks.clock,
                self._clocks.index,
                self._when,
            ).table()
            for slots in self._slots
        ]

    def _reserve_tails(self, count: int) -> None:
        """Make room for `count` more bootstrap observations."""
        needed = self._num_bootstrap + count
        if needed > self._bootstrap.capacity:
            self._bootstrap.ensure(needed)
            self._hold()

    def _put_rows(self, player: int, due: ActionRequests, act: PolicyOutput, *, rows: NDArray[np.int64] | None) -> None:
        start, written = self._num_rows, [due.observation, act.action, act.logp]
        if due.mask is not None:
            written.append(due.mask)
        for name in self._extras:
            if name not in act.extras:
                raise PolicyError(
                    f"the request records the extra {name!r}, and policy {self._learner.policy!r} gave only {sorted(act.extras)}; "
                    "a policy with extras declares them in its `extras`."
                )
            written.append(act.extras[name])
        columns = self._columns[player]
        if start and rows is None and len(columns) == len(written):
            end = start + len(due.slot)
            for column, values in zip(columns, written, strict=True):
                column[start:end] = values
            return
        names = ["observation", "action", "logp", *(() if due.mask is None else ("mask",)), *self._extras.values()]
        for name, values in zip(names, written, strict=True):
            self._rows.put(name, values, start, rows)
        if not start:
            self._forget_columns()
        self._columns[player] = [self._rows[name] for name in names]

    def _forget_columns(self) -> None:
        """Forget which columns hold rows: they are replaced, or may be."""
        self._columns: list[list[Array]] = [[] for _ in self._slots]

    def _begin_memory(self, player: int, slots: NDArray[np.int64], segments: Any) -> None:
        assert self._recall is not None
        memory = self._recall(player, slots)
        if memory is not None:
            self._segments.column("memory0", shape=memory.shape[1:], dtype=np.float32)[segments] = memory

    def _environments(self, player: int, slots: NDArray[np.int32]) -> NDArray[np.int64]:
        return slots.astype(np.int64) // self._agents[player]

    def _state_after(self, player: int, slots: NDArray[np.int32], rows: NDArray[np.int64] | None) -> Array | None:
        """Return the state of decisions that closed: of the rows `rows` (None: all)."""
        if self.states is None:
            return None
        return self.states.after(self._environments(player, slots if rows is None else slots[rows]))

    def _put_tails(
        self,
        observation: Array,
        mask: Array | None,
        rows: NDArray[np.int64] | None,
        state: Array | None,
    ) -> None:
        """observation[rows] (all of them: None), and their masks, are the next bootstrap observations, for which there is room; state
        [n, …]: one for each of those."""
        start, bootstrap = self._num_bootstrap, self._bootstrap
        end = self._num_bootstrap = start + (len(observation) if rows is None else len(rows))
        bootstrap.put("observation", observation, start, rows)
        legal = self._rows.get("mask")
        if legal is not None:
            target = bootstrap.column("mask", shape=legal.shape[1:], dtype=np.bool_)
            target[start:end] = True if mask is None else mask if rows is None else mask[rows]
        if state is not None:
            bootstrap.put("state", state, start)

    # ------------------------------------------------------------------------------------------------ fragments

    def _cut(self, due: Sequence[ActionRequests], waiting: Sequence[NDArray[np.int64]]) -> None:
        for player, now in enumerate(due):
            slots = self._slots[player]
            rows = np.flatnonzero(slots[now.slot, SEGMENT] >= 0)
            if len(rows):  # another player's observations may have another shape
                environments = self._environments(player, now.slot[rows])
                self._number_tails(slots[now.slot[rows], SEGMENT], self._clocks.clock[environments, TIME])
                state = None if self.states is None else self.states.now[environments]
                selected = None if len(rows) == len(now.slot) else rows
                self._put_tails(now.observation, now.mask, selected, state)
                slots[now.slot[rows], SEGMENT] = -1
            off_turn = slots[waiting[player]]
            if len(off_turn):
                own = off_turn[:, OPEN]
                self._number_tails(off_turn[:, SEGMENT], self._place[own, T])
                state = None if self.states is None else self._rows["state"][own]
                self._put_tails(self._rows["observation"], self._rows.get("mask"), own, state)

    def _number_tails(self, segments: NDArray[np.int64], when: NDArray[np.integer]) -> None:
        """The bootstrap observations that are put next belong to these segments, and were made in these steps."""
        self._reserve_tails(len(segments))
        rows = np.arange(self._num_bootstrap, self._num_bootstrap + len(segments))
        self._head[segments, ENDING] = rows
        self._when[rows] = when

    def _gather(self, order: NDArray[np.int64], start: NDArray[np.int64], lengths: NDArray[np.int64]) -> Trajectories:
        rows, bootstrap = self._rows, self._bootstrap
        segments = np.flatnonzero(lengths)
        masked = "mask" in rows
        head = self._head[segments]
        ending = head[:, ENDING]
        high = np.full(len(segments), self._version, np.int32)
        alone = (segments < self._carried) & (lengths[segments] <= 1)
        high[alone] = head[alone, VERSION]
        memory0 = self._segments.get("memory0")
        t, starts = self._place[:, T].take(order), np.concatenate([start[segments], start[-1:]])
        dt = np.append(t[1:], 0) - t
        dt[starts[1:] - 1] = self._when.take(ending) - t[starts[1:] - 1]
        return Trajectories(
            start=starts,
            observation=rows["observation"].take(order, axis=0),
            action=rows["action"].take(order, axis=0),
            logp=rows["logp"].take(order),
            reward=self._reward.take(order),
            mask=rows["mask"].take(order, axis=0) if masked else None,
            t=t,
            dt=dt.astype(np.int32),
            tail=head[:, TAIL].astype(np.int8),
            bootstrap_observation=bootstrap["observation"].take(ending, axis=0),
            bootstrap_mask=bootstrap["mask"].take(ending, axis=0) if masked else None,
            agent=head[:, AGENT].astype(np.int16),
            seat=head[:, SEAT].astype(np.int8),
            episode=head[:, EPISODE].copy(),
            version_lo=head[:, VERSION].astype(np.int32),
            version_hi=high,
            policy=self._learner.policy,
            memory0=None if memory0 is None else memory0.take(segments, axis=0),
            state=None if self.states is None else rows["state"].take(order, axis=0),
            bootstrap_state=None if self.states is None else bootstrap["state"].take(ending, axis=0),
            extras={name: rows[column].take(order, axis=0) for name, column in self._extras.items()},
        )

    def _carry(self, waiting: Sequence[NDArray[np.int64]], lengths: NDArray[np.int64]) -> None:
        """Rows that wait for their reward become the first rows of the next fragment's first segments."""
        counts = np.cumsum([0, *map(len, waiting)])
        before, carried = self._carried, int(counts[-1])
        self._num_rows = self._num_segments = self._carried = carried
        self._num_bootstrap = 0
        if not carried:
            return
        old = np.concatenate([slots[rows] for slots, rows in zip(self._slots, waiting, strict=True)])
        # A segment's version is that of its first row; the carried row may have been acted by newer weights.
        segment = old[:, SEGMENT]
        newer = (segment >= before) | (lengths[segment] > 0)
        self._rows.move(old[:, OPEN])
        self._segments.move(segment)
        self._place[:carried, SEGMENT_OF] = np.arange(carried)
        self._head[:carried, VERSION][newer] = self._version
        self._head[:carried, TAIL] = SegmentEnd.CUT
        for player, slots in enumerate(waiting):
            fresh = np.arange(counts[player], counts[player + 1])
            self._slots[player][slots, OPEN] = fresh
            self._slots[player][slots, SEGMENT] = fresh
            if len(slots) and self._recall is not None:
                self._begin_memory(player, slots, fresh)
