"""Ragged trajectories: flat columns plus segment starts; a segment is n decisions of one agent plus ONE bootstrap observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError
from ludus.core.types import Array, EnvSpec, SegmentEnd


@dataclass(frozen=True, slots=True, eq=False)
class Trajectories:
    """N rows in S segments; segment s owns rows start[s] … start[s + 1] - 1, in order of time.

    Per row: observation [N, *shape] (int32[N] ids where the environment is enumerated), action [N, …], logp float32[N] of the
    behaviour, reward float32[N] (received after the row's action, up to the agent's next decision or the end), mask bool[N, A] or None,
    t int32[N] environment step, extras as the algorithm asked for.
    Per segment: tail int8[S] (`SegmentEnd`), bootstrap_observation [S, *shape] (ids -1 where the game has none), bootstrap_mask, agent
    int16[S],
    seat int8[S], episode int64[S] (unique within a task), version_lo/hi int32[S] of the weights that acted,
    memory0 float32[S, *memory] of a recurrent policy at the segment's start, or None.
    state [N, *state], bootstrap_state [S, *state]: the environment's at each decision and at each segment's tail, where they were asked
    for; for central critics and mixers, never for a policy.
    added bool[S]: segments that nobody played, which processing has added (`ludus.replay.processing`); None: all were played.
    dt int32[N]: environment steps from a decision to what follows it, the agent's next decision or the bootstrap observation; None where
    nobody counted them.
    bootstrap_value float32[S]: what the policy that acted says that bootstrap observations are worth, 0 where the game was over; None: it
    was not asked (`RolloutRequest.bootstrap_value`).
    """

    start: NDArray[np.int64]
    observation: Array
    action: Array
    logp: NDArray[np.float32]
    reward: NDArray[np.float32]
    mask: NDArray[np.bool_] | None
    t: NDArray[np.int32]
    tail: NDArray[np.int8]
    bootstrap_observation: Array
    bootstrap_mask: NDArray[np.bool_] | None
    agent: NDArray[np.int16]
    seat: NDArray[np.int8]
    episode: NDArray[np.int64]
    version_lo: NDArray[np.int32]
    version_hi: NDArray[np.int32]
    policy: str
    memory0: NDArray[np.float32] | None = None
    state: Array | None = None
    bootstrap_state: Array | None = None
    extras: Mapping[str, Array] = field(default_factory=dict)
    added: NDArray[np.bool_] | None = None
    dt: NDArray[np.int32] | None = None
    bootstrap_value: NDArray[np.float32] | None = None

    @property
    def num_rows(self) -> int:
        return int(self.start[-1])

    @property
    def num_decisions(self) -> int:
        """Rows that were played."""
        return self.num_rows if self.added is None else int(np.diff(self.start)[~self.added].sum())

    @property
    def num_segments(self) -> int:
        return len(self.start) - 1


def join(pieces: Sequence[Trajectories]) -> Trajectories:
    """Join trajectories, at least one, all of one policy and environment. Copies, that may be written to; a single one that may be is given
    back as it is."""
    first = pieces[0]
    if len(pieces) == 1 and first.reward.flags.writeable:
        return first
    offsets = np.cumsum([0, *(piece.num_rows for piece in pieces)])
    starts = [piece.start[:-1] + offset for piece, offset in zip(pieces, offsets, strict=False)]
    columns: dict[str, Any] = {
        name: None if getattr(first, name) is None else np.concatenate([getattr(piece, name) for piece in pieces])
        for name in _COLUMNS
    }
    return Trajectories(
        start=np.concatenate([*starts, offsets[-1:]]),
        policy=first.policy,
        extras={name: np.concatenate([piece.extras[name] for piece in pieces]) for name in first.extras},
        **columns,
    )


_COLUMNS = tuple(f.name for f in fields(Trajectories) if f.name not in ("start", "policy", "extras"))
OF_ROWS = ("observation", "action", "logp", "reward", "mask", "t", "state", "dt")
"""Columns of one value for each row; others but `start`, `policy` and `extras` have one for each segment."""


def rows_of(start: NDArray[np.int64], segments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return int64[n]: the rows of some segments int64[k], one segment after the other."""
    length = np.diff(start)[segments]
    before = np.cumsum(length) - length
    return np.repeat(start[segments] - before, length) + np.arange(int(length.sum()))


