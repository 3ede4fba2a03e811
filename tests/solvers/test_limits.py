"""Memory that is asked for before it is taken, looks between iterations, and answers that miss a tolerance."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.errors import SolverError
from ludus.core.machine import free_memory
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import alpha_rank, correlated, limits, max_entropy_nash
from ludus.metagame.solvers.alpha_rank import AlphaRank
from ludus.metagame.solvers.base import MetaSolver
from ludus.metagame.solvers.correlated import CoarseCorrelated, Correlated
from ludus.metagame.solvers.logit import Logit
from ludus.metagame.solvers.max_entropy_nash import MaxEntropyNash
from ludus.metagame.solvers.nash import Nash
from ludus.metagame.solvers.nash_bargaining import NashBargaining
from ludus.metagame.solvers.nash_bimatrix import NashBimatrix
from ludus.testing.meta_solver import exact_view, zero_sum_view

RNG = np.random.default_rng(0)
PENNIES = zero_sum_view(np.array([[2.0, -1.0], [-1.0, 1.0]]))
GENERAL = exact_view(np.random.default_rng(1).normal(size=(2, 5, 5)), zero_sum=False)
THREE = exact_view(np.random.default_rng(1).normal(size=(3, 20, 20, 20)), zero_sum=False)


@pytest.mark.parametrize(
    ("solver", "text"),
    [
        (Correlated(), r"ce: a game of 20 × 20 × 20 policies needs about 0\.\d+ GiB, and 0.000977 GiB are free"),
        (CoarseCorrelated(), r"cce: a game of 20 × 20 × 20 policies needs about"),
        (AlphaRank(), r"alpha_rank: 8,000 profiles with 456,000 moves between them needs about"),
    ],
)
def test_oversized_games_are_rejected_before_solving(
    solver: MetaSolver, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(*_: object) -> None:
        raise AssertionError("memory was taken")

    monkeypatch.setattr(limits, "free_memory", lambda: 2**20)
    for name in ("correlated_rows", "coarse_rows"):
        monkeypatch.setattr(correlated, name, rows)
    monkeypatch.setattr(alpha_rank, "Mutations", rows)
    with pytest.raises(SolverError, match=text):
        solver.solve(THREE, rng=RNG)


def test_memory_that_nobody_can_tell_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "free_memory", lambda: None)
    assert CoarseCorrelated().solve(GENERAL, rng=RNG).gap < 1e-6


def test_free_memory_is_that_of_a_machine() -> None:
    free = free_memory()
    assert free is None or 2**20 < free < 2**50


@pytest.mark.parametrize(
    ("solver", "game"),
    [
        (Correlated(), GENERAL),
        (CoarseCorrelated(), GENERAL),
        (NashBargaining(), GENERAL),
        (NashBimatrix(method="lemke_howson"), GENERAL),
        (Logit(), GENERAL),
        (AlphaRank(), GENERAL),
        (Nash(), PENNIES),
        (MaxEntropyNash(), PENNIES),
    ],
)
def test_solvers_let_others_look(solver: MetaSolver, game: Payoffs) -> None:
    """And what they raise ends the solver."""

    class Enough(Exception):
        pass

    def watch() -> None:
        raise Enough

    with limits.watched(watch), pytest.raises(Enough):
        solver.solve(game, rng=RNG)
    assert solver.solve(game, rng=RNG).strategies, "nobody looks any more"


def test_notes_by_hand() -> None:
    told = {"solver": "ce", "advice": "Raise `tolerance`."}
    assert limits.note_of(1e-8, 1e-9, **told) == ""
    text = "ce: stopped 1.5e-08 of the payoffs' range from an equilibrium; 1e-09 was asked for. Raise `tolerance`."
    assert limits.note_of(1.5e-8, 1e-9, **told) == text
    for error in (2e-3, np.nan):
        with pytest.raises(SolverError, match="was asked for"):
            limits.note_of(error, 1e-9, **told)


@pytest.mark.parametrize("size", [1e9, 1e12])
def test_payoffs_of_billions_are_no_fault_of_logit(size: float) -> None:
    """Rationality times 2e9 is beyond what rounding lets the branch be followed to; the equilibrium has settled long before."""
    found = Logit().solve(exact_view(size * PENNIES.mean, zero_sum=True), rng=RNG)
    np.testing.assert_allclose(found.strategies, [[0.4, 0.6], [0.4, 0.6]], atol=1e-6)
    assert found.gap < 1e-6 * size
    assert "rounding ended the branch" in found.note


def test_a_vertex_that_misses_its_tolerance_is_given() -> None:
    found = NashBimatrix(tolerance=1e-18).solve(
        exact_view(np.random.default_rng(1).normal(size=(2, 4, 4)) / 3, zero_sum=False), rng=RNG
    )
    assert found.gap < 1e-12
    assert "was asked for" in found.note


def test_where_no_most_even_equilibrium_comes_out_another_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def far(*args: object, **options: object) -> max_entropy_nash.MaxEntropyPoint:
        return max_entropy_nash.MaxEntropyPoint(np.array([1.0, 0.0]), 0.5, 1)

    monkeypatch.setattr(max_entropy_nash, "max_entropy_point", far)
    found = MaxEntropyNash().solve(PENNIES, rng=RNG)
    np.testing.assert_allclose(found.strategies, [[0.4, 0.6], [0.4, 0.6]], atol=1e-3)
    assert "perhaps not the most even one" in found.note
