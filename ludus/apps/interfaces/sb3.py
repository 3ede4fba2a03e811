"""`stable_baselines3.common.vec_env.VecEnv` of one player, whose environments are stepped together."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from ludus.apps.interfaces.gymnasium_vector import GymnasiumVectorEnv


class SB3VecEnv(VecEnv):
    """A `GymnasiumVectorEnv` with SAME_STEP as Stable-Baselines3 takes it. `ludus.sb3_vec_env` makes it.

    The infos of an episode's end have `terminal_observation`, `TimeLimit.truncated`, and `episode` with its return, length in the player's
    decisions and time, as `Monitor` gives them. `env_method("action_masks")` is answered for sb3-contrib's MaskablePPO.

    Args:
        envs: The environments.
    """

    def __init__(self, envs: GymnasiumVectorEnv) -> None:
        self.envs = envs
        self._begun = time.monotonic()
        self._actions: Any = None
        self._return = np.zeros(envs.num_envs)
        self._length = np.zeros(envs.num_envs, np.int64)
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> NDArray[Any]:
        """Begin episodes in all environments; with the seeds of `seed`, if it was called."""
        known = self._seeds[0] is not None
        observations, infos = self.envs.reset(seed=[*self._seeds] if known else None)
        self._return.fill(0)
        self._length.fill(0)
        self.reset_infos = [{} for _ in range(self.num_envs)]
        if (masks := infos.get("action_mask")) is not None:
            self.reset_infos = [{"action_mask": mask} for mask in masks]
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Take actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Act. Returns (observations, rewards, dones, infos)."""
        observations, rewards, terminations, truncations, vector = self.envs.step(self._actions)
        dones = terminations | truncations
        self._return += rewards
        self._length += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if (illegal := vector.get("illegal_action")) is not None:
            for e in np.flatnonzero(illegal).tolist():
                infos[e]["illegal_action"] = True
        ended = np.flatnonzero(dones)
        if len(ended):
            seconds = round(time.monotonic() - self._begun, 6)
            returns = vector["final_info"]["returns"]
            for e in ended.tolist():
                infos[e] |= {
                    "terminal_observation": vector["final_obs"][e],
                    "TimeLimit.truncated": bool(truncations[e] and not terminations[e]),
                    "episode": {"r": float(self._return[e]), "l": int(self._length[e]), "t": seconds},
                    "returns": returns[e],
                }
            self._return[ended] = 0
            self._length[ended] = 0
        return observations, rewards, dones, infos

    def close(self) -> None:
        """Release the environments."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the vector, once for each environment."""
        return [getattr(self.envs, attr_name)] * len(self._places(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the vector."""
        setattr(self.envs, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Return what a method of the vector answers for each environment.

        Args:
            method_name: Such as `action_masks`.
            method_args: Its arguments.
            indices: Environments; None: all.
            method_kwargs: Its keywords.
        """
        answer = getattr(self.envs, method_name)(*method_args, **method_kwargs)
        places = self._places(indices)
        return [answer[e] for e in places] if isinstance(answer, Sequence | np.ndarray) else [answer] * len(places)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False for each environment, except for `Monitor`, whose records `step_wait` gives."""
        from stable_baselines3.common.monitor import Monitor

        return [wrapper_class is Monitor] * len(self._places(indices))

    def get_images(self) -> Sequence[Any]:
        """Return an image of each environment."""
        return self.envs.render() or []

    def _places(self, indices: int | Iterable[int] | None) -> list[int]:
        return [int(e) for e in self._get_indices(indices)]
