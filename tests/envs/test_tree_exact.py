"""Exact answers of compiled trees against pyspiel's own, and against numbers worked by hand."""

import itertools

import numpy as np
import pyspiel
import pytest

from ludus.core.errors import PolicyError
from ludus.envs.tree.game_tree import GameTree, PlanStack, compile_tree

GOOFSPIEL = "goofspiel(imp_info=True,num_cards=4,points_order={})"
FAST = [
    "kuhn_poker",
    "kuhn_poker(players=3)",
    "leduc_poker",
    GOOFSPIEL.format("descending"),
    "matrix_rps",
    "matrix_bos",
    "turn_based_simultaneous_game(game=matrix_pd())",
]
SLOW = ["liars_dice", "nim(pile_sizes=1;2;3)", GOOFSPIEL.format("random")]


def random_table(tree: GameTree, player: int, rng: np.random.Generator) -> np.ndarray:
    table = tree.uniform(player) * rng.exponential(size=tree.uniform(player).shape)
    return table / table.sum(axis=1, keepdims=True)


def pure_table(tree: GameTree, player: int, rng: np.random.Generator) -> np.ndarray:
    noise = np.where(tree.uniform(player) > 0, rng.random(tree.uniform(player).shape), -1.0)
    return np.eye(tree.num_actions)[noise.argmax(axis=1)]


