"""The side by rules, on written scenes; and that what agents observe is enough to play it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from football_scenes import kicked, seen

from ludus.contrib.football.encoders import encoder
from ludus.contrib.football.script import Tactics, play
from ludus.contrib.football.sights import views
from ludus.contrib.football.view import LEFT, METRES, NOBODY, OWN, RIGHT, THEIR, Action, Mode, SideView

HELD = np.zeros((2, 10), np.uint8)


def holding(*actions: tuple[int, Action]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Sticky actions of the two agents: (agent, what it holds)."""
    held = HELD.copy()
    for agent, action in actions:
        held[agent, 8 if action == Action.SPRINT else action - 1] = 1
    return held


def has_ball(at: tuple[float, float], mate: tuple[float, float] = (-0.2, -0.2), **changes: object) -> SideView:
    """The left side's body 1 has the ball."""
    left = np.array([[-1.0, 0.0], at, mate])
    return seen(left_team=left, ball=np.array([*at, 0.1]), ball_owned_team=0, ball_owned_player=1, **changes)


def test_shoots_where_the_goal_is_wide_open() -> None:
    # From 12 metres before the middle of a goal 7.36 metres wide it is seen under 2 atan(3.68 / 12) = 0.60; from 30 under 0.24.
    near, far = 1 - 12 / METRES[0], 1 - 30 / METRES[0]
    assert play(has_ball((near, 0.0)))[0] == Action.SHOT
    assert play(has_ball((far, 0.0)))[0] == Action.RIGHT
    assert play(has_ball((far, 0.0)), Tactics(shot=0.2))[0] == Action.SHOT


def test_runs_free_and_sprints_once_it_faces_the_goal() -> None:
    away = np.array([[1.0, 0.0], [0.0, 0.3], [0.0, -0.3]])
    free = {"right_team": away, "right_team_roles": np.array([0, 1, 9])}
    assert play(has_ball((0.3, 0.0), **free))[0] == Action.RIGHT
    facing = holding((0, Action.RIGHT))
    assert play(has_ball((0.3, 0.0), left_agent_sticky_actions=facing, **free))[0] == Action.SPRINT
    running = holding((0, Action.RIGHT), (0, Action.SPRINT))
    assert play(has_ball((0.3, 0.0), left_agent_sticky_actions=running, **free))[0] == Action.RIGHT


def test_goes_round_an_opponent_ahead() -> None:
    wall = np.array([[1.0, 0.0], [0.1 + 4 / METRES[0], 0.0], [0.9, 0.3]])
    alone = has_ball((0.1, 0.0), mate=(-0.9, 0.3), right_team=wall)
    assert play(alone)[0] in (Action.TOP_RIGHT, Action.BOTTOM_RIGHT)


def test_passes_to_a_free_mate_when_there_is_no_room() -> None:
    # Opponents 2.6 metres off, to both sides of a lane that leads down and ahead, 2.4 metres from it, and one behind.
    ring = [(0.1 + 2.6 * math.cos(a) / METRES[0], 2.6 * math.sin(a) / METRES[1]) for a in (-0.39, 1.96, math.pi)]
    crowd = np.array(ring)
    roles = np.array([1, 1, 9])
    mate = (0.1 + 10 / METRES[0], 10 / METRES[1])  # 14 metres off, on the diagonal
    free = has_ball((0.1, 0.0), mate=mate, right_team=crowd, right_team_roles=roles)
    assert play(free, Tactics(pressed=2.0))[0] == Action.BOTTOM_RIGHT  # looks there first
    looks = holding((0, Action.BOTTOM_RIGHT))
    free = has_ball((0.1, 0.0), mate=mate, right_team=crowd, right_team_roles=roles, left_agent_sticky_actions=looks)
    assert play(free, Tactics(pressed=2.0))[0] == Action.SHORT_PASS
    off = {"left_team_active": np.array([True, True, False]), "left_agent_controlled_player": [1, -1]}
    alone = has_ball((0.1, 0.0), mate, right_team=crowd, right_team_roles=roles, left_agent_sticky_actions=looks, **off)
    assert play(alone, Tactics(pressed=2.0))[0] != Action.SHORT_PASS  # the mate was sent off


def test_who_offers_himself_stays_on_side() -> None:
    # The ball is 16.4 metres from the middle, and so is the second-last opponent: the line. The mate stands 3.6 metres beyond it, in his
    # lane, and would run 10 metres ahead of the ball if the line were further off.
    at, mate = (0.3, 0.0), (20 / METRES[0], 8 / METRES[1])
    theirs = np.array([[1.0, 0.0], [0.3, 0.0], [0.9, 0.0]])
    assert play(has_ball(at, mate, right_team=theirs))[1] == Action.RIGHT
    off = np.array([True, True, False])
    assert play(has_ball(at, mate, right_team=theirs, right_team_active=off))[1] == Action.LEFT


def test_an_only_body_plays_though_it_is_a_keeper() -> None:
    only = {"left_team_active": np.array([True, False, False]), "left_agent_controlled_player": [0, -1]}
    team = np.array([[0.3, 0.0], [0.0, 0.0], [0.0, 0.0]])
    assert play(seen(left_team=team, ball=np.array([0.6, 0.0, 0.1]), **only))[0] == Action.RIGHT  # not to its goal
    near = 1 - 12 / METRES[0]
    team[0, 0] = near
    ball = {"ball": np.array([near, 0.0, 0.1]), "ball_owned_team": 0, "ball_owned_player": 0}
    assert play(seen(left_team=team, **ball, **only))[0] == Action.SHOT


