"""Vectors whose environments work at their own speed: EnvPool's and ALE's with a `batch_size` below their number of environments.

actions of a batch -> send -> the batch that is ready first -> who of it is due | ended -> publish; the others list nothing
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.envs.adapters import native_kernels as kernels
from ludus.envs.adapters.native_base import Native, NativeBase, Seeds
from ludus.types import Array, Timestep

Send: TypeAlias = Callable[[Any, Array, NDArray[np.int64]], None]
"""(vector, actions [n, …], environments int64[n]) -> None."""


class AsyncNativeVectorEnv(NativeBase):
    """`VectorEnv` over a vector that answers with a batch of environments at a time, numbered by info["env_id"], and restarts an ended
    one with its next action. `native.start` gives the first batch; those outside of it are restarting.

    Environments that have played their quota go on unseen, since a batch may have to wait for them.
    """

    def __init__(self, native: Native, *, send: Send) -> None:
        super().__init__(native)
        self._send = send
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)  # the last batch

    def reset(self, seeds: Seeds, *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`. Raises EnvError if the vector cannot be made or reset."""
        seen, info = self._start(seeds, episodes)
        self._resting.fill(True)
        n = len(info["env_id"])
        acting, _ = self._take(seen, np.zeros(n), np.zeros(n, np.bool_), np.zeros(n, np.bool_), info)
        return self._until_due(acting)

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. Raises EnvError for illegal actions and for whatever the vector raises or breaks."""
        self._hand_out(actions)
        return self._until_due(self._advance())

    def _until_due(self, acting: int) -> Timestep:
        """Wait for batches until somebody must act, or everybody is idle."""
        while not acting and not self._pub.idle.all():
            acting = self._advance()
        return self._publish()

    def _advance(self) -> int:
        """Send the last batch off and take the next. How many are due."""
        try:
            self._send(self._vector, self._actions[self._ids], self._ids)
            seen, reward, terminated, truncated, info = self._vector.recv()
        except Exception as error:
            raise self._broken(f"raised {type(error).__name__}: {error}") from error
        n = len(info["env_id"])
        reward, terminated, truncated = self._columns(n, reward, terminated, truncated)
        acting, ended = self._take(seen, reward, terminated, truncated, info)
        if ended:
            self._pub.begin_next()
        return acting

    def _take(
        self, seen: Any, reward: Array, terminated: Array, truncated: Array, info: Mapping[str, Any]
    ) -> tuple[int, int]:
        """What a batch means. How many are due and how many ended."""
        pub = self._pub
        ids = self._ids = np.asarray(info["env_id"]).astype(np.int64)
        rows = np.empty((len(ids), *self._shape[1:]), self._dtype)
        self._copy(seen, rows)
        pub.observation[0][ids] = rows
        self._shown = pub.observation[0]
        legal, final_legal = pub.mask[0], pub.final_mask[0]
        if self._native.mask is not None and legal is not None and final_legal is not None:
            legal[ids] = final_legal[ids] = np.asarray(self._native.mask(seen, info), np.bool_)
            self._idle_actions(legal)
        counts: tuple[int, int] = kernels.play_some(
            ids, reward, terminated, truncated, True, pub.idle, self._resting, pub.due[0], pub.reward[0], pub.over
        )
        if counts[1]:
            done = terminated | truncated
            pub.final[0][ids[done]] = rows[done]
        return counts
