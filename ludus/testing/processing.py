"""The contract of `Processing`, as a check that any, ours or a user's, must pass."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from ludus.core.errors import LudusError
from ludus.core.parts import dump_part
from ludus.core.types import EnvSpec
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec
from ludus.replay.processing import PROCESSING, Processing, parse_processing, processed
from ludus.replay.trajectories import Trajectories
from ludus.testing.algorithm import synthetic_rollout

__all__ = ["check_processing"]


def check_processing(
    processing: Processing, env: EnvSpec, *, seats: tuple[int, ...] = (0,), rollouts: int = 3, seed: int = 0
) -> None:
    """Check that a processing keeps its contract. It processes rollouts of random decisions, with rewards and ends of all kinds, and one of
    a single decision. Its result must fit; be the same when it is called again, from the same random stream, by an equal one; leave its
    input unchanged; and be expressible in a scenario.

    Args:
        processing: The processing.
        env: The environment.
        seats: Seats of the learner.
        rollouts: Number of rollouts.
        seed: Of all random streams.

    Raises:
        AssertionError: With a sentence, for the first part of the contract that it breaks.
    """
    try:
        processing.check(env, seats)
        (again,) = parse_processing(dump_part(processing, PROCESSING))
    except LudusError as error:
        raise AssertionError(str(error)) from error
    assert again == processing, f"written into a scenario and read again it is {again!r}, and was {processing!r}."
    for number in range(rollouts):
        _check_rollout((processing, again), env, _rollout(env, seats, seed + number, segments=12), seed + number)
    _check_rollout((processing, again), env, _rollout(env, seats, seed, segments=1), seed)


def _rollout(env: EnvSpec, seats: tuple[int, ...], seed: int, *, segments: int) -> Trajectories:
    rng = np.random.default_rng([seed, 29])
    agent = env.agents_of(seats[0])[0]
    policy = build_policy(random_spec(agent.action), {})
    return synthetic_rollout(env, policy, seats=seats, segments=segments, rng=rng)


def _check_rollout(twins: tuple[Processing, Processing], env: EnvSpec, rows: Trajectories, seed: int) -> None:
    copies = {
        f.name: np.copy(getattr(rows, f.name)) for f in fields(rows) if isinstance(getattr(rows, f.name), np.ndarray)
    }
    ends = []
    for each in (*twins, twins[0]):  # asked again, by itself and by an equal one
        try:
            ends.append(processed(rows, [each], env=env, stream=lambda place: np.random.default_rng([seed, place, 31])))
        except LudusError as error:
            raise AssertionError(str(error)) from error
    for other in ends[1:]:
        different = _differ(ends[0], other)
        assert not different, (
            f"asked again, with an equal stream, it answers another {different}; draw from rng alone, and keep nothing."
        )
    for name, array in copies.items():
        assert np.array_equal(array, getattr(rows, name)), f"it changed the {name} of the rows that it was given."


def _differ(one: Trajectories, other: Trajectories) -> str:
    pairs = {f.name: (getattr(one, f.name), getattr(other, f.name)) for f in fields(one) if f.name != "extras"}
    pairs |= {f"extra {name}": (one.extras[name], other.extras.get(name)) for name in one.extras}
    for name, (a, b) in pairs.items():
        same = np.array_equal(a, b, equal_nan=a.dtype.kind == "f") if isinstance(a, np.ndarray) else a is b or a == b
        if not same:
            return name
    return ""
