"""A football side by rules: the body that reaches the ball first goes for it, who has it runs at the goal, passes when pressed and shoots
when the goal is open; the others offer themselves or stand between the ball and their goal.

`play` is a pure function of one side's sight. It needs no memory, and plays from either side, with any number of bodies. The ideas are
those of the rule-based entries of the 2020 Kaggle competition "Google Research Football with Manchester City F.C."; the numbers in
`Tactics` were found by play against the engine's own sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.football.view import GOAL_HALF, HALF_WIDTH, METRES, OWN, THEIR, Action, Mode, SideView

__all__ = ["Tactics", "play"]

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Tactics:
    """The numbers of the rules; lengths in metres, angles in radians.

    Attributes:
        shot: The owner of the ball shoots where it sees the goal under this angle.
        hurried_shot: The same without room and without a mate to pass to.
        room: Free space ahead that is as good as any more.
        pressed: Less than this is no room, and the owner passes.
        back: How far behind its passer a pass may go.
        lane: Least distance of a pass to the nearest opponent.
        dribble: How far a run must stay in play.
        straight: The worth in metres of room of a run straight at the goal.
        keep: The same of one in the present direction.
        reach: By how much opponents close in, in metres a step.
        chasers: Number of bodies that go for an opponent who has the ball.
        slide: From how near they slide, unless they have a card.
        behind: How far behind the opponent they aim.
        cover: How far behind the ball the others stand.
        ahead: How far before it those stand who offer themselves.
        width: Of their lanes to each side.
    """

    shot: float = 0.4
    hurried_shot: float = 0.3
    room: float = 6.0
    pressed: float = 0.5
    back: float = 2.0
    lane: float = 2.0
    dribble: float = 5.5
    straight: float = 8.0
    keep: float = 0.7
    reach: float = 0.1
    chasers: int = 2
    slide: float = 0.0
    behind: float = 0.5
    cover: float = 8.0
    ahead: float = 10.0
    width: float = 15.0


def play(view: SideView, tactics: Tactics | None = None) -> NDArray[np.int64]:
    """Choose an action of the engine's default set for each of the side's agents.

    Args:
        view: What the side sees.
        tactics: Numbers of the rules; None: the defaults.

    Returns:
        int64[k]; IDLE for an agent that steers no body.
    """
    return np.array(_Moment(view, tactics or Tactics()).actions(), np.int64)


# --------------------------------------------------------------------------------------------------------------------
# Geometry in metres, from the middle of the pitch.

_GOAL = float(METRES[0])
_POST = float(GOAL_HALF * METRES[1])
_SIDE = float(HALF_WIDTH * METRES[1])
_SPEED = 0.65  # of a sprint, in metres a step
_DRIBBLE = 0.55  # likewise, with the ball
_REACH = 0.5  # of a foot
_LOOK_AHEAD = (3, 6, 10, 15)  # steps
_HEAD = 2.2  # a ball above this flies over all bodies
_EIGHTH = math.pi / 4
_WAYS = (
    Action.RIGHT,
    Action.BOTTOM_RIGHT,
    Action.BOTTOM,
    Action.BOTTOM_LEFT,
    Action.LEFT,
    Action.TOP_LEFT,
    Action.TOP,
    Action.TOP_RIGHT,
)  # by eighths of a turn, as y grows downwards


def _distance(a: Point, b: Point) -> float:
    return math.hypot(b[0] - a[0], b[1] - a[1])


def _way(start: Point, end: Point) -> Action:
    """Return the direction that leads there."""
    return _WAYS[round(math.atan2(end[1] - start[1], end[0] - start[0]) / _EIGHTH) % 8]


def _gap(start: Point, end: Point, others: Sequence[Point]) -> float:
    """Return the distance from the straight line to the nearest of the others; infinity if there are none."""
    x, y = end[0] - start[0], end[1] - start[1]
    square = x * x + y * y + 1e-9
    nearest = math.inf
    for a, b in others:
        along = min(1.0, max(0.0, ((a - start[0]) * x + (b - start[1]) * y) / square))
        nearest = min(nearest, math.hypot(start[0] + along * x - a, start[1] + along * y - b))
    return nearest


def _opening(at: Point) -> float:
    """Return the angle in which the opponents' goal is seen."""
    ahead = max(_GOAL - at[0], 1e-6)
    return math.atan2(at[1] + _POST, ahead) - math.atan2(at[1] - _POST, ahead)


def _points(positions: NDArray[np.float64]) -> list[Point]:
    return [(x, y) for x, y in (positions * METRES).tolist()]


# --------------------------------------------------------------------------------------------------------------------


class _Chase(NamedTuple):
    """Where a body meets the ball, and after how many steps."""

    steps: float
    at: Point


