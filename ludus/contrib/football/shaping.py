"""Rewards of a side: goals, and named shaping terms with weights, each a pure function of one step.

    rewards: {score: 1, checkpoints: 0.1, lost_ball: 0.02}

A term says what a step is worth to each of the side's k agents. A positive weight is the sensible one: what is bad is negative. Each agent
gets 1/k of its own reward, so that a goal is worth 1 to a side, however many agents it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.football.encoders import off_side_line
from ludus.contrib.football.events import Events, Follower, PlayerRef, ball_was_placed
from ludus.contrib.football.observation_kernels import RUN
from ludus.contrib.football.view import METRES, NOBODY, OWN, THEIR, SideView
from ludus.core.errors import ConfigError, UnknownName

__all__ = ["CHECKPOINTS", "TERMS", "ZERO_SUM", "Rewards", "StepContext"]

Earned = NDArray[np.float64] | float
"""float64[k], or the same for all agents."""
CHECKPOINTS = 10
"""Rings around the opponents' goal, from 0.99 to 0.19 of the unit of x away."""


class StepContext(NamedTuple):
    """One step of a match as a side sees it. collected: int64[k], the checkpoints that each agent had before."""

    before: SideView
    after: SideView
    events: Events
    collected: NDArray[np.int64]


# --------------------------------------------------------------------------------------------------------------------
# Goals


def score(context: StepContext) -> Earned:
    """Return goals for minus goals against, to all."""
    before, after = context.before.score, context.after.score
    return float((after[0] - before[0]) - (after[1] - before[1]))


def goal(context: StepContext) -> Earned:
    """Return 1 for a goal, to all."""
    return float(context.after.score[0] - context.before.score[0])


def conceded(context: StepContext) -> Earned:
    """Return -1 for a goal of the opponents, to all."""
    return float(context.before.score[1] - context.after.score[1])


def win(context: StepContext) -> Earned:
    """Return 1 at full time for more goals than the opponents, -1 for fewer, to all; 0 for matches that end before full time."""
    own, their = context.after.score
    return float((own > their) - (own < their)) if context.after.steps_left <= 0 else 0.0


def checkpoints(context: StepContext) -> Earned:
    """Return how many checkpoints each agent collects: gfootball's `CheckpointRewardWrapper`, which gives 0.1 for each.

    An agent that has the ball collects each of the ten rings around the opponents' goal once in a match, when it comes as near, in the
    pitch's own units; a goal gives every agent all that are left (Kurach et al., 2020, "Google Research Football", section 3).
    """
    return (_reached(context) - context.collected).astype(np.float64)


def _reached(context: StepContext) -> NDArray[np.int64]:
    """Return int64[k]: the checkpoints that each agent has after the step."""
    after, have = context.after, context.collected
    if score(context) == 1:
        return np.full_like(have, CHECKPOINTS)
    if after.ball_side != OWN:
        return have
    x, y, _ = after.ball.tolist()
    distance = ((x - 1) ** 2 + y**2) ** 0.5
    rings = sum(distance <= 0.99 - 0.8 / (CHECKPOINTS - 1) * ring for ring in range(CHECKPOINTS))
    return np.where(after.controlled == after.ball_body, np.maximum(have, rings), have)


# --------------------------------------------------------------------------------------------------------------------
# The ball


def ball_progress(context: StepContext) -> Earned:
    """Return how far the ball moved towards the opponents' goal line, 1 for half the pitch, to all.

    Nothing in a step in which the ball is put down, after a goal or for a restart. Potential-based except for these (Ng et al., 1999).
    """
    before, after = context.before, context.after
    return 0.0 if ball_was_placed(before, after) else float(after.ball[0] - before.ball[0])


def possession(context: StepContext) -> Earned:
    """Return 1 for each step in which the side has the ball, -1 where the opponents have it, to all."""
    return {OWN: 1.0, THEIR: -1.0}.get(context.after.ball_side, 0.0)


def completed_pass(context: StepContext) -> Earned:
    """Return 1 for a completed pass, to who passed."""
    done = context.events.completed
    return _to(context, NO_ONE if done is None else done[0])


def received_pass(context: StepContext) -> Earned:
    """Return 1 for a completed pass, to who received it."""
    done = context.events.completed
    return _to(context, NO_ONE if done is None else done[1])


def shot(context: StepContext) -> Earned:
    """Return 1 for a shot, to who shot."""
    return _to(context, context.events.shot)


def shot_on_target(context: StepContext) -> Earned:
    """Return 1 for a shot on target, to all; counted when it is kicked, or when it goes in."""
    return float(context.events.on_target == OWN)


def won_ball(context: StepContext) -> Earned:
    """Return 1 for a ball taken from the opponents, by interception or tackle, to who took it."""
    return _to(context, context.events.intercepted) + _to(context, context.events.tackled)


def lost_ball(context: StepContext) -> Earned:
    """Return -1 for a ball that the opponents took, by interception or tackle, to who had it last."""
    return -_to(context, context.events.lost)


def out_of_play(context: StepContext) -> Earned:
    """Return -1 for putting the ball out of play, to all."""
    return -float(context.events.out == OWN)


