"""What the agents of one side observe, the central state, and which actions make sense: arrays over all k agents of the side at once.

`encoder(name, view)` knows the columns of one scenario; `encode(view, previous)` fills them. Both sides see alike, since a `View` always
plays to the right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, UnknownName
from ludus.envs.football.view import GOAL_HALF, HALF_WIDTH, METRES, OWN, ROLES, THEIR, Action, Mode, View

__all__ = ["ENCODERS", "MASKS", "CentralState", "Encoder", "encoder", "legal", "off_side_line"]

_Floats = NDArray[np.float64]
_Rows = NDArray[np.float32]


class Encoder(NamedTuple):
    """How a side's agents observe.

    names: one for each of the F columns. encode: the sight now, and at the step before (None at the first) -> float32[k, F].
    """

    names: tuple[str, ...]
    encode: Callable[[View, View | None], _Rows]


def encoder(name: str, like: View, *, duration: int = 3000) -> Encoder:
    """The encoder of that name, for sides with as many bodies as those of `like`. duration: steps of a whole match.

    Raises UnknownName with the nearest names.
    """
    if name not in ENCODERS:
        raise UnknownName("football observation", name, sorted(ENCODERS))
    return ENCODERS[name](len(like.own_position), len(like.their_position), duration)


# --------------------------------------------------------------------------------------------------------------------
# simple115


def _simple115(own: int, their: int, _duration: int) -> Encoder:
    """gfootball's `simple115v2`, equal to it to the bit: 11 bodies a side, what is missing filled with -1."""
    if own > 11 or their > 11:
        raise ConfigError(f"the football observation simple115 holds 11 bodies a side; {own} and {their} were given")
    axes = ("x", "y")
    names = [
        f"{side}_{body}_{what}{axis}"
        for side in ("own", "their")
        for what in ("", "velocity_")
        for body in range(11)
        for axis in axes
    ]
    names += [f"ball_{axis}" for axis in "xyz"] + [f"ball_velocity_{axis}" for axis in "xyz"]
    names += ["ball_nobody", "ball_own", "ball_their"]
    names += [f"controlled_{body}" for body in range(11)] + [f"mode_{mode.name.lower()}" for mode in Mode]

    def encode(view: View, previous: View | None) -> _Rows:
        del previous
        k = len(view.controlled)
        row = np.zeros(115, np.float32)
        row[:88] = -1
        for block, numbers in enumerate(
            (view.own_position, view.own_velocity, view.their_position, view.their_velocity)
        ):
            row[22 * block : 22 * block + numbers.size] = numbers.ravel()
        row[88:91] = view.ball
        row[91:94] = view.ball_velocity
        row[95 + view.ball_side] = 1
        row[108 + view.mode] = 1
        rows = np.empty((k, 115), np.float32)
        rows[:] = row
        steered = view.controlled >= 0
        rows[np.flatnonzero(steered), 97 + view.controlled[steered]] = 1
        return rows

    return Encoder(tuple(names), encode)


# --------------------------------------------------------------------------------------------------------------------
# floats


def _floats(own: int, their: int, _duration: int) -> Encoder:
    """The engine's numbers as they are, one after the other; who has the ball, the roles and the mode as one column a value."""
    names = _match_columns() + [f"score_{side}" for side in ("own", "their")] + ["steps_left"]
    for side, bodies in (("own", own), ("their", their)):
        for what in ("x", "y", "velocity_x", "velocity_y", "tired", "yellow", "active", "has_ball"):
            names += [f"{side}_{body}_{what}" for body in range(bodies)]
        names += [f"{side}_{body}_role_{role}" for body in range(bodies) for role in ROLES]
    shared = len(names)
    names += [f"controlled_{body}" for body in range(own)] + _sticky_columns()

    def encode(view: View, previous: View | None) -> _Rows:
        del previous
        rows = np.zeros((len(view.controlled), len(names)), np.float32)
        rows[:, :shared] = np.concatenate(
            [
                view.ball,
                view.ball_velocity,
                view.ball_rotation,
                _THREE[view.ball_side + 1],
                _SEVEN[view.mode],
                view.score,
                (view.steps_left,),
                *_columns(view, own=True),
                *_columns(view, own=False),
            ]
        )
        steered = view.controlled >= 0
        rows[np.flatnonzero(steered), shared + view.controlled[steered]] = 1
        rows[:, shared + own :] = view.sticky
        return rows

    return Encoder(tuple(names), encode)


