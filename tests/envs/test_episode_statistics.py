"""What an environment counts of its players in an episode: from where it is given to the worker's results, and through wrappers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pytest

from ludus.core.errors import EnvError
from ludus.core.types import Mixture, OpponentFactor, PolicyRef, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.processes.vector import SubprocessVectorEnv
from ludus.envs.python_vector import EnvStepResult, PythonVectorEnv
from ludus.envs.wrappers.base import Wrapper
from ludus.envs.wrappers.player_groups import group_players
from ludus.envs.wrappers.rewards import clip_reward, scale_reward, time_limit
from ludus.rollout.base import EpisodeResults, RolloutRequest
from ludus.rollout.host import LocalRollouts
from ludus.testing.env import check_env
from ludus.testing.fakes import COINS, CoinGame, FixedPolicy, coins

SEEDS = np.arange(2, dtype=np.uint64)
TAKES, LEAVES = np.ones(2, np.int64), np.zeros(2, np.int64)


def first_ends(env: VectorEnv, *actions: tuple[Any, Any]) -> list[list[Any]]:
    """Statistics of the first episode of each environment that ends while these actions are played, in the order of the environments."""
    found: dict[int, list[Any]] = {}
    env.reset(SEEDS[: env.num_envs])
    for pair in actions:
        finished = env.step(pair).finished
        assert finished.statistics is not None
        for e, counted in zip(finished.environment.tolist(), finished.statistics.tolist(), strict=True):
            found.setdefault(e, counted)
    return [found[e] for e in sorted(found)]


def test_the_contract() -> None:
    check_env(coins, num_envs=3, steps=40)


def test_totals_are_those_of_the_episode_alone() -> None:
    env = coins(1)
    env.reset(SEEDS[:1])
    rounds = env._envs[0].rounds  # type: ignore[union-attr]
    played: list[list[Any]] = []
    for episode in range(2):
        took = (
            1 - episode
        )  # player 0 takes every coin of its first episode, and none of the second; player 1 the first coin of each
        for k in range(rounds):
            finished = env.step((np.array([took]), np.array([k == 0], np.int64))).finished
        assert finished.statistics is not None
        played += finished.statistics.tolist()
        taken, n = rounds * took, rounds
        assert played[-1] == [[taken, n - taken, max(0, taken - 1)], [1, n - 1, 1 - took]]
        rounds = env._envs[0].rounds  # type: ignore[union-attr]
    assert len(played) == 2


def test_steps_without_an_end_have_no_rows() -> None:
    timestep = coins(2).reset(SEEDS)
    assert timestep.finished.statistics is not None
    assert timestep.finished.statistics.shape == (0, 2, 3)


class ToldFromTheReset(CoinGame):
    """Its reset tells already what its episode has counted: nothing."""

    def reset(self, seed: int) -> EnvStepResult:
        happened = super().reset(seed)
        happened.statistics = self.counted.copy()
        return happened


def test_statistics_of_a_reset_belong_to_the_next_episode() -> None:
    env = PythonVectorEnv(ToldFromTheReset, 2, spec=coins(1).spec, masked=(False, False))
    played = [(TAKES, LEAVES)] * 4
    assert first_ends(env, *played) == first_ends(coins(2), *played)


@pytest.mark.slow
def test_subprocesses_bring_the_same() -> None:
    played = [(TAKES, LEAVES), (TAKES, TAKES), (LEAVES, TAKES), (LEAVES, LEAVES)]
    env = SubprocessVectorEnv(coins, 2, workers=1)
    try:
        assert env.spec.statistics == COINS
        assert first_ends(env, *played) == first_ends(coins(2), *played)
    finally:
        env.close()


class Breaks(CoinGame):
    """Raises in its second step, in every episode whose seed is odd."""

    def reset(self, seed: int) -> EnvStepResult:
        self.odd = True
        return super().reset(seed)

    def step(self, actions: Any) -> EnvStepResult:
        if self.round == 1:
            raise RuntimeError("out of coins")
        return super().step(actions)


def breaks(num_envs: int, *, restarts: int = 1) -> PythonVectorEnv:
    return PythonVectorEnv(Breaks, num_envs, spec=coins(1).spec, masked=(False, False), restarts_allowed=restarts)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(partial(breaks, 1), id="in this process"),
        pytest.param(
            partial(SubprocessVectorEnv, partial(breaks, restarts=0), 1, workers=1, restarts=1),
            id="in a subprocess",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_of_a_lost_episode_nothing_is_known(make: Callable[[], VectorEnv]) -> None:
    env = make()
    try:
        env.reset(SEEDS[:1])
        env.step((TAKES[:1], LEAVES[:1]))
        finished = env.step((TAKES[:1], LEAVES[:1])).finished
        assert finished.environment.tolist() == [0]
        assert not finished.terminated.any()
        assert finished.statistics is not None
        assert finished.statistics.shape == (1, 2, 3)
        assert np.isnan(finished.statistics).all()
    finally:
        env.close()


def test_an_episode_that_is_cut_off_has_what_was_counted_until_then() -> None:
    env = time_limit(coins(2), steps=1)
    assert first_ends(env, (TAKES, LEAVES)) == [[[1, 0, 1], [0, 1, 0]]] * 2


@pytest.mark.parametrize("wrap", [partial(scale_reward, factor=0.5), partial(clip_reward, high=0.5)])
def test_wrappers_of_rewards_leave_them_as_they_are(wrap: Callable[[VectorEnv], VectorEnv]) -> None:
    played = [(TAKES, LEAVES)] * 4
    assert first_ends(wrap(coins(2)), *played) == first_ends(coins(2), *played)


def test_players_that_are_merged_have_their_sums() -> None:
    env = group_players(coins(1), {"player_*": 0})
    env.reset(SEEDS[:1])
    finished = None
    while finished is None or not len(finished.environment):
        finished = env.step((np.array([1, 0]),)).finished
    rounds = int(finished.length[0])
    assert finished.statistics is not None
    assert finished.statistics.tolist() == [[[rounds, rounds, rounds]]]


class Odd(CoinGame):
    """Gives other statistics than it should."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def step(self, actions: Any) -> EnvStepResult:
        happened = super().step(actions)
        happened.statistics = self.given
        return happened


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.zeros((2, 2)), r"statistics of shape \(2, 2\); expected \(2, 3\), players × \['taken', 'left', 'alone'\]"),
        (np.full((2, 3), np.inf), "an infinite 'taken' among its statistics"),
    ],
)
def test_malformed_statistics_are_rejected(given: Any, words: str) -> None:
    env = PythonVectorEnv(lambda: Odd(given), 1, spec=coins(1).spec, masked=(False, False))
    env.reset(SEEDS[:1])
    with pytest.raises(EnvError, match=words):
        env.step((TAKES[:1], TAKES[:1]))


