"""Running moments and discounted returns, and segments as sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.algorithms.common.statistics import DiscountedReturns, RunningMoments
from ludus.algorithms.on_policy.batch import SegmentPieces, padded, rows_in, unpadded, unroll_segments
from ludus.core.types import PolicySpec, SegmentEnd
from ludus.policies.registry import build_policy
from ludus.testing.algorithm import synthetic_rollout


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 99))
def test_moments_of_parts_are_those_of_the_whole(sizes, seed):
    rows = np.random.default_rng(seed).normal(1e3, 2.0, (sum(sizes), 3))
    moments, at = RunningMoments((3,)), 0
    for size in sizes:
        moments.add(rows[at : at + size])
        at += size
    if not at:
        assert moments.var.tolist() == [1.0, 1.0, 1.0]
        return
    np.testing.assert_allclose(moments.mean, rows.mean(0))
    np.testing.assert_allclose(moments.var, rows.var(0), rtol=1e-9, atol=1e-9)
    again = RunningMoments((3,))
    again.load_state_dict(moments.state_dict())
    assert again.var.tobytes() == moments.var.tobytes()


def rollout_of(env, segments=6):
    policy = build_policy(PolicySpec("random", {"actions": 3}), {})
    return synthetic_rollout(env, policy, seats=(0,), segments=segments, rng=np.random.default_rng(2))


def test_discounted_returns_of_two_episodes(tensors):
    """Rewards 1, 2, 3 and 4, γ = ½: R = 1, 2.5, 4.25 and 4."""
    rollout = replace(rollout_of(tensors, 2), start=np.array([0, 3, 4]), tail=np.zeros(2, np.int8))
    given_ = DiscountedReturns(0.5)
    given_.add(rollout, np.array([1.0, 2.0, 3.0, 4.0]))
    expected = np.array([1.0, 2.5, 4.25, 4.0])
    assert given_.moments.var == pytest.approx(expected.var())
    assert given_.scale == pytest.approx(1 / expected.std())


def test_cut_episodes_go_on(tensors):
    """Agents 0 and 1 of episode 7: R = 1 and 10 are carried on, agent 0's only."""
    rollout = rollout_of(tensors, 2)
    tail = np.full(2, SegmentEnd.CUT, np.int8)
    first = replace(
        rollout, start=np.array([0, 1, 2]), tail=tail, episode=np.array([7, 7]), agent=np.array([1, 0], np.int16)
    )
    given_ = DiscountedReturns(0.5)
    given_.add(first, np.array([10.0, 1.0]))
    again = DiscountedReturns(0.5)
    again.load_state_dict(given_.state_dict())
    second = replace(first, start=np.array([0, 1, 2]), episode=np.array([7, 8]), agent=np.array([0, 0], np.int16))
    for statistics in (given_, again):
        statistics.add(second, np.array([1.0, 1.0]))
        assert statistics.moments.mean == pytest.approx(np.mean([10.0, 1.0, 1.5, 1.0]))


def part_of(rollout, episode, tail):
    """One row of an episode."""
    columns = {"start": np.array([0, 1]), "agent": np.zeros(1, np.int16), "tail": np.full(1, tail, np.int8)}
    return replace(rollout, episode=np.array([episode]), **columns)


def test_cut_episodes_go_on_after_the_rows_of_others(tensors):
    """Rewards 1, γ = 1. Episode 1 goes on after rows of episode 2, and ends with R = 3; had it gone on after its end, it would be 4."""
    rollout, statistics, said = rollout_of(tensors, 1), DiscountedReturns(1.0), []
    parts = [
        (1, SegmentEnd.CUT),
        (2, SegmentEnd.CUT),
        (1, SegmentEnd.CUT),
        (1, SegmentEnd.TERMINATED),
        (2, SegmentEnd.TERMINATED),
        (1, SegmentEnd.CUT),
    ]
    for episode, tail in parts:
        before = statistics.moments.mean * statistics.moments.count
        statistics.add(part_of(rollout, episode, tail), np.ones(1))
        said.append(float(statistics.moments.mean * statistics.moments.count - before))
    assert said == pytest.approx([1, 1, 2, 3, 2, 1])


