"""What one side sees of a football match at one step: always from left to right, whichever side it is.

raw dictionary of the engine, or the dictionaries of its agents -> View -> observations, masks, rewards, statistics, pictures
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "GOAL_HALF",
    "HALF_WIDTH",
    "LEFT",
    "METRES",
    "NOBODY",
    "OWN",
    "RIGHT",
    "ROLES",
    "THEIR",
    "Action",
    "Mode",
    "SideView",
    "agents_view",
    "opposite",
    "side_view",
]

# --------------------------------------------------------------------------------------------------------------------
# The engine's words. The pitch runs from -1 to 1 in x and from -0.42 to 0.42 in y (y grows downwards); heights are metres.

LEFT, RIGHT = 0, 1
NOBODY, OWN, THEIR = -1, 0, 1
METRES: NDArray[np.float64] = np.array([54.4, 83.6])
"""Metres in one unit of x, and in one of y: distances are isotropic only in metres."""
HALF_WIDTH = 0.42
GOAL_HALF = 0.044
"""Half the width of a goal, in units of y."""
ROLES = ("GK", "CB", "LB", "RB", "DM", "CM", "LM", "RM", "AM", "CF")
"""Goalkeeper, centre back, … central front: the engine's numbers 0 to 9."""


class Action(IntEnum):
    """The 19 actions of the engine's default set. Directions, sprint and dribble are sticky: they last until released."""

    IDLE = 0
    LEFT = 1
    TOP_LEFT = 2
    TOP = 3
    TOP_RIGHT = 4
    RIGHT = 5
    BOTTOM_RIGHT = 6
    BOTTOM = 7
    BOTTOM_LEFT = 8
    LONG_PASS = 9
    HIGH_PASS = 10
    SHORT_PASS = 11
    SHOT = 12
    SPRINT = 13
    RELEASE_DIRECTION = 14
    RELEASE_SPRINT = 15
    SLIDING = 16
    DRIBBLE = 17
    RELEASE_DRIBBLE = 18


class Mode(IntEnum):
    """The referee's calls; all but NORMAL are restarts that must be taken."""

    NORMAL = 0
    KICK_OFF = 1
    GOAL_KICK = 2
    FREE_KICK = 3
    CORNER = 4
    THROW_IN = 5
    PENALTY = 6


# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SideView:
    """What one side sees: n bodies of its own, m of the opponents, of which it steers k. Its arrays are read-only by agreement.

    Its own goal is at x = -1, whichever side of the pitch that is. Velocities are distances per step, in the same units as positions
    (heights in metres).

    Attributes:
        side: LEFT or RIGHT, where its goal really is.
        own_tired: 0 (fresh) to 1; their_tired likewise.
        own_active: False for bodies that were sent off; their_active likewise.
        ball_side: Whose ball it is, OWN, THEIR or NOBODY.
        ball_body: The body that has it, an index into that side's bodies, or -1.
        score: Goals (own, their).
        controlled: The body that each of the side's agents steers, -1 for none.
        sticky: For each agent the eight directions in the order of `Action`, sprint, dribble.
        designated: The body that the engine counts as leading the game, or -1.
    """

    side: int
    own_position: NDArray[np.float64]  # [n, 2]
    own_velocity: NDArray[np.float64]  # [n, 2]
    own_tired: NDArray[np.float64]  # [n]
    own_yellow: NDArray[np.bool_]  # [n]
    own_active: NDArray[np.bool_]  # [n]
    own_role: NDArray[np.int64]  # [n]
    their_position: NDArray[np.float64]  # [m, 2]
    their_velocity: NDArray[np.float64]  # [m, 2]
    their_tired: NDArray[np.float64]  # [m]
    their_yellow: NDArray[np.bool_]  # [m]
    their_active: NDArray[np.bool_]  # [m]
    their_role: NDArray[np.int64]  # [m]
    ball: NDArray[np.float64]  # [3]
    ball_velocity: NDArray[np.float64]  # [3]
    ball_rotation: NDArray[np.float64]  # [3]
    ball_side: int
    ball_body: int
    score: tuple[int, int]
    steps_left: int
    mode: int
    controlled: NDArray[np.int64]  # [k]
    sticky: NDArray[np.bool_]  # [k, 10]
    designated: int


def side_view(raw: Mapping[str, Any], *, side: int) -> SideView:
    """Return the sight of one side, from the observation of the engine's core, which is the left side's; the right's is turned by half a
    turn.

    raw also names who is controlled: `left_agent_controlled_player`, `left_agent_sticky_actions`, and the right's. Without them, or for a
    side without agents, k is 0. The held directions are turned too, so the right side's actions have to be turned back.
    """
    left, right = ("left", "right") if side == LEFT else ("right", "left")
    sticky = raw.get(f"{left}_agent_sticky_actions", ())
    return _view(
        raw,
        left,
        right,
        side=side,
        turn=side == RIGHT,
        controlled=raw.get(f"{left}_agent_controlled_player", ()),
        sticky=sticky,
        designated=raw.get(f"{left}_team_designated_player", -1),
    )


