"""`pgx/…`: the contract, connect four in lockstep with OpenSpiel's, ends, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from installed import require

pytest.importorskip("jax")

import pyspiel
from jax_games import check_form, check_on_a_device
from refusals import Refusal, check_refusals

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.registry import list_envs, make_env, package_faults
from ludus.testing.env import check_env

require("pgx")

pytestmark = pytest.mark.slow

ID, E = "pgx/connect_four", 16


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("tic_tac_toe", {}),
        ("kuhn_poker", {}),
        # With chance, more than one point can be won; and one player.
        pytest.param("backgammon", {}, marks=pytest.mark.long),
        pytest.param("minatar-breakout", {"max_steps": 40}, marks=pytest.mark.long),
    ],
)
def test_pgx_games_satisfy_vector_env_contract(id: str, options: dict[str, Any]) -> None:
    num_envs = 1 if id in ("backgammon", "minatar-breakout") else 2  # compiling them for neighbours, too, takes long
    check_env(lambda n: make_env(f"pgx/{id}", num_envs=n, **options), num_envs=num_envs, steps=60)


def test_connect_four_in_lockstep_with_openspiel() -> None:
    """Random games, at least 150 of them: what is legal, who is due, what is seen, what is paid and when it ends are the same."""
    env, game = make_env(ID, num_envs=E), pyspiel.load_game("connect_four")
    assert env.spec.zero_sum
    assert env.spec.utility_range == ((-1.0, 1.0), (-1.0, 1.0))
    rng = np.random.default_rng(3)
    timestep = env.reset(keys(3, "connect four", count=E))
    states, first, games = [game.new_initial_state() for _ in range(E)], np.zeros(E, int), 0
    for p, due in enumerate(timestep.due):
        first[due.slot] = p
    assert set(first.tolist()) == {0, 1}  # who begins is drawn
    for _ in range(350):
        actions: list[list[int]] = [[], []]
        for p, due in enumerate(timestep.due):
            assert due.mask is not None
            for e, seen, mask in zip(due.slot.tolist(), due.observation, due.mask, strict=True):
                state = states[e]
                assert (p - first[e]) % 2 == state.current_player()
                assert np.flatnonzero(mask).tolist() == state.legal_actions()
                # OpenSpiel's tensors begin at the bottom: first player's stones, the other's, empty places.
                theirs = np.array(state.observation_tensor(state.current_player())).reshape(3, 6, 7)[:2, ::-1]
                own = state.current_player()
                np.testing.assert_array_equal(seen.transpose(2, 0, 1), theirs[[own, 1 - own]])
                move = int(rng.choice(state.legal_actions()))
                actions[p].append(move)
                state.apply_action(move)
        timestep = env.step((np.array(actions[0], int), np.array(actions[1], int)))
        over = [e for e in range(E) if states[e].is_terminal()]
        assert timestep.finished.environment.tolist() == over
        for e, returns, length in zip(over, timestep.finished.returns, timestep.finished.length, strict=True):
            assert returns.tolist() == [states[e].returns()[(p - first[e]) % 2] for p in range(2)]
            assert length == states[e].move_number()
            states[e], games = game.new_initial_state(), games + 1
        for p, due in enumerate(timestep.due):
            begun = due.slot[np.isin(due.slot, over)]
            first[begun] = p
    assert games >= 150


def test_moves_may_be_limited() -> None:
    env = make_env("pgx/tic_tac_toe", num_envs=2, max_steps=3)
    timestep = env.reset(keys(1, "pgx", count=2))
    begins = [due.slot.tolist() for due in timestep.due]
    for _ in range(3):
        timestep = env.step(tuple(due.mask.argmax(axis=1) for due in timestep.due if due.mask is not None))
    assert timestep.finished.terminated.tolist() == [False, False]
    assert timestep.finished.length.tolist() == [3, 3]
    for p, ended in enumerate(timestep.ended):  # each sees the board from its own side: [own, other's]
        assert ended.mask is not None
        for slot, seen, mask in zip(ended.slot.tolist(), ended.observation, ended.mask, strict=True):
            assert seen.sum(axis=(0, 1)).tolist() == ([2, 1] if slot in begins[p] else [1, 2])
            # Whose turn it is not: what it may do then is not known.
            assert mask.sum() == (9 if slot in begins[p] else 6)


def test_on_a_device_it_is_the_same() -> None:
    assert check_on_a_device(make_env("pgx/tic_tac_toe", num_envs=2), "cpu", steps=20) >= 4


@pytest.mark.gpu
def test_a_game_lives_on_a_gpu(gpu: str) -> None:
    assert check_on_a_device(make_env(ID, num_envs=3), gpu, steps=60) >= 3


REFUSED: list[Refusal] = [
    ("pgx/connect_fur", {}, UnknownName, "did you mean 'connect_four'"),
    (ID, {"max_step": 3}, ConfigError, "unknown option 'max_step'.*did you mean 'max_steps'"),
    (ID, {"max_steps": 0}, ConfigError, "max_steps=0 was given"),
    (ID, {"state": True}, ConfigError, "no common state.*joint_state"),
    (ID, {"workers": 2}, ConfigError, "has threads of its own"),
]


def test_pgx_rejects_invalid_ids_and_options() -> None:
    check_refusals(partial(make_env, num_envs=1), REFUSED)
    assert len(list_envs("pgx")) == 20
    (text,) = package_faults("pgx/sparrow_mahjong", {})
    assert "only the last seat" in text
    assert package_faults(ID, {}) == []


def test_illegal_moves_are_found_out() -> None:
    env = make_env(ID, num_envs=E)
    timestep = env.reset(keys(1, "pgx", count=E))
    for _ in range(6):  # they fill a column
        timestep = env.step(tuple(np.zeros(len(due.slot), int) for due in timestep.due))
    with pytest.raises(EnvError, match="illegal action 0"):
        env.step(tuple(np.zeros(len(due.slot), int) for due in timestep.due))


@pytest.mark.long
def test_every_game_has_the_form_that_it_announces(subtests: pytest.Subtests) -> None:
    for id in list_envs("pgx"):
        with subtests.test(id):
            check_form(make_env(id, num_envs=2))
