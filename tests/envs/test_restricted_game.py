"""Restricted games of compiled trees: by hand, and against a linear program over the sequence form and OpenSpiel's CFR+."""

from __future__ import annotations

import numpy as np
import pyspiel
import pytest
from scipy.optimize import linprog

from ludus.core.errors import ScenarioError
from ludus.envs.tree.game_tree import GameTree, compile_tree
from ludus.envs.tree.restricted_game import Choices, distinct_choices, solve_restricted

RPS = [[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]  # rock, paper, scissors


def rock_paper_scissors() -> GameTree:
    return compile_tree(pyspiel.create_matrix_game(RPS, (-np.array(RPS)).tolist()))


def picked(*rows: list[float]) -> Choices:
    """Of a game with one information state, by members who play these."""
    return distinct_choices(np.array(rows, np.float64)[:, None])


def members(tree: GameTree, player: int, count: int, seed: int) -> np.ndarray:
    """float64[count, I_p, A]: deterministic tables."""
    rng = np.random.default_rng([seed, player])
    mask = tree.enumeration.mask[tree.enumeration.ids(player)]
    best = (rng.random((count, *mask.shape)) * mask).argmax(axis=2)
    return np.eye(mask.shape[1])[best]


def program(tree: GameTree, tables: list[np.ndarray]) -> float:
    """Player 0's value of the game in which both keep to actions that some table plays, by the linear program of von Stengel (1996):
    max q_0 over x >= 0, q with E x = e and F' q <= A' x for each sequence of the other's."""
    own, other, weight = tree.sides[0]
    forms = tree.arrays.sequences
    payoff = np.zeros((forms[0].count, forms[1].count))
    np.add.at(payoff, (own, other), weight)
    flow, allowed = [], []
    for form, table in zip(forms, tables, strict=True):
        matrix, open_ = np.zeros((len(form.parent) + 1, form.count)), np.ones(form.count, bool)
        matrix[0, 0] = 1.0
        for i, parent in enumerate(form.parent):
            sequences = slice(form.start[i], form.start[i + 1])
            matrix[i + 1, parent] = -1.0
            matrix[i + 1, sequences] = 1.0
            open_[sequences] = table[:, i, form.action[sequences]].any(axis=0)
        flow.append(matrix)
        allowed.append(open_)
    x, q = forms[0].count, len(flow[1])
    answer = linprog(
        np.concatenate([np.zeros(x), [-1.0], np.zeros(q - 1)]),
        A_ub=np.hstack([-payoff.T, flow[1].T])[allowed[1]],
        b_ub=np.zeros(int(allowed[1].sum())),
        A_eq=np.hstack([flow[0], np.zeros((len(flow[0]), q))]),
        b_eq=np.eye(1, len(flow[0]))[0],
        bounds=[(0, None if ok else 0) for ok in allowed[0]] + [(None, None)] * q,
    )
    return -float(answer.fun)


def test_choices_are_the_distinct_rows_of_each_state() -> None:
    first = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    second = [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]]
    third = [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    choices = distinct_choices(np.array([first, second, third]))
    assert choices.first.tolist() == [0, 2, 4, 6]
    assert choices.rows.tolist() == [[1, 0], [0, 1], [0, 1], [1, 0], [0.5, 0.5], [1, 0]]


def test_rock_and_paper_against_rock_and_scissors() -> None:
    """[[0, 1], [1, -1]]: each plays its first with probability 2/3, which is worth 1/3."""
    tree = rock_paper_scissors()
    mine, theirs = picked([1, 0, 0], [0, 1, 0]), picked([1, 0, 0], [0, 0, 1])
    found = solve_restricted(tree, [mine, theirs], gap=1e-4, iterations=100_000)
    assert found.gap <= 1e-4
    np.testing.assert_allclose(found.tables[0], [[2 / 3, 1 / 3, 0.0]], atol=1e-4)
    np.testing.assert_allclose(found.tables[1], [[2 / 3, 0.0, 1 / 3]], atol=1e-4)
    np.testing.assert_allclose(found.value, [1 / 3, -1 / 3], atol=1e-4)


def test_two_iterations_by_hand() -> None:
    """The same game. Both begin evenly. First to play is player 0: (1/2, 0) is earned, 1/4 regretted of rock, which it plays now; so player
    1 plays rock. Then player 0 earns (0, 1) and regrets (1/4, 1); player 1 earns (-4/5, 3/5) against (1/5, 4/5) and regrets (1/2, 7/5). The
    second iteration counts twice."""
    mine, theirs = picked([1, 0, 0], [0, 1, 0]), picked([1, 0, 0], [0, 0, 1])
    found = solve_restricted(rock_paper_scissors(), [mine, theirs], gap=0.0, iterations=2)
    np.testing.assert_allclose(found.tables[0], [[(1 + 2 / 5) / 3, (2 * 4 / 5) / 3, 0.0]])
    np.testing.assert_allclose(found.tables[1], [[(1 + 2 * 5 / 19) / 3, 0.0, (2 * 14 / 19) / 3]])


def test_a_mixture_is_one_choice() -> None:
    """Who may play rock or all three alike plays all three alike; what the other does is worth nothing then, and rock loses to paper."""
    mine, theirs = picked([1, 0, 0], [1 / 3, 1 / 3, 1 / 3]), picked([1, 0, 0], [0, 1, 0])
    found = solve_restricted(rock_paper_scissors(), [mine, theirs], gap=1e-4, iterations=100_000)
    assert found.value[0] == pytest.approx(0.0, abs=1e-4)
    np.testing.assert_allclose(found.tables[0], [[1 / 3, 1 / 3, 1 / 3]], atol=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_value_is_the_linear_programs(seed: int) -> None:
    tree = compile_tree("kuhn_poker")
    tables = [members(tree, p, 1 + seed % 3, seed) for p in range(2)]
    found = solve_restricted(tree, [distinct_choices(some) for some in tables], gap=1e-4, iterations=100_000)
    assert found.value[0] == pytest.approx(program(tree, tables), abs=1e-4)
    for table, some in zip(found.tables, tables, strict=True):  # off the path too
        assert not table[~some.any(axis=0)].any()
        np.testing.assert_allclose(table.sum(axis=1), 1.0)


def test_where_everything_is_allowed_it_is_the_game_itself() -> None:
    """Kuhn poker is worth -1/18 to player 0; OpenSpiel's CFR+ comes as near."""
    tree = compile_tree("kuhn_poker")
    full = [distinct_choices(np.stack([np.eye(2)[np.full(6, a)] for a in range(2)])) for _ in range(2)]
    found = solve_restricted(tree, full, gap=1e-4, iterations=100_000)
    plans = [tree.realization(p, table) for p, table in enumerate(found.tables)]
    assert tree.exploitability(plans).nash_conv == pytest.approx(found.gap, abs=1e-12)
    assert found.value[0] == pytest.approx(-1 / 18, abs=1e-4)
    game = pyspiel.load_game("kuhn_poker")
    solver = pyspiel.CFRPlusSolver(game)
    for _ in range(found.iterations):
        solver.evaluate_and_update_policy()
    theirs = pyspiel.nash_conv(game, solver.average_policy())
    assert found.gap <= 2 * theirs + 1e-4


def test_it_ends_after_so_many_iterations() -> None:
    tree = compile_tree("kuhn_poker")
    full = [distinct_choices(np.stack([np.eye(2)[np.full(6, a)] for a in range(2)])) for _ in range(2)]
    found = solve_restricted(tree, full, gap=0.0, iterations=25)
    assert found.iterations == 25
    assert found.gap > 0.0


def test_three_players_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"for two players; .* has 3"):
        solve_restricted(compile_tree("kuhn_poker(players=3)"), [], gap=0.1, iterations=10)
