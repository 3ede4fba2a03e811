"""An environment that costs next to nothing: what is measured with it is inference."""

from __future__ import annotations

import time

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus.core.types import ActionRequests, AgentSpec, Array, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep

INPUTS, ACTIONS, LENGTH = 64, 8, 50


class Still:
    """`VectorEnv` of one player, who sees the same 64 numbers in each environment all the time; episodes have 50 steps. A step waits so
    many milliseconds."""

    def __init__(self, *, num_envs: int, milliseconds: float = 0.0) -> None:
        self.num_envs = num_envs
        self._seconds = milliseconds / 1e3
        space = Box(-np.inf, np.inf, (INPUTS,), np.float32)
        self.spec = EnvSpec(
            id="still",
            agents=(AgentSpec("agent", 0, space, Discrete(ACTIONS)),),
            utility_range=((0.0, 0.0),),
            symmetry=((0,),),
        )
        self._slot = np.arange(num_envs, dtype=np.int32)
        self._observation = np.random.default_rng(0).standard_normal((num_envs, INPUTS)).astype(np.float32)
        self._zeros, self._none = np.zeros(num_envs, np.float32), np.zeros(num_envs, np.bool_)
        self._all = np.ones(num_envs, np.bool_)
        self._time = 0
        self._left = self._slot

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Seeds change nothing."""
        self._time = 0
        self._left = np.broadcast_to(np.asarray(10**9 if episodes is None else episodes), (self.num_envs,)).astype(
            np.int32
        )
        return self._timestep(ended=False)

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """All episodes end together."""
        if self._seconds:
            time.sleep(self._seconds)
        self._time += 1
        return self._timestep(ended=self._time % LENGTH == 0)

    def snapshot(self) -> bytes | None:
        return None

    def restore(self, snapshot: bytes) -> Timestep:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def _timestep(self, *, ended: bool) -> Timestep:
        playing = np.flatnonzero(self._left > 0).astype(np.int32)
        closed = playing if ended else playing[:0]
        if ended:
            self._left[closed] -= 1
            playing = np.flatnonzero(self._left > 0).astype(np.int32)
        n, k = len(playing), len(closed)
        first = self._all if ended or self._time == 0 else self._none
        due = ActionRequests(playing, self._observation[:n], None, self._zeros[:n], first[:n])
        over = ClosedDecisions(closed, self._zeros[:k], self._all[:k], self._observation[:k])
        length = np.full(k, LENGTH, np.int32)
        return Timestep((due,), (over,), FinishedEpisodes(closed, np.zeros((k, 1)), self._all[:k], length))
