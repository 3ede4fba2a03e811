"""Guesses for unplayed payoffs."""

import numpy as np

from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers.match_selection import RIDGE, first_cells, impute_missing


def view(mean, known, *, population=None, zero_sum=False, bound=10.0):
    mean = np.where(known, np.asarray(mean, dtype=float), np.nan)
    return Payoffs(
        mean,
        np.asarray(known).astype(np.int64) * 5,
        np.where(known, 2.0, 0.0) * np.ones_like(mean),
        np.zeros(mean.shape[1:], bool),
        ((-bound, bound),) * len(mean),
        tuple(population or range(len(mean))),
        zero_sum,
    )


def test_complete_views_stay_as_they_are():
    made = view(np.zeros((2, 2, 2)), np.ones((2, 2), bool))
    assert impute_missing(made) is made


def test_a_guess_by_hand():
    """One policy against two: 4 was seen against the first. The mean is 4, nobody is better than that, so 4 is the guess."""
    made = impute_missing(view(np.full((2, 1, 2), 4.0), [[True, False]]))
    assert made.mean.tolist() == [[[4, 4]], [[4, 4]]]
    assert made.count.tolist() == [[5, 1]]
    assert made.m2[:, 0, 1].tolist() == [0, 0]
    assert made.known.all()


def test_effects_satisfy_the_normal_equations():
    """Each policy's effect is what is left of its profiles, over their number and the ridge."""
    rng = np.random.default_rng(0)
    known = rng.random((6, 5)) < 0.6
    mean = rng.normal(size=(2, 6, 5))
    guess = impute_missing(view(mean, known)).mean[0]
    middle = mean[0][known].mean()
    row, column = np.argwhere(~known)[0]
    holes = [tuple(h) for h in np.argwhere(~known)]
    rows, columns = (np.eye(n)[[h[a] for h in holes]] for a, n in ((0, 6), (1, 5)))
    effects = np.linalg.lstsq(np.hstack([rows, columns]), [guess[h] - middle for h in holes], rcond=None)[0]
    assert np.allclose(effects[row] + effects[6 + column] + middle, guess[row, column])
    x = np.hstack([np.eye(6)[np.argwhere(known)[:, 0]], np.eye(5)[np.argwhere(known)[:, 1]]])
    best = np.linalg.solve(x.T @ x + RIDGE * np.eye(11), x.T @ (mean[0][known] - middle))
    np.testing.assert_allclose(guess[~known], [middle + best[i] + best[6 + j] for i, j in holes], atol=1e-4)


def test_skill_is_predicted_and_ranges_are_kept():
    """Payoffs that are differences of skill, half of them unseen: guesses are near, for three players too, and never out of range."""
    rng = np.random.default_rng(1)
    skill = rng.normal(size=30)
    truth = skill[:, None] - skill
    known = rng.random((30, 30)) < 0.5
    guess = impute_missing(view(np.stack([truth, -truth]), known)).mean[0]
    assert np.abs(guess - truth)[~known].max() < 0.6
    np.testing.assert_array_equal(guess[known], truth[known])
    assert np.abs(impute_missing(view(np.stack([truth, -truth]), known, bound=0.5)).mean[:, ~known]).max() == 0.5
    three = skill[:8, None, None] - 0.5 * skill[:8, None] - 0.5 * skill[:8]
    known = rng.random((8, 8, 8)) < 0.5
    guess = impute_missing(view(np.stack([three] * 3), known)).mean[2]
    assert np.abs(guess - three)[~known].max() < 0.5


def test_first_cells_give_every_policy_its_profiles():
    rng = np.random.default_rng(2)
    made = view(np.zeros((2, 40, 40)), np.zeros((40, 40), bool), population=(0, 0), zero_sum=True)
    cells = first_cells(made, profiles=6, rng=rng, at_least=3)
    assert set(cells.units.tolist()) == {3}
    assert (cells.profiles[:, 0] < cells.profiles[:, 1]).all(), "one of each block, and nobody against itself"
    met = np.bincount(cells.profiles.ravel(), minlength=40)
    assert met.min() >= 6
    assert len(cells.profiles) <= 40 * 6
    known = np.zeros((40, 40), bool)
    known[tuple(cells.profiles.T)] = known[tuple(cells.profiles[:, ::-1].T)] = True
    assert (
        len(
            first_cells(view(np.zeros((2, 40, 40)), known, population=(0, 0), zero_sum=True), profiles=6, rng=rng).units
        )
        == 0
    )


def test_a_new_policy_costs_its_own_profiles_alone():
    known = np.ones((2, 5), bool)
    known[:, 4] = False
    made = view(np.zeros((2, 2, 5)), known)
    cells = first_cells(made, profiles=2, rng=np.random.default_rng(0))
    assert cells.profiles.tolist() == [[0, 4], [1, 4]]
    assert first_cells(made, profiles=None, rng=np.random.default_rng(0)).profiles.tolist() == [[0, 4], [1, 4]]
    assert len(first_cells(made, profiles=0, rng=np.random.default_rng(0)).units) == 0