def agents_view(observations: Sequence[Mapping[str, Any]], *, side: int) -> SideView:
    """Return the sight of one side, from the observations that the package gives each of the side's agents, at least one.

    The package has turned those of right-hand agents already, and turns their actions back; here only `ball_rotation` still is (a rotation
    about an axis: its x and y turn with the axis, and the package leaves them).
    """
    first = observations[0]
    return _view(
        first,
        "left",
        "right",
        side=side,
        turn=False,
        controlled=[observation["active"] for observation in observations],
        sticky=[observation["sticky_actions"] for observation in observations],
        designated=first["designated"],
    )


def opposite(view: SideView) -> SideView:
    """Return what the other side sees, as far as this side knows: not whom the other steers (k is 0)."""
    return SideView(
        side=1 - view.side,
        own_position=-view.their_position,
        own_velocity=-view.their_velocity,
        own_tired=view.their_tired,
        own_yellow=view.their_yellow,
        own_active=view.their_active,
        own_role=view.their_role,
        their_position=-view.own_position,
        their_velocity=-view.own_velocity,
        their_tired=view.own_tired,
        their_yellow=view.own_yellow,
        their_active=view.own_active,
        their_role=view.own_role,
        ball=view.ball * _TURN,
        ball_velocity=view.ball_velocity * _TURN,
        ball_rotation=view.ball_rotation * _TURN,
        ball_side=view.ball_side if view.ball_side == NOBODY else 1 - view.ball_side,
        ball_body=view.ball_body,
        score=(view.score[1], view.score[0]),
        steps_left=view.steps_left,
        mode=view.mode,
        controlled=np.zeros(0, np.int64),
        sticky=np.zeros((0, 10), np.bool_),
        designated=-1,
    )


_TURN = np.array([-1.0, -1.0, 1.0])  # half a turn about the vertical axis
_TURNED_STICKY = np.array([4, 5, 6, 7, 0, 1, 2, 3, 8, 9])


def _view(
    raw: Mapping[str, Any],
    own: str,
    their: str,
    *,
    side: int,
    turn: bool,
    controlled: Sequence[int],
    sticky: Sequence[Any],
    designated: int,
) -> SideView:
    owner = int(raw["ball_owned_team"])
    goals = raw["score"]
    held = np.array(sticky, np.bool_).reshape(len(controlled), 10)
    points, flat = (_turned_points, _turned) if turn else (_floats, _floats)
    return SideView(
        side=side,
        own_position=flat(raw[f"{own}_team"]),
        own_velocity=flat(raw[f"{own}_team_direction"]),
        own_tired=_floats(raw[f"{own}_team_tired_factor"]),
        own_yellow=_flags(raw[f"{own}_team_yellow_card"]),
        own_active=_flags(raw[f"{own}_team_active"]),
        own_role=_whole(raw[f"{own}_team_roles"]),
        their_position=flat(raw[f"{their}_team"]),
        their_velocity=flat(raw[f"{their}_team_direction"]),
        their_tired=_floats(raw[f"{their}_team_tired_factor"]),
        their_yellow=_flags(raw[f"{their}_team_yellow_card"]),
        their_active=_flags(raw[f"{their}_team_active"]),
        their_role=_whole(raw[f"{their}_team_roles"]),
        ball=points(raw["ball"]),
        ball_velocity=points(raw["ball_direction"]),
        ball_rotation=_turned_points(raw["ball_rotation"]) if side == RIGHT else _floats(raw["ball_rotation"]),
        ball_side=1 - owner if turn and owner >= 0 else owner,
        ball_body=int(raw["ball_owned_player"]) if owner >= 0 else -1,
        score=(int(goals[1]), int(goals[0])) if turn else (int(goals[0]), int(goals[1])),
        steps_left=int(raw["steps_left"]),
        mode=int(raw["game_mode"]),
        controlled=_whole(controlled),
        sticky=np.ascontiguousarray(held[:, _TURNED_STICKY]) if turn else held,
        designated=int(designated),
    )


def _floats(values: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(values, np.float64)  # kernels are compiled for one layout


def _flags(values: Any) -> NDArray[np.bool_]:
    return np.ascontiguousarray(values, np.bool_)


def _whole(values: Any) -> NDArray[np.int64]:
    return np.ascontiguousarray(values, np.int64)


def _turned(values: Any) -> NDArray[np.float64]:
    turned: NDArray[np.float64] = -np.ascontiguousarray(values, np.float64)
    return turned


def _turned_points(values: Any) -> NDArray[np.float64]:
    turned: NDArray[np.float64] = np.ascontiguousarray(values, np.float64) * _TURN
    return turned


def __getattr__(name: str) -> Any:
    if name != "View":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.View is called SideView now.", DeprecationWarning, stacklevel=2)
    return SideView
