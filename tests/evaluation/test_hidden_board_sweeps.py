"""Sweeps over hidden boards: against compiled trees, OpenSpiel, histories one by one, a published figure, and what they refuse."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pyspiel
import pytest
from numpy.typing import NDArray

from ludus.core.errors import ScenarioError
from ludus.envs.registry import make_env
from ludus.envs.sweep_rules import HiddenBoard
from ludus.envs.tree.game_tree import GameTree, compile_tree
from ludus.evaluation.hidden_boards import abrupt, classical, sweeps
from ludus.evaluation.hidden_boards.opponents import (
    Ask,
    Opponent,
    board_of,
    by_sequences,
    by_views,
    count_sequences,
    sequences_of,
    views_of,
)
from ludus.evaluation.hidden_boards.sweeps import Earned, size_of, sweep_board
from ludus.evaluation.hidden_boards.values import value_of

SMALL = "dark_hex(num_rows=2,num_cols=2)"
FORMS = [SMALL, "dark_hex(gameversion=adh,num_cols=2,num_rows=2)"]
LARGER = ["dark_hex(num_rows=2,num_cols=3)", "dark_hex(gameversion=adh,num_cols=3,num_rows=2)"]
_STONES = (5, 3)  # in dark hex's tensor: of player 0 and 1


def game(name: str, *, sequences: bool = False) -> HiddenBoard:
    shown = "information_state" if sequences else "observation"
    env: Any = make_env(f"openspiel/{name}", num_envs=1, tree="off", fast="on", observation=shown)
    board: HiddenBoard = env.sweep_rules
    env.close()
    return board


def at_random(seed: int, *, tries: int = 9) -> Ask:
    """A policy that is another function of all that it is shown for each seed. tries: how many have a probability, at most."""

    def ask(digits: NDArray[np.int8], tried: NDArray[np.int64]) -> NDArray[np.float64]:
        probs = np.zeros(digits.shape)
        for row, (view, own) in enumerate(zip(digits.tolist(), tried.tolist(), strict=True)):
            rng = np.random.default_rng([seed, *view, *own])
            weight = rng.exponential(size=len(view)) ** 3 * (digits[row] == 0)
            weight *= weight >= np.sort(weight)[-min(tries, len(view))]
            probs[row] = weight / weight.sum()
        return probs

    return ask


def uniformly(digits: NDArray[np.int8], tried: NDArray[np.int64]) -> NDArray[np.float64]:
    del tried
    unknown = digits == 0
    probs: NDArray[np.float64] = unknown / unknown.sum(axis=1, keepdims=True)
    return probs


def mixture(board: HiddenBoard, player: int, policies: list[Ask]) -> tuple[NDArray[np.float64], Opponent]:
    """Weights of policies, and the mixture."""
    weights = np.arange(1.0, len(policies) + 1)
    weights /= weights.sum()
    if board.sequences:
        return weights, by_sequences(sequences_of(board, player), board.cells, weights, policies)
    return weights, by_views(board, player, weights, policies)


def plan(
    tree: GameTree, board: HiddenBoard, player: int, weights: NDArray[np.float64], policies: list[Ask]
) -> NDArray[np.float64]:
    """The realisation plan of a mixture on the compiled tree, whose observations are dark hex's information states."""
    cells, rows = board.cells, tree.enumeration.observation[tree.enumeration.ids(player)]
    shown = rows[:, : 9 * cells].reshape(len(rows), cells, 9)
    digits = np.zeros((len(rows), cells), np.int8)
    digits[shown[:, :, _STONES[player]] == 1] = 1
    digits[shown[:, :, _STONES[1 - player]] == 1] = 2
    ordered = rows[:, 9 * cells :].reshape(len(rows), -1, cells)
    tables = []
    for policy in policies:
        table = np.empty((len(rows), cells))
        for row in range(len(rows)):
            count = int((digits[row] != 0).sum())
            own = ordered[row, :count].argmax(axis=1)
            tried = own if board.sequences else np.array([2 * count + player if board.abrupt else count])
            table[row] = policy(digits[row][None], tried[None])[0]
        tables.append(tree.realization(player, table))
    return weights @ np.array(tables)


