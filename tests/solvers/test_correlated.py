"""Correlated and coarse correlated equilibria: games by hand, OpenSpiel's and SciPy's optima, every selection, degenerate games."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.optimize import minimize as scipy_minimize

from ludus.metagame.solvers import correlated
from ludus.metagame.solvers.correlated import CoarseCorrelated, Correlated, only_equilibrium, zero_sum_supports
from ludus.metagame.solvers.normal_form import (
    coarse_rows,
    correlated_rows,
    deviation_gains,
    joint_gains,
    symmetric_joint,
)
from ludus.metagame.solvers.simplex_program import SimplexProgram, minimize
from ludus.testing.meta_solver import ROCK_PAPER_SCISSORS, exact_view, zero_sum_view

RNG = np.random.default_rng(0)
OPENSPIEL = json.loads(Path(__file__).with_name("openspiel_answers.json").read_text())
DILEMMA = exact_view([[[3, 0], [5, 1]], [[3, 5], [0, 1]]], zero_sum=False)
CHICKEN = exact_view([[[6, 2], [7, 0]], [[6, 7], [2, 0]]], zero_sum=False)  # Aumann 1974, strategy 0 swerves
BOTH = [Correlated, CoarseCorrelated]
SELECTIONS = ["max_gini", "max_welfare", "min_epsilon"]
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3)
SEEDS = st.integers(0, 2**32 - 1)


def random_game(sizes, seed):
    return np.random.default_rng(seed).normal(size=(len(sizes), *sizes))


# ---------------------------------------------------------------------------------------------- games by hand


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("select", SELECTIONS)
def test_dominant_strategies_leave_one_equilibrium(kind, select):
    solution = kind(select=select).solve(DILEMMA, rng=RNG)
    np.testing.assert_allclose(solution.joint, [[0, 0], [0, 1]], atol=1e-8)
    assert 0 <= solution.gap < 1e-8


@pytest.mark.parametrize("kind", BOTH)
def test_chicken_the_most_even(kind):
    """By symmetry a = (0, 0), b = (0, 1) and (1, 0), c = (1, 1). Who is told to swerve must not gain by driving on, 6a + 2b >= 7a,
    and the other way round, 7b >= 6b + 2c. Only b >= 2c binds; (1 - 5c)² + 9c² is least at c = 5/34."""
    solution = kind().solve(CHICKEN, rng=RNG)
    np.testing.assert_allclose(solution.joint, np.array([[9, 10], [10, 5]]) / 34, atol=1e-9)
    assert solution.gap < 1e-8


@pytest.mark.parametrize("kind", BOTH)
def test_chicken_the_best_for_all(kind):
    """With c = 0 and a = 2b: half, a quarter, a quarter, worth 5.25 to each."""
    solution = kind(select="max_welfare").solve(CHICKEN, rng=RNG)
    np.testing.assert_allclose(solution.joint, [[0.5, 0.25], [0.25, 0]], atol=1e-8)


@pytest.mark.parametrize("kind", BOTH)
def test_chicken_the_safest_is_a_traffic_light(kind):
    """Deviations gain a - 2b and 2c - b; the larger is least at b = 1/2, where one loses 1 and the other 1/2."""
    solution = kind(select="min_epsilon").solve(CHICKEN, rng=RNG)
    np.testing.assert_allclose(solution.joint, [[0, 0.5], [0.5, 0]], atol=1e-7)
    assert solution.gap == 0


def test_coarse_is_weaker_than_correlated():
    """Always to tie at rock-paper-scissors: any strategy played for good wins, ties and loses a third of the time, 0 as before; but who
    is told a strategy knows what beats it, and would win for sure."""
    view, ties = zero_sum_view(ROCK_PAPER_SCISSORS), np.eye(3) / 3
    np.testing.assert_allclose(joint_gains(view.mean, ties, "cce"), [0, 0], atol=1e-16)
    np.testing.assert_allclose(joint_gains(view.mean, ties, "ce"), [1, 1])


def test_gains_of_one_player_by_hand():
    """The row player always wins. Told 0, the column player knows to play 1 and to win 1 instead of losing it; its best fixed strategy
    earns (1 - 1 + 0) / 3 instead of -1."""
    view, won = zero_sum_view(ROCK_PAPER_SCISSORS), np.zeros((3, 3))
    won[0, 2] = won[1, 0] = won[2, 1] = 1 / 3
    np.testing.assert_allclose(joint_gains(view.mean, won, "ce"), [0, 2])
    np.testing.assert_allclose(joint_gains(view.mean, won, "cce"), [0, 1])


def test_epsilon_allows_a_gain():
    """The dilemma with epsilon 1/2: cooperation may have a little weight; the deviations' gain is used up."""
    strict, loose = (CoarseCorrelated(epsilon=e).solve(DILEMMA, rng=RNG) for e in (0.0, 0.5))
    assert loose.gap == pytest.approx(1.0, abs=1e-7)  # both players' whole half
    assert (loose.joint**2).sum() < (strict.joint**2).sum()


