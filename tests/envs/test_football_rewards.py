"""What a side is paid, by hand; checkpoints beside gfootball's own."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from football_scenes import kicked, seen

from ludus.contrib.football.shaping import TERMS, ZERO_SUM, Rewards
from ludus.contrib.football.view import LEFT, RIGHT, Mode
from ludus.core.errors import ConfigError, UnknownName

Step = dict[str, Any]


def at(x: float, y: float = 0.0) -> np.ndarray[Any, Any]:
    return np.array([x, y, 0.11])


def has(side: int, body: int, x: float = 0.0) -> Step:
    return {"ball_owned_team": side, "ball_owned_player": body, "ball": at(x)}


def flies(x: float, *, by: float = 1.6) -> Step:
    return {"ball": at(x), "ball_direction": kicked(by, 0)}


def paid(term: str, *steps: Step, side: int = LEFT, weight: float = 1.0) -> list[list[float]]:
    """What each of the side's agents earned at each step but the first, before it is shared out."""
    views = [seen(side, **step) for step in steps]
    rewards = Rewards({term: weight})
    rewards.begin(views[0])
    agents = len(views[0].controlled)
    return [(rewards(b, a) * agents).tolist() for b, a in pairwise(views)]


def test_score() -> None:
    goals = ({}, {"score": [1, 0]}, {"score": [1, 2]})
    assert paid("score", *goals) == [[1, 1], [-2, -2]]
    assert paid("score", *goals, side=RIGHT) == [[-1], [2]]
    assert paid("goal", *goals) == [[1, 1], [0, 0]]
    assert paid("conceded", *goals) == [[0, 0], [-2, -2]]


def test_pay_is_shared_out() -> None:
    rewards = Rewards({"score": 3.0, "possession": 0.5})
    before, after = seen(), seen(score=[1, 0], ball_owned_team=0, ball_owned_player=1)
    rewards.begin(before)
    assert rewards(before, after).tolist() == [1.75, 1.75]


def test_win() -> None:
    assert paid("win", {"steps_left": 1, "score": [1, 0]}, {"steps_left": 0, "score": [1, 0]}) == [[1, 1]]
    assert paid("win", {"steps_left": 1, "score": [1, 0]}, {"steps_left": 0, "score": [1, 0]}, side=RIGHT) == [[-1]]
    assert paid("win", {"steps_left": 1}, {"steps_left": 0}) == [[0, 0]]
    assert paid("win", {"steps_left": 2, "score": [1, 0]}, {"steps_left": 1, "score": [1, 0]}) == [[0, 0]]


def test_checkpoints() -> None:
    """Rings at 0.99, 0.90, 0.81, 0.72, 0.63, 0.55, 0.46, 0.37, 0.28, 0.19 from the goal."""
    run = (
        has(LEFT, 1, -0.2),
        has(LEFT, 1, 0.05),  # 0.95 away: one ring
        has(LEFT, 1, 0.3),  # 0.7 away: three more
        has(LEFT, 1, 0.1),  # back again: none
        flies(0.5),  # nobody's: none
        has(LEFT, 2, 0.5),  # 0.5 away: six, of the other agent
        has(RIGHT, 1, 0.9),  # theirs
        has(LEFT, 1, 0.85),  # all ten, of which it has four
        {"score": [1, 0]},  # what is left: none for the first, four for the second
    )
    wanted = [[1, 0], [3, 0], [0, 0], [0, 0], [0, 6], [0, 0], [6, 0], [0, 4]]
    assert paid("checkpoints", *run) == wanted


def test_checkpoints_are_those_of_the_package() -> None:
    """Together with the score, beside gfootball's wrapper, over drawn steps of a match, for both agents."""
    wrappers = pytest.importorskip("gfootball.env.wrappers", reason="gfootball is not installed: make football")

    shown: list[dict[str, Any]] = []
    package = SimpleNamespace(observation=lambda: shown)
    package.unwrapped = package
    wrapper = wrappers.CheckpointRewardWrapper.__new__(wrappers.CheckpointRewardWrapper)
    wrapper.env, wrapper._collected_checkpoints = package, {}
    wrapper._num_checkpoints, wrapper._checkpoint_reward = 10, 0.1
    rng = np.random.default_rng(0)
    rewards = Rewards({"score": 1, "checkpoints": 0.1})
    score, total = [0, 0], 0.0
    before = seen()
    rewards.begin(before)
    for _ in range(300):
        score = [score[0] + int(rng.random() < 0.005), score[1] + int(rng.random() < 0.01)]
        owner = int(rng.integers(-1, 2))
        after = seen(
            ball=rng.uniform([-1, -0.42, 0], [1, 0.42, 1]),
            ball_owned_team=owner,
            ball_owned_player=int(rng.integers(3)) if owner >= 0 else -1,
            score=list(score),
        )
        goals = (after.score[0] - before.score[0]) - (after.score[1] - before.score[1])
        shown[:] = [
            {"ball_owned_team": owner, "ball_owned_player": after.ball_body, "active": body, "ball": after.ball}
            for body in (1, 2)
        ]
        wanted = wrapper.reward(np.full(2, goals, np.float32))
        earned = rewards(before, after) * 2
        np.testing.assert_allclose(earned, wanted, atol=1e-6)
        total += float(earned.sum())
        before = after
    assert rewards._collected.tolist() == [10, 10]
    assert total == pytest.approx(2 * (score[0] - score[1]) + 2)


