"""What solvers share: the contract, options, that names of strategies and units of payoffs do not matter, no choice among one strategy."""

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.core.errors import ConfigError
from ludus.core.parts import build_part, dump_part
from ludus.metagame.solvers.alpha_rank import AlphaRank
from ludus.metagame.solvers.correlated import CoarseCorrelated, Correlated
from ludus.metagame.solvers.fictitious_play import FictitiousPlay
from ludus.metagame.solvers.fixed import Last, LastK, Uniform
from ludus.metagame.solvers.logit import Logit
from ludus.metagame.solvers.max_entropy_nash import MaxEntropyNash
from ludus.metagame.solvers.nash import Nash, RectifiedNash
from ludus.metagame.solvers.nash_bargaining import NashBargaining
from ludus.metagame.solvers.nash_bimatrix import NashBimatrix
from ludus.metagame.solvers.pfsp import PFSPSolver
from ludus.metagame.solvers.projected_replicator_dynamics import ProjectedReplicatorDynamics
from ludus.metagame.solvers.rating_softmax import RatingSoftmax
from ludus.metagame.solvers.registry import META_SOLVERS
from ludus.metagame.solvers.regret_matching import RegretMatching, RegretMatchingPlus
from ludus.testing.meta_solver import check_meta_solver, exact_view

RNG = np.random.default_rng(0)
NAN, INF = float("nan"), float("inf")
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
WITH_UNITS = [AlphaRank(alpha=0.7, population_size=9, answer="joint"), Logit(rationality=1.0)]


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
@settings(max_examples=8)
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
@settings(max_examples=8)
@given(sizes=SHAPES, seed=SEEDS, scale=st.floats(0.01, 100.0), shift=st.floats(-10.0, 10.0))
def test_units_do_not_matter(solver, sizes, seed, scale, shift):
    """One unit and one zero for all players."""
    mean, zero_sum = drawn(solver, sizes, seed)
    other = answer(solver, scale * mean + (0.0 if zero_sum else shift), zero_sum=zero_sum)
    np.testing.assert_allclose(other, answer(solver, mean, zero_sum=zero_sum), atol=2e-5)


@pytest.mark.parametrize("solver", [*ANY_GAME, *WITH_UNITS, PFSPSolver()], ids=str)
@settings(max_examples=8)
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


CONTRACT = [
    Uniform(),
    Last(),
    LastK(k=2),
    FictitiousPlay(iterations=2000),
    ProjectedReplicatorDynamics(iterations=2000, dt=0.01),
    RegretMatching(iterations=500),
    RegretMatchingPlus(iterations=500),
    Nash(),
    Nash(slack=0.5),
    Nash(tolerance=1e-9),
    Nash(method="highs", tolerance=1e-5),
    NashBimatrix(),
    NashBimatrix(method="lemke_howson"),
    MaxEntropyNash(),
    MaxEntropyNash(share_copies=False),
    RectifiedNash(),
    NashBargaining(),
    NashBargaining(tolerance=1e-4),
    Logit(rationality=0.01),  # the largest payoffs of the games have the longest branch
    AlphaRank(),
    AlphaRank(epsilon=0.01),
    AlphaRank(alpha=1e-4),
    AlphaRank(alpha=0.1, sweep=True),
    AlphaRank(answer="joint"),
    AlphaRank(model="multi_population"),
    Correlated(),
    Correlated(select="min_epsilon"),
    CoarseCorrelated(),
    CoarseCorrelated(select="max_welfare"),
    RatingSoftmax(),
    PFSPSolver(),
    PFSPSolver(weighting="variance"),
    PFSPSolver(weighting="linear_capped"),
]


class EloSoftmax(RatingSoftmax):
    """With "elo" more is needed than the class says."""

    needs = frozenset({"two_player", "zero_sum"})


@pytest.mark.parametrize("solver", [*CONTRACT, EloSoftmax(rating="elo", temperature=1.0)], ids=str)
def test_every_meta_solver_satisfies_its_contract(solver):
    check_meta_solver(solver)


def test_the_contract_is_asked_of_every_solver():
    asked = {dump_part(solver, META_SOLVERS)["kind"] for solver in CONTRACT}
    assert asked == META_SOLVERS.keys()


