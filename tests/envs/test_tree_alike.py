"""Compiled games tell apart what networks are shown: states whose tensors and legal actions agree are one information state.

OpenSpiel's strings of dark hex count the opponent's hidden tries, its tensors do not (docs/environments/openspiel.md).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pyspiel
import pytest
from open_spiel.python import policy as spiel_policy
from open_spiel.python.algorithms import expected_game_score, exploitability

from ludus.core.errors import EnvError
from ludus.envs.tree.game_tree import GameTree, compile_tree

SMALL = "dark_hex(num_rows=2,num_cols=2)"


def tables(tree: GameTree, rng: np.random.Generator) -> list[np.ndarray]:
    """Of each player a random strategy, without zeros."""
    made = []
    for player in range(tree.num_players):
        table = tree.uniform(player) * rng.uniform(0.1, 1.0, size=tree.uniform(player).shape)
        made.append(table / table.sum(axis=1, keepdims=True))
    return made


def by_strings(tree: GameTree, strategies: list[np.ndarray]) -> spiel_policy.TabularPolicy:
    """OpenSpiel's policy that plays the same wherever a state's tensor is that of one of the tree."""
    game = pyspiel.load_game(tree.spec.id.removeprefix("openspiel/"))
    looks: list[dict[bytes, int]] = []
    for player in range(tree.num_players):
        rows = tree.enumeration.observation[tree.enumeration.ids(player)]
        looks.append({row.tobytes(): place for place, row in enumerate(rows)})
    policy = spiel_policy.TabularPolicy(game)
    for row, state in enumerate(policy.states):
        player = state.current_player()
        look = np.array(state.information_state_tensor(player), np.float32).tobytes()
        policy.action_probability_array[row] = strategies[player][looks[player][look]]
    return policy


def test_hidden_tries_are_no_information() -> None:
    """33 and 101 states by OpenSpiel's strings look like 17 and 53."""
    tree = compile_tree(SMALL)
    assert tree.enumeration.offset == (0, 17, 70)
    for player in range(2):
        rows = tree.enumeration.observation[tree.enumeration.ids(player)]
        assert len(np.unique(rows, axis=0)) == len(rows)
    strings = spiel_policy.TabularPolicy(pyspiel.load_game(SMALL)).states_per_player
    assert [len(states) for states in strings] == [33, 101]


def test_values_and_gains_are_those_of_openspiel() -> None:
    """On 2 × 2 cells the count of tries is worth nothing, so OpenSpiel's best responses, which know it, gain the same."""
    tree, rng = compile_tree(SMALL), np.random.default_rng(0)
    for _ in range(5):
        strategies = tables(tree, rng)
        plans = [tree.realization(player, table) for player, table in enumerate(strategies)]
        same = by_strings(tree, strategies)
        expected = expected_game_score.policy_value(same.game.new_initial_state(), [same, same])
        np.testing.assert_allclose(tree.values(plans), expected, atol=1e-12)
        assert tree.exploitability(plans).nash_conv == pytest.approx(exploitability.nash_conv(same.game, same))


@pytest.mark.slow
def test_a_larger_board_has_perfect_recall_by_its_tensors() -> None:
    """Strings of 2 × 3 cells forget what they counted. NashConv of uniform play against OpenSpiel's, in C++."""
    name = "dark_hex(num_rows=2,num_cols=3)"
    tree, game = compile_tree(name), pyspiel.load_game(name)
    assert np.diff(tree.enumeration.offset).tolist() == [697, 1811]
    uniform = [tree.realization(player, tree.uniform(player)) for player in range(2)]
    theirs = pyspiel.nash_conv(game, pyspiel.UniformRandomPolicy(game))
    assert tree.exploitability(uniform).nash_conv == pytest.approx(theirs)


@pytest.mark.parametrize("observation", ["observation", "one_hot"])
def test_the_states_are_the_same_whatever_is_shown(observation: str) -> None:
    assert compile_tree(SMALL, observation=observation).enumeration.offset == (0, 17, 70)


def test_strings_stand_where_tensors_forget_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank tensors make one state of a player's first and second move, which is no perfect recall."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    tree = compile_tree("spiel_blank:python_blank_bits")
    assert np.diff(tree.enumeration.offset).tolist() == [3, 1]
    uniform = [tree.realization(player, tree.uniform(player)) for player in range(2)]
    np.testing.assert_allclose(tree.exploitability(uniform).gain, 0.0, atol=1e-12)


def test_states_are_only_ever_merged() -> None:
    """The tensor of dark_hex_ir has perfect recall, and the game is meant to have none: its strings are what its players know."""
    with pytest.raises(EnvError, match="lacks perfect recall"):
        compile_tree("dark_hex_ir(num_rows=2,num_cols=2)")


BY_STRINGS = {
    "dark_hex": "the opponent's hidden tries",
    "repeated_leduc_poker": "earlier hands, which both forget later",
}
"""What strings tell and tensors do not."""
BY_TENSORS = {"dark_hex_ir": "own tries that the string forgets"}


def differences(name: str, *, episodes: int = 60, longest: int = 100) -> tuple[bool, bool]:
    """Whether, in random play, one tensor (with its legal actions) had several strings, and one string several tensors."""
    game, rng = pyspiel.load_game(name), np.random.default_rng(0)
    tensors: dict[tuple, set] = defaultdict(set)
    strings: dict[tuple, set] = defaultdict(set)
    for _ in range(episodes):
        state = game.new_initial_state()
        for _ in range(longest):
            if state.is_terminal():
                break
            if state.is_chance_node():
                actions, chances = zip(*state.chance_outcomes(), strict=True)
                state.apply_action(int(rng.choice(actions, p=np.array(chances) / sum(chances))))
                continue
            legal = [state.legal_actions(player) for player in range(game.num_players())]
            for player, own in enumerate(legal):
                if own:
                    look = np.array([*state.information_state_tensor(player), *own]).tobytes()
                    text = state.information_state_string(player)
                    tensors[player, text].add(look)
                    strings[player, look].add(text)
            moves = [int(rng.choice(own)) if own else pyspiel.INVALID_ACTION for own in legal]
            if state.is_simultaneous_node():
                state.apply_actions(moves)
            else:
                state.apply_action(moves[state.current_player()])
    return tuple(any(len(others) > 1 for others in table.values()) for table in (strings, tensors))  # type: ignore[return-value]


@pytest.mark.long
def test_strings_and_tensors_tell_the_same_apart_in_other_games() -> None:
    """All that hide something, have both, and need no parameters. A failure means that OpenSpiel has changed, or has a game more."""
    perfect = pyspiel.GameType.Information.PERFECT_INFORMATION
    games = [
        kind.short_name
        for kind in pyspiel.registered_games()
        if kind.information != perfect
        and kind.default_loadable
        and kind.provides_information_state_tensor
        and kind.provides_information_state_string
        and not kind.short_name.startswith(("python_", "chat_", "bridge"))
    ]
    assert len(games) > 30
    for name in games:
        assert differences(name) == (name in BY_STRINGS, name in BY_TENSORS), name
