"""The decisions that are imitated, with what followed them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ludus.contrib.algorithms.bc.demonstrations import demonstrations, matches_policy_name, numbered_policies
from ludus.contrib.algorithms.learned_rewards.inputs import Index, Steps
from ludus.core.errors import ConfigError
from ludus.core.types import EnvSpec
from ludus.replay.parquet import Recorded, read_trajectories


def expert_steps(
    path: Path, env: EnvSpec, seats: tuple[int, ...], *, policies: Sequence[str] = (), episodes: int | None = None
) -> Steps:
    """Return the file's decisions of the players `seats` and of these policies (none named: all), of its first
    `episodes`.

    In a file in which each player has episodes of its own, episodes are taken from all players and their policies in
    turn.

    Raises:
        ConfigError: A player has no decisions, policies or episodes are missing, or the environment is another.
        DataError: The file cannot be read or does not fit.
    """
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
    """Return `expert_steps` of a file that was read."""
    players = [seat for seat in recorded.origin.seats if seat in seats]
    if missing := [seat for seat in seats if seat not in players]:
        raise ConfigError(
            f"it has decisions of players {list(recorded.origin.seats)}, and the policy plays {list(seats)}; record those of {missing} too."
        )
    policies = numbered_policies(policies, env)
    demos, _ = demonstrations(recorded, env, players=players, policies=policies)
    seat, policy = _owners(recorded, players, policies)
    length = np.diff(demos.start)
    segments = np.flatnonzero(length > 0)
    if missing := sorted(set(players) - set(seat[segments].tolist())):
        of_them = f" by {', '.join(policies)}" if policies else ""
        raise ConfigError(
            f"it has no decisions of players {missing}{of_them}, and the policy plays {list(seats)}. Record theirs too, or name policies "
            "that play them."
        )
    if episodes is not None:
        numbers = _in_turn(demos.episode[segments], seat[segments], policy[segments])
        if len(numbers) < episodes:
            raise ConfigError(f"it has {len(numbers)} episodes of these players, and {episodes} are asked for.")
        segments = segments[np.isin(demos.episode[segments], numbers[:episodes])]
        if missing := sorted(set(players) - set(seat[segments].tolist())):
            raise ConfigError(
                f"its first {episodes} episodes have no decisions of players {missing}, and the policy plays {list(seats)}; ask for more."
            )
    rows = demos.rows(segments)
    return Steps.from_segments(
        demos.observation[rows],
        demos.action[rows],
        None if demos.mask is None else demos.mask[rows],
        start=np.append(0, np.cumsum(length[segments])),
        tail=demos.tail[segments],
        bootstrap=demos.bootstrap_observation[segments],
        enumerated=env.enumeration is not None,
    )


def _owners(recorded: Recorded, players: Sequence[int], policies: Sequence[str]) -> tuple[Index, Index]:
    """Return (player, number of the policy in the file) int64[S] of each segment that `demonstrations` finds."""
    seat, policy = [], []
    for number, piece in enumerate(recorded.trajectories):
        if matches_policy_name(piece.policy, policies):
            seat.append(piece.seat[np.isin(piece.seat, players)].astype(np.int64))
            policy.append(np.full(len(seat[-1]), number, np.int64))
    return np.concatenate(seat), np.concatenate(policy)


def _in_turn(episode: Index, seat: Index, policy: Index) -> Index:
    """Return the episodes of segments in the order in which they are used: ascending, where players share them. Where
    each is of one player, those of all players and of each one's policies in turn, so that the first few are of all."""
    numbers, first, where = np.unique(episode, return_index=True, return_inverse=True)
    seat_of, policy_of = seat[first], policy[first]
    if (seat != seat_of[where]).any():
        return numbers
    many = int(policy.max(initial=0)) + 1
    kinds, kind = np.unique(seat_of * many + policy_of, return_inverse=True)
    among = np.arange(len(kinds)) - np.searchsorted(kinds // many, kinds // many)  # a player's policies, from 0
    order = np.argsort(kind, kind="stable")
    turn = np.empty(len(numbers), np.int64)
    turn[order] = np.arange(len(numbers)) - np.searchsorted(kind[order], kind[order])
    return numbers[np.lexsort((seat_of, among[kind], turn))]


def chosen(steps: Steps, rows: Index) -> Steps:
    """Return some of the steps, int64[n]."""
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
    """Return a checksum of observations and actions."""
    return zlib.crc32(steps.action.tobytes(), zlib.crc32(steps.observation.tobytes()))
