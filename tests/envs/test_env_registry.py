"""Environments by id."""

from __future__ import annotations

import pytest

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.envs.config import Environment
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.registry import list_envs, make_env
from ludus.envs.tree.vector import TreeVectorEnv


def test_small_games_are_compiled_and_large_ones_are_not():
    assert isinstance(make_env("openspiel/kuhn_poker", num_envs=2), TreeVectorEnv)
    assert isinstance(make_env("openspiel/kuhn_poker", num_envs=2, tree="off"), OpenSpielVectorEnv)
    assert isinstance(make_env("openspiel/kuhn_poker", num_envs=2, node_limit=20), OpenSpielVectorEnv)
    assert isinstance(make_env("openspiel/connect_four", num_envs=2, fast="off"), OpenSpielVectorEnv)


def test_a_large_game_is_found_out_without_walking_through_it(monkeypatch):
    def walked(*_args, **_options):
        raise AssertionError("a game of this size is not walked through")

    monkeypatch.setattr("ludus.envs.tree.game_tree.enumerate_game", walked)
    assert isinstance(make_env("openspiel/chess", num_envs=1), OpenSpielVectorEnv)
    with pytest.raises(AssertionError, match="not walked"):
        make_env("openspiel/kuhn_poker(players=5)", num_envs=1)  # nobody has compiled it before


def test_parameters_of_a_game():
    env = make_env("openspiel/kuhn_poker(players=3)", num_envs=4)
    assert env.spec.num_players == 3
    assert env.spec.id == "openspiel/kuhn_poker(players=3)"
    assert env.num_envs == 4


def test_both_paths_describe_the_same_game():
    one, other = (make_env("openspiel/leduc_poker", num_envs=1, tree=tree).spec for tree in ("on", "off"))
    assert (one.id, one.num_players, one.zero_sum) == (other.id, other.num_players, other.zero_sum)
    assert [(a.name, a.player, a.action, a.observation.shape) for a in one.agents] == [
        (a.name, a.player, a.action, a.observation.shape) for a in other.agents
    ]


@pytest.mark.parametrize(
    ("id", "error", "message"),
    [
        ("openspiel/leduc_pokker", UnknownName, "did you mean 'leduc_poker'"),
        ("leduc_poker", UnknownName, "did you mean 'openspiel/leduc_poker'"),
        ("openspiel/leduc_poker(playrs=2)", ConfigError, "no parameter 'playrs'; did you mean 'players'"),
        ("openspiel/leduc_poker(players=99)", ConfigError, "cannot load"),
        ("openspiel/leduc_poker(players=2", ConfigError, "not a game string"),
        ("openspiel/mfg_garnet", EnvError, "mean-field"),
    ],
)
def test_bad_ids(id, error, message):
    with pytest.raises(error, match=message):
        make_env(id, num_envs=1)


def test_bad_options():
    with pytest.raises(ConfigError, match="did you mean 'observation'"):
        make_env("openspiel/kuhn_poker", num_envs=1, observations="auto")
    with pytest.raises(ConfigError, match="allowed: auto, on, off"):
        make_env("openspiel/kuhn_poker", num_envs=1, tree="yes")
    with pytest.raises(ConfigError, match="at least 1"):
        make_env("openspiel/kuhn_poker", num_envs=0)
    with pytest.raises(EnvError, match="too many to compile"):
        make_env("openspiel/connect_four", num_envs=1, tree="on")


@pytest.mark.slow
def test_the_list_holds_what_can_be_made():
    ids = list_envs()
    assert ids == sorted(ids)
    assert {"openspiel/leduc_poker", "openspiel/tic_tac_toe", "openspiel/goofspiel"} <= set(ids)
    assert "openspiel/mfg_garnet" not in ids
    assert "openspiel/misere" not in ids  # needs a game as its parameter


def test_evaluation_environments_lack_training_only_options() -> None:
    football = Environment(id="football/5_vs_5", options={"sides": "both", "rewards": {"score": 1, "pass": 0.1}})
    assert football.played.options == {"sides": "both"}
    poker = Environment(id="openspiel/kuhn_poker", options={"players": 3, "openings": 2})
    assert poker.played.options == {"players": 3}
    other = Environment(id="rware/rware-tiny-2ag-v2", options={"rewards": 1})
    assert other.played is other


def test_fewer_environments_than_subprocesses_have_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ludus.envs.registry.make_vector", lambda id, **options: (options["num_envs"], options["workers"])
    )
    chosen = Environment(id="gymnasium/CartPole-v1", num_envs=8, workers=4)
    assert [chosen.make(), chosen.make(num_envs=6), chosen.make(num_envs=2)] == [(8, 4), (6, 4), (2, 2)]
