"""From the joint view of a team to replayed items: joint steps, the team's rewards for them, and what follows.

The team's reward of a joint step is the sum of the rewards of the agents that decided at it, each up to its own next
decision (γ is per joint step); where others decide before that, it counts for the last such step, so that no step is
credited with later effects. What follows is the next joint step of the piece. After a piece's last step, the agents are
present, with their bootstrap observation, that continue after a cut or that the episode's end truncated; others are
gone, and where none is left nothing is bootstrapped. An agent that does not decide at a step is absent: its observation
is zero, `present` is False, and it must have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.common.returns import gather_next, lambda_returns, n_step
from ludus.algorithms.common.space_checks import NormalizeRewards, state_features
from ludus.algorithms.common.statistics import RunningMoments
from ludus.core.types import Array, EnvSpec, SegmentEnd, State
from ludus.replay.trajectories import OF_ROWS, Joint, Trajectories, joint, rows_of

if TYPE_CHECKING:
    from torch import Tensor


class JointSteps(NamedTuple):
    """n-step targets of T joint steps: reward float64[T] and discount float64[T]; next_index int64[T], the joint step
    to bootstrap from, or -1 - b for what follows piece b (`returns.gather_next`); and span float64[T], Σ γ^k over the
    steps whose rewards were summed."""

    reward: NDArray[np.float64]
    discount: NDArray[np.float64]
    next_index: NDArray[np.int64]
    span: NDArray[np.float64]


def views(trajectories: Trajectories, spec: EnvSpec, seats: Sequence[int]) -> list[tuple[Trajectories, Joint]]:
    """Return, for each of these seats that has rows, the trajectories (`whole`) and their joint view. States are
    float32[T, S] and [B, S], as `state_features` returns them."""
    pairs, rows = [], whole(trajectories)
    played = set(rows.seat.tolist())
    for seat in seats:
        if seat in played:
            view = joint(rows, spec, player=seat)
            if view.state is not None and view.bootstrap_state is not None:
                sides = [
                    state_features(each, np.full(len(each), seat), seats) for each in (view.state, view.bootstrap_state)
                ]
                view = replace(view, state=sides[0], bootstrap_state=sides[1])
            pairs.append((rows, view))
    return pairs


def whole(trajectories: Trajectories) -> Trajectories:
    """Return trajectories in which every agent has one segment per episode. Several segments, of an agent that left and
    came back or of fragments that asynchronous workers deliver together, are concatenated: the result begins as the
    first and ends as the last. extras[ANEW] bool[T] is True at rows where an agent is back without memory."""
    rows = trajectories
    order = np.lexsort((rows.t[rows.start[:-1]], rows.agent, rows.episode))
    keys = np.stack([rows.episode[order], rows.agent[order].astype(np.int64)])
    new = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    if new.all():
        return rows
    first, last = np.append(True, new), np.append(new, True)
    start = np.cumsum(np.append(0, np.diff(rows.start)[order]))[:-1]
    row = rows_of(rows.start, order)
    places = {
        **dict.fromkeys(OF_ROWS, row),
        **dict.fromkeys(_OF_FIRST, order[first]),
        **dict.fromkeys(_OF_LAST, order[last]),
    }
    fields = {name: getattr(rows, name) for name in places}
    columns: dict[str, Any] = {name: None if c is None else c[places[name]] for name, c in fields.items()}
    anew = np.zeros(rows.num_rows, np.bool_)
    anew[start[1:][~new & (rows.tail[order[:-1]] != SegmentEnd.CUT)]] = True
    extras = {**{name: column[row] for name, column in rows.extras.items()}, ANEW: anew}
    return replace(rows, start=np.append(start[first], rows.num_rows), extras=extras, **columns)


ANEW = "anew"
_OF_FIRST = ("memory0", "agent", "seat", "episode", "version_lo")
_OF_LAST = ("tail", "bootstrap_observation", "bootstrap_mask", "bootstrap_state", "version_hi")


def left_over(view: Joint) -> NDArray[np.bool_]:
    """Return bool[B, n]: which agents are present after each piece's last step: those that decide next after a cut (the
    others' turn comes later, as within a piece); where none continues, those that were truncated when the last of all
    ended, and not those that left before."""
    cut, truncated = view.tail == SegmentEnd.CUT, view.tail == SegmentEnd.TRUNCATED
    if view.when is not None:
        when = np.where(cut, view.when, np.iinfo(np.int64).max)
        ended = np.where(view.tail >= 0, view.when, -1)
        truncated &= (ended == ended.max(axis=1, keepdims=True)) & ~cut.any(axis=1, keepdims=True)
        cut &= when == when.min(axis=1, keepdims=True)
    out: NDArray[np.bool_] = truncated | cut
    return out


def left_at(rows: Trajectories) -> NDArray[np.int64]:
    """Return when segments end: int64[S], equal for those of a team in an episode that end together. It is the step of
    the bootstrap observation; without `dt`, 0 of an agent's last segment of an episode, 1 of the one before."""
    last = rows.start[1:] - 1
    if rows.dt is not None:
        ends: NDArray[np.int64] = rows.t[last].astype(np.int64) + rows.dt[last]
        return ends
    order = np.lexsort((-rows.t[last], rows.agent, rows.episode))
    same = (np.diff(rows.episode[order]) == 0) & (np.diff(rows.agent[order]) == 0)
    place = np.arange(len(order))
    first = np.maximum.accumulate(np.where(np.append(True, ~same), place, 0))
    out = np.empty(len(order), np.int64)
    out[order] = place - first
    return out


