"""Observations, central state and masks on written scenes; `simple115` beside gfootball's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from football_reference import central, features
from football_scenes import raw, seen

from ludus.contrib.football.encoders import ENCODERS, MASKS, CentralState, encoder, legal, off_side_line
from ludus.contrib.football.observation_kernels import write_features, write_mask, write_state
from ludus.contrib.football.view import LEFT, RIGHT, Action, Mode, SideView, opposite
from ludus.core.errors import ConfigError, UnknownName


def columns(name: str, view: SideView, previous: SideView | None = None) -> list[dict[str, float]]:
    """Each agent's row, by the names of its columns."""
    made = encoder(name, view)
    rows = made.encode(view, previous)
    assert rows.dtype == np.float32
    assert rows.shape == (len(view.controlled), len(made.names))
    assert len(set(made.names)) == len(made.names)
    return [dict(zip(made.names, row.tolist(), strict=True)) for row in rows]


def mirrored(scene: dict[str, Any]) -> dict[str, Any]:
    """The match in which the right plays what the left played: as the core shows it."""
    turned = dict(scene)
    for key in ("ball", "ball_direction", "ball_rotation"):
        turned[key] = scene[key] * [-1, -1, 1]
    turned["score"] = scene["score"][::-1]
    turned["ball_owned_team"] = 1 - scene["ball_owned_team"] if scene["ball_owned_team"] >= 0 else -1
    for key in scene:
        if key.startswith(("left", "right")):
            from_left = key.startswith("left")
            other = key.replace("left", "right", 1) if from_left else key.replace("right", "left", 1)
            value = scene[other]
            if key.endswith(("_team", "_direction")):
                value = -value
            elif key.endswith("sticky_actions"):
                value = np.asarray(value)[:, [4, 5, 6, 7, 0, 1, 2, 3, 8, 9]]
            turned[key] = value
    return turned


def drawn(seed: int) -> dict[str, Any]:
    """A scene with everything drawn."""
    rng = np.random.default_rng(seed)
    owner = int(rng.integers(-1, 2))
    scene: dict[str, Any] = {
        "ball": rng.uniform([-1, -0.42, 0], [1, 0.42, 3]),
        "ball_direction": rng.uniform(-0.05, 0.05, 3),
        "ball_rotation": rng.uniform(-0.01, 0.01, 3),
        "ball_owned_team": owner,
        "ball_owned_player": int(rng.integers(3)) if owner >= 0 else -1,
        "score": rng.integers(0, 7, 2).tolist(),
        "steps_left": int(rng.integers(3001)),
        "game_mode": int(rng.integers(7)),
        "left_agent_sticky_actions": rng.integers(0, 2, (2, 10)),
        "right_agent_sticky_actions": rng.integers(0, 2, (1, 10)),
    }
    for side in ("left", "right"):
        scene[f"{side}_team"] = rng.uniform([-1, -0.42], [1, 0.42], (3, 2))
        scene[f"{side}_team_direction"] = rng.uniform(-0.01, 0.01, (3, 2))
        scene[f"{side}_team_tired_factor"] = rng.random(3)
        scene[f"{side}_team_yellow_card"] = rng.random(3) < 0.5
        scene[f"{side}_team_active"] = rng.random(3) < 0.8
        scene[f"{side}_team_roles"] = rng.integers(0, 10, 3)
    return raw(**scene)


def test_simple115_is_gfootballs() -> None:
    wrappers = pytest.importorskip("gfootball.env.wrappers", reason="gfootball is not installed: make football")
    for seed in range(20):
        scene = drawn(seed)
        given = [scene | {"active": body} for body in (1, 2)]
        wanted = wrappers.Simple115StateWrapper.convert_observation(given, True)
        view = seen(**scene)
        np.testing.assert_array_equal(encoder("simple115", view).encode(view, None), wanted)