def select(trajectories: Trajectories, segments: NDArray[np.int64], *, policy: str | None = None) -> Trajectories:
    """Return copies of some segments int64[k], in their order. policy: whose they are (None: as before)."""
    rows = rows_of(trajectories.start, segments)
    columns: dict[str, Any] = {}
    for name in _COLUMNS:
        column = getattr(trajectories, name)
        columns[name] = None if column is None else column[rows if name in OF_ROWS else segments]
    return Trajectories(
        start=np.concatenate([[0], np.cumsum(np.diff(trajectories.start)[segments])]),
        policy=trajectories.policy if policy is None else policy,
        extras={name: column[rows] for name, column in trajectories.extras.items()},
        **columns,
    )


# --------------------------------------------------------------------------------------------------------------------
# The joint view of a team: its agents side by side at each timestep, for algorithms that learn from all of them at
# once.


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """T timesteps of B pieces of episodes, n agents of one player; piece b owns steps start[b] … start[b + 1] - 1.

    A step is there if at least one of the agents decided at it. present bool[T, n]: who did; row int64[T, n]: which row of the
    trajectories it is (-1: none). observation [T, n, *shape], action [T, n, …], logp and reward float32[T, n], mask bool[T, n, A] or None:
    zero (False) where absent. reward[t, i] is what agent i received from its decision at t up to its own next one. episode int64[T],
    t int32[T]: which step it is. dt int32[T, n]: as that of rows, or None. tail int8[B, n] (-1: the agent has nothing in this piece),
    bootstrap_observation [B, n, *shape], bootstrap_mask bool[B, n, A] or None. when int64[B, n]: the step that the bootstrap observation is
    of; None where `dt` was not recorded.
    state [T, *state] and bootstrap_state [B, *state] (what the first of those was left with that go on after a cut; else the last of those
    that were truncated, or of all): the environment's, where it was recorded. memory0 float32[B, n, *memory] of a recurrent policy, at
    the beginning of each piece.
    """

    start: NDArray[np.int64]
    episode: NDArray[np.int64]
    t: NDArray[np.int32]
    present: NDArray[np.bool_]
    row: NDArray[np.int64]
    observation: Array
    action: Array
    logp: NDArray[np.float32]
    reward: NDArray[np.float32]
    mask: NDArray[np.bool_] | None
    tail: NDArray[np.int8]
    bootstrap_observation: Array
    bootstrap_mask: NDArray[np.bool_] | None = None
    dt: NDArray[np.int32] | None = None
    when: NDArray[np.int64] | None = None
    state: Array | None = None
    bootstrap_state: Array | None = None
    memory0: NDArray[np.float32] | None = None
    extras: dict[str, Array] = field(default_factory=dict)


