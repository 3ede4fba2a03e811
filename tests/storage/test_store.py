"""The run's database: what is written comes back, commits are all or nothing, and there is one writer."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.core.errors import RunError
from ludus.core.types import (
    EvaluationTask,
    Match,
    Mixture,
    NamedStatistics,
    PolicyRef,
    PolicySpec,
    TrainingResult,
    TrainingTask,
)
from ludus.metagame.population.base import Recorder
from ludus.metagame.population.match_log import same_match
from ludus.storage.base import RunSummary
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import is_running
from ludus.storage.store import Store


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_records_come_back_equal(run_dir: Path) -> None:
    facts = synthetic.info(run_dir, utility_range=((-13.0, 13.0), (float("-inf"), float("inf"))))
    record = synthetic.generation(3, (4, 5), nash_conv=1.25)
    joint = np.zeros((4, 5))
    joint[1, 2], joint[3, 0] = 0.125, 0.875
    with Store.create(run_dir, facts) as store:
        assert isinstance(store, Recorder)
        store.generation = 3
        store.policy_added(synthetic.policy(0, 0))
        store.policy_added(synthetic.policy(0, 1, generation=1))
        profiles = np.argwhere(joint).astype(np.int32)
        store.generation_done(replace(record, profiles=profiles, probabilities=joint[tuple(profiles.T)]))
        store.matches_recorded([synthetic.match("m1", (0, 1), 8, [0.5, -0.5], [2.0, 2.0])])
        store.metrics_recorded("episodes", 100, {"loss": 0.5, "entropy": float("nan")})
        store.metrics_recorded("episodes", 200, {"loss": 0.25})
        store.event("task", "started", level="warning")
        store.ratings_recorded(0, {"p0": 1500.0})
        store.commit("c1")
    with closing(sqlite3.connect(run_dir / "ludus.db")) as db:  # its JSON has no infinities
        (bounds,) = db.execute(
            "SELECT json_extract(value, '$.utility_range[1]') FROM run WHERE key = 'info'"
        ).fetchone()
        assert json.loads(bounds) == [None, None]
    with Reader(run_dir) as reader:
        assert reader.info() == facts
        assert reader.generations() == (record,)
        np.testing.assert_array_equal(reader.generations()[0].joint, joint)
        assert reader.generations(marginals=False)[0].joint is None
        first, second = reader.policies()
        assert (first.record, second.record) == (synthetic.policy(0, 0), synthetic.policy(0, 1, generation=1))
        assert second.record.lineage.parent == PolicyRef(0, "p0", 0)
        (stored,) = reader.matches()
        assert (stored.match.id, stored.match.n, stored.match.profile, stored.generation) == ("m1", 8, (0, 1), 3)
        assert stored.match.seats[1] == PolicyRef(1, "p1", 0)
        assert stored.match.mean.tolist() == [0.5, -0.5]
        assert stored.match.m2.tolist() == [2.0, 2.0]
        loss = reader.metrics("loss", "episodes")
        assert (loss.step.tolist(), loss.value.tolist()) == ([100, 200], [0.5, 0.25])
        assert np.isnan(reader.metrics("entropy", "episodes").value).tolist() == [True]
        assert reader.metric_names() == (("entropy", "episodes"), ("loss", "episodes"))
        assert [(event.level, event.kind, event.text) for event in reader.events()] == [("warning", "task", "started")]
        assert [rating.rating for rating in reader.ratings()] == [1500.0]
        assert [checkpoint.id for checkpoint in reader.checkpoints()] == ["c1"]
        assert reader.summary() is None


def test_tasks_and_summary_come_back(run_dir: Path) -> None:
    train = TrainingTask("t1", 1, 0, (0,), "p1", Mixture(()))
    trained = TrainingResult(
        train,
        PolicyRef(0, "p1", 0),
        PolicySpec("actor_critic"),
        {},
        {"loss": 0.5},
        {"episodes": 60},
        failure="loss became NaN",
    )
    summary = RunSummary(run_dir, 3, 9.5, 180, 0.4, "reached generations=3", report=run_dir / "report.html")
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        store.task_started(train)
        store.task_started(EvaluationTask("e1", 1))
        store.task_done(trained)
        store.commit("end")
        store.event("run", "after the last barrier")
        store.run_finished(summary)
        with Reader(run_dir) as reader:
            assert reader.state() == "finished"
    with Reader(run_dir) as reader:
        evaluated, failed = reader.tasks()
        assert (evaluated.id, evaluated.kind, evaluated.state) == ("e1", "evaluate", "started")
        assert (failed.policy, failed.state, failed.failure) == ("p1", "failed", "loss became NaN")
        assert (failed.metrics, failed.counters) == ({"loss": 0.5}, {"episodes": 60})
        assert reader.summary() == summary
        assert reader.events() == ()


def test_a_curve_grows_and_is_rewound(run_dir: Path) -> None:
    def stored() -> list[tuple[int, int]]:
        """(iterations, barrier) of each point."""
        with sqlite3.connect(run_dir / "ludus.db") as connection:
            rows = connection.execute("SELECT iterations, barrier FROM curves ORDER BY point").fetchall()
        connection.close()
        return rows

    task = synthetic.training(0, 1)
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        store.task_started(task)
        for k in (2, 3, 3):
            store.curve_recorded(task.id, synthetic.curve(k))
            store.commit(f"c{k}")
        assert stored() == [(1, 1), (2, 1), (3, 2)]  # what is the same is not written again
        store.curve_recorded(task.id, synthetic.curve(250))
        store.commit("thinned")
        assert [row[0] for row in stored()] == [2 * k for k in range(1, 126)]
        store.rewind("c2")
        store.curve_recorded(task.id, synthetic.curve(3))
        store.commit("again")
    with Reader(run_dir) as reader:
        (found,) = reader.curves()
    assert (found.task, found.generation, found.population, found.policy) == (task.id, 1, 0, "0-1")
    expected = synthetic.curve(3)
    assert found.curve.columns == expected.columns
    np.testing.assert_allclose(found.curve.values, expected.values, rtol=1e-6)
    assert found.curve.seconds.tolist() == [1.0, 2.0, 3.0]


def test_a_run_from_before_curves_is_read_and_resumed(run_dir: Path) -> None:
    synthetic.write(run_dir, generations=1)
    with sqlite3.connect(run_dir / "ludus.db") as connection:
        connection.executescript(
            "DROP TABLE batches; DROP TABLE sessions; DROP TABLE opponents; DROP TABLE curves; DROP VIEW policy_statistics; "
            "DROP TABLE statistics; PRAGMA user_version = 3;"
        )
    connection.close()
    with Reader(run_dir) as reader:
        assert (reader.curves(), len(reader.policies())) == ((), 4)
    with Store.open(run_dir) as store:
        store.curve_recorded(synthetic.training(0, 1).id, synthetic.curve(2))
        store.commit("resumed")
    with Reader(run_dir) as reader:
        assert len(reader.curves()[0].curve) == 2


def test_state_of_a_run(run_dir: Path) -> None:
    def read() -> tuple[str, str]:
        with Reader(run_dir) as reader:
            return reader.state(), reader.cause()

    summary = RunSummary(run_dir, 3, 9.5, 180, None, "stopped by Ctrl-C", complete=False)
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        assert read() == ("running", "")
        store.commit("c1")
        store.run_finished(summary)
    assert read() == ("stopped", "stopped by Ctrl-C")
    with Store.open(run_dir) as store:  # resumed, and killed
        store.begin_session("ludus 1")
        store.rewind("c1")
        assert read() == ("running", "")
    assert read() == ("interrupted", "its process was killed, or its machine stopped")
    with Store.open(run_dir) as store:  # resumed, and ended by an error
        store.begin_session("ludus 1")
        store.rewind("c1")
        store.task_started(synthetic.training(0, 1))
        store.event("no_episode", "no episode has ended", level="warning")
        store.end_session(
            "failed", "Env.step raised ValueError: no", error="ValueError", place="Env.step (env.py, line 3)"
        )
        store.end_session("finished", "a later call changes nothing")
    assert read() == ("failed", "Env.step raised ValueError: no")
    with Reader(run_dir) as reader:
        first, second, third = reader.sessions()
        assert [event.text for event in reader.events()] == ["no episode has ended"]
    assert (first.state, first.version, first.process) == ("stopped", synthetic.info(run_dir).version, os.getpid())
    assert (second.state, second.ended) == ("interrupted", None)
    assert (third.error, third.place, third.task) == (
        "ValueError",
        "Env.step (env.py, line 3)",
        synthetic.training(0, 1).id,
    )
    assert third.ended is not None


def test_matches_are_pooled_and_counted_once(run_dir: Path) -> None:
    # Cell (0, 0): samples 1, 3 (mean 2, M2 2) and 5, 5, 5 (mean 5, M2 0) pooled by hand: mean 3.8,
    # M2 = 2.8² + 0.8² + 3 · 1.2² = 12.8.
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        for player in (0, 1):
            store.policy_added(synthetic.policy(player, 0))
            store.policy_added(synthetic.policy(player, 1))
        first = synthetic.match("a", (0, 0), 2, [2.0, -2.0], [2.0, 2.0])
        store.matches_recorded([first, synthetic.match("b", (0, 0), 3, [5.0, -5.0], [0.0, 0.0]), first])
        store.commit("c1")
        store.matches_recorded([first])  # a retried match, after the commit
        store.payoffs_recorded(np.array([[1, 1], [1, 0]]), np.array([[0.5, -0.5], [0.25, -0.25]]))
        store.commit("c2")
    with Reader(run_dir) as reader:
        assert [stored.match.id for stored in reader.matches()] == ["a", "b"]
        payoffs = reader.payoffs()
    np.testing.assert_allclose(payoffs.mean[0], [[3.8, np.nan], [0.25, 0.5]])
    np.testing.assert_allclose(payoffs.mean[1], [[-3.8, np.nan], [-0.25, -0.5]])
    np.testing.assert_allclose(payoffs.m2[0], [[12.8, 0.0], [0.0, 0.0]], atol=1e-12)
    assert payoffs.count.tolist() == [[5, 0], [0, 0]]
    assert payoffs.exact.tolist() == [[False, False], [True, True]]
    assert np.argwhere(~payoffs.known).tolist() == [[0, 1]]


def test_uncommitted_rows_are_not_seen_and_not_kept(run_dir: Path) -> None:
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        store.event("run", "kept")
        store.commit("c1")
        for number in range(5000):  # more than are held in memory, so some are in the open transaction
            store.event("run", f"lost {number}")
        with Reader(run_dir) as reader:
            assert [event.text for event in reader.events()] == ["kept"]
    with Reader(run_dir) as reader:
        assert [event.text for event in reader.events()] == ["kept"]


@pytest.mark.parametrize("ends", ["by itself", "by an error"])
def test_warnings_outlive_a_session_that_ends_between_two_barriers(ends: str, run_dir: Path) -> None:
    """Until the run goes on from its last barrier, and comes to them again."""
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        store.event("early", "saved", level="warning")
        store.commit("c1")
        store.event("loss", "grew", level="warning")
        for number in range(5000):  # so that the warning is in the open transaction
            store.event("run", f"lost {number}")
        if ends == "by itself":
            store.run_finished(RunSummary(run_dir, 3, 9.5, 180, None, "stopped by Ctrl-C", complete=False))
    with Reader(run_dir) as reader:
        assert [event.text for event in reader.events()] == ["saved", "grew"]
        assert (reader.summary() is None) == (ends == "by an error")
    with Store.open(run_dir) as store:
        store.rewind("c1")
        store.commit("c2")
    with Reader(run_dir) as reader:
        assert [event.text for event in reader.events()] == ["saved"]


def test_reader_sees_commits_while_the_run_goes_on(run_dir: Path) -> None:
    with Store.create(run_dir, synthetic.info(run_dir)) as store, Reader(run_dir) as reader:
        assert is_running(run_dir)
        for number in range(3):
            store.generation_done(synthetic.generation(number, (1, 1), nash_conv=1.0))
            store.commit(f"g{number}")
            assert len(reader.generations()) == number + 1
    assert not is_running(run_dir)


def test_rewind_drops_what_came_after_the_checkpoint(run_dir: Path) -> None:
    synthetic.write(run_dir, generations=5)
    with Store.open(run_dir) as store:
        store.event("run", "never committed")
        with pytest.raises(RunError, match="'nowhere' is not in the database"):
            store.rewind("nowhere")
        store.rewind("g2")
        store.generation_done(synthetic.generation(3, (4, 4), nash_conv=9.0))
        store.commit("g3")
    with Reader(run_dir) as reader:
        assert [record.number for record in reader.generations()] == [0, 1, 2, 3]
        assert reader.generations()[3].nash_conv == 9.0
        assert [checkpoint.id for checkpoint in reader.checkpoints()] == ["g0", "g1", "g2", "g3"]
        assert len(reader.policies()) == 6
        assert int(reader.payoffs().exact.sum()) == 9  # of 3 × 3: one of a dropped policy would be an error
        assert reader.summary() is None
        assert "never committed" not in [event.text for event in reader.events()]


def test_second_writer_is_refused(run_dir: Path) -> None:
    with Store.create(run_dir, synthetic.info(run_dir)):
        with pytest.raises(RunError, match=rf"in use by another process \(pid {os.getpid()}\)"):
            Store.open(run_dir)
        with pytest.raises(RunError, match="already holds a run"):
            Store.create(run_dir, synthetic.info(run_dir))
    Store.open(run_dir).close()


def test_create_refuses_a_run_that_is_there(run_dir: Path) -> None:
    synthetic.write(run_dir, generations=1)
    before = (run_dir / "ludus.db").read_bytes()
    with pytest.raises(RunError, match="already holds a run"):
        Store.create(run_dir, synthetic.info(run_dir))
    assert (run_dir / "ludus.db").read_bytes() == before


def test_create_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be made"):
        Store.create(tmp_path / "file" / "run", synthetic.info(tmp_path))


def test_another_programs_lock_is_named_as_such(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        store._connection.execute("PRAGMA busy_timeout = 10")
        with sqlite3.connect(run_dir / "ludus.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            store.event("run", "hello")
            with pytest.raises(RunError, match=r"database is locked\. Another program writes to it"):
                store.commit("c1")
            other.execute("ROLLBACK")
        other.close()
        store.commit("c1")  # nothing was lost meanwhile
    with Reader(run_dir) as reader:
        assert [event.text for event in reader.events()] == ["hello"]


_WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import synthetic_run as synthetic
from ludus.storage.store import Store
run_dir = Path(sys.argv[1])
store = Store.create(run_dir, synthetic.info(run_dir))
number = 0
while True:
    store.generation_done(synthetic.generation(number, (2, 2), nash_conv=1.0))
    for k in range(3000):
        store.metrics_recorded("updates", number * 3000 + k, {"loss": 0.5, "entropy": 0.1})
    store.commit(f"g{number}")
    print(number, flush=True)
    number += 1
"""