def _match_columns() -> list[str]:
    names = [f"ball{what}_{axis}" for what in ("", "_velocity", "_rotation") for axis in "xyz"]
    return names + ["ball_nobody", "ball_own", "ball_their"] + [f"mode_{mode.name.lower()}" for mode in Mode]


def _sticky_columns() -> list[str]:
    return [f"held_{Action(a).name.lower()}" for a in (*range(1, 9), Action.SPRINT, Action.DRIBBLE)]


def _columns(view: View, *, own: bool) -> list[NDArray[Any]]:
    """One side's bodies: every number of all bodies, then the next one; roles body by body."""
    if own:
        at, moves, tired, yellow, active, role = (
            view.own_position,
            view.own_velocity,
            view.own_tired,
            view.own_yellow,
            view.own_active,
            view.own_role,
        )
    else:
        at, moves, tired, yellow, active, role = (
            view.their_position,
            view.their_velocity,
            view.their_tired,
            view.their_yellow,
            view.their_active,
            view.their_role,
        )
    ball = _has_ball(view, OWN if own else THEIR, len(at))
    return [at[:, 0], at[:, 1], moves[:, 0], moves[:, 1], tired, yellow, active, ball, _TEN[role].ravel()]


def _has_ball(view: View, side: int, bodies: int) -> _Floats:
    has = np.zeros(bodies)
    if view.ball_side == side and view.ball_body >= 0:
        has[view.ball_body] = 1
    return has


_THREE, _SEVEN, _TEN = np.eye(3), np.eye(7), np.eye(10)

# --------------------------------------------------------------------------------------------------------------------
# features: relative geometry. Distances in metres, divided so that most columns lie between -1 and 1.

_REACH = 50.0  # metres: relative positions and distances
_RUN = 0.8  # metres a step: a body at full speed
_KICK = 3.0  # metres a step: a hard shot
_HEIGHT = 5.0  # metres
_PITCH = np.array([1.0, HALF_WIDTH])
_BOX_X, _BOX_Y = 0.7, 0.24  # the penalty area: 16.5 of 55 metres deep, 20.2 wide to each side
_THIRD = 1 / 3
_THEIR_GOAL, _OWN_GOAL = np.array([1.0, 0.0]), np.array([-1.0, 0.0])
_POSTS = np.array([[1.0, -GOAL_HALF], [1.0, GOAL_HALF]])
_SELF = ("x", "y", "velocity_x", "velocity_y", "speed", "tired", "yellow", "active", "has_ball", "designated")
_BALL = ("dx", "dy", "distance", "direction_x", "direction_y", "approach", "near", "nearest_own")
_GOALS = ("dx", "dy", "distance", "direction_x", "direction_y")
_BODY = ("dx", "dy", "distance", "x", "y", "velocity_x", "velocity_y", "speed", "tired", "yellow", "active", "has_ball")
_ZONES = ("own_box", "own_third", "middle", "their_third", "their_box")


