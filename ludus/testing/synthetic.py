"""Rollouts without an environment: random observations, rewards and ends around a policy's real actions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.data.trajectories import Trajectories
from ludus.envs.choices import Choices
from ludus.policies.base import Policy
from ludus.types import Array, EnvSpec, Tail

__all__ = ["synthetic_rollout"]

_LONGEST = 5


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """Observations [n, …] as the environment gives them and as the policy takes them, and masks bool[n, A] or None."""

    given: Array
    taken: Array
    mask: NDArray[np.bool_] | None


def synthetic_rollout(
    env: EnvSpec, policy: Policy, *, seats: tuple[int, ...], segments: int, rng: np.random.Generator, version: int = 0
) -> Trajectories:
    """`segments` segments of 1 to 5 decisions, in which all kinds of tails occur; observations and legal actions as `env` says, random
    otherwise, and states where it has one. Truncated and cut segments of an enumerated game have the tail observation of some state of the
    same seat."""
    seat = np.array([seats[s % len(seats)] for s in range(segments)], np.int8)
    length = rng.integers(1, _LONGEST + 1, segments)
    alive = np.arange(_LONGEST)[None] < length[:, None]
    memory = None if policy.memory_shape is None else np.zeros((segments, *policy.memory_shape), np.float32)
    memory0 = memory
    steps, actions, logps = [], [], []
    for _ in range(_LONGEST):
        seen = _observe(env, seat, policy.takes_ids, rng)
        noise = rng.random((segments, policy.noise_width), dtype=np.float32)
        act = policy.act(seen.taken, seen.mask, memory, noise)
        memory = act.memory
        steps.append(seen)
        actions.append(act.action)
        logps.append(act.logp)
    tail = rng.integers(0, len(Tail), segments).astype(np.int8)
    after = _observe(env, seat, policy.takes_ids, rng)
    tail_observation = after.given
    if env.enumeration is not None:
        tail_observation = np.where(tail == Tail.TERMINATED, -1, after.given).astype(np.int32)
    implied = env.enumeration is not None
    rows = int(alive.sum())
    return Trajectories(
        start=np.concatenate([[0], np.cumsum(length)]).astype(np.int64),
        observation=_rows([s.given for s in steps], alive),
        action=_rows(actions, alive),
        logp=_rows(logps, alive),
        reward=rng.standard_normal(rows).astype(np.float32),
        mask=None if implied or after.mask is None else _rows([s.mask for s in steps if s.mask is not None], alive),
        t=np.broadcast_to(np.arange(_LONGEST, dtype=np.int32), alive.shape)[alive],
        tail=tail,
        tail_observation=tail_observation,
        tail_mask=None if implied else after.mask,
        agent=np.zeros(segments, np.int16),
        seat=seat,
        episode=np.arange(segments, dtype=np.int64),
        version_lo=np.full(segments, version, np.int32),
        version_hi=np.full(segments, version, np.int32),
        policy="synthetic",
        memory0=memory0,
        state=_states(env, rows, rng),
        tail_state=_states(env, segments, rng),
    )


def _rows(steps: list[Array], alive: NDArray[np.bool_]) -> Array:
    """Steps of [S, …] -> the rows that are alive, segment by segment."""
    return np.stack(steps, axis=1)[alive]


def _states(env: EnvSpec, count: int, rng: np.random.Generator) -> Array | None:
    return None if env.state is None else rng.standard_normal((count, *(env.state.shape or ()))).astype(np.float32)


def _observe(env: EnvSpec, seat: NDArray[np.int8], takes_ids: bool, rng: np.random.Generator) -> _Seen:
    if env.enumeration is not None:
        offset = np.asarray(env.enumeration.offset)
        ids = rng.integers(offset[seat], offset[seat + 1]).astype(np.int32)
        taken: Array = ids if takes_ids else env.enumeration.observation[ids]
        return _Seen(ids, taken, env.enumeration.mask[ids])
    agent = env.agents_of(int(seat[0]))[0]
    observation = rng.standard_normal((len(seat), *(agent.observation.shape or ()))).astype(np.float32)
    if (choices := Choices.of(agent.action)) is None:
        return _Seen(observation, observation, None)
    mask = rng.random((len(seat), choices.width)) < 0.7
    mask[
        np.arange(len(seat))[:, None],
        choices.starts + rng.integers(0, choices.counts, (len(seat), len(choices.counts))),
    ] = True
    return _Seen(observation, observation, mask)
