"""OpenSpiel's games as arrays: the timesteps, snapshots and texts of OpenSpiel's states, to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyspiel
import pytest

import ludus
from benchmarks.openspiel_arrays import FORMS, random_actions
from benchmarks.openspiel_arrays_lockstep import compare
from ludus.contrib.envs.openspiel_arrays import base, hex_board
from ludus.contrib.envs.openspiel_arrays.base import ArrayVectorEnv
from ludus.core.config import as_stored
from ludus.core.errors import ConfigError, EnvError
from ludus.core.types import Timestep
from ludus.envs.config import Environment
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.registry import make_env
from ludus.rollout.bot_players import FollowedGames
from ludus.testing.env import check_env

FAST = [
    "phantom_ttt",
    "goofspiel(egocentric=True,imp_info=True,num_cards=4)",
    pytest.param("dark_hex(gameversion=adh,num_cols=4,num_rows=3,obstype=reveal-numturns)", marks=pytest.mark.slow),
    pytest.param("connect_four(columns=5,rows=4)", marks=pytest.mark.slow),
    pytest.param("liars_dice(numdice=2)", marks=pytest.mark.slow),
    pytest.param("breakthrough(columns=3,rows=6)", marks=pytest.mark.slow),
    pytest.param("hex(board_size=3)", marks=pytest.mark.slow),
    pytest.param("go(board_size=4,komi=0.5,max_game_length=30)", marks=pytest.mark.slow),
    pytest.param("oshi_zumo(coins=6,horizon=12,min_bid=1)", marks=pytest.mark.slow),
]
"""One of each kernel. The first test of one compiles it for some seconds, where there is none in the cache."""


def both(name: str, num_envs: int, **options: Any) -> tuple[Any, OpenSpielVectorEnv]:
    fast, slow = (
        make_env(f"openspiel/{name}", num_envs=num_envs, tree="off", fast=choice, **options) for choice in ("on", "off")
    )
    assert isinstance(fast, ArrayVectorEnv)
    assert isinstance(slow, OpenSpielVectorEnv)
    return fast, slow


def assert_equal(one: Timestep, other: Timestep) -> None:
    for a, b in zip((*one.due, *one.ended, one.finished), (*other.due, *other.ended, other.finished), strict=True):
        for name, x, y in zip(a._fields, a, b, strict=True):  # type: ignore[attr-defined]
            assert (x is None) == (y is None), name
            if x is not None:
                assert (x.dtype, x.shape) == (y.dtype, y.shape), name
                assert np.array_equal(x, y), name


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("options", [{}, {"observation": "observation", "openings": 12}], ids=str)
def test_timesteps_snapshots_and_texts_are_those_of_openspiels_states(name: str, options: dict[str, Any]) -> None:
    fast, slow = both(name, 8, **options)
    for field in ("id", "agents", "utility_range", "symmetry", "zero_sum", "max_decisions", "no_tree", "determinism"):
        assert getattr(fast.spec, field) == getattr(slow.spec, field), field
    seeds, quota = np.arange(8, dtype=np.uint64) * 7 + 3, np.array([0, 1, 2, 3, 2, 2, 1, 3])
    one, other = fast.reset(seeds, episodes=quota), slow.reset(seeds, episodes=quota)
    assert_equal(one, other)
    rng = np.random.default_rng(0)
    steps = 0
    while any(len(due.slot) for due in one.due):
        actions = random_actions(one.due, rng)
        one, other = fast.step(actions), slow.step(actions)
        assert_equal(one, other)
        assert fast.snapshot() == slow.snapshot()
        if steps in (2, 9):  # each goes on from the other's snapshot
            snapshot = fast.snapshot()
            fast, slow = both(name, 8, **options)
            one, other = fast.restore(snapshot), slow.restore(snapshot)
            assert_equal(one, other)
            assert fast.snapshot() == snapshot
        assert [fast.state(e).serialize() for e in (1, 2)] == [slow._states[e].serialize() for e in (1, 2)]
        steps += 1
    assert [fast.render(e) for e in range(1, 8)] == [slow.render(e) for e in range(1, 8)]
    assert fast.transcript(3) == slow.transcript(3)
    assert fast.snapshot() == slow.snapshot()


@pytest.mark.parametrize("name", FAST)
def test_a_game_as_arrays_keeps_the_contract(name: str) -> None:
    check_env(lambda n: make_env(f"openspiel/{name}", num_envs=n, tree="off", fast="on"), num_envs=3, steps=40)


@pytest.mark.parametrize("name", FAST)
def test_a_game_as_arrays_goes_move_by_move_with_openspiels_state(name: str) -> None:
    assert compare(name, moves=600, num_envs=8) >= 600


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_every_form_goes_move_by_move_with_openspiels_state(name: str) -> None:
    """The rest of a million moves of each: `python -m benchmarks.openspiel_arrays --lockstep`."""
    kind = pyspiel.load_game(name).get_type()
    assert compare(name, moves=3_000, tensors="observation", seed=1) >= 3_000
    if kind.provides_information_state_tensor:
        assert compare(name, moves=3_000, tensors="information_state", seed=2, openings=5) >= 3_000


def test_an_illegal_move_leaves_every_game_where_it_was() -> None:
    env = make_env("openspiel/phantom_ttt", num_envs=2, tree="off", fast="on")
    env.reset(np.arange(2, dtype=np.uint64))
    none = np.empty(0, np.int64)
    env.step((np.array([4, 4]), none))
    before = env.snapshot()
    with pytest.raises(EnvError, match=r"player 1 chose the illegal action 9 in slot 1 .* legal: \[0, 1, 2"):
        env.step((none, np.array([0, 9])))
    with pytest.raises(EnvError, match=r"actions of shape \(1,\) for 2 due decisions"):
        env.step((none, np.array([0])))
    assert env.snapshot() == before
    env.step((none, np.array([4, 0])))
    with pytest.raises(EnvError, match="illegal action 4 in slot 0"):
        env.step((np.array([1]), np.array([4])))


def test_steps_without_a_reset_and_wrong_sizes_are_refused() -> None:
    env = make_env("openspiel/phantom_ttt", num_envs=2, tree="off", fast="on")
    assert env.snapshot() is None
    with pytest.raises(EnvError, match="before reset"):
        env.step((np.zeros(2, np.int64), np.zeros(0, np.int64)))
    with pytest.raises(EnvError, match="3 seeds were given for 2"):
        env.reset(np.arange(3, dtype=np.uint64))
    with pytest.raises(EnvError, match="numbers from 0 on"):
        env.reset(np.arange(2, dtype=np.uint64), episodes=-1)
    with pytest.raises(EnvError, match="num_envs=0"):
        ArrayVectorEnv(pyspiel.load_game("phantom_ttt"), None, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("moves", "reason"),
    [([0, 0], "a move is illegal"), ([0, 9], "a move is illegal"), ([0, 3, 1, 4, 2, 5], "after the end"), (["a"], "")],
)
def test_snapshots_with_moves_that_do_not_fit_are_refused(moves: list[Any], reason: str) -> None:
    env = make_env("openspiel/phantom_ttt(gameversion=abrupt)", num_envs=2, tree="off", fast="on")
    env.reset(np.arange(2, dtype=np.uint64))
    document = json.loads(env.snapshot() or b"")
    document["games"][1][2] = moves if reason != "a move is illegal" else [0, 8, moves[1]]
    with pytest.raises(EnvError, match=f"cannot be read: .*{reason}"):
        env.restore(json.dumps(document).encode())
    with pytest.raises(EnvError, match="restore into an equal environment"):
        make_env("openspiel/phantom_ttt(gameversion=abrupt)", num_envs=3, tree="off", fast="on").restore(
            env.snapshot() or b""
        )
    with pytest.raises(EnvError, match="cut or changed"):
        env.restore(b"{")


class TestChoice:
    def test_games_without_arrays_are_stepped_by_openspiel_or_refused(self) -> None:
        assert isinstance(make_env("openspiel/chess", num_envs=1, tree="off"), OpenSpielVectorEnv)
        with pytest.raises(EnvError, match=r"not there as arrays \(those that are: .*dark_hex"):
            make_env("openspiel/chess", num_envs=1, tree="off", fast="on")
        with pytest.raises(EnvError, match="not with these parameters"):
            make_env("openspiel/dark_hex(num_rows=1,num_cols=5)", num_envs=1, tree="off", fast="on")
        with pytest.raises(ConfigError, match=r"fast=on was given; only OpenSpiel's games"):
            make_env("gymnasium/CartPole-v1", num_envs=1, fast="on")
        with pytest.raises(ConfigError, match="fast='maybe' was given; allowed: auto, on, off"):
            make_env("openspiel/phantom_ttt", num_envs=1, fast="maybe")  # type: ignore[arg-type]

    def test_arrays_are_the_default_and_old_runs_go_on_without(self) -> None:
        assert isinstance(Environment(id="openspiel/phantom_ttt", num_envs=1).make(), ArrayVectorEnv)
        with as_stored():
            stored = Environment.model_validate({"id": "openspiel/phantom_ttt", "num_envs": 1})
        assert stored.fast == "off"
        assert isinstance(stored.make(), OpenSpielVectorEnv)

    def test_a_small_tree_is_compiled_first(self) -> None:
        assert make_env("openspiel/dark_hex(board_size=2)", num_envs=1).spec.enumeration is not None

    def test_utility_range_is_an_option(self) -> None:
        env = make_env("openspiel/phantom_ttt", num_envs=1, tree="off", utility_range=[-2, 2])
        assert env.spec.utility_range == ((-2, 2), (-2, 2))


@pytest.mark.parametrize("openings", [0, 4])
def test_the_states_that_bots_are_given_are_those_of_the_arrays(openings: int) -> None:
    inner = make_env("openspiel/phantom_ttt", num_envs=4, tree="off", fast="on", openings=openings)
    env = FollowedGames(inner)
    timestep, rng = env.reset(np.arange(4, dtype=np.uint64) + 100, episodes=3), np.random.default_rng(0)
    seen = 0
    while any(len(due.slot) for due in timestep.due):
        for e in np.concatenate([due.slot for due in timestep.due]).tolist():
            assert env.state(e).serialize() == inner.state(e).serialize()  # type: ignore[attr-defined]
            seen += 1
        timestep = env.step(random_actions(timestep.due, rng))
    assert seen > 12


@pytest.mark.slow
def test_a_run_with_arrays_is_the_run_without(tmp_path: Path) -> None:
    results = []
    for fast in ("auto", "off"):
        scenario = ludus.PSRO(
            env={"id": "openspiel/phantom_ttt", "num_envs": 8, "tree": "off", "fast": fast},
            generations=2,
            response={"episodes": 60},
            evaluation={"episodes": 20},
            seed=1,
        )
        results.append(ludus.run(scenario, run_dir=tmp_path / fast, report=False).generations[-1].values)
    assert results[0] == results[1]


def test_a_kernel_is_named_after_all_modules_that_its_rules_are_of() -> None:
    """Else a file of kernels would be taken after a change in a module that the game's has rules from."""
    names = [module.__name__.rpartition(".")[2] for module in base._modules(hex_board)]
    assert {"base", "hex_board", "hidden_boards"} <= set(names)
    assert "goofspiel" not in names