def test_ball_progress() -> None:
    steps = (flies(0.1), flies(0.15), flies(0.12), flies(0.13) | {"score": [1, 0]})
    assert paid("ball_progress", *steps) == [pytest.approx([0.05, 0.05]), pytest.approx([-0.03, -0.03]), [0, 0]]
    assert paid("ball_progress", flies(0.1), flies(0.15), side=RIGHT) == [pytest.approx([-0.05])]


@pytest.mark.parametrize("term", ["ball_progress", "move_to_ball"])
def test_a_ball_that_is_put_down_has_not_moved(term: str) -> None:
    """For a restart; and for a kick-off, a step after the score shows the goal."""
    ran = {"left_team": np.array([[-1.0, 0], [-0.2, 0.1], [-0.3, -0.2]])}
    assert paid(term, flies(0.1), flies(0.11) | ran | {"game_mode": Mode.GOAL_KICK}) == [[0, 0]]
    assert paid(term, flies(1.01), flies(0.0) | ran) == [[0, 0]]


def test_possession() -> None:
    steps = (flies(0.0), has(LEFT, 0), has(RIGHT, 0), flies(0.0))
    assert paid("possession", *steps) == [[1, 1], [-1, -1], [0, 0]]
    assert paid("possession", *steps, side=RIGHT) == [[-1], [1], [0]]


PASS = (has(LEFT, 1), flies(0.02), flies(0.05))


def test_passes() -> None:
    done = (*PASS, has(LEFT, 2, 0.1))
    assert paid("pass", *done) == [[0, 0], [0, 0], [1, 0]]
    assert paid("received_pass", *done) == [[0, 0], [0, 0], [0, 1]]
    assert paid("pass", *PASS, has(RIGHT, 2, 0.1))[-1] == [0, 0]
    assert paid("pass", *done, side=RIGHT)[-1] == [0]


def test_an_only_agent_is_paid_for_all_that_its_side_does() -> None:
    """It steers body 2; the keeper, body 0, passes to body 1."""
    done = (has(RIGHT, 0), flies(-0.1, by=-1.6), has(RIGHT, 1, -0.2))
    assert paid("pass", *done, side=RIGHT)[-1] == [1]
    assert paid("received_pass", *done, side=RIGHT)[-1] == [1]


def test_won_and_lost_balls() -> None:
    intercepted = (*PASS, has(RIGHT, 2, 0.1))
    assert paid("lost_ball", *intercepted)[-1] == [-1, 0]
    assert paid("won_ball", *intercepted, side=RIGHT)[-1] == [1]
    tackled = (has(RIGHT, 2), has(LEFT, 2))
    assert paid("won_ball", *tackled) == [[0, 1]]
    assert paid("lost_ball", *tackled, side=RIGHT) == [[-1]]


def test_shots() -> None:
    straight = (has(LEFT, 2, 0.7), flies(0.72, by=2.9))
    assert paid("shot", *straight) == [[0, 1]]
    assert paid("shot_on_target", *straight) == [[1, 1]]
    wide = (has(LEFT, 2, 0.7), {"ball": at(0.72, 0.05), "ball_direction": kicked(2.9, 0)})
    assert paid("shot", *wide) == [[0, 1]]
    assert paid("shot_on_target", *wide) == [[0, 0]]


def test_out_of_play() -> None:
    throw_in = has(RIGHT, 2) | {"game_mode": Mode.THROW_IN}
    assert paid("out_of_play", *PASS, throw_in)[-1] == [-1, -1]
    assert paid("out_of_play", *PASS, throw_in, side=RIGHT)[-1] == [0]