def test_simple115_by_hand() -> None:
    view = seen(ball=np.array([0.5, 0.25, 2.0]), ball_owned_team=1, ball_owned_player=0, game_mode=5)
    first, second = columns("simple115", view)
    assert (first["own_1_x"], first["own_3_x"], first["their_2_y"]) == (np.float32(-0.1), -1, np.float32(0.2))
    assert (first["ball_x"], first["ball_y"], first["ball_z"]) == (0.5, 0.25, 2.0)
    assert (first["ball_nobody"], first["ball_own"], first["ball_their"]) == (0, 0, 1)
    assert (first["mode_throw_in"], first["mode_normal"]) == (1, 0)
    assert (first["controlled_1"], first["controlled_2"]) == (1, 0)
    assert (second["controlled_1"], second["controlled_2"]) == (0, 1)


def test_simple115_has_no_room_for_twelve() -> None:
    with pytest.raises(ConfigError, match="11 bodies a side; 12 and 3 were given"):
        encoder("simple115", seen(left_team=np.zeros((12, 2))))


def test_a_misspelt_encoder() -> None:
    with pytest.raises(UnknownName, match="did you mean 'features'"):
        encoder("feature", seen())


def test_floats_are_the_numbers_as_they_are() -> None:
    held = np.zeros((2, 10), np.uint8)
    held[1, 8] = 1
    view = seen(score=[1, 2], steps_left=2500, left_agent_sticky_actions=held, ball_owned_team=0, ball_owned_player=2)
    first, second = columns("floats", view)
    assert (first["score_own"], first["score_their"], first["steps_left"]) == (1, 2, 2500)
    assert (first["own_2_x"], first["own_2_y"]) == (np.float32(-0.2), np.float32(-0.2))
    assert (first["own_2_has_ball"], first["own_1_has_ball"], first["their_2_has_ball"]) == (1, 0, 0)
    assert (first["their_0_role_GK"], first["their_1_role_CB"], first["their_2_role_CF"]) == (1, 1, 1)
    assert (first["held_sprint"], second["held_sprint"]) == (0, 1)
    assert (second["controlled_2"], second["controlled_1"]) == (1, 0)


def test_features_of_oneself_the_ball_and_the_goals() -> None:
    view = seen(
        ball=np.array([-0.1, 0.1 + 5 / 83.6, 0.11]),
        ball_direction=np.array([0.0, -1.5 / 83.6, 0.0]),
        left_team_direction=np.array([[0, 0], [0.4 / 54.4, 0], [0, 0]]),
        left_team_tired_factor=np.array([0, 0.25, 0]),
    )
    first, second = columns("features", view)
    close = {
        "self_x": -0.1,
        "self_y": 0.1 / 0.42,
        "self_velocity_x": 0.5,  # 0.4 of 0.8 metres a step
        "self_speed": 0.5,
        "self_tired": 0.25,
        "ball_rel_dx": 0,
        "ball_rel_dy": 0.1,  # 5 of 50 metres
        "ball_rel_distance": 0.1,
        "ball_rel_direction_y": 1,
        "ball_rel_approach": 0.5,  # it comes at 1.5 of 3 metres a step
        "their_goal_dx": 1.1 * 54.4 / 50,
        "their_goal_dy": -0.1 * 83.6 / 50,
        "own_goal_dx": -0.9 * 54.4 / 50,
    }
    for name, wanted in close.items():
        assert first[name] == pytest.approx(wanted, abs=1e-6), name
    ones = ("self_active", "self_designated", "self_role_CB", "self_is_1", "ball_rel_nearest_own", "ball_middle")
    zeros = ("self_yellow", "self_has_ball", "self_role_CF", "self_is_2", "ball_rel_near", "ball_own")
    assert [first[name] for name in ones] == [1] * len(ones)
    assert [first[name] for name in zeros] == [0] * len(zeros)
    assert (second["self_is_2"], second["ball_rel_nearest_own"], second["self_designated"]) == (1, 0, 0)


