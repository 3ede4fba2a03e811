"""Episodes of at most so many steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.envs.base import VectorEnv
from ludus.envs.wrappers.base import Wrapper, whole
from ludus.errors import ConfigError
from ludus.types import Array, EnvSpec, Timestep


@runtime_checkable
class Truncates(Protocol):
    """A `VectorEnv` that can be told to end episodes."""

    def truncate(self, environments: NDArray[np.int64]) -> None:
        """The present episodes of these environments end with the next step, as truncated, unless that step ends them itself. Final
        observations are those that the agents who would be due see after the step; for others, what their open decision was made on."""
        ...


def time_limit(env: VectorEnv, steps: int) -> VectorEnv:
    """Episodes that have not ended after `steps` steps of the environment are truncated there.

    Raises ConfigError where the vector cannot end an episode (it needs `Truncates.truncate`; vectors of Python environments have it).
    """
    whole(steps, least=1, what="time_limit: steps")
    inner: object = env
    while isinstance(inner, Wrapper):
        inner = inner.env
    if not isinstance(inner, Truncates):
        raise ConfigError(
            f"time_limit: {env.spec.id} is stepped by {type(inner).__name__}, which cannot end an episode early (it has no `truncate`). "
            "Give the environment's own option for its longest episode instead."
        )
    return _TimeLimit(env, steps)


class _TimeLimit(Wrapper):
    def __init__(self, env: VectorEnv, steps: int) -> None:
        super().__init__(env, _limited(env.spec, steps))
        self._steps = steps
        self._agents = [len(env.spec.agents_of(p)) for p in range(env.spec.num_players)]
        self._length = np.zeros(env.num_envs, np.int64)
        self._busy = np.zeros(env.num_envs, np.bool_)

    def _before(self, actions: tuple[Array, ...]) -> tuple[Array, ...]:
        length = self._length
        length += self._busy
        last = self._busy & (length >= self._steps)
        if last.any():
            cast(Truncates, self.env).truncate(np.flatnonzero(last))
        return actions

    def _see(self, timestep: Timestep) -> Timestep:
        self._length[timestep.finished.environment] = 0
        self._busy.fill(False)
        for agents, due in zip(self._agents, timestep.due, strict=True):
            self._busy[due.slot // agents] = True
        return timestep

    def _forget(self) -> None:
        self._length.fill(0)

    def _columns(self) -> Mapping[str, Array]:
        return {"length": self._length}

    def _restored(self, timestep: Timestep, columns: Mapping[str, Array]) -> Timestep:
        self._see(timestep)
        self._length[:] = columns["length"]
        return timestep


def _limited(spec: EnvSpec, steps: int) -> EnvSpec:
    """An episode that is cut short may have paid nothing yet."""
    decisions = steps * max(len(spec.agents_of(p)) for p in range(spec.num_players))
    most = decisions if spec.max_decisions is None else min(decisions, spec.max_decisions)
    ranges = tuple((min(low, 0.0), max(high, 0.0)) for low, high in spec.utility_range)
    return replace(spec, max_decisions=most, utility_range=ranges)
