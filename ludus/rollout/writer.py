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

    Slots of player p are environment × A_p + agent. After `begin`, per timestep: `close` (ended), `credit` (due), and, once there
    is an answer, `append`; at the end `flush`.
    """

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._first_agent = np.cumsum([0, *self._agents])
        slots = [num_envs * a for a in self._agents]
        self._rows = Columns(_FIRST_CAPACITY)
        self._segments = Columns(_FIRST_CAPACITY)
        self._mine = [np.zeros(n, np.bool_) for n in slots]
        self._open_row = [np.full(n, -1, np.int64) for n in slots]
        self._segment = [np.full(n, -1, np.int64) for n in slots]
        self._memory: list[NDArray[np.float32] | None] = [None] * len(slots)
        self._picked = np.empty(max(slots), np.int64)
        self._opened = np.empty(max(slots), np.int64)
        self._num_rows = self._num_segments = self._carried = self.complete = 0
        self._learner = PolicyRef(0, "")
        self._extras: tuple[str, ...] = ()

    def begin(
        self, learner: PolicyRef, mine: NDArray[np.bool_], *, extras: Sequence[str] = (), carry_on: bool = False
    ) -> None:
        """A new order. mine: bool[P, E], which environments the learner plays each player in. Raises ScenarioError if the order
        carries on and records other extras than the one before."""
        if carry_on and tuple(extras) != self._extras and self._carried:
            raise ScenarioError(f"the order before recorded the extras {self._extras}, this one wants {tuple(extras)}.")
        self._learner, self._extras = learner, tuple(extras)
        if not carry_on:
            self._num_rows = self._num_segments = self._carried = 0
            self._memory = [None] * len(self._agents)
            self._rows.arrays.pop("mask", None)  # another learner's decisions may have none
            self._segments.arrays.pop("memory0", None)
            for p, agents in enumerate(self._agents):
                self._mine[p][:] = np.repeat(mine[p], agents)
                self._open_row[p].fill(-1)
                self._segment[p].fill(-1)
        self.complete = 0

    def close(self, player: int, ended: Ended) -> None:
        """Decisions that ended: reward, kind of end and final observation."""
        if not len(ended.slot) or "reward" not in self._rows:
            return
        closed = kernels.close(
            ended.slot,
            ended.reward,
            ended.terminated,
            self._open_row[player],
            self._segment[player],
            self._rows["reward"],
            self._segments["tail"],
            self._picked,
            self._opened,
        )
        if closed:
            self.complete += closed
            self._set_tail(self._opened[:closed], ended.observation, ended.mask, self._picked[:closed])

    def credit(self, player: int, due: Due) -> None:
        """The reward of due slots belongs to their last decisions. Raises EnvError if an episode began over an open one."""
        if not len(due.slot) or "reward" not in self._rows:
            return
        paid = kernels.credit(due.slot, due.reward, due.first, self._open_row[player], self._rows["reward"])
        if paid < 0:
            raise EnvError(
                f"slot {-1 - paid} of player {player} began an episode while its last decision was open; an environment must "
                "list every open decision in `ended` when its episode ends."
            )
        self.complete += paid

    def append(
        self,
        player: int,
        due: Due,
        act: Act,
        *,
        began: NDArray[np.int64],
        step: int,
        episode: NDArray[np.int64],
        memory: NDArray[np.float32] | None,
    ) -> int:
        """The learner's decisions among the due ones. began int64[E]: global step at which each episode began; episode int64[E]: its
        index; memory [n, …]: what the policies started from, if recurrent. Returns how many decisions were the learner's."""
        n = len(due.slot)
        self._rows.ensure(self._num_rows + n)
        self._segments.ensure(self._num_segments + n)
        row, segment = self._num_rows, self._num_segments
        taken, opened = kernels.append(
            due.slot,
            self._mine[player],
            self._agents[player],
            began,
            step,
            row,
            segment,
            self._open_row[player],
            self._segment[player],
            self._rows.column("segment", dtype=np.int64),
            self._rows.column("t", dtype=np.int32),
            self._picked,
            self._opened,
        )
        if not taken:
            return 0
        self._put_rows(due, act, rows=None if taken == n else self._picked[:taken])
        if memory is not None:
            self._remember(player, due.slot, memory)
        self._open(player, due.slot[self._opened[:opened]], episode=episode)
        self._num_rows += taken
        self._num_segments += opened
        return int(taken)

    def flush(self, due: Sequence[Due]) -> Trajectories | None:
        """All complete decisions, by segment; None if there are none.

        Open segments are cut: their tail is the slot's due observation. A decision that still waits for its reward off turn is the
        tail itself, and goes into the next fragment.
        """
        if not self._num_rows:
            return None
        waiting = [np.flatnonzero(rows >= 0) for rows in self._open_row]
        self._cut(due, waiting)
        is_open = np.zeros(self._num_rows, np.bool_)
        for player, slots in enumerate(waiting):
            is_open[self._open_row[player][slots]] = True
        order, start = kernels.sort_by_segment(
            self._rows.column("segment", dtype=np.int64)[: self._num_rows], is_open, self._num_segments
        )
        trajectories = self._gather(order, start) if len(order) else None
        self._carry(waiting)
        return trajectories

    # ------------------------------------------------------------------------------------------------ rows and segments

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
        self._rows.column("reward", dtype=np.float32)

    def _open(self, player: int, slots: NDArray[np.int32], *, episode: NDArray[np.int64]) -> None:
        new = slice(self._num_segments, self._num_segments + len(slots))
        column = self._segments.column
        column("tail", dtype=np.int8)[new] = Tail.CUT
        column("seat", dtype=np.int8)[new] = player
        column("agent", dtype=np.int16)[new] = self._first_agent[player] + slots % self._agents[player]
        column("episode", dtype=np.int64)[new] = episode[slots // self._agents[player]]
        column("version_lo", dtype=np.int32)[new] = self._version
        memory = self._memory[player]
        if memory is not None:
            column("memory0", shape=memory.shape[1:], dtype=np.float32)[new] = memory[slots]

    @property
    def _version(self) -> int:
        return -1 if self._learner.version is None else self._learner.version

    def _remember(self, player: int, slots: NDArray[np.int32], memory: NDArray[np.float32]) -> None:
        kept = self._memory[player]
        if kept is None or kept.shape[1:] != memory.shape[1:]:
            kept = self._memory[player] = np.zeros((len(self._mine[player]), *memory.shape[1:]), np.float32)
        kept[slots] = memory

    def _set_tail(
        self, segments: NDArray[np.int64], observation: Array, mask: Array | None, rows: NDArray[np.int64]
    ) -> None:
        column = self._segments.column
        column("tail_observation", shape=observation.shape[1:], dtype=observation.dtype)[segments] = observation[rows]
        if "mask" in self._rows:
            target = column("tail_mask", shape=self._rows["mask"].shape[1:], dtype=np.bool_)
            target[segments] = True if mask is None else mask[rows]

    # ------------------------------------------------------------------------------------------------ fragments

    def _cut(self, due: Sequence[Due], waiting: Sequence[NDArray[np.int64]]) -> None:
        for player, now in enumerate(due):
            segment = self._segment[player]
            rows = np.flatnonzero(segment[now.slot] >= 0)
            if len(rows):  # another player's observations may have another shape
                self._set_tail(segment[now.slot[rows]], now.observation, now.mask, rows)
                segment[now.slot[rows]] = -1
            slots = waiting[player]
            if len(slots):
                observation, mask = self._rows["observation"], self._rows.get("mask")
                self._set_tail(segment[slots], observation, mask, self._open_row[player][slots])

    def _gather(self, order: NDArray[np.int64], start: NDArray[np.int64]) -> Trajectories:
        rows, segments = self._rows, self._segments
        lengths = np.diff(start)
        kept = np.flatnonzero(lengths)
        masked = "mask" in rows
        high = np.full(self._num_segments, self._version, np.int32)
        alone = lengths[: self._carried] <= 1
        high[: self._carried][alone] = segments["version_lo"][: self._carried][alone]
        return Trajectories(
            start=np.concatenate([start[kept], start[-1:]]),
            observation=rows["observation"][order],
            action=rows["action"][order],
            logp=rows["logp"][order],
            reward=rows["reward"][order],
            mask=rows["mask"][order] if masked else None,
            t=rows["t"][order],
            tail=segments["tail"][kept],
            tail_observation=segments["tail_observation"][kept],
            tail_mask=segments["tail_mask"][kept] if masked else None,
            agent=segments["agent"][kept],
            seat=segments["seat"][kept],
            episode=segments["episode"][kept],
            version_lo=segments["version_lo"][kept],
            version_hi=high[kept],
            policy=self._learner.policy,
            memory0=segments["memory0"][kept] if "memory0" in segments else None,
            extras={name: rows["extra " + name][order] for name in self._extras},
        )

    def _carry(self, waiting: Sequence[NDArray[np.int64]]) -> None:
        """Rows that wait for their reward become the first rows of the next fragment's first segments."""
        counts = np.cumsum([0, *map(len, waiting)])
        open_rows = np.concatenate([self._open_row[p][slots] for p, slots in enumerate(waiting)])
        old = np.concatenate([self._segment[p][slots] for p, slots in enumerate(waiting)])
        carried = len(open_rows)
        # A segment's version_lo is that of its first row; the carried row may have been acted by newer weights.
        alone = np.bincount(
            self._rows.column("segment", dtype=np.int64)[: self._num_rows], minlength=self._num_segments
        )
        version = np.where(
            (old < self._carried) & (alone[old] == 1),
            self._segments.column("version_lo", dtype=np.int32)[old],
            self._version,
        )
        self._rows.move(open_rows)
        self._segments.move(old)
        self._rows.column("segment", dtype=np.int64)[:carried] = np.arange(carried)
        self._segments.column("version_lo", dtype=np.int32)[:carried] = version
        self._segments.column("tail", dtype=np.int8)[:carried] = Tail.CUT
        for player, slots in enumerate(waiting):
            fresh = np.arange(counts[player], counts[player + 1])
            self._open_row[player][slots] = fresh
            self._segment[player][slots] = fresh
            memory = self._memory[player]
            if memory is not None and len(slots):
                self._segments["memory0"][fresh] = memory[slots]
        self._num_rows = self._num_segments = self._carried = carried
