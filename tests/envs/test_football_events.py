"""Events and statistics on written scenes, step by step."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from football_scenes import kicked, seen

from ludus.contrib.football.events import Events, Follower, PlayerRef
from ludus.contrib.football.match_statistics import NAMES, MatchStatistics
from ludus.contrib.football.view import LEFT, NOBODY, OWN, RIGHT, THEIR, Mode, SideView

Step = dict[str, Any]


def at(x: float, y: float = 0.0, z: float = 0.11) -> np.ndarray[Any, Any]:
    return np.array([x, y, z])


def has(side: int, body: int, x: float = 0.0, y: float = 0.0) -> Step:
    """A body has the ball there. side: LEFT or RIGHT."""
    return {"ball_owned_team": side, "ball_owned_player": body, "ball": at(x, y)}


def flies(x: float, y: float = 0.0, *, z: float = 0.11, by: tuple[float, float, float] = (1.6, 0, 0)) -> Step:
    """The ball is nobody's, there, and moves by so many metres a step."""
    return {"ball": at(x, y, z), "ball_direction": kicked(*by)}


def followed(*steps: Step, side: int = LEFT) -> list[Events]:
    views = [seen(side, **step) for step in steps]
    follower = Follower()
    follower.begin(views[0])
    return [follower.see(before, after) for before, after in pairwise(views)]


def counted(*steps: Step, side: int = LEFT) -> dict[str, list[float]]:
    """name -> [of the left, of the right]."""
    views = [seen(side, **step) for step in steps]
    statistics = MatchStatistics()
    statistics.begin(views[0])
    for before, after in pairwise(views):
        statistics.see(before, after)
    totals = statistics.totals()
    assert totals.shape == (2, len(NAMES))
    return dict(zip(NAMES, totals.T.tolist(), strict=True))


def happened(events: Events) -> dict[str, Any]:
    """What is not as in a quiet step."""
    quiet = Events()
    return {
        f.name: getattr(events, f.name)
        for f in dataclasses.fields(Events)
        if getattr(events, f.name) != getattr(quiet, f.name)
    }


A, B = PlayerRef(OWN, 1), PlayerRef(OWN, 2)
FOE, KEEPER = PlayerRef(THEIR, 1), PlayerRef(THEIR, 0)
PASS = (has(LEFT, 1), flies(0.02), flies(0.05))
SHOT = (has(LEFT, 1, 0.7), flies(0.72, by=(2.9, 0, 0.1)))


def test_a_completed_pass() -> None:
    kick, flight, arrival = followed(*PASS, has(LEFT, 2, 0.1))
    assert happened(kick) == happened(flight) == {}
    assert happened(arrival) == {"passed": OWN, "completed": (A, B)}


def test_an_intercepted_pass() -> None:
    arrival = followed(*PASS, has(RIGHT, 1, 0.1))[-1]
    assert happened(arrival) == {"passed": OWN, "intercepted": FOE, "lost": A}


TOUCHED = flies(0.3, by=(2.9, 0, 0)) | {"left_team": np.array([[-1.0, 0], [0, 0], [0.08, 0]])}


def test_a_ball_kicked_on_first_time_is_received_and_kicked() -> None:
    """Body 2 of the left stands 1.6 metres from where the ball was; nobody ever has it."""
    near = flies(0.05) | {"left_team": TOUCHED["left_team"]}
    shot = followed(has(LEFT, 1), flies(0.02), near, TOUCHED)[-1]
    assert happened(shot) == {"passed": OWN, "completed": (A, B), "shot": B, "on_target": OWN}
    foe = near | {
        "left_team": np.array([[-1.0, 0], [0, 0], [-0.5, 0]]),
        "right_team": np.array([[1.0, 0], [0.06, 0], [0.5, 0]]),
    }
    away = flies(0.03, by=(-2, 0, 0))
    assert happened(followed(has(LEFT, 1), flies(0.02), foe, away)[-1]) == {
        "passed": OWN,
        "intercepted": FOE,
        "lost": A,
    }


