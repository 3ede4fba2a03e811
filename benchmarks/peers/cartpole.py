"""Gymnasium's native CartPole vector for peers that reset ended environments themselves."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode


class CartPoleVector(CartPoleVectorEnv):
    """As it comes, but without its automatic reset one step later: `reset(ids)`, as EnvPool has it, and Gymnasium's
    `reset(options={"reset_mask": mask})` reset some environments."""

    metadata: ClassVar = {**CartPoleVectorEnv.metadata, "autoreset_mode": AutoresetMode.DISABLED}
    autoreset_mode = AutoresetMode.DISABLED

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        out = super().step(action)
        self.prev_done.fill(False)
        return out

    def reset(
        self, ids: np.ndarray | None = None, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """All environments, or those of `ids` (observations of these only), or those of the mask (observations of all)."""
        some = ids if ids is not None else (options or {}).get("reset_mask")
        if some is None:
            return super().reset(seed=seed)
        self.state[:, some] = self.np_random.uniform(self.low, self.high, self.state[:, some].shape)
        self.steps[some] = 0
        return (self.state.T if ids is None else self.state[:, ids].T).astype(np.float32), {}
