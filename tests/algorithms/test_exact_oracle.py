"""The exact oracle against pyspiel's best responses, and against the tree for mixtures of every kind."""

from pathlib import Path

import numpy as np
import pyspiel
import pytest

from ludus.algorithms.common.base import ComputedOracle
from ludus.algorithms.exact.oracle import ExactBestResponse
from ludus.core.errors import ScenarioError
from ludus.core.types import AdaptiveMixture, Mixture, OpponentFactor, PolicyRef
from ludus.envs.registry import make_env
from ludus.envs.tree.game_tree import compile_tree
from ludus.policies.registry import build_policy

THREE = "kuhn_poker(players=3)"


def random_table(tree, player, seed):
    mask = tree.enumeration.mask[tree.enumeration.ids(player)]
    table = np.random.default_rng([seed, player]).random(mask.shape) * mask
    return table / table.sum(1, keepdims=True)


def ref(k):
    return PolicyRef(0, f"p{k}")


class Plans:
    """The stack of the seam: policy p7 plays table number 7, drawn anew per seat."""

    def __init__(self, tree):
        self.tree = tree

    def table(self, player, r):
        return random_table(self.tree, player, int(r.policy[1:]))

    def __call__(self, player, refs):
        return np.stack([self.tree.realization(player, self.table(player, r)) for r in refs])


def test_value_and_policy_are_pyspiels_best_response():
    tree = compile_tree("leduc_poker")
    plans = Plans(tree)
    algorithm = ExactBestResponse()
    assert isinstance(algorithm, ComputedOracle)
    algorithm.check(tree.spec)
    for seat in (0, 1):
        other = 1 - seat
        answer = algorithm.respond(tree, (seat,), Mixture.product({other: ([ref(3)], [1.0])}), plans)
        game = pyspiel.load_game("leduc_poker")
        enumeration = tree.enumeration
        probs = {
            enumeration.key[i]: [(a, float(p)) for a, p in enumerate(row) if enumeration.mask[i, a]]
            for i, row in enumerate(plans.table(other, ref(3)), start=enumeration.offset[other])
        }
        best = pyspiel.TabularBestResponse(game, seat, probs)
        assert answer.value[seat] == pytest.approx(best.value_from_state(game.new_initial_state()), abs=1e-9)
        policy = build_policy(answer.spec, answer.weights)
        table = policy.tabulate(enumeration, seat)
        mine = [None, None]
        mine[seat] = tree.realization(seat, table)
        mine[other] = plans(other, [ref(3)])[0]
        assert tree.values(mine)[seat] == pytest.approx(answer.value[seat], abs=1e-12)


def value_by_draws(tree, seat, table, mixture, plans):
    """The response's expected return, draw by draw, without mixing anything."""
    total = 0.0
    for draw in np.ndindex(*(len(f.probs) for f in mixture.factors)):
        prob, profile = 1.0, [None] * tree.num_players
        for k, factor in zip(draw, mixture.factors, strict=True):
            prob *= factor.probs[k]
            for other, r in zip(factor.seats, factor.entries[k], strict=True):
                profile[other] = plans(other, [r])[0]
        profile[seat] = tree.realization(seat, table)
        total += prob * tree.values(profile)[seat]
    return total


@pytest.mark.parametrize(
    "mixture",
    [
        Mixture.product({0: ([ref(1), ref(2)], [0.3, 0.7]), 2: ([ref(3), ref(4)], [0.5, 0.5])}),
        Mixture((OpponentFactor((0, 2), ((ref(1), ref(2)), (ref(3), ref(4)), (ref(5), ref(5))), (0.2, 0.8, 0.0)),)),
        Mixture((OpponentFactor((2, 0, 1), ((ref(1), ref(2), ref(9)), (ref(3), ref(4), ref(8))), (0.4, 0.6)),)),
    ],
    ids=["product", "joint", "joint that names the learner's seat too"],
)
def test_mixtures_are_drawn_once_per_game(mixture):
    tree = compile_tree(THREE)
    plans = Plans(tree)
    answer = ExactBestResponse().respond(tree, (1,), mixture, plans)
    table = build_policy(answer.spec, answer.weights).tabulate(tree.enumeration, 1)
    assert value_by_draws(tree, 1, table, mixture, plans) == pytest.approx(answer.value[1], abs=1e-12)
    for seed in range(20):  # nothing else does better
        other = random_table(tree, 1, 100 + seed)
        assert value_by_draws(tree, 1, other, mixture, plans) <= answer.value[1] + 1e-12


def test_one_policy_for_several_seats():
    tree = compile_tree(THREE)
    plans = Plans(tree)
    mixture = Mixture.product({p: ([ref(1), ref(2)], [0.5, 0.5]) for p in range(3)})
    both = ExactBestResponse().respond(tree, (0, 2), mixture, plans)
    policy = build_policy(both.spec, both.weights)
    for seat in (0, 2):
        alone = ExactBestResponse().respond(tree, (seat,), mixture, plans)
        assert both.value[seat] == alone.value[seat]
        expected = build_policy(alone.spec, alone.weights).tabulate(tree.enumeration, seat)
        assert np.array_equal(policy.tabulate(tree.enumeration, seat), expected)


def test_a_refusal_names_why_the_game_is_not_compiled(tmp_path: Path) -> None:
    """A player forgets its first move; the other reasons are those of the options and of the size."""
    path = tmp_path / "forgetful.efg"
    path.write_text(
        'EFG 2 R "forgetful" { "P1" "P2" } ""\np "" 2 1 "d" { "x" } 0\np "" 1 1 "first" { "L" "R" } 0\n'
        'p "" 1 2 "second" { "l" "r" } 0\nt "" 1 "Ll" { 3 -3 }\nt "" 2 "Lr" { 0 0 }\n'
        'p "" 1 2 "second" { "l" "r" } 0\nt "" 3 "Rl" { -10 10 }\nt "" 4 "Rr" { 2 -2 }\n'
    )
    for game, options, why in (
        (f"efg_game(filename={path})", {}, "lacks perfect recall: player 0 reaches information state '0-0-2-second'"),
        ("kuhn_poker", {"tree": "off"}, "tree=off"),
        ("kuhn_poker", {"openings": 1}, "random openings"),
        ("leduc_poker", {"node_limit": 100}, "more than 100 nodes"),
        ("stones_and_gems", {}, "samples its chance events"),
    ):
        spec = make_env(f"openspiel/{game}", num_envs=1, **options).spec
        with pytest.raises(ScenarioError, match="compiled to a tree") as refused:
            ExactBestResponse().check(spec)
        assert why in str(refused.value)


def test_exact_oracle_rejects_unsupported_games(tensors):
    with pytest.raises(ScenarioError, match="compiled to a tree"):
        ExactBestResponse().check(tensors)
    tree = compile_tree(THREE)
    live = Mixture.product({p: ([ref(p)._replace(version=None)], [1.0]) for p in (1, 2)})
    for opponents in (live, AdaptiveMixture(Mixture.product({p: ([ref(p)], [1.0]) for p in (1, 2)}), "hedge")):
        with pytest.raises(ScenarioError, match="fixed mixture"):
            ExactBestResponse().respond(tree, (0,), opponents, Plans(tree))
    with pytest.raises(ScenarioError, match=r"say nothing about the seats \[2\]"):
        ExactBestResponse().respond(tree, (0,), Mixture.product({1: ([ref(1)], [1.0])}), Plans(tree))