def test_committed_rows_survive_a_kill_in_a_transaction(run_dir: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(run_dir), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(3)]
        time.sleep(0.013)  # into some later transaction
        process.send_signal(signal.SIGKILL)
        said += [int(line) for line in process.stdout.read().split()]
    assert not is_running(run_dir)
    with Store.open(run_dir) as store:  # the dead driver's lock does not block
        store.commit("resumed")
    with Reader(run_dir) as reader:
        kept = len(reader.generations())
        assert kept in (said[-1] + 1, said[-1] + 2)  # all that was announced; perhaps one commit more
        assert len(reader.metrics("loss", "updates").step) == 3000 * kept
        assert [checkpoint.id for checkpoint in reader.checkpoints()] == [*(f"g{k}" for k in range(kept)), "resumed"]


def test_closed_run_is_one_database_file(run_dir: Path) -> None:
    synthetic.write(run_dir, generations=2)
    Reader(run_dir).close()
    assert sorted(path.name for path in run_dir.iterdir()) == ["driver.lock", "ludus.db"]


def test_database_opens_with_plain_sqlite(run_dir: Path) -> None:
    synthetic.write(run_dir, generations=2)
    connection = sqlite3.connect(run_dir / "ludus.db")
    try:
        assert connection.execute(
            "SELECT id, parent_id, start FROM lineage WHERE population = 1 ORDER BY id"
        ).fetchall() == [
            ("p0", None, "random"),
            ("p1", "p0", "last"),
            ("p2", "p1", "last"),
        ]
    finally:
        connection.close()


