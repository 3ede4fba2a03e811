"""A tracker gets each committed record once: from the start, while the run goes on, after failures and after kills at any place."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_tools as tools
from stub_tracker import Stub, lines

from ludus.apps.tracking import cursor as cursors
from ludus.apps.tracking.committed import CommittedRun, Progress
from ludus.apps.tracking.follower import Follower, end_of
from ludus.apps.tracking.pictures import draw_payoffs
from ludus.core.errors import RunError
from ludus.core.types import TaskResult
from ludus.reporting.trackers import GENERATIONS, Point, Table
from ludus.runs.runner import run
from ludus.storage.base import GenerationRecord, NullObserver, RunInfo
from ludus.storage.reader import Reader


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two learners."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    tools.train("simulate", folder)
    return folder


def follower(run_dir: Path, file: Path, **options: Any) -> Follower:
    return Follower(run_dir, f"{file.parent.name}-{file.name}", lambda: Stub(str(file), **options))


def received(file: Path) -> list[tuple[Any, ...]]:
    """(number, axis or table, step) of all records, in the order of their arrival."""
    return [(line["number"], line.get("axis") or line["name"], line["step"]) for line in lines(file, "number")]


def assert_each_once(file: Path, expected: Sequence[tuple[Any, ...]]) -> None:
    assert sorted(received(file)) == sorted(expected)


@pytest.fixture(scope="module")
def expected(whole: Path) -> list[tuple[Any, ...]]:
    records: list[Point | Table] = []
    committed, steps, tables = CommittedRun(whole), dict[str, int](), -1
    while more := committed.records(Progress(len(records), steps, tables), limit=7):
        for record in more:
            if isinstance(record, Point):
                steps[record.axis] = record.step
            else:
                tables = record.step
        records += more
    return [(r.number, r.axis if isinstance(r, Point) else r.name, r.step) for r in records]


def test_everything_arrives_once_and_axes_rise(tmp_path: Path, whole: Path, expected: list[tuple[Any, ...]]) -> None:
    sender = follower(whole, file := tmp_path / "out")
    assert sender.finish()
    sender.close()
    assert [number for number, *_ in received(file)] == [*range(len(expected))]
    steps: dict[str, list[int]] = {}
    for _, axis, step in received(file):
        steps.setdefault(axis, []).append(step)
    assert set(steps) == {GENERATIONS, "population 0", "population 1", "machine", "payoffs", "meta_strategies"}
    assert all(a < b for axis in steps.values() for a, b in pairwise(axis))
    assert steps[GENERATIONS] == steps["payoffs"] == [0, 1, 2, 3]
    with Reader(whole) as reader:
        decisions = sum(task.counters["decisions"] for task in reader.tasks() if task.population == 0)
    assert steps["population 0"][-1] == decisions
    (start,) = lines(file, "start")
    assert start["config"]["algorithm"]["kind"] == "ppo"
    assert start["group"] == ""
    assert [line["finish"] for line in lines(file, "finish")] == ["finished"]
    assert {line["file"] for line in lines(file, "file")} >= {"scenario.yaml", "payoffs.png"}


def test_numbers_are_those_of_the_database(tmp_path: Path, whole: Path) -> None:
    sender = follower(whole, file := tmp_path / "out")
    sender.finish()
    sender.close()
    points = {(line["axis"], line["step"]): line["values"] for line in lines(file, "axis")}
    with Reader(whole) as reader:
        for record in reader.generations():
            values = points[GENERATIONS, record.number]
            assert values.get("nash_conv") == record.nash_conv
            assert [values[f"value/player_{p}"] for p in range(2)] == [*record.values]
        curves = [c for c in reader.curves() if c.population == 1]
        payoffs = reader.payoffs()
    before = 0
    for stored in curves:
        for decisions, mean in zip(stored.curve["decisions"], stored.curve["mean"], strict=True):
            values = points["population 1", before + int(decisions)]
            assert values.get("return", np.nan) == pytest.approx(mean, nan_ok=True)
        before += int(stored.curve["decisions"][-1])
    table = [line for line in lines(file, "rows") if line["name"] == "payoffs"][-1]
    means = np.array([row[table["columns"].index("payoff 0")] for row in table["rows"]], float)
    assert means == pytest.approx(payoffs.mean[0].ravel())
    assert sum(row[2] for row in table["rows"]) == payoffs.count.sum()


def test_tables_of_generations_do_not_depend_on_when_they_are_read(tmp_path: Path) -> None:
    """A table has the matches of its generation and of those before it, also when it is sent after the end."""
    (live, late), run_dir = (tmp_path / "live", tmp_path / "late"), tmp_path / "run"
    run(tools.scenario("simulate"), run_dir=run_dir, observer=Watching(run_dir, live), report=False)
    for file in (live, late):
        sender = follower(run_dir, file)
        sender.finish()
        sender.close()
    tables = [[(t["name"], t["step"], t["rows"]) for t in lines(file, "rows")] for file in (live, late)]
    assert tables[0] == tables[1]
    steps = [axis for _, axis, _ in received(live) if axis == "population 0"]
    assert len(lines(live, "start")) > 3, "several followers, one after another"
    assert len(steps) >= 6


class Watching(NullObserver):
    """Sends from another follower at each call, while the run goes on."""

    def __init__(self, run_dir: Path, file: Path) -> None:
        self.run_dir, self.file = run_dir, file

    def _send(self) -> None:
        sender = follower(self.run_dir, self.file)
        assert sender.update()
        sender.close()

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        self._send()

    def task_done(self, result: TaskResult) -> None:
        self._send()

    def generation_done(self, record: GenerationRecord) -> None:
        self._send()


class Killed(BaseException):
    """Stands for a kill: nothing handles it."""


@pytest.mark.parametrize("place", ["before log", "in log", "after log"])
@pytest.mark.parametrize("at", [0, 5])
def test_kill_around_a_batch_loses_and_doubles_nothing(
    place: str, at: int, tmp_path: Path, whole: Path, expected: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has a record at most; the kill is at the `at`-th."""
    monkeypatch.setattr("ludus.apps.tracking.follower.BATCH", 3)
    name, calls, log, file = f"{place}-{at}".replace(" ", "-"), [0], Stub.log, tmp_path / "out"

    def logging(self: Stub, records: Sequence[Point | Table]) -> int:
        calls[0] += 1
        if calls[0] != at + 1:
            return log(self, records)
        if place == "before log":
            raise Killed
        log(self, records[:1] if place == "in log" else records)
        raise Killed

    monkeypatch.setattr(Stub, "log", logging)
    sender = Follower(whole, name, lambda: Stub(str(file)))
    with pytest.raises(Killed):
        sender.update()
    sender.close()
    again = Follower(whole, name, lambda: Stub(str(file)))
    assert again.finish()
    again.close()
    assert {number for number, *_ in received(file)} == {*range(len(expected))}
    assert_each_once(file, expected)
    assert [line["resumed"] for line in lines(file, "start")] == [False, True]