class _Moment:
    """One step of one side."""

    def __init__(self, view: SideView, tactics: Tactics) -> None:
        self.view, self.tactics = view, tactics
        self.own = _points(view.own_position)
        self.ball: Point = (float(view.ball[0] * METRES[0]), float(view.ball[1] * METRES[1]))
        self.holder = view.ball_body if view.ball_side == OWN else -1
        self.agents = [(k, body) for k, body in enumerate(view.controlled.tolist()) if body >= 0]
        keepers = view.own_role == 0
        self.field = np.flatnonzero(view.own_active & ~keepers).tolist() or np.flatnonzero(view.own_active).tolist()
        self.held = view.sticky.tolist()
        field = (view.their_role != 0) & view.their_active
        self.opponents = _points(view.their_position[view.their_active])
        self.foes = _points(view.their_position[field])
        self.foes_pace = _points(view.their_velocity[field])
        self.pace = (0.0, 0.0) if self.holder < 0 else _points(view.own_velocity[self.holder : self.holder + 1])[0]

    def actions(self) -> list[int]:
        """Return an action for each agent."""
        chases = {body: self._chase(body) for body in self.field}
        first = sorted(self.field, key=lambda body: chases[body].steps)
        wanted = int(self.tactics.chasers) if self.view.ball_side == THEIR and len(first) > 2 else 1
        chasers, rest = first[:wanted], first[wanted:]
        actions = [int(Action.IDLE)] * len(self.view.controlled)
        for k, body in self.agents:
            if body == self.holder:
                actions[k] = int(self._holds(k, body))
            elif self._keeps(body):
                actions[k] = int(self._go(k, body, self._keeper()))
            elif self.holder >= 0:
                actions[k] = int(self._go(k, body, self._offer(body)))
            elif body in chasers:
                actions[k] = int(self._tackle(k, body, chases[body].at))
            else:
                actions[k] = int(self._go(k, body, self._cover(body, rest)))
        return actions

    def _keeps(self, body: int) -> bool:
        """Whether it stays in goal: a goalkeeper, unless he is all that there is of the side."""
        return bool(self.view.own_role[body] == 0) and body not in self.field

    # ---------------------------------------------------------------------------------------- moving

    def _direction(self, k: int) -> int:
        """Return the one that this agent holds, or 0."""
        held = self.held[k][:8]
        return held.index(True) + 1 if True in held else 0

    def _turn(self, k: int, way: Action, *, fast: bool) -> Action:
        """Run that way: one thing at a time is changed."""
        if self._direction(k) != way:
            return way
        if fast != self.held[k][8]:
            return Action.SPRINT if fast else Action.RELEASE_SPRINT
        return way

    def _go(self, k: int, body: int, to: Point, *, near: float = 1.0) -> Action:
        """Run there, and stand when it is near."""
        position = self.own[body]
        left = _distance(position, to)
        if left < near:
            if self.held[k][8]:
                return Action.RELEASE_SPRINT
            return Action.RELEASE_DIRECTION if self._direction(k) else Action.IDLE
        return self._turn(k, _way(position, to), fast=left > 3 * near)

    # ---------------------------------------------------------------------------------------- without the ball

    def _chase(self, body: int) -> _Chase:
        position = self.own[body]
        if self.view.ball_side == THEIR:
            x, y = (self.view.their_velocity[self.view.ball_body] * METRES).tolist()
            steps = min(_distance(position, self.ball) / _SPEED, 25.0)
            at = (self.ball[0] + 0.7 * steps * x - self.tactics.behind, self.ball[1] + 0.7 * steps * y)
            late = 5.0 if position[0] > self.ball[0] + 1.5 else 0.0  # who has been passed has to turn
            return _Chase((_distance(position, at) + late) / _SPEED, at)
        x, y = (self.view.ball_velocity[:2] * METRES).tolist()
        at = self.ball
        for steps in range(0, 60, 2):
            at = (self.ball[0] + 0.98 * steps * x, self.ball[1] + 0.98 * steps * y)
            low = self.view.ball[2] < _HEAD or steps > 15
            if low and _distance(position, at) <= _SPEED * steps + _REACH:
                return _Chase(steps, at)
        return _Chase(60 + _distance(position, at) / _SPEED, at)

    def _tackle(self, k: int, body: int, at: Point) -> Action:
        """Go for the ball, and slide at who has it when that is near."""
        near = self.view.ball_side == THEIR and _distance(self.own[body], self.ball) < self.tactics.slide
        if near and not self.view.own_yellow[body] and self.view.mode == Mode.NORMAL:
            return Action.SLIDING
        return self._go(k, body, at, near=0.0)

    def _lanes(self, bodies: list[int], body: int, width: float) -> float:
        """Return the y of this body's lane; the bodies share the pitch as they stand now."""
        across = sorted(bodies, key=lambda b: self.own[b][::-1])
        return width * (2 * across.index(body) / (len(across) - 1) - 1)

    def _offer(self, body: int) -> Point:
        """Return where to run while the side has the ball: one in three stays behind it, the others run ahead in lanes, on side."""
        mates = [b for b in self.field if b != self.holder]
        behind = sorted(mates, key=lambda b: self.own[b])[: len(mates) // 3]
        if body in behind:
            return min(self.ball[0] - self.tactics.ahead, 0.4 * _GOAL), 0.3 * self.ball[1]
        ahead = [b for b in mates if b not in behind]
        y = self._lanes(ahead, body, self.tactics.width) if len(ahead) > 1 else (-8.0 if self.ball[1] > 0 else 8.0)
        line = sorted(x for x, _ in self.opponents)[-2] if len(self.opponents) > 1 else _GOAL
        x = min(self.ball[0] + self.tactics.ahead, max(line, self.ball[0]) - 1.0, 0.85 * _GOAL)
        return x, y

    def _cover(self, body: int, bodies: list[int]) -> Point:
        """Return a place between the ball and the own goal."""
        y = self._lanes(bodies, body, 0.6 * self.tactics.width) if len(bodies) > 1 else 0.0
        x = max(-0.85 * _GOAL, min(self.ball[0] - self.tactics.cover, 0.4 * _GOAL))
        return x, 0.5 * y + 0.35 * self.ball[1]

    def _keeper(self) -> Point:
        """Return the place on the line from the ball to the middle of the goal, two metres out."""
        back = max(_distance(self.ball, (-_GOAL, 0.0)), 2.0)
        return -_GOAL + 2.0 * (self.ball[0] + _GOAL) / back, 2.0 * self.ball[1] / back

    # ---------------------------------------------------------------------------------------- with the ball

    def _holds(self, k: int, body: int) -> Action:
        position = self.own[body]
        if self.view.mode == Mode.PENALTY:
            return Action.SHOT
        if self.view.mode != Mode.NORMAL or self._keeps(body):
            return self._passes(k, body, back=30.0) or Action.SHORT_PASS
        opening = _opening(position)
        if opening > self.tactics.shot and self.view.own_velocity[body, 0] >= 0:
            return Action.SHOT
        way, room = self._dribble(k, body)
        if room < self.tactics.pressed:
            if (passed := self._passes(k, body, back=self.tactics.back)) is not None:
                return passed
            if opening > self.tactics.hurried_shot:
                return Action.SHOT
        return self._turn(k, way, fast=True)

    def _passes(self, k: int, body: int, *, back: float) -> Action | None:
        """Pass to the mate that is furthest ahead and free; None if there is none. The passer turns there first."""
        position, best, target = self.own[body], -math.inf, None
        for mate, mate_position in enumerate(self.own):
            length = _distance(position, mate_position)
            if (
                mate == body
                or mate not in self.field
                or not 4.0 < length < 30.0
                or mate_position[0] < position[0] - back
            ):
                continue
            gap = _gap(position, mate_position, self.foes)
            value = mate_position[0] + 2.0 * min(gap, 6.0) - 0.3 * abs(length - 12.0)
            if gap > self.tactics.lane and value > best:
                best, target = value, mate_position
        if target is None:
            return None
        way = _way(position, target)
        if self._direction(k) != way:
            return way
        return Action.SHORT_PASS if _distance(position, target) < 22.0 else Action.HIGH_PASS

    def _dribble(self, k: int, body: int) -> tuple[Action, float]:
        """Return the way with most room and progress, and its room: metres that are left, on the next steps of the run, between who runs
        and the opponents, who run on as they do now and turn towards the ball."""
        position = self.own[body]
        goal = (_GOAL - 2.0, 0.0) if position[0] > 0.4 * _GOAL else (position[0] + 20.0, 0.7 * position[1])
        wanted = math.atan2(goal[1] - position[1], goal[0] - position[0])
        best, way, left = -math.inf, Action.RIGHT, 0.0
        for eighth, candidate in enumerate(_WAYS):
            angle = eighth * _EIGHTH
            x, y = math.cos(angle), math.sin(angle)
            end = (position[0] + self.tactics.dribble * x, position[1] + self.tactics.dribble * y)
            if abs(end[1]) > _SIDE - 1.0 or end[0] > _GOAL:
                continue
            room = self._room(position, (x, y))
            value = min(room, self.tactics.room) + self.tactics.straight * math.cos(angle - wanted)
            value += self.tactics.keep * (candidate == self._direction(k))
            if value > best:
                best, way, left = value, candidate, room
        return way, left

    def _room(self, position: Point, way: Point) -> float:
        room = math.inf
        turn = 3.0 if way[0] * self.pace[0] + way[1] * self.pace[1] < 0.2 else 0.0  # steps that it takes to turn round
        for (x, y), (u, v) in zip(self.foes, self.foes_pace, strict=True):
            for steps in _LOOK_AHEAD:
                run = _DRIBBLE * max(steps - turn, 0.0)
                nearest = math.hypot(
                    position[0] + run * way[0] - x - steps * u, position[1] + run * way[1] - y - steps * v
                )
                room = min(room, nearest - self.tactics.reach * steps)
        return room
