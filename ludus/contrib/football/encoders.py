"""What the agents of one side observe, the central state, and which actions make sense: arrays over all k agents of the side.

`encoder(name, view)` knows the columns of one scenario; `encode(view, previous)` fills them. Both sides see the same way, since a
`SideView` always
plays to the right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.football.observation_kernels import (
    MatchMoment,
    PlayerArrays,
    write_features,
    write_mask,
    write_state,
)
from ludus.contrib.football.view import OWN, ROLES, THEIR, Action, Mode, SideView
from ludus.core.errors import ConfigError, UnknownName

__all__ = ["ENCODERS", "MASKS", "CentralState", "Encoder", "encoder", "legal", "off_side_line"]

_Floats = NDArray[np.float64]
_Rows = NDArray[np.float32]


class Encoder(NamedTuple):
    """How a side's agents observe.

    Attributes:
        names: One for each of the F columns.
        encode: (the view now, the view at the step before or None) -> float32[k, F].
    """

    names: tuple[str, ...]
    encode: Callable[[SideView, SideView | None], _Rows]


def encoder(name: str, like: SideView, *, duration: int = 3000) -> Encoder:
    """Return an encoder of observations.

    Args:
        name: A name of `ENCODERS`.
        like: A view of sides with as many bodies.
        duration: Steps of a whole match.

    Raises:
        UnknownName: There is no such encoder; with the nearest names.
    """
    if name not in ENCODERS:
        raise UnknownName("football observation", name, sorted(ENCODERS))
    return ENCODERS[name](len(like.own_position), len(like.their_position), duration)


# --------------------------------------------------------------------------------------------------------------------
# simple115


def _simple115(own: int, their: int, _duration: int) -> Encoder:
    """Return the encoder of gfootball's `simple115v2`, bitwise identical to it: 11 bodies a side, what is missing filled with -1."""
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

    def encode(view: SideView, previous: SideView | None) -> _Rows:
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
    """Return the encoder of the engine's numbers as they are, concatenated; who has the ball, the roles and the mode as one column a
    value."""
    names = _match_columns() + [f"score_{side}" for side in ("own", "their")] + ["steps_left"]
    for side, bodies in (("own", own), ("their", their)):
        for what in ("x", "y", "velocity_x", "velocity_y", "tired", "yellow", "active", "has_ball"):
            names += [f"{side}_{body}_{what}" for body in range(bodies)]
        names += [f"{side}_{body}_role_{role}" for body in range(bodies) for role in ROLES]
    shared = len(names)
    names += [f"controlled_{body}" for body in range(own)] + _sticky_columns()

    def encode(view: SideView, previous: SideView | None) -> _Rows:
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


def _columns(view: SideView, *, own: bool) -> list[NDArray[Any]]:
    """Return one side's bodies: every number of all bodies, then the next one; roles body by body."""
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


def _has_ball(view: SideView, side: int, bodies: int) -> _Floats:
    has = np.zeros(bodies)
    if view.ball_side == side and view.ball_body >= 0:
        has[view.ball_body] = 1
    return has


_THREE, _SEVEN, _TEN = np.eye(3), np.eye(7), np.eye(10)

# --------------------------------------------------------------------------------------------------------------------
# features: relative geometry. Distances in metres, divided so that nearly all columns lie between -1 and 1.

_PLACE = ("x", "y", "velocity_x", "velocity_y", "speed", "tired", "yellow", "active", "has_ball")
_GAP = ("dx", "dy", "distance", "direction_x", "direction_y")
_MATCH = ("off_side_line", "their_off_side_line", "goals_own", "goals_their", "lead", "time_left")
_ZONES = ("own_box", "own_third", "middle", "their_third", "their_box")


def _features(own: int, their: int, duration: int) -> Encoder:
    names = [f"self_{what}" for what in (*_PLACE, "designated")] + [f"self_role_{role}" for role in ROLES]
    names += [f"self_is_{body}" for body in range(own)] + _sticky_columns()
    names += [f"ball_rel_{what}" for what in (*_GAP, "approach", "near", "nearest_own")]
    names += [f"{goal}_goal_{what}" for goal in ("their", "own") for what in _GAP] + ["their_goal_angle"]
    names += ["off_side", "off_side_margin"]
    other = ("dx", "dy", "distance", *_PLACE)
    names += [f"mate_{rank}_{what}" for rank in range(own - 1) for what in (*other, "off_side", "keeper")]
    names += [f"foe_{rank}_{what}" for rank in range(their) for what in (*other, "keeper")]
    names += [f"legal_{action.name.lower()}" for action in Action]
    names += _scaled_columns() + ["ball_goal_distance", "ball_goal_angle"] + [f"ball_{zone}" for zone in _ZONES]
    names += ["ball_was_nobody", "ball_was_own", "ball_was_their"]

    def encode(view: SideView, previous: SideView | None) -> _Rows:
        rows = np.empty((len(view.controlled), len(names)), np.float32)
        was = view.ball_side if previous is None else previous.ball_side
        moment = _moment(view, was=was, duration=duration)
        write_features(rows, _own(view), _their(view), moment, view.controlled, view.sticky, view.designated)
        return rows

    return Encoder(tuple(names), encode)


