"""The compiled parts of observing: the rows of `features`, the central state, the mask; their columns are named in `observations`.

n bodies of the own side, m of theirs, k agents. x, y: metres, where nothing else is said.
"""

from __future__ import annotations

from math import atan2, pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel

_X, _Y = 54.4, 83.6  # metres in one unit
_HALF_WIDTH, _GOAL_HALF = 0.42, 0.044
_REACH = 50.0  # metres: relative positions and distances are divided by it
RUN = 0.8  # metres a step: a body at full speed
KICK = 3.0  # metres a step: a hard shot
HEIGHT = 5.0  # metres
_SPIN = 0.01  # radians a step
_BOX_X, _BOX_Y = 0.7, 0.24  # the penalty area: 16.5 of 55 metres deep, 20.2 wide to each side
_KICK_REACH = 2.0  # metres: how near the ball must be to be kicked, or slid at
_OWN, _THEIR = 0, 1
_AWAY = 1e3  # metres: added to the distance of those that were sent off
SHARED = 36
"""Columns that all agents of a side have in common: the last ones of `features`."""


class PlayerArrays(NamedTuple):
    """One side's bodies, as a `SideView` has them. has_ball: the body that has the ball, or -1."""

    position: NDArray[np.float64]  # [n, 2]
    velocity: NDArray[np.float64]  # [n, 2]
    tired: NDArray[np.float64]  # [n]
    yellow: NDArray[np.bool_]  # [n]
    active: NDArray[np.bool_]  # [n]
    role: NDArray[np.int64]  # [n]
    has_ball: int


class MatchMoment(NamedTuple):
    """The rest of a `SideView`.

    Attributes:
        ball: float64[3]; velocity and rotation likewise.
        was: The side that had the ball at the step before.
        duration: Steps of a whole match.
    """

    ball: NDArray[np.float64]  # [3]
    velocity: NDArray[np.float64]  # [3]
    rotation: NDArray[np.float64]  # [3]
    ball_side: int
    was: int
    own_goals: int
    their_goals: int
    steps_left: int
    mode: int
    duration: int


# --------------------------------------------------------------------------------------------------------------------
# The off-side line


@inner
def second_last(bodies, forward):  # type: ignore[no-untyped-def]
    """Return the second largest x of those on the pitch, seen in the direction `forward` (1 or -1); 1 where there are fewer than two."""
    last, second, count = -np.inf, -np.inf, 0
    for b in range(len(bodies.position)):
        if bodies.active[b]:
            x, count = forward * bodies.position[b, 0], count + 1
            if x > last:
                last, second = x, last
            elif x > second:
                second = x
    return second if count > 1 else 1.0


@inner
def lines(own, their, moment):  # type: ignore[no-untyped-def]
    """Return x beyond which the own side's bodies are off-side, and x below which theirs are."""
    ball = moment.ball[0]
    return max(second_last(their, 1.0), ball, 0.0), min(-second_last(own, -1.0), ball, 0.0)


# --------------------------------------------------------------------------------------------------------------------
# Columns. Each function writes from column c on and returns where it ends.


@inner
def write_one(row, c, at, width):  # type: ignore[no-untyped-def]
    """Write a one in column `at` of `width`, and zeros."""
    for i in range(width):
        row[c + i] = 1.0 if i == at else 0.0
    return c + width


@inner
def write_body(row, c, bodies, b):  # type: ignore[no-untyped-def]
    """Write x, y, velocity_x, velocity_y, speed, tired, yellow, active, has_ball."""
    dx, dy = bodies.velocity[b, 0] * _X / RUN, bodies.velocity[b, 1] * _Y / RUN
    row[c] = bodies.position[b, 0]
    row[c + 1] = bodies.position[b, 1] / _HALF_WIDTH
    row[c + 2], row[c + 3], row[c + 4] = dx, dy, sqrt(dx * dx + dy * dy)
    row[c + 5], row[c + 6], row[c + 7] = bodies.tired[b], bodies.yellow[b], bodies.active[b]
    row[c + 8] = bodies.has_ball == b
    return c + 9


@inner
def write_gap(row, c, dx, dy):  # type: ignore[no-untyped-def]
    """Write dx, dy, distance, direction_x, direction_y."""
    distance = sqrt(dx * dx + dy * dy)
    row[c], row[c + 1], row[c + 2] = dx / _REACH, dy / _REACH, distance / _REACH
    row[c + 3], row[c + 4] = dx / max(distance, 1e-6), dy / max(distance, 1e-6)
    return c + 5


@inner
def goal_angle(x, y):  # type: ignore[no-untyped-def]
    """Return the angle under which a place sees the opponents' goal, over pi; 0 on its line and behind."""
    gap, low, high = _X - x, -_GOAL_HALF * _Y - y, _GOAL_HALF * _Y - y
    return atan2(gap * (high - low), gap * gap + low * high) / pi if gap > 0 else 0.0


