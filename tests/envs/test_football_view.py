"""What a side sees: turned by half a turn for the right, and the same from the core's dictionary as from the agents'."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from football_scenes import raw, seen

from ludus.contrib.football.view import LEFT, NOBODY, OWN, RIGHT, THEIR, SideView, agents_view, opposite


def same(one: SideView, other: SideView) -> None:
    for field in dataclasses.fields(SideView):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


def test_the_left_sees_what_is_there() -> None:
    view = seen(ball=np.array([0.5, 0.1, 2.0]), ball_owned_team=1, ball_owned_player=2, score=[1, 3], steps_left=7)
    assert (view.side, view.ball_side, view.ball_body) == (LEFT, THEIR, 2)
    assert (view.score, view.steps_left) == ((1, 3), 7)
    assert view.ball.tolist() == [0.5, 0.1, 2.0]
    assert view.own_position[1].tolist() == [-0.1, 0.1]
    assert view.their_position[1].tolist() == [0.3, 0.0]
    assert view.controlled.tolist() == [1, 2]
    assert view.designated == 1


def test_the_right_sees_it_turned() -> None:
    held = np.zeros((1, 10), np.uint8)
    held[0, [3, 8]] = 1  # top right, sprint
    view = seen(
        RIGHT,
        ball=np.array([0.5, 0.1, 2.0]),
        ball_direction=np.array([0.01, -0.02, 0.3]),
        ball_rotation=np.array([0.1, 0.2, 0.3]),
        ball_owned_team=1,
        ball_owned_player=2,
        score=[1, 3],
        right_agent_sticky_actions=held,
    )
    assert (view.side, view.ball_side, view.ball_body, view.score) == (RIGHT, OWN, 2, (3, 1))
    assert view.ball.tolist() == [-0.5, -0.1, 2.0]
    assert view.ball_velocity.tolist() == [-0.01, 0.02, 0.3]
    assert view.ball_rotation.tolist() == [-0.1, -0.2, 0.3]
    assert view.own_position[2].tolist() == [-0.2, -0.2]
    assert view.their_position[1].tolist() == [0.1, -0.1]
    assert view.controlled.tolist() == [2]
    assert np.flatnonzero(view.sticky[0]).tolist() == [7, 8]  # bottom left, sprint


@pytest.mark.parametrize(("owner", "own", "their"), [(0, OWN, THEIR), (1, THEIR, OWN), (-1, NOBODY, NOBODY)])
def test_whose_ball_it_is(owner: int, own: int, their: int) -> None:
    changes = {"ball_owned_team": owner, "ball_owned_player": 1 if owner >= 0 else -1}
    assert seen(LEFT, **changes).ball_side == own
    assert seen(RIGHT, **changes).ball_side == their


def test_opposite_is_what_the_other_side_sees() -> None:
    rng = np.random.default_rng(0)
    scene = _drawn(rng)
    for side in (LEFT, RIGHT):
        turned = opposite(seen(side, **scene))
        there = seen(1 - side, **scene)
        unknown = {"controlled": turned.controlled, "sticky": turned.sticky, "designated": -1}
        same(turned, dataclasses.replace(there, **unknown))
        assert len(turned.controlled) == 0


def _drawn(rng: np.random.Generator) -> dict[str, Any]:
    scene: dict[str, Any] = {
        "ball": rng.normal(size=3),
        "ball_direction": rng.normal(size=3),
        "ball_rotation": rng.normal(size=3),
        "ball_owned_team": 1,
        "ball_owned_player": 2,
        "score": [2, 1],
    }
    for side in ("left", "right"):
        scene[f"{side}_team"] = rng.uniform(-1, 1, (3, 2))
        scene[f"{side}_team_direction"] = rng.normal(size=(3, 2))
        scene[f"{side}_team_tired_factor"] = rng.random(3)
        scene[f"{side}_team_yellow_card"] = rng.random(3) < 0.5
        scene[f"{side}_team_active"] = rng.random(3) < 0.5
        scene[f"{side}_team_roles"] = rng.integers(0, 10, 3)
    return scene


def test_the_dictionaries_of_agents_show_the_same() -> None:
    rng = np.random.default_rng(1)
    scene = raw(**_drawn(rng))
    scene["left_agent_sticky_actions"] = rng.integers(0, 2, (2, 10))
    left = [
        scene | {"active": body, "sticky_actions": scene["left_agent_sticky_actions"][i], "designated": 1}
        for i, body in enumerate([1, 2])
    ]
    same(agents_view(left, side=LEFT), seen(**scene))


def test_the_dictionaries_of_right_hand_agents_are_turned_already() -> None:
    rotation = pytest.importorskip(
        "gfootball.env.observation_rotation", reason="gfootball is not installed: make football"
    )
    scene = raw(**_drawn(np.random.default_rng(2)))
    scene["right_agent_sticky_actions"] = [np.array([1, 0, 0, 1, 0, 0, 0, 0, 1, 0])]
    turned = rotation.flip_observation(scene, {"action_set": "default"})
    agent = turned | {
        "active": 2,
        "sticky_actions": turned["left_agent_sticky_actions"][0],
        "designated": turned["left_team_designated_player"],
    }
    same(agents_view([agent], side=RIGHT), seen(RIGHT, **scene))
