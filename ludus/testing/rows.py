"""What single rows of a timestep must look like. Each check raises AssertionError with one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.envs.choices import Choices
from ludus.types import Array, Due, Ended, EnvSpec, Timestep


def layout(spec: EnvSpec, num_envs: int, timestep: Timestep) -> None:
    """Numbers of players, slots, dtypes and lengths: what other checks build on."""
    assert len(timestep.due) == len(timestep.ended) == spec.num_players, (
        "`due` and `ended` need one entry for each player."
    )
    for p, (due, ended) in enumerate(zip(timestep.due, timestep.ended, strict=True)):
        for what, rows in (("due", due), ("ended", ended)):
            _check_slots(spec, num_envs, p, rows.slot, f"player {p}: `{what}.slot`")
            _typed(rows.reward, np.float32, rows.slot.shape, f"player {p}: `{what}.reward`")
            seen = (len(rows.observation), len(rows.slot))
            assert seen[0] == seen[1], f"player {p}: `{what}` has {seen[0]} observations for {seen[1]} slots."
        _typed(due.first, np.bool_, due.slot.shape, f"player {p}: `first`")
        assert ended.terminated.shape == ended.slot.shape, (
            f"player {p}: `terminated` needs one entry for each ended row."
        )
    finished = timestep.finished
    environment = finished.environment
    assert (np.diff(environment) > 0).all(), "`finished` must list environments in rising order."
    assert not len(environment) or (environment[0] >= 0 and environment[-1] < num_envs), (
        f"`finished.environment` must lie in 0 … {num_envs - 1}: {environment}."
    )
    assert finished.returns.shape == (len(environment), spec.num_players), "`finished.returns` must be float64[k, P]."
    assert finished.length.shape == finished.terminated.shape == environment.shape, (
        "`finished` needs one length and one `terminated` for each environment."
    )


def _check_slots(spec: EnvSpec, num_envs: int, p: int, slot: NDArray[Any], what: str) -> None:
    assert slot.dtype == np.int32, f"{what} must be int32, it is {slot.dtype}."
    assert (np.diff(slot) > 0).all(), f"{what} must rise, it is {slot}."
    most = num_envs * len(spec.agents_of(p))
    assert not len(slot) or (slot[0] >= 0 and slot[-1] < most), f"{what} must lie in 0 … {most - 1}: {slot}."


def observations(spec: EnvSpec, p: int, observation: Array) -> None:
    """Observations of due rows, in their space or among the player's ids."""
    enumeration = spec.enumeration
    if enumeration is not None:
        ids = enumeration.ids(p)
        _typed(observation, np.int32, (len(observation),), f"player {p}: observations, as ids,")
        assert ((observation >= ids.start) & (observation < ids.stop)).all(), (
            f"player {p} was shown an id of another player."
        )
        return
    space = spec.agents_of(p)[0].observation
    shape = (len(observation), *(space.shape or ()))
    assert observation.shape == shape, f"player {p}: observations are {observation.shape}, expected {shape}."
    row = _outside(space, observation)
    assert row < 0, f"player {p}: an observation is not in its space: {observation[row]}."


def finals(spec: EnvSpec, p: int, ended: Ended) -> None:
    """Final observations, likewise, and their masks."""
    n = len(ended.slot)
    space = spec.agents_of(p)[0].observation
    shape = (n,) if spec.enumeration is not None else (n, *(space.shape or ()))
    assert ended.observation.shape == shape, (
        f"player {p}: final observations have shape {ended.observation.shape}, expected {shape}."
    )
    if spec.enumeration is None:
        row = _outside(space, ended.observation)
        assert row < 0, f"player {p}: a final observation is not in its space: {ended.observation[row]}."
    if ended.mask is not None:
        assert ended.mask.dtype == np.bool_, f"player {p}: `ended.mask` must be bool, it is {ended.mask.dtype}."
        assert len(ended.mask) == n, f"player {p}: `ended.mask` has {len(ended.mask)} rows for {n} slots."


def masks(spec: EnvSpec, p: int, due: Due) -> None:
    """Masks of due rows: their shape, and something legal in each."""
    if due.mask is None:
        return
    space = spec.agents_of(p)[0].action
    choices = Choices.of(space)
    assert choices is not None, f"player {p} has a mask over actions in {space}, which have none."
    _typed(due.mask, np.bool_, (len(due.slot), choices.width), f"player {p}: the mask")
    possible = choices.possible(due.mask)
    assert possible.all(), f"player {p}: slots {due.slot[~possible]} are due without a legal action."


def rewards(p: int, reward: NDArray[np.float32], what: str) -> None:
    """Rewards are numbers."""
    assert np.isfinite(reward).all(), f"player {p}: a reward in `{what}` is not finite, or beyond float32."


def _outside(space: Space[Any], observation: Array) -> int:
    """The first row that is not in the space, or -1."""
    if not len(observation):
        return -1
    if isinstance(space, Box) and np.can_cast(observation.dtype, space.dtype):
        flat = observation.reshape(len(observation), -1)
        inside = ((flat >= space.low.ravel()) & (flat <= space.high.ravel())).all(axis=1)
        return -1 if inside.all() else int(np.argmin(inside))
    return next((i for i, row in enumerate(observation) if not space.contains(row)), -1)


def _typed(array: Array, dtype: Any, shape: tuple[int, ...], what: str) -> None:
    given = f"{array.dtype}{list(array.shape)}"
    assert given == f"{np.dtype(dtype)}{list(shape)}", f"{what} must be {np.dtype(dtype)}{list(shape)}; it is {given}."