def test_statistics_that_have_no_names_are_refused() -> None:
    spec = replace(coins(1).spec, statistics=())
    env = PythonVectorEnv(CoinGame, 1, spec=spec, masked=(False, False))
    env.reset(SEEDS[:1])
    with pytest.raises(EnvError, match="names none"):
        env.step((TAKES[:1], TAKES[:1]))


class Spoiled(Wrapper):
    def __init__(self, spoil: Callable[[Any], Any], num_envs: int) -> None:
        super().__init__(coins(num_envs), coins(1).spec)
        self._spoil = spoil

    def _see(self, timestep: Timestep) -> Timestep:
        statistics = self._spoil(timestep.finished.statistics)
        return timestep._replace(finished=timestep.finished._replace(statistics=statistics))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda counted: None, r"must be there where `spec.statistics` has names"),
        (lambda counted: counted[:, :, :2], r"must be float64\[\d, 2, 3\]"),
        (lambda counted: counted * np.nan, "'taken' is not a finite number"),
    ],
)
def test_each_breach_of_the_contract_is_told(spoil: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_env(partial(Spoiled, spoil), num_envs=2, steps=10)


def played(
    env: VectorEnv, amount: int, *, unit: Literal["episodes", "decisions"] = "episodes", learner: bool = False
) -> EpisodeResults:
    """Player 0 takes and player 1 leaves every coin."""
    refs = PolicyRef(0, "takes"), PolicyRef(0, "leaves")
    mixture = Mixture((OpponentFactor((0, 1), (refs,), (1.0,)),))
    request = RolloutRequest(refs[0] if learner else None, (0,) * learner, mixture, unit, amount, seed=3)
    policies = [(refs[0], FixedPolicy.of(1)), (refs[1], FixedPolicy.of(0))]
    return LocalRollouts.around(env).run(request, policies).episodes


def test_a_rollout_brings_those_of_each_episode() -> None:
    episodes = played(coins(2), 5000, unit="decisions", learner=True)  # more episodes than there is room for at first
    assert len(episodes.length) > 1100
    n = episodes.length.astype(float)
    assert episodes.statistics is not None
    np.testing.assert_array_equal(episodes.statistics[:, 0], np.stack([n, 0 * n, n], axis=1))
    np.testing.assert_array_equal(episodes.statistics[:, 1], np.stack([0 * n, n, 0 * n], axis=1))
    assert set(n.tolist()) == {2.0, 3.0, 4.0}


def test_some_of_them_and_the_parts_of_several_shards_keep_theirs() -> None:
    whole = played(coins(2), 6)
    some = whole.take(np.array([4, 1]))
    assert whole.statistics is not None
    assert some.statistics is not None
    np.testing.assert_array_equal(some.statistics, whole.statistics[[4, 1]])
    again = EpisodeResults.joined([some, whole])
    assert again.statistics is not None
    np.testing.assert_array_equal(again.statistics, np.concatenate([some.statistics, whole.statistics]))