def test_records_that_were_not_safe_come_again(
    tmp_path: Path, whole: Path, expected: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracker that keeps rows in memory (W&B does) loses the last ones with its process, though `log` had returned."""
    log, file = Stub.log, tmp_path / "out"
    monkeypatch.setattr("ludus.apps.tracking.follower.BATCH", 5)
    monkeypatch.setattr(Stub, "log", lambda self, records: max(0, log(self, records) - 6))
    sender = Follower(whole, "lossy", lambda: Stub(str(file)))
    sender.update()
    sender.close()
    stored = cursors.load(whole / "tracking" / "lossy.json")
    assert [record.number for record in stored.unsafe] == [*range(len(expected) - 6, len(expected))]
    kept = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(kept[:-4]), encoding="utf-8")
    again = Follower(whole, "lossy", lambda: Stub(str(file)))
    assert again.finish()
    again.close()
    assert_each_once(file, expected)
    assert cursors.load(whole / "tracking" / "lossy.json").unsafe == []


def test_failing_tracker_is_told_once_and_gets_everything_later(
    tmp_path: Path, whole: Path, expected: list[tuple[Any, ...]]
) -> None:
    told: list[str] = []
    file = tmp_path / "out"
    sender = Follower(whole, "failing", lambda: Stub(str(file), fails=3), tell=told.append)
    assert [sender.update(last=True) for _ in range(3)] == [False] * 3
    assert len(told) == 1
    assert "tracker failing fails (ConnectionError: the server is not there); the run continues" in told[0]
    assert cursors.load(whole / "tracking" / "failing.json").failures == 3
    assert not sender.update(), "a pause comes first"
    assert sender.finish()
    sender.close()
    assert told[1:] == ["tracker failing: it works again"]
    assert_each_once(file, expected)


def test_what_was_there_before_can_be_left_out(tmp_path: Path, whole: Path) -> None:
    sender = Follower(whole, "later", lambda: Stub(str(tmp_path / "out")))
    sender.skip()
    sender.finish()
    sender.close()
    assert received(tmp_path / "out") == []


def test_another_process_is_waited_for(tmp_path: Path) -> None:
    other, waits = cursors.TrackerLock(tmp_path / "x.lock", wait=int), list[str]()

    def wait() -> None:
        waits.append("once")
        other.close()  # so that there is nothing to wait for

    cursors.TrackerLock(tmp_path / "x.lock", wait=wait).close()
    cursors.TrackerLock(tmp_path / "x.lock", wait=wait).close()
    assert waits == ["once"]


def test_damaged_cursor_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RunError, match="Delete it to send everything again"):
        cursors.load(tmp_path / "x.json")


def test_run_that_is_killed_is_closed_as_killed(tmp_path: Path) -> None:
    assert tools.dies(lambda: tools.train("exact", tmp_path / "run"), tmp_path / "run", at=40) is None
    state, cause = end_of(tmp_path / "run")
    assert (state, cause) == ("killed", "its process was killed, or its machine stopped")


def test_picture_of_payoffs_is_a_png() -> None:
    rows = [
        [a, b, 10, 0, value] for a, b, value in (("x", "u", 1.0), ("x", "v", None), ("y", "u", -0.5), ("y", "v", 0.0))
    ]
    table = Table(0, "payoffs", 3, 0.0, ("player 0", "player 1", "episodes", "exact", "payoff 0"), rows)
    picture = draw_payoffs(table)
    assert picture is not None
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height) == (400, 400)
    data = picture.index(b"IDAT")
    length = struct.unpack(">I", picture[data - 4 : data])[0]
    lines_of_pixels = np.frombuffer(zlib.decompress(picture[data + 4 : data + 4 + length]), np.uint8).reshape(400, 1201)
    pixels = lines_of_pixels[:, 1:].reshape(400, 400, 3)
    assert pixels[0, 0].tolist() == [178, 24, 43]
    assert pixels[0, -1].tolist() == [128, 128, 128]
    assert pixels[-1, -1].tolist() == [247, 247, 247]
