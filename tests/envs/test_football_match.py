"""A match's rows, on a scripted engine: who decides, whose actions are turned, who is paid, and what pictures say where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from football_scenes import raw

from ludus.contrib.football import frames, match
from ludus.contrib.football.encoders import encoder, legal
from ludus.contrib.football.frames import Frames
from ludus.contrib.football.match import Match, MatchConfig
from ludus.contrib.football.scenarios import (
    Controls,
    Formation,
    MatchRules,
    StartingPlayer,
    controls,
    initial_view,
    role_names,
    with_rules,
)
from ludus.contrib.football.shaping import Rewards
from ludus.contrib.football.view import LEFT, RIGHT, Action, SideView
from ludus.core.errors import EnvError
from ludus.envs.publisher import TERMINATED

RULES = MatchRules((0.3, 0.6), 400, 999, True, True, False, True, False, False)
TEAM = tuple(
    StartingPlayer(x, y, role, False, True) for x, y, role in ((-1.0, 0.0, 0), (-0.1, 0.1, 1), (-0.2, -0.2, 9))
)
MADE = Formation(TEAM, TEAM, (0.25, 0.5), RULES)


class Scripted:
    """An engine that shows scenes one after the other; the last ends the match. given: what it was told to do."""

    scenes: Sequence[dict[str, Any]] = ()
    given: list[list[list[int]]]

    def reset(self, config: Any, agents: tuple[int, int]) -> None:
        self.now, Scripted.given = 0, []

    def step(self, actions: list[list[int]]) -> bool:
        self.given.append([list(map(int, side)) for side in actions])
        self.now += 1
        return self.now == len(self.scenes) - 1

    @property
    def raw(self) -> dict[str, Any]:
        return self.scenes[self.now]

    def close(self) -> None:
        pass


def played(monkeypatch: pytest.MonkeyPatch, scenes: list[dict[str, Any]], *, players: tuple[int, ...]) -> Match:
    """A match between two agents on the left and one on the right, or of one side of these."""
    monkeypatch.setattr(Scripted, "scenes", scenes)
    monkeypatch.setattr(match, "Engine", Scripted)
    monkeypatch.setattr(match, "engine_config", lambda made, control, **_: None)
    control = Controls((2 if LEFT in players else 0, 1 if RIGHT in players else 0), ((1, 2), (2,)))
    sights = [initial_view(MADE, control, side=side) for side in players]
    return Match(
        MatchConfig(
            id="football/scripted",
            formation={LEFT: MADE, RIGHT: MADE}.__getitem__,
            controls=control,
            players=players,
            random_sides=False,
            encode=tuple(encoder("floats", sight).encode for sight in sights),
            legal=legal,
            central=None,
            pay=partial(Rewards, {"score": 1.0}),
            statistics=("goals_against", "goals", "possession"),
            frames=Frames("football/scripted"),
            observation_kind="numbers",
            renderer="pitch",
        )
    )


def agents(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    return [row[0] for row in rows]


def test_who_is_sent_off_decides_no_more_and_earns_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    off = {"left_agent_controlled_player": [1, -1]}
    env = played(monkeypatch, [raw(), raw(**off), raw(score=[1, 0], **off), raw(score=[1, 0], **off)], players=(LEFT,))
    assert agents(env.reset(1).due) == [0, 1]
    happened = env.step([Action.SHOT, Action.SLIDING])
    assert (agents(happened.due), happened.gone, happened.reward) == ([0], [], [])
    happened = env.step([Action.SHOT, Action.SLIDING])  # the second stands there from before
    assert agents(happened.due) == [0]
    assert happened.reward == [(0, 0.5), (1, 0.5)]
    happened = env.step([Action.SPRINT, Action.SLIDING])
    assert happened.over == TERMINATED
    assert [(agent, how) for agent, _, how in happened.gone] == [(0, TERMINATED), (1, TERMINATED)]
    assert Scripted.given == [[[12, 16], []], [[12, 0], []], [[13, 0], []]]


def test_where_nobody_has_a_body_the_match_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    none = {"left_agent_controlled_player": [-1, -1]}
    scenes = [raw(), raw(**none), raw(score=[0, 1], **none), raw(score=[0, 1]), raw(score=[0, 1])]
    env = played(monkeypatch, scenes, players=(LEFT,))
    env.reset(1)
    happened = env.step([Action.RIGHT, Action.LEFT])
    assert agents(happened.due) == [0, 1]
    assert happened.reward == [(0, -0.5), (1, -0.5)]
    assert Scripted.given == [[[5, 1], []], [[0, 0], []], [[0, 0], []]]


def test_actions_of_the_right_side_are_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    env = played(monkeypatch, [raw(), raw(), raw(score=[0, 1])], players=(LEFT, RIGHT))
    assert agents(env.reset(1).due) == [0, 1, 2]
    env.step([Action.TOP_LEFT, Action.RIGHT, Action.TOP_LEFT])
    happened = env.step([Action.SHOT, Action.IDLE, Action.SHOT])
    assert Scripted.given == [[[2, 5], [6]], [[12, 0], [12]]]
    assert sorted(happened.reward) == [(0, -0.5), (1, -0.5), (2, 1.0)]
    assert env.side_of == (LEFT, RIGHT)


def test_statistics_per_player(monkeypatch: pytest.MonkeyPatch) -> None:
    """So far, in the order of the names; the right side has the ball in three steps of four, and scores."""
    ours, theirs = {"ball_owned_team": 0, "ball_owned_player": 1}, {"ball_owned_team": 1, "ball_owned_player": 2}
    scenes = [raw(), raw(**ours), raw(**theirs), raw(**theirs), raw(score=[0, 1], **theirs)]
    env = played(monkeypatch, scenes, players=(LEFT, RIGHT))
    env.reset(1)
    found = [env.step([Action.IDLE] * 3).statistics for _ in range(4)]
    np.testing.assert_array_equal(found[0], [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(found[1], [[0.0, 0.0, 0.5], [0.0, 0.0, 0.5]])
    np.testing.assert_array_equal(found[3], [[1.0, 0.0, 0.25], [0.0, 1.0, 0.75]])


def test_masks_and_rows_are_those_of_the_side(monkeypatch: pytest.MonkeyPatch) -> None:
    env = played(monkeypatch, [raw(), raw()], players=(RIGHT,))
    ((agent, row, mask),) = env.reset(1).due
    view = env.views[0]
    assert (agent, view.side) == (0, RIGHT)
    np.testing.assert_array_equal(row, encoder("floats", view).encode(view, None)[0])
    np.testing.assert_array_equal(mask, legal(view)[0])


def test_pictures_are_of_the_pitch(monkeypatch: pytest.MonkeyPatch) -> None:
    env = played(monkeypatch, [raw(), raw()], players=(LEFT,))
    env.reset(1)
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    assert (picture.dtype, picture.ndim, picture.shape[2]) == (np.uint8, 3, 3)


class Blind:
    """An engine's subprocess that cannot draw."""

    def frame(self, *_: Any) -> None:
        raise SystemExit(3)

    def close(self) -> None:
        pass


