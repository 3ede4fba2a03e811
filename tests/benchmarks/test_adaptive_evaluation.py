"""The populations with known payoffs, and when a curve has reached its target."""

import json
import math

import numpy as np
import pytest

from benchmarks.adaptive_evaluation_worker import main, reached
from benchmarks.adaptive_games import GAMES, Game
from ludus.core.types import MetaSolution
from ludus.metagame.solvers.match_selection import CellSelection, first_cells


@pytest.mark.parametrize("name", GAMES)
def test_known_payoffs_are_what_is_played(name):
    """10,000 blocks of each pair of six policies: within five standard errors, and mirrored."""
    game = Game(name, n=6, seed=3, sampling="test")
    np.testing.assert_allclose(game.payoff, -game.payoff.T)
    pairs = first_cells(game.view(), profiles=None, rng=np.random.default_rng(0))
    game.play(CellSelection(pairs.profiles, 10_000 * pairs.units))
    view, apart = game.view(), ~np.eye(6, dtype=bool)
    assert game.blocks == 15 * 10_000
    assert (view.count[apart] == 10_000).all()
    assert np.abs(view.mean[0] - game.payoff)[apart].max() < 5 * np.sqrt(0.5 / 10_000)
    np.testing.assert_allclose(view.mean[0][apart], -view.mean[0].T[apart])
    np.testing.assert_allclose(view.m2[0], view.m2[0].T)
    # a block is 1, 0 or -1: its variance by the two chances of winning
    win, other = game.first, game.first.T
    variance = win * (1 - other) + other * (1 - win) - game.payoff**2
    np.testing.assert_allclose(view.m2[0][apart] / 10_000, variance[apart], rtol=0.1)


def test_both_ways_of_sampling_meet_the_same_game():
    one, other = (Game("noise", n=5, seed=1, sampling=s) for s in ("adaptive", "uniform"))
    np.testing.assert_array_equal(one.payoff, other.payoff)
    assert not np.array_equal(one.payoff, Game("noise", n=5, seed=2, sampling="adaptive").payoff)


def test_nash_conv_by_hand():
    game = Game("elo", n=2, seed=0, sampling="test")
    better = int(np.argmax(game.payoff.sum(axis=1)))
    best, worst = np.eye(2)[better], np.eye(2)[1 - better]
    assert game.nash_conv(MetaSolution((best, best), 0.0)) == 0
    assert game.nash_conv(MetaSolution((worst, worst), 0.0)) == pytest.approx(2 * np.abs(game.payoff).max())


def test_one_good_look_is_not_enough():
    curve = [(100, 0.5), (200, 0.05), (300, 0.2), (400, 0.08), (600, 0.09), (800, 0.02), (900, 0.3)]
    assert reached(curve, 0.1) == 400, "at 200 it was luck; from 400 to 800 it stays"
    assert reached(curve, 0.6) == 100
    assert math.isinf(reached(curve, 0.01))
    assert math.isinf(reached(curve[:-2], 0.1)), "not seen for long enough"


def test_the_worker_prints_its_figures(capsys):
    main(["--sampling", "adaptive", "--game", "elo", "--policies", "12", "--targets", "0.3", "--most", "40000"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    figures = {name: value for line in lines if line["kind"] == "figures" for name, value in line.items()}
    assert 0 < figures["matches to 0.3"] <= 40000
    points = [line for line in lines if line["kind"] == "point"]
    assert figures["looks"] == len(points)
    assert points[-1]["nash_conv"] <= 0.3