def joint(trajectories: Trajectories, spec: EnvSpec, *, player: int) -> Joint:
    """Return the joint view of `player`'s team, ordered by (episode, t).

    Raises DataError if an agent has two segments in one episode (concatenated fragments), or the player has none at all.
    """
    agents = len(spec.agents_of(player))
    segments = np.flatnonzero(trajectories.seat == player)
    if not len(segments):
        raise DataError(
            f"no segment of player {player} is in these trajectories (seats: {sorted(set(trajectories.seat.tolist()))})."
        )
    _refuse_repeats(trajectories, segments)
    place = spec.agent_index[trajectories.agent[segments]]
    episode, t, row = _steps(trajectories, segments, place, agents)
    episodes, piece = np.unique(trajectories.episode[segments], return_inverse=True)
    tail = np.full((len(episodes), agents), -1, np.int8)
    tail[piece, place] = trajectories.tail[segments]
    present = row >= 0

    def spread(values: Array) -> Array:
        out = values[np.maximum(row, 0)]
        out[~present] = 0
        return out

    def spread_segments(values: Array | None) -> Array | None:
        if values is None:
            return None
        out = np.zeros((len(episodes), agents, *values.shape[1:]), values.dtype)
        out[piece, place] = values[segments]
        return out

    bootstrap_observation = spread_segments(trajectories.bootstrap_observation)
    assert bootstrap_observation is not None
    states, last = trajectories.state, trajectories.start[1:] - 1
    when = None if trajectories.dt is None else trajectories.t[last].astype(np.int64) + trajectories.dt[last]
    return Joint(
        start=np.searchsorted(episode, np.append(episodes, np.iinfo(np.int64).max)).astype(np.int64),
        episode=episode,
        t=t,
        present=present,
        row=row,
        observation=spread(trajectories.observation),
        action=spread(trajectories.action),
        logp=spread(trajectories.logp),
        reward=spread(trajectories.reward),
        mask=None if trajectories.mask is None else spread(trajectories.mask),
        tail=tail,
        bootstrap_observation=bootstrap_observation,
        bootstrap_mask=spread_segments(trajectories.bootstrap_mask),
        dt=None if trajectories.dt is None else spread(trajectories.dt),
        when=spread_segments(when),
        state=None if states is None else states[row[np.arange(len(row)), present.argmax(axis=1)]],
        bootstrap_state=_left_with(trajectories, segments, piece, len(episodes), when),
        memory0=spread_segments(trajectories.memory0),
        extras={name: spread(values) for name, values in trajectories.extras.items()},
    )


def _steps(
    trajectories: Trajectories, segments: NDArray[np.int64], place: NDArray[np.int64], agents: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Return (episode int64[T], t int32[T], row int64[T, n]) of the timesteps at which an agent decided; place: each segment's agent."""
    lengths = np.diff(trajectories.start)[segments]
    rows = np.repeat(trajectories.start[segments], lengths) + _within(lengths)
    keys = np.stack([np.repeat(trajectories.episode[segments], lengths), trajectories.t[rows].astype(np.int64)])
    steps, step_of = np.unique(keys, axis=1, return_inverse=True)
    row = np.full((steps.shape[1], agents), -1, np.int64)
    row[step_of.reshape(-1), np.repeat(place, lengths)] = rows
    return steps[0], steps[1].astype(np.int32), row


def _left_with(
    trajectories: Trajectories,
    segments: NDArray[np.int64],
    piece: NDArray[np.int64],
    pieces: int,
    when: NDArray[np.int64] | None,
) -> Array | None:
    """Return [B, *state] the state that comes after each piece: see `Joint`."""
    if trajectories.bootstrap_state is None:
        return None
    tail, until = trajectories.tail[segments], trajectories.t[trajectories.start[segments + 1] - 1].astype(np.int64)
    cut = (tail == SegmentEnd.CUT) & (when is not None)
    late = until if when is None else np.where(cut, -when[segments], until)
    order = np.lexsort((late, cut, tail != SegmentEnd.TERMINATED, piece))
    last = segments[order[np.searchsorted(piece[order], np.arange(pieces), side="right") - 1]]
    out: Array = trajectories.bootstrap_state[last]
    return out


def _within(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0 … length - 1 for each length, concatenated."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def _refuse_repeats(trajectories: Trajectories, segments: NDArray[np.int64]) -> None:
    pairs = np.stack([trajectories.episode[segments], trajectories.agent[segments].astype(np.int64)])
    if np.unique(pairs, axis=1).shape[1] < len(segments):
        raise DataError("an agent has two segments in one episode; make the joint view of each fragment by itself.")
