"""The columns of `features` and of the central state once more, by name and one at a time: slow, and easy to read."""

from __future__ import annotations

from math import acos, dist, hypot, pi

import numpy as np

from ludus.contrib.football.encoders import legal, off_side_line
from ludus.contrib.football.view import OWN, ROLES, THEIR, Action, Mode, SideView, opposite

__all__ = ["central", "features"]

Row = dict[str, float]
Place = tuple[float, float]
HELD = ("left", "top_left", "top", "top_right", "right", "bottom_right", "bottom", "bottom_left", "sprint", "dribble")


def features(view: SideView, previous: SideView | None, duration: int) -> list[Row]:
    return [_agent(view, agent) | _shared(view, previous or view, duration) for agent in range(len(view.controlled))]


def central(view: SideView, duration: int) -> Row:
    row = _match(view, duration)
    for side, seen in (("own", view), ("their", opposite(view))):
        turn = 1 if side == "own" else -1
        for body in range(len(seen.own_position)):
            row |= {f"{side}_{body}_{name}": value for name, value in _body(seen, body, turn).items()}
            row[f"{side}_{body}_ball_distance"] = dist(_metres(seen.own_position[body]), _metres(seen.ball)) / 50
    for agent, steered in enumerate(view.controlled.tolist()):
        row |= {f"agent_{agent}_is_{body}": float(body == steered) for body in range(len(view.own_position))}
        row |= {f"agent_{agent}_held_{name}": float(view.sticky[agent, i]) for i, name in enumerate(HELD)}
    return row