def test_fragments_of_one_episode_that_come_together_count_as_one_after_the_other(tensors):
    """Of rewards 1, γ = 1: episode 1 is cut twice, then ends; episode 2 is cut."""
    rollout = rollout_of(tensors, 1)
    parts = [(1, SegmentEnd.CUT), (2, SegmentEnd.CUT), (1, SegmentEnd.CUT), (1, SegmentEnd.TERMINATED)]
    apart, at_once = DiscountedReturns(1.0), DiscountedReturns(1.0)
    for episode, tail in parts:
        apart.add(part_of(rollout, episode, tail), np.ones(1))
    four = replace(
        rollout,
        start=np.arange(5),
        episode=np.array([episode for episode, _ in parts]),
        agent=np.zeros(4, np.int16),
        tail=np.array([tail for _, tail in parts], np.int8),
    )
    assert at_once.begins(four).tolist() == [True, True, False, False]
    at_once.add(four, np.ones(4))
    assert at_once.moments.mean == pytest.approx(np.mean([1, 1, 2, 3]))
    assert apart.moments.mean == pytest.approx(at_once.moments.mean)
    for name, column in apart.state_dict().items():
        if name != "moments":
            assert at_once.state_dict()[name].tolist() == column.tolist()


def test_of_episodes_that_never_go_on_the_oldest_are_forgotten(tensors, monkeypatch):
    """Two are remembered beside the newest."""
    monkeypatch.setattr("ludus.algorithms.common.statistics._OPEN", 2)
    rollout, statistics = rollout_of(tensors, 1), DiscountedReturns(1.0)
    for episode in (5, 1, 4, 3, 2):
        statistics.add(part_of(rollout, episode, SegmentEnd.CUT), np.ones(1))
    assert (statistics.state_dict()["open"] >> 16).tolist() == [4, 3, 2]
    statistics.add(part_of(rollout, 4, SegmentEnd.TERMINATED), np.ones(1))
    assert (statistics.state_dict()["open"] >> 16).tolist() == [3, 2]
    statistics.add(part_of(rollout, 3, SegmentEnd.TRUNCATED), np.ones(1))
    assert (statistics.state_dict()["open"] >> 16).tolist() == [2]


segments = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(segments, st.integers(1, 5))
def test_pieces_are_all_rows_in_order(lengths, longest):
    start = np.append(0, np.cumsum(lengths))
    pieces = SegmentPieces.of(start, longest)
    sizes = np.diff(pieces.start)
    assert pieces.start[0] == 0
    assert sizes.max() <= longest
    assert sizes.min() >= 1
    for s, length in enumerate(lengths):
        mine = pieces.segment == s
        assert sizes[mine].sum() == length
        assert pieces.place[mine].tolist() == list(range(mine.sum()))
        assert pieces.start[:-1][mine][0] == start[s]
    columns = {"a": np.arange(start[-1]), "b": np.arange(2.0 * start[-1]).reshape(-1, 2)}
    items = padded(columns, pieces, longest)
    rows, starts = unpadded(items)
    assert all(np.array_equal(rows[name], columns[name]) for name in columns)
    assert np.array_equal(starts, pieces.start)


@given(segments, st.integers(1, 5))
def test_a_walk_hands_the_memory_on(lengths, longest):
    """A memory that counts rows, and values that are the count so far."""
    start = np.append(0, np.cumsum(lengths))
    pieces = SegmentPieces.of(start, longest)

    def look(rows, memory, starts):
        count = (
            np.repeat(memory[:, 0], np.diff(starts)) + np.arange(len(rows)) - np.repeat(starts[:-1], np.diff(starts))
        )
        return count, (memory[:, 0] + np.diff(starts))[:, None].astype(np.float32)

    values, before, after = unroll_segments(pieces, np.zeros((len(lengths), 1), np.float32), look)
    expected = np.concatenate([np.arange(n) for n in lengths])
    assert values.tolist() == expected.tolist()
    assert before[:, 0].tolist() == expected[pieces.start[:-1]].tolist()
    assert after[:, 0].tolist() == lengths


def test_rows_of_some_segments():
    rows, starts = rows_in(np.array([0, 2, 5, 6]), np.array([2, 0]))
    assert rows.tolist() == [5, 0, 1]
    assert starts.tolist() == [0, 1, 3]