@pytest.mark.parametrize(
    ("speed", "away", "touched"),
    [(1.91, 0.03, True), (1.89, 0.03, False), (1.91, 0.04, False)],  # 1.6 and 0.3 more; 1.63 and 2.18 metres
)
def test_first_touch_detection(speed: float, away: float, touched: bool) -> None:
    team = {"left_team": np.array([[-1.0, 0], [-0.5, 0], [0.05 + away, 0]])}
    found = followed(has(LEFT, 1, 0.02), flies(0.05) | team, flies(0.07, by=(speed, 0, 0)) | team)[-1]
    assert (happened(found) == {"passed": OWN, "completed": (A, B)}) == touched
    assert (happened(found) == {}) != touched


def test_a_pass_to_oneself_is_none() -> None:
    assert [happened(e) for e in followed(*PASS, has(LEFT, 1, 0.1))] == [{}, {}, {}]


def test_a_pass_that_goes_out() -> None:
    throw_in = has(RIGHT, 2, 0.1, 0.42) | {"game_mode": Mode.THROW_IN}
    kick, _, out = followed(*PASS, throw_in)
    assert happened(kick) == {}
    assert happened(out) == {"passed": OWN, "out": OWN, "restart": Mode.THROW_IN}


def test_a_loose_ball_that_the_opponents_take_is_a_tackle() -> None:
    """0.9 metres a step is no kick."""
    loose = flies(0.01, by=(0.9, 0, 0))
    assert happened(followed(has(LEFT, 1), loose, has(RIGHT, 1))[-1]) == {"tackled": FOE, "lost": A}
    assert happened(followed(has(LEFT, 1), loose, has(LEFT, 2))[-1]) == {}


def test_a_ball_taken_from_the_feet_is_a_tackle() -> None:
    assert happened(followed(has(LEFT, 1), has(RIGHT, 1))[0]) == {"tackled": FOE, "lost": A}


def test_a_ball_handed_over_is_a_pass() -> None:
    assert happened(followed(has(LEFT, 1), has(LEFT, 2))[0]) == {"passed": OWN, "completed": (A, B)}


def test_a_ball_that_nobody_had_is_only_won() -> None:
    assert happened(followed(flies(0.0), has(RIGHT, 1))[0]) == {}


def test_a_ball_that_is_put_down_is_neither_run_nor_pass() -> None:
    """More than five metres a step."""
    assert [happened(e) for e in followed(has(LEFT, 1, 0.3), has(LEFT, 1, 0.0))] == [{}]
    assert [happened(e) for e in followed(has(LEFT, 1, 0.1), flies(0.2), flies(0.0), has(LEFT, 2))] == [{}] * 3
    assert followed(has(LEFT, 1, 4.9 / 54.4), has(LEFT, 1, 0.0))[0].metres == pytest.approx(4.9)


def test_a_run_is_measured_in_metres() -> None:
    (run,) = followed(has(LEFT, 1, 0.0, 0.0), has(LEFT, 1, 3 / 54.4, 4 / 83.6))
    assert run.carried == A
    assert run.metres == pytest.approx(5)


@pytest.mark.parametrize(
    ("step", "shot", "on_target"),
    [
        (flies(0.7, by=(2.9, 0.0, 0.0)), True, True),
        (flies(0.7, 0.04, by=(1.8, 0.0, 0.0)), True, True),  # 3.3 metres beside the middle; the post is at 3.68
        (flies(0.7, 0.05, by=(1.8, 0.0, 0.0)), True, False),  # 4.2 metres
        (flies(0.7, 0.1, by=(1.8, 0.0, 0.0)), False, False),  # 8.4 metres
        (flies(0.7, by=(1.7, 0.0, 0.0)), False, False),  # too slow
        (flies(0.25, by=(2.9, 0.0, 0.0)), False, False),  # 40.8 metres away
        (flies(0.27, by=(2.9, 0.0, 0.0)), True, True),  # 39.7 metres
        (flies(0.7, by=(-2.9, 0.0, 0.0)), False, False),
        # 16.32 metres take 5.63 steps; it rises 0.6 metres a step and falls by 1.55 metres: 1.93 metres high
        (flies(0.7, by=(2.9, 0.0, 0.6)), True, True),
        (flies(0.7, by=(2.9, 0.0, 0.7)), True, False),  # 2.5 metres high; the bar is at 2.44
    ],
)
def test_shot_detection(step: Step, shot: bool, on_target: bool) -> None:
    (kick,) = followed(has(LEFT, 1, 0.7), step)
    assert kick.shot == (A if shot else PlayerRef(NOBODY, -1))
    assert kick.on_target == (OWN if on_target else NOBODY)


