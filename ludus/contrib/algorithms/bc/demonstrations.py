"""Recorded decisions as training data for networks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.information_states import InformationStates
from ludus.algorithms.common.space_checks import one_space
from ludus.backend.device import to_device
from ludus.contrib.algorithms.bc.models import CloneModel
from ludus.core import seeding
from ludus.core.errors import ConfigError, DataError
from ludus.core.player_names import PlayerNames
from ludus.core.types import Array, EnvSpec
from ludus.envs.config import unseen_options
from ludus.envs.spaces import Choices
from ludus.replay.parquet import Recorded, TrajectoryOrigin, check_spaces
from ludus.replay.trajectories import Trajectories, join, rows_of, select

# --------------------------------------------------------------------------------------------------------------------
# Whether trajectories were recorded where they are cloned.

_UNSEEN_WRAPPERS = frozenset({"clip_reward", "joint_state", "scale_reward", "sign_reward", "time_limit"})
"""What leaves what an agent sees and does in a decision as it is: rewards, lengths, what critics see."""


def check_environment(origin: TrajectoryOrigin, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError if an agent may observe or do something else than when the file was recorded, as far as the
    file records that. settings: id, wrappers and options of the scenario's `Environment`; the rest of it does not
    matter."""
    recorded = origin.notes.get("environment")
    if not isinstance(recorded, Mapping):
        return
    ours = json.loads(json.dumps(dict(settings)))
    for key in ("id", "wrappers", "options"):
        if key in recorded and _decisive(recorded[key]) != _decisive(ours.get(key)):
            raise ConfigError(
                f"the trajectories were recorded with env.{key}={json.dumps(recorded[key])}; the scenario has {json.dumps(ours.get(key))}, "
                f"where players may see or do something else. Give env.{key} as it was, or record in this environment."
            )


def _decisive(value: Any) -> Any:
    """Return an id, wrappers or options, without those that are irrelevant here."""
    if isinstance(value, list):
        return [item for item in value if not (isinstance(item, Mapping) and item.get("kind") in _UNSEEN_WRAPPERS)]
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if key not in unseen_options()}
    return value


