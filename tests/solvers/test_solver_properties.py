"""Properties that solvers share: names of strategies and units of payoffs do not matter, one strategy is no choice."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.core.parts import build_part, dump_part
from ludus.solvers.alpha_rank import AlphaRank
from ludus.solvers.correlated import CoarseCorrelated, Correlated
from ludus.solvers.logit import Logit
from ludus.solvers.max_entropy_nash import MaxEntropyNash
from ludus.solvers.nash_bargaining import NashBargaining
from ludus.solvers.pfsp import PFSPSolver
from ludus.solvers.rating_softmax import RatingSoftmax
from ludus.solvers.registry import META_SOLVERS
from ludus.testing.meta_solver import exact_view

RNG = np.random.default_rng(0)
SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.lists(st.integers(1, 4), min_size=2, max_size=4)

ANY_GAME = [
    AlphaRank(),
    AlphaRank(epsilon=0.05, answer="joint"),
    Correlated(),
    CoarseCorrelated(),
    CoarseCorrelated(select="max_welfare"),
    CoarseCorrelated(select="min_epsilon"),
    NashBargaining(),
    RatingSoftmax(),
]
DECIDED = [AlphaRank(), Correlated(), CoarseCorrelated()]  # who alone has a choice takes the best
WITH_UNITS = [AlphaRank(alpha=0.7, population_size=9, answer="joint"), Logit(rationality=3.0)]


def answer(solver, mean, *, zero_sum=False):
    """The joint distribution, or the product of the marginals."""
    solution = solver.solve(exact_view(mean, zero_sum=zero_sum), rng=RNG)
    if solution.joint is not None:
        return solution.joint
    product = np.ones(())
    for marginal in solution.marginals:
        product = np.multiply.outer(product, marginal)
    return product


def drawn(solver, sizes, seed):
    """A game that the solver takes, and whether it is zero-sum."""
    rng = np.random.default_rng(seed)
    if "zero_sum" in solver.needs:
        row = rng.normal(size=sizes[:2])
        return np.stack([row, -row]), True
    return rng.normal(size=(len(sizes), *sizes)), False


@pytest.mark.parametrize("solver", [*ANY_GAME, *WITH_UNITS, MaxEntropyNash()], ids=str)
@settings(max_examples=12, deadline=None)
@given(sizes=SHAPES, seed=SEEDS)
def test_renaming_strategies_renames_the_answer(solver, sizes, seed):
    mean, zero_sum = drawn(solver, sizes, seed)
    rng = np.random.default_rng(seed + 1)
    order = np.ix_(*[rng.permutation(n) for n in mean.shape[1:]])
    renamed = np.stack([table[order] for table in mean])
    np.testing.assert_allclose(
        answer(solver, renamed, zero_sum=zero_sum), answer(solver, mean, zero_sum=zero_sum)[order], atol=2e-5
    )


@pytest.mark.parametrize("solver", [*ANY_GAME, MaxEntropyNash()], ids=str)
@settings(max_examples=12, deadline=None)
@given(sizes=SHAPES, seed=SEEDS, scale=st.floats(0.01, 100.0), shift=st.floats(-10.0, 10.0))
def test_units_do_not_matter(solver, sizes, seed, scale, shift):
    """One unit and one zero for all players."""
    mean, zero_sum = drawn(solver, sizes, seed)
    other = answer(solver, scale * mean + (0.0 if zero_sum else shift), zero_sum=zero_sum)
    np.testing.assert_allclose(other, answer(solver, mean, zero_sum=zero_sum), atol=2e-5)


@pytest.mark.parametrize("solver", [*ANY_GAME, *WITH_UNITS, PFSPSolver()], ids=str)
@settings(max_examples=12, deadline=None)
@given(players=st.integers(1, 4), most=st.integers(1, 4), which=st.integers(0, 3), seed=SEEDS)
def test_one_strategy_is_no_choice(solver, players, most, which, seed):
    """1 by 1, and 1 by n: the only one who has a choice makes the same one in any number of players."""
    sizes = [1] * players
    sizes[which % players] = most
    mean = np.random.default_rng(seed).normal(size=(players, *sizes))
    found = answer(solver, mean)
    assert found.shape == tuple(sizes)
    assert found.sum() == pytest.approx(1)
    if solver in DECIDED:
        assert found.ravel()[int(np.argmax(mean[which % players]))] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "alpha_rank", "alpha": 2.5, "sweep": True, "population_size": 20},
        {"kind": "alpha_rank", "alpha": "infinite", "answer": "joint"},
        {"kind": "ce", "select": "max_welfare"},
        {"kind": "cce", "epsilon": 0.25},
        {"kind": "nash_bargaining", "disagreement": [0.5, 1]},
        {"kind": "nash_bargaining", "disagreement": "maximin"},
        {"kind": "pfsp", "weighting": "variance", "span": [-1, 1]},
        {"kind": "max_entropy_nash", "share_copies": False},
        {"kind": "rectified_nash", "slack": 0.5},
        {"kind": "rating_softmax", "rating": "elo", "temperature": 1},
        {"kind": "last_k", "k": 3},
        {"kind": "logit", "rationality": 4},
    ],
    ids=lambda options: options["kind"],
)
def test_solvers_from_json_and_back(options):
    solver = build_part("meta-solver", options, META_SOLVERS)
    again = json.loads(json.dumps(dump_part(solver, META_SOLVERS)))
    assert again.items() >= options.items()
    assert build_part("meta-solver", again, META_SOLVERS) == solver
