"""The checks of environments are independent, and each says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from misbehaving import (
    Breaks,
    NarrowRange,
    OneBuffer,
    Remembers,
    Spoiled,
    Team,
    ends_what_was_not_open,
    no_masks,
    nobody_ends,
    paid_first,
    python_vector,
    too_long,
    too_much,
)

from ludus.core.seeding import keys
from ludus.core.types import ActionRequests, EnvSpec, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.wrappers.base import Wrapper
from ludus.testing.env import ADVICE, Check, check_env, measure_speed, run_checks
from ludus.testing.ledger import Actor, Row, same


def failures(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.failure for check in checks if check.failure is not None}


def leduc(num_envs: int) -> VectorEnv:
    return OpenSpielVectorEnv("leduc_poker", num_envs)


def test_all_is_well() -> None:
    found = run_checks(leduc, steps=30)
    assert [check.name for check in found] == list(ADVICE)
    assert failures(found) == {}
    assert not any(check.skipped for check in found)
    assert found[0].note == "2 agents of 2 players"


def test_inapplicable_checks_are_left_out() -> None:
    found = run_checks(lambda n: python_vector(lambda: Team(ends=False), n, agents=2), steps=10)
    assert failures(found) == {}
    left = {check.name: check.note for check in found if check.skipped}
    assert left == {
        "masks": "none: every action is always legal",
        "snapshots": "none: it cannot be resumed inside an episode",
    }
    notes = {check.name: check.note for check in found}
    assert notes["episodes"] == "none ended within 10 steps, so ends were not checked"
    assert notes["quotas"] == "episodes are longer than 200 steps, so no quota was played to its end"


@pytest.mark.parametrize(
    ("spoils", "expected"),
    [
        ([too_much], {"rewards": "rewards of slots"}),
        ([too_much, too_long], {"rewards": "rewards of slots", "episodes": "`finished.length` says"}),
        ([nobody_ends, too_long], {"closed decisions": "are not in `ended`", "episodes": "says"}),
    ],
)
def test_failures_do_not_hide_each_other(
    spoils: list[Callable[[Timestep], Timestep]], expected: dict[str, str]
) -> None:
    def spoil(timestep: Timestep) -> Timestep:
        for one in spoils:
            timestep = one(timestep)
        return timestep

    found = failures(run_checks(lambda n: Spoiled(n, spoil), steps=30))
    assert found.keys() - {"rewards"} == expected.keys() - {"rewards"}
    for name, words in expected.items():
        assert words in found[name]
    with pytest.raises(AssertionError):
        check_env(lambda n: Spoiled(n, spoil), steps=30)


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (lambda n: Spoiled(n, paid_first), "first decisions", "a first decision came with a reward"),
        (lambda n: Spoiled(n, ends_what_was_not_open), "closed decisions", "had no open decision"),
        (NarrowRange, "episodes", "are outside of the utility range"),
        (OneBuffer, "buffers", "a step overwrote the timestep before it"),
        (Remembers, "determinism", "a second reset with the same seeds and actions"),
    ],
)
def test_each_breach_is_told(make: Callable[[int], VectorEnv], name: str, words: str) -> None:
    assert words in failures(run_checks(make, steps=30))[name]


def test_a_breach_that_ends_the_play_is_told_as_the_breach() -> None:
    found = run_checks(lambda n: Spoiled(n, no_masks), steps=10)
    assert "without a legal action" in failures(found)["masks"]
    assert "steps" not in failures(found)
    assert next(c for c in found if c.name == "rewards").note == "not checked to the end"


def test_an_environment_that_raises() -> None:
    found = run_checks(lambda n: python_vector(Breaks, n), steps=10)
    assert failures(found).keys() == {"steps"}  # told once, not by every play
    assert failures(found)["steps"].startswith("tests/misbehaving raised RuntimeError: out of fuel; environment 0 of 4")
    notes = {check.name: check.note for check in found if check.skipped}
    assert notes["determinism"] == "not checked: the first play did not come to its end"
    assert notes["buffers"] == "not checked: it was stopped as the first play was"
    with pytest.raises(AssertionError, match="out of fuel"):
        check_env(lambda n: python_vector(Breaks, n), steps=10)


def test_late_breaches_fail_the_check_that_meets_them() -> None:
    found = run_checks(lambda n: python_vector(Breaks, n), steps=3)  # its fourth step is met by longer plays alone
    assert failures(found).keys() == {"quotas"}
    assert next(check for check in found if check.name == "quotas").advice == ADVICE["steps"]


def test_restarts_are_noted() -> None:
    found = run_checks(lambda n: python_vector(Breaks, n, restarts=1000), num_envs=2, steps=5)
    assert (
        next(check for check in found if check.name == "steps").note
        == "2 times an environment was restarted after a fault"
    )


def test_one_that_cannot_be_made_is_told_once() -> None:
    def make(num_envs: int) -> VectorEnv:
        raise OSError("no such file")

    found = run_checks(make)
    assert [(c.name, c.failure) for c in found] == [("description", "raised OSError: no such file")]
    assert found[0].advice


class Paid(Wrapper):
    """A team, each agent of which is paid so many times its reward."""

    def __init__(self, num_envs: int, times: float) -> None:
        env = python_vector(Team, num_envs, agents=2)
        super().__init__(env, env.spec)
        self._times = np.float32(times)

    def _see(self, timestep: Timestep) -> Timestep:
        due = tuple(d._replace(reward=d.reward * self._times) for d in timestep.due)
        ended = tuple(d._replace(reward=d.reward * self._times) for d in timestep.ended)
        return timestep._replace(due=due, ended=ended)


@pytest.mark.parametrize(("times", "well"), [(1, True), (2, True), (1.5, False)])
def test_teams_may_split_their_reward_or_share_it(times: float, well: bool) -> None:
    found = failures(run_checks(lambda n: Paid(n, times), steps=20))
    assert found.keys() == (set() if well else {"rewards"})
    if times == 1:
        with pytest.raises(AssertionError, match=r"sum to \[1. 1."):
            check_env(lambda n: Paid(n, times), steps=20, team="shared")
    else:
        with pytest.raises(AssertionError, match="the agents' rewards sum to"):
            check_env(lambda n: Paid(n, times), steps=20, team="split")


class Early(Wrapper):
    """Player 1's first decision's reward went to nobody, and its return has it."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(env := OpenSpielVectorEnv("kuhn_poker", num_envs), env.spec)

    def _see(self, timestep: Timestep) -> Timestep:
        finished = timestep.finished
        return timestep._replace(finished=finished._replace(returns=finished.returns - np.array([0.0, 0.25])))


