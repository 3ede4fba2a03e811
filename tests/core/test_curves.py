"""Learning curves: few points, of which every episode is part."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core import recorders
from ludus.core.recorders import EMPTY, LIMIT, Curve, CurveRecorder


def add(
    recorder: CurveRecorder, iteration: int, returns: list[float], *, seconds: float = 0.0, **metrics: float
) -> None:
    """An iteration of 10 steps; each episode is as long as its return."""
    counts = dict.fromkeys(recorders.COUNTERS, 0) | {"iterations": iteration, "env_steps": 10 * iteration}
    lengths = np.array(returns, np.int32)
    recorder.add(counts, seconds=seconds, returns=np.array(returns, float), lengths=lengths, metrics=metrics)


def curve(*returns: list[float], seconds: float = 0.0) -> Curve:
    """An iteration for each."""
    recorder = CurveRecorder()
    for k, played in enumerate(returns, start=1):
        add(recorder, k, played, seconds=seconds * k)
    return recorder.curve()


def row(curve: Curve, k: int = -1) -> dict[str, float]:
    return dict(zip(curve.columns, curve.values[k].tolist(), strict=True))


def test_neighbours_are_merged_by_count() -> None:
    recorder = CurveRecorder()
    add(recorder, 1, [1.0, 3.0], loss=4.0)
    add(recorder, 2, [])
    add(recorder, 3, [5.0], loss=2.0)
    assert recorder.curve()["n"].tolist() == [2.0, 0.0, 1.0]
    merged = recorders.thinned(recorder.curve(), 1)
    # 1, 3, 5: mean 3, squared deviations 4 + 0 + 4.
    expected = {
        "n": 3,
        "mean": 3,
        "m2": 8,
        "low": 1,
        "high": 5,
        "length": 3,
        "iterations": 3,
        "env_steps": 30,
        "learned": 2,
    }
    assert {name: row(merged)[name] for name in expected} == expected
    assert row(merged)["loss"] == 3.0
    assert recorders.spread(merged).tolist() == [2.0]


def test_statistics_are_means_over_episodes_whoever_learned() -> None:
    recorder = CurveRecorder()
    for k, (returns, goals, metrics) in enumerate(
        [([1.0], 4.0, {}), ([2.0] * 3, 0.0, {"loss": 1.0}), ([], None, {})], 1
    ):
        counts = dict.fromkeys(recorders.COUNTERS, 0) | {"iterations": k}
        statistics = {} if goals is None else {"goals": goals}
        lengths = np.ones(len(returns), np.int32)
        recorder.add(
            counts, seconds=0.0, returns=np.array(returns), lengths=lengths, metrics=metrics, statistics=statistics
        )
    np.testing.assert_array_equal(recorder.curve()["statistics/goals"], [4.0, 0.0, np.nan])
    merged = row(recorders.thinned(recorder.curve(), 1))
    assert (merged["statistics/goals"], merged["loss"], merged["learned"]) == (1.0, 1.0, 1.0)


def test_no_episode_and_no_update_is_lost_and_looking_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    recorder, looked = CurveRecorder(), CurveRecorder()
    returns, losses = [], []
    for k in range(1, 5001):
        played = rng.normal(size=rng.integers(4)).tolist()
        learned = {"loss": float(k)} if k % 3 else {}
        for one in (recorder, looked):
            add(one, k, played, **learned)
        if k % 7 == 0:
            looked.curve()
        if k == 1234:  # a barrier, after which one of them goes on elsewhere
            recorder.settle()
            looked = CurveRecorder(recorders.of_state(recorders.to_state(looked.settle())))
        returns += played
        losses += [float(k)] * bool(learned)
    found = recorder.curve()
    assert found.values.tobytes() == looked.curve().values.tobytes()
    assert LIMIT / 2 <= len(found) <= LIMIT
    assert set(np.diff(found["iterations"][:-1])) == {32.0}
    whole = row(recorders.thinned(found, 1))
    assert (whole["n"], whole["learned"], whole["iterations"]) == (len(returns), len(losses), 5000)
    assert whole["mean"] == pytest.approx(np.mean(returns))
    assert whole["m2"] == pytest.approx(np.var(returns) * len(returns))
    assert (whole["low"], whole["high"]) == (min(returns), max(returns))
    assert whole["loss"] == pytest.approx(np.mean(losses))


def test_missing_points_are_gaps() -> None:
    recorder = CurveRecorder(curve([]))
    add(recorder, 2, [2.0], mean=7.0, kl=float("inf"))
    found = recorder.curve()
    assert np.isnan(found["mean"]).tolist() == [True, False]
    assert np.isnan(found["kl"]).all()
    assert np.isnan(found["learner_mean"]).tolist() == [True, False]  # a metric whose name is taken
    assert np.isnan(found["unknown"]).all()
    assert row(recorders.thinned(found, 1))["mean"] == 2.0


def test_metrics_that_are_named_anew_each_time_end_somewhere() -> None:
    recorder = CurveRecorder()
    for k in range(1, 301):
        add(recorder, k, [], **{f"loss_{k}": 1.0})
    assert recorder.curve().values.shape == (150, len(recorders.FIXED) + recorders.METRICS)


def test_tasks_follow_one_another() -> None:
    recorder = CurveRecorder()
    add(recorder, 1, [3.0], seconds=1.5, loss=0.5)
    found = recorders.joined([curve([1.0], [2.0], seconds=2.0), EMPTY, recorder.curve()])
    assert found["env_steps"].tolist() == [10.0, 20.0, 30.0]
    assert found["seconds"].tolist() == [2.0, 4.0, 5.5]
    assert found["mean"].tolist() == [1.0, 2.0, 3.0]
    assert np.isnan(found["loss"]).tolist() == [True, True, False]
    assert len(recorders.joined([])) == 0


def test_the_newest_of_it() -> None:
    found = curve(*([float(k), float(k)] for k in range(4)), seconds=2.0)
    assert row(recorders.last(found, episodes=3))["mean"] == 2.5  # those of two points are needed
    assert row(recorders.last(found, episodes=99))["n"] == 8
    assert recorders.per_second(found, over=3.0) == 5.0
    assert np.isnan(recorders.per_second(EMPTY, over=3.0))