@inner
def write_zone(row, c, x, y):  # type: ignore[no-untyped-def]
    """Write one of own_box, own_third, middle, their_third, their_box; behind a goal line is no box."""
    zone = 2 if abs(x) <= 1 / 3 else 1 if x < 0 else 3
    if _BOX_X < abs(x) <= 1 and abs(y) < _BOX_Y:
        zone = 0 if x < 0 else 4
    return write_one(row, c, zone, 5)


@inner
def write_match(row, c, moment, line, defending):  # type: ignore[no-untyped-def]
    """Write the ball, whose it is, mode, off-side lines, goals and time."""
    ball, moves, turns = moment.ball, moment.velocity, moment.rotation
    row[c], row[c + 1], row[c + 2] = ball[0], ball[1] / _HALF_WIDTH, min(ball[2] / HEIGHT, 2.0)
    dx, dy = moves[0] * _X / KICK, moves[1] * _Y / KICK
    row[c + 3], row[c + 4], row[c + 5], row[c + 6] = dx, dy, moves[2], sqrt(dx * dx + dy * dy)
    row[c + 7], row[c + 8], row[c + 9] = turns[0] / _SPIN, turns[1] / _SPIN, turns[2] / _SPIN
    c = write_one(row, c + 10, moment.ball_side + 1, 3)
    c = write_one(row, c, moment.mode, 7)
    row[c], row[c + 1] = line, defending
    own, their = moment.own_goals, moment.their_goals
    row[c + 2], row[c + 3] = min(own / 5, 1.0), min(their / 5, 1.0)
    row[c + 4] = max(-1.0, min((own - their) / 3, 1.0))
    row[c + 5] = min(moment.steps_left / moment.duration, 1.0)
    return c + 6


@inner
def write_shared(row, c, moment, line, defending):  # type: ignore[no-untyped-def]
    """Write the columns that all agents have in common."""
    x, y = moment.ball[0], moment.ball[1]
    c = write_match(row, c, moment, line, defending)
    dx, dy = (1 - x) * _X, -y * _Y
    row[c], row[c + 1] = sqrt(dx * dx + dy * dy) / _REACH, goal_angle(x * _X, y * _Y)
    c = write_zone(row, c + 2, x, y)
    return write_one(row, c, moment.was + 1, 3)


# --------------------------------------------------------------------------------------------------------------------
# What one agent sees


@inner
def write_self(row, c, own, me, steered, sticky, designated):  # type: ignore[no-untyped-def]
    n = len(own.position)
    c = write_body(row, c, own, me)
    if not steered:
        row[c - 2] = 0.0  # active
    row[c] = designated
    c = write_one(row, c + 1, own.role[me], 10)
    c = write_one(row, c, me if steered else -1, n)
    for i in range(10):
        row[c + i] = sticky[i]
    return c + 10


@inner
def write_ball(row, c, own, me, moment, nearest):  # type: ignore[no-untyped-def]
    """Write the ball relative to the agent's body; approach: how fast it comes; near: whether it can be kicked; nearest_own: whether no
    mate is nearer."""
    dx = (moment.ball[0] - own.position[me, 0]) * _X
    dy = (moment.ball[1] - own.position[me, 1]) * _Y
    c = write_gap(row, c, dx, dy)
    row[c] = -(row[c - 2] * moment.velocity[0] * _X + row[c - 1] * moment.velocity[1] * _Y) / KICK
    row[c + 1] = dx * dx + dy * dy < _KICK_REACH * _KICK_REACH
    row[c + 2] = me == nearest
    return c + 3


@inner
def write_goals(row, c, own, me):  # type: ignore[no-untyped-def]
    x, y = own.position[me, 0] * _X, own.position[me, 1] * _Y
    c = write_gap(row, c, _X - x, -y)
    c = write_gap(row, c, -_X - x, -y)
    row[c] = goal_angle(x, y)
    return c + 1


@inner
def nearest_body(bodies, ball):  # type: ignore[no-untyped-def]
    """Return the first body on the pitch that is nearest to the ball, or -1."""
    best, least = -1, np.inf
    for b in range(len(bodies.position)):
        dx, dy = (bodies.position[b, 0] - ball[0]) * _X, (bodies.position[b, 1] - ball[1]) * _Y
        if bodies.active[b] and dx * dx + dy * dy < least:
            best, least = b, dx * dx + dy * dy
    return best