def test_rewards_before_a_first_decision_are_allowed_and_noted() -> None:
    found = run_checks(Early, steps=30)
    rewards = next(check for check in found if check.name == "rewards")
    assert rewards.failure is None
    assert rewards.note == "a player is also paid before its first decision; is that so?"
    assert "rewards" in failures(run_checks(Early, steps=30, early_rewards=False))


@pytest.mark.parametrize("space", [Box(-2, 2, (3,), np.float32), MultiDiscrete([2, 5]), MultiBinary(4), Discrete(3)])
def test_random_actions_are_in_their_space(space: object) -> None:
    spec = python_vector(Breaks, 2).spec
    spec = EnvSpec(
        spec.id,
        (replace(spec.agents[0], action=space),),
        spec.utility_range,
        spec.symmetry,  # type: ignore[arg-type]
    )
    actor = Actor(spec, keys(0, "actor", count=2))
    nothing = np.zeros((2, 1), np.float32)
    due = ActionRequests(np.arange(2, dtype=np.int32), nothing, None, np.zeros(2, np.float32), np.ones(2, bool))
    drawn = [actor._of(0, due) for _ in range(50)]
    assert all(space.contains(row) or isinstance(space, Discrete) for rows in drawn for row in rows)  # type: ignore[attr-defined]
    assert len({row.tobytes() for rows in drawn for row in rows}) > 2


def test_speed_counts_steps_and_decisions() -> None:
    speed = measure_speed(python_vector(Team, 3, agents=2), keys(0, "speed", count=3), seconds=0.01)
    assert speed.decisions == pytest.approx(2 * speed.steps)
    assert speed.steps > 0


def test_differences_are_told_in_words() -> None:
    due: Row = ("due", 0, 1, b"seen", b"", 0.5, False)
    for row, words in (
        (("due", 0, 1, b"other", b"", 0.5, False), "agent 1 of player 0 is due, and the observation differs."),
        (("due", 0, 1, b"seen", b"", 0.25, False), "agent 1 of player 0 is due, and the reward differs, 0.5 and 0.25."),
        (("due", 1, 0, b"seen", b"", 0.5, False), "agent 1 of player 0 is due, and agent 0 of player 1 is due."),
        (("finished", (1.0,), True, 3), "agent 1 of player 0 is due, and the episode is finished."),
    ):
        with pytest.raises(AssertionError) as caught:
            same([[due]], [[row]], "another play")
        assert str(caught.value) == f"another play went another way, event 0: {words}"
    with pytest.raises(AssertionError, match="went another way in environment 1: 1 and 0 events"):
        same([[due], [due]], [[due], []], "another play")
