"""Returns outside of the range that an environment declares: runs and tournaments widen the range and say so."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyspiel
import pytest

import ludus
from ludus.core.errors import ConfigError, DataError
from ludus.core.types import Match, PolicyRef
from ludus.envs.config import Environment
from ludus.envs.registry import make_env
from ludus.evaluation.matches import MatchProfile, MatchRunner
from ludus.metagame.population.match_log import wider_range
from ludus.metagame.population.payoff_table import PayoffTable
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec
from ludus.rollout.host import LocalRollouts
from ludus.storage.reader import Reader
from ludus.testing.env import check_env
from ludus.tournament.ranking_decisions import bounds_of
from ludus.tournament.run import Options, play_tournament
from ludus.tournament.tournament_store import FILE, TournamentStore

NARROW = {"tree": "off", "utility_range": [-0.5, 0.5]}
TOO_NARROW = [("openspiel/tic_tac_toe", NARROW), ("pettingzoo/tictactoe_v3", {"utility_range": [-0.5, 0.5]})]


@pytest.mark.parametrize(
    ("returns", "wider"),
    [
        ([[0.0, 0.0], [-1.0, 2.0]], None),
        ([[-1.00005, 2.0001]], None),  # rounding of float32 sums, a ten thousandth
        ([[0.0, 2.5], [-3.0, 0.0]], ((-3.0, 1.0), (-2.0, 2.5))),
        ([[np.nan, 0.0]], None),  # is refused elsewhere, by its name
        (np.empty((0, 2)), None),
    ],
)
def test_the_least_range_that_holds(returns: list, wider: object) -> None:
    assert wider_range(((-1.0, 1.0), (-2.0, 2.0)), np.array(returns)) == wider
    infinite = ((-np.inf, np.inf),) * 2
    assert wider_range(infinite, np.array(returns)) is None


@pytest.mark.parametrize(("id", "options"), TOO_NARROW)
def test_a_match_says_what_is_outside_of_the_range(id: str, options: dict) -> None:
    rollouts = LocalRollouts.around(make_env(id, num_envs=8, **options))

    def uniform(_: PolicyRef) -> Policy:
        return build_policy(random_spec(rollouts.spec.agents[0].action), {})

    profile = MatchProfile((0, 0), (PolicyRef(0, "a"), PolicyRef(1, "b")))
    (match,) = MatchRunner(rollouts, uniform, seed=0).play([profile], 16)
    assert match.outside == ((-1.0, 1.0), (-1.0, 1.0))


def test_a_table_widens_its_range_to_what_it_is_told() -> None:
    """The mean is within the range, single returns are not; without a word about them such a spread is refused."""
    table = PayoffTable(utility_range=((-0.5, 0.5),) * 2, population=(0, 1), zero_sum=True)
    table.add_policy(0)
    table.add_policy(1)
    seats = (PolicyRef(0, "a"), PolicyRef(1, "b"))
    match = Match("m", (0, 0), seats, 4, np.array([0.4, -0.4]), np.array([2.0, 2.0]))
    with pytest.raises(DataError, match=r"m2 is 2\.0, expected at most 1"):
        table.record([match])
    assert table.utility_range == ((-0.5, 0.5),) * 2
    table.record([replace(match, outside=((-1.0, 0.5), (-0.5, 1.0)))])
    assert table.view().utility_range == ((-1.0, 0.5), (-0.5, 1.0))
    assert table.record([match]) == (), "the same result, whoever says what is outside"
    again = PayoffTable(utility_range=((-0.5, 0.5),) * 2, population=(0, 1), zero_sum=True)
    again.load_state_dict(table.state_dict())
    assert again.utility_range == table.utility_range


@pytest.mark.slow
def test_a_run_goes_on_with_a_wider_range_and_says_so(tmp_path: Path) -> None:
    scenario = ludus.PSRO(
        env=ludus.Environment(
            id="openspiel/tic_tac_toe", num_envs=8, tree="off", options={"utility_range": [-0.5, 0.5]}
        ),
        algorithm="ppo",
        generations=1,
        response={"episodes": 16},
        evaluation={"episodes": 16},
    )
    assert ludus.run(scenario, run_dir=tmp_path / "run", report=False).generations
    with Reader(tmp_path / "run") as reader:
        said = [event.text for event in reader.events() if event.kind == "utility_range"]
    assert len(said) == 1
    assert "returns were outside of ((-0.5, 0.5), (-0.5, 0.5)), the range of openspiel/tic_tac_toe" in said[0]
    again = ludus.resume(tmp_path / "run", ["generations=2"], report=False)
    assert len(again.generations) == 3
    assert [event.kind for event in again.warnings if event.kind == "utility_range"] == ["utility_range"]


@pytest.mark.slow
def test_a_tournament_decides_by_what_it_has_seen(tmp_path: Path) -> None:
    """As if the range had been right; and again from what is stored, by a command that plays nothing."""
    entrants, options = ["bot:mcts-30", "random"], Options(budget=400)
    right = Environment(id="openspiel/tic_tac_toe", tree="off")
    expected = play_tournament(entrants, tmp_path / "right", env=right, options=options)
    wrong = Environment(id="openspiel/tic_tac_toe", tree="off", options={"utility_range": [-0.5, 0.5]})
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"outside of its utility range \(\(-0\.5, 0\.5\).*\(\(-1\.0, 1\.0\)"):
            found = play_tournament(entrants, tmp_path / "wrong", env=wrong, options=options)
        assert (found.orders, found.episodes) == (expected.orders, expected.episodes)


def test_openspiel_counts_one_tile_of_2048() -> None:
    """Its own bound is one tile's worth; random play is above it, with a small last tile. A failure means that OpenSpiel has changed."""
    name = "openspiel/2048(max_tile=32)"
    assert make_env(name, num_envs=1).spec.utility_range == ((0.0, 128.0),)
    assert pyspiel.load_game("2048").max_utility() == 20_480
    with pytest.raises(AssertionError, match="outside of the utility range"):
        check_env(lambda n: make_env(name, num_envs=n), steps=60)


