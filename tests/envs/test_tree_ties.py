"""Equal best responses: the lowest action, whichever program looks for it and however its inputs are rounded. Answers are by hand."""

from collections.abc import Iterator

import numpy as np
import pyspiel
import pytest
import torch

from ludus.core.ties import TIE, best_index
from ludus.envs.tree.game_tree import GameTree, compile_tree
from ludus.envs.tree.tensors import PlacedTree, TreeTensors
from ludus.envs.tree.tree_arrays import _merge

NOISES = 12  # of one unit in the last place, in random directions


def rounded(plan: np.ndarray) -> Iterator[np.ndarray]:
    """The plan, and the same with each entry a unit in the last place higher or lower, or as it is."""
    yield plan
    rng = np.random.default_rng(0)
    for _ in range(NOISES):
        yield np.nextafter(plan, plan + rng.integers(-1, 2, size=plan.shape))


def responses(tree: GameTree, player: int, plans: list[np.ndarray]) -> list[np.ndarray]:
    """By the compiled sweeps, by torch, and by a tree that is placed on a device."""
    tensors = TreeTensors(tree, "cpu")
    batch = [torch.from_numpy(plan[None].copy()) for plan in plans]
    return [
        tree.best_response(player, plans)[1],
        tensors.best_response(player, batch)[1][0].numpy(),
        tensors.best_response_joint(player, batch, torch.ones(1, dtype=torch.float64))[1].numpy(),
        PlacedTree(tree, "cpu").best_response(player, plans)[1],
    ]


def matrix(first: list[list[float]]) -> GameTree:
    """A zero-sum game."""
    return compile_tree(pyspiel.create_matrix_game(first, (-np.array(first)).tolist()))


def assert_chosen(tree: GameTree, player: int, table: np.ndarray, best: np.ndarray) -> None:
    """The other plays a table; the response is `best`, int[I_p], in every program and for each rounding of the other's plan."""
    plan = tree.realization(1 - player, table)
    for other in rounded(plan):
        plans = [other, other]
        plans[player] = np.zeros(tree.num_sequences(player))
        for response in responses(tree, player, plans):
            np.testing.assert_array_equal(response.argmax(axis=1), best)


@pytest.mark.parametrize("player", [0, 1])
def test_matching_pennies_at_equilibrium(player: int) -> None:
    assert_chosen(matrix([[1, -1], [-1, 1]]), player, np.array([[0.5, 0.5]]), np.array([0]))


def test_an_action_and_its_copy() -> None:
    """The last two rows are the best ones, and alike where the first two columns are equally likely; the first row is worse by a hundredth.
    0.1, 0.2 and 0.7 are no binary fractions, so that the order of the terms shows in the last bit."""
    tree = matrix([[0.09, 0.19, 0.7], [0.2, 0.1, 0.7], [0.1, 0.2, 0.7]])
    assert_chosen(tree, 0, np.array([[1 / 3, 1 / 3, 1 / 3]]), np.array([1]))


def test_kuhn_at_an_equilibrium() -> None:
    """Player 1 bluffs a third of its jacks and calls with a third of its queens. Then jack and king may bet or pass at first, and the
    queen may call a bet or fold; the king must call it, the jack must not, and the queen must not bet."""
    tree = compile_tree("kuhn_poker")
    rows = {"0p": [2, 1], "0b": [3, 0], "1p": [3, 0], "1b": [2, 1], "2p": [0, 3], "2b": [0, 3]}
    keys = tree.enumeration.key
    table = np.array([rows[key] for key in keys[tree.enumeration.ids(1)]]) / 3
    best = {"0": 0, "1": 0, "2": 0, "0pb": 0, "1pb": 0, "2pb": 1}
    assert_chosen(tree, 0, table, np.array([best[key] for key in keys[tree.enumeration.ids(0)]]))


@pytest.mark.parametrize(
    "name", ["kuhn_poker(players=3)", "goofspiel(imp_info=True,num_cards=4,points_order=descending)"]
)
def test_programs_choose_alike_against_uniform_play(name: str) -> None:
    """Where nobody prefers anything many actions are equal."""
    tree = compile_tree(name)
    plans = [tree.realization(p, tree.uniform(p)) for p in range(tree.num_players)]
    for player in range(tree.num_players):
        first = tree.best_response(player, plans)[1].argmax(axis=1)
        for noisy in zip(*map(rounded, plans), strict=True):
            for response in responses(tree, player, list(noisy)):
                np.testing.assert_array_equal(response.argmax(axis=1), first)


def test_actions_at_tiny_reach_are_still_distinguished() -> None:
    """The tolerance is in proportion to the reach: player 1 bets once in 1e12, and who is bet against calls with the king alone."""
    tree = compile_tree("kuhn_poker")
    rare = np.tile([1 - 1e-12, 1e-12], (6, 1))
    plans = [np.zeros(tree.num_sequences(0)), tree.realization(1, rare)]
    for response in responses(tree, 0, plans):
        rows = dict(zip(tree.enumeration.key[:6], response.argmax(axis=1).tolist(), strict=True))
        assert (rows["0pb"], rows["2pb"]) == (0, 1)


def test_the_value_is_the_best_one_and_the_table_earns_it_but_for_the_tolerance() -> None:
    """Row 1 earns a tenth of the tolerance more than row 0, row 2 of another game ten times the tolerance."""
    near, far = (matrix([[1.0], [1.0 + difference]]) for difference in (0.1 * TIE, 10 * TIE))
    column = np.ones(2)  # the only plan of a player with one action
    assert near.best_response(0, [None, column])[0] == pytest.approx(1.0 + 0.1 * TIE, rel=1e-15)
    for tree, best in ((near, 0), (far, 1)):
        for response in responses(tree, 0, [np.zeros(3), column]):
            assert response.argmax() == best


def test_outcomes_that_cancel_leave_nothing() -> None:
    """Chances of 0.1, 0.2 and 0.3 of 1, 1 and -1: nothing on average, and 5.6e-17 in floating point."""
    sequence = np.array([[1, 1], [1, 1], [1, 1], [2, 1]])
    weight = np.array([[0.1], [0.2], [-0.3], [1e-30]])
    assert 0.1 + 0.2 - 0.3 != 0.0
    merged = _merge(sequence, weight)
    assert merged.sequence.T.tolist() == [[2, 1]]
    assert merged.weight.tolist() == [[1e-30]]


def test_the_lowest_of_equal_payoffs() -> None:
    assert best_index(np.array([0.1, 0.3, 0.1 + 0.2]), 1.0) == 1
    assert best_index(np.array([0.1, 0.1 + 0.2, 0.3]), 1.0) == 1
    assert best_index(np.array([0.0, 2e-9]), 1.0) == 1
    assert best_index(np.array([0.0, 2e-9]), 10.0) == 0
