"""The buffers in which a vector of OpenSpiel games publishes its timesteps, two sides in turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyspiel
from numpy.typing import NDArray

from ludus.envs import openspiel_kernels as kernels
from ludus.envs.openspiel_state import Game, Tensor
from ludus.errors import EnvError
from ludus.types import Array, Due, Ended, Finished

__all__ = ["Rows"]


class Rows:
    """Lays out what E environments of one game publish; `book` is what they remember between timesteps.

    side: the one of two sets of buffers that holds the last timestep. Decisions are found by *place*, see `openspiel_kernels`.
    """

    def __init__(self, id: str, game: Game, tensor: Tensor, num_envs: int) -> None:
        players, actions, size = game.players, game.actions, tensor.size
        rows = num_envs * players if game.simultaneous else num_envs
        self.side = 0
        self.book = kernels.book(num_envs, players)
        self._id = id
        self._game = game
        self._tensor = tensor
        self._outs = [kernels.out(num_envs, players=players, actions=actions, rows=rows) for _ in range(2)]
        self._observation = np.zeros((2, rows, size), np.float32)
        self._bytes = [memoryview(side).cast("B") for side in self._observation]  # type: ignore[arg-type]
        self._row = [slice(4 * size * i, 4 * size * (i + 1)) for i in range(rows)]
        self._moves = np.zeros((num_envs, players if game.simultaneous else 1), np.int64)
        self._column = _bytes if actions < 256 else _integers
        self._nothing = np.empty((0, players))
        self._final = np.zeros((num_envs, size), np.float32)
        self._true = np.ones(num_envs, np.bool_)
        self._allowed = np.ones((num_envs, actions), np.bool_)

    def forget(self) -> None:
        """Forget all episodes, before new ones begin."""
        for column in self.book:
            column.fill(0)

    def take(self, actions: tuple[Array, ...], due: tuple[Due, ...], places: int) -> NDArray[np.int64]:
        """The actions for the last timestep's `due`, checked: int64[places, 1], or [places, P] if several may move at once, with
        INVALID_ACTION for those who do not. Raises EnvError if they do not fit, or one is illegal."""
        moves = self._moves[:places]
        simultaneous = self._game.simultaneous
        if simultaneous:
            moves.fill(pyspiel.INVALID_ACTION)
        out, row = self._outs[self.side], 0
        for p, rows in enumerate(due):
            n = len(rows.slot)
            given = np.asarray(actions[p])
            if given.shape != (n,) or (n and given.dtype.kind not in "iu"):
                raise EnvError(
                    f"player {p} was given actions of shape {given.shape} for {n} due decisions of {self._id}, of type "
                    f"{given.dtype}; one integer each."
                )
            wrong = kernels.take(given, row, out.mask, out.place, moves, p if simultaneous else 0) if n else -1
            if wrong >= 0:
                assert rows.mask is not None
                raise EnvError(
                    f"player {p} chose the illegal action {int(given[wrong])} in slot {int(rows.slot[wrong])} of {self._id}; "
                    f"legal: {np.flatnonzero(rows.mask[wrong]).tolist()}."
                )
            row += n
        return moves

    def close(
        self, ended: Sequence[int], returns: Sequence[Sequence[float]], clock: int
    ) -> tuple[tuple[Ended, ...], Finished]:
        """Close the episodes of the environments `ended`, rising, at step `clock`."""
        out = self._outs[self.side]
        environment, total = self.columns(ended, returns)
        kernels.close(environment, total, clock, self.book, out)
        closed = tuple(
            self.ended(out.closed_slot[p, :n], out.closed_reward[p, :n]) for p, n in enumerate(out.closed.tolist())
        )
        return closed, self.finished(environment, total, out.length[: len(ended)])

    def due(
        self,
        found: tuple[NDArray[np.int32], Sequence[int], Sequence[Any], Sequence[Sequence[int]]],
        environment: NDArray[np.int32],
        earned: Sequence[Sequence[float]] | None,
    ) -> tuple[Due, ...]:
        """The decisions that are due. found: place int32[≥ n], player, state and legal actions of each of n, by rising place.
        environment: number of the environment at each place. earned [places][P]: None if the game pays at the end only."""
        place, who, states, legal = found
        out, observation, into = self._outs[self.side], self._observation[self.side], self._bytes[self.side]
        flat: list[int] = []
        for actions in legal:
            flat += actions
        now = np.array(earned, np.float64) if earned else self._nothing
        column = self._column
        wrong = kernels.arrange(
            place, environment, _bytes(who), column(flat), column(map(len, legal)), now, self.book, out
        )
        if wrong >= 0:
            raise EnvError(
                f"{self._id} allows player {who[wrong]} the actions {legal[wrong]}; it has only {self._game.actions}."
            )
        set_from, memory, row = self._tensor.set_from, self._tensor.memory, self._row
        for state, player, r in zip(states, who, out.row.tolist(), strict=False):
            set_from(state, player)
            into[row[r]] = memory
        start = out.start.tolist()
        rows = [slice(begin, end) for begin, end in pairwise(start)]
        return tuple(Due(out.slot[r], observation[r], out.mask[r], out.reward[r], out.first[r]) for r in rows)

    def ended(self, slot: NDArray[np.int32], reward: NDArray[np.float32]) -> Ended:
        """Terminated decisions, with zeros for the final observations that OpenSpiel does not have."""
        n = len(slot)
        return Ended(slot, reward, self._true[:n], self._final[:n], self._allowed[:n])

    def finished(
        self, environment: NDArray[np.int32], returns: NDArray[np.float64], length: NDArray[np.int32]
    ) -> Finished:
        """Terminated episodes."""
        return Finished(environment, returns, self._true[: len(environment)], length)

    def columns(
        self, ended: Sequence[int], returns: Sequence[Sequence[float]]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Lists of environments and of their returns as arrays, int32[k] and float64[k, P]."""
        return np.array(ended, np.int32), np.array(returns, np.float64).reshape(-1, self._game.players)


def _bytes(values: Iterable[int]) -> NDArray[np.uint8]:
    """Numbers below 256 as an array; three times as fast as NumPy's way."""
    return np.frombuffer(bytes(values), np.uint8)


def _integers(values: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(values), np.int64)
