"""The decisions that are imitated, with what came after them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ludus.core.errors import ConfigError
from ludus.core.types import EnvSpec
from ludus.learners.bc.demonstrations import demonstrations
from ludus.learners.rewards.inputs import Index, Steps
from ludus.replay.parquet import Recorded, read_trajectories


def expert_steps(
    path: Path, env: EnvSpec, seats: tuple[int, ...], *, policies: Sequence[str] = (), episodes: int | None = None
) -> Steps:
    """What a file has of the players `seats` and of these policies (none named: of all), of its first `episodes`. Raises ConfigError for
    players, policies or episodes that it does not have and for another environment; DataError for what cannot be read or does not fit."""
    recorded = read_trajectories(path)
    try:
        return steps_in(recorded, env, seats, policies=policies, episodes=episodes)
    except ConfigError as error:
        raise ConfigError(f"learned_reward.demonstrations {str(path)!r}: {error}") from None


def steps_in(
    recorded: Recorded,
    env: EnvSpec,
    seats: tuple[int, ...],
    *,
    policies: Sequence[str] = (),
    episodes: int | None = None,
) -> Steps:
    """`expert_steps` of what was read."""
    players = [seat for seat in recorded.origin.seats if seat in seats]
    if not players:
        raise ConfigError(
            f"it has decisions of players {list(recorded.origin.seats)}, and the policy plays {list(seats)}; record theirs."
        )
    found, _ = demonstrations(recorded, env, players=players, policies=policies)
    length = np.diff(found.start)
    segments = np.flatnonzero(length > 0)
    if episodes is not None:
        numbers = np.unique(found.episode[segments])
        if len(numbers) < episodes:
            raise ConfigError(f"it has {len(numbers)} episodes of these players, and {episodes} are asked for.")
        segments = segments[np.isin(found.episode[segments], numbers[:episodes])]
    rows = found.rows(segments)
    return Steps.made(
        found.observation[rows],
        found.action[rows],
        None if found.mask is None else found.mask[rows],
        start=np.append(0, np.cumsum(length[segments])),
        tail=found.tail[segments],
        bootstrap=found.bootstrap_observation[segments],
        enumerated=env.enumeration is not None,
    )


def chosen(steps: Steps, rows: Index) -> Steps:
    """Some of the steps, int64[n]."""
    return replace(
        steps,
        observation=steps.observation[rows],
        action=steps.action[rows],
        mask=None if steps.mask is None else steps.mask[rows],
        after=steps.after[rows],
        known=steps.known[rows],
        ended=steps.ended[rows],
    )


def fingerprint(steps: Steps) -> int:
    """Of observations and actions: another number for other ones, nearly always."""
    return zlib.crc32(steps.action.tobytes(), zlib.crc32(steps.observation.tobytes()))
