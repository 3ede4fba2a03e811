"""A run that grows is read again only where it has grown."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.core.types import (
    AdaptiveMixture,
    Mixture,
    OpponentFactor,
    PolicyRef,
    PolicySpec,
    TrainingResult,
    TrainingTask,
)
from ludus.storage.reader import Memory, Reader
from ludus.storage.records import read_batch
from ludus.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.create(tmp_path / "run", synthetic.info(tmp_path / "run"))
    for player in (0, 1):
        for place in (0, 1):
            store.policy_added(synthetic.policy(player, place))
    store.matches_recorded([synthetic.match("a", (0, 1), 2, [1.0, -1.0], [2.0, 2.0])])
    store.commit("c1")
    return store


def test_more_matches_of_a_profile_are_pooled_with_those_before(store: Store) -> None:
    memory = Memory()
    with store:
        with Reader(store.run_dir, memory=memory) as reader:
            first = reader.payoff_log()
            assert first.mean[:, 0, 1].tolist() == [1.0, -1.0]
        # 0 and 2 with mean 1, and three of 2: mean (0 + 2 + 6) / 5 = 1.6, M2 = (1.6² + 0.4²) + 3 * 0.4² = 3.2.
        store.matches_recorded([synthetic.match("b", (0, 1), 3, [2.0, -2.0], [0.0, 0.0])])
        store.payoffs_recorded(np.array([[1, 1]]), np.array([[0.5, -0.5]]))
        store.commit("c2")
        with Reader(store.run_dir, memory=memory) as reader:
            later = reader.payoff_log()
    assert later.mean[0, 0, 1] == pytest.approx(1.6)
    assert later.m2[0, 0, 1] == pytest.approx(3.2)
    assert (later.count[0, 1], later.wins[0, :, 0, 1].tolist()) == (5, [5, 0, 0])
    assert (later.mean[0, 1, 1], bool(later.exact[1, 1])) == (0.5, True)
    assert (first.count[0, 1], first.mean[0, 0, 1]) == (2, 1.0)  # what was given out stays as it was


def test_exact_payoffs_stay_exact_after_matches(store: Store) -> None:
    memory = Memory()
    with store:
        store.payoffs_recorded(np.array([[1, 1]]), np.array([[0.5, -0.5]]))
        store.commit("c2")
        with Reader(store.run_dir, memory=memory) as reader:
            reader.payoff_log()
        store.matches_recorded([synthetic.match("b", (1, 1), 3, [2.0, -2.0], [1.0, 1.0])])
        store.commit("c3")
        with Reader(store.run_dir, memory=memory) as reader:
            log = reader.payoff_log()
    assert (log.mean[0, 1, 1], log.m2[0, 1, 1], log.count[1, 1]) == (0.5, 0.0, 3)


def test_a_new_policy_adds_holes(store: Store) -> None:
    memory = Memory()
    with store:
        with Reader(store.run_dir, memory=memory) as reader:
            reader.payoff_log()
        store.policy_added(synthetic.policy(1, 2))
        store.commit("c2")
        with Reader(store.run_dir, memory=memory) as reader:
            log = reader.payoff_log()
    assert log.sizes == (2, 3)
    assert np.isnan(log.mean[0]).tolist() == [[True, False, True], [True, True, True]]


def test_rows_dropped_on_resume_are_forgotten(store: Store) -> None:
    memory = Memory()
    with store:
        store.matches_recorded([synthetic.match("b", (0, 1), 2, [3.0, -3.0], [0.0, 0.0])])
        store.commit("c2")
        with Reader(store.run_dir, memory=memory) as reader:
            assert reader.payoff_log().mean[0, 0, 1] == 2.0
            before = reader.position()
        store.rewind("c1")
        store.matches_recorded([synthetic.match("b", (0, 1), 2, [5.0, -5.0], [0.0, 0.0])])
        store.commit("c2")
        with Reader(store.run_dir, memory=memory) as reader:
            assert reader.position() != before
            assert not reader.grew_from(before)
            assert reader.payoff_log().mean[0, 0, 1] == 3.0


def test_the_position_tells_what_has_changed(store: Store) -> None:
    with store, Reader(store.run_dir) as reader:
        before = reader.position()
        store.event("run", "not committed yet")
        assert reader.position() is before  # nothing is asked again
        store.commit("c2")
        after = reader.position()
        assert (after.barrier, after.events) == (before.barrier + 1, before.events + 2)
        assert replace(after, barrier=before.barrier, committed=before.committed, events=before.events) == before
        with Reader(store.run_dir) as other:
            assert other.position() == after  # of another connection too


def test_a_moment_sees_nothing_that_comes_later(store: Store) -> None:
    with store, Reader(store.run_dir) as reader:
        with reader.moment():
            assert len(reader.policies()) == 4
            store.policy_added(synthetic.policy(1, 2))
            store.commit("c2")
            assert len(reader.policies()) == 4
        assert len(reader.policies()) == 5


def test_a_thing_is_made_again_when_what_it_depends_on_has_changed(store: Store) -> None:
    memory, made = Memory(), []

    def number() -> int:
        with Reader(store.run_dir, memory=memory) as reader:
            return reader.remembered("number", lambda: made.append(1) or len(made), of=("policies",))

    with store:
        assert (number(), number()) == (1, 1)
        store.event("run", "on")
        store.commit("c2")
        assert number() == 1
        store.policy_added(synthetic.policy(1, 2))
        store.commit("c3")
        assert (number(), number()) == (2, 2)
        store.rewind("c2")
        store.policy_added(synthetic.policy(1, 2))  # as many as before, and perhaps another one
        store.commit("c3")
        assert number() == 3


def test_matches_without_winners_and_damaged_ones(store: Store) -> None:
    won = synthetic.match("b", (1, 0), 4, [0.5, -0.5], [1.0, 1.0])
    with store:
        store.matches_recorded([replace(won, id="c", wins=()), replace(won, wins=((3, 0, 1), (1, 0, 3)))])
        store.commit("c2")
    with closing(sqlite3.connect(store.path)) as connection:
        batch = read_batch(connection, after=1, last=3, players=2)
        assert batch.profiles.tolist() == [[1, 0], [1, 0]]
        assert batch.wins.tolist() == [[[0, 0, 0], [0, 0, 0]], [[3, 0, 1], [1, 0, 3]]]
        assert (batch.n.tolist(), batch.mean[0].tolist(), batch.exact.tolist()) == ([4, 4], [0.5, -0.5], [False, False])
        assert len(read_batch(connection, after=3, last=3, players=2)) == 0
        for damage, said in (("'[0, x]'", "whole number"), ("'[0, 1, 2]'", "reshape")):
            connection.execute(f"UPDATE matches SET profile = {damage} WHERE rowid = 2")
            with pytest.raises(ValueError, match=said):
                read_batch(connection, after=1, last=3, players=2)


def test_few_points_of_a_long_curve_end_where_it_ends(store: Store) -> None:
    task = synthetic.training(0, 1)
    with store, Reader(store.run_dir) as reader:
        assert reader.curve(task.id, points=3) is None
        store.task_started(task)
        store.curve_recorded(task.id, synthetic.curve(7))
        store.commit("c2")
        found = reader.curve(task.id, points=3)
        assert found is not None
        assert found["iterations"].tolist() == [1.0, 4.0, 7.0]


def test_events_from_the_newest_and_after_one(store: Store) -> None:
    with store, Reader(store.run_dir) as reader:
        for k in range(5):
            store.event("worker" if k == 2 else "run", f"text {k}", level="warning" if k == 2 else "info")
        store.commit("c2")
        first = reader.last_events(limit=5)[0].seq
        assert [event.text for event in reader.last_events(limit=2)] == ["text 3", "text 4"]
        assert [event.text for event in reader.last_events(limit=9, levels=("warning",))] == ["text 2"]
        assert [event.text for event in reader.last_events(limit=9, kinds=("worker",))] == ["text 2"]
        assert [event.text for event in reader.events_after(first + 1, limit=2)] == ["text 2", "text 3"]
        assert reader.event_counts() == {"info": 4, "warning": 1}


def _met(reader: Reader) -> list[tuple[int, str, float]]:
    return [(one.player, one.policy, one.probability) for one in reader.opponents()]


def test_whom_a_task_met(store: Store) -> None:
    """In the seat that only the learner plays nobody is met; of a joint mixture each seat's share is told; what a rule has moved is told
    as it was on average."""
    a, b = PolicyRef(1, "p0"), PolicyRef(1, "p1")
    start = Mixture(
        (
            OpponentFactor((0,), ((PolicyRef(0, "p0"),),), (1.0,)),
            OpponentFactor((1,), ((a,), (b,), (a._replace(mode="greedy"),)), (0.25, 0.25, 0.5)),
        )
    )
    task = TrainingTask("t", 1, 0, (0,), "p2", AdaptiveMixture(start, "rule"))
    with store, Reader(store.run_dir) as reader:
        store.task_started(task)
        store.commit("c2")
        assert _met(reader) == [(1, "p0", 0.75), (1, "p1", 0.25)]
        average = Mixture((OpponentFactor((1,), ((b,),), (1.0,)),))
        store.task_done(TrainingResult(task, PolicyRef(0, "p2"), PolicySpec("random"), {}, {}, {}, average=average))
        store.commit("c3")
        assert _met(reader) == [(1, "p1", 1.0)]
        both = Mixture((OpponentFactor((0, 1), ((PolicyRef(0, "p0"), a), (PolicyRef(0, "p0"), b)), (0.5, 0.5)),))
        store.task_started(TrainingTask("u", 1, 0, (0, 1), "p3", both))
        store.commit("c4")
        assert _met(reader)[1:] == [(0, "p0", 1.0), (1, "p0", 0.5), (1, "p1", 0.5)]
        assert _met(reader)[0] == (1, "p1", 1.0)
