"""What every wrapper is: a vector around another that passes on what it does not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ludus.core.errors import ConfigError, EnvError
from ludus.core.types import ActionRequests, Array, ClosedDecisions, EnvSpec, Timestep
from ludus.envs.base import SupportsRender, VectorEnv

# --------------------------------------------------------------------------------------------------------------------
# Snapshots of wrapped vectors: the inner vector's bytes with named arrays, in safetensors' format.

_INNER = "inner"


def pack(inner: bytes, columns: Mapping[str, Array]) -> bytes:
    """Return one byte string for both."""
    arrays = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    packed: bytes = save({_INNER: np.frombuffer(inner, np.uint8), **arrays})
    return packed


def unpack(packed: bytes, *, names: Iterable[str], what: str) -> tuple[bytes, dict[str, Array]]:
    """Return (inner, columns) again. Raises EnvError if it is no such byte string, or has other columns than `names`."""
    try:
        arrays: dict[str, Array] = load(packed)
    except SafetensorError as error:
        raise EnvError(f"a snapshot of {what} cannot be read: {error}; was it cut or changed?") from error
    if arrays.keys() != {_INNER, *names}:
        raise EnvError(f"a snapshot of {what} was made under other wrappers; restore into an equal vector.")
    inner = arrays.pop(_INNER)
    return inner.tobytes(), arrays


Change: TypeAlias = Callable[[int, NDArray[np.int32], Array, Array], Array]
"""(player, slots int32[n], observations [n, *old shape], a buffer [n, *new shape]) -> [n, *new shape], in the buffer or not."""


class Wrapper:
    """A vector around `env` with another `spec`, which passes on what it does not change.

    A kind of wrapper overrides `_see`, which changes each timestep; `_before`, which changes the actions; and, if it has state, `_forget`,
    `_columns` and `_restored`.

    Args:
        env: The inner vector.
        spec: What the wrapped vector plays.
    """

    def __init__(self, env: VectorEnv, spec: EnvSpec) -> None:
        self.env = env
        self.spec = spec
        self.num_envs = env.num_envs

    # ------------------------------------------------------------------------------------------ the contract

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes."""
        self._forget()
        return self._see(self.env.reset(seeds, episodes=episodes))

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes."""
        return self._see(self.env.step(self._before(actions)))

    def snapshot(self) -> bytes | None:
        """Return the inner vector's, with what the wrapper remembers; None if that has none."""
        inner, columns = self.env.snapshot(), self._columns()
        return inner if inner is None or not columns else pack(inner, columns)

    def restore(self, snapshot: bytes) -> Timestep:
        """Restore as `VectorEnv.restore` describes. Raises EnvError if the snapshot is not one of an equal vector with equal wrappers."""
        own = self._columns()
        if not own:
            return self._restored(self.env.restore(snapshot), {})
        inner, columns = unpack(snapshot, names=own, what=self.spec.id)
        return self._restored(self.env.restore(inner), columns)

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """Render as `SupportsRender.render` describes. Raises EnvError if the inner vector cannot."""
        if not isinstance(self.env, SupportsRender):
            raise EnvError(f"{self.spec.id} cannot be rendered; its vector has no `render`.")
        return self.env.render(environment)

    def truncate(self, environments: NDArray[np.int64]) -> None:
        """End the present episodes of these environments with the next step; see `ludus.envs.wrappers.rewards`."""
        self.env.truncate(environments)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close the inner vector."""
        self.env.close()

    @property
    def waited(self) -> float:
        """Return seconds spent so far waiting for other processes."""
        return float(getattr(self.env, "waited", 0.0))

    @property
    def restarts(self) -> int:
        """Return how many environments have been restarted so far after a fault."""
        return int(getattr(self.env, "restarts", 0))

    # ------------------------------------------------------------------------------------------ for kinds of wrappers

    def _forget(self) -> None:
        """Forget what was remembered, before a reset."""

    def _before(self, actions: tuple[Array, ...]) -> tuple[Array, ...]:
        return actions

    def _see(self, timestep: Timestep) -> Timestep:
        return timestep

    def _columns(self) -> Mapping[str, Array]:
        """Return what is remembered between steps."""
        return {}

    def _restored(self, timestep: Timestep, columns: Mapping[str, Array]) -> Timestep:
        """Return what `_see` last made of this timestep, with `columns` remembered from then."""
        return self._see(timestep)


class RowWrapper(Wrapper):
    """A wrapper that changes each observation by itself.

    Args:
        env: The inner vector.
        spaces: player -> the new space of its observations; other players' observations do not change.
        change: (player, slots int32[n], observations [n, *old shape], buffer [n, *new shape]) -> [n, *new shape], in the buffer or not.
    """

    def __init__(self, env: VectorEnv, spaces: Mapping[int, Box], change: Change) -> None:
        super().__init__(env, with_observations(env.spec, spaces))
        self._change = change
        self._players = sorted(spaces)
        rows = [env.num_envs * len(env.spec.agents_of(p)) for p in range(env.spec.num_players)]
        self._sides = [
            {p: np.empty((rows[p], *space.shape), space.dtype) for p, space in spaces.items()} for _ in range(2)
        ]
        self._now = 0

    def _see(self, timestep: Timestep) -> Timestep:
        due, ended = list(timestep.due), list(timestep.ended)
        side = self._sides[self._now]
        self._now ^= 1
        for p in self._players:
            slot, buffer = due[p].slot, side[p]
            due[p] = show(due[p], self._change(p, slot, due[p].observation, buffer[: len(slot)]))
            slot = ended[p].slot
            final = np.empty((len(slot), *buffer.shape[1:]), buffer.dtype) if len(slot) else buffer[:0]
            ended[p] = close(ended[p], self._change(p, slot, ended[p].observation, final) if len(slot) else final)
        return Timestep(tuple(due), tuple(ended), timestep.finished, timestep.state, timestep.final_state)


def show(due: ActionRequests, observation: Array) -> ActionRequests:
    """Return the same decisions with other observations."""
    return ActionRequests(due.slot, observation, due.mask, due.reward, due.first)


def close(ended: ClosedDecisions, observation: Array) -> ClosedDecisions:
    """Return the same closed decisions with other final observations."""
    return ClosedDecisions(ended.slot, ended.reward, ended.terminated, observation, ended.mask)


def with_observations(spec: EnvSpec, spaces: Mapping[int, Box]) -> EnvSpec:
    """Return the spec with other observation spaces for some players."""
    agents = (replace(a, observation=spaces.get(a.player, a.observation)) for a in spec.agents)
    return apart(replace(spec, agents=tuple(agents)), spaces)


def apart(spec: EnvSpec, players: Iterable[int]) -> EnvSpec:
    """Return the spec where something changed for these players alone: with others they are no longer interchangeable."""
    changed = set(players)
    parts = (tuple(p for p in group if (p in changed) == new) for group in spec.symmetry for new in (False, True))
    return replace(spec, symmetry=tuple(part for part in parts if part))


def refuse_enumerated(env: VectorEnv, name: str) -> None:
    """Raise ConfigError for a vector whose observations are ids."""
    if env.spec.enumeration is not None:
        raise ConfigError(
            f"{name} changes observations or actions, and {env.spec.id} is compiled: its observations are ids of information states. "
            'Give tree="off", so that it shows tensors.'
        )


def boxes(env: VectorEnv, players: Sequence[int] | None, name: str) -> dict[int, Box]:
    """Return the observation spaces of some players.

    Args:
        env: The vector.
        players: Numbers of players; None: all.
        name: The wrapper's name, for messages.

    Returns:
        player -> Box.

    Raises:
        ConfigError: A player does not exist, a space is not a Box, or the game is compiled.
    """
    refuse_enumerated(env, name)
    out = {}
    for p in chosen(env, players, name):
        space = env.spec.agents_of(p)[0].observation
        if not isinstance(space, Box):
            raise ConfigError(f"{name} takes observations in a Box; player {p} of {env.spec.id} has {space}.")
        out[p] = space
    return out


def chosen(env: VectorEnv, players: Sequence[int] | None, name: str) -> list[int]:
    """Return the players that an option `players` names.

    Args:
        env: The vector.
        players: Numbers of players; None: all.
        name: The wrapper's name, for messages.

    Raises:
        ConfigError: A player does not exist.
    """
    every = list(range(env.spec.num_players))
    if players is None:
        return every
    if not isinstance(players, list | tuple) or not players or not set(players) <= set(every):
        raise ConfigError(f"{name}: players={players!r} was given; {env.spec.id} has the players {every}.")
    return sorted(set(players))


def whole(value: object, *, least: int, what: str) -> int:
    """Return the value, if it is a whole number of at least `least`. Raises ConfigError that begins with `what`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{what}={value!r} was given; a whole number from {least} on is needed.")
    return int(value)


def number(value: object, *, what: str) -> float:
    """Return the value as a float, if it is a number and finite. Raises ConfigError that begins with `what`."""
    if not isinstance(value, int | float | np.number) or isinstance(value, bool) or not np.isfinite(value):
        raise ConfigError(f"{what}={value!r} was given; a finite number is needed.")
    return float(value)
