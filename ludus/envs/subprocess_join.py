"""One timestep of what several subprocesses wrote into their rows of a side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.envs.subprocess_memory import PlayerViews, SideViews
from ludus.envs.subprocess_process import Share
from ludus.envs.subprocess_worker import Written
from ludus.types import Array, Due, Ended, Finished, Timestep

_Pieces = list[slice]


class Joiner:
    """Joins the rows of one side. Where they lie one after the other they are given as they are; otherwise they are copied into buffers
    that are made once."""

    def __init__(self, side: SideViews, shares: Sequence[Share]) -> None:
        self._side = side
        self._shares = shares
        self._buffers: list[list[Array | None]] = [[None] * 5 for _ in side.players]

    def timestep(self, written: Sequence[Written]) -> Timestep:
        """What came of a step or a reset."""
        side = self._side
        due, ended = [], []
        for p, views in enumerate(side.players):
            rows = [players[p] for players, _ in written]
            due.append(self._due(p, views, [(n, masked) for n, masked, _, _ in rows]))
            ended.append(self._ended(views, [(n, masked) for _, _, n, masked in rows]))
        over = [slice(s.first, s.first + n) for s, (_, n) in zip(self._shares, written, strict=True) if n]
        finished = Finished(
            _copied(side.environment, over),
            _copied(side.returns, over),
            _copied(side.terminated, over),
            _copied(side.length, over),
        )
        final_state = None if side.final_state is None else _copied(side.final_state, over)
        return Timestep(tuple(due), tuple(ended), finished, side.state, final_state)

    def _due(self, player: int, views: PlayerViews, rows: Sequence[tuple[int, bool]]) -> Due:
        pieces, mask = self._pieces(views, rows, views.mask)
        columns: list[Any] = [views.slot, views.observation, mask, views.reward, views.first]
        if all(a.stop == b.start for a, b in pairwise(pieces)):
            whole = slice(pieces[0].start, pieces[-1].stop) if pieces else slice(0, 0)
            found: list[Any] = [None if c is None else c[whole] for c in columns]
        else:
            buffers = self._buffers[player]
            found = [None if c is None else _gathered(c, pieces, buffers, i) for i, c in enumerate(columns)]
        return Due(*found)

    def _ended(self, views: PlayerViews, rows: Sequence[tuple[int, bool]]) -> Ended:
        pieces, mask = self._pieces(views, rows, views.end_mask)
        return Ended(
            _copied(views.end_slot, pieces),
            _copied(views.end_reward, pieces),
            _copied(views.end_terminated, pieces),
            _copied(views.end_observation, pieces),
            None if mask is None else _copied(mask, pieces),
        )

    def _pieces(
        self, views: PlayerViews, rows: Sequence[tuple[int, bool]], mask: NDArray[np.bool_] | None
    ) -> tuple[_Pieces, NDArray[np.bool_] | None]:
        """Where the rows are, and the masks if anybody gave some: then everything is legal in the rows of those who gave none."""
        pieces = []
        some = mask is not None and any(masked for _, masked in rows)
        for share, (n, masked) in zip(self._shares, rows, strict=True):
            if n:
                base = share.first * views.agents
                pieces.append(slice(base, base + n))
                if some and not masked and mask is not None:
                    mask[base : base + n] = True
        return pieces, mask if some else None


def _copied(column: Array, pieces: _Pieces) -> Array:
    if not pieces:
        return column[:0]
    return np.concatenate([column[piece] for piece in pieces]) if len(pieces) > 1 else column[pieces[0]].copy()


def _gathered(column: Array, pieces: _Pieces, buffers: list[Array | None], at: int) -> Array:
    buffer = buffers[at]
    if buffer is None:
        buffer = buffers[at] = np.empty_like(column)
    count = sum(piece.stop - piece.start for piece in pieces)
    return np.concatenate([column[piece] for piece in pieces], out=buffer[:count])