def test_restarts() -> None:
    taker = has_ball((0.5, 0.4), mate=(0.5, 0.4 - 10 / METRES[1]), game_mode=int(Mode.THROW_IN))
    assert play(taker)[0] == Action.TOP
    assert play(has_ball((0.8, 0.0), game_mode=int(Mode.PENALTY)))[0] == Action.SHOT


def test_the_nearest_runs_to_where_the_ball_will_be() -> None:
    # The ball rolls a metre a step towards y > 0, and after 8 steps it is at (0, 7.8), 5.4 metres from body 1, who runs 5.2 until then.
    rolling = seen(ball_direction=kicked(0.0, 1.0))
    towards, back = play(rolling).tolist()
    assert towards == Action.RIGHT
    assert play(seen())[0] == Action.TOP_RIGHT  # where the ball is now
    assert back in (Action.BOTTOM_LEFT, Action.BOTTOM, Action.LEFT)  # covers


def test_slides_only_where_it_may() -> None:
    theirs = {"ball_owned_team": 1, "ball_owned_player": 1, "ball": np.array([-0.1 + 1 / METRES[0], 0.1, 0.1])}
    assert play(seen(**theirs), Tactics(slide=1.5))[0] == Action.SLIDING
    assert play(seen(**theirs), Tactics(slide=0.5))[0] != Action.SLIDING
    card = np.array([False, True, False])
    assert play(seen(**theirs, left_team_yellow_card=card), Tactics(slide=1.5))[0] != Action.SLIDING


def test_both_sides_play_alike() -> None:
    left = seen(ball_owned_team=0, ball_owned_player=2)
    turned = seen(
        side=RIGHT,
        left_team=-np.array([[1.0, 0.0], [0.3, 0.0], [0.2, 0.2]]),
        right_team=-np.array([[-1.0, 0.0], [-0.1, 0.1], [-0.2, -0.2]]),
        right_agent_controlled_player=[1, 2],
        right_agent_sticky_actions=HELD,
        ball_owned_team=1,
        ball_owned_player=2,
    )
    assert play(left).tolist() == play(turned).tolist()


def test_nobody_to_steer() -> None:
    assert play(seen(left_agent_controlled_player=[-1, 2]))[0] == Action.IDLE


# ------------------------------------------------------------------------------------------ from observations


@pytest.mark.parametrize("owner", [NOBODY, OWN, THEIR])
def test_observations_say_what_is_needed(owner: int) -> None:
    held = holding((0, Action.TOP), (1, Action.LEFT), (1, Action.SPRINT))
    view = seen(
        left_team_direction=np.array([[0.0, 0.0], [0.01, -0.002], [0.003, 0.004]]),
        right_team_direction=np.array([[0.0, 0.0], [-0.005, 0.0], [0.0, 0.006]]),
        ball=np.array([0.2, -0.1, 1.5]),
        ball_direction=np.array([0.02, 0.01, 0.1]),
        ball_owned_team=owner,
        ball_owned_player=-1 if owner == NOBODY else 2,
        game_mode=int(Mode.CORNER),
        left_agent_sticky_actions=held,
    )
    rows = encoder("features", view).encode(view, None)
    for agent, found in enumerate(views(rows)):
        me = view.controlled[agent]
        others = [body for body in (2, 1, 0) if body != me] if me != 0 else [1, 2]
        order = [me, *sorted(others, key=lambda b: math.dist(*(view.own_position[[b, me]] * METRES)))]
        np.testing.assert_allclose(found.own_position, view.own_position[order], atol=1e-6)
        np.testing.assert_allclose(found.own_velocity, view.own_velocity[order], atol=1e-6)
        np.testing.assert_allclose(found.ball, view.ball, atol=1e-6)
        np.testing.assert_allclose(found.ball_velocity, view.ball_velocity, atol=1e-6)
        assert (found.ball_side, found.mode) == (owner, Mode.CORNER)
        assert found.sticky.tolist() == [view.sticky[agent].tolist()]
        assert found.own_role.tolist() == [0 if view.own_role[b] == 0 else 1 for b in order]
        if owner == OWN:
            assert order[found.ball_body] == 2
        assert sorted(found.their_position[:, 0].round(6).tolist()) == [0.2, 0.3, 1.0]
        assert play(found)[0] == play(view)[agent]


def test_other_observations_are_refused() -> None:
    with pytest.raises(ValueError, match="observations of 7 numbers"):
        next(views(np.zeros((1, 7), np.float32)))


def test_every_side_has_a_width_of_its_own() -> None:
    bodies = np.arange(1, 12)
    own, their = np.meshgrid(bodies, bodies)
    widths = 15 * own + 13 * their  # what the columns of features grow by
    assert len(np.unique(widths)) == widths.size
    like = seen(side=LEFT)
    assert len(encoder("features", like).names) - len(encoder("features", _with_one_less(like)).names) == 15


def _with_one_less(view: SideView) -> SideView:
    import dataclasses

    less = {f.name: getattr(view, f.name)[:2] for f in dataclasses.fields(view) if f.name.startswith("own_")}
    return dataclasses.replace(view, **less)
