"""Intervals and ranks of a ranking, worked by hand from small databases, and checked against draws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic
from scipy.stats import t as student

from ludus.apps.ui.figures.intervals import KINDS, mean_return_intervals, rank_intervals
from ludus.apps.ui.figures.learning_curves import learning
from ludus.apps.ui.figures.lineage import policy
from ludus.apps.ui.figures.meta_game import MetaGame, mean_intervals, meta_game
from ludus.apps.ui.figures.ranking import Ranked, Ranking, alpha_rank, ranking
from ludus.core.types import Match, Mixture, PolicyRef, TrainingTask
from ludus.storage.base import GenerationRecord
from ludus.storage.reader import Reader
from ludus.storage.store import Store

RANGE = (-1.0, 1.0)
Results = dict[tuple[int, ...], tuple[int, float, float]]
"""Profile -> episodes, player 0's mean, M2."""


def _run(run_dir: Path, sizes: tuple[int, ...], results: Results, marginals: tuple[tuple[float, ...], ...]) -> Path:
    """A zero-sum run of two players with returns in [-1, 1]; of one population, where one size is given."""
    population = tuple(range(len(sizes))) if len(sizes) > 1 else (0, 0)
    facts = synthetic.info(run_dir, population=population, utility_range=(RANGE, RANGE))
    with Store.create(run_dir, facts) as store:
        for own, size in enumerate(sizes):
            for place in range(size):
                store.policy_added(synthetic.policy(own, place, generation=place))
        matches = []
        for k, (profile, (n, mean, m2)) in enumerate(results.items()):
            seats = tuple(PolicyRef(population[seat], f"p{place}", 0) for seat, place in enumerate(profile))
            matches.append(
                Match(f"m{k}", profile, seats, n, np.array([mean, -mean]), np.array([m2, m2]), ((0, 0, 0),) * 2)
            )
        store.matches_recorded(matches)
        store.generation_done(GenerationRecord(0, 1.0, 100, None, marginals=marginals))
        store.commit("g0")
    return run_dir


def _ranking(run_dir: Path) -> list[Ranking]:
    with Reader(run_dir) as reader:
        return ranking(reader)


def _rows(run_dir: Path, population: int = 0) -> dict[str, Ranked]:
    return {row.policy: row for row in _ranking(run_dir)[population].rows}


def _sequence(n: int, mean: float, m2: float) -> tuple[float, float]:
    """Of one payoff by itself."""
    low, high = mean_intervals(
        np.array([n]), np.array([mean]), np.array([m2]), np.zeros(1, np.bool_), RANGE, alpha=0.05
    )
    return float(low[0]), float(high[0])


def test_variances_combine_by_the_squares_of_weights(tmp_path: Path) -> None:
    """p0 of player 0 against a mixture of 3/4 and 1/4; Student's interval of the sum by Welch's degrees of freedom."""
    results = {(0, 0): (50, 0.2, 40.0), (0, 1): (10, -0.4, 8.0)}
    row = _rows(_run(tmp_path / "run", (1, 2), results, ((1.0,), (0.75, 0.25))))["p0"]
    assert row.mean == pytest.approx(0.75 * 0.2 - 0.25 * 0.4)
    variances = 0.75**2 * 40 / (50 * 49), 0.25**2 * 8 / (10 * 9)
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 49 + variances[1] ** 2 / 9)
    half = float(student.ppf(0.975, freedom)) * sum(variances) ** 0.5
    assert row.intervals["student"] == pytest.approx((0.05 - half, 0.05 + half), rel=1e-4)
    sides = [(_sequence(*results[0, j]), results[0, j][1]) for j in (0, 1)]
    below = np.hypot(*(w * (mean - low) for w, ((low, _), mean) in zip((0.75, 0.25), sides, strict=True)))
    above = np.hypot(*(w * (high - mean) for w, ((_, high), mean) in zip((0.75, 0.25), sides, strict=True)))
    assert row.intervals["sequence"] == pytest.approx((0.05 - below, 0.05 + above), rel=1e-4)
    assert row.half_width == pytest.approx(max(below, above), rel=1e-4)