# --------------------------------------------------------------------------------------------------------------------
# Where they run, and how they play


def move_to_ball(context: StepContext) -> Earned:
    """Return, unless the side has the ball, how much nearer its nearest agent came to where the ball is now, to that agent.

    1 for a step at full speed. Nothing at restarts and goals.
    """
    after, before = context.after, context.before
    k = len(after.controlled)
    earned = np.zeros(k)
    steered = (after.controlled >= 0) & after.own_active[after.controlled]
    if after.ball_side == OWN or not steered.any() or ball_was_placed(before, after):
        return earned
    bodies, ball = after.controlled, after.ball[:2]
    now = _distances(after.own_position[bodies], ball)
    agent = int(np.where(steered, now, np.inf).argmin())
    then = _distances(before.own_position[bodies[agent]], ball)
    earned[agent] = (then - now[agent]) / RUN
    return earned


def off_side(context: StepContext) -> Earned:
    """Return -1 for each step in which an agent stands beyond the off-side line while its side has the ball, to that agent."""
    after = context.after
    if after.ball_side != OWN:
        return 0.0
    beyond = after.own_position[after.controlled, 0] > off_side_line(after)
    waits = (after.controlled >= 0) & after.own_active[after.controlled] & (after.controlled != after.ball_body)
    return -np.asarray(beyond & waits, np.float64)


def yellow_card(context: StepContext) -> Earned:
    """Return -1 for a yellow card, to who gets it."""
    new = context.after.own_yellow & ~context.before.own_yellow
    return -_of_bodies(context, new)


def red_card(context: StepContext) -> Earned:
    """Return -1 for being sent off, to who is."""
    return -_of_bodies(context, context.before.own_active & ~context.after.own_active)


NO_ONE = PlayerRef(NOBODY, -1)


def _to(context: StepContext, who: PlayerRef) -> NDArray[np.float64]:
    """Return 1 for the agent that steers that body, if it is one of the side's own. A single agent is rewarded for all that its side
    does."""
    k = len(context.after.controlled)
    if who.side != OWN:
        return np.zeros(k)
    return np.ones(1) if k == 1 else np.asarray(context.after.controlled == who.body, np.float64)


def _of_bodies(context: StepContext, which: NDArray[np.bool_]) -> NDArray[np.float64]:
    bodies = context.before.controlled
    return np.asarray((bodies >= 0) & which[bodies], np.float64)


def _distances(points: NDArray[np.float64], ball: NDArray[np.float64]) -> NDArray[np.float64]:
    gap = (points - ball) * METRES
    distance: NDArray[np.float64] = np.sqrt((gap**2).sum(axis=-1))
    return distance


TERMS: dict[str, Callable[[StepContext], Earned]] = {
    "score": score,
    "goal": goal,
    "conceded": conceded,
    "win": win,
    "checkpoints": checkpoints,
    "ball_progress": ball_progress,
    "possession": possession,
    "pass": completed_pass,
    "received_pass": received_pass,
    "shot": shot,
    "shot_on_target": shot_on_target,
    "won_ball": won_ball,
    "lost_ball": lost_ball,
    "out_of_play": out_of_play,
    "move_to_ball": move_to_ball,
    "off_side": off_side,
    "yellow_card": yellow_card,
    "red_card": red_card,
}
ZERO_SUM = frozenset({"score", "win", "ball_progress", "possession"})
"""What one side gains by these, the other loses."""


class Rewards:
    """Rewards of one side in a match: `begin` with its first view, then each step once."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        """Prepare the terms. weights: of terms by name. Raises UnknownName with the nearest names; ConfigError for no term, or a weight
        that is not finite."""
        for name, weight in weights.items():
            if name not in TERMS:
                raise UnknownName("football reward", name, sorted(TERMS))
            if not np.isfinite(weight):
                raise ConfigError(f"rewards: {name}: {weight} was given; a weight must be a finite number")
        if not weights:
            raise ConfigError("rewards: no term was given; name at least one, as in {score: 1}")
        self._terms = [(TERMS[name], float(weight)) for name, weight in weights.items()]
        self._follower = Follower()
        self._follows = not weights.keys().isdisjoint(_OF_EVENTS)
        self._collects = "checkpoints" in weights
        self._collected = np.zeros(0, np.int64)

    def begin(self, view: SideView) -> None:
        """Begin a match."""
        self._follower.begin(view)
        self._collected = np.zeros(len(view.controlled), np.int64)

    def __call__(self, before: SideView, after: SideView) -> NDArray[np.float64]:
        """Return float64[k]: what each of the side's agents earned by a step."""
        events = self._follower.see(before, after) if self._follows else _NOTHING
        context = StepContext(before, after, events, self._collected)
        earned = np.zeros(len(after.controlled))
        for term, weight in self._terms:
            earned += weight * term(context)
        if self._collects:
            self._collected = _reached(context)
        return earned / max(len(earned), 1)


_OF_EVENTS = {"pass", "received_pass", "shot", "shot_on_target", "won_ball", "lost_ball", "out_of_play"}
_NOTHING = Events()
