"""The contract of `Algorithm` and `Learner`, as a check that any algorithm, ours or a user's, must pass."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.common.base import Algorithm, CollectConfig, Learner, LearnerContext, updated_priorities
from ludus.core.config import Config
from ludus.core.errors import PolicyError, TrainingError
from ludus.core.types import Array, EnvSpec, SegmentEnd, State, Weights
from ludus.envs.spaces import Choices
from ludus.policies.base import Policy, Teams, team_size_of
from ludus.policies.registry import build_policy
from ludus.replay.base import Table
from ludus.replay.kinds import build_table
from ludus.replay.trajectories import Trajectories
from ludus.testing.policy import check_policy

__all__ = ["check_algorithm", "synthetic_rollout"]

# --------------------------------------------------------------------------------------------------------------------
# Rollouts without an environment: random observations, rewards and ends around a policy's real actions.

_LONGEST = 5


@dataclass(frozen=True, slots=True, eq=False)
class _Observed:
    """Observations [n, …] as the environment gives them and as the policy takes them, and masks bool[n, A] or None."""

    raw: Array
    policy_input: Array
    mask: NDArray[np.bool_] | None


def synthetic_rollout(
    env: EnvSpec,
    policy: Policy,
    *,
    seats: tuple[int, ...],
    segments: int,
    rng: np.random.Generator,
    version: int = 0,
    collect: CollectConfig | None = None,
) -> Trajectories:
    """Return random segments of 1 to 5 decisions, in which all kinds of ends occur, as input of a learner.

    Args:
        env: Determines observations, legal actions and states; they are random otherwise. Truncated and cut segments of an enumerated game
            have the bootstrap observation of some state of the same seat.
        policy: Acts.
        seats: Seats of the learner.
        segments: Number of segments.
        rng: Random stream.
        version: Of the policy.
        collect: What is recorded in addition; None: nothing.
    """
    seat = np.array([seats[s % len(seats)] for s in range(segments)], np.int8)
    length = rng.integers(1, _LONGEST + 1, segments)
    alive = np.arange(_LONGEST)[None] < length[:, None]
    memory = None if policy.memory_shape is None else np.zeros((segments, *policy.memory_shape), np.float32)
    memory0 = memory
    # Each agent by itself, of a policy that would play whole teams.
    alone: dict[str, Any] = {"teams": Teams.of(np.arange(segments, dtype=np.int32), 1)} if team_size_of(policy) else {}
    steps, actions, logps, extras = [], [], [], []
    for _ in range(_LONGEST):
        observed = _observe(env, seat, policy.takes_ids, rng)
        noise = rng.random((segments, policy.noise_width), dtype=np.float32)
        act = policy.act(observed.policy_input, observed.mask, memory, noise, **alone)
        memory = act.memory
        steps.append(observed)
        actions.append(act.action)
        logps.append(act.logp)
        extras.append(act.extras)
    tail = rng.integers(0, len(SegmentEnd), segments).astype(np.int8)
    after = _observe(env, seat, policy.takes_ids, rng)
    bootstrap_observation = after.raw
    if env.enumeration is not None:
        bootstrap_observation = np.where(tail == SegmentEnd.TERMINATED, -1, after.raw).astype(np.int32)
    implied = env.enumeration is not None
    rows = int(alive.sum())
    return Trajectories(
        start=np.concatenate([[0], np.cumsum(length)]).astype(np.int64),
        observation=_rows([s.raw for s in steps], alive),
        action=_rows(actions, alive),
        logp=_rows(logps, alive),
        reward=rng.standard_normal(rows).astype(np.float32),
        mask=None if implied or after.mask is None else _rows([s.mask for s in steps if s.mask is not None], alive),
        t=np.broadcast_to(np.arange(_LONGEST, dtype=np.int32), alive.shape)[alive],
        dt=np.ones(rows, np.int32),
        tail=tail,
        bootstrap_observation=bootstrap_observation,
        bootstrap_mask=None if implied else after.mask,
        agent=np.zeros(segments, np.int16),
        seat=seat,
        episode=np.arange(segments, dtype=np.int64),
        version_lo=np.full(segments, version, np.int32),
        version_hi=np.full(segments, version, np.int32),
        policy="synthetic",
        memory0=memory0,
        state=_states(env, rows, rng),
        bootstrap_state=_states(env, segments, rng),
        extras={name: _rows([step[name] for step in extras], alive) for name in extras[0]},
        bootstrap_value=_worth(policy, after, tail, collect),
    )


def _worth(
    policy: Policy, after: _Observed, tail: NDArray[np.int8], collect: CollectConfig | None
) -> NDArray[np.float32] | None:
    if collect is None or not collect.bootstrap_value:
        return None
    act = policy.act(after.policy_input, after.mask, None, np.zeros((len(tail), policy.noise_width), np.float32))
    return np.where(tail == SegmentEnd.TERMINATED, 0.0, act.extras[collect.bootstrap_value]).astype(np.float32)


def _rows(steps: list[Array], alive: NDArray[np.bool_]) -> Array:
    """Return steps of [S, …] -> the rows that are alive, segment by segment."""
    return np.stack(steps, axis=1)[alive]


def _states(env: EnvSpec, count: int, rng: np.random.Generator) -> Array | None:
    return None if env.state is None else rng.standard_normal((count, *(env.state.shape or ()))).astype(np.float32)


def _observe(env: EnvSpec, seat: NDArray[np.int8], takes_ids: bool, rng: np.random.Generator) -> _Observed:
    if env.enumeration is not None:
        offset = np.asarray(env.enumeration.offset)
        ids = rng.integers(offset[seat], offset[seat + 1]).astype(np.int32)
        policy_input: Array = ids if takes_ids else env.enumeration.observation[ids]
        return _Observed(ids, policy_input, env.enumeration.mask[ids])
    agent = env.agents_of(int(seat[0]))[0]
    observation = rng.standard_normal((len(seat), *(agent.observation.shape or ()))).astype(np.float32)
    if (choices := Choices.of(agent.action)) is None:
        return _Observed(observation, observation, None)
    mask = rng.random((len(seat), choices.width)) < 0.7
    mask[
        np.arange(len(seat))[:, None],
        choices.starts + rng.integers(0, choices.counts, (len(seat), len(choices.counts))),
    ] = True
    return _Observed(observation, observation, mask)


Rollouts = Callable[[Learner, int], Trajectories]
"""(learner, number of the rollout) -> what its newest weights experienced; the same arguments give the same rollout."""


def check_algorithm(
    algorithm: Algorithm,
    env: EnvSpec,
    *,
    seats: tuple[int, ...] = (0,),
    rollouts: Rollouts | None = None,
    rounds: int = 4,
    seed: int = 0,
) -> None:
    """Check that an algorithm keeps its contract in an environment.

    Args:
        algorithm: The algorithm.
        env: The environment.
        seats: Seats of the learner.
        rollouts: Experience of your own environment; by default, observations, rewards and ends are random.
        rounds: Rounds of collecting and learning; enough for some updates.
        seed: Of all random streams.

    Raises:
        AssertionError: With a sentence, for the first part of the contract that it breaks.
    """
    assert isinstance(algorithm, Algorithm), (
        f"{type(algorithm).__name__} lacks a part of ludus.algorithms.common.base.Algorithm."
    )
    algorithm.check(env, seats)
    _check_declarations(algorithm)
    context = LearnerContext(env, seats, seed, total=rounds * algorithm.collect().amount)
    make = rollouts if rollouts is not None else _synthetic(env, seats, algorithm)
    learner = algorithm.learner(context)
    _check_learner(algorithm, learner, env, seats)
    halfway = _check_rounds(algorithm, learner, make, rounds)
    again = _check_same_twice(algorithm, context, make, rounds, first=learner.weights())
    _check_resume(algorithm, context, make, rounds, halfway=halfway, end=learner.weights())
    _check_warm_start(algorithm, context, learner.weights())
    _check_nan(again, rounds)


def _synthetic(env: EnvSpec, seats: tuple[int, ...], algorithm: Algorithm) -> Rollouts:
    def make(learner: Learner, number: int) -> Trajectories:
        policy = build_policy(learner.spec, learner.weights())
        segments = max(2, min(algorithm.collect().amount, 300))
        rng = np.random.default_rng([number, 17])
        collect = algorithm.collect()
        return synthetic_rollout(env, policy, seats=seats, segments=segments, rng=rng, version=number, collect=collect)

    return make


class _Loop:
    """The driver's loop in small: tables, and a learner that is fed from them."""

    def __init__(self, algorithm: Algorithm, learner: Learner, make: Rollouts) -> None:
        self.learner, self._make = learner, make
        self.tables: dict[str, Table] = {spec.name: build_table(spec) for spec in algorithm.tables()}
        self.updates = 0

    def round(self, number: int, *, poison: bool = False) -> None:
        trajectories = self._make(self.learner, number)
        if poison:
            trajectories = replace(trajectories, reward=np.full_like(trajectories.reward, np.nan))
        copies = {name: np.copy(getattr(trajectories, name)) for name in ("observation", "action", "reward", "start")}
        for name, items in self.learner.items(trajectories):
            assert name in self.tables, f"items are for the table {name!r}, which tables() does not declare."
            lengths = {len(column) for column in items.values()}
            assert len(lengths) == 1, (
                f"the columns for table {name!r} have lengths {sorted(lengths)}; one row is one item."
            )
            lag = self.tables[name].spec.max_lag
            assert lag is None or "version_lo" in items, (
                f"table {name!r} bounds the lag, so its items need a version_lo column."
            )
            self.tables[name].announce(number)
            assert self.tables[name].try_insert(items), f"table {name!r} refused the items of one rollout."
        for name, array in copies.items():
            same = np.array_equal(array, getattr(trajectories, name), equal_nan=array.dtype.kind == "f")
            assert same, f"items changed the {name} of the trajectories it was given."
        self._learn(number)

    def _learn(self, number: int) -> None:
        rng = np.random.default_rng([number, 23])
        for name, count in self.learner.batches():
            batch = self.tables[name].try_sample(count, rng)
            if batch is None:
                return
            metrics = self.learner.update(batch)
            for table, index, priority in updated_priorities(self.learner):
                self.tables[table].update_priorities(index, priority)
            self.updates += 1
            bad = [key for key, value in metrics.items() if not math.isfinite(value)]
            assert not bad, f"update answers metrics that are not finite numbers: {', '.join(bad)}."


