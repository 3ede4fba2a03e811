"""Processing of trajectories where they are made: hindsight by hand, and what is checked where an answer comes in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from ludus.core.errors import LudusError, ScenarioError
from ludus.core.types import AgentSpec, EnvSpec, SegmentEnd
from ludus.replay.processing import HER, Processed, Processing, RewardClip, RewardScale, parse_processing, processed
from ludus.replay.trajectories import Trajectories
from ludus.testing.processing import check_processing

AGENTS = (AgentSpec("player_0", 0, Box(-np.inf, np.inf, (4,), np.float32), Discrete(3)),)
ENV = EnvSpec(id="made up", agents=AGENTS, utility_range=((-9.0, 9.0),), symmetry=((0,),), zero_sum=False)


def rows() -> Trajectories:
    """Two episodes of (place, own column, goal): 0 → 1 → 2 for the goal 5, cut by time; 3 → 4 for the goal 4, which is reached."""
    observation = np.array([[0, 9, 5], [1, 9, 5], [3, 8, 4]], np.float32)
    return Trajectories(
        start=np.array([0, 2, 3]),
        observation=observation,
        action=np.array([1, 2, 0], np.int32),
        logp=np.array([-0.1, -0.2, -0.3], np.float32),
        reward=np.array([-1, -1, 3], np.float32),
        mask=np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]], np.bool_),
        t=np.array([0, 1, 0], np.int32),
        tail=np.array([SegmentEnd.TRUNCATED, SegmentEnd.TERMINATED], np.int8),
        bootstrap_observation=np.array([[2, 9, 5], [4, 8, 4]], np.float32),
        bootstrap_mask=np.array([[1, 0, 1], [1, 1, 1]], np.bool_),
        agent=np.zeros(2, np.int16),
        seat=np.zeros(2, np.int8),
        episode=np.array([7, 8]),
        version_lo=np.array([3, 3], np.int32),
        version_hi=np.array([3, 4], np.int32),
        policy="0-1",
    )


def done(given: Trajectories, *chain: Processing, env: EnvSpec = ENV) -> Trajectories:
    return processed(given, chain, env=env, stream=lambda place: np.random.default_rng(place))


# ---------------------------------------------------------------------------------------------- hindsight, by hand

PLACES: dict[str, Any] = {"goal": (2, 3), "achieved": (0, 1)}


def test_hindsight_of_what_came_last_by_hand() -> None:
    """The first episode came to 2: on its way there its first step misses, its second reaches. The second came to its own goal."""
    found = done(rows(), HER(**PLACES, copies=1, strategy="final"))
    assert found.start.tolist() == [0, 2, 3, 4, 5, 6]
    assert found.added is not None
    assert found.added.tolist() == [False, False, True, True, True]
    assert (found.num_rows, found.num_decisions) == (6, 3)
    assert found.observation[3:].tolist() == [[0, 9, 2], [1, 9, 2], [3, 8, 4]]
    assert found.bootstrap_observation[2:].tolist() == [[1, 9, 2], [2, 9, 2], [4, 8, 4]]
    assert found.reward.tolist() == [-1, -1, 3, -1, 0, 0]
    assert found.tail[2:].tolist() == [SegmentEnd.CUT, SegmentEnd.TERMINATED, SegmentEnd.TERMINATED]
    assert found.action[3:].tolist() == [1, 2, 0]
    assert found.mask is not None
    assert found.bootstrap_mask is not None
    assert found.mask[3:].tolist() == rows().mask.tolist()  # type: ignore[union-attr]
    assert found.bootstrap_mask[2:].astype(int).tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 1]]
    assert (found.episode[2:].tolist(), found.t[3:].tolist()) == ([7, 7, 8], [0, 1, 0])
    assert found.version_hi[2:].tolist() == [3, 3, 4]
    for name in ("observation", "action", "logp", "reward"):
        np.testing.assert_array_equal(getattr(found, name)[:3], getattr(rows(), name))


def test_goals_of_the_future_are_of_the_same_episode_and_not_of_the_past() -> None:
    """Of 400 goals of each decision: the first one's are half 1 and half 2, the second's 2, the third's 4. (0.5 ± 4 · 0.025)"""
    found = done(rows(), HER(**PLACES, copies=400))
    goal = found.observation[3:, 2].reshape(3, 400)
    assert set(goal[0]) == {1.0, 2.0}
    assert abs((goal[0] == 1.0).mean() - 0.5) < 0.1
    assert set(goal[1]) == {2.0}
    assert set(goal[2]) == {4.0}
    np.testing.assert_array_equal(found.reward[3:403] == 0.0, goal[0] == 1.0)


def test_an_end_that_was_no_goal_stays_one() -> None:
    """It fell at 4 when it was to come to 6: for the goal 4 too, and where goals end nothing it is the only end."""
    fell = replace(rows(), observation=np.array([[0, 9, 5], [1, 9, 5], [3, 8, 6]], np.float32))
    kept = done(fell, HER(**PLACES, copies=1, strategy="final", ends=False))
    assert kept.tail[2:].tolist() == [SegmentEnd.CUT, SegmentEnd.CUT, SegmentEnd.TERMINATED]
    reached = done(rows(), HER(**PLACES, copies=1, strategy="final", ends=False))
    assert reached.tail[2:].tolist() == [SegmentEnd.CUT] * 3