def _features(own: int, their: int, duration: int) -> Encoder:
    names = [f"self_{what}" for what in _SELF] + [f"self_role_{role}" for role in ROLES]
    names += [f"self_is_{body}" for body in range(own)] + _sticky_columns() + [f"ball_rel_{what}" for what in _BALL]
    names += [f"{goal}_goal_{what}" for goal in ("their", "own") for what in _GOALS] + ["their_goal_angle"]
    names += ["off_side", "off_side_margin"]
    mate, foe = (*_BODY, "off_side", "keeper"), (*_BODY, "keeper")
    names += [f"mate_{rank}_{what}" for rank in range(own - 1) for what in mate]
    names += [f"foe_{rank}_{what}" for rank in range(their) for what in foe]
    names += [f"legal_{action.name.lower()}" for action in Action]
    single = len(names)
    names += [f"ball_{axis}" for axis in "xyz"] + [f"ball_velocity_{axis}" for axis in "xyz"] + ["ball_speed"]
    names += [f"ball_rotation_{axis}" for axis in "xyz"] + ["ball_goal_distance", "ball_goal_angle"]
    names += [f"ball_{zone}" for zone in _ZONES] + ["ball_nobody", "ball_own", "ball_their"]
    names += ["ball_was_nobody", "ball_was_own", "ball_was_their"]
    names += [f"mode_{mode.name.lower()}" for mode in Mode]
    names += ["off_side_line", "their_off_side_line", "goals_own", "goals_their", "lead", "time_left"]

    def encode(view: View, previous: View | None) -> _Rows:
        k = len(view.controlled)
        out = np.empty((k, len(names)), np.float32)
        out[:, single:] = _shared(view, view if previous is None else previous, duration)
        own_table, their_table = _tables(view)
        at = view.own_position * METRES
        bodies = view.controlled  # -1 (nobody) sees as the last body does; `active` is then false
        me = at[bodies]
        ball = view.ball[:2] * METRES
        end = _self(out, view, own_table, bodies)
        end = _to_ball(out, end, view, at=at, me=me, ball=ball)
        end = _to_goals(out, end, me)
        line = off_side_line(view)
        beyond = view.own_position[:, 0] - line
        out[:, end] = beyond[bodies] > 0
        out[:, end + 1] = beyond[bodies]
        end += 2
        mates = np.concatenate([own_table, (beyond > 0)[:, None], (view.own_role == 0)[:, None]], axis=1)
        end = _sorted(out, end, mates, at=at, me=me, present=view.own_active, without=bodies)
        foes = np.concatenate([their_table, (view.their_role == 0)[:, None]], axis=1)
        end = _sorted(out, end, foes, at=view.their_position * METRES, me=me, present=view.their_active, without=None)
        out[:, end:single] = legal(view)
        return out

    return Encoder(tuple(names), encode)


def _self(out: _Rows, view: View, table: _Floats, bodies: NDArray[np.int64]) -> int:
    """Writes the columns of oneself from column 0 on; returns where they end."""
    k, own = len(bodies), len(view.own_role)
    out[:, :9] = table[bodies]
    out[:, 7] *= bodies >= 0
    out[:, 9] = bodies == view.designated
    out[:, 10:20] = _TEN[view.own_role[bodies]]
    out[:, 20 : 20 + own] = 0
    out[np.arange(k), 20 + bodies % own] = bodies >= 0
    out[:, 20 + own : 30 + own] = view.sticky
    return 30 + own


def _tables(view: View) -> tuple[_Floats, _Floats]:
    """Columns of each body that do not depend on who looks: x, y, velocity, speed, tired, yellow, active, has_ball."""
    return _table(view, OWN), _table(view, THEIR)


def _table(view: View, side: int) -> _Floats:
    own = side == OWN
    at, moves = (view.own_position, view.own_velocity) if own else (view.their_position, view.their_velocity)
    table = np.empty((len(at), 9))
    table[:, :2] = at / _PITCH
    table[:, 2:4] = moves * (METRES / _RUN)
    table[:, 4] = np.sqrt((table[:, 2:4] ** 2).sum(axis=1))
    table[:, 5] = view.own_tired if own else view.their_tired
    table[:, 6] = view.own_yellow if own else view.their_yellow
    table[:, 7] = view.own_active if own else view.their_active
    table[:, 8] = 0
    if view.ball_side == side and view.ball_body >= 0:
        table[view.ball_body, 8] = 1
    return table