@inner
def sort_bodies(order, away, bodies, x, y, without):  # type: ignore[no-untyped-def]
    """Sort all bodies except `without` by their distance from a place (in units), the nearest first; those that were sent off come last."""
    count = 0
    for b in range(len(bodies.position)):
        if b == without:
            continue
        dx, dy = (bodies.position[b, 0] - x) * _X, (bodies.position[b, 1] - y) * _Y
        distance = sqrt(dx * dx + dy * dy) + (0.0 if bodies.active[b] else _AWAY)
        place = count
        while place > 0 and away[place - 1] > distance:
            away[place], order[place] = away[place - 1], order[place - 1]
            place -= 1
        away[place], order[place] = distance, b
        count += 1
    return count


@inner
def write_others(row, c, bodies, order, count, place, line, mates):  # type: ignore[no-untyped-def]
    """Write those bodies in their order: dx, dy, distance, the body itself, off_side (mates only), keeper."""
    for r in range(count):
        b = order[r]
        dx, dy = (bodies.position[b, 0] - place[0]) * _X, (bodies.position[b, 1] - place[1]) * _Y
        row[c], row[c + 1], row[c + 2] = dx / _REACH, dy / _REACH, sqrt(dx * dx + dy * dy) / _REACH
        c = write_body(row, c + 3, bodies, b)
        if mates:
            row[c] = bodies.position[b, 0] > line
            c += 1
        row[c] = bodies.role[b] == 0
        c += 1
    return c


@kernel
def write_features(out, own, their, moment, controlled, sticky, designated):  # type: ignore[no-untyped-def]
    """Write float32[k, F], the columns of `features`."""
    n, m, k = len(own.position), len(their.position), len(controlled)
    line, defending = lines(own, their, moment)
    nearest = nearest_body(own, moment.ball)
    order, away = np.empty(max(n, m), np.int64), np.empty(max(n, m))
    shared = out.shape[1] - SHARED
    for a in range(k):
        row, body = out[a], controlled[a]
        me = body if body >= 0 else n - 1  # an agent without a body sees as the last one does
        place = own.position[me]
        c = write_self(row, 0, own, me, body >= 0, sticky[a], body == designated)
        c = write_ball(row, c, own, me, moment, nearest)
        c = write_goals(row, c, own, me)
        row[c], row[c + 1] = place[0] > line, place[0] - line
        count = sort_bodies(order, away, own, place[0], place[1], me)
        c = write_others(row, c + 2, own, order, count, place, line, True)
        count = sort_bodies(order, away, their, place[0], place[1], -1)
        c = write_others(row, c, their, order, count, place, line, False)
        write_legal(row[c:shared], own, body, moment.ball, moment.ball_side, sticky[a])
        if a == 0:
            write_shared(row, shared, moment, line, defending)
        else:
            for i in range(
                shared, len(row)
            ):  # assigning a slice would compile an error with a shape in it, for seconds
                row[i] = out[0, i]


# --------------------------------------------------------------------------------------------------------------------
# The mask, and the central state


@inner
def write_legal(row, own, body, ball, ball_side, sticky):  # type: ignore[no-untyped-def]
    """Write the 19 actions by the rules `meaningful`."""
    row[:] = 0
    row[0] = 1
    if body < 0 or not own.active[body]:
        return
    dx, dy = (own.position[body, 0] - ball[0]) * _X, (own.position[body, 1] - ball[1]) * _Y
    near = dx * dx + dy * dy < _KICK_REACH * _KICK_REACH
    kick = ball_side != _THEIR and (near or own.has_ball == body)
    row[1:9] = 1
    row[9:13] = kick
    row[13] = 1
    row[14] = sticky[:8].any()
    row[15] = sticky[8]
    row[16] = ball_side != _OWN and near and not sticky[9]
    row[17] = kick
    row[18] = sticky[9]


@kernel
def write_mask(mask, own, ball, ball_side, controlled, sticky):  # type: ignore[no-untyped-def]
    """Write bool[k, 19]."""
    for a in range(len(controlled)):
        write_legal(mask[a], own, controlled[a], ball, ball_side, sticky[a])


@kernel
def write_state(out, own, their, moment, controlled, sticky):  # type: ignore[no-untyped-def]
    """Write float32[S], the columns of `CentralState`."""
    line, defending = lines(own, their, moment)
    c = write_match(out, 0, moment, line, defending)
    for bodies in (own, their):
        for b in range(len(bodies.position)):
            c = write_body(out, c, bodies, b)
            dx, dy = (bodies.position[b, 0] - moment.ball[0]) * _X, (bodies.position[b, 1] - moment.ball[1]) * _Y
            out[c] = sqrt(dx * dx + dy * dy) / _REACH
            c += 1
    for a in range(len(controlled)):
        c = write_one(out, c, controlled[a], len(own.position))
    for a in range(len(controlled)):
        for i in range(10):
            out[c + i] = sticky[a, i]
        c += 10
    return c