def test_an_engine_that_cannot_draw_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FrameWorker", Blind)
    pictures = Frames("football/5_vs_5")
    with pytest.raises(
        EnvError, match=r"cannot draw football/5_vs_5 here: its subprocess .* EGL .* the pitch can be drawn"
    ):
        pictures.frame(MADE, Controls((1, 0), ((1,), ())), seed=1, reverse=False, state=b"")
    pictures.close()


# ------------------------------------------------------------------------------------------ who steers whom


@pytest.mark.parametrize(
    ("options", "counts", "fixed"),
    [
        ({"sides": "left", "agents": None, "keepers": False}, (2, 0), True),
        ({"sides": "both", "agents": None, "keepers": True}, (3, 3), True),
        ({"sides": "random", "agents": 1, "keepers": False}, (1, 0), False),
        (
            {"sides": "both", "agents": (2, 1), "keepers": False},
            (2, 1),
            False,
        ),  # the engine hands out both sides' bodies
        ({"sides": "right", "agents": (3, 2), "keepers": False}, (0, 2), True),
    ],
)
def test_controls(options: dict[str, Any], counts: tuple[int, int], fixed: bool) -> None:
    found = controls("x", MADE, **options)
    assert found.agents == counts
    side = LEFT if counts[LEFT] else RIGHT
    assert found.fixed(side) == fixed


def test_roles_are_those_of_the_bodies() -> None:
    control = controls("x", MADE, sides="left", agents=None, keepers=True)
    assert role_names(MADE, control, LEFT, roles="keeper") == ["keeper", "field", "field"]
    assert role_names(MADE, control, LEFT, roles="position") == ["gk", "cb", "cf"]


def test_the_first_sight_is_the_formation() -> None:
    control = controls("x", MADE, sides="both", agents=None, keepers=False)
    left, right = (initial_view(MADE, control, side=side) for side in (LEFT, RIGHT))
    assert left.own_position.tolist() == right.own_position.tolist() == [[-1.0, 0.0], [-0.1, 0.1], [-0.2, -0.2]]
    assert (left.ball.tolist(), right.ball.tolist()) == ([0.25, 0.5, 0.0], [-0.25, -0.5, 0.0])
    assert isinstance(left, SideView)
    assert left.controlled.tolist() == [1, 2]


def test_a_formation_turned() -> None:
    turned = with_rules("x", MADE, {"duration": 3}).turned
    assert (turned.ball, turned.rules.difficulty, turned.rules.duration) == ((-0.25, -0.5), (0.6, 0.3), 3)


def test_who_keeps_goal_for_a_keeper_who_was_sent_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine hands the keeper's part to the first of the bodies that are left."""

    def body(role: int, *, active: bool = True) -> SimpleNamespace:
        still = {"position": (0.0, 0.0), "direction": (0.0, 0.0), "tired_factor": 0.0}
        return SimpleNamespace(role=role, is_active=active, has_card=False, designated_player=False, **still)

    whole = [body(0), body(1), body(9)]
    nothing = {"ball_position": (0, 0, 0), "ball_direction": (0, 0, 0), "ball_rotation": (0, 0, 0), "game_mode": 0}
    nobody = {"ball_owned_team": -1, "ball_owned_player": -1, "left_goals": 0, "right_goals": 0}
    info = SimpleNamespace(
        is_in_play=True, step=1, left_team=whole, right_team=whole, left_controllers=[], right_controllers=[]
    )
    info.__dict__.update(nothing | nobody)
    lib = MagicMock()
    lib.GameEnv().get_info.return_value = info
    lib.GameEnv().waiting_for_game_count = 0
    monkeypatch.setattr(match, "engine", lambda: lib)
    monkeypatch.setattr(match, "_idle", [])
    made = match.Engine()
    ends = {f"end_episode_on_{what}": False for what in ("score", "out_of_play", "possession_change")}
    made.reset(SimpleNamespace(game_duration=400, **ends), (0, 0))
    assert made.raw["left_team_roles"].tolist() == made.raw["right_team_roles"].tolist() == [0, 1, 9]
    info.left_team = [body(0, active=False), body(0), body(9)]
    made.step([[], []])
    assert made.raw["left_team_roles"].tolist() == [0, 0, 9]
    assert made.raw["right_team_roles"].tolist() == [0, 1, 9]
