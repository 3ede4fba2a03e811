"""Rewards of an episode, and its longest length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError
from ludus.core.types import ActionRequests, Array, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.wrappers.base import Wrapper, number, whole

# --------------------------------------------------------------------------------------------------------------------
# Rewards, clipped or scaled. Returns are those of the changed rewards, and so is the spec's range of them.


def scale_reward(env: VectorEnv, factor: float) -> VectorEnv:
    """Multiply rewards and returns by a factor.

    Args:
        env: The vector.
        factor: A finite float32 other than 0.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: The factor is 0 or not finite.
    """
    with np.errstate(over="ignore"):
        factor32 = np.float32(number(factor, what="scale_reward: factor"))  # as rewards are
    if factor32 == 0 or not np.isfinite(factor32):
        raise ConfigError(
            f"scale_reward: factor={factor} was given; a number other than 0 is needed, which float32 has."
        )
    return _ScaleReward(env, float(factor))


def clip_reward(env: VectorEnv, low: float = -1.0, high: float = 1.0) -> VectorEnv:
    """Clip the reward of each decision (the sum until the agent's next one) to [low, high].

    A player's return is the sum over its agents of the clipped rewards. Rewards before a player's first decision belong to no decision and
    are left out. Returns are then no longer the environment's own scores, and a game is no longer zero-sum.

    Args:
        env: The vector.
        low: At most 0.
        high: At least 0.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: Not low <= 0 <= high, or both are 0.
    """
    low, high = number(low, what="clip_reward: low"), number(high, what="clip_reward: high")
    if not low <= 0 <= high or low == high:
        raise ConfigError(f"clip_reward: low={low}, high={high} were given; low <= 0 <= high is needed, not both 0.")
    return _DecisionReward(env, low, high, sign=False)


def sign_reward(env: VectorEnv) -> VectorEnv:
    """Replace the reward of each decision by its sign, -1, 0 or 1; see `clip_reward`.

    Args:
        env: The vector.

    Returns:
        The wrapped vector.

    Source:
        Mnih et al. 2015, "Human-level control through deep reinforcement learning", play Atari so.
    """
    return _DecisionReward(env, -1.0, 1.0, sign=True)


class _RewardWrapper(Wrapper):
    """Buffers for the rewards of each player."""

    def __init__(self, env: VectorEnv, spec: EnvSpec) -> None:
        super().__init__(env, spec)
        rows = [env.num_envs * len(env.spec.agents_of(p)) for p in range(env.spec.num_players)]
        self._due = [[np.empty(n, np.float32) for n in rows] for _ in range(2)]
        self._ended = [[np.empty(n, np.float32) for n in rows] for _ in range(2)]
        self._now = 0

    def _see(self, timestep: Timestep) -> Timestep:
        due_side, ended_side = self._due[self._now], self._ended[self._now]
        self._now ^= 1
        due, closed = [], []
        for p, (d, c) in enumerate(zip(timestep.due, timestep.ended, strict=True)):
            reward, last = due_side[p][: len(d.slot)], ended_side[p][: len(c.slot)]
            self._change(d.reward, reward)
            self._change(c.reward, last)
            due.append(ActionRequests(d.slot, d.observation, d.mask, reward, d.first))
            closed.append(ClosedDecisions(c.slot, last, c.terminated, c.observation, c.mask))
        finished = self._finish(tuple(due), tuple(closed), timestep.finished)
        return Timestep(tuple(due), tuple(closed), finished, timestep.state, timestep.final_state)

    def _change(self, reward: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        raise NotImplementedError

    def _finish(
        self, due: tuple[ActionRequests, ...], ended: tuple[ClosedDecisions, ...], finished: FinishedEpisodes
    ) -> FinishedEpisodes:
        raise NotImplementedError


class _ScaleReward(_RewardWrapper):
    def __init__(self, env: VectorEnv, factor: float) -> None:
        bounds = [sorted((low * factor, high * factor)) for low, high in env.spec.utility_range]
        super().__init__(env, replace(env.spec, utility_range=tuple((low, high) for low, high in bounds)))
        self._factor = np.float32(factor)

    def _change(self, reward: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        np.multiply(reward, self._factor, out=out)

    def _finish(
        self, due: tuple[ActionRequests, ...], ended: tuple[ClosedDecisions, ...], finished: FinishedEpisodes
    ) -> FinishedEpisodes:
        if not len(finished.environment):
            return finished
        returns = finished.returns * float(self._factor)
        return finished._replace(returns=returns)


class _DecisionReward(_RewardWrapper):
    def __init__(self, env: VectorEnv, low: float, high: float, *, sign: bool) -> None:
        spec = env.spec
        most = np.inf if spec.max_decisions is None else float(spec.max_decisions)
        bounds = (low * most if low else 0.0, high * most if high else 0.0)
        super().__init__(env, replace(spec, utility_range=(bounds,) * spec.num_players, zero_sum=False))
        self._low, self._high, self._sign = low, high, sign
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._returns = np.zeros((env.num_envs, spec.num_players))
        self._last = np.empty((0, spec.num_players))  # returns of the last timestep's finished episodes

    def _change(self, reward: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        if self._sign:
            np.sign(reward, out=out)
        else:
            np.clip(reward, self._low, self._high, out=out)

    def _finish(
        self, due: tuple[ActionRequests, ...], ended: tuple[ClosedDecisions, ...], finished: FinishedEpisodes
    ) -> FinishedEpisodes:
        for p, closed in enumerate(ended):
            self._pay(p, closed.slot, closed.reward)
        self._last = self._returns[finished.environment]
        self._returns[finished.environment] = 0
        for p, rows in enumerate(due):
            self._pay(p, rows.slot, rows.reward)
        return self._with_returns(finished)

    def _pay(self, p: int, slot: NDArray[np.int32], reward: NDArray[np.float32]) -> None:
        if self._agents[p] == 1:
            self._returns[slot, p] += reward
        elif len(slot):
            self._returns[:, p] += np.bincount(slot // self._agents[p], weights=reward, minlength=self.num_envs)

    def _with_returns(self, finished: FinishedEpisodes) -> FinishedEpisodes:
        return finished._replace(returns=self._last)

    def _forget(self) -> None:
        self._returns.fill(0)

    def _columns(self) -> Mapping[str, Array]:
        return {"returns": self._returns, "last": self._last}

    def _restored(self, timestep: Timestep, columns: Mapping[str, Array]) -> Timestep:
        result = self._see(timestep)  # for the rewards; what was summed is then put back
        self._returns[:] = columns["returns"]
        self._last = columns["last"]
        finished = self._with_returns(timestep.finished)
        return Timestep(result.due, result.ended, finished, result.state, result.final_state)


# --------------------------------------------------------------------------------------------------------------------
# Episodes of at most N steps.


@runtime_checkable
class Truncates(Protocol):
    """A `VectorEnv` that can be told to end episodes."""

    def truncate(self, environments: NDArray[np.int64]) -> None:
        """Truncate the present episodes of these environments with the next step, unless that step ends them itself. Final observations
        are those that the agents who would be due see after the step; for others, what their open decision was made on."""
        ...


def time_limit(env: VectorEnv, steps: int) -> VectorEnv:
    """Truncate episodes that have not ended after a number of steps.

    Args:
        env: The vector.
        steps: Steps of the environment, at least 1.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: The vector cannot end an episode early: it has no `Truncates.truncate`, which vectors of Python environments have.
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
        last = self._busy & (self._length + 1 >= self._steps)  # counted once the step is made: an action may be refused
        if last.any():
            cast(Truncates, self.env).truncate(np.flatnonzero(last))
        return actions

    def _see(self, timestep: Timestep) -> Timestep:
        self._length += self._busy
        self._length[timestep.finished.environment] = 0
        self._busy.fill(False)
        for agents, due in zip(self._agents, timestep.due, strict=True):
            self._busy[due.slot // agents] = True
        return timestep

    def _forget(self) -> None:
        self._length.fill(0)
        self._busy.fill(False)

    def _columns(self) -> Mapping[str, Array]:
        return {"length": self._length}

    def _restored(self, timestep: Timestep, columns: Mapping[str, Array]) -> Timestep:
        self._see(timestep)
        self._length[:] = columns["length"]
        return timestep


def _limited(spec: EnvSpec, steps: int) -> EnvSpec:
    """Return the spec with the limit: a truncated episode may have no rewards yet, also where returns sum to another constant than 0."""
    decisions = steps * max(len(spec.agents_of(p)) for p in range(spec.num_players))
    most = decisions if spec.max_decisions is None else min(decisions, spec.max_decisions)
    ranges = tuple((min(low, 0.0), max(high, 0.0)) for low, high in spec.utility_range)
    zero_sum = spec.zero_sum and spec.constant_sum in (None, 0.0)
    return replace(spec, max_decisions=most, utility_range=ranges, zero_sum=zero_sum)