@pytest.mark.parametrize(
    ("name", "sequences"),
    [
        *((name, False) for name in FORMS),
        (SMALL, True),
        *(pytest.param(name, False, marks=pytest.mark.slow) for name in LARGER),
        pytest.param(LARGER[0], True, marks=pytest.mark.slow),
    ],
)
def test_best_responses_to_mixtures_are_those_of_the_tree(name: str, sequences: bool) -> None:
    board, tree = game(name, sequences=sequences), compile_tree(name)
    for count in (1, 3):
        policies = [[at_random(10 * p + m) for m in range(count + p)] for p in range(2)]
        mixtures = [mixture(board, p, policies[p]) for p in range(2)]
        plans = [plan(tree, board, p, mixtures[p][0], policies[p]) for p in range(2)]
        exact = tree.exploitability(plans)
        opponents = mixtures[0][1], mixtures[1][1]
        value, best = sweep_board(board, opponents)
        np.testing.assert_allclose(best, exact.value + exact.gain, rtol=0, atol=1e-12)
        np.testing.assert_allclose(value, exact.value, rtol=0, atol=1e-12)
        assert value_of(board, opponents) == value[0]


def uniform_play(board: HiddenBoard) -> Earned:
    return sweep_board(board, (mixture(board, 0, [uniformly])[1], mixture(board, 1, [uniformly])[1]))


@pytest.mark.parametrize("name", [*FORMS, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGER)])
def test_uniform_play_is_as_exploitable_as_openspiel_says(name: str) -> None:
    loaded = pyspiel.load_game(name)
    theirs = pyspiel.nash_conv(loaded, pyspiel.UniformRandomPolicy(loaded))
    assert uniform_play(game(name)).best.sum() == pytest.approx(theirs)


# --------------------------------------------------------------------------------------------------------------------
# Phantom tic-tac-toe has one size, so late positions of it are searched history by history, by OpenSpiel's own rules.


class Histories:
    """The best response of a responder to a policy, over explicit histories of OpenSpiel's states."""

    def __init__(self, name: str, responder: int, policy: Ask, *, sequences: bool) -> None:
        self.game, self.responder, self.policy, self.sequences = pyspiel.load_game(name), responder, policy, sequences
        self.abrupt = "abrupt" in name

    def digits(self, state: Any) -> NDArray[np.int8]:
        """What the opponent sees."""
        shown = np.array(state.observation_tensor(1 - self.responder)[:27]).reshape(3, 9).argmax(axis=0)
        return np.array([0, 1, 2] if self.responder == 0 else [0, 2, 1], np.int8)[shown]

    def view(self, state: Any) -> int:
        """The number of the opponent's view."""
        return int(self.digits(state) @ 3 ** np.arange(9))

    def placement(self, state: Any) -> tuple[int, int]:
        """The number of the order in which stones were put, and the set of the opponent's."""
        number, free, sets = 0, list(range(9)), [0, 0]
        for player, cell in ((move.player, move.action) for move in state.full_history()):
            if cell in free:
                number = number * len(free) + free.index(cell)
                free.remove(cell)
                sets[player] |= 1 << cell
        return number, sets[1 - self.responder]

    def best(self, nodes: list[tuple[Any, float]]) -> float:
        """The most that the responder earns from histories, with reaches, that he cannot tell apart and in which he is to move."""
        if not nodes:
            return 0.0
        values = []
        for action in nodes[0][0].legal_actions():
            earned, groups = 0.0, dict[str, list[tuple[Any, float]]]()
            for state, reach in nodes:
                for after, weight in self._until_he_moves(state.child(action), reach):
                    if after.is_terminal():
                        earned += weight * after.returns()[self.responder]
                    else:
                        groups.setdefault(after.information_state_string(self.responder), []).append((after, weight))
            values.append(earned + sum(map(self.best, groups.values())))
        return max(values)

    def possible(self, count: int) -> tuple[tuple[int, ...], list[tuple[Any, float]]]:
        """So many first stones of the responder's, after which the opponent may have come to several states, and the histories."""
        for stones in permutations(range(9), count):
            nodes = self.after(stones)
            if len({self.view(state) for state, _ in nodes}) > 3:
                return stones, nodes
        raise AssertionError

    def after(self, actions: tuple[int, ...]) -> list[tuple[Any, float]]:
        """Histories in which these tries of the responder have found free cells, and he is to move."""
        nodes = self._until_he_moves(self.game.new_initial_state(), 1.0)
        for action in actions:
            tried = [(state.child(action), reach) for state, reach in nodes]
            own = 9 * (2 - self.responder) + action  # where the responder sees his stone
            put = [pair for pair in tried if pair[0].observation_tensor(self.responder)[own] == 1]
            ahead = [pair for state, reach in put for pair in self._until_he_moves(state, reach)]
            nodes = [(state, reach) for state, reach in ahead if not state.is_terminal()]
        return nodes

    def _until_he_moves(self, state: Any, reach: float) -> list[tuple[Any, float]]:
        if state.is_terminal() or state.current_player() == self.responder:
            return [(state, reach)]
        own = [move.action for move in state.full_history() if move.player != self.responder]
        count = 2 * len(own) + 1 - self.responder if self.abrupt else len(own)
        probs = self.policy(self.digits(state)[None], np.array([own if self.sequences else [count]]))[0]
        tries = [(state.child(c), reach * probs[c]) for c in state.legal_actions() if probs[c] > 0]
        return [pair for one in tries for pair in self._until_he_moves(*one)]