def _check_declarations(algorithm: Algorithm) -> None:
    units = ("decision", "segment", "joint", "episode")
    assert algorithm.item in units, f"item is {algorithm.item!r}; expected one of {units}."
    collect = algorithm.collect()
    assert collect.unit in ("episodes", "decisions"), f"collect().unit is {collect.unit!r}."
    assert collect.amount >= 1, f"collect().amount is {collect.amount}; expected at least 1."
    names = [spec.name for spec in algorithm.tables()]
    assert names, "tables() declares no table; a learner is fed from at least one."
    assert len(set(names)) == len(names), f"tables() declares two tables of one name: {names}."
    if isinstance(algorithm, Config):
        twin = type(algorithm)(**algorithm.model_dump(mode="json"))
        assert twin == algorithm, "the configuration does not survive a round trip through JSON."


def _check_learner(algorithm: Algorithm, learner: Learner, env: EnvSpec, seats: tuple[int, ...]) -> None:
    assert isinstance(learner, Learner), (
        f"{type(learner).__name__} lacks a part of ludus.algorithms.common.base.Learner."
    )
    assert learner.spec == algorithm.policy(env, seats), "learner.spec is not what policy(env, seats) promises."
    assert not learner.batches(), "a learner that has seen nothing asks for batches."
    policy = build_policy(learner.spec, learner.weights())
    if env.enumeration is not None:
        check_policy(policy, enumeration=env.enumeration, player=seats[0])


