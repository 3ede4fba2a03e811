"""Agreement with OpenSpiel's linear program and Nash averaging, and with Gambit; see equilibrium_answers.py for how theirs were made."""

import json
from pathlib import Path

import numpy as np
import pytest

from ludus.metagame.solvers.logit import Logit
from ludus.metagame.solvers.max_entropy_nash import MaxEntropyNash
from ludus.metagame.solvers.nash import Nash, RectifiedNash
from ludus.metagame.solvers.nash_bimatrix import NashBimatrix
from ludus.testing.meta_solver import exact_view, zero_sum_view

ANSWERS = json.loads(Path(__file__).with_name("equilibrium_answers.json").read_text())
RNG = np.random.default_rng(0)
CONIC = 2e-7  # to which OpenSpiel's solvers of cone programs answer


def drawn(seed, sizes):
    return np.random.default_rng(seed).normal(size=(len(sizes), *sizes))


def of(kind):
    return pytest.mark.parametrize("game", ANSWERS[kind], ids=lambda game: f"seed {game['seed']}")


@of("zero_sum")
@pytest.mark.parametrize(
    "solver", [Nash(tolerance=1e-9), Nash(method="highs"), RectifiedNash(tolerance=1e-9), NashBimatrix()]
)
def test_openspiels_linear_program(solver, game):
    """Normal payoffs: the equilibrium is unique."""
    row = drawn(game["seed"], game["sizes"])[0]
    x, y = solver.solve(zero_sum_view(row), rng=RNG).marginals
    np.testing.assert_allclose(x, game["row"], atol=CONIC)
    np.testing.assert_allclose(y, game["column"], atol=CONIC)
    assert x @ row @ y == pytest.approx(game["value"], abs=CONIC)


@of("symmetric")
def test_openspiels_nash_averaging(game):
    """One strategy and its copy share its weight: no linear program says how."""
    size, places = game["size"], [*range(game["size"]), game["copied"]]
    table = drawn(game["seed"], (size, size))[0]
    table = ((table - table.T) / 2)[np.ix_(places, places)]
    mixture = MaxEntropyNash(tolerance=1e-9).solve(zero_sum_view(table, shared=True), rng=RNG).marginals[0]
    np.testing.assert_allclose(mixture, game["mixture"], atol=1e-5)
    assert mixture[-1] == pytest.approx(mixture[game["copied"]], abs=1e-6)
    assert mixture[-1] > 0.05


@of("bimatrix")
def test_gambits_equilibria(game):
    """Of all that Gambit enumerates, the one with the highest welfare; a path ends in one of them."""
    mean = drawn(game["seed"], game["sizes"])
    theirs = [tuple(map(np.array, profile)) for profile in game["equilibria"]]
    assert len(theirs) >= 3
    best = max(theirs, key=lambda pair: pair[0] @ mean.sum(0) @ pair[1])
    view = exact_view(mean, zero_sum=False)
    ours = NashBimatrix(method="support_enumeration").solve(view, rng=RNG).marginals
    for mine, other in zip(ours, best, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-8)
    path = NashBimatrix(method="lemke_howson").solve(view, rng=RNG).marginals
    assert min(max(np.abs(a - b).max() for a, b in zip(path, pair, strict=True)) for pair in theirs) < 1e-8


@of("logit")
def test_gambits_branch_of_quantal_responses(game):
    """Two and three players."""
    view = exact_view(drawn(game["seed"], game["sizes"]), zero_sum=False)
    for rationality, theirs in zip(ANSWERS["rationalities"], game["answers"], strict=True):
        ours = Logit(rationality=rationality).solve(view, rng=RNG).marginals
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-6)