WRONG_OPTIONS = [  # the solver, its options, what is said
    (Nash, {"tolerance": 0.0}, "tolerance is 0.0"),
    (Nash, {"tolerance": NAN}, "tolerance is nan"),
    (Nash, {"slack": 1.0}, "slack is 1.0"),
    (Nash, {"method": "simplex"}, "method is 'simplex'"),
    (NashBimatrix, {"method": "simplex"}, "method is 'simplex'"),
    (NashBimatrix, {"max_pivots": 0}, "max_pivots is 0"),
    (NashBimatrix, {"max_pairs": 0}, "max_pairs is 0"),
    (NashBimatrix, {"tolerance": 0.0}, "tolerance is 0.0"),
    (MaxEntropyNash, {"tolerance": 0.0}, "max_entropy_nash: tolerance is"),
    (MaxEntropyNash, {"tolerance": 0.5}, "max_entropy_nash: tolerance is"),
    (MaxEntropyNash, {"tolerance": NAN}, "max_entropy_nash: tolerance is"),
    (NashBargaining, {"disagreement": "war"}, "disagreement is 'war'"),
    (NashBargaining, {"disagreement": (0.0, NAN)}, "disagreement is"),
    (NashBargaining, {"tolerance": 0.0}, "tolerance is 0.0"),
    (Logit, {"rationality": -1.0}, "logit: rationality is"),
    (Logit, {"rationality": INF}, "logit: rationality is"),
    (Logit, {"rationality": NAN}, "logit: rationality is"),
    (AlphaRank, {"alpha": 0.0}, "alpha is 0.0"),
    (AlphaRank, {"alpha": INF}, "alpha is inf"),
    (AlphaRank, {"alpha": "strong"}, "alpha is 'strong'"),
    (AlphaRank, {"sweep": True}, "needs the alpha to start from"),
    (AlphaRank, {"epsilon": 0.5}, "epsilon is 0.5"),
    (AlphaRank, {"alpha": 1.0, "epsilon": 0.1}, "epsilon belongs to alpha: infinite"),
    (AlphaRank, {"population_size": 1}, "population_size is 1"),
    (AlphaRank, {"model": "one"}, "model is 'one'"),
    (AlphaRank, {"answer": "all"}, "answer is 'all'"),
    (AlphaRank, {"model": "single_population", "answer": "joint"}, "no joint answer"),
    (Correlated, {"select": "best"}, "ce: .*select is 'best'"),
    (Correlated, {"epsilon": -0.1}, "ce: .*epsilon is -0.1"),
    (CoarseCorrelated, {"epsilon": NAN}, "cce: .*epsilon is nan"),
    (CoarseCorrelated, {"epsilon": 0.1, "select": "min_epsilon"}, "cce: .*which finds it itself"),
    (CoarseCorrelated, {"tolerance": 0.0}, "cce: .*tolerance is 0.0"),
    (FictitiousPlay, {"iterations": 0}, "iterations is 0"),
    (ProjectedReplicatorDynamics, {"dt": 0.0}, "dt is 0.0"),
    (ProjectedReplicatorDynamics, {"gamma": 1.5}, "gamma is 1.5"),
    (ProjectedReplicatorDynamics, {"iterations": -1}, "iterations is -1"),
    (ProjectedReplicatorDynamics, {"average_last": 0}, "average_last is 0"),
    (ProjectedReplicatorDynamics, {"precision": -1e-3}, "precision is -0.001"),
    (ProjectedReplicatorDynamics, {"precision": NAN}, "precision is nan"),
    (RegretMatching, {"iterations": 0}, "regret_matching: iterations is 0"),
    (RegretMatching, {"gamma": 1.0}, "gamma is 1.0"),
    (RegretMatchingPlus, {"iterations": -3}, "regret_matching_plus: iterations is -3"),
    (LastK, {"k": 0}, "last_k: k is 0"),
    (RatingSoftmax, {"rating": "fame"}, "rating is 'fame'"),
    (RatingSoftmax, {"temperature": 0.0}, "temperature is 0.0"),
    (RatingSoftmax, {"rounds": 0}, "rounds is 0"),
    (PFSPSolver, {"weighting": "hard"}, "weighting is 'hard'"),
    (PFSPSolver, {"span": (1.0, 1.0)}, r"span is \(1.0, 1.0\)"),
    (PFSPSolver, {"span": (0.0, INF)}, "span is"),
]


def refusal(solver, options):
    try:
        return str(solver(**options))
    except ConfigError as error:
        return f"refused: {error}"


def test_options_out_of_range():
    for solver, options, sentence in WRONG_OPTIONS:
        assert re.match(f"refused: .*{sentence}", refusal(solver, options)), (solver, options)


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