class TeamRewards(NamedTuple):
    """reward float64[T] of a team, and how its pieces end for it, tail int8[B]."""

    reward: NDArray[np.float64]
    tail: NDArray[np.int8]

    @staticmethod
    def of(view: Joint) -> TeamRewards:
        """Return the team's rewards; a piece is CUT where an agent is left over, else TERMINATED."""
        tail = np.where(left_over(view).any(axis=1), SegmentEnd.CUT, SegmentEnd.TERMINATED).astype(np.int8)
        return TeamRewards(_earned(view), tail)


def _earned(view: Joint) -> NDArray[np.float64]:
    """Return the team's reward for each joint step, float64[T]: see the module."""
    out: NDArray[np.float64] = view.reward.sum(axis=1, dtype=np.float64)
    if view.dt is None or (view.dt[view.present] == 1).all():
        return out
    out[:] = 0.0
    until = np.where(view.present, view.t[:, None].astype(np.int64) + view.dt, 0)
    piece = np.repeat(np.arange(len(view.tail)), np.diff(view.start)) * (until.max() + 1)
    last = np.searchsorted(piece + view.t, piece[:, None] + until) - 1
    np.add.at(out, last[view.present], view.reward[view.present])
    return out


def team_steps(view: Joint, *, gamma: float, steps: int) -> JointSteps:
    """Return n-step targets of the team's rewards. (Sutton and Barto 2018, equation 7.1.)"""
    rewards = TeamRewards.of(view)
    sums = n_step(view.start, rewards.reward, rewards.tail, gamma, steps)
    return JointSteps(*sums, n_step(view.start, np.ones(len(view.t)), rewards.tail, gamma, steps)[0])


def left_over_values(view: Joint, values: Array) -> Array:
    """Return values [B, n, …] of the agents that are left over; zero (False) of the others."""
    out = values.copy()
    out[~left_over(view)] = 0
    return out


def bootstrap_masks(view: Joint) -> Array:
    """Return legal actions bool[B, n, A] after each piece; where they were not recorded, all actions of the agents that
    are left over."""
    assert view.mask is not None
    if view.bootstrap_mask is not None:
        return left_over_values(view, view.bootstrap_mask)
    return np.repeat(left_over(view)[..., None], view.mask.shape[-1], axis=2)


def joint_items(view: Joint, *, gamma: float, steps: int) -> dict[str, Array]:
    """Return joint steps as items, one per row.

    Returns:
        observation and next [T, n, *shape], action [T, n, …], present and next_present bool[T, n], reward, discount and
        span float32[T]; mask and next_mask bool[T, n, A] where there are masks; state and next_state float32[T, S]
        where it was recorded.
    """
    reward, discount, next_index, span = team_steps(view, gamma=gamma, steps=steps)
    columns = {
        "observation": view.observation,
        "action": view.action,
        "present": view.present,
        "reward": reward.astype(np.float32),
        "discount": discount.astype(np.float32),
        "span": span.astype(np.float32),
        "next": gather_next(view.observation, left_over_values(view, view.bootstrap_observation), next_index),
        "next_present": gather_next(view.present, left_over(view), next_index),
    }
    if view.mask is not None:
        columns |= {"mask": view.mask, "next_mask": gather_next(view.mask, bootstrap_masks(view), next_index)}
    if view.state is not None:
        assert view.bootstrap_state is not None
        columns |= {"state": view.state, "next_state": gather_next(view.state, view.bootstrap_state, next_index)}
    return columns


Rows = TypeVar("Rows", Array, "Tensor")


class RewardStatistics:
    """Normalisation of a team's rewards: none ("none"); divided by the standard deviation of discounted sums of rewards
    from each joint step to the end of the piece ("scale"); or with the mean subtracted and divided by the rewards'
    standard deviation ("standardise": values then start near their final level, which is fast; but where actions
    determine the length of episodes, it changes the optimum)."""

    def __init__(self, kind: NormalizeRewards, *, gamma: float, scale: float) -> None:
        """scale: Factor of "none"."""
        self._kind, self._gamma, self._scale = kind, gamma, scale
        self._moments = RunningMoments()

    def add(self, view: Joint) -> None:
        """Count a rollout's joint steps."""
        reward = TeamRewards.of(view).reward
        if self._kind == "scale":
            nothing, ends = np.zeros(len(view.t)), np.zeros(len(view.tail))
            reward = lambda_returns(view.start, reward, nothing, ends, self._gamma, 1.0)
        if self._kind != "none":
            self._moments.add(reward)

    def normalize(self, reward: Rows, span: Rows) -> Rows:
        """Return discounted sums of rewards float[…] as learners take them. span: float[…], Σ γ^k of the steps of each
        sum."""
        if self._kind == "none" or self._moments.count < 2:
            return reward * self._scale
        factor = float(1.0 / np.sqrt(self._moments.var + 1e-8))
        shift = float(self._moments.mean) if self._kind == "standardise" else 0.0
        return (reward - shift * span) * factor

    def state_dict(self) -> State:
        return self._moments.state_dict()

    def load_state_dict(self, state: State) -> None:
        self._moments.load_state_dict(state)


def versions(trajectories: Trajectories, view: Joint) -> NDArray[np.int32]:
    """Return the oldest weights that acted at each joint step, int32[T]."""
    of_row = np.repeat(trajectories.version_lo, np.diff(trajectories.start))
    newest = np.iinfo(np.int32).max
    out: NDArray[np.int32] = np.where(view.present, of_row[np.maximum(view.row, 0)], newest).min(axis=1)
    return out
