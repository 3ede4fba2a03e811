"""Writes the learner's decisions as they come, interleaved in time, and gives them out as trajectories, segment by segment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.data.trajectories import Trajectories
from ludus.errors import EnvError, PolicyError, ScenarioError
from ludus.rollout import kernels
from ludus.rollout.clocks import Clocks
from ludus.rollout.columns import Columns
from ludus.rollout.states import States
from ludus.types import Act, Array, Due, Ended, EnvSpec, PolicyRef, Tail

_FIRST_CAPACITY = 1 << 14


class TrajectoryWriter:
    """Trajectories of one learner. Buffers grow by doubling and are kept between orders.

    Slots of player p are environment × A_p + agent. After `begin`, per timestep: `settle`, and, once there is an answer, `append`;
    at the end `flush`. states: the environments' now, to be set for each timestep of orders that record them.
    """

    def __init__(self, spec: EnvSpec, clocks: Clocks) -> None:
        num_envs = len(clocks.episode)
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._first_agent = [sum(self._agents[:p]) for p in range(spec.num_players)]
        slots = [num_envs * a for a in self._agents]
        self._clocks = clocks
        self._rows = Columns(_FIRST_CAPACITY)
        self._segments = Columns(_FIRST_CAPACITY)
        self._tails = Columns(_FIRST_CAPACITY)  # in the order in which segments close
        self._slots = [np.full((n, 3), -1, np.int64) for n in slots]
        self._memory: list[NDArray[np.float32] | None] = [None] * len(slots)
        self._picked = np.empty(max(slots), np.int64)
        self._opened = np.empty(max(slots), np.int64)
        self._num_rows = self._num_segments = self._num_tails = self._carried = self.complete = 0
        self._learner = PolicyRef(0, "")
        self._version = -1
        self._extras: dict[str, str] = {}  # name -> its column
        self.states: States | None = None
        self._hold()

    def begin(
        self,
        learner: PolicyRef,
        mine: NDArray[np.bool_],
        *,
        extras: Sequence[str] = (),
        states: States | None = None,
        carry_on: bool = False,
    ) -> None:
        """A new order. mine: bool[P, E], which environments the learner plays each player in. states: of the timestep that it goes on
        from. Raises ScenarioError if the order carries on and records something else than the one before."""
        if carry_on and self._carried:
            before = (*self._extras, *(["state"] if "state" in self._rows else []))
            wanted = (*extras, *(["state"] if states is not None else []))
            if before != wanted:
                raise ScenarioError(f"the order before recorded the extras {before}, this one wants {wanted}.")
        self._learner, self._extras, self.states = learner, {name: "extra " + name for name in extras}, states
        self._version = -1 if learner.version is None else learner.version
        if not carry_on:
            self._num_rows = self._num_segments = self._num_tails = self._carried = 0
            self._memory = [None] * len(self._agents)
            self._rows.arrays.pop("mask", None)  # another learner's decisions may have none
            self._tails.arrays.pop("mask", None)
            self._rows.arrays.pop("state", None)
            self._segments.arrays.pop("memory0", None)
            for p, agents in enumerate(self._agents):
                self._slots[p].fill(-1)
                self._slots[p][:, kernels.MINE] = np.repeat(mine[p], agents)
        self.complete = 0

    def settle(self, player: int, ended: Ended, due: Due) -> None:
        """Decisions that ended get their reward, kind of end and final observation; the reward of due slots goes to their last decisions.
        Raises EnvError if an episode began over an open decision."""
        closed, paid = kernels.settle(
            ended.slot,
            ended.reward,
            ended.terminated,
            due.slot,
            due.reward,
            due.first,
            self._num_tails,
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

    def append(self, player: int, due: Due, act: Act, *, memory: NDArray[np.float32] | None) -> tuple[int, int]:
        """The learner's decisions among the due ones. memory [n, …]: what the policies started from, if recurrent. Returns how many
        decisions were the learner's, and how many environments' clocks this was the first to move in this step."""
        n = len(due.slot)
        row, segment = self._num_rows, self._num_segments
        if row + n > self._rows.capacity or segment + n > self._segments.capacity:
            self._rows.ensure(row + n)
            self._segments.ensure(segment + n)
            self._hold()
        taken, opened, ticks = kernels.append(
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
        if not taken:
            return 0, ticks
        self._put_rows(due, act, rows=None if taken == n else self._picked[:taken])
        if self.states is not None:
            slots = due.slot if taken == n else due.slot[self._picked[:taken]]
            self._rows.put("state", self.states.now, start=row, rows=self._environments(player, slots))
        if memory is not None:
            self._remember(player, due.slot, memory)
        if self._memory[player] is not None:
            self._begin_memory(player, self._opened[:opened])
        self._num_rows += taken
        self._num_segments += opened
        return taken, ticks

    def flush(self, due: Sequence[Due]) -> Trajectories | None:
        """All complete decisions, by segment; None if there are none.

        Open segments are cut: their tail is the slot's due observation. A decision that still waits for its reward off turn is the
        tail itself, and goes into the next fragment.
        """
        if not self._num_rows:
            return None
        waiting = [np.flatnonzero(slots[:, kernels.OPEN] >= 0) for slots in self._slots]
        self._cut(due, waiting)
        is_open = np.zeros(self._num_rows, np.bool_)
        for slots, rows in zip(self._slots, waiting, strict=True):
            is_open[slots[rows, kernels.OPEN]] = True
        order, start = kernels.sort_by_segment(self._place[: self._num_rows], is_open, self._num_segments)
        lengths = np.diff(start)
        trajectories = self._gather(order, start, lengths) if len(order) else None
        self._carry(waiting, lengths)
        return trajectories

    # ------------------------------------------------------------------------------------------------ rows and segments

    def _hold(self) -> None:
        """Take hold of the columns that every learner has, after they were made anew."""
        self._place = self._rows.column("place", shape=(2,), dtype=np.int32)
        self._reward = self._rows.column("reward", dtype=np.float32)
        self._head = self._segments.column("head", shape=(kernels.HEAD,), dtype=np.int64)
        self._tables = [
            kernels.Written(
                slots,
                self._reward,
                self._place,
                self._head,
                self._picked,
                self._opened,
                self._clocks.clock,
                self._clocks.index,
            ).table()
            for slots in self._slots
        ]

    def _put_rows(self, due: Due, act: Act, *, rows: NDArray[np.int64] | None) -> None:
        start, put = self._num_rows, self._rows.put
        put("observation", due.observation, start=start, rows=rows)
        put("action", act.action, start=start, rows=rows)
        put("logp", act.logp, start=start, rows=rows)
        if due.mask is not None:
            put("mask", due.mask, start=start, rows=rows)
        for name, column in self._extras.items():
            if name not in act.extras:
                raise PolicyError(
                    f"the order records the extra {name!r}, and policy {self._learner.policy!r} gave only {sorted(act.extras)}; "
                    "a policy with extras declares them in its `extras`."
                )
            put(column, act.extras[name], start=start, rows=rows)

    def _begin_memory(self, player: int, slots: NDArray[np.int64]) -> None:
        memory = self._memory[player]
        assert memory is not None
        new = slice(self._num_segments, self._num_segments + len(slots))
        self._segments.column("memory0", shape=memory.shape[1:], dtype=np.float32)[new] = memory[slots]

    def _remember(self, player: int, slots: NDArray[np.int32], memory: NDArray[np.float32]) -> None:
        kept = self._memory[player]
        if kept is None or kept.shape[1:] != memory.shape[1:]:
            kept = self._memory[player] = np.zeros((len(self._slots[player]), *memory.shape[1:]), np.float32)
        kept[slots] = memory

    def _environments(self, player: int, slots: NDArray[np.int32]) -> NDArray[np.int64]:
        return slots.astype(np.int64) // self._agents[player]

    def _state_after(self, player: int, slots: NDArray[np.int32], rows: NDArray[np.int64] | None) -> Array | None:
        """Of decisions that closed: of the rows `rows` (None: all)."""
        if self.states is None:
            return None
        return self.states.after(self._environments(player, slots if rows is None else slots[rows]))

    def _put_tails(
        self, observation: Array, mask: Array | None, rows: NDArray[np.int64] | None, state: Array | None
    ) -> None:
        """observation[rows] (all of them: None), and their masks, are the next tails; state [n, …]: one for each of those."""
        start, tails = self._num_tails, self._tails
        end = self._num_tails = start + (len(observation) if rows is None else len(rows))
        tails.ensure(end)
        tails.put("observation", observation, start=start, rows=rows)
        legal = self._rows.get("mask")
        if legal is not None:
            target = tails.column("mask", shape=legal.shape[1:], dtype=np.bool_)
            target[start:end] = True if mask is None else mask if rows is None else mask[rows]
        if state is not None:
            tails.put("state", state, start=start)

    # ------------------------------------------------------------------------------------------------ fragments

    def _cut(self, due: Sequence[Due], waiting: Sequence[NDArray[np.int64]]) -> None:
        for player, now in enumerate(due):
            slots = self._slots[player]
            rows = np.flatnonzero(slots[now.slot, kernels.SEGMENT] >= 0)
            if len(rows):  # another player's observations may have another shape
                self._number_tails(slots[now.slot[rows], kernels.SEGMENT])
                state = None if self.states is None else self.states.now[self._environments(player, now.slot[rows])]
                self._put_tails(now.observation, now.mask, None if len(rows) == len(now.slot) else rows, state)
                slots[now.slot[rows], kernels.SEGMENT] = -1
            off_turn = slots[waiting[player]]
            if len(off_turn):
                self._number_tails(off_turn[:, kernels.SEGMENT])
                own = off_turn[:, kernels.OPEN]
                state = None if self.states is None else self._rows["state"][own]
                self._put_tails(self._rows["observation"], self._rows.get("mask"), own, state)

    def _number_tails(self, segments: NDArray[np.int64]) -> None:
        """The tails that are put next belong to these segments."""
        self._head[segments, kernels.ENDING] = np.arange(self._num_tails, self._num_tails + len(segments))

    def _gather(self, order: NDArray[np.int64], start: NDArray[np.int64], lengths: NDArray[np.int64]) -> Trajectories:
        rows, tails = self._rows, self._tails
        kept = np.flatnonzero(lengths)
        masked = "mask" in rows
        head = self._head[kept]
        ending = head[:, kernels.ENDING]
        high = np.full(len(kept), self._version, np.int32)
        alone = (kept < self._carried) & (lengths[kept] <= 1)
        high[alone] = head[alone, kernels.VERSION]
        memory0 = self._segments.get("memory0")
        return Trajectories(
            start=np.concatenate([start[kept], start[-1:]]),
            observation=rows["observation"].take(order, axis=0),
            action=rows["action"].take(order, axis=0),
            logp=rows["logp"].take(order),
            reward=self._reward.take(order),
            mask=rows["mask"].take(order, axis=0) if masked else None,
            t=self._place[:, kernels.T].take(order),
            tail=head[:, kernels.TAIL].astype(np.int8),
            tail_observation=tails["observation"].take(ending, axis=0),
            tail_mask=tails["mask"].take(ending, axis=0) if masked else None,
            agent=head[:, kernels.AGENT].astype(np.int16),
            seat=head[:, kernels.SEAT].astype(np.int8),
            episode=head[:, kernels.EPISODE].copy(),
            version_lo=head[:, kernels.VERSION].astype(np.int32),
            version_hi=high,
            policy=self._learner.policy,
            memory0=None if memory0 is None else memory0.take(kept, axis=0),
            state=None if self.states is None else rows["state"].take(order, axis=0),
            tail_state=None if self.states is None else tails["state"].take(ending, axis=0),
            extras={name: rows[column].take(order, axis=0) for name, column in self._extras.items()},
        )

    def _carry(self, waiting: Sequence[NDArray[np.int64]], lengths: NDArray[np.int64]) -> None:
        """Rows that wait for their reward become the first rows of the next fragment's first segments."""
        counts = np.cumsum([0, *map(len, waiting)])
        before, carried = self._carried, int(counts[-1])
        self._num_rows = self._num_segments = self._carried = carried
        self._num_tails = 0
        if not carried:
            return
        old = np.concatenate([slots[rows] for slots, rows in zip(self._slots, waiting, strict=True)])
        # A segment's version is that of its first row; the carried row may have been acted by newer weights.
        segment = old[:, kernels.SEGMENT]
        newer = (segment >= before) | (lengths[segment] > 0)
        self._rows.move(old[:, kernels.OPEN])
        self._segments.move(segment)
        self._place[:carried, kernels.SEGMENT_OF] = np.arange(carried)
        self._head[:carried, kernels.VERSION][newer] = self._version
        self._head[:carried, kernels.TAIL] = Tail.CUT
        for player, slots in enumerate(waiting):
            fresh = np.arange(counts[player], counts[player + 1])
            self._slots[player][slots, kernels.OPEN] = fresh
            self._slots[player][slots, kernels.SEGMENT] = fresh
            memory = self._memory[player]
            if memory is not None and len(slots):
                self._segments["memory0"][fresh] = memory[slots]