@pytest.mark.slow
def test_intervals_hold_the_means_of_returns_beyond_the_range(tmp_path: Path) -> None:
    """With OpenSpiel's bound they ended at 128, and the means are above 170."""
    env = Environment(id="openspiel/2048(max_tile=32)")
    entrants, options = ["bot:fixed_action_preference", "random"], Options(budget=300)
    with pytest.warns(UserWarning, match=r"openspiel/2048\(max_tile=32\) had returns outside"):
        found = play_tournament(entrants, tmp_path / "games", env=env, options=options)
    with closing(sqlite3.connect(tmp_path / "games" / FILE)) as db:
        ((text,),) = db.execute("SELECT value FROM tournament WHERE key = 'utility_range'").fetchall()
    ((least,), (most,)) = json.loads(text)
    assert least == 0
    assert 200 < most < 1000
    low, high = bounds_of(found.results, replace(env.make(num_envs=1).spec, utility_range=((least, most),)), 0.95)
    for result, bottom, top in zip(found.results, low, high, strict=True):
        assert bottom < result.mean < top
    assert found.orders is not None
    assert len(found.orders.undecided) == 1


def test_a_range_is_kept_from_command_to_command(tmp_path: Path) -> None:
    spec = make_env("openspiel/tic_tac_toe", num_envs=1, **NARROW).spec
    nothing = np.empty((0, 2))
    for returns, bounds in [
        (nothing, ((-0.5, 0.5), (-0.5, 0.5))),
        (np.array([[1.0, -1.0]]), ((-0.5, 1.0), (-1.0, 0.5))),
        (nothing, ((-0.5, 1.0), (-1.0, 0.5))),
        (np.array([[-1.0, 0.5]]), ((-1.0, 1.0), (-1.0, 0.5))),
    ]:
        with TournamentStore(tmp_path, game="g", seed=0, entrants={}) as store:
            assert store.widen(spec, returns).utility_range == bounds


def test_openspiels_range_can_be_replaced_where_games_are_stepped() -> None:
    assert make_env("openspiel/2048", num_envs=1, utility_range=[0, 100_000]).spec.utility_range == ((0.0, 100_000.0),)
    assert make_env("openspiel/kuhn_poker", num_envs=1, utility_range=[0, 1]).spec.utility_range == ((-2.0, 2.0),) * 2
    with pytest.raises(ConfigError, match="utility_range=7 was given; expected"):
        make_env("openspiel/2048", num_envs=1, utility_range=7)
