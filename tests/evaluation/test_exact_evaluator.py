"""Exact payoffs and exploitability of growing populations, against the tree's own answers and against pyspiel."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyspiel
import pytest

from ludus.backend import device as core_device
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.types import MetaSolution, Mixture, OpponentFactor, PolicyRef, PolicySpec
from ludus.envs.tree.game_tree import GameTree, compile_tree
from ludus.envs.tree.tensors import PlacedTree
from ludus.evaluation import exact as exact_values
from ludus.evaluation.exact import ExactEvaluator, tree_on
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import gru_spec, tabular_spec
from ludus.runs import assembly
from ludus.runs.scenario_files import parse_scenario

KUHN_3 = "kuhn_poker(players=3)"


def member(tree: GameTree, players: tuple[int, ...], seed: int) -> Policy:
    """A random table for the seats of `players`."""
    rng = np.random.default_rng(seed)
    tables = [
        tree.uniform(p) * rng.exponential(size=tree.uniform(p).shape) for p in range(min(players), max(players) + 1)
    ]
    probs = np.concatenate([table / table.sum(axis=1, keepdims=True) for table in tables])
    return build_policy(tabular_spec(tree.enumeration, players), {"probs": probs})


def filled(tree: GameTree, sizes: tuple[int, ...]) -> tuple[ExactEvaluator, list[list[PolicyRef]]]:
    """A population per player, with so many members, added in turn as generations do."""
    exact = ExactEvaluator(tree, tuple(range(len(sizes))))
    refs: list[list[PolicyRef]] = [[] for _ in sizes]
    for k in range(max(sizes)):
        for p, size in enumerate(sizes):
            if k < size:
                refs[p].append(PolicyRef(p, f"{p}-{k}"))
                exact.add(refs[p][-1], member(tree, (p,), 10 * p + k))
        exact.payoffs()
    return exact, refs


@pytest.mark.parametrize(("game", "sizes"), [("kuhn_poker", (3, 2)), (KUHN_3, (2, 3, 2)), ("matrix_bos", (1, 4))])
def test_a_table_that_grew_is_the_table_of_all_profiles(game: str, sizes: tuple[int, ...]) -> None:
    tree = compile_tree(game)
    exact, _ = filled(tree, sizes)
    table = exact.payoffs()
    assert table.shape == (len(sizes), *sizes)
    for profile in itertools.product(*map(range, sizes)):
        wanted = tree.values([exact.plans(p)[k] for p, k in enumerate(profile)])
        np.testing.assert_allclose(table[(slice(None), *profile)], wanted, rtol=0, atol=1e-12)


def test_a_table_of_many_players_has_room_for_little_more() -> None:
    """Of eight players with a policy each, 16 places for each would be 256 GB."""
    tree = compile_tree("goofspiel(num_cards=2,players=8,points_order=descending)")
    exact = ExactEvaluator(tree, tuple(range(8)))
    for p in range(8):
        exact.add(PolicyRef(p, "a"), build_policy(tabular_spec(tree.enumeration, (p,)), {"probs": tree.uniform(p)}))
    assert exact.payoffs().shape == (8, *[1] * 8)
    np.testing.assert_allclose(exact.payoffs().sum(), 0.0, atol=1e-9)


def test_exploitability_of_a_mixture_is_pyspiels() -> None:
    """Mixed at the root: the merged behaviour policy has the same NashConv and returns in OpenSpiel."""
    tree = compile_tree("kuhn_poker")
    exact, _ = filled(tree, (3, 3))
    solution = MetaSolution((np.array([0.2, 0.0, 0.8]), np.array([0.5, 0.5])), 0.0)  # the newest is not weighted yet
    found = exact.exploitability(solution)
    behaviour = [tree.behavior(p, plan) for p, plan in enumerate(exact.mixed(solution))]
    rows = dict(zip(tree.enumeration.key, np.concatenate(behaviour), strict=True))
    tabular = pyspiel.TabularPolicy({key: [(a, float(p)) for a, p in enumerate(row)] for key, row in rows.items()})
    game = pyspiel.load_game("kuhn_poker")
    assert found.nash_conv == pytest.approx(pyspiel.nash_conv(game, tabular), abs=1e-9)
    returns = pyspiel.expected_returns(game.new_initial_state(), tabular, -1, True)
    np.testing.assert_allclose(found.value, returns, rtol=0, atol=1e-9)


def test_a_product_as_a_joint_distribution_is_the_product() -> None:
    tree = compile_tree(KUHN_3)
    exact, _ = filled(tree, (2, 3, 2))
    marginals = (np.array([0.3, 0.7]), np.array([0.1, 0.4, 0.5]), np.array([0.6, 0.4]))
    joint = np.einsum("i,j,k->ijk", *marginals)
    one, other = (
        exact.exploitability(MetaSolution(marginals, 0.0)),
        exact.exploitability(MetaSolution(None, 0.0, joint=joint)),
    )
    np.testing.assert_allclose(one.value, other.value, atol=1e-12)
    np.testing.assert_allclose(one.gain, other.gain, atol=1e-12)


def test_a_device_finds_what_the_compiled_sweeps_find() -> None:
    """Of marginals, of a joint distribution, and of a table that grows as generations do."""
    tree = compile_tree(KUHN_3)
    (exact, _), (there, _) = (filled(where, (2, 3, 2)) for where in (tree, PlacedTree(tree, "cpu")))
    np.testing.assert_allclose(there.payoffs(), exact.payoffs(), rtol=0, atol=1e-12)
    joint = np.zeros((2, 3, 2))
    joint[0, 2, 1], joint[1, 0, 0] = 0.3, 0.7
    marginals = (np.array([0.3, 0.7]), np.array([0.1, 0.9]), np.array([1.0]))
    for solution in (MetaSolution(marginals, 0.0), MetaSolution(None, 0.0, joint=joint)):
        found, wanted = there.exploitability(solution), exact.exploitability(solution)
        np.testing.assert_allclose(found.gain, wanted.gain, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.value, wanted.value, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("device", "gpus", "worth", "place"),
    [
        ("cpu", 1, 1, None),
        ("auto", 0, 1, None),
        ("auto", 1, 100, None),
        ("auto", 1, 30, "cuda:0"),
        ("cuda:1", 2, 100, "cuda:1"),
    ],
)
def test_where_exact_values_are_computed(
    device: str, gpus: int, worth: int, place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kuhn poker has 30 terminals. The GPU is one in name only."""
    made: list[str] = []
    monkeypatch.setattr(exact_values, "_WORTH", worth)
    for module in (exact_values, core_device):
        monkeypatch.setattr(module, "gpu_count", lambda: gpus)
    monkeypatch.setattr("ludus.envs.tree.tensors.PlacedTree", lambda tree, where: made.append(where) or tree)
    tree = compile_tree("kuhn_poker")
    assert tree_on(tree, device) is tree
    assert made == ([] if place is None else [place])


