"""Vectors of games over a compiled tree: the fast `VectorEnv`."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.envs.game_tree import GameTree
from ludus.envs.tree import kernels
from ludus.envs.tree.walk import CHANCE, TERMINAL
from ludus.errors import EnvError
from ludus.types import Array, Due, Ended, Finished, Timestep

__all__ = ["TreeVectorEnv"]


class TreeVectorEnv:
    """E games of one tree (`ludus.envs.base.VectorEnv`). Observations are int32 ids of the enumeration, masks are None.

    One agent per player, so slots are environment numbers. Chance event c of episode k of environment e is decided by
    `ludus.seeding.uniform` of a key made from (seeds[e], k) and the counter c, and so by nothing else in the vector.
    """

    def __init__(self, tree: GameTree, num_envs: int) -> None:
        if num_envs < 1:
            raise EnvError(f"num_envs is {num_envs}; expected at least 1.")
        _refuse_empty_episodes(tree)
        self.tree = tree
        self.spec = tree.spec
        self.num_envs = num_envs
        self._players = tree.num_players
        self._board = kernels.board(tree.arrays)
        self._games = kernels.games(num_envs, self._players)
        self._outs = tuple(kernels.out(num_envs, self._players) for _ in range(2))
        self._current = 0
        self._started = False
        self._action = np.zeros((self._players, num_envs), np.int64)
        self._none = np.full(num_envs, -1, np.int32)
        self._true = np.ones(num_envs, np.bool_)

    # ---------------------------------------------------------------------------------- VectorEnv

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`. Raises EnvError unless there is one seed per environment and no quota is negative."""
        seeds = np.asarray(seeds, np.uint64)
        if seeds.shape != (self.num_envs,):
            raise EnvError(f"seeds have shape {seeds.shape}; expected ({self.num_envs},), one per environment.")
        quota = np.asarray(-1 if episodes is None else episodes)
        if quota.shape not in ((), (self.num_envs,)) or quota.dtype.kind not in "iu":
            raise EnvError(
                f"episodes is {episodes!r}; expected a number, one per environment ({self.num_envs}), or None."
            )
        if episodes is not None and quota.min() < 0:
            raise EnvError(f"episodes has {quota.min()}; expected none below 0. None plays for ever.")
        self._games.seed[:] = seeds
        self._games.quota[:] = quota
        self._started = True
        kernels.start(self._board, self._games, self._next_buffers())
        return self._timestep()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. An illegal action raises EnvError and leaves every game where it was."""
        if not self._started:
            raise EnvError(f"{self.spec.id} was stepped before its first reset.")
        last = self._outs[self._current]
        self._take(actions, last)
        player, row = kernels.move(self._board, self._games, last, self._action)
        if player >= 0:
            raise self._illegal(int(player), int(row), last)
        kernels.advance(self._board, self._games, self._next_buffers())
        return self._timestep()

    def snapshot(self) -> bytes:
        """The games and the last timestep as a NumPy archive; equal games give equal bytes."""
        if not self._started:
            raise EnvError(f"{self.spec.id} has no state to snapshot before its first reset.")
        last = self._outs[self._current]
        fields = {f"games.{k}": v for k, v in self._games._asdict().items() if k != "landing"}
        fields |= {f"out.{k}": _tidy(k, v, last.rows) for k, v in last._asdict().items()}
        file = io.BytesIO()
        np.savez(file, tree=self._fingerprint(), **fields)
        return file.getvalue()

    def restore(self, snapshot: bytes) -> Timestep:
        """See `VectorEnv.restore`. Raises EnvError on bytes that are no snapshot of an equal environment."""
        try:
            with np.load(io.BytesIO(snapshot), allow_pickle=False) as file:
                fields = dict(file)
        except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise EnvError(f"this is no snapshot of {self.spec.id}: {error}") from error
        if not np.array_equal(fields.get("tree", ()), self._fingerprint()):
            raise EnvError(
                f"this snapshot is not of {self.num_envs} environments of {self.spec.id} as compiled here; restore it into an "
                "environment made with the same game, number of environments and version of OpenSpiel."
            )
        for prefix, target in (("games", self._games), ("out", self._next_buffers())):
            for name, array in target._asdict().items():
                if name != "landing":
                    array[...] = fields[f"{prefix}.{name}"]
        self._started = True
        return self._timestep()

    def close(self) -> None:
        """Nothing to release."""

    # ---------------------------------------------------------------------------------- inside

    def _next_buffers(self) -> kernels.Out:
        self._current = 1 - self._current
        return self._outs[self._current]

    def _take(self, actions: tuple[Array, ...], last: kernels.Out) -> None:
        """Copy the actions into one array, one row per player."""
        if len(actions) != self._players:
            raise EnvError(f"actions of {len(actions)} players were given; {self.spec.id} has {self._players}.")
        for p, n in enumerate(last.rows[0].tolist()):
            given = np.asarray(actions[p])
            if given.shape != (n,) or (n and given.dtype.kind not in "iu"):
                raise EnvError(
                    f"actions of player {p} have shape {given.shape} and type {given.dtype}; expected ({n},) integers, one per "
                    "row of the last due decisions."
                )
            self._action[p, :n] = given

    def _illegal(self, player: int, row: int, last: kernels.Out) -> EnvError:
        state = int(last.observation[player, row])
        enumeration = self.spec.enumeration
        assert enumeration is not None
        slot = int(last.slot[player, row])
        return EnvError(
            f"illegal action {int(self._action[player, row])} of player {player} in environment {slot} (slot {slot}) of "
            f"{self.spec.id} at {enumeration.key[state]!r}; legal are {np.flatnonzero(enumeration.mask[state]).tolist()}."
        )

    def _timestep(self) -> Timestep:
        out = self._outs[self._current]
        due_count, ended_count, (k, *_) = out.rows.tolist()
        due = tuple(
            Due(
                slot=out.slot[p, :n],
                observation=out.observation[p, :n],
                mask=None,
                reward=out.reward[p, :n],
                first=out.first[p, :n],
            )
            for p, n in enumerate(due_count)
        )
        ended = tuple(
            Ended(
                slot=out.ended_slot[p, :n],
                reward=out.ended_reward[p, :n],
                terminated=self._true[:n],
                observation=self._none[:n],
            )
            for p, n in enumerate(ended_count)
        )
        finished = Finished(
            environment=out.environment[:k], returns=out.returns[:k], terminated=self._true[:k], length=out.length[:k]
        )
        return Timestep(due=due, ended=ended, finished=finished)

    def _fingerprint(self) -> NDArray[np.int64]:
        """What two environments must share to share snapshots: the number of games, and the tree."""
        crc = 0
        for array in (self._board.node, self._board.cumulative, self._board.rank, self._board.returns):
            crc = zlib.crc32(np.ascontiguousarray(array).data, crc)
        return np.array([1, self.num_envs, crc], np.int64)


def _tidy(name: str, array: Any, rows: NDArray[np.int64]) -> Any:
    """A copy with zeros beyond the rows that hold, where old timesteps have left theirs."""
    if name == "rows":
        return array
    tidy = np.zeros_like(array)
    if array.ndim == 1 or name == "returns":
        tidy[: rows[2, 0]] = array[: rows[2, 0]]
        return tidy
    for p, n in enumerate(rows[1 if name.startswith("ended") else 0]):
        tidy[p, :n] = array[p, :n]
    return tidy


def _refuse_empty_episodes(tree: GameTree) -> None:
    """Episodes without any decision would give steps in which nothing is due."""
    nodes, todo = tree.arrays.nodes, [0]
    while todo:
        x = todo.pop()
        if nodes.player[x] == TERMINAL:
            raise EnvError(
                f"{tree.spec.id} can end by chance before anyone moves, which vector environments do not support."
            )
        if nodes.player[x] == CHANCE:
            todo += range(int(nodes.child[x]), int(nodes.child[x] + nodes.degree[x]))
