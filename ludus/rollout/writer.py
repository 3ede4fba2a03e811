"""Writes the learner's decisions as they come, interleaved in time, and gives them out as trajectories, segment by segment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.data.trajectories import Trajectories
from ludus.errors import EnvError, PolicyError, ScenarioError
from ludus.rollout import kernels
from ludus.rollout.columns import Columns
from ludus.types import Act, Array, Due, Ended, EnvSpec, PolicyRef, Tail

_FIRST_CAPACITY = 1 << 14


class TrajectoryWriter:
    """Trajectories of one learner. Buffers grow by doubling and are kept between orders.

    Slots of player p are environment × A_p + agent. After `begin`, per timestep: `settle`, and, once there is an answer, `append`;
    at the end `flush`.
    """

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._first_agent = [sum(self._agents[:p]) for p in range(spec.num_players)]
        slots = [num_envs * a for a in self._agents]
        self._rows = Columns(_FIRST_CAPACITY)
        self._segments = Columns(_FIRST_CAPACITY)
        self._slots = [np.full((n, 3), -1, np.int64) for n in slots]
        self._memory: list[NDArray[np.float32] | None] = [None] * len(slots)
        self._picked = np.empty(max(slots), np.int64)
        self._opened = np.empty(max(slots), np.int64)
        self._num_rows = self._num_segments = self._carried = self.complete = 0
        self._learner = PolicyRef(0, "")
        self._version = -1
        self._extras: tuple[str, ...] = ()
        self._hold()

    def begin(
        self, learner: PolicyRef, mine: NDArray[np.bool_], *, extras: Sequence[str] = (), carry_on: bool = False
    ) -> None:
        """A new order. mine: bool[P, E], which environments the learner plays each player in. Raises ScenarioError if the order
        carries on and records other extras than the one before."""
        if carry_on and tuple(extras) != self._extras and self._carried:
            raise ScenarioError(f"the order before recorded the extras {self._extras}, this one wants {tuple(extras)}.")
        self._learner, self._extras = learner, tuple(extras)
        self._version = -1 if learner.version is None else learner.version
        if not carry_on:
            self._num_rows = self._num_segments = self._carried = 0
            self._memory = [None] * len(self._agents)
            self._rows.arrays.pop("mask", None)  # another learner's decisions may have none
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
            self._slots[player],
            self._reward,
            self._head,
            self._picked,
            self._opened,
        )
        if closed:
            rows = None if closed == len(ended.slot) else self._picked[:closed]
            self._set_tail(self._opened[:closed], ended.observation, ended.mask, rows)
        if paid < 0:
            raise EnvError(
                f"slot {-1 - paid} of player {player} began an episode while its last decision was open; an environment must "
                "list every open decision in `ended` when its episode ends."
            )
        self.complete += closed + paid

    def append(
        self,
        player: int,
        due: Due,
        act: Act,
        *,
        clock: NDArray[np.int64],
        step: int,
        episode: NDArray[np.int64],
        memory: NDArray[np.float32] | None,
    ) -> tuple[int, int]:
        """The learner's decisions among the due ones. clock int64[E, 2], see `kernels`; step: number of this one; episode int64[E]: its
        index; memory [n, …]: what the policies started from, if recurrent. Returns how many decisions were the learner's, and how many
        environments' clocks this was the first to move in this step."""
        n = len(due.slot)
        row, segment = self._num_rows, self._num_segments
        if row + n > self._rows.capacity or segment + n > self._segments.capacity:
            self._rows.ensure(row + n)
            self._segments.ensure(segment + n)
            self._hold()
        taken, opened, ticks = kernels.append(
            due.slot,
            self._slots[player],
            self._agents[player],
            clock,
            step,
            episode,
            row,
            self._place,
            segment,
            self._head,
            player,
            self._first_agent[player],
            self._version,
            self._picked,
            self._opened,
        )
        if not taken:
            return 0, ticks
        self._put_rows(due, act, rows=None if taken == n else self._picked[:taken])
        if memory is not None:
            self._remember(player, due.slot, memory)
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
        trajectories = self._gather(order, start) if len(order) else None
        self._carry(waiting)
        return trajectories

    # ------------------------------------------------------------------------------------------------ rows and segments

    def _hold(self) -> None:
        """Take hold of the columns that every learner has, after they were made anew."""
        self._place = self._rows.column("place", shape=(2,), dtype=np.int32)
        self._reward = self._rows.column("reward", dtype=np.float32)
        self._head = self._segments.column("head", shape=(5,), dtype=np.int64)

    def _put_rows(self, due: Due, act: Act, *, rows: NDArray[np.int64] | None) -> None:
        start = self._num_rows
        put = self._rows.put
        put("observation", due.observation, start=start, rows=rows)
        put("action", act.action, start=start, rows=rows)
        put("logp", act.logp, start=start, rows=rows)
        if due.mask is not None:
            put("mask", due.mask, start=start, rows=rows)
        for name in self._extras:
            if name not in act.extras:
                raise PolicyError(
                    f"the order records the extra {name!r}, and policy {self._learner.policy!r} gave only {sorted(act.extras)}; "
                    "a policy with extras declares them in its `extras`."
                )
            put("extra " + name, act.extras[name], start=start, rows=rows)

    def _begin_memory(self, player: int, slots: NDArray[np.int64]) -> None:
        memory = self._memory[player]
        if memory is not None:
            new = slice(self._num_segments, self._num_segments + len(slots))
            self._segments.column("memory0", shape=memory.shape[1:], dtype=np.float32)[new] = memory[slots]

    def _remember(self, player: int, slots: NDArray[np.int32], memory: NDArray[np.float32]) -> None:
        kept = self._memory[player]
        if kept is None or kept.shape[1:] != memory.shape[1:]:
            kept = self._memory[player] = np.zeros((len(self._slots[player]), *memory.shape[1:]), np.float32)
        kept[slots] = memory

    def _set_tail(
        self, segments: NDArray[np.int64], observation: Array, mask: Array | None, rows: NDArray[np.int64] | None
    ) -> None:
        """observation[rows] (all of them: None), and their masks, are the tails of `segments`."""
        column = self._segments.column
        target = column("tail_observation", shape=observation.shape[1:], dtype=observation.dtype)
        target[segments] = observation if rows is None else observation[rows]
        if "mask" in self._rows:
            target = column("tail_mask", shape=self._rows["mask"].shape[1:], dtype=np.bool_)
            target[segments] = True if mask is None else mask if rows is None else mask[rows]

    # ------------------------------------------------------------------------------------------------ fragments

    def _cut(self, due: Sequence[Due], waiting: Sequence[NDArray[np.int64]]) -> None:
        for player, now in enumerate(due):
            slots = self._slots[player]
            rows = np.flatnonzero(slots[now.slot, kernels.SEGMENT] >= 0)
            if len(rows):  # another player's observations may have another shape
                self._set_tail(slots[now.slot[rows], kernels.SEGMENT], now.observation, now.mask, rows)
                slots[now.slot[rows], kernels.SEGMENT] = -1
            off_turn = slots[waiting[player]]
            if len(off_turn):
                observation, mask = self._rows["observation"], self._rows.get("mask")
                self._set_tail(off_turn[:, kernels.SEGMENT], observation, mask, off_turn[:, kernels.OPEN])

    def _gather(self, order: NDArray[np.int64], start: NDArray[np.int64]) -> Trajectories:
        rows, segments = self._rows, self._segments
        lengths = np.diff(start)
        kept = np.flatnonzero(lengths)
        masked = "mask" in rows
        head = self._head[kept]
        high = np.full(len(kept), self._version, np.int32)
        alone = (kept < self._carried) & (lengths[kept] <= 1)
        high[alone] = head[alone, kernels.VERSION]
        return Trajectories(
            start=np.concatenate([start[kept], start[-1:]]),
            observation=rows["observation"].take(order, axis=0),
            action=rows["action"].take(order, axis=0),
            logp=rows["logp"].take(order),
            reward=self._reward.take(order),
            mask=rows["mask"].take(order, axis=0) if masked else None,
            t=self._place[:, kernels.T].take(order),
            tail=head[:, kernels.TAIL].astype(np.int8),
            tail_observation=segments["tail_observation"].take(kept, axis=0),
            tail_mask=segments["tail_mask"].take(kept, axis=0) if masked else None,
            agent=head[:, kernels.AGENT].astype(np.int16),
            seat=head[:, kernels.SEAT].astype(np.int8),
            episode=head[:, kernels.EPISODE].copy(),
            version_lo=head[:, kernels.VERSION].astype(np.int32),
            version_hi=high,
            policy=self._learner.policy,
            memory0=segments["memory0"].take(kept, axis=0) if "memory0" in segments else None,
            extras={name: rows["extra " + name].take(order, axis=0) for name in self._extras},
        )

    def _carry(self, waiting: Sequence[NDArray[np.int64]]) -> None:
        """Rows that wait for their reward become the first rows of the next fragment's first segments."""
        counts = np.cumsum([0, *map(len, waiting)])
        old = np.concatenate([slots[rows] for slots, rows in zip(self._slots, waiting, strict=True)])
        segment, carried = old[:, kernels.SEGMENT], len(old)
        # A segment's version is that of its first row; the carried row may have been acted by newer weights.
        length = np.bincount(self._place[: self._num_rows, kernels.SEGMENT_OF], minlength=self._num_segments)
        newer = (segment >= self._carried) | (length[segment] > 1)
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
        self._num_rows = self._num_segments = self._carried = carried