def test_exact_evaluator_rejects_unknown_devices() -> None:
    tree = compile_tree("kuhn_poker")
    with pytest.raises(ConfigError, match="device is 'mps'"):
        tree_on(tree, "mps")
    with pytest.raises(ConfigError, match="device is cuda:99"):
        tree_on(tree, "cuda:99")


def test_a_driver_without_a_gpu_says_so_where_trainers_have_them() -> None:
    """On Ray: GPUs are on the trainers' machines, and this one computes what is exact."""
    scenario = parse_scenario(
        "{env: openspiel/kuhn_poker, algorithm: exact}",
        ["runtime.kind=ray", "runtime.trainers=1", "runtime.device=cuda"],
    )
    env, told = scenario.env.make(num_envs=1), list[str]()
    exact = assembly._exact(scenario, env, (0, 1), told.append)
    assert exact is not None
    assert exact.tree is env.tree  # type: ignore[attr-defined]
    assert len(told) == 1
    assert told[0].startswith("runtime.device=cuda: the driver's machine has no GPU")


def test_a_correlated_solution_is_deviated_from_unseen() -> None:
    """Battle of the sexes by a fair coin is worth (3 + 2) / 2 to each; deviating blindly earns 3/2 or 1, so nobody gains."""
    tree = compile_tree("matrix_bos")
    exact = ExactEvaluator(tree, (0, 1))
    for p in (0, 1):
        for action in (0, 1):
            spec = tabular_spec(tree.enumeration, (p,))
            exact.add(PolicyRef(p, f"{p}-{action}"), build_policy(spec, {"probs": np.eye(2)[[action]]}))
    found = exact.exploitability(MetaSolution(None, 0.0, joint=np.array([[0.5, 0.0], [0.0, 0.5]])))
    np.testing.assert_allclose(found.value, [2.5, 2.5])
    np.testing.assert_allclose(found.gain, [1.5 - 2.5, 1.5 - 2.5])
    assert found.nash_conv == 0.0
    assert replace(found, gain=np.array([-1.5, 0.5])).nash_conv == 0.5, "one player's loss is nobody's gain"


