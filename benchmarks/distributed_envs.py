"""Environments whose steps wait instead of computing, as for a simulator or a network: two cores can carry many workers of them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ludus.envs.registry import make_env
from ludus.types import Array, Timestep


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