def squared(achieved: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return -((achieved - goal) ** 2).sum(axis=1)


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_rewards_of_ones_own(kind: type[Any]) -> None:
    """Of unsigned numbers 1 − 2 is not 255."""
    given = rows()
    given = replace(
        given,
        observation=given.observation.astype(kind),
        bootstrap_observation=given.bootstrap_observation.astype(kind),
    )
    found = done(given, HER(**PLACES, copies=1, strategy="final", reward=f"{__name__}:squared", tolerance=1.0))
    assert found.observation.dtype == kind
    assert found.reward[3:].tolist() == [-1, 0, 0]
    assert found.tail[2:].tolist() == [SegmentEnd.TERMINATED] * 3  # 1 is near enough to 2


def test_where_hindsight_cannot_look() -> None:
    with pytest.raises(ScenarioError, match=r"entries up to 5 of an observation, and in made up player_0 sees \[4\]"):
        HER(goal=(4, 5), achieved=(0, 1)).check(ENV, (0,))
    with pytest.raises(LudusError, match="of as many entries"):
        HER(goal=(2, 4), achieved=(0, 1))
    with pytest.raises(ScenarioError, match="remembers those before"):
        done(replace(rows(), memory0=np.zeros((2, 3), np.float32)), HER(**PLACES))


# ---------------------------------------------------------------------------------------------- one after the other


def test_each_sees_what_those_before_it_made() -> None:
    """Hindsight relabels what was played, not what was relabelled; and what comes after it scales all."""
    hindsight = HER(**PLACES, copies=1, strategy="final")
    found = done(rows(), RewardClip(low=-0.5, high=2.0), hindsight, hindsight, RewardScale(factor=2.0))
    assert found.reward.tolist() == [-1, -1, 4, *[-2, 0, 0] * 2]
    assert found.reward.dtype == np.float32


@pytest.mark.parametrize("part", [RewardClip(), RewardScale(factor=0.1), HER(goal=(2, 4), achieved=(0, 2))])
def test_ours_keep_the_contract(part: Processing) -> None:
    check_processing(part, ENV)


# ---------------------------------------------------------------------------------------------- what comes in


class Says(Processing):
    """Answers what it was given."""

    adds: ClassVar[bool] = True
    answer: ClassVar[Callable[[Trajectories], Any]] = staticmethod(lambda rows: Processed())

    def process(self, rows: Trajectories, *, env: EnvSpec, rng: np.random.Generator) -> Processed:
        answered: Processed = type(self).answer(rows)
        return answered


def more(rows: Trajectories, **changes: Any) -> Processed:
    return Processed(more=replace(rows, **{"added": None, **changes}))


def overwrite(rows: Trajectories) -> Processed:
    rows.logp[:] = 0.0
    return Processed()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda rows: rows.reward, "a ndarray; expected a ludus.replay.processing.Processed"),
        (lambda rows: Processed(reward=rows.reward[1:]), r"'reward' of shape \[2\]; there are 3 rows"),
        (lambda rows: Processed(reward=rows.action), "'reward' of int32; expected an array of floats"),
        (lambda rows: Processed(extras={"x": np.array(["a"] * 3)}), "'x' of <U1; expected an array of numbers"),
        (overwrite, r"test_processing:Says raised ValueError: assignment destination is read-only \(.*test_processing.py, line"),
        (lambda rows: more(rows, policy="other"), "rows of the policy 'other' in `more`"),
        (lambda rows: more(rows, start=np.array([0, 0, 3])), "at least one row in each"),
        (lambda rows: more(rows, logp=rows.logp.astype(np.float64)), r"'logp' in `more` as float64\[3\]; expected float32\[3\]"),
        (lambda rows: more(rows, tail=rows.tail[:1]), r"'tail' in `more` as int8\[1\]; expected int8\[2\]"),
        (lambda rows: more(rows, mask=None), "'mask' in `more` as None"),
        (lambda rows: more(rows, seat=np.ones(2, np.int8)), "of agents or seats that the rows have none of"),
        (lambda rows: more(rows, extras={"x": rows.t}), r"extras \['x'\] in `more`; the rows have \[\]"),
    ],
)  # fmt: skip
def test_answers_that_are_refused(answer: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Says, "answer", staticmethod(answer))
    with pytest.raises(ScenarioError, match=words):
        done(rows(), Says())


def test_who_adds_must_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Says, "answer", staticmethod(more))
    monkeypatch.setattr(Says, "adds", False)
    with pytest.raises(ScenarioError, match="rows beside the given ones, and its `adds` is False"):
        done(rows(), Says())


def test_extras_come_beside_the_others() -> None:
    class Counts(Processing):
        def process(self, rows: Trajectories, *, env: EnvSpec, rng: np.random.Generator) -> Processed:
            return Processed(extras={"count": np.arange(rows.num_rows)})

    found = done(replace(rows(), extras={"value": np.ones(3)}), Counts())
    assert {name: array.tolist() for name, array in found.extras.items()} == {"value": [1, 1, 1], "count": [0, 1, 2]}


class Chance(Processing):
    """Draws from where nobody can draw again."""

    def process(self, rows: Trajectories, *, env: EnvSpec, rng: np.random.Generator) -> Processed:
        return Processed(reward=np.random.default_rng().random(rows.num_rows))


def test_the_check_notices_chance_of_ones_own() -> None:
    with pytest.raises(AssertionError, match="answers another reward; draw from rng alone"):
        check_processing(Chance(), ENV)


def test_named_in_scenarios() -> None:
    assert parse_processing(["reward_clip", {"kind": "reward_scale", "factor": 2}]) == (
        RewardClip(),
        RewardScale(factor=2),
    )
    assert parse_processing(f"{__name__}:Chance") == (Chance(),)
    for value, words in [
        ("hre", "unknown processing 'hre'; did you mean 'her'"),
        ("builtins:int", "'builtins' belongs to Python"),
        ("gymnasium:Env", "is no processing: derive"),
    ]:
        with pytest.raises(LudusError, match=words):
            parse_processing(value)