def test_values_of_products_and_correlated_draws() -> None:
    tree = compile_tree(KUHN_3)
    exact, refs = filled(tree, (2, 2, 2))
    product = Mixture.product({p: (refs[p], (0.25, 0.75)) for p in range(3)})
    table = exact.payoffs()
    probs = np.array([0.25, 0.75])
    for seat in range(3):
        for k, ref in enumerate(refs[seat]):
            wanted = np.einsum("ij,i,j->", np.take(table[seat], k, axis=seat), probs, probs)
            assert exact.values(product.with_seat_fixed(seat, ref))[seat] == pytest.approx(wanted, abs=1e-12)
    # players 1 and 2 draw together: (first, second) or (second, first)
    pair = OpponentFactor((1, 2), ((refs[1][0], refs[2][1]), (refs[1][1], refs[2][0])), (0.4, 0.6))
    wanted = 0.4 * table[0, 0, 0, 1] + 0.6 * table[0, 0, 1, 0]
    alone = OpponentFactor((0,), ((refs[0][0],),), (1.0,))
    assert exact.values(Mixture((alone, pair)))[0] == pytest.approx(wanted, abs=1e-12)


def test_players_who_share_a_population_have_a_plan_per_seat() -> None:
    tree = compile_tree("matrix_rps")
    exact = ExactEvaluator(tree, (0, 0))
    exact.add(PolicyRef(0, "0-0"), build_policy(PolicySpec("random", {"actions": 3}), {}))
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # rock in seat 0, paper in seat 1
    exact.add(PolicyRef(0, "0-1"), build_policy(tabular_spec(tree.enumeration, (0, 1)), {"probs": rows}))
    np.testing.assert_allclose(exact.payoffs()[0], [[0, 0], [0, -1]], atol=1e-12)


def test_members_are_alike_where_their_own_actions_lead() -> None:
    """Kuhn: a player who bets at first never sees the bet of the other, so what it would answer makes no difference."""
    tree = compile_tree("kuhn_poker")
    exact, refs = filled(tree, (3, 1))
    keys = list(tree.enumeration.key[tree.enumeration.ids(0)])

    def table(**actions: int) -> Policy:
        rows = np.array([np.eye(2)[actions.get(f"of_{key}", 1)] for key in keys])
        return build_policy(tabular_spec(tree.enumeration, (0,)), {"probs": rows})

    exact.add(PolicyRef(0, "bets"), table())
    assert exact.member_like(0, table(), mode="greedy") == PolicyRef(0, "bets")
    assert exact.member_like(0, table(of_0pb=0), mode="greedy") == PolicyRef(0, "bets")
    assert exact.member_like(0, table(of_0=0), mode="greedy") is None
    assert exact.member_like(0, member(tree, (0,), 1), mode="explore") == refs[0][1]
    assert exact.member_like(1, member(tree, (1,), 11), mode="explore") is None