def test_one_opponent_gives_the_interval_of_its_payoff(tmp_path: Path) -> None:
    row = _rows(_run(tmp_path / "run", (1, 1), {(0, 0): (40, 0.25, 30.0)}, ((1.0,), (1.0,))))["p0"]
    assert row.intervals["sequence"] == pytest.approx(_sequence(40, 0.25, 30.0), rel=1e-5)


def test_intervals_end_at_the_utility_range(tmp_path: Path) -> None:
    """200 wins of 200: nothing above 1, and not sure of 1."""
    row = _rows(_run(tmp_path / "run", (1, 1), {(0, 0): (200, 1.0, 0.0)}, ((1.0,), (1.0,))))["p0"]
    low, high = row.intervals["sequence"] or (0.0, 0.0)
    assert 0.9 < low < 0.99
    assert high == pytest.approx(1.0)


def test_a_single_episode_bounds_nothing_by_itself(tmp_path: Path) -> None:
    row = _rows(_run(tmp_path / "run", (1, 1), {(0, 0): (1, 0.5, 0.0)}, ((1.0,), (1.0,))))["p0"]
    assert row.intervals["student"] == (-1.0, 1.0)


def test_many_opponents_make_a_mean_return_sure(tmp_path: Path) -> None:
    """150 equally likely opponents with 32 episodes each. The mean of the payoffs' own half widths is 12 times as wide."""
    size = 150
    rng = np.random.default_rng(0)
    results: Results = {(0, j): (32, float(rng.uniform(-0.3, 0.7)), 28.0) for j in range(size)}
    row = _rows(_run(tmp_path / "run", (1, size), results, ((1.0,), (1 / size,) * size)))["p0"]
    assert row.half_width is not None
    assert row.half_width == pytest.approx(0.046, abs=0.01)
    ends = [_sequence(*result) for result in results.values()]
    assert np.mean([(high - low) / 2 for low, high in ends]) > 10 * row.half_width


def test_seats_of_a_shared_population_are_independent_but_of_oneself(tmp_path: Path) -> None:
    """p0 has met p1 at both seats, and itself, which says nothing in a game of constant sum."""
    results = {(0, 1): (30, 0.1, 20.0), (1, 0): (20, -0.3, 15.0), (0, 0): (50, 0.2, 40.0)}
    row = _rows(_run(tmp_path / "run", (2,), results, ((0.5, 0.5), (0.5, 0.5))))["p0"]
    assert row.mean == pytest.approx((0.5 * 0.1 + 0.5 * 0.2 + 0.5 * 0.3 - 0.5 * 0.2) / 2)
    variance = 0.25**2 * (20 / (30 * 29) + 15 / (20 * 19))
    below = (row.mean or 0.0) - (row.intervals["student"] or (0.0, 0.0))[0]
    assert below == pytest.approx(2.0 * variance**0.5, rel=0.02)  # Student's t with 41 degrees of freedom is 2.02


def test_a_seat_order_that_was_never_played_counts_once(tmp_path: Path) -> None:
    """What (p0, p1) gave stands for both orders: it is no second observation."""
    row = _rows(_run(tmp_path / "run", (2,), {(0, 1): (30, 0.1, 20.0)}, ((0.0, 1.0), (0.0, 1.0))))["p0"]
    assert row.intervals["sequence"] == pytest.approx(_sequence(30, 0.1, 20.0), rel=1e-4)


def test_unknown_payoffs_leave_the_interval_open(tmp_path: Path) -> None:
    row = _rows(_run(tmp_path / "run", (1, 2), {(0, 0): (50, 0.2, 40.0)}, ((1.0,), (0.5, 0.5))))["p0"]
    assert row.mean is None
    assert [row.intervals[kind] for kind in KINDS] == [None, None]
    assert row.ranks["sequence"] is None


def test_ranks_are_as_wide_as_the_intervals_leave_them() -> None:
    """Four intervals: [3, 4] lies above all; [1, 2.5] and [2, 2.8] overlap; [0, 0.5] lies below all; one is unknown."""
    low, high = np.array([1.0, 3.0, np.nan, 2.0, 0.0]), np.array([2.5, 4.0, np.nan, 2.8, 0.5])
    assert rank_intervals(low, high).tolist() == [[2, 3], [1, 1], [0, 0], [2, 3], [4, 4]]
    assert rank_intervals(np.full(2, np.nan), np.full(2, np.nan)).tolist() == [[0, 0], [0, 0]]