def test_the_angle_of_the_goal() -> None:
    """From a goal's half width before the goal, its posts stand 45 degrees to each side: a quarter of a turn."""
    away = 0.044 * 83.6 / 54.4
    view = seen(left_team=np.array([[-1.0, 0], [1 - away, 0], [1 + away, 0]]))
    before, behind = columns("features", view)
    assert before["their_goal_angle"] == pytest.approx(0.5)
    assert behind["their_goal_angle"] == 0
    on_the_line = seen(left_team=np.array([[-1.0, 0], [1.0, 0.2], [-1.0, 0]]))
    assert columns("features", on_the_line)[0]["their_goal_angle"] == pytest.approx(0, abs=1e-6)


def test_bodies_are_sorted_by_distance_and_who_was_sent_off_comes_last() -> None:
    scene: dict[str, Any] = {
        "left_team": np.array([[-0.5, 0.0], [0.0, 0.0], [0.1, 0.0]]),
        "right_team": np.array([[1.0, 0.0], [0.0, 0.2], [0.25, 0.0]]),  # 54.4, 16.72 and 13.6 metres from body 1
    }
    first, second = columns("features", seen(**scene))
    assert first["mate_0_dx"] == pytest.approx(5.44 / 50)
    assert first["mate_1_dx"] == pytest.approx(-27.2 / 50)
    assert (first["mate_0_keeper"], first["mate_1_keeper"]) == (0, 1)
    assert second["mate_0_dx"] == pytest.approx(-5.44 / 50)
    assert [first[f"foe_{rank}_distance"] for rank in range(3)] == pytest.approx([13.6 / 50, 16.72 / 50, 54.4 / 50])
    gone = columns("features", seen(**scene, right_team_active=np.array([True, True, False])))[0]
    assert [gone[f"foe_{rank}_distance"] for rank in range(3)] == pytest.approx([16.72 / 50, 54.4 / 50, 13.6 / 50])
    assert [gone[f"foe_{rank}_active"] for rank in range(3)] == [1, 1, 0]


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_an_agent_without_a_body_is_nobody(name: str) -> None:
    """The engine has not given it one yet, or its last one was sent off."""
    _, row = columns(name, seen(left_agent_controlled_player=[1, -1]))
    own = [value for column, value in row.items() if column.startswith(("self_is_", "controlled_", "legal_"))]
    assert sum(own) == (1 if name == "features" else 0)  # idle
    assert row.get("self_active", 0) == 0
    central = CentralState(seen())
    state = dict(zip(central.names, central(seen(left_agent_controlled_player=[1, -1])).tolist(), strict=True))
    assert [state[f"agent_1_is_{body}"] for body in range(3)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("right", "ball", "line"),
    [
        ([[1.0, 0], [0.3, 0], [0.2, 0]], 0.0, 0.3),  # the keeper is the last, body 1 the second-last
        ([[1.0, 0], [0.3, 0], [0.2, 0]], 0.5, 0.5),  # nobody before the ball is
        ([[1.0, 0], [-0.3, 0], [-0.2, 0]], -0.5, 0.0),  # nor in the own half
        ([[0.1, 0], [0.3, 0], [0.2, 0]], 0.0, 0.2),  # the keeper went forward
    ],
)
def test_the_off_side_line(right: list[list[float]], ball: float, line: float) -> None:
    view = seen(right_team=np.array(right), ball=np.array([ball, 0, 0.1]))
    assert off_side_line(view) == line


def test_off_side_is_shown() -> None:
    view = seen(left_team=np.array([[-1.0, 0], [0.4, 0.1], [0.2, 0.1]]))  # the line is at 0.3
    first, second = columns("features", view)
    assert (first["off_side"], second["off_side"]) == (1, 0)
    assert first["off_side_margin"] == pytest.approx(0.1)
    assert second["off_side_margin"] == pytest.approx(-0.1)
    assert second["mate_0_off_side"] == 1
    assert first["off_side_line"] == pytest.approx(0.3)


def test_the_step_before_is_remembered() -> None:
    before, now = seen(ball_owned_team=1, ball_owned_player=1), seen()
    assert columns("features", now, before)[0]["ball_was_their"] == 1
    assert columns("features", now)[0]["ball_was_nobody"] == 1