def _to_ball(out: _Rows, start: int, view: View, *, at: _Floats, me: _Floats, ball: _Floats) -> int:
    gap = ball - me
    distance = np.sqrt((gap**2).sum(axis=1))
    towards = gap / np.maximum(distance, 1e-6)[:, None]
    moves = view.ball_velocity[:2] * METRES
    everyone = np.where(view.own_active, ((at - ball) ** 2).sum(axis=1), np.inf)
    out[:, start : start + 2] = gap / _REACH
    out[:, start + 2] = distance / _REACH
    out[:, start + 3 : start + 5] = towards
    out[:, start + 5] = -(towards @ moves) / _KICK
    out[:, start + 6] = distance < _KICK_REACH
    out[:, start + 7] = view.controlled == everyone.argmin()
    return start + 8


def _to_goals(out: _Rows, start: int, me: _Floats) -> int:
    for goal in (_THEIR_GOAL, _OWN_GOAL):
        gap = goal * METRES - me
        distance = np.sqrt((gap**2).sum(axis=1))
        out[:, start : start + 2] = gap / _REACH
        out[:, start + 2] = distance / _REACH
        out[:, start + 3 : start + 5] = gap / np.maximum(distance, 1e-6)[:, None]
        start += 5
    out[:, start] = _goal_angle(me)
    return start + 1


def _goal_angle(point: _Floats) -> _Floats:
    """The angle under which a point (metres) sees the opponents' goal, over pi; 0 on its line and behind."""
    ends = _POSTS * METRES - point[..., None, :]
    cross = ends[..., 0, 0] * ends[..., 1, 1] - ends[..., 0, 1] * ends[..., 1, 0]
    inner = (ends[..., 0, :] * ends[..., 1, :]).sum(axis=-1)
    angle: _Floats = np.arctan2(cross, inner) * (cross > 0) / np.pi
    return angle


def _sorted(
    out: _Rows,
    start: int,
    table: _Floats,
    *,
    at: _Floats,
    me: _Floats,
    present: NDArray[np.bool_],
    without: NDArray[np.int64] | None,
) -> int:
    """The bodies `at` (metres) as each agent sees them, the nearest first; those that were sent off come last; returns where they end."""
    gap = at - me[:, None]
    distance = np.sqrt((gap**2).sum(axis=2))
    key = np.where(present, distance, distance + 1e3)
    rows = np.arange(len(me))
    if without is not None:
        key[rows, without] = -1  # oneself comes first, and is left out
    order = key.argsort(axis=1, kind="stable")[:, 0 if without is None else 1 :]
    seen = np.empty((*order.shape, table.shape[1] + 3), np.float32)
    across = rows[:, None]
    seen[:, :, :2] = gap[across, order] / _REACH
    seen[:, :, 2] = distance[across, order] / _REACH
    seen[:, :, 3:] = table[order]
    width: int = seen.shape[1] * seen.shape[2]
    out[:, start : start + width] = seen.reshape(len(me), width)
    return start + width


def _shared(view: View, previous: View, duration: int) -> list[float]:
    """The columns that all agents of the side have in common."""
    x, y, z = view.ball.tolist()
    moves = (view.ball_velocity[:2] * METRES / _KICK).tolist()
    point = view.ball[:2] * METRES
    distance = float(np.sqrt(((_THEIR_GOAL * METRES - point) ** 2).sum()))
    own, their = view.score
    return [
        x,
        y / HALF_WIDTH,
        min(z / _HEIGHT, 2.0),
        *moves,
        float(view.ball_velocity[2]),
        (moves[0] ** 2 + moves[1] ** 2) ** 0.5,
        *(view.ball_rotation * 100).tolist(),
        distance / _REACH,
        float(_goal_angle(point)),
        *_zone(x, y),
        *_ONE_OF_3[view.ball_side + 1],
        *_ONE_OF_3[previous.ball_side + 1],
        *_ONE_OF_7[view.mode],
        off_side_line(view),
        _defending_line(view),
        min(own / 5, 1.0),
        min(their / 5, 1.0),
        max(-1.0, min((own - their) / 3, 1.0)),
        min(view.steps_left / duration, 1.0),
    ]