def _scaled_columns() -> list[str]:
    """Return the ball, whose it is, the mode, off-side lines, goals and time."""
    names = [*(f"ball_{axis}" for axis in "xyz"), *(f"ball_velocity_{axis}" for axis in "xyz"), "ball_speed"]
    names += [f"ball_rotation_{axis}" for axis in "xyz"] + ["ball_nobody", "ball_own", "ball_their"]
    return names + [f"mode_{mode.name.lower()}" for mode in Mode] + list(_MATCH)


def _own(view: SideView) -> PlayerArrays:
    has_ball = view.ball_body if view.ball_side == OWN else -1
    at, moves, tired = view.own_position, view.own_velocity, view.own_tired
    return PlayerArrays(at, moves, tired, view.own_yellow, view.own_active, view.own_role, has_ball)


def _their(view: SideView) -> PlayerArrays:
    has_ball = view.ball_body if view.ball_side == THEIR else -1
    at, moves, tired = view.their_position, view.their_velocity, view.their_tired
    return PlayerArrays(at, moves, tired, view.their_yellow, view.their_active, view.their_role, has_ball)


def _moment(view: SideView, *, was: int, duration: int) -> MatchMoment:
    own, their = view.score
    ball, moves, turns = view.ball, view.ball_velocity, view.ball_rotation
    return MatchMoment(ball, moves, turns, view.ball_side, was, own, their, view.steps_left, view.mode, duration)


def off_side_line(view: SideView) -> float:
    """Return x beyond which a body of this side would be off-side, were the ball played now.

    Law 11: nearer to the opponents' goal line than both the ball and the second-last opponent, and in the opponents' half.
    """
    last = sorted(view.their_position[view.their_active, 0].tolist())
    second = last[-2] if len(last) > 1 else 1.0
    return max(second, float(view.ball[0]), 0.0)


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

    def __init__(self, like: SideView, *, duration: int = 3000) -> None:
        own, their, k = len(like.own_position), len(like.their_position), len(like.controlled)
        names = _scaled_columns()
        for side, bodies in (("own", own), ("their", their)):
            names += [f"{side}_{body}_{what}" for body in range(bodies) for what in (*_PLACE, "ball_distance")]
        names += [f"agent_{agent}_is_{body}" for agent in range(k) for body in range(own)]
        names += [f"agent_{agent}_{column}" for agent in range(k) for column in _sticky_columns()]
        self.names = tuple(names)
        self._duration = duration

    def __call__(self, view: SideView) -> NDArray[np.float32]:
        state = np.empty(len(self.names), np.float32)
        moment = _moment(view, was=view.ball_side, duration=self._duration)
        write_state(state, _own(view), _their(view), moment, view.controlled, view.sticky)
        return state


# --------------------------------------------------------------------------------------------------------------------
# Which actions make sense.

MASKS = ("meaningful", "tactical")
"""meaningful: without what does nothing. tactical: also without far shots and long passes in the box, and only kicks at own restarts."""
_KICKS = np.array([Action.LONG_PASS, Action.HIGH_PASS, Action.SHORT_PASS, Action.SHOT])
_LONG = np.array([Action.LONG_PASS, Action.HIGH_PASS])
_SHOT_X, _SHOT_Y = 0.64, 0.27  # Light-MALib's shooting range


def legal(view: SideView, rules: str = "meaningful") -> NDArray[np.bool_]:
    """Return which actions make sense for each agent. IDLE always does; for a body that was sent off, nothing else does.

    Args:
        view: What the side sees.
        rules: "meaningful": kicks and dribbling only with the ball (one's own, or a ball without an owner or of one's side within 2
            metres); sliding only within 2 metres of a ball that the own side does not have, and not while dribbling; releases only of what
            is held; directions and sprint always. "tactical" (the rules of Light-MALib's feature encoder): in addition, no shot from
            outside x > 0.64, |y| < 0.27, no long or high pass from inside; no sliding at a ball without an owner; who takes the own side's
            goal kick or corner may only pass, who takes its penalty may only shoot.

    Returns:
        bool[k, 19].
    """
    mask = np.empty((len(view.controlled), len(Action)), np.bool_)
    write_mask(mask, _own(view), view.ball, view.ball_side, view.controlled, view.sticky)
    if rules == "tactical":
        _restrict(mask, view)
    return mask


def _restrict(mask: NDArray[np.bool_], view: SideView) -> None:
    """Apply Light-MALib's rules of where and when."""
    takers = np.flatnonzero(mask[:, Action.SHOT])
    if view.ball_side != THEIR:
        mask[:, Action.SLIDING] = False
    x, y = float(view.ball[0]), float(view.ball[1])
    if x < _SHOT_X or abs(y) > _SHOT_Y:
        mask[:, Action.SHOT] = False
    else:
        mask[:, _LONG] = False
    allowed = _RESTARTS.get(view.mode)
    if allowed is not None and view.ball_side != THEIR and allowed.is_own(x):
        mask[takers, 1:] = False
        mask[takers[:, None], allowed.kicks] = True


class _Restart(NamedTuple):
    """A restart whose taker may only kick. mine: whether it is the own side's, by the ball's x."""

    is_own: Callable[[float], bool]
    kicks: NDArray[np.int64]


_RESTARTS: dict[int, _Restart] = {
    Mode.GOAL_KICK: _Restart(lambda x: x < -0.7, _KICKS[:3]),
    Mode.CORNER: _Restart(lambda x: x > 0.9, _KICKS[:3]),
    Mode.PENALTY: _Restart(lambda x: x > 0.6, _KICKS[3:]),
}