def test_the_match() -> None:
    view = seen(score=[1, 3], steps_left=1500, game_mode=Mode.CORNER, ball=np.array([0.9, -0.1, 10.0]))
    row = columns("features", view)[0]
    assert row["goals_own"] == pytest.approx(0.2)
    assert row["goals_their"] == pytest.approx(0.6)
    assert row["lead"] == pytest.approx(-2 / 3)
    assert (row["time_left"], row["mode_corner"], row["ball_their_box"], row["ball_z"]) == (0.5, 1, 1, 2)


@pytest.mark.parametrize("name", sorted(ENCODERS))
@pytest.mark.parametrize("rules", MASKS)
def test_both_sides_see_alike(name: str, rules: str) -> None:
    for seed in range(25):
        scene = drawn(seed)
        left, right = seen(LEFT, **scene), seen(RIGHT, **mirrored(scene))
        made = encoder(name, left)
        np.testing.assert_array_equal(made.encode(left, None), made.encode(right, None))
        np.testing.assert_array_equal(legal(left, rules), legal(right, rules))
        np.testing.assert_array_equal(CentralState(left)(left), CentralState(left)(right))


@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_the_kernels_say_what_the_slow_words_say(side: int) -> None:
    for seed in range(15):
        view, previous = seen(side, **drawn(seed)), seen(side, **drawn(seed + 1))
        made = encoder("features", view, duration=1000)
        for row, wanted in zip(made.encode(view, previous), features(view, previous, 1000), strict=True):
            assert wanted.keys() == set(made.names)
            np.testing.assert_allclose(row, [wanted[name] for name in made.names], atol=2e-6)
        state = CentralState(view, duration=1000)
        slow = central(view, 1000)
        assert slow.keys() == set(state.names)
        np.testing.assert_allclose(state(view), [slow[name] for name in state.names], atol=2e-6)


def test_numbers_stay_small() -> None:
    for seed in range(25):
        view = seen(**drawn(seed))
        assert np.abs(encoder("features", view).encode(view, None)).max() <= 3
        assert np.abs(CentralState(view)(view)).max() <= 3


def test_the_central_state() -> None:
    held = np.zeros((2, 10), np.uint8)
    held[1, 9] = 1
    view = seen(left_agent_sticky_actions=held, ball=np.array([0.25, 0, 0.11]), ball_owned_team=1, ball_owned_player=1)
    central = CentralState(view)
    state = dict(zip(central.names, central(view).tolist(), strict=True))
    assert len(state) == len(central.names)
    assert (state["ball_x"], state["ball_their"], state["their_1_has_ball"], state["own_1_has_ball"]) == (0.25, 1, 1, 0)
    assert state["their_1_ball_distance"] == pytest.approx(0.05 * 54.4 / 50)
    assert (state["agent_0_is_1"], state["agent_1_is_2"], state["agent_1_is_1"]) == (1, 1, 0)
    assert (state["agent_0_held_dribble"], state["agent_1_held_dribble"]) == (0, 1)


# --------------------------------------------------------------------------------------------------------------------
# Masks

ALWAYS = set(range(9)) | {Action.SPRINT}
KICKS = {Action.LONG_PASS, Action.HIGH_PASS, Action.SHORT_PASS, Action.SHOT}


def allowed(view: SideView, rules: str = "meaningful") -> list[set[int]]:
    mask = legal(view, rules)
    assert mask.dtype == np.bool_
    assert mask[:, Action.IDLE].all()
    return [set(np.flatnonzero(row).tolist()) for row in mask]


def test_without_the_ball_there_is_only_running() -> None:
    assert allowed(seen()) == [ALWAYS, ALWAYS]


def test_who_has_the_ball_may_kick_and_dribble() -> None:
    first, second = allowed(seen(ball_owned_team=0, ball_owned_player=1))
    assert first == ALWAYS | KICKS | {Action.DRIBBLE}  # however far it runs ahead
    assert second == ALWAYS