_ONE_OF_3, _ONE_OF_7 = _THREE.tolist(), _SEVEN.tolist()


def _zone(x: float, y: float) -> list[float]:
    """Where the ball is, one of `_ZONES`; behind a goal line counts with the third before it."""
    if abs(x) > _BOX_X and abs(x) <= 1 and abs(y) < _BOX_Y:
        return [1.0, 0, 0, 0, 0] if x < 0 else [0, 0, 0, 0, 1.0]
    return [0, float(x < -_THIRD), float(abs(x) <= _THIRD), float(x > _THIRD), 0]


def off_side_line(view: View) -> float:
    """x beyond which a body of this side would be off-side, were the ball played now.

    Law 11: nearer to the opponents' goal line than both the ball and the second-last opponent, and in the opponents' half.
    """
    last = np.sort(view.their_position[view.their_active, 0])
    second = float(last[-2]) if len(last) > 1 else 1.0
    return max(second, float(view.ball[0]), 0.0)


def _defending_line(view: View) -> float:
    """x below which an opponent would be off-side."""
    first = np.sort(view.own_position[view.own_active, 0])
    second = float(first[1]) if len(first) > 1 else -1.0
    return min(second, float(view.ball[0]), 0.0)


ENCODERS: dict[str, Callable[[int, int, int], Encoder]] = {
    "features": _features,
    "floats": _floats,
    "simple115": _simple115,
}

# --------------------------------------------------------------------------------------------------------------------
# The central state, for critics and mixers: the whole pitch from one side, absolute.


class CentralState:
    """The whole state as one side sees it, who is steered and what is held included: float32[S].

    Made for sides with as many bodies and agents as those of `like`. names: one for each column.
    """

    def __init__(self, like: View, *, duration: int = 3000) -> None:
        own, their, k = len(like.own_position), len(like.their_position), len(like.controlled)
        names = [*_match_columns(), "ball_speed", "off_side_line", "their_off_side_line", "goals_own", "goals_their"]
        names += ["lead", "time_left"]
        per_body = ("x", "y", "velocity_x", "velocity_y", "speed", "tired", "yellow", "active", "has_ball")
        for side, bodies in (("own", own), ("their", their)):
            names += [f"{side}_{body}_{what}" for body in range(bodies) for what in (*per_body, "ball_distance")]
        names += [f"agent_{agent}_is_{body}" for agent in range(k) for body in range(own)]
        names += [f"agent_{agent}_{column}" for agent in range(k) for column in _sticky_columns()]
        self.names = tuple(names)
        self._duration = duration
        self._bodies = np.eye(own + 1, own)  # the last row: nobody

    def __call__(self, view: View) -> NDArray[np.float32]:
        own_table, their_table = _tables(view)
        ball = view.ball[:2] * METRES
        goals, theirs = view.score
        moves = view.ball_velocity * _BALL_SCALE
        match = [
            *(view.ball * _BALL_PLACE),
            *moves,
            *(view.ball_rotation * 100),
            *_ONE_OF_3[view.ball_side + 1],
            *_ONE_OF_7[view.mode],
            float(np.sqrt((moves[:2] ** 2).sum())),
            off_side_line(view),
            _defending_line(view),
            min(goals / 5, 1.0),
            min(theirs / 5, 1.0),
            max(-1.0, min((goals - theirs) / 3, 1.0)),
            min(view.steps_left / self._duration, 1.0),
        ]
        parts = (
            match,
            _with_distance(own_table, view.own_position * METRES - ball),
            _with_distance(their_table, view.their_position * METRES - ball),
            self._bodies[view.controlled].ravel(),
            view.sticky.ravel(),
        )
        return np.concatenate(parts, dtype=np.float32, casting="same_kind")


_BALL_PLACE = np.array([1.0, 1 / HALF_WIDTH, 1 / _HEIGHT])
_BALL_SCALE = np.array([METRES[0] / _KICK, METRES[1] / _KICK, 1.0])