def test_exact_scores_that_are_equal_share_their_ranks() -> None:
    """Up to rounding, which is no difference of skill."""
    scores = np.array([0.1 + 0.2, 0.3, -0.7])
    assert rank_intervals(scores, scores).tolist() == [[1, 2], [1, 2], [3, 3]]


def _drawn_game(tmp_path: Path, opponents: int) -> MetaGame:
    results: Results = {(0, j): (1, 0.0, 0.0) for j in range(opponents)}
    weights = np.arange(1.0, opponents + 1)
    run_dir = _run(tmp_path / "run", (1, opponents), results, ((1.0,), tuple((weights / weights.sum()).tolist())))
    with Reader(run_dir) as reader:
        return meta_game(reader)


def test_the_combined_sequence_holds_while_matches_are_added(tmp_path: Path) -> None:
    """Wins and losses of 8 opponents in turn, looked at 12 times: of 60 such leagues at most a few are ever wrong."""
    opponents, looks, leagues = 8, 12, 60
    game, rng = _drawn_game(tmp_path, opponents), np.random.default_rng(5)
    wrong = 0
    chances = np.linspace(0.2, 0.8, opponents)
    truth = float(game.marginals[1] @ (2 * chances - 1))
    for _ in range(leagues):
        outcomes = 2.0 * (rng.random((12 * looks, opponents)) < chances) - 1
        for n in range(12, 12 * looks + 1, 12):
            mean = outcomes[:n].mean(axis=0)
            m2, count = ((outcomes[:n] - mean) ** 2).sum(axis=0), np.full((1, opponents), n)
            log = replace(game.log, count=count, mean=np.array([[mean], [-mean]]), m2=np.array([[m2], [m2]]))
            now = replace(game, log=log, _cache={})
            low, high = mean_return_intervals(now, 0, np.array([game.marginals[1] @ mean]), "sequence")
            if not low[0] <= truth <= high[0]:
                wrong += 1
                break
    assert wrong <= 8  # more have a chance below 1% where 5% are wrong


def test_alpha_rank_is_told_by_policy(tmp_path: Path) -> None:
    """Of both players the second policy is the dominant one: the chain stays with it."""
    results = {(i, j): (100, 0.5 * (i - j), 10.0) for i in (0, 1) for j in (0, 1)}
    with Reader(_run(tmp_path / "run", (2, 2), results, ((1.0, 0.0), (1.0, 0.0)))) as reader:
        masses = alpha_rank(reader)
    assert [{name: round(mass or 0.0, 6) for name, mass in (own or {}).items()} for own in masses] == [
        {"p0": 0.0, "p1": 1.0}
    ] * 2


def test_points_of_learning_are_told_by_generation(tmp_path: Path) -> None:
    """Tasks of generations 1 and 3, of 6 points each: from 0 to 1, and from 2 to 3."""
    run_dir = tmp_path / "run"
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        for generation in (1, 3):
            task = TrainingTask(f"g{generation}", generation, 0, (0,), "main", Mixture(()))
            store.generation = generation
            store.task_started(task)
            store.curve_recorded(task.id, synthetic.curve(6))
        store.commit("g3")
    with Reader(run_dir) as reader:
        learners = learning(reader).learners
    found = [value for learner in learners for value in learner.over["generations"]]
    assert found[:6] == pytest.approx([k / 6 for k in range(1, 7)], abs=1e-5)
    assert found[-6:] == pytest.approx([2 + k / 6 for k in range(1, 7)], abs=1e-5)


def test_results_of_a_policy_end_at_the_utility_range(tmp_path: Path) -> None:
    """200 wins of 200, as in the ranking."""
    run_dir = _run(tmp_path / "run", (1, 1), {(0, 0): (200, 1.0, 0.0)}, ((1.0,), (1.0,)))
    with Reader(run_dir) as reader:
        (result,) = policy(reader, population="0", policy="p0").results
    low, high = result.interval
    assert high == 1.0
    assert low == pytest.approx(1.0 - (result.half_width or 0.0))