def test_a_member_is_like_another_in_all_of_its_seats() -> None:
    tree = compile_tree("matrix_rps")
    exact = ExactEvaluator(tree, (0, 0))

    def pure(first: int, second: int) -> Policy:
        return build_policy(tabular_spec(tree.enumeration, (0, 1)), {"probs": np.eye(3)[[first, second]]})

    for first, second in ((0, 1), (1, 0), (0, 0)):
        exact.add(PolicyRef(0, f"{first}{second}"), pure(first, second))
    assert exact.member_like(0, pure(0, 0), mode="greedy") == PolicyRef(0, "00")
    assert exact.member_like(0, pure(1, 1), mode="greedy") is None


def test_a_restored_part_is_kept_to_the_bit() -> None:
    tree = compile_tree("leduc_poker")
    exact, refs = filled(tree, (3, 3))
    whole = exact.payoffs().copy()
    marked = whole.copy()
    marked[:, 0, 0] += 1e-13  # rounding of another batch
    again = ExactEvaluator(tree, (0, 1))
    for p in (0, 1):
        for k in range(3):
            again.add(refs[p][k], member(tree, (p,), 10 * p + k))
    again.restore((2, 2), marked)
    assert again.known == (2, 2)
    table = again.payoffs()
    assert again.known == (3, 3)
    np.testing.assert_array_equal(table[:, :2, :2], marked[:, :2, :2])
    np.testing.assert_allclose(table[:, 2], whole[:, 2], rtol=0, atol=1e-12)


def test_a_policy_with_memory_has_no_plan() -> None:
    """Nothing is known where it plays a part, and all else is."""
    from ludus.policies.actor_critic import initial_weights

    tree = compile_tree("kuhn_poker")
    spec = gru_spec(inputs=tree.enumeration.observation.shape[1], actions=2, hidden=3)
    policy = build_policy(spec, initial_weights(spec, np.random.default_rng(0)))
    exact, refs = filled(tree, (2, 2))
    mixture = Mixture.product({p: ([refs[p][0]], [1.0]) for p in (0, 1)})
    known = exact.values(mixture), exact.exploitability(first(2))
    remembers = PolicyRef(0, "0-2")
    exact.add(remembers, policy)
    assert np.isnan(exact.values(mixture.with_seat_fixed(0, remembers))).all()
    assert exact.exploitability(MetaSolution((np.eye(3)[2], np.eye(2)[0]), 0.0)) is None
    assert known[0].tolist() == exact.values(mixture).tolist()
    assert known[1].nash_conv == exact.exploitability(first(3)).nash_conv
    with pytest.raises(ScenarioError, match=r"actor_critic does not. Set evaluation.payoffs=simulate"):
        exact.payoffs()


def first(of: int) -> MetaSolution:
    """The first policies alone, of so many of player 0 and two of player 1."""
    return MetaSolution((np.eye(of)[0], np.eye(2)[0]), 0.0)


def test_two_teams_of_joint_strategies_are_drawn_apart() -> None:
    tree = compile_tree("kuhn_poker(players=4)")
    exact, refs = filled(tree, (2, 2, 2, 2))
    probs = ((0.25, 0.75), (0.4, 0.6))
    teams = tuple(
        OpponentFactor(seats, tuple(tuple(refs[seat][k] for seat in seats) for k in range(2)), chances)
        for seats, chances in zip(((0, 1), (2, 3)), probs, strict=True)
    )
    table = exact.payoffs()
    expected = sum(probs[0][i] * probs[1][j] * table[:, i, i, j, j] for i in range(2) for j in range(2))
    np.testing.assert_allclose(exact.values(Mixture(teams)), expected, atol=1e-12)
