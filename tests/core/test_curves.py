"""Learning curves: few points, of which every episode is part."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core import curves
from ludus.core.curves import EMPTY, LIMIT, Curve


def point(iteration: int, returns: list[float], *, seconds: float = 0.0, **metrics: float) -> Curve:
    """Of an iteration of 10 steps and 5 decisions; each episode is as long as its return."""
    counts = dict.fromkeys(curves.COUNTERS, 0) | {"iterations": iteration, "env_steps": 10 * iteration}
    lengths = np.array(returns, np.int32)
    return curves.point(counts, seconds=seconds, returns=np.array(returns), lengths=lengths, metrics=metrics)


def row(curve: Curve, k: int = -1) -> dict[str, float]:
    return dict(zip(curve.columns, curve.values[k].tolist(), strict=True))


def test_neighbours_are_merged_by_count() -> None:
    curve = curves.extended(point(1, [1.0, 3.0], loss=4.0), point(2, [5.0], loss=2.0), limit=2)
    assert len(curve) == 1
    # 1, 3, 5: mean 3, squared deviations 4 + 0 + 4.
    expected = {"n": 3, "mean": 3, "m2": 8, "low": 1, "high": 5, "length": 3, "iterations": 2, "env_steps": 20}
    assert {name: row(curve)[name] for name in expected} == expected
    assert (row(curve)["loss"], row(curve)["learned"]) == (3.0, 2.0)
    assert curves.spread(curve).tolist() == [2.0]


def test_no_episode_and_no_update_is_lost_however_long_it_takes() -> None:
    rng = np.random.default_rng(0)
    curve, returns, losses = EMPTY, [], []
    for k in range(1, 5001):
        played = rng.normal(size=rng.integers(4)).tolist()
        learned = {"loss": float(k)} if k % 3 else {}
        curve = curves.extended(curve, point(k, played, **learned))
        returns += played
        losses += [float(k)] * bool(learned)
    assert LIMIT / 2 <= len(curve) <= LIMIT
    assert np.diff(curve["iterations"]).max() == row(curve, 0)["iterations"] == 32
    whole = row(curves.pooled(curve))
    assert (whole["n"], whole["learned"], whole["iterations"]) == (len(returns), len(losses), 5000)
    assert whole["mean"] == pytest.approx(np.mean(returns))
    assert whole["m2"] == pytest.approx(np.var(returns) * len(returns))
    assert (whole["low"], whole["high"]) == (min(returns), max(returns))
    assert whole["loss"] == pytest.approx(np.mean(losses))


def test_what_is_not_there_is_left_open() -> None:
    curve = curves.extended(point(1, [], kl=float("inf")), point(2, [2.0], mean=7.0))
    assert np.isnan(curve["mean"]).tolist() == [True, False]
    assert np.isnan(curve["kl"]).all()
    assert np.isnan(curve["learner_mean"]).tolist() == [True, False]  # a metric whose name is taken
    assert np.isnan(curve["unknown"]).all()
    assert row(curves.pooled(curve))["mean"] == 2.0


def test_tasks_follow_one_another() -> None:
    first = curves.extended(point(1, [1.0], seconds=2.0), point(2, [2.0], seconds=4.0))
    curve = curves.joined([first, EMPTY, point(1, [3.0], seconds=1.5, loss=0.5)])
    assert curve["env_steps"].tolist() == [10.0, 20.0, 30.0]
    assert curve["seconds"].tolist() == [2.0, 4.0, 5.5]
    assert curve["mean"].tolist() == [1.0, 2.0, 3.0]
    assert len(curves.joined([])) == 0


def test_the_newest_of_it() -> None:
    curve = curves.joined([point(1, [float(k), float(k)], seconds=2.0) for k in range(4)])
    assert row(curves.last(curve, episodes=3))["mean"] == 2.5  # those of two points are needed
    assert row(curves.last(curve, episodes=99))["n"] == 8
    assert curves.per_second(curve, over=3.0) == 5.0
    assert np.isnan(curves.per_second(EMPTY, over=3.0))