@pytest.mark.parametrize("owner", [-1, 0])
def test_a_ball_within_two_metres_may_be_kicked(owner: int) -> None:
    near: dict[str, Any] = {"ball": np.array([-0.1 + 1.9 / 54.4, 0.1, 0.1])}
    near |= {"ball_owned_team": owner, "ball_owned_player": owner}
    slide = {Action.SLIDING} if owner == -1 else set()
    assert allowed(seen(**near))[0] == ALWAYS | KICKS | {Action.DRIBBLE} | slide
    assert Action.SLIDING not in allowed(seen(**near), "tactical")[0]
    far = near | {"ball": np.array([-0.1 + 2.1 / 54.4, 0.1, 0.1])}
    assert allowed(seen(**far))[0] == ALWAYS


@pytest.mark.parametrize("rules", MASKS)
def test_sliding_is_for_a_ball_nearby_that_they_have(rules: str) -> None:
    theirs: dict[str, Any] = {"ball": np.array([-0.1, 0.1 + 1.9 / 83.6, 0.1])}
    theirs |= {"ball_owned_team": 1, "ball_owned_player": 1}
    assert allowed(seen(**theirs), rules) == [ALWAYS | {Action.SLIDING}, ALWAYS]
    held = np.zeros((2, 10), np.uint8)
    held[0, 9] = 1
    assert allowed(seen(**theirs, left_agent_sticky_actions=held), rules)[0] == ALWAYS | {Action.RELEASE_DRIBBLE}


def test_only_what_is_held_is_released() -> None:
    held = np.zeros((2, 10), np.uint8)
    held[0, [2, 8]] = 1
    first, second = allowed(seen(left_agent_sticky_actions=held))
    assert first == ALWAYS | {Action.RELEASE_DIRECTION, Action.RELEASE_SPRINT}
    assert second == ALWAYS


def test_who_was_sent_off_or_has_no_body_is_idle() -> None:
    gone = seen(left_team_active=np.array([True, False, True]), left_agent_controlled_player=[1, -1])
    assert allowed(gone) == [{Action.IDLE}, {Action.IDLE}]


def at_the_ball(x: float, y: float = 0.0, mode: int = 0) -> SideView:
    """Body 1 stands at the ball, body 2 far away."""
    team = np.array([[-1.0, 0.0], [x, y], [0.0, 0.4]])
    owned = {"ball_owned_team": 0, "ball_owned_player": 1}
    return seen(left_team=team, ball=np.array([x, y, 0.1]), game_mode=mode, **owned)


def test_tactical_masks_know_where_one_shoots() -> None:
    ball = ALWAYS | KICKS | {Action.DRIBBLE}
    assert allowed(at_the_ball(0.5), "tactical")[0] == ball - {Action.SHOT}
    assert allowed(at_the_ball(0.7), "tactical")[0] == ball - {Action.LONG_PASS, Action.HIGH_PASS}
    assert allowed(at_the_ball(0.7, 0.3), "tactical")[0] == ball - {Action.SHOT}


@pytest.mark.parametrize(
    ("mode", "x", "kicks"),
    [
        (Mode.GOAL_KICK, -0.95, KICKS - {Action.SHOT}),
        (Mode.CORNER, 1.0, KICKS - {Action.SHOT}),
        (Mode.PENALTY, 0.8, {Action.SHOT}),
    ],
)
def test_tactical_masks_know_restarts(mode: Mode, x: float, kicks: set[int]) -> None:
    taker, other = allowed(at_the_ball(x, mode=mode), "tactical")
    assert taker == {Action.IDLE} | kicks
    assert other == ALWAYS


def test_views_compile_the_kernels_once() -> None:
    """Whichever side, and however the engine's table is cut."""
    table = np.arange(24, dtype=np.float64).reshape(3, 8) / 30
    cut = {f"{side}_team": table[:, 0:2] for side in ("left", "right")}
    cut |= {f"{side}_team_tired_factor": table[:, 4] for side in ("left", "right")}
    for side in (LEFT, RIGHT):
        for view in (seen(side), seen(side, **cut), opposite(seen(side, **cut))):
            encoder("features", view).encode(view, None)
            CentralState(view)(view)
            legal(view)
    assert [len(kernel.signatures) for kernel in (write_features, write_state, write_mask)] == [1, 1, 1]
