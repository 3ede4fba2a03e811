"""From the joint view of a team to what is replayed: joint steps, what the team earned by them, and what came next.

What a team earns by a step is the sum of what its agents that decided at it received, each up to its own next decision (γ is per joint
step). Next is the following joint step of the piece. After a piece's last step those agents are there, with their tail observation, whose
tail is truncated or cut; agents whose tail is terminated are gone, and where nobody is left nothing is bootstrapped. An agent that decides
nothing at a step is absent: its observation is zero, `present` says so, and it must count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.returns import follow, n_step
from ludus.data.joint import Joint, joint
from ludus.data.trajectories import Trajectories
from ludus.errors import ScenarioError
from ludus.types import Array, EnvSpec, Tail


class Steps(NamedTuple):
    """Of T joint steps: reward float64[T] and discount float64[T] of n-step targets, and following int64[T], what they bootstrap from: a
    joint step, or -1 - b for what comes after piece b (`returns.follow`)."""

    reward: NDArray[np.float64]
    discount: NDArray[np.float64]
    following: NDArray[np.int64]


def views(trajectories: Trajectories, spec: EnvSpec, seats: Sequence[int]) -> list[Joint]:
    """The joint view of each of these seats that has rows; states are float32[T, S] and [B, S]. Raises DataError as `joint` does."""
    played = set(trajectories.seat.tolist())
    found = [joint(trajectories, spec, player=seat) for seat in seats if seat in played]
    return [replace(view, state=_flat(view.state), tail_state=_flat(view.tail_state)) for view in found]


def _flat(state: Array | None) -> Array | None:
    return None if state is None else np.ascontiguousarray(state, np.float32).reshape(len(state), -1)


def left_over(view: Joint) -> NDArray[np.bool_]:
    """bool[B, n]: which agents are there after each piece's last step."""
    out: NDArray[np.bool_] = (view.tail == Tail.TRUNCATED) | (view.tail == Tail.CUT)
    return out


class Rewards(NamedTuple):
    """reward float64[T] of a team, and how its pieces end for it, tail int8[B]."""

    reward: NDArray[np.float64]
    tail: NDArray[np.int8]

    @staticmethod
    def of(view: Joint) -> Rewards:
        """CUT where someone is left over, who goes on; else TERMINATED."""
        tail = np.where(left_over(view).any(axis=1), Tail.CUT, Tail.TERMINATED).astype(np.int8)
        return Rewards(view.reward.sum(axis=1, dtype=np.float64), tail)


def team_steps(view: Joint, *, gamma: float, steps: int) -> Steps:
    """n-step targets of the team's rewards. (Sutton and Barto 2018, equation 7.1.)"""
    rewards = Rewards.of(view)
    return Steps(*n_step(view.start, rewards.reward, rewards.tail, gamma, steps))


def tails(view: Joint, values: Array) -> Array:
    """values [B, n, …] of the agents that are left over; zero (False) of the others."""
    out = values.copy()
    out[~left_over(view)] = 0
    return out


def tail_masks(view: Joint) -> Array:
    """Legal actions bool[B, n, A] after each piece; where nobody recorded them, all of those who are left over."""
    assert view.mask is not None
    if view.tail_mask is not None:
        return tails(view, view.tail_mask)
    return np.repeat(left_over(view)[..., None], view.mask.shape[-1], axis=2)


def joint_items(view: Joint, *, gamma: float, steps: int) -> dict[str, Array]:
    """Joint steps as items, one a row.

    observation and next [T, n, *shape], action [T, n, …], present and next_present bool[T, n], reward and discount float64[T]; mask and
    next_mask bool[T, n, A] where there are masks; state and next_state float32[T, S] where it was recorded.
    """
    reward, discount, following = team_steps(view, gamma=gamma, steps=steps)
    columns = {
        "observation": view.observation,
        "action": view.action,
        "present": view.present,
        "reward": reward,
        "discount": discount,
        "next": follow(view.observation, tails(view, view.tail_observation), following),
        "next_present": follow(view.present, left_over(view), following),
    }
    if view.mask is not None:
        columns |= {"mask": view.mask, "next_mask": follow(view.mask, tail_masks(view), following)}
    if view.state is not None:
        assert view.tail_state is not None
        columns |= {"state": view.state, "next_state": follow(view.state, view.tail_state, following)}
    return columns


def versions(trajectories: Trajectories, view: Joint) -> NDArray[np.int32]:
    """The oldest weights that acted at each joint step, int32[T]."""
    of_row = np.repeat(trajectories.version_lo, np.diff(trajectories.start))
    newest = np.iinfo(np.int32).max
    out: NDArray[np.int32] = np.where(view.present, of_row[np.maximum(view.row, 0)], newest).min(axis=1)
    return out


def check_team(env: EnvSpec, *, algorithm: str, state: bool) -> None:
    """Raises ScenarioError for a compiled game, where no player has several agents; and, if it wants a `state`, where there is none."""
    if env.enumeration is not None:
        raise ScenarioError(
            f"{algorithm} learns how the agents of a team act together, from their observations; {env.id} is a compiled game of single "
            "agents. Use dqn there, or sac_discrete."
        )
    if state and (env.state is None or env.state.shape is None):
        raise ScenarioError(
            f"{algorithm} needs the environment's state, and {env.id} has none. Ask for it (option state=true), or put the wrapper "
            "joint_state around it, whose state is what all agents see."
        )


def state_size(env: EnvSpec) -> int:
    """Numbers in the environment's state; 0 where it has none."""
    return 0 if env.state is None else int(np.prod(env.state.shape or ()))