def _with_distance(table: _Floats, gap: _Floats) -> _Floats:
    distance = np.sqrt((gap**2).sum(axis=1, keepdims=True)) / _REACH
    return np.concatenate([table, distance], axis=1).ravel()


# --------------------------------------------------------------------------------------------------------------------
# Which actions make sense.

MASKS = ("meaningful", "tactical")
"""meaningful: without what does nothing. tactical: also without far shots and long passes in the box, and only kicks at own restarts."""
_KICK_REACH = 2.0  # metres: how near the ball must be to be kicked, or slid at
_KICKS = np.array([Action.LONG_PASS, Action.HIGH_PASS, Action.SHORT_PASS, Action.SHOT])
_LONG = np.array([Action.LONG_PASS, Action.HIGH_PASS])
_SHOT_X, _SHOT_Y = 0.64, 0.27  # Light-MALib's shooting range


def legal(view: View, rules: str = "meaningful") -> NDArray[np.bool_]:
    """bool[k, 19]: which actions make sense for each agent; idle always does. For a body that was sent off, nothing else does.

    meaningful: kicks and dribbling only with the ball (one's own, or nobody's or one's side's within 2 metres); sliding only within 2
    metres of a ball that the opponents have, and not while dribbling; releases only of what is held. Directions and sprint always.
    tactical (the rules of Light-MALib's feature encoder): besides, no shot from outside x > 0.64, |y| < 0.27, no long or high pass from
    inside; who takes the own side's goal kick or corner may only pass, who takes its penalty only shoot.
    """
    k = len(view.controlled)
    mask = np.ones((k, len(Action)), np.bool_)
    body = view.controlled
    gap = (view.ball[:2] - view.own_position[body]) * METRES
    near = (gap**2).sum(axis=1) < _KICK_REACH**2
    sticky = view.sticky
    if view.ball_side == THEIR:
        kick = np.zeros(k, np.bool_)
        slide = near & ~sticky[:, 9]
    else:
        kick = near | (body == view.ball_body) if view.ball_side == OWN else near
        slide = np.zeros(k, np.bool_)
    mask[:, _KICKS] = kick[:, None]
    mask[:, Action.DRIBBLE] = kick
    mask[:, Action.SLIDING] = slide
    mask[:, Action.RELEASE_DIRECTION] = sticky[:, :8].any(axis=1)
    mask[:, Action.RELEASE_SPRINT] = sticky[:, 8]
    mask[:, Action.RELEASE_DRIBBLE] = sticky[:, 9]
    if rules == "tactical":
        _restrict(mask, view, kick)
    mask[(body < 0) | ~view.own_active[body], 1:] = False
    return mask


def _restrict(mask: NDArray[np.bool_], view: View, kick: NDArray[np.bool_]) -> None:
    """Light-MALib's rules of where and when."""
    x, y = float(view.ball[0]), float(view.ball[1])
    if x < _SHOT_X or abs(y) > _SHOT_Y:
        mask[:, Action.SHOT] = False
    else:
        mask[:, _LONG] = False
    allowed = _RESTARTS.get(view.mode)
    if allowed is not None and view.ball_side != THEIR and allowed.mine(x):
        takers = kick.nonzero()[0]
        mask[takers, 1:] = False
        mask[takers[:, None], allowed.kicks] = True


class _Restart(NamedTuple):
    """A restart whose taker may only kick. mine: whether it is the own side's, by the ball's x."""

    mine: Callable[[float], bool]
    kicks: NDArray[np.int64]


_RESTARTS: dict[int, _Restart] = {
    Mode.GOAL_KICK: _Restart(lambda x: x < -0.7, _KICKS[:3]),
    Mode.CORNER: _Restart(lambda x: x > 0.9, _KICKS[:3]),
    Mode.PENALTY: _Restart(lambda x: x > 0.6, _KICKS[3:]),
}
