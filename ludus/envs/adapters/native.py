"""Vectors that step all of their environments together: Gymnasium's own, whatever their autoreset mode.

actions -> dense array -> the vector's step -> who is due | earned | ended -> (restarts of whoever ended) -> publish
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ludus.envs.adapters import native_kernels as kernels
from ludus.envs.adapters.native_base import Native, NativeBase, Seeds
from ludus.envs.adapters.single import MASK, one_agent
from ludus.envs.base import VectorEnv
from ludus.envs.spaces import observation_space
from ludus.errors import EnvError
from ludus.types import Array, Determinism, Timestep


def native_env(
    vector: gymnasium.vector.VectorEnv[Any, Any, Any],
    *,
    id: str,
    determinism: Determinism = "vector",
    max_decisions: int | None = None,
) -> VectorEnv:
    """Any `gymnasium.vector.VectorEnv` with one agent, whatever its autoreset mode. id: what to call it in messages.

    It is seeded by one number, made of all seeds. Legal actions in info["action_mask"], [E, A] (see `Choices`; not of a Box), become
    masks if a first reset, with seed 0, gives them. Raises EnvError for spaces that policies cannot play and for a vector that does not
    say its mode.
    """
    mode = vector.metadata.get("autoreset_mode")
    if mode is None:
        raise EnvError(
            f'{id} does not say when it restarts ended episodes; set metadata["autoreset_mode"] to a '
            "gymnasium.vector.AutoresetMode."
        )
    seen, action = vector.single_observation_space, vector.single_action_space
    spec = one_agent(id, seen, action, determinism=determinism, max_decisions=max_decisions)

    def start(seeds: Seeds) -> tuple[Any, Any, Mapping[str, Any]]:
        return (vector, *vector.reset(seed=joint_seed(seeds)))

    try:
        _, info = vector.reset(seed=0)
    except Exception as error:
        raise EnvError(f"{id} raised {type(error).__name__} in its first reset: {error}.") from error
    mask = (lambda _, info: info.get(MASK)) if MASK in info and not isinstance(action, Box) else None
    native = Native(spec, vector.num_envs, seen, action, AutoresetMode(mode), start, mask=mask)
    return NativeVectorEnv(native, first=vector)


def joint_seed(seeds: Seeds) -> int:
    """One seed of 31 bits made of all seeds, in order."""
    state = np.random.SeedSequence(seeds.tolist()).generate_state(1)
    return int(state[0] & 0x7FFFFFFF)


_NUMBERS = frozenset(reward + 2 * flag for reward in "fiu" for flag in "biu")
"""Kinds of the types of rewards, terminated and truncated that need no second look."""


class NativeVectorEnv(NativeBase):
    """`VectorEnv` over a vector that steps all of its environments together."""

    def reset(self, seeds: Seeds, *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`. Raises EnvError if the vector cannot be made or reset."""
        self._see(*self._start(seeds, episodes))
        np.logical_not(self._pub.idle, out=self._pub.due[0])
        return self._publish()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. Raises EnvError for illegal actions and for whatever the vector raises or breaks."""
        self._hand_out(actions)
        seen, reward, terminated, truncated, info = self._reply()
        if self._plain and type(seen) is np.ndarray and seen.shape == self._shape and seen.dtype == self._dtype:
            timestep = self._pub.publish_one(seen, reward, terminated, truncated, self._resting)
            if timestep is not None:
                self._last, self._shown = timestep, seen
                return timestep
        self._see(seen, info)
        acting, ended = self._play(reward, terminated, truncated)
        if ended:
            more = self._pub.begin_next()
            if self._rest:
                self._keep_finals(shared=acting > 0 or not len(more))
                if not acting and len(more):  # somebody must have something due
                    seen, reward, terminated, truncated, info = self._reply()
                    self._see(seen, info)
                    self._play(reward, terminated, truncated)
            else:
                self._restart(more, info)
        elif self._disabled and self._done.any():  # those that have played their quota go on unseen
            self._reset_done()
        return self._publish()

    def _reply(self) -> tuple[Any, Array, Array, Array, Mapping[str, Any]]:
        """One step of the vector: observations, rewards, terminated, truncated, info."""
        try:
            seen, reward, terminated, truncated, info = self._vector.step(self._actions)
        except Exception as error:
            raise self._broken(f"raised {type(error).__name__}: {error}") from error
        shapes = getattr(reward, "shape", None), getattr(terminated, "shape", None), getattr(truncated, "shape", None)
        if shapes != self._fits or reward.dtype.kind + terminated.dtype.kind + truncated.dtype.kind not in _NUMBERS:
            reward, terminated, truncated = self._columns(self.num_envs, reward, terminated, truncated)
        return seen, reward, terminated, truncated, info

    def _play(self, reward: Array, terminated: Array, truncated: Array) -> tuple[int, int]:
        """What a step means for each environment. How many are due, how many ended."""
        pub = self._pub
        if self._disabled:
            self._done = terminated | truncated
        counts: tuple[int, int] = kernels.play(
            reward, terminated, truncated, self._rest, pub.idle, self._resting, pub.due[0], pub.reward[0], pub.over
        )
        return counts

    def _keep_finals(self, *, shared: bool) -> None:
        """The observations of this step are the final ones of whoever ended; shared: nobody overwrites them before they are published."""
        pub = self._pub
        pub.final[0] = pub.observation[0] if shared or self._keeps else pub.observation[0].copy()
        legal = pub.mask[0]
        if legal is not None:
            pub.final_mask[0] = legal if shared else legal.copy()

    def _restart(self, more: NDArray[np.int64], info: Mapping[str, Any]) -> None:
        """New episodes within the same step."""
        pub = self._pub
        if self._native.mode is AutoresetMode.SAME_STEP:
            self._see_finals(info)
        else:
            self._keep_finals(shared=False)
            self._reset_done()
        pub.due[0][more] = True

    def _reset_done(self) -> None:
        """Of a vector that restarts nothing itself."""
        try:
            seen, info = self._vector.reset(options={"reset_mask": self._done})
        except Exception as error:
            raise self._broken(f"raised {type(error).__name__} in reset: {error}") from error
        self._see(seen, info)

    def _see_finals(self, info: Mapping[str, Any]) -> None:
        """Final observations of a vector that shows the next episodes' first ones already."""
        pub, finals = self._pub, info.get("final_obs")
        if finals is None:
            raise self._broken(
                'ended an episode without info["final_obs"]; vectors that restart in the same step give it'
            )
        if isinstance(finals, np.ndarray) and finals.dtype == object:
            _, encode = observation_space(self._native.observation, what=self.spec.id)
            for e in np.flatnonzero(pub.over).tolist():
                try:
                    pub.final[0][e] = finals[e] if encode is None else encode(finals[e])
                except (ValueError, TypeError, KeyError, IndexError) as error:
                    raise pub.error(e, f"gave a final observation that is not in its space: {error}") from error
        else:
            self._copy(finals, pub.final[0])
        legal = pub.final_mask[0]
        if legal is not None:
            told = info.get("final_info", {})
            given = told.get(MASK)
            legal[...] = True if given is None else self._laid(given, told.get(f"_{MASK}"))