def check_decisions(
    pieces: Sequence[Trajectories], origin: TrajectoryOrigin, env: EnvSpec, seats: tuple[int, ...]
) -> None:
    """Raise DataError for decisions that do not fit the environment's spaces. Limits of observations are not compared."""
    observation, action = one_space(env, seats, algorithm="behaviour cloning")
    check_spaces(pieces, origin, env, observation, action)


Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Demonstrations:
    """N decisions in S segments.

    Attributes:
        observation: [N, …], as in `Trajectories`.
        action: [N, …].
        mask: bool[N, A], or None.
        logp: float32[N], of the policy that decided.
        start: int64[S + 1].
        episode: int64[S].
        tail: int8[S].
        bootstrap_observation: [S, …].
        states: Information states of an enumerated game, whose observations are ids; or None.
    """

    observation: Array
    action: Array
    mask: NDArray[np.bool_] | None
    logp: NDArray[np.float32]
    start: Index
    episode: Index
    tail: NDArray[np.int8]
    bootstrap_observation: Array
    states: InformationStates | None

    def rows(self, segments: Index) -> Index:
        """Return the rows of some segments, concatenated."""
        return rows_of(self.start, segments)

    def policy_observations(self, rows: Index) -> Array:
        """Return observations [n, …] as policies receive them."""
        if self.states is not None:
            x: Array = self.states.x.numpy()[self.observation[rows] - self.states.base]
            return x
        return self.observation[rows]

    def tensors(self, rows: Index, model: CloneModel, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return (x, action, mask) of rows, on the device."""
        action = self.action[rows]
        mask = None
        if self.states is not None:
            mask = self.states.mask[self.observation[rows] - self.states.base]
        elif self.mask is not None:
            mask = self.mask[rows]
        return (
            to_device(model.rows(self.policy_observations(rows)), device),
            to_device(action.astype(np.int64) if model.choices else action, device),
            None if mask is None else to_device(mask, device),
        )


def matches_policy_name(policy: str, names: Sequence[str]) -> bool:
    """Return whether a file's policy is one of these names, as `demonstrations` takes them; without any, all are."""
    return not names or any(policy == name or (name[:1] == "@" and policy.endswith(name)) for name in names)


def numbered_policies(policies: Sequence[str], env: EnvSpec) -> list[str]:
    """Return names of policies as a file has them, with players by number where `policies` name agents or roles. Raise
    ConfigError for an unknown name."""
    names = PlayerNames.of(env)
    return [address for policy in policies for address in names.addresses(policy)]


def demonstrations(
    recorded: Recorded, env: EnvSpec, *, players: Sequence[int | str] = (), policies: Sequence[str] = ()
) -> tuple[Demonstrations, tuple[int, ...]]:
    """Return the decisions of these players and policies, and the players.

    Args:
        recorded: The recorded trajectories.
        env: Environment of the recording.
        players: Numbers, or names of agents or roles; (): all.
        policies: Names as the file has them, or with the name of an agent or role for the player; "@…" for any run in
            which that is a policy's name; (): all.

    Raises:
        ConfigError: Players or policies that the file does not have, or another environment than it was recorded in.
        DataError: Decisions that do not fit the environment's spaces.
    """
    origin = recorded.origin
    if origin.env != env.id:
        raise ConfigError(
            f"the trajectories are of {origin.env!r}; the scenario plays {env.id!r}. Name one that plays theirs."
        )
    seats = tuple(PlayerNames.of(env).players(players, what="players")) or origin.seats
    if wrong := [p for p in seats if p not in origin.seats]:
        raise ConfigError(f"players {wrong} were given; the file has decisions of players {list(origin.seats)}.")
    known = [piece.policy for piece in recorded.trajectories]
    named = {name: numbered_policies([name], env) for name in policies}
    if unknown := [
        name for name, forms in named.items() if not any(matches_policy_name(other, forms) for other in known)
    ]:
        raise ConfigError(f"policies {unknown} were given; the file has decisions of {', '.join(known)}.")
    chosen = [form for forms in named.values() for form in forms]
    pieces = [
        select(piece, np.flatnonzero(np.isin(piece.seat, seats)))
        for piece in recorded.trajectories
        if matches_policy_name(piece.policy, chosen)
    ]
    check_decisions(pieces, origin, env, seats)
    states = None if env.enumeration is None else InformationStates.of(env.enumeration, seats)
    whole = join(pieces)
    demos = Demonstrations(
        observation=whole.observation,
        action=whole.action,
        mask=whole.mask,
        logp=whole.logp,
        start=whole.start,
        episode=whole.episode,
        tail=whole.tail,
        bootstrap_observation=whole.bootstrap_observation,
        states=states,
    )
    if not len(demos.logp):
        raise DataError(f"there are no decisions of players {list(seats)} to learn from; record some.")
    _check_legal(demos, one_space(env, seats, algorithm="behaviour cloning")[1])
    return demos, seats


def _check_legal(demos: Demonstrations, space: Space[Any]) -> None:
    """Raise DataError for illegal actions. space: of the actions, as the environment has them."""
    mask, choices = demos.mask if demos.states is None else demos.states.mask, Choices.of(space)
    if mask is None or choices is None:
        return
    rows = np.arange(len(demos.action)) if demos.states is None else demos.observation - demos.states.base
    action = demos.action.reshape(len(demos.action), -1)
    inside = (action >= 0) & (action < choices.counts)
    legal = inside & choices.legal(mask, np.where(inside, action, 0), rows)
    if not legal.all():
        raise DataError(
            f"{int((~legal).any(axis=1).sum())} of the actions are not legal where they were taken; the file was changed."
        )


def split(demos: Demonstrations, *, share: float, seed: int) -> tuple[Index, Index]:
    """Return (segments to learn from, segments held out): of whole episodes, `share` of them, at least one if share >
    0. Raise ConfigError if nothing would be left to learn from."""
    episodes = np.unique(demos.episode)
    count = 0 if share == 0 else max(1, round(share * len(episodes)))
    if count >= len(episodes):
        raise ConfigError(
            f"{len(episodes)} episode{' is' if len(episodes) == 1 else 's are'} there, and {count} would be held out; record more, or give "
            "held_out=0."
        )
    out = np.random.default_rng(seeding.key(seed, "held out")).permutation(episodes)[:count]
    held = np.isin(demos.episode, out)
    return np.flatnonzero(~held), np.flatnonzero(held)