def test_three_players_one_vote():
    """Everybody gets 1 if all play alike: correlated play may put any weight on the two agreements, and the most even one that
    maximises welfare is a fair coin."""
    mean = np.zeros((3, 2, 2, 2))
    mean[:, 0, 0, 0] = mean[:, 1, 1, 1] = 1.0
    solution = Correlated(select="max_welfare").solve(exact_view(mean, zero_sum=False), rng=RNG)
    assert solution.joint[0, 0, 0] == pytest.approx(0.5, abs=1e-8)
    assert solution.joint[1, 1, 1] == pytest.approx(0.5, abs=1e-8)


def test_gains_by_hand():
    """One profile for sure, (swerve, swerve): both gain 1 by driving on."""
    joint = np.array([[1.0, 0], [0, 0]])
    for kind in ("ce", "cce"):
        np.testing.assert_array_equal(joint_gains(CHICKEN.mean, joint, kind), [1, 1])


def test_rows_by_hand():
    """Player 0 of the dilemma: by cooperating for good it gains (0, 0; 3 - 5, 0 - 1), by defecting (2, 1; 0, 0)."""
    rows = coarse_rows(DILEMMA.mean)
    np.testing.assert_array_equal(rows, [[0, 0, -2, -1], [2, 1, 0, 0], [0, -2, 0, -1], [2, 0, 1, 0]])
    told = correlated_rows(DILEMMA.mean).toarray()
    np.testing.assert_array_equal(told, [[2, 1, 0, 0], [0, 0, -2, -1], [2, 0, 1, 0], [0, -2, 0, -1]])


# ---------------------------------------------------------------------------------------------- other people's optima


@pytest.mark.parametrize("game", OPENSPIEL["games"], ids=lambda game: str(game["sizes"]))
def test_agrees_with_openspiel(game):
    """See openspiel_answers.py for how these were made: by OSQP to about 1e-8."""
    mean = np.random.default_rng(game["seed"]).normal(size=(len(game["sizes"]), *game["sizes"]))
    view = exact_view(mean, zero_sum=False)
    for kind in BOTH:
        even = kind().solve(view, rng=RNG).joint
        np.testing.assert_allclose(even.ravel(), game[f"max_gini_{kind.kind}"], atol=1e-6)
        best = kind(select="max_welfare").solve(view, rng=RNG).joint
        assert float((best * mean).sum()) == pytest.approx(game[f"welfare_{kind.kind}"], abs=1e-7)


@settings(max_examples=15)
@given(SHAPES, SEEDS, st.sampled_from(BOTH))
def test_even_as_scipy_finds(sizes, seed, kind):
    """The same program by sequential quadratic programming."""
    mean = random_game(sizes, seed)
    rows = coarse_rows(mean) if kind is CoarseCorrelated else correlated_rows(mean).toarray()
    ours = kind().solve(exact_view(mean, zero_sum=False), rng=RNG).joint.ravel()
    n = len(ours)
    limits = [{"type": "ineq", "fun": lambda x: -(rows @ x), "jac": lambda x: -rows}] if len(rows) else []
    theirs = scipy_minimize(
        lambda x: x @ x,
        np.full(n, 1 / n),
        jac=lambda x: 2 * x,
        bounds=[(0, 1)] * n,
        constraints=[{"type": "eq", "fun": lambda x: x.sum() - 1}, *limits],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-13},
    )
    if theirs.success:
        assert ours @ ours <= theirs.fun + 1e-6