@dataclass(frozen=True, slots=True, eq=False)
class _MidwayCheckpoint:
    """What a checkpoint after half of the rounds holds, and the weights there."""

    learner: State
    tables: dict[str, State]
    weights: Weights


def _check_rounds(algorithm: Algorithm, learner: Learner, make: Rollouts, rounds: int) -> _MidwayCheckpoint:
    loop, before = _Loop(algorithm, learner, make), learner.weights()
    for number in range(rounds // 2):
        loop.round(number)
    halfway = _MidwayCheckpoint(
        copy.deepcopy(learner.state_dict()),
        {name: copy.deepcopy(table.state_dict()) for name, table in loop.tables.items()},
        learner.weights(),
    )
    for number in range(rounds // 2, rounds):
        loop.round(number)
    assert loop.updates, f"no update was due in {rounds} rounds of collecting; give check_algorithm more rounds."
    after = {name: array.copy() for name, array in learner.weights().items()}
    assert _differ(before, after), f"{loop.updates} updates changed no weight."
    for array in learner.weights().values():
        array.fill(0)
    own = _differ(after, learner.weights())
    assert not own, f"weights() answers the learner's own arrays {own}; it must answer copies."
    return halfway


def _check_same_twice(
    algorithm: Algorithm, context: LearnerContext, make: Rollouts, rounds: int, *, first: Weights
) -> _Loop:
    """Return the second learner's loop."""
    loop = _Loop(algorithm, algorithm.learner(context), make)
    for number in range(rounds):
        loop.round(number)
    different = _differ(first, loop.learner.weights())
    assert not different, (
        f"two learners of one context and one experience differ in {different}; a random stream is not keyed."
    )
    return loop


def _check_resume(
    algorithm: Algorithm,
    context: LearnerContext,
    make: Rollouts,
    rounds: int,
    *,
    halfway: _MidwayCheckpoint,
    end: Weights,
) -> None:
    _check_plain(halfway.learner, "state_dict()")
    resumed = _Loop(algorithm, algorithm.learner(replace(context, seed=context.seed)), make)
    resumed.learner.load_state_dict(halfway.learner)
    for name, state in halfway.tables.items():
        resumed.tables[name].load_state_dict(state)
    different = _differ(halfway.weights, resumed.learner.weights())
    assert not different, f"after load_state_dict the weights {different} are not those that were saved."
    for number in range(rounds // 2, rounds):
        resumed.round(number)
    assert resumed.updates, "no update was due after the resume; give check_algorithm more rounds."
    different = _differ(end, resumed.learner.weights())
    assert not different, f"a resumed learner goes on differently in {different}: state_dict() leaves something out."


def _check_plain(state: object, where: str) -> None:
    if isinstance(state, Mapping):
        for key, value in state.items():
            assert isinstance(key, str), f"{where} has the key {key!r}; keys are strings."
            _check_plain(value, f"{where}[{key!r}]")
    elif isinstance(state, list):
        for k, value in enumerate(state):
            _check_plain(value, f"{where}[{k}]")
    else:
        fine = state is None or isinstance(state, (str, bool, int, float, np.ndarray))
        assert fine, (
            f"{where} is a {type(state).__name__}; a checkpoint holds arrays, numbers, strings, lists and mappings."
        )


def _check_warm_start(algorithm: Algorithm, context: LearnerContext, weights: Weights) -> None:
    warm = algorithm.learner(context, weights).weights()
    shapes = {name: array.shape for name, array in weights.items()}
    assert {name: array.shape for name, array in warm.items()} == shapes, "a warm-started learner has other weights."
    try:
        algorithm.learner(context, {"no such name": np.zeros(1, np.float32)})
    except PolicyError:
        return
    raise AssertionError("learner(context, start) took weights that do not fit its spec; it must raise PolicyError.")


def _check_nan(loop: _Loop, rounds: int) -> None:
    good: Weights = loop.learner.weights()
    message: str | None = None
    try:
        for number in range(rounds, 2 * rounds):
            good = loop.learner.weights()
            loop.round(number, poison=True)
    except TrainingError as error:
        message = str(error)
    assert message is not None, "the learner learned from rewards that are NaN; update must raise TrainingError."
    assert message, "the TrainingError says nothing; it must say where the NaN arose."
    after = loop.learner.weights()
    assert all(np.isfinite(array).all() for array in after.values()), (
        "after a TrainingError the weights are not finite."
    )
    assert {k: v.shape for k, v in after.items()} == {k: v.shape for k, v in good.items()}, (
        "a TrainingError lost weights."
    )


def _differ(first: Weights | State, second: Weights | State) -> list[str]:
    """Return the names of arrays that are not bitwise equal."""
    names = sorted({*first, *second})
    return [
        n
        for n in names
        if n not in first or n not in second or np.asarray(first[n]).tobytes() != np.asarray(second[n]).tobytes()
    ]