@pytest.mark.parametrize("responder", [0, 1])
@pytest.mark.parametrize("sequences", [False, True])
def test_late_positions_of_classical_phantom_tic_tac_toe(responder: int, sequences: bool) -> None:
    board, policy = game("phantom_ttt", sequences=sequences), at_random(responder, tries=2)
    histories = Histories("phantom_ttt", responder, policy, sequences=sequences)
    stones, nodes = histories.possible(3)
    reaches = dict[tuple[int, int], float]()
    for state, reach in nodes:
        placement = histories.placement(state)
        reaches[placement] = reaches.get(placement, 0.0) + reach
    rules = board_of(board, responder)
    mass = classical.masses_of(rules, mixture(board, 1 - responder, [policy])[1])
    level = 6 + responder
    for (number, _), reach in reaches.items():
        assert mass[rules.begin[level] + number] == pytest.approx(reach, abs=1e-14)
    lists = classical.lists_for(rules)
    lists.size[0] = len(reaches)
    lists.number[0, : len(reaches)], lists.own[0, : len(reaches)] = np.array([*reaches]).T
    value = classical.best_of_placements(rules, mass, lists, 0, level, sum(1 << cell for cell in stones), 0)
    assert value == pytest.approx(histories.best(nodes), abs=1e-12)


@pytest.mark.parametrize("responder", [0, 1])
def test_late_positions_of_abrupt_phantom_tic_tac_toe(responder: int) -> None:
    name, policy = "phantom_ttt(gameversion=abrupt)", at_random(responder, tries=2)
    board, histories = game(name), Histories(name, responder, policy, sequences=False)
    stones, nodes = histories.possible(4)
    reaches = dict[int, float]()
    for state, reach in nodes:
        reaches[histories.view(state)] = reaches.get(histories.view(state), 0.0) + reach
    rules, opponent = board_of(board, responder), mixture(board, 1 - responder, [policy])[1]
    lists = abrupt.lists_for(rules, opponent)
    lists.size[0] = len(reaches)
    lists.state[0, : len(reaches)], lists.reach[0, : len(reaches), 0] = list(reaches), list(reaches.values())
    value = abrupt.best_of_views(rules, opponent, lists, 0, sum(1 << cell for cell in stones), 0)
    assert value == pytest.approx(histories.best(nodes), abs=1e-12)


# --------------------------------------------------------------------------------------------------------------------
# Whole games.


def test_uniform_play_of_dark_hex_is_as_exploitable_as_published() -> None:
    """Rudolph et al. 2025 (README of exp-a-spiel, in float32): gains of 0.666318 and 1.166488 over a value of 0.333684."""
    value, best = uniform_play(game("dark_hex(board_size=3)"))
    np.testing.assert_allclose(best, [0.666318 + 0.333684, 1.166488 - 0.333684], rtol=0, atol=5e-6)
    # stones are put on free cells alike, whatever was known: of 126 sets of five cells, 84 connect the first player's edges
    assert value[0] == pytest.approx(84 / 126 - 42 / 126, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["phantom_ttt", LARGER[1]])
def test_threads_change_no_bit(name: str) -> None:
    board = game(name)
    opponents = mixture(board, 0, [uniformly, at_random(1)])[1], mixture(board, 1, [at_random(2)])[1]
    told: list[tuple[int, int]] = []
    one = sweep_board(board, opponents, threads=1)
    three = sweep_board(board, opponents, threads=3, tell=lambda *done: told.append(done))
    assert np.concatenate(one).tolist() == np.concatenate(three).tolist()
    assert told[-1][0] == told[-1][1]