def test_move_to_ball() -> None:
    """Agent 0's body comes 0.4 metres nearer, the keeper's is nearest of all but is no agent's."""
    near = np.array([[0.05, 0], [-0.1, 0.0], [-0.2, -0.2]])
    nearer = near + np.array([[0, 0], [0.4 / 54.4, 0], [0.01, 0]])
    assert paid("move_to_ball", {"left_team": near}, {"left_team": nearer}) == [pytest.approx([0.5, 0])]
    assert paid("move_to_ball", {"left_team": nearer}, {"left_team": near}) == [pytest.approx([-0.5, 0])]
    own = has(LEFT, 0)
    assert paid("move_to_ball", {"left_team": near} | own, {"left_team": nearer} | own) == [[0, 0]]
    moved = {"left_team": nearer, "game_mode": Mode.FREE_KICK}
    assert paid("move_to_ball", {"left_team": near}, moved) == [[0, 0]]
    away = {"left_team_active": np.array([True, False, True])}
    first, second = paid("move_to_ball", {"left_team": near} | away, {"left_team": nearer} | away)[0]
    assert first == 0
    assert second == pytest.approx((np.hypot(0.2 * 54.4, 0.2 * 83.6) - np.hypot(0.19 * 54.4, 0.2 * 83.6)) / 0.8)


def test_off_side() -> None:
    """The line is at 0.3."""
    team = np.array([[-1.0, 0], [0.4, 0], [0.2, 0]])
    assert paid("off_side", {}, {"left_team": team} | has(LEFT, 2)) == [[-1, 0]]
    assert paid("off_side", {}, {"left_team": team} | has(LEFT, 1, 0.35)) == [[0, 0]]  # it has the ball
    assert paid("off_side", {}, {"left_team": team} | has(RIGHT, 2)) == [[0, 0]]


def test_cards() -> None:
    yellow = {"left_team_yellow_card": np.array([True, False, True])}
    assert paid("yellow_card", {}, yellow, yellow) == [[0, -1], [0, 0]]
    red = {"left_team_active": np.array([True, False, True])}
    assert paid("red_card", {}, red, red) == [[-1, 0], [0, 0]]


def test_a_weight_may_turn_a_term_round() -> None:
    assert paid("possession", flies(0.0), has(LEFT, 1), weight=-0.5) == [[-0.5, -0.5]]


def drawn(rng: np.random.Generator) -> Step:
    """A moment of a match that nobody would believe."""
    owner = int(rng.integers(-1, 2))
    changes: Step = {
        "ball": rng.uniform([-1, -0.42, 0], [1, 0.42, 1]),
        "ball_direction": rng.uniform(-0.05, 0.05, 3),
        "ball_owned_team": owner,
        "ball_owned_player": int(rng.integers(3)) if owner >= 0 else -1,
        "score": rng.integers(0, 2, 2).tolist(),
        "game_mode": int(rng.choice([0, 0, 0, 0, 2, 3, 4, 5, 6])),
        "steps_left": int(rng.integers(2)),
        "right_agent_controlled_player": [1, 2],
        "right_agent_sticky_actions": np.zeros((2, 10), np.uint8),
    }
    for side in ("left", "right"):
        changes[f"{side}_team"] = rng.uniform([-1, -0.42], [1, 0.42], (3, 2))
        changes[f"{side}_team_yellow_card"] = rng.random(3) < 0.3
        changes[f"{side}_team_active"] = rng.random(3) < 0.9
    return changes


def swapped(step: Step) -> Step:
    """The same moment with the sides swapped."""
    other: Step = dict(step)
    for key in ("ball", "ball_direction"):
        other[key] = step[key] * [-1, -1, 1]
    other["ball_owned_team"] = 1 - step["ball_owned_team"] if step["ball_owned_team"] >= 0 else -1
    other["score"] = step["score"][::-1]
    for one, two in (("left", "right"), ("right", "left")):
        other[f"{one}_team"] = -step[f"{two}_team"]
        for what in ("yellow_card", "active"):
            other[f"{one}_team_{what}"] = step[f"{two}_team_{what}"]
    return other


@pytest.mark.parametrize("term", sorted(TERMS))
def test_both_sides_are_paid_alike(term: str) -> None:
    """The right of a match is paid as the left of the same match with the sides swapped; and what is zero-sum is."""
    rng = np.random.default_rng(3)
    steps = [drawn(rng) for _ in range(150)]
    left, right = paid(term, *steps), paid(term, *steps, side=RIGHT)
    assert paid(term, *map(swapped, steps)) == right
    assert np.any(left) or np.any(right)
    if term in ZERO_SUM:
        assert np.array(left).sum(axis=1).tolist() == (-np.array(right).sum(axis=1)).tolist()


@pytest.mark.parametrize(
    ("weights", "error", "words"),
    [
        ({"scores": 1}, UnknownName, "did you mean 'score'"),
        ({}, ConfigError, "name at least one"),
        ({"score": float("nan")}, ConfigError, "score: nan was given; a weight must be a finite number"),
    ],
)
def test_football_rewards_reject_invalid_terms(weights: dict[str, float], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Rewards(weights)