@settings(max_examples=15)
@given(SHAPES, SEEDS, st.sampled_from(BOTH))
def test_best_and_safest_as_highs_finds(sizes, seed, kind):
    mean = random_game(sizes, seed)
    view = exact_view(mean, zero_sum=False)
    rows = coarse_rows(mean) if kind is CoarseCorrelated else correlated_rows(mean).toarray()
    k, n = rows.shape
    some = {"A_ub": rows, "b_ub": np.zeros(k)} if k else {}
    welfare = linprog(-mean.sum(axis=0).ravel(), **some, A_eq=np.ones((1, n)), b_eq=[1])
    best = kind(select="max_welfare").solve(view, rng=RNG).joint
    assert float((best * mean).sum()) == pytest.approx(-welfare.fun, abs=1e-6)
    if k:
        safest = kind(select="min_epsilon").solve(view, rng=RNG).joint.ravel()
        least = linprog(
            np.r_[np.zeros(n), 1],
            A_ub=np.c_[rows, -np.ones(k)],
            b_ub=np.zeros(k),
            A_eq=np.r_[np.ones(n), 0][None],
            b_eq=[1],
            bounds=[(0, 1)] * n + [(None, None)],
        )
        assert (rows @ safest).max() == pytest.approx(least.fun, abs=1e-6)


# ---------------------------------------------------------------------------------------------- properties


@given(SHAPES, SEEDS, st.sampled_from(BOTH), st.sampled_from(SELECTIONS))
def test_the_gap_is_small_and_true(sizes, seed, kind, select):
    mean = random_game(sizes, seed)
    solution = kind(select=select).solve(exact_view(mean, zero_sum=False), rng=RNG)
    assert solution.joint.shape == tuple(sizes)
    assert solution.joint.sum() == pytest.approx(1)
    rows = coarse_rows(mean) if kind is CoarseCorrelated else correlated_rows(mean)
    if rows.shape[0]:
        assert (rows @ solution.joint.ravel()).max() <= solution.gap + 1e-12
    assert solution.gap < 1e-7


@settings(max_examples=20)
@given(SEEDS)
def test_correlated_equilibria_are_coarse(seed):
    view = exact_view(random_game((3, 4), seed), zero_sum=False)
    told, coarse = (kind().solve(view, rng=RNG).joint for kind in BOTH)
    assert joint_gains(view.mean, told, "cce").sum() < 1e-7
    assert (coarse**2).sum() <= (told**2).sum() + 1e-9


@settings(max_examples=20)
@given(SHAPES, SEEDS)
def test_gains_of_a_product_are_nash_gains(sizes, seed):
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(len(sizes), *sizes))
    marginals = [rng.dirichlet(np.ones(n)) for n in sizes]
    joint = marginals[0]
    for marginal in marginals[1:]:
        joint = np.multiply.outer(joint, marginal)
    expected = deviation_gains(mean, marginals)
    np.testing.assert_allclose(joint_gains(mean, joint, "cce"), expected, atol=1e-12)
    np.testing.assert_allclose(joint_gains(mean, joint, "ce"), expected, atol=1e-12)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("select", SELECTIONS)
def test_degenerate_games(kind, select):
    """Ties, games in which nothing matters, one profile, one strategy, four players, wins and losses only."""
    rng = np.random.default_rng(5)
    tables = [
        np.zeros((2, 3, 2)),
        np.full((2, 1, 1), 7.0),
        rng.normal(size=(2, 1, 5)),
        rng.normal(size=(1, 4)),
        rng.integers(-1, 2, size=(2, 4, 5)),
        rng.integers(0, 2, size=(4, 2, 2, 2, 2)),
        np.sign(rng.normal(size=(2, 6, 6))),
        1e6 * rng.normal(size=(2, 3, 3)) + 1e7,
    ]
    for mean in tables:
        view = exact_view(mean, zero_sum=False)
        solution = kind(select=select).solve(view, rng=RNG)
        assert solution.gap <= 1e-7 * max(1.0, float(np.ptp(view.mean)))


@pytest.mark.parametrize("kind", BOTH)
def test_twenty_by_twenty(kind):
    view = exact_view(random_game((20, 20), 1), zero_sum=False)
    assert kind().solve(view, rng=RNG).gap < 1e-8


def test_a_shared_population_gets_a_symmetric_answer():
    noisy = exact_view(random_game((3, 3), 4), zero_sum=False, population=(0, 0))
    joint = Correlated(select="max_welfare").solve(noisy, rng=RNG).joint
    np.testing.assert_array_equal(joint, joint.T)


def test_symmetric_joint_by_hand():
    """Players 0 and 2 share: the weight of (0, 1, 1) goes half to (1, 1, 0)."""
    joint = np.zeros((2, 2, 2))
    joint[0, 1, 1] = 1.0
    pooled = symmetric_joint(joint, (0, 1, 0))
    assert pooled[0, 1, 1] == pooled[1, 1, 0] == 0.5