@pytest.mark.slow
def test_what_sees_its_view_alone_is_as_exploitable_by_sequences() -> None:
    by_view, by_order = (uniform_play(game("phantom_ttt", sequences=sequences)) for sequences in (False, True))
    np.testing.assert_allclose(np.array(by_view), np.array(by_order), rtol=0, atol=1e-12)


def test_uniform_play_of_phantom_tic_tac_toe_earns_what_that_of_tic_tac_toe_does() -> None:
    """Of whose 255,168 games, played alike, the first player wins 0.5849 and the second 0.2881 (737/1260 and 121/420)."""
    board = game("phantom_ttt")
    opponents = mixture(board, 0, [uniformly])[1], mixture(board, 1, [uniformly])[1]
    assert value_of(board, opponents) == pytest.approx(737 / 1260 - 121 / 420, abs=1e-12)


def test_play_has_the_views_and_sequences_that_are_listed() -> None:
    """Of all that random play shows, with two free cells or more."""
    board, rng = game("phantom_ttt"), np.random.default_rng(1)
    views = [{*views_of(board, player).number.tolist()} for player in range(2)]
    tree = sequences_of(board, 0)
    assert len(tree.own) <= count_sequences(9, 0)[0]
    assert len(tree.put) <= count_sequences(9, 0)[1]
    for _ in range(50):
        state, at = pyspiel.load_game("phantom_ttt").new_initial_state(), 0
        while not state.is_terminal():
            player, cell = state.current_player(), int(rng.choice(state.legal_actions()))
            histories = Histories("phantom_ttt", 1 - player, uniformly, sequences=False)
            view = histories.view(state)
            assert view in views[player]
            if player == 0 and at >= 0:
                assert view == sum(3**c * ((tree.own[at] >> c & 1) + 2 * (tree.hits[at] >> c & 1)) for c in range(9))
                before = (tree.own[at] | tree.hits[at]) & ((1 << cell) - 1)
                edge = tree.first[at] + cell - int(before).bit_count()
                state.apply_action(cell)
                at = int((tree.hit if state.current_player() == 0 else tree.put)[edge])
            else:
                state.apply_action(cell)


@pytest.mark.parametrize(
    ("name", "sequences", "words"),
    [
        ("phantom_ttt(obstype=reveal-numturns)", False, "how often the other has tried"),
        ("phantom_ttt(gameversion=abrupt)", True, "order of their tries"),
        ("dark_hex(board_size=4)", False, "16 cells has up to"),
    ],
)
def test_what_is_too_much_is_refused(name: str, sequences: bool, words: str) -> None:
    with pytest.raises(ScenarioError, match=f"{words}.*exploit EPISODES"):
        size_of(game(name, sequences=sequences), (1, 1), 1)


@pytest.mark.parametrize("sequences", [False, True])
def test_memory_is_asked_for_beforehand(monkeypatch: pytest.MonkeyPatch, sequences: bool) -> None:
    board = game("phantom_ttt", sequences=sequences)
    size = size_of(board, (3, 5), 2)
    monkeypatch.setattr(sweeps, "free_memory", lambda: size.bytes - 1)
    with pytest.raises(ScenarioError, match=r"against 3 and 5 policies need \d+ MB, and \d+ MB are free"):
        size_of(board, (3, 5), 2)


@pytest.mark.parametrize(
    "name", ["phantom_ttt", "phantom_ttt(gameversion=abrupt,obstype=reveal-numturns)", "dark_hex(board_size=3)"]
)
def test_observations_are_openspiels(name: str) -> None:
    board, loaded, rng = game(name), pyspiel.load_game(name), np.random.default_rng(2)
    for _ in range(20):
        state, visible, tries = loaded.new_initial_state(), np.zeros((2, board.cells), np.int8), [[], []]
        while not state.is_terminal():
            player = state.current_player()
            shown, count = visible[player][None], len(tries[0]) + len(tries[1])
            assert board.observations(shown, np.array([count]))[0].tolist() == state.observation_tensor(player)
            if not board.counts:
                rows = board.information_states(shown, np.array([tries[player]], np.int64))
                assert rows[0].tolist() == state.information_state_tensor(player)
            cell = int(rng.choice(state.legal_actions()))
            visible[player][cell] = 2 - player if visible[1 - player][cell] == 2 - player else 1 + player
            tries[player].append(cell)
            state.apply_action(cell)