def test_a_shot_of_the_right() -> None:
    (kick,) = followed(has(RIGHT, 1, -0.7), flies(-0.7, by=(-2.9, 0, 0)))
    assert (kick.shot, kick.on_target) == (FOE, THEIR)


def test_a_saved_shot_and_a_blocked_one() -> None:
    assert happened(followed(*SHOT, has(RIGHT, 0, 0.99))[-1]) == {"saved": THEIR}
    assert happened(followed(*SHOT, has(RIGHT, 1, 0.9))[-1]) == {}


def test_a_parried_shot_is_saved_once() -> None:
    """The keeper is 2.7 metres away when the ball loses 2 metres a step; then he picks it up."""
    parry = (flies(0.95, by=(2.5, 0, 0)), flies(0.93, by=(-0.5, 0, 0)))
    saved, caught = followed(*SHOT, *parry, has(RIGHT, 0, 0.93))[2:]
    assert happened(saved) == {"saved": THEIR}
    assert happened(caught) == {}
    assert happened(followed(*SHOT, *parry, has(LEFT, 2, 0.93))[-1]) == {}
    slower = (flies(0.95, by=(2.5, 0, 0)), flies(0.97, by=(2.1, 0, 0)))
    assert happened(followed(*SHOT, *slower)[-1]) == {}  # 0.4 of drag
    far = (flies(0.92, by=(2.5, 0, 0)), flies(0.9, by=(-0.5, 0, 0)))  # the keeper is 4.4 metres away
    assert happened(followed(*SHOT, *far)[-1]) == {}


def test_a_goal() -> None:
    shot, goal = followed(*SHOT, {"score": [1, 0]})
    assert (shot.shot, shot.on_target) == (A, OWN)
    assert happened(goal) == {"goal": OWN}


def test_a_wide_shot_that_goes_in_was_on_target() -> None:
    kick, goal = followed(has(LEFT, 1, 0.7), flies(0.72, 0.05, by=(2.9, 0, 0)), {"score": [1, 0]})
    assert kick.on_target == NOBODY
    assert happened(goal) == {"goal": OWN, "on_target": OWN}


def test_a_pass_that_goes_in_was_a_shot() -> None:
    goal = followed(has(LEFT, 1, 0.9), flies(0.95, by=(1.5, 0, 0)), {"score": [1, 0]})[-1]
    assert happened(goal) == {"goal": OWN, "shot": A, "on_target": OWN}


def test_a_deflected_shot_is_no_own_goal() -> None:
    touched = (*SHOT, has(RIGHT, 1, 0.9), flies(0.95, by=(1.2, 0, 0)), {"score": [1, 0]})
    assert happened(followed(*touched)[-1]) == {"goal": OWN}


def test_an_own_goal() -> None:
    goal = followed(has(RIGHT, 1, 0.9), flies(0.95, by=(1.2, 0, 0)), {"score": [1, 0]})[-1]
    assert happened(goal) == {"goal": OWN, "own_goal": True, "passed": THEIR}


@pytest.mark.parametrize(
    ("restart", "out"),
    [
        ({"game_mode": Mode.GOAL_KICK, "ball": at(0.93)}, OWN),
        ({"game_mode": Mode.GOAL_KICK, "ball": at(-0.93)}, THEIR),
        ({"game_mode": Mode.CORNER, "ball": at(1.0, 0.42)}, THEIR),
        ({"game_mode": Mode.CORNER, "ball": at(-1.0, 0.42)}, OWN),
        (has(RIGHT, 2, 0.5, 0.42) | {"game_mode": Mode.THROW_IN}, OWN),
        (has(LEFT, 2, 0.5, 0.42) | {"game_mode": Mode.THROW_IN}, THEIR),
        ({"game_mode": Mode.FREE_KICK}, NOBODY),
    ],
)
def test_who_put_the_ball_out(restart: Step, out: int) -> None:
    assert followed(flies(0.5), restart)[0].out == out


