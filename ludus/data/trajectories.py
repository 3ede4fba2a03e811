"""Ragged trajectories: flat columns plus segment starts; a segment is n decisions of one agent plus ONE tail observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Trajectories:
    """N rows in S segments; segment s owns rows start[s] … start[s + 1] - 1, in order of time.

    Per row: observation [N, *shape] (int32[N] ids where the environment is enumerated), action [N, …], logp float32[N] of the
    behaviour, reward float32[N] (received after the row's action, up to the agent's next decision or the end), mask bool[N, A] or None,
    t int32[N] environment step, extras as the algorithm asked for.
    Per segment: tail int8[S] (`Tail`), tail_observation [S, *shape] (ids -1 where the game has none), tail_mask, agent int16[S],
    seat int8[S], episode int64[S] (unique within a task), version_lo/hi int32[S] of the weights that acted,
    memory0 float32[S, *memory] of a recurrent policy at the segment's start, or None.
    state [N, *state], tail_state [S, *state]: the environment's at each decision and at each segment's tail, where they were asked for;
    for central critics and mixers, never for a policy.
    """

    start: NDArray[np.int64]
    observation: Array
    action: Array
    logp: NDArray[np.float32]
    reward: NDArray[np.float32]
    mask: NDArray[np.bool_] | None
    t: NDArray[np.int32]
    tail: NDArray[np.int8]
    tail_observation: Array
    tail_mask: NDArray[np.bool_] | None
    agent: NDArray[np.int16]
    seat: NDArray[np.int8]
    episode: NDArray[np.int64]
    version_lo: NDArray[np.int32]
    version_hi: NDArray[np.int32]
    policy: str
    memory0: NDArray[np.float32] | None = None
    state: Array | None = None
    tail_state: Array | None = None
    extras: Mapping[str, Array] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return int(self.start[-1])

    @property
    def num_segments(self) -> int:
        return len(self.start) - 1


def join(pieces: Sequence[Trajectories]) -> Trajectories:
    """One after the other, at least one, all of one policy and environment. Copies, that may be written to; a single one that may be
    is given back as it is."""
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