def _metres(place: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Place:
    return float(place[0]) * 54.4, float(place[1]) * 83.6


def _body(view: SideView, body: int, turn: int = 1) -> Row:
    """turn: -1 for a body of the opponents, whose own view this is."""
    x, y = view.own_position[body]
    dx, dy = _metres(view.own_velocity[body])
    return {
        "x": turn * x,
        "y": turn * y / 0.42,
        "velocity_x": turn * dx / 0.8,
        "velocity_y": turn * dy / 0.8,
        "speed": hypot(dx, dy) / 0.8,
        "tired": view.own_tired[body],
        "yellow": float(view.own_yellow[body]),
        "active": float(view.own_active[body]),
        "has_ball": float(view.ball_side == OWN and view.ball_body == body),
    }


def _gap(me: Place, other: Place) -> Row:
    dx, dy = other[0] - me[0], other[1] - me[1]
    away = hypot(dx, dy)
    out = {"dx": dx / 50, "dy": dy / 50, "distance": away / 50}
    return out | {"direction_x": dx / max(away, 1e-6), "direction_y": dy / max(away, 1e-6)}


def _angle(place: Place) -> float:
    """The cosine rule, on the triangle of a place and the posts."""
    if place[0] >= 54.4:
        return 0.0
    half = 0.044 * 83.6
    one, two = dist(place, (54.4, -half)), dist(place, (54.4, half))
    return acos(min(max((one**2 + two**2 - (2 * half) ** 2) / (2 * one * two), -1), 1)) / pi


def _agent(view: SideView, agent: int) -> Row:
    body = int(view.controlled[agent])
    bodies = range(len(view.own_position))
    me, ball, line = _metres(view.own_position[body]), _metres(view.ball), off_side_line(view)
    x = float(view.own_position[body, 0])
    row = {f"self_{name}": value for name, value in _body(view, body).items()}
    row["self_designated"] = float(body == view.designated)
    row |= {f"self_role_{role}": float(view.own_role[body] == i) for i, role in enumerate(ROLES)}
    row |= {f"self_is_{other}": float(other == body) for other in bodies}
    row |= {f"held_{name}": float(view.sticky[agent, i]) for i, name in enumerate(HELD)}
    row |= {f"ball_rel_{name}": value for name, value in _gap(me, ball).items()}
    moves = _metres(view.ball_velocity)
    row["ball_rel_approach"] = -(row["ball_rel_direction_x"] * moves[0] + row["ball_rel_direction_y"] * moves[1]) / 3
    row["ball_rel_near"] = float(dist(me, ball) < 2)
    present = [other for other in bodies if view.own_active[other]]
    nearest = min(present, key=lambda other: dist(_metres(view.own_position[other]), ball), default=-1)
    row["ball_rel_nearest_own"] = float(nearest == body)
    row |= {f"their_goal_{name}": value for name, value in _gap(me, (54.4, 0)).items()}
    row |= {f"own_goal_{name}": value for name, value in _gap(me, (-54.4, 0)).items()}
    row |= {"their_goal_angle": _angle(me), "off_side": float(x > line), "off_side_margin": x - line}
    row |= _others(view, view, me, line, without=body)
    row |= _others(view, opposite(view), me, line, without=-1)
    return row | {f"legal_{Action(a).name.lower()}": float(may) for a, may in enumerate(legal(view)[agent])}


def _others(view: SideView, seen: SideView, me: Place, line: float, *, without: int) -> Row:
    """The mates, if `seen` is the view itself; or the opponents, by their own view."""
    turn, name = (1, "mate") if seen is view else (-1, "foe")
    found = []
    for body in range(len(seen.own_position)):
        if body != without:
            gap = _gap(me, _metres(turn * seen.own_position[body]))
            one = {key: gap[key] for key in ("dx", "dy", "distance")} | _body(seen, body, turn)
            if turn == 1:
                one["off_side"] = float(seen.own_position[body, 0] > line)
            one["keeper"] = float(seen.own_role[body] == 0)
            found.append((not seen.own_active[body], one["distance"], body, one))
    found.sort(key=lambda item: item[:3])
    return {f"{name}_{rank}_{key}": value for rank, item in enumerate(found) for key, value in item[3].items()}


def _match(view: SideView, duration: int) -> Row:
    own, their = view.score
    x, y, z = view.ball.tolist()
    dx, dy = _metres(view.ball_velocity)
    row = {"ball_x": x, "ball_y": y / 0.42, "ball_z": min(z / 5, 2), "ball_speed": hypot(dx, dy) / 3}
    row |= {"ball_velocity_x": dx / 3, "ball_velocity_y": dy / 3, "ball_velocity_z": view.ball_velocity[2]}
    row |= {f"ball_rotation_{axis}": 100 * view.ball_rotation[i] for i, axis in enumerate("xyz")}
    row |= _whose("ball", view)
    row |= {f"mode_{mode.name.lower()}": float(view.mode == mode) for mode in Mode}
    row |= {"off_side_line": off_side_line(view), "their_off_side_line": -off_side_line(opposite(view))}
    row |= {"goals_own": min(own / 5, 1), "goals_their": min(their / 5, 1), "lead": min(max((own - their) / 3, -1), 1)}
    return row | {"time_left": min(view.steps_left / duration, 1)}


def _whose(name: str, view: SideView) -> Row:
    sides = {"nobody": -1, "own": OWN, "their": THEIR}
    return {f"{name}_{word}": float(view.ball_side == side) for word, side in sides.items()}


def _shared(view: SideView, previous: SideView, duration: int) -> Row:
    x, y = float(view.ball[0]), float(view.ball[1])
    box = 0.7 < abs(x) <= 1 and abs(y) < 0.24
    row = _match(view, duration) | _whose("ball_was", previous)
    row |= {
        "ball_goal_distance": dist(_metres(view.ball), (54.4, 0)) / 50,
        "ball_goal_angle": _angle(_metres(view.ball)),
    }
    return row | {
        "ball_own_box": float(box and x < 0),
        "ball_own_third": float(not box and x < -1 / 3),
        "ball_middle": float(abs(x) <= 1 / 3),
        "ball_their_third": float(not box and x > 1 / 3),
        "ball_their_box": float(box and x > 0),
    }
