"""OpenSpiel: its search behind `bot:mcts` (`ludus.contrib.openspiel_bots`), its games (`ludus.envs.openspiel`), and its measures, which the
tests compare those of Ludus with."""

from __future__ import annotations

import itertools

import numpy as np
import pyspiel
import pytest
from open_spiel.python.algorithms import exploitability
from open_spiel.python.algorithms.elo import compute_ratings_from_matrices
from open_spiel.python.policy import TabularPolicy

IMPERFECT_RECALL = """EFG 2 R "imp" { "P1" "P2" } ""
p "" 2 1 "d" { "x" } 0
p "" 1 1 "first" { "L" "R" } 0
p "" 1 2 "second" { "l" "r" } 0
t "" 1 "Ll" { 3 -3 }
t "" 2 "Lr" { 0 0 }
p "" 1 2 "second" { "l" "r" } 0
t "" 3 "Rl" { -10 10 }
t "" 4 "Rr" { 2 -2 }
"""
"""The player forgets the first move before the second."""


def stop_or_go(stop, go, depth=8):
    """A game of one decision that matters: `stop` ends it with a payoff, `go` leads to moves that all end with another."""
    states, ends = itertools.count(2), itertools.count(1)

    def moves(left):
        if not left:
            return f't "" {next(ends)} "" {{ {go} {-go} }}\n'
        return f'p "" 1 {next(states)} "" {{ "a" "b" }} 0\n' + moves(left - 1) + moves(left - 1)

    end = f't "" 9999 "" {{ {stop} {-stop} }}\n'
    return pyspiel.load_efg_game('EFG 2 R "" { "P1" "P2" } ""\np "" 1 1 "" { "stop" "go" } 0\n' + end + moves(depth))


@pytest.mark.parametrize("solve", [True, False])
@pytest.mark.parametrize(("stop", "go", "choice"), [(-1, -5, 1), (1, 5, 0)])
def test_mcts_takes_a_proven_payoff_for_zero_beside_unproven_ones(stop, go, choice, solve):
    """`openspiel_bots.MCTS` corrects this choice: -5 is taken rather than -1, and +1 rather than +5. Nodes are compared by their outcome
    first, which is 0 where nothing is proven, and a move that ends the game is proven without `solve`, too."""
    game = stop_or_go(stop, go)
    for seed in range(10):
        rollouts = pyspiel.RandomRolloutEvaluator(1, seed)
        bot = pyspiel.MCTSBot(game, rollouts, 2.0, 20, 1000, solve, seed, False)
        assert bot.step(game.new_initial_state()) == choice


def pure(game, moves):
    """The first player's pure strategy of these moves; the second one has no choice."""
    policy = TabularPolicy(game)
    for row, state in zip(policy.action_probability_array, policy.states, strict=True):
        legal = state.legal_actions()
        names = [state.action_to_string(state.current_player(), action) for action in legal]
        chosen = [action for action, name in zip(legal, names, strict=True) if name in moves] or legal
        row[:] = np.isin(np.arange(len(row)), chosen) / len(chosen)
    return policy


@pytest.mark.parametrize(("moves", "value"), [("Ll", -1.0), ("Lr", 2.0), ("Rr", 0.0)])
def test_nash_conv_of_imperfect_recall_can_be_negative(moves, value):
    """Ludus refuses to compute NashConv of such games (`ludus.envs.tree.walk`): the best pure strategy has -1, and a worse one has 0."""
    game = pyspiel.load_efg_game(IMPERFECT_RECALL)
    assert exploitability.nash_conv(game, pure(game, moves)) == pytest.approx(value)


def test_information_states_of_one_player_are_strings_that_tell_its_moves():
    """`ludus.envs.tree.walk` enumerates a game by these strings: two states with one string are one information state."""
    game = pyspiel.load_game("kuhn_poker")
    seen = {state.information_state_string() for state in TabularPolicy(game).states}
    assert len(seen) == 12


def test_returned_tensors_are_lists_and_masks_follow_action_numbers():
    """`ludus.envs.openspiel.states` copies both into its buffers."""
    state = pyspiel.load_game("tic_tac_toe").new_initial_state()
    assert isinstance(state.observation_tensor(0), list)
    state.apply_action(4)
    assert state.legal_actions_mask() == [int(action in state.legal_actions()) for action in range(9)]


def test_replicator_dynamics_move_with_the_scale_of_payoffs():
    """Why `projected_replicator_dynamics` of Ludus says so and can normalize payoffs: as many steps of payoffs divided by 1,000 go
    nowhere. The start here is not the equilibrium."""
    from open_spiel.python.algorithms.projected_replicator_dynamics import projected_replicator_dynamics

    payoffs = np.array([[0.0, 1.0, -2.0], [-1.0, 0.0, 1.0], [2.0, -1.0, 0.0]])
    moved = []
    for scale in (1.0, 1e-3):
        games = [scale * payoffs, -scale * payoffs]
        row, _ = projected_replicator_dynamics(games, prd_iterations=300, prd_dt=1e-2, prd_gamma=1e-8)
        moved.append(np.abs(row - 1 / 3).max())
    assert moved[0] > 100 * moved[1]


def test_elo_adds_its_smoothing_as_wins_to_each_side_and_puts_the_least_rating_at_zero():
    """The rating `elo` of Ludus has a prior of draws with an average player instead, has mean 0, and reports groups that no match
    connects: here they are on one scale without a word."""
    wins = np.array([[0, 3], [0, 0]])
    for smoothing in (0.01, 0.5):
        ratings = compute_ratings_from_matrices(wins, smoothing_factor=smoothing)
        np.testing.assert_allclose(ratings, [400 * np.log10((3 + smoothing) / smoothing), 0.0], atol=1e-3)
    apart = np.kron(np.eye(2, dtype=int), [[0, 3], [1, 0]])
    ratings = compute_ratings_from_matrices(apart)
    np.testing.assert_allclose(ratings[:2], ratings[2:], atol=1e-6)
    with pytest.raises(TypeError):
        compute_ratings_from_matrices(wins / 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_alpha_rank_treats_ties_otherwise_in_its_two_limits():
    """`alpha_rank` of Ludus has both limits, and its tests compare with these: of two policies one beats the other and a third ties with
    both. Without limit a tie is passed with probability 1/2, with a finite α with 1/m, so that the one that never wins keeps 1/9."""
    from open_spiel.python.egt import alpharank  # with matplotlib

    payoffs = [np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])]
    infinite = alpharank.compute(payoffs, use_inf_alpha=True, inf_alpha_eps=1e-6)[2]
    finite = alpharank.compute(payoffs, m=50, alpha=10.0)[2]
    np.testing.assert_allclose(infinite, [5 / 9, 1 / 9, 1 / 3], atol=1e-4)
    np.testing.assert_allclose(finite, [0.6601, 0.0065, 0.3333], atol=1e-4)