def test_a_restart_is_a_pass_of_who_takes_it() -> None:
    """The keeper of the right takes the goal kick: nobody owns the ball before, and he is the nearest."""
    kick = ({"game_mode": Mode.GOAL_KICK, "ball": at(0.95)}, flies(0.9, by=(-2, 0, 0)))
    assert happened(followed(*kick, has(RIGHT, 1, 0.8))[-1]) == {"passed": THEIR, "completed": (KEEPER, FOE)}
    assert happened(followed(*kick, has(LEFT, 1, 0.8))[-1]) == {"passed": THEIR, "intercepted": A, "lost": KEEPER}


FREE = ({"game_mode": Mode.FREE_KICK, "ball": at(0.29)}, flies(0.29))  # body 1 of the right takes it


def test_a_free_kick_after_a_tackle_is_a_foul() -> None:
    assert happened(followed(has(RIGHT, 2), *FREE)[-1]) == {"foul": OWN}
    assert happened(followed(has(LEFT, 2), *FREE)[-1]) == {"foul": OWN}  # no pass was on its way
    assert happened(followed(*PASS, has(LEFT, 2, 0.1), *FREE)[-1]) == {"foul": OWN}


def test_a_free_kick_after_the_offenders_pass_is_off_side() -> None:
    kick, _, call, taken = followed(*PASS, *FREE)
    assert happened(kick) == {}
    assert happened(call) == {"passed": OWN, "restart": Mode.FREE_KICK}
    assert happened(taken) == {"off_side": OWN}


def test_statistics_of_a_little_match() -> None:
    match: tuple[Step, ...] = (
        {},
        has(LEFT, 1),
        has(LEFT, 1, 2 / 54.4),  # a run of two metres
        flies(0.1),
        has(LEFT, 2, 0.2),  # a pass
        flies(0.3),
        has(RIGHT, 1, 0.3),  # intercepted
        has(LEFT, 1, 0.3),  # a tackle
        flies(0.7, by=(2.9, 0, 0)),  # 16 metres before the goal: on target
        has(RIGHT, 0, 0.99),  # saved
        flies(0.95, by=(-1.5, 0, 0)),
        {"game_mode": Mode.CORNER, "ball": at(1.0, 0.42), "left_team": np.array([[-1.0, 0], [0.5, 0], [1.0, 0.42]])},
        flies(0.98, 0.3, by=(0, -1.5, 0)) | {"right_team_yellow_card": np.array([False, True, False])},
        has(LEFT, 1, 0.98) | {"right_team_yellow_card": np.array([False, True, False])},
        flies(0.99, by=(2, 0, 0)) | {"right_team_active": np.array([True, False, True])},
        {"score": [1, 0]},
    )
    found = counted(*match)
    wanted: dict[str, list[float]] = {name: [0, 0] for name in NAMES} | {
        "goals": [1, 0],
        "shots": [2, 0],
        "shots_on_target": [2, 0],
        "saves": [0, 1],
        "possession": [5 / 7, 2 / 7],
        "passes": [3, 1],  # the corner is one; the keeper's went out
        "passes_completed": [2, 0],
        "interceptions": [0, 1],
        "tackles": [1, 0],
        "run_with_ball": [2, 0],
        "out_of_play": [0, 1],
        "corners": [1, 0],
        "yellow_cards": [0, 1],
        "red_cards": [0, 1],
    }
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name] == pytest.approx(values), name
    assert counted(*match, side=RIGHT) == found


def test_nobody_ever_had_the_ball() -> None:
    assert counted({}, {})["possession"] == [0.5, 0.5]


def test_a_new_match_begins_at_nothing() -> None:
    statistics = MatchStatistics()
    views: list[SideView] = [seen(**step) for step in (has(LEFT, 1), flies(0.1), has(LEFT, 2, 0.2), {"score": [1, 0]})]
    for _ in range(2):
        statistics.begin(views[0])
        for before, after in pairwise(views):
            statistics.see(before, after)
    totals = dict(zip(NAMES, statistics.totals()[0].tolist(), strict=True))
    assert (totals["goals"], totals["passes"], totals["possession"]) == (1, 1, 1)