def counted_match(identifier: str, goals: float) -> Match:
    """Of 4 episodes, in 3 of which player 1's shots are known."""
    n, mean = np.array([[4, 4], [4, 3]]), np.array([[goals, 2.5], [0.0, 1 / 3]])
    statistics = NamedStatistics(("goals", "shots"), n, mean, np.array([[1.5, 0.0], [0.0, 2 / 3]]))
    return replace(synthetic.match(identifier, (0, 0), 4, [0.5, -0.5], [1, 1]), statistics=statistics)


def test_statistics_of_matches_come_back_to_the_bit(run_dir: Path) -> None:
    matches = [
        counted_match("m0", 0.1),
        counted_match("m1", 0.3),
        synthetic.match("m2", (0, 0), 4, [0.5, -0.5], [1, 1]),
    ]
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        store.matches_recorded(matches[:1])
        store.commit("first")
        store.matches_recorded([*matches[1:], matches[0]])
        store.commit("second")
        with Reader(run_dir) as reader:
            found = [stored.match for stored in reader.matches()]
        assert [same_match(a, b) for a, b in zip(found, matches, strict=True)] == [True, True, True]
        with sqlite3.connect(run_dir / "ludus.db") as connection:
            rows = connection.execute("SELECT * FROM policy_statistics WHERE population = 0").fetchall()
        connection.close()
        assert rows == [(0, "p0", "goals", 8, 0.2), (0, "p0", "shots", 8, 2.5)]
        store.rewind("first")
        with Reader(run_dir) as reader:
            assert [stored.match.id for stored in reader.matches()] == ["m0"]
        connection = sqlite3.connect(run_dir / "ludus.db")
        assert connection.execute("SELECT DISTINCT match FROM statistics").fetchall() == [("m0",)]
        connection.close()


def test_a_run_from_before_statistics_is_read_and_resumed(run_dir: Path) -> None:
    synthetic.write(run_dir, generations=1)
    with sqlite3.connect(run_dir / "ludus.db") as connection:
        connection.executescript(
            "DROP TABLE batches; DROP TABLE sessions; DROP TABLE opponents; DROP VIEW policy_statistics; "
            "DROP TABLE statistics; PRAGMA user_version = 4;"
        )
    connection.close()
    with Reader(run_dir) as reader:
        before = [stored.match.id for stored in reader.matches()]
        assert all(stored.match.statistics is None for stored in reader.matches())
    with Store.open(run_dir) as store:
        store.matches_recorded([counted_match("new", 1.0)])
        store.commit("resumed")
    with Reader(run_dir) as reader:
        *_, last = reader.matches()
        assert [stored.match.id for stored in reader.matches()] == [*before, "new"]
    assert same_match(last.match, counted_match("new", 1.0))