# ---------------------------------------------------------------------------------------------- the program


def test_program_by_hand():
    """The point of the triangle nearest to its middle with x_0 <= 1/6: (1/6, 5/12, 5/12). Multiplier: n (5/12 - 1/6) = 3/4."""
    found = minimize(SimplexProgram(np.array([[1.0, 0, 0]]), np.array([1 / 6])))
    np.testing.assert_allclose(found.x, [1 / 6, 5 / 12, 5 / 12], atol=1e-9)
    np.testing.assert_allclose(found.multipliers, [0.75], atol=1e-6)
    assert found.error <= 1e-9


def test_program_says_that_it_has_no_solution():
    assert minimize(SimplexProgram(np.array([[1.0, 1.0]]), np.array([0.5]))).error > 1e-3


@pytest.mark.parametrize(("error", "said"), [(5e-9, ""), (1e-5, "cce: stopped 1.0e-05 of the payoffs' range")])
def test_an_answer_that_misses_its_tolerance_is_given_and_noted(monkeypatch, error, said):
    monkeypatch.setattr(correlated, "minimize", lambda *a, **k: dataclasses.replace(minimize(*a, **k), error=error))
    found = CoarseCorrelated().solve(CHICKEN, rng=RNG)
    assert found.note.startswith(said)
    assert bool(found.note) == bool(said)
    assert found.gap <= 1e-8


def test_where_the_program_fails_a_vertex_is_the_answer(monkeypatch):
    monkeypatch.setattr(correlated, "minimize", lambda *a, **k: dataclasses.replace(minimize(*a, **k), error=0.1))
    for solver in (CoarseCorrelated(), Correlated()):
        found = solver.solve(CHICKEN, rng=RNG)
        assert "was asked for" in found.note
        assert found.gap <= 1e-8


def test_the_better_of_two_attempts_is_kept(monkeypatch):
    """Without room and with a little: the first was nearer."""
    errors = iter([1e-7, 1e-5])
    monkeypatch.setattr(
        correlated, "minimize", lambda *a, **k: dataclasses.replace(minimize(*a, **k), error=next(errors))
    )
    assert "stopped 1.0e-07" in CoarseCorrelated().solve(CHICKEN, rng=RNG).note


# ---------------------------------------------------------------------------------------------- two players, zero-sum


def antisymmetric(size, seed):
    noise = np.random.default_rng(seed).normal(size=(size, size))
    return zero_sum_view(noise - noise.T)


def test_sixty_by_sixty():
    """It used to stop at 1.5e-8 of the range, after minutes, with an error."""
    found = Correlated().solve(antisymmetric(60, 0), rng=RNG)
    assert found.gap < 1e-9
    assert not found.note


BIASED = np.array([[2.0, -1.0], [-1.0, 1.0]])
WITH_COPIES = BIASED[[0, 1, 1]]  # of the second row: equilibria are many
WITH_DOMINATED = np.vstack([WITH_COPIES, [-3.0, -3.0]])


@pytest.mark.parametrize("matrix", [BIASED, WITH_COPIES, WITH_DOMINATED, None])
@pytest.mark.parametrize("select", ["max_gini", "max_welfare"])
def test_leaving_out_who_is_never_played_changes_nothing(matrix, select, monkeypatch):
    view = antisymmetric(7, 1) if matrix is None else zero_sum_view(matrix)
    short = Correlated(select=select).solve(view, rng=RNG)
    monkeypatch.setattr(correlated, "zero_sum_supports", lambda mean: None)
    whole = Correlated(select=select).solve(view, rng=RNG)
    np.testing.assert_allclose(short.joint, whole.joint, atol=1e-5)
    assert short.gap < 1e-8


def test_supports_and_the_only_equilibrium_by_hand():
    """Of BIASED: (2/5, 3/5) of both players. The dominated row is nobody's; of two copies both are played."""
    mean = np.stack([WITH_DOMINATED, -WITH_DOMINATED])
    first, second = zero_sum_supports(mean)
    assert first.tolist() == [0, 1, 2]
    assert second.tolist() == [0, 1]
    assert only_equilibrium(WITH_DOMINATED, first, second) is None
    np.testing.assert_allclose(
        only_equilibrium(BIASED, np.arange(2), np.arange(2)), np.outer([0.4, 0.6], [0.4, 0.6]), atol=1e-12
    )
    assert zero_sum_supports(np.stack([BIASED, BIASED])) is None
