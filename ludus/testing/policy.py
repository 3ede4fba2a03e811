"""The contract of `Policy`, as a check that any policy, ours or a user's, must pass."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import PolicyError
from ludus.core.parts import missing
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec
from ludus.policies.base import Policy, Teams, team_size_of
from ludus.policies.registry import build_policy


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    observation: Array
    mask: NDArray[np.bool_] | None
    memory: NDArray[np.float32] | None
    noise: NDArray[np.float32]


def check_policy(
    policy: Policy,
    *,
    enumeration: Enumeration | None = None,
    player: int = 0,
    observation: Array | None = None,
    mask: NDArray[np.bool_] | None = None,
    seed: int = 0,
) -> None:
    """Check that a policy keeps its contract. Give an `enumeration` and a `player`, or example observations.

    Args:
        policy: The policy.
        enumeration: Of an enumerated game.
        player: That it plays.
        observation: [n, *shape] of a few decisions, n >= 2.
        mask: bool[n, A], their legal actions.
        seed: Of the noise.

    Raises:
        AssertionError: With a sentence, for the first part of the contract that it breaks.
    """
    assert isinstance(policy, Policy), f"{type(policy).__name__} is no policy: {missing(policy, Policy)}."
    for mode in ("explore", "greedy"):
        assert mode in policy.modes, f"modes is {policy.modes}; every policy publishes {mode!r}."
    rng = np.random.default_rng(seed)
    if enumeration is not None:
        ids = np.arange(enumeration.offset[player], enumeration.offset[player + 1], dtype=np.int32)
        observation = ids if policy.takes_ids else enumeration.observation[ids]
        mask = enumeration.mask[ids]
    assert observation is not None, "Give check_policy an enumeration, or example observations."
    rows = _rows(policy, observation, mask, rng)
    for mode in policy.modes:
        _check_pure(policy, rows, mode)  # first, while nobody has written into the rows
        _check_answer(policy, rows, mode)
    _check_empty(policy, rows)
    _check_unknown_mode(policy, rows)
    _check_rebuild(policy, rows)
    if enumeration is not None:
        for mode in policy.modes:
            _check_table(policy, enumeration, player, mode, rng)


def _rows(
    policy: Policy,
    observation: Array,
    mask: NDArray[np.bool_] | None,
    rng: np.random.Generator,
    noise: Array | None = None,
) -> _Rows:
    n = len(observation)
    memory = None if policy.memory_shape is None else np.zeros((n, *policy.memory_shape), np.float32)
    if noise is None:
        noise = rng.random((n, policy.noise_width), dtype=np.float32)
    return _Rows(observation, mask, memory, noise)


def _act(policy: Policy, rows: _Rows, mode: str) -> PolicyOutput:
    return policy.act(
        rows.observation, rows.mask, rows.memory, rows.noise, mode=mode, **_teams(policy, len(rows.noise))
    )


def _teams(policy: Policy, rows: int) -> dict[str, Teams]:
    """Return teams for a `JointPolicy`, one after the other, the last of which may lack some."""
    size = team_size_of(policy)
    return {"teams": Teams.of(np.arange(rows, dtype=np.int32), size)} if size else {}


def _check_answer(policy: Policy, rows: _Rows, mode: str) -> None:
    answer, n = _act(policy, rows, mode), len(rows.observation)
    assert len(answer.action) == n, f"act in mode {mode!r} answered {len(answer.action)} actions for {n} rows."
    assert answer.logp.shape == (n,), f"logp has shape {answer.logp.shape}; expected {(n,)}."
    assert answer.logp.dtype == np.float32, f"logp is {answer.logp.dtype}; expected float32."
    assert not np.isnan(answer.logp).any(), "logp holds NaN."
    if rows.mask is not None:
        assert rows.mask[np.arange(n), answer.action].all(), (
            f"act in mode {mode!r} chose an action that its mask forbids."
        )
        assert (answer.logp <= 1e-6).all(), (
            "logp is positive somewhere; it is the log-probability of a discrete action."
        )
    for name, extra in answer.extras.items():
        assert len(extra) == n, f"the extra {name!r} has {len(extra)} rows; expected {n}."
    if policy.memory_shape is None:
        assert answer.memory is None, "memory_shape is None, yet act answers a memory."
    else:
        shape = (n, *policy.memory_shape)
        assert answer.memory is not None, "memory_shape is set, yet act answers no memory."
        assert answer.memory.shape == shape, f"the next memory has shape {answer.memory.shape}; expected {shape}."
        assert answer.memory.dtype == np.float32, f"memory is {answer.memory.dtype}; expected float32."


def _check_pure(policy: Policy, rows: _Rows, mode: str) -> None:
    names = ("observation", "mask", "memory", "noise")
    before = {name: None if (array := getattr(rows, name)) is None else array.copy() for name in names}
    first, second = _act(policy, rows, mode), _act(policy, rows, mode)
    for name, array in before.items():
        assert array is None or np.array_equal(array, getattr(rows, name)), f"act changed the {name} it was given."
    assert np.array_equal(first.action, second.action), (
        f"act in mode {mode!r} is not pure: two equal calls chose differently."
    )
    assert np.array_equal(first.logp, second.logp), (
        f"act in mode {mode!r} is not pure: two equal calls have other logp."
    )


def _check_empty(policy: Policy, rows: _Rows) -> None:
    none = _Rows(
        rows.observation[:0],
        None if rows.mask is None else rows.mask[:0],
        None if rows.memory is None else rows.memory[:0],
        rows.noise[:0],
    )
    assert len(_act(policy, none, "explore").action) == 0, "act on no rows must answer no rows."


def _check_unknown_mode(policy: Policy, rows: _Rows) -> None:
    try:
        _act(policy, rows, "no such mode")
    except PolicyError:
        return
    raise AssertionError("act accepted a mode that the policy does not publish; it must raise PolicyError.")


def _check_rebuild(policy: Policy, rows: _Rows) -> None:
    config = json.loads(json.dumps(dict(policy.spec.config)))
    twin = build_policy(PolicySpec(policy.spec.kind, config), policy.weights())
    for mode in policy.modes:
        first, second = _act(policy, rows, mode), _act(twin, rows, mode)
        same = np.array_equal(first.action, second.action) and np.array_equal(first.logp, second.logp)
        assert same, f"build_policy(spec, weights()) plays otherwise than the policy itself in mode {mode!r}."


def _check_table(policy: Policy, enumeration: Enumeration, player: int, mode: str, rng: np.random.Generator) -> None:
    table = policy.tabulate(enumeration, player, mode=mode)
    if table is None:
        return
    mask = enumeration.mask[enumeration.ids(player)]
    assert table.shape == mask.shape, f"tabulate has shape {table.shape}; expected {mask.shape}."
    assert table.dtype == np.float64, f"tabulate is {table.dtype}; expected float64."
    assert (table >= 0).all(), "tabulate gives a negative probability."
    assert not table[~mask].any(), "tabulate gives an illegal action a probability."
    assert np.allclose(table.sum(axis=1), 1.0, atol=1e-6), "tabulate's rows do not sum to 1."
    draws = 2000
    for row in rng.choice(len(mask), size=min(len(mask), 12), replace=False):
        state = np.full(draws, enumeration.offset[player] + row, np.int32)
        observation = state if policy.takes_ids else enumeration.observation[state]
        answer = _act(policy, _rows(policy, observation, enumeration.mask[state], rng), mode)
        p = table[row]
        frequency = np.bincount(answer.action, minlength=len(p)) / draws
        bound = 5.0 * np.sqrt(p * (1.0 - p) / draws) + 1e-3
        assert (np.abs(frequency - p) <= bound).all(), (
            f"in state {row} act plays {frequency}, tabulate says {p} (mode {mode!r})."
        )
        assert np.allclose(np.exp(answer.logp), p[answer.action], atol=1e-4), (
            f"in state {row} logp does not agree with tabulate (mode {mode!r})."
        )
