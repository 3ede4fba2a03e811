"""A vector of environments that are written in Python and have one agent each: Gymnasium's. No record and no call for each row."""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np

from ludus.envs.python_loop import PythonEnv, PythonVectorEnv
from ludus.envs.python_rows import Flaw
from ludus.types import Array, Timestep


class LoneEnv(PythonEnv, Protocol):
    """One agent, always due."""

    def advance(self, action: Any) -> tuple[Any, Any, int, Any]:
        """A step: what is seen next, the reward, how the episode ended or GOES_ON, and the legal actions or None."""
        ...


class LoneVectorEnv(PythonVectorEnv):
    """A `PythonVectorEnv` of `LoneEnv`s without masks, whose first fault raises EnvError. What is no number is found when all have made
    their step."""

    def _play(self, actions: tuple[Array, ...], last: Timestep) -> None:
        due, pub, rows = last.due[0], self._pub, self._rows
        given = self._given(0, actions[0], due)
        seen_rows, final_rows = pub.observation[0], pub.final[0]
        space = self.spec.agents[0].observation
        shape, dtype = space.shape, np.dtype(space.dtype)
        rewards: list[Any] = []
        ended: list[int] = []
        envs = cast("list[LoneEnv]", self._envs)
        for e, action in zip(due.slot.tolist(), given, strict=True):
            try:
                seen, reward, how, _ = envs[e].advance(action)
                if seen.__class__ is not np.ndarray or seen.dtype is not dtype or seen.shape != shape:
                    seen = rows.checked(0, seen)
                if reward.__class__ is not float:
                    rows.check_reward(0, reward)
                if how:
                    final_rows[e] = seen
                    pub.over[e] = how
                    ended.append(e)
                else:
                    seen_rows[e] = seen
                rewards.append(reward)
            except Flaw as flaw:
                self._fault(e, str(flaw), cause=None)
            except Exception as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
                self._fault(e, f"raised {type(error).__name__}: {error}", cause=error)
        pub.reward[0][due.slot] = rewards
        pub.due[0].fill(False)
        pub.due[0][due.slot] = True
        pub.due[0][ended] = False
