"""The decisions that are cloned, as a network takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from numpy.typing import NDArray
from torch import Tensor

from ludus import seeding
from ludus.algorithms.bc.checks import check_decisions
from ludus.algorithms.bc.models import Model
from ludus.algorithms.spaces import one_space
from ludus.algorithms.states import StateTable
from ludus.data.parquet import Recorded
from ludus.data.parquet_columns import select
from ludus.envs.choices import Choices
from ludus.errors import ConfigError, DataError
from ludus.types import Array, EnvSpec

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Demonstrations:
    """N decisions in S segments. observation, action, mask: as in `Trajectories`. states: of an enumerated game, whose observations are
    ids. start int64[S + 1], episode int64[S], logp float32[N] of who decided."""

    observation: Array
    action: Array
    mask: NDArray[np.bool_] | None
    logp: NDArray[np.float32]
    start: Index
    episode: Index
    states: StateTable | None

    def rows(self, segments: Index) -> Index:
        """The rows of some segments, one after the other."""
        length = np.diff(self.start)[segments]
        before = np.cumsum(length) - length
        return np.repeat(self.start[segments] - before, length) + np.arange(int(length.sum()))

    def seen(self, rows: Index) -> Array:
        """Observations [n, …] as policies are shown them."""
        if self.states is not None:
            x: Array = self.states.x.numpy()[self.observation[rows] - self.states.base]
            return x
        return self.observation[rows]

    def tensors(self, rows: Index, model: Model) -> tuple[Tensor, Tensor, Tensor | None]:
        """(x, action, mask) of rows."""
        action = self.action[rows]
        mask = None
        if self.states is not None:
            mask = self.states.mask[self.observation[rows] - self.states.base]
        elif self.mask is not None:
            mask = self.mask[rows]
        return (
            model.rows(self.seen(rows)),
            torch.from_numpy(action.astype(np.int64) if model.choices else action),
            None if mask is None else torch.from_numpy(mask),
        )


def demonstrations(
    recorded: Recorded, env: EnvSpec, *, players: Sequence[int] = (), policies: Sequence[str] = ()
) -> tuple[Demonstrations, tuple[int, ...]]:
    """The decisions of these players and policies (default: of all), and the players. Raises ConfigError for players or policies that
    the file does not have, or another environment than it was recorded in; DataError for decisions that do not fit its spaces."""
    origin = recorded.origin
    if origin.env != env.id:
        raise ConfigError(
            f"the trajectories are of {origin.env!r}; the scenario plays {env.id!r}. Name one that plays theirs."
        )
    seats = tuple(dict.fromkeys(players)) or origin.seats
    if wrong := [p for p in seats if p not in origin.seats]:
        raise ConfigError(f"players {wrong} were given; the file has decisions of players {list(origin.seats)}.")
    known = [piece.policy for piece in recorded.trajectories]
    if unknown := [name for name in policies if name not in known]:
        raise ConfigError(f"policies {unknown} were given; the file has decisions of {', '.join(known)}.")
    pieces = [
        select(piece, np.flatnonzero(np.isin(piece.seat, seats)))
        for piece in recorded.trajectories
        if not policies or piece.policy in policies
    ]
    check_decisions(pieces, origin, env, seats)
    states = None if env.enumeration is None else StateTable.of(env.enumeration, seats)
    shift = np.cumsum([0, *(piece.num_rows for piece in pieces)])
    starts = [piece.start[:-1] + at for piece, at in zip(pieces, shift, strict=False)]
    found = Demonstrations(
        observation=np.concatenate([piece.observation for piece in pieces]),
        action=np.concatenate([piece.action for piece in pieces]),
        mask=None
        if pieces[0].mask is None
        else np.concatenate([piece.mask for piece in pieces if piece.mask is not None]),
        logp=np.concatenate([piece.logp for piece in pieces]),
        start=np.concatenate([*starts, shift[-1:]]),
        episode=np.concatenate([piece.episode for piece in pieces]),
        states=states,
    )
    if not len(found.logp):
        raise DataError(f"there are no decisions of players {list(seats)} to learn from; record some.")
    _check_legal(found, one_space(env, seats, algorithm="behaviour cloning")[1])
    return found, seats


def _check_legal(found: Demonstrations, space: Space[Any]) -> None:
    """space: of the actions, as the environment has them."""
    mask, choices = found.mask if found.states is None else found.states.mask, Choices.of(space)
    if mask is None or choices is None:
        return
    rows = np.arange(len(found.action)) if found.states is None else found.observation - found.states.base
    action = found.action.reshape(len(found.action), -1)
    inside = (action >= 0) & (action < choices.counts)
    legal = inside & choices.legal(mask, np.where(inside, action, 0), rows)
    if not legal.all():
        raise DataError(
            f"{int((~legal).any(axis=1).sum())} of the actions are not legal where they were taken; the file was changed."
        )


def split(found: Demonstrations, *, share: float, seed: int) -> tuple[Index, Index]:
    """(segments to learn from, segments held out): of whole episodes, `share` of them, at least one if share > 0. Raises ConfigError if
    nothing would be left to learn from."""
    episodes = np.unique(found.episode)
    count = 0 if share == 0 else max(1, round(share * len(episodes)))
    if count >= len(episodes):
        raise ConfigError(
            f"{len(episodes)} episode{' is' if len(episodes) == 1 else 's are'} there, and {count} would be held out; record more, or give "
            "held_out=0."
        )
    out = np.random.default_rng(seeding.key(seed, "held out")).permutation(episodes)[:count]
    held = np.isin(found.episode, out)
    return np.flatnonzero(~held), np.flatnonzero(held)
