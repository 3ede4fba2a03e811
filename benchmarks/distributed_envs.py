"""Environments whose steps wait instead of computing, as for a simulator or a network: two cores can carry many workers of them.

`Waiting` goes around any other, `Steps` say, which computes next to nothing.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus.core.errors import EnvError
from ludus.core.types import ActionRequests, AgentSpec, Array, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep
from ludus.envs.registry import make_env


class Waiting:
    """Keeps the contract of `VectorEnv` around any other vector. A step of all environments takes so many milliseconds, those included
    that it computes; it sleeps for the rest, without the interpreter's lock.

    game: the id of what is played; its trees are not compiled. straggler: a file; the first process that steps and finds it missing makes
    it, and its steps take `slower` times as long from then on.
    """

    def __init__(
        self, *, num_envs: int, game: str, milliseconds: float = 10.0, straggler: str = "", slower: float = 10.0
    ) -> None:
        self._env = make_env(game, num_envs=num_envs, tree="off" if game.startswith("openspiel/") else "auto")
        self.spec = self._env.spec
        self.num_envs = num_envs
        self._seconds = milliseconds / 1e3
        self._straggler, self._slower = straggler, slower
        self._slow: bool | None = None if straggler else False

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        return self._env.reset(seeds, episodes=episodes)

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        begun = time.perf_counter()
        if self._slow is None:
            self._slow = _claimed(Path(self._straggler))
        timestep = self._env.step(actions)
        until = begun + self._seconds * (self._slower if self._slow else 1.0)
        time.sleep(max(0.0, until - time.perf_counter()))
        return timestep

    def snapshot(self) -> bytes | None:
        return self._env.snapshot()

    def restore(self, snapshot: bytes) -> Timestep:
        return self._env.restore(snapshot)

    def close(self) -> None:
        self._env.close()


def _claimed(file: Path) -> bool:
    """Whether this process is the one whose number is in the file, which the first one writes."""
    with suppress(FileExistsError), open(file, "x", encoding="ascii") as stream:
        stream.write(str(os.getpid()))
    return file.read_text(encoding="ascii") == str(os.getpid())


class Steps:
    """One player, two actions, episodes of `length` steps, all environments in step: an even step wants action 0, an odd one 1."""

    def __init__(self, *, num_envs: int, length: int = 20) -> None:
        seen = Box(-1.0, 1.0, (8,), np.float32)
        self.spec = EnvSpec(
            id="steps",
            agents=(AgentSpec("player_0", 0, seen, Discrete(2)),),
            utility_range=((0.0, float(length)),),
            symmetry=((0,),),
            max_decisions=length,
        )
        self.num_envs = num_envs
        self._length = length
        waves = np.arange(length + 1)[:, None] * np.pi / 2 ** np.arange(8)
        self._seen = np.cos(waves).astype(np.float32)  # [length + 1, 8]

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        if len(seeds) != self.num_envs:
            raise EnvError(f"{len(seeds)} seeds were given for {self.num_envs} environments; one each is needed.")
        self._left = np.full(self.num_envs, -1 if episodes is None else episodes, np.int64)
        self._begin()
        return self._timestep(np.zeros(len(self._slot), np.float32), ended=False)

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        given = np.asarray(actions[0])
        if len(given) and not 0 <= given.min() <= given.max() <= 1:
            raise EnvError(f"steps: actions are 0 and 1, unlike {given.tolist()}.")
        right = given == self._t % 2
        reward = right.astype(np.float32)
        self._return += right
        self._t += 1
        return self._timestep(reward, ended=self._t == self._length)

    def snapshot(self) -> bytes | None:
        return None

    def restore(self, snapshot: bytes) -> Timestep:
        raise EnvError("steps makes no snapshots.")

    def close(self) -> None:
        return None

    def _begin(self) -> None:
        """The next episodes of those that have one left."""
        self._t = 0
        self._slot = np.flatnonzero(self._left).astype(np.int32)
        self._return = np.zeros(len(self._slot))

    def _timestep(self, reward: NDArray[np.float32], *, ended: bool) -> Timestep:
        over = self._slot if ended else self._slot[:0]
        yes = np.ones(len(over), np.bool_)
        closed = ClosedDecisions(over, reward[: len(over)], yes, self._rows(len(over)))
        finished = FinishedEpisodes(over, self._return[: len(over), None], yes, np.full(len(over), self._t, np.int32))
        if ended:
            self._left[over] -= 1
            self._begin()
            reward = np.zeros(len(self._slot), np.float32)
        count = len(self._slot)
        due = ActionRequests(self._slot, self._rows(count), None, reward, np.full(count, self._t == 0))
        return Timestep((due,), (closed,), finished)

    def _rows(self, count: int) -> NDArray[np.float32]:
        return np.repeat(self._seen[self._t][None], count, axis=0)
