"""The drawn pitch: where things are, in which colour, whoever sees it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from football_scenes import seen

from ludus.contrib.football.pitch import draw
from ludus.contrib.football.view import LEFT, RIGHT, Mode

SCALE = 8
WHITE, YELLOW = (255, 255, 255), (255, 220, 40)


def place(x: float, y: float) -> tuple[int, int]:
    """(row, column) of a place in metres from the middle, at a scale of 8: the header is 56 high, 5 metres lie around the pitch."""
    return round((y + 36 + 5) * SCALE) + 56, round((x + 55 + 5) * SCALE)


def colour(picture: np.ndarray[Any, Any], x: float, y: float) -> tuple[int, ...]:
    return tuple(picture[place(x, y)].tolist())


def test_a_moment() -> None:
    """Body 1 of the left is at (-5.44, 8.36) metres, the right's at (16.32, 0); the ball is in the middle, between them."""
    picture = draw([seen(ball_owned_team=1, ball_owned_player=1)], scale=SCALE)
    assert picture.dtype == np.uint8
    assert picture.shape == (56 + 82 * SCALE, 120 * SCALE, 3)
    assert colour(picture, 0, 0) == WHITE
    assert colour(picture, -5.44 - 1, 8.36) == (225, 85, 30)
    assert colour(picture, 16.32 - 1, 0) == (40, 100, 220)
    assert colour(picture, -5.44, 8.36 - 1.45) == YELLOW  # steered
    assert colour(picture, 16.32, -1.45) == WHITE  # has the ball
    assert colour(picture, -54.4 + 1, 0) == (125, 40, 10)  # the keeper
    assert colour(picture, 30, 30) in {(58, 128, 58), (52, 118, 52)}


def test_a_high_ball_leaves_its_shadow() -> None:
    picture = draw([seen(ball=np.array([0.25, -0.2, 5.11]))], scale=SCALE)
    assert colour(picture, 13.6, -16.72 - 3) == WHITE
    assert max(colour(picture, 13.6, -16.72)) < 100


def test_cards_and_who_was_sent_off() -> None:
    yellow = seen(left_team_yellow_card=np.array([False, True, False]))
    assert colour(draw([yellow], scale=SCALE), -5.44 + 1.5, 8.36 - 1.8) == YELLOW
    red = draw([seen(left_team_active=np.array([True, False, True]))], scale=SCALE)
    assert colour(red, -5.44, 8.36) in {(58, 128, 58), (52, 118, 52)}


@pytest.mark.parametrize("mode", list(Mode))
def test_both_sides_show_the_same_picture(mode: Mode) -> None:
    moment: dict[str, Any] = {"game_mode": mode, "score": [2, 10], "ball": np.array([0.3, 0.1, 1.0])}
    left, right = seen(LEFT, **moment), seen(RIGHT, **moment)
    np.testing.assert_array_equal(draw([left, right]), draw([right, left]))
    plain = draw([seen(LEFT, **moment | {"game_mode": Mode.NORMAL}), right])
    assert (draw([left, right]) == plain).all() == (mode == Mode.NORMAL)


def test_points_outside_the_picture_are_clipped() -> None:
    outside = np.array([[-1.2, 0.0], [1.2, 0.6], [0.0, -0.6]])
    for ball in (np.array([2.0, 0.0, 0.1]), np.array([-2.0, -1.0, 50.0]), np.array([0.0, -0.5, 30.0])):
        assert draw([seen(left_team=outside, ball=ball)], scale=2).shape == (14 + 164, 240, 3)