def tables(tree: GameTree, kind: str, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    make = {"uniform": lambda p: tree.uniform(p)}.get(
        kind, lambda p: (random_table if kind == "random" else pure_table)(tree, p, rng)
    )
    return [make(p) for p in range(tree.num_players)]


def plans(tree: GameTree, kind: str, seed: int = 0) -> list[np.ndarray]:
    return [tree.realization(p, table) for p, table in enumerate(tables(tree, kind, seed))]


def reference(name: str, tree: GameTree, rows: list[np.ndarray]) -> tuple[float, np.ndarray]:
    """(NashConv, expected returns) by pyspiel; simultaneous games by OpenSpiel's own turn-based conversion."""
    game = pyspiel.load_game(name)
    simultaneous = game.get_type().dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS
    if simultaneous:
        game = pyspiel.convert_to_turn_based(game)
    policy = {}
    for p in range(tree.num_players):
        ids = tree.enumeration.ids(p)
        for key, mask, row in zip(tree.enumeration.key[ids], tree.enumeration.mask[ids], rows[p], strict=True):
            name_of_state = f"Current player: {p}\n{key}" if simultaneous else key
            assert name_of_state not in policy
            policy[name_of_state] = [(int(a), float(row[a])) for a in np.flatnonzero(mask)]
    tabular = pyspiel.TabularPolicy(policy)
    returns = pyspiel.expected_returns(game.new_initial_state(), tabular, -1, True)
    return pyspiel.nash_conv(game, tabular), np.array(returns)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *itertools.product(FAST, ["uniform", "random", "pure"]),
        *(
            pytest.param(name, kind, marks=pytest.mark.slow)
            for name, kind in zip(SLOW, ["pure", "random", "uniform"], strict=True)
        ),
    ],
)
def test_values_and_nash_conv_equal_pyspiels(name: str, kind: str) -> None:
    tree = compile_tree(name)
    rows = tables(tree, kind, seed=7)
    profile = [tree.realization(p, row) for p, row in enumerate(rows)]
    nash_conv, returns = reference(name, tree, rows)
    found = tree.exploitability(profile)
    assert found.nash_conv == pytest.approx(nash_conv, abs=1e-9)
    np.testing.assert_allclose(tree.values(profile), returns, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.value, returns, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", FAST)
def test_root_mixtures_equal_pyspiel_on_the_merged_behaviour(name: str) -> None:
    tree = compile_tree(name)
    weights = np.array([0.5, 0.2, 0.3])
    members = [plans(tree, kind, seed) for kind, seed in (("random", 1), ("pure", 2), ("pure", 3))]
    mixed = [sum(w * m[p] for w, m in zip(weights, members, strict=True)) for p in range(tree.num_players)]
    nash_conv, returns = reference(name, tree, [tree.behavior(p, plan) for p, plan in enumerate(mixed)])
    assert tree.exploitability(mixed).nash_conv == pytest.approx(nash_conv, abs=1e-9)
    np.testing.assert_allclose(tree.values(mixed), returns, rtol=0, atol=1e-9)


def test_root_mixture_equals_open_spiels_policy_aggregator_on_kuhn() -> None:
    policy_module = pytest.importorskip("open_spiel.python.policy")
    aggregator = pytest.importorskip("open_spiel.python.algorithms.policy_aggregator")
    game = pyspiel.load_game("kuhn_poker")
    tree = compile_tree("kuhn_poker")
    rows = [[tables(tree, kind, seed)[p] for kind, seed in (("random", 1), ("pure", 5))] for p in range(2)]
    weights = [[0.25, 0.75], [0.6, 0.4]]

    def tabular(k: int, p: int) -> object:
        policy = policy_module.TabularPolicy(game)
        for key, row in zip(tree.enumeration.key[tree.enumeration.ids(p)], rows[p][k], strict=True):
            policy.policy_for_key(key)[:] = row
        return policy

    merged = aggregator.PolicyAggregator(game).aggregate(
        range(2), [[tabular(k, p) for k in range(2)] for p in range(2)], weights
    )
    for p in range(2):
        plan = sum(w * tree.realization(p, row) for w, row in zip(weights[p], rows[p], strict=True))
        ours = tree.behavior(p, plan)
        for key, row in zip(tree.enumeration.key[tree.enumeration.ids(p)], ours, strict=True):
            theirs = merged.policy[p][key]
            if sum(theirs.values()) > 0:
                np.testing.assert_allclose(row, [theirs.get(a, 0.0) for a in range(2)], rtol=0, atol=1e-12)


def test_kuhn_best_response_by_hand() -> None:
    """Against a player 1 who always passes: betting with every card wins the ante of 1 each time. The state that a bet would lead to
    is off that path; there (having passed, facing a bet that never comes) all is equal and the lowest action, pass, is taken."""
    tree = compile_tree("kuhn_poker")
    passive = np.tile([1.0, 0.0], (len(tree.arrays.sequences[1].parent), 1))
    value, table = tree.best_response(0, [None, tree.realization(1, passive)])
    assert value == pytest.approx(1.0, abs=1e-12)
    by_key = dict(zip(tree.enumeration.key[tree.enumeration.ids(0)], table.tolist(), strict=True))
    assert [by_key[k] for k in ("0", "1")] == [[0.0, 1.0], [0.0, 1.0]]
    assert by_key["2"] == [1.0, 0.0]  # the king wins 1 either way: a tie goes to the lowest action
    assert all(by_key[k] == [1.0, 0.0] for k in ("0pb", "1pb", "2pb"))


def test_best_response_off_its_own_path_answers_the_others_reach() -> None:
    """Against a player 1 who always bets: passing first with the king is as good as betting; facing the bet, king calls, jack folds."""
    tree = compile_tree("kuhn_poker")
    betting = np.tile([0.0, 1.0], (len(tree.arrays.sequences[1].parent), 1))
    _, table = tree.best_response(0, [None, tree.realization(1, betting)])
    by_key = dict(zip(tree.enumeration.key[tree.enumeration.ids(0)], table.tolist(), strict=True))
    assert by_key["0pb"] == [1.0, 0.0]
    assert by_key["2pb"] == [0.0, 1.0]


def test_best_response_to_a_correlated_pair_beats_neither_alone() -> None:
    """Three-player Kuhn: the value against a joint distribution lies below the mean of the values against its parts, above each."""
    tree = compile_tree("kuhn_poker(players=3)")
    first, second = plans(tree, "pure", 1), plans(tree, "pure", 2)
    for player in range(3):
        value, table = tree.best_response_joint(player, [first, second], [0.3, 0.7])
        achieved = 0.0
        for profile, prob in ((first, 0.3), (second, 0.7)):
            played = [tree.realization(p, table) if p == player else plan for p, plan in enumerate(profile)]
            achieved += prob * tree.values(played)[player]
        assert value == pytest.approx(achieved, abs=1e-12)
        parts = [tree.best_response(player, profile)[0] for profile in (first, second)]
        assert value <= 0.3 * parts[0] + 0.7 * parts[1] + 1e-12


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker", "kuhn_poker(players=3)", "matrix_bos"])
def test_best_responses_earn_their_value_and_are_pure(name: str) -> None:
    tree = compile_tree(name)
    profile = plans(tree, "random", 3)
    for player in range(tree.num_players):
        value, table = tree.best_response(player, profile)
        np.testing.assert_array_equal(np.sort(table, axis=1)[:, -1], 1.0)
        assert table.sum() == len(table)
        assert (table <= tree.enumeration.mask[tree.enumeration.ids(player)]).all()
        played = [tree.realization(p, table) if p == player else plan for p, plan in enumerate(profile)]
        assert tree.values(played)[player] == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker", "matrix_bos", "kuhn_poker(players=3)"])
def test_payoffs_of_every_profile_equal_their_values(name: str) -> None:
    tree = compile_tree(name)
    sizes = [2, 3, 4][: tree.num_players]
    stacks = [np.stack([plans(tree, "random", 10 * p + k)[p] for k in range(n)]) for p, n in enumerate(sizes)]
    table = tree.payoffs(stacks)
    assert table.shape == (tree.num_players, *sizes)
    for profile in itertools.product(*map(range, sizes)):
        expected = tree.values([stacks[p][k] for p, k in enumerate(profile)])
        np.testing.assert_allclose(table[(slice(None), *profile)], expected, rtol=0, atol=1e-12)
    for player in range(tree.num_players):
        row = tree.payoffs_slice(player, stacks[player][1], stacks)
        np.testing.assert_allclose(row, np.take(table, [1], axis=1 + player), rtol=0, atol=1e-12)


def test_one_player_tree_has_payoffs_too() -> None:
    """On a 2 × 3 cliff the goal is four steps away (up, right, right, down), each at -1."""
    tree = compile_tree("cliff_walking(height=2,width=3,horizon=6)")
    uniform, best = tree.uniform(0), tree.best_response(0, [None])[1]
    stack = np.stack([tree.realization(0, uniform), tree.realization(0, best)])
    table = tree.payoffs([stack])
    np.testing.assert_allclose(table[0], [tree.values([stack[0]])[0], -4.0], rtol=0, atol=1e-12)
    assert table[0, 0] < -4.0
    assert tree.exploitability([stack[1]]).nash_conv == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker", "kuhn_poker(players=3)"])
def test_behaviour_undoes_realisation(name: str) -> None:
    tree = compile_tree(name)
    for player, table in enumerate(tables(tree, "random", 4)):
        np.testing.assert_allclose(tree.behavior(player, tree.realization(player, table)), table, rtol=0, atol=1e-12)


def test_behaviour_is_uniform_where_the_plan_does_not_come() -> None:
    tree = compile_tree("kuhn_poker")
    always_bet = tree.realization(0, np.tile([0.0, 1.0], (6, 1)))
    by_key = dict(zip(tree.enumeration.key[:6], tree.behavior(0, always_bet).tolist(), strict=True))
    assert by_key["1"] == [0.0, 1.0]
    assert by_key["1pb"] == [0.5, 0.5]


def test_plan_stack_grows_and_mixes() -> None:
    stack = PlanStack(3)
    for k in range(40):
        stack.append(np.full(3, float(k)))
    assert stack.array.shape == (40, 3)
    np.testing.assert_array_equal(stack.array[:, 0], np.arange(40.0))
    weights = np.zeros(40)
    weights[[3, 5]] = 0.5
    np.testing.assert_array_equal(stack.mixture(weights), [4.0, 4.0, 4.0])
    np.testing.assert_array_equal(stack.mixture(weights[:5] * 2), [3.0, 3.0, 3.0])


@pytest.mark.parametrize(
    ("row", "where"),
    [([0.5, 0.6], "sum to 1"), ([1.5, -0.5], "sum to 1"), ([np.nan, 1.0], "sum to 1")],
)
def test_a_row_that_is_no_distribution_is_refused(row: list[float], where: str) -> None:
    tree = compile_tree("kuhn_poker")
    table = tree.uniform(0)
    table[2] = row
    with pytest.raises(PolicyError, match=where):
        tree.realization(0, table)


def test_wrong_shapes_are_refused() -> None:
    tree = compile_tree("kuhn_poker")
    with pytest.raises(PolicyError, match=r"expected \(6, 2\)"):
        tree.realization(0, np.ones((5, 2)))
    with pytest.raises(PolicyError, match=r"expected \(13,\)"):
        tree.values([np.ones(13), np.ones(12)])
    with pytest.raises(PolicyError, match="1 plans were given for the 2 players"):
        tree.values([np.ones(13)])
    with pytest.raises(PolicyError, match=r"expected \(policies, 13\)"):
        tree.payoffs([np.ones((2, 13)), np.ones((2, 14))])
