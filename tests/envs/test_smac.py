"""`smac/…` and `smacv2/…` against a battle that speaks their interface: the contract, the dead, ends, pay, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from refusals import Refusal, check_refusals
from starcraft import ATTACK, NO_OP, STOP, FakeBattle, install, install_smac, install_smacv2

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.envs.base import VectorEnv
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env

ID = "smac/3m"


@pytest.fixture(autouse=True)
def _packages(monkeypatch: pytest.MonkeyPatch) -> None:
    install_smac(monkeypatch)
    install_smacv2(monkeypatch)


@pytest.mark.parametrize("options", [{}, {"teams": {"a": ["unit_2", "unit_0"], "b": ["unit_1"]}, "state": False}])
def test_smac_satisfies_vector_env_contract(options: dict[str, Any]) -> None:
    check_env(lambda n: make_env(ID, num_envs=n, **options), num_envs=3, steps=40, team="split")


def begun(**options: Any) -> tuple[VectorEnv, Any]:
    env = make_env(ID, num_envs=1, **options)
    return env, env.reset(np.array([2**40 + 5], np.uint64))


def test_unit_observations_by_hand() -> None:
    env, timestep = begun()
    assert env.spec.num_players == 1
    assert env.spec.determinism == "none"
    assert [agent.name for agent in env.spec.agents] == ["unit_0", "unit_1", "unit_2"]
    assert timestep.due[0].observation.tolist() == [[0, 2, 2, 2]] * 3
    assert timestep.due[0].mask.tolist() == [[False, *[True] * 7]] * 3
    assert timestep.state.tolist() == [[0, 2, 2, 2, 2, 2]]
    with pytest.raises(EnvError, match="illegal action 0"):
        env.step((np.array([NO_OP, STOP, STOP]),))


def test_the_dead_stay_and_are_paid() -> None:
    """Unit 0 is hit in the first and the fourth step and is dead then; units 1 and 2 win in the fifth."""
    env, timestep = begun()
    moves = [[STOP] * 3] * 3 + [[STOP, ATTACK, ATTACK], [NO_OP, ATTACK + 1, ATTACK + 1]]
    for k, move in enumerate(moves):
        if k == 4:
            assert timestep.due[0].mask[0].tolist() == [True] + [False] * 7
            assert timestep.due[0].observation[0].tolist() == [0] * 4
        timestep = env.step((np.array(move),))
        if k == 3:
            np.testing.assert_allclose(timestep.due[0].reward, [2 / 3] * 3)  # two hits, for all three
    assert timestep.ended[0].slot.tolist() == [0, 1, 2]
    assert timestep.ended[0].terminated.tolist() == [True] * 3
    np.testing.assert_allclose(timestep.ended[0].reward, [12 / 3] * 3)
    np.testing.assert_allclose(timestep.finished.returns, [[14]])  # the side's, not three times that
    assert timestep.final_state.tolist() == [[5, 0, 1, 1, 0, 0]]
    assert env.spec.statistics == ("battle_won", "dead_allies", "dead_enemies")
    assert timestep.finished.statistics.tolist() == [[[1, 1, 2]]]


def test_a_limit_truncates_and_defeat_does_not() -> None:
    env, timestep = begun(limit=2)
    for _ in range(2):
        timestep = env.step((np.array([STOP] * 3),))
    assert timestep.ended[0].terminated.tolist() == [False] * 3
    assert timestep.ended[0].mask.tolist() == [[False, *[True] * 7]] * 3
    assert timestep.finished.statistics.tolist() == [[[0, 0, 0]]]
    env, timestep = begun(units=1, limit=9)
    for _ in range(2):
        timestep = env.step((np.array([STOP]),))
    assert timestep.ended[0].terminated.tolist() == [True]


def test_players_of_one_side_are_each_paid_what_the_side_is() -> None:
    env, timestep = begun(teams={"a": ["unit_2", "unit_0"], "b": ["unit_1"]})
    timestep = env.step((np.array([ATTACK, STOP]), np.array([ATTACK + 1])))  # unit 2, unit 0; unit 1
    assert [due.reward.tolist() for due in timestep.due] == [[1, 1], [2]]
    assert timestep.due[0].observation[:, 1].tolist() == [2, 1]  # unit 0 was hit


def test_the_engine_starts_with_the_episodes_seed_and_once() -> None:
    env, _ = begun()
    for _ in range(6):
        env.step((np.array([STOP] * 3),)) if _ < 3 else None
    game: Any = env.game(0)  # type: ignore[attr-defined]
    assert isinstance(game, FakeBattle)
    assert 0 <= game.seed < 2**31  # type: ignore[operator]
    assert game.map_name == "3m"
    assert game.started == 1
    assert env.render(0).tolist() == [[[3] * 3] * 2] * 2  # type: ignore[attr-defined]
    env.close()
    assert game.closed


def test_a_lost_connection_is_a_fault() -> None:
    env, _ = begun(lost_at=2)
    env.step((np.array([STOP] * 3),))
    with pytest.raises(EnvError, match="smac/3m lost its connection to StarCraft II"):
        env.step((np.array([STOP] * 3),))
    env, _ = begun(lost_at=2, restarts=1)
    env.step((np.array([STOP] * 3),))
    timestep = env.step((np.array([STOP] * 3),))
    assert timestep.ended[0].terminated.tolist() == [False] * 3


def test_published_scenarios_of_smacv2() -> None:
    env = make_env("smacv2/terran_5_vs_5", num_envs=2, prob_obs_enemy=0.5, obs_own_pos=False)
    env.reset(np.array([1, 2], np.uint64))
    assert len(env.spec.agents) == 5
    for e in range(2):
        game: Any = env.game(e)  # type: ignore[attr-defined]
        assert game.map_name == "10gen_terran"
        assert game.drawn["team_gen"]["unit_types"] == ["marine", "marauder", "medivac"]
        assert game.drawn["start_positions"]["dist_type"] == "surrounded_and_reflect"
        assert game.options == {
            "conic_fov": False,
            "obs_own_pos": False,
            "use_unit_ranges": True,
            "min_attack_range": 2,
            "num_fov_actions": 12,
            "prob_obs_enemy": 0.5,
        }
    assert len(make_env("smacv2/zerg_10_vs_11", num_envs=1).spec.agents) == 10
    check_env(lambda n: make_env("smacv2/protoss_3_vs_2", num_envs=n), num_envs=2, steps=20, team="split")


def test_smac_lists_its_maps() -> None:
    assert list_envs("smac") == ["smac/2s3z", "smac/3m", "smac/8m"]
    assert len(list_envs("smacv2")) == 15
    assert "smacv2/zerg_20_vs_23" in list_envs("smacv2")


def refuse(**options: Any) -> None:
    raise TypeError("got an unexpected keyword argument 'difficultyy'")


REFUSED: list[Refusal] = [
    ("smac/2s3zz", {}, UnknownName, "did you mean '2s3z'"),
    (ID, {"seed": 3}, ConfigError, "the option seed, which Ludus gives itself"),
    ("smacv2/terran_5_vs_5", {"map_name": "3m"}, ConfigError, "the option map_name"),
    ("smacv2/teran_5_vs_5", {}, UnknownName, "did you mean 'terran_5_vs_5'"),
    ("smacv2/terran_0_vs_5", {}, UnknownName, "other numbers of units may be given"),
    (ID, {"teams": {"a": ["unit_0"]}}, ConfigError, "no player has unit_1, unit_2"),
]


def test_smac_rejects_invalid_ids_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    check_refusals(partial(make_env, num_envs=1), REFUSED)
    install(monkeypatch, "smac.env", StarCraft2Env=refuse)
    with pytest.raises(
        ConfigError, match=r"cannot be made with the options .*unexpected keyword argument 'difficultyy'"
    ):
        make_env(ID, num_envs=1, difficultyy="7")


def test_the_other_package_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyPI's `smac` optimises algorithms' parameters, and has no environments."""
    monkeypatch.setitem(__import__("sys").modules, "smac.env", None)
    with pytest.raises(ConfigError, match="smac/3m needs smac, which is installed and cannot be imported"):
        make_env(ID, num_envs=1)
