"""Rules as compiled functions are OpenSpiel's games; what shows no position is refused."""

from dataclasses import replace

import numpy as np
import pyspiel
import pytest

from ludus.core.errors import ConfigError, PolicyError, ScenarioError
from ludus.envs.registry import make_env
from ludus.envs.rules import InARow, build_rules, require_rules, rules_config

GAMES = ("tic_tac_toe", "connect_four", "connect_four(rows=4,columns=5,x_in_row=3)")


def spec_of(name):
    return make_env(f"openspiel/{name}", num_envs=1, tree="off").spec


@pytest.mark.parametrize("name", GAMES)
def test_they_are_the_games(name):
    """Random games, move by move: what is seen, what is legal, how they end."""
    game, rules = pyspiel.load_game(name), build_rules(rules_config(spec_of(name), None))
    rng = np.random.default_rng(0)
    ends = set()
    for _ in range(60):
        state, position = game.new_initial_state(), np.zeros((1, rules.width), np.int8)
        while not state.is_terminal():
            seen = np.array(state.observation_tensor(), np.float32)[None]
            np.testing.assert_array_equal(rules.observe(position), seen)
            np.testing.assert_array_equal(rules.positions(seen), position)
            assert np.flatnonzero(rules.legal(position)[0]).tolist() == state.legal_actions()
            assert rules.moves(position)[0] == state.move_number()
            mover, action = state.current_player(), rng.choice(state.legal_actions())
            state.apply_action(action)
            before = position.copy()
            moved = rules.step(position, np.array([action], np.int32))
            np.testing.assert_array_equal(position, before)
            assert moved.reward[0] == (state.returns()[mover] if state.is_terminal() else 0.0)
            assert moved.discount[0] == (0.0 if state.is_terminal() else -1.0)
            position = moved.positions
        ends.add(tuple(state.returns()))
    assert {(1.0, -1.0), (-1.0, 1.0)} <= ends


@pytest.mark.parametrize(("name", "count"), [("tic_tac_toe", 8), ("connect_four", 2)])
def test_symmetries_change_how_it_looks_and_nothing_else(name, count):
    """To move and then to look another way is to look another way and then to move."""
    rules = build_rules(rules_config(spec_of(name), None))
    ways = rules.symmetries
    assert len(ways.actions) == count
    np.testing.assert_array_equal(ways.actions[0], np.arange(rules.actions))
    assert len({tuple(way) for way in ways.observation.tolist()}) == count
    rng, position = np.random.default_rng(1), np.zeros((1, rules.width), np.int8)
    for _ in range(4):
        action = rng.choice(np.flatnonzero(rules.legal(position)[0]))
        after = rules.step(position, np.array([action], np.int32)).positions
        for seen, played in zip(*ways, strict=True):
            turned = rules.positions(rules.observe(position)[:, seen])
            same = np.flatnonzero(played == action).astype(np.int32)
            other = rules.step(turned, same).positions
            np.testing.assert_array_equal(rules.observe(other), rules.observe(after)[:, seen])
        position = after


@pytest.mark.parametrize(
    "wrong", [np.zeros((1, 27)), np.ones((1, 27)), np.zeros((1, 26)), np.eye(3)[np.ones(9, int)].T.reshape(1, 27)]
)
def test_game_without_position_observations_raises(wrong):
    """Cells that are nothing, or everything; another board; nine stones of one player."""
    with pytest.raises(PolicyError, match=r"expected 27 numbers|shows no position"):
        InARow(3, 3, 3).positions(wrong.astype(np.float32))


def test_game_without_rules_raises():
    with pytest.raises(ScenarioError, match="needs rules that it can step, and there are none for openspiel/go"):
        rules_config(spec_of("go(board_size=5)"), None)
    with pytest.raises(ConfigError, match="rows=0"):
        build_rules({"kind": "in_a_row", "rows": 0, "columns": 3, "length": 3})
    rules, spec = InARow(3, 3, 3), spec_of("tic_tac_toe")
    require_rules(rules, spec, algorithm="it")
    with pytest.raises(ScenarioError, match="9 actions; openspiel/connect_four has 126 and 7"):
        require_rules(rules, spec_of("connect_four"), algorithm="it")
    three = replace(spec, utility_range=((-3.0, 3.0),) * 2)
    with pytest.raises(ScenarioError, match=r"get up to 3, of which 3 would be learned\. Give scale_rewards"):
        require_rules(rules, three, algorithm="it")
    require_rules(rules, three, algorithm="it", scale=1 / 3)
    require_rules(rules, replace(spec, utility_range=((-np.inf, np.inf),) * 2), algorithm="it")
    with pytest.raises(ScenarioError, match="not zero-sum"):
        require_rules(rules, replace(spec, zero_sum=False), algorithm="it")
