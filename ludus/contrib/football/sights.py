"""From observations back to what the agent sees: rows of `features` -> `SideView`s. For who plays by rules."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.football.encoders import ENCODERS
from ludus.contrib.football.observation_kernels import HEIGHT, KICK, RUN
from ludus.contrib.football.view import HALF_WIDTH, LEFT, METRES, NOBODY, Mode, SideView

__all__ = ["views"]


def views(rows: NDArray[np.float32]) -> Iterator[SideView]:
    """Convert rows float32[n, F] of the observation `features` to what each of these agents sees, as if its side steered no other body (k
    is 1).

    The agent itself is body 0 of its side, the others follow by their distance. Their roles are 0 for keepers and 1 for others; tiredness,
    cards, rotation, score and time are left at 0. How many bodies there are follows from F; raises ValueError for one that fits no sides.
    """
    layout = _layout(rows.shape[1])
    numbers = rows.astype(np.float64)
    own, their = _bodies(numbers, layout.own), _bodies(numbers, layout.their)
    ball = numbers[:, layout.ball] * _BALL
    side = numbers[:, layout.ball_side].argmax(axis=1) - 1
    mode = numbers[:, layout.mode].argmax(axis=1)
    held = numbers[:, layout.held] > 0.5
    for i in range(len(rows)):
        has = np.empty(0, np.bool_) if side[i] == NOBODY else (own, their)[side[i]].has_ball[i]
        yield SideView(
            side=LEFT,
            **_of(own, i, "own"),
            **_of(their, i, "their"),
            ball=ball[i, :3],
            ball_velocity=ball[i, 3:],
            ball_rotation=np.zeros(3),
            ball_side=int(side[i]),
            ball_body=int(has.argmax()) if has.any() else -1,
            score=(0, 0),
            steps_left=0,
            mode=int(mode[i]),
            controlled=np.array([0 if own.active[i, 0] else -1]),
            sticky=held[i : i + 1],
            designated=-1,
        )


_BALL = np.array([1.0, HALF_WIDTH, HEIGHT, *(KICK / METRES), 1.0])
_COLUMNS = ("x", "y", "velocity_x", "velocity_y", "active", "has_ball", "keeper")
_SCALE = np.array([1.0, HALF_WIDTH, *(RUN / METRES), 1.0, 1.0, 1.0])


class _Layout(NamedTuple):
    """Which columns hold what: own and their int64[bodies, 7], in the order of `_COLUMNS`."""

    own: NDArray[np.int64]
    their: NDArray[np.int64]
    ball: NDArray[np.int64]
    ball_side: NDArray[np.int64]
    mode: NDArray[np.int64]
    held: NDArray[np.int64]


@cache
def _layout(width: int) -> _Layout:
    sides = [(own, their) for own in range(1, 12) for their in range(1, 12)]
    for own, their in sides:
        names = ENCODERS["features"](own, their, 1).names
        if len(names) == width:
            column = names.index
            bodies = ["self", *(f"mate_{rank}" for rank in range(own - 1))]
            foes = [f"foe_{rank}" for rank in range(their)]
            held = next(i for i, name in enumerate(names) if name.startswith("held_"))
            return _Layout(
                own=np.array([[column(_name(body, what)) for what in _COLUMNS] for body in bodies]),
                their=np.array([[column(_name(body, what)) for what in _COLUMNS] for body in foes]),
                ball=np.array([column(f"ball{what}_{axis}") for what in ("", "_velocity") for axis in "xyz"]),
                ball_side=np.array([column(f"ball_{who}") for who in ("nobody", "own", "their")]),
                mode=np.array([column(f"mode_{mode.name.lower()}") for mode in Mode]),
                held=np.arange(held, held + 10),
            )
    raise ValueError(
        f"observations of {width} numbers were given; expected those of football/… with the option observation: features"
    )


def _name(body: str, what: str) -> str:
    return "self_role_GK" if (body, what) == ("self", "keeper") else f"{body}_{what}"


class _Bodies(NamedTuple):
    """place float64[n, bodies, 4]: position, velocity. The others bool[n, bodies]."""

    place: NDArray[np.float64]
    active: NDArray[np.bool_]
    has_ball: NDArray[np.bool_]
    keeper: NDArray[np.bool_]


def _bodies(numbers: NDArray[np.float64], columns: NDArray[np.int64]) -> _Bodies:
    table = numbers[:, columns] * _SCALE
    flags = table[:, :, 4:] > 0.5
    return _Bodies(table[:, :, :4], flags[:, :, 0], flags[:, :, 1], flags[:, :, 2])


def _of(bodies: _Bodies, i: int, side: str) -> dict[str, Any]:
    """Return the fields of a `SideView` that row i tells of one side."""
    count = bodies.active.shape[1]
    return {
        f"{side}_position": bodies.place[i, :, :2],
        f"{side}_velocity": bodies.place[i, :, 2:],
        f"{side}_tired": np.zeros(count),
        f"{side}_yellow": np.zeros(count, np.bool_),
        f"{side}_active": bodies.active[i],
        f"{side}_role": np.where(bodies.keeper[i], 0, 1),
    }
