"""TensorBoard's files, read back by its own accumulators: each step once after kills, and runs of older versions continue theirs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

from ludus.reporting.tensorboard import TensorBoard
from ludus.reporting.trackers import GENERATIONS, Point, Table, TrackedRun


def tracked(run_dir: Path, *, resumed: bool = False) -> TrackedRun:
    return TrackedRun("abcd1234", "run", run_dir, "", "kuhn", {"seed": 0}, {}, resumed)


def started(run_dir: Path, *, resumed: bool = False, history: bool = True) -> TensorBoard:
    tracker = TensorBoard(history=history)
    tracker.start(tracked(run_dir, resumed=resumed))
    return tracker


def killed(tracker: TensorBoard) -> None:
    """Closes its files as they are."""
    for writer in tracker._writers.values():
        writer.close()


def point(number: int, step: int, axis: str = GENERATIONS, **values: float) -> Point:
    return Point(number, axis, "generation" if axis == GENERATIONS else "decisions", step, 1e9 + number, values)


def scalars(run_dir: Path) -> Mapping[tuple[str, str], list[tuple[int, float]]]:
    """(folder, tag) -> (step, value) in the order of the points."""
    multiplexer = EventMultiplexer(size_guidance={"scalars": 0, "tensors": 0})
    multiplexer.AddRunsFromDirectory(str(run_dir / "tensorboard"))
    multiplexer.Reload()
    return {
        (folder, tag): [(event.step, event.value) for event in multiplexer.Scalars(folder, tag)]
        for folder, content in multiplexer.Runs().items()
        for tag in content["scalars"]
    }


def test_points_lie_in_a_folder_of_their_axis(tmp_path: Path) -> None:
    tracker = started(tmp_path)
    records = [point(0, 0, nash_conv=2.0), point(1, 70, "population 0", loss=0.5), point(2, 1, nash_conv=1.0)]
    send = tracker.log  # numbers of records, not logarithms
    assert send(records) == 3
    tracker.finish("finished", "the schedule is complete")
    assert scalars(tmp_path) == {
        (GENERATIONS, "nash_conv"): [(0, 2.0), (1, 1.0)],
        ("population 0", "population 0/loss"): [(70, 0.5)],
    }


@pytest.mark.parametrize("cut", [0, 1, 9, 60])
def test_record_that_a_kill_has_cut_comes_again(cut: int, tmp_path: Path) -> None:
    """cut: bytes that the last file lacks. Whatever it is, both points are there once after the second session."""
    records = [point(0, 0, nash_conv=2.0), point(1, 1, nash_conv=1.0)]
    first = started(tmp_path)
    first.log(records)
    killed(first)
    (path,) = (tmp_path / "tensorboard" / GENERATIONS).iterdir()
    path.write_bytes(path.read_bytes()[: path.stat().st_size - cut])
    again = started(tmp_path, resumed=True)
    lost = [record for record in records if not again.has(record)]
    assert len(lost) == (0 if cut == 0 else 1 if cut < 60 else 2)
    again.log([*lost, point(2, 2, nash_conv=0.5)])
    killed(again)
    assert scalars(tmp_path)[GENERATIONS, "nash_conv"] == [(0, 2.0), (1, 1.0), (2, 0.5)]


def test_step_that_is_in_the_files_is_not_written_again(tmp_path: Path) -> None:
    """As of a copy of a run, which has its files and no cursor."""
    for values in ((1.0, 2.0), (7.0, 8.0, 3.0)):
        tracker = started(tmp_path)
        tracker.log([point(k, k, value=value) for k, value in enumerate(values)])
        killed(tracker)
    assert scalars(tmp_path)[GENERATIONS, "value"] == [(0, 1.0), (1, 2.0), (2, 3.0)]


def test_axes_of_older_versions_continue_where_they_ended(tmp_path: Path) -> None:
    """Their learners counted the decisions of the whole run; here the axis ends at 900, and the learner is at 450."""
    old = started(tmp_path)
    old.log([point(0, 300, "population 0", loss=3.0), point(1, 900, "population 0", loss=2.0)])
    old.finish("killed", "")
    for steps in ((450, 500), (600,)):
        session = started(tmp_path, resumed=True, history=False)
        session.log([point(2 + k, step, "population 0", loss=1.0) for k, step in enumerate(steps)])
        killed(session)
    steps = [step for step, _ in scalars(tmp_path)["population 0", "population 0/loss"]]
    assert steps == [300, 900, 901, 951, 1051]


def test_tables_and_pictures_are_shown(tmp_path: Path) -> None:
    from ludus.apps.tracking.pictures import draw_payoffs

    tracker = started(tmp_path)
    columns = ("player 0", "player 1", "episodes", "exact", "payoff 0")
    table = Table(0, "payoffs", 4, 1e9, columns, [["a", "b", 10, 0, 0.25]])
    send = tracker.log
    assert send([table]) == 1
    (tmp_path / "payoffs.png").write_bytes(draw_payoffs(table) or b"")
    tracker.attach("payoffs.png", tmp_path / "payoffs.png")
    tracker.attach("report.html", tmp_path / "report.html")  # TensorBoard has no place for it
    killed(tracker)
    assert started(tmp_path, resumed=True).has(table)
    multiplexer = EventMultiplexer(size_guidance={"tensors": 0, "images": 0})
    multiplexer.AddRunsFromDirectory(str(tmp_path / "tensorboard"))
    multiplexer.Reload()
    (text,) = multiplexer.Tensors(GENERATIONS, "payoffs")
    assert (text.step, text.tensor_proto.string_val[0].decode().splitlines()[-1]) == (4, "|a|b|10|0|0.25|")
    (image,) = multiplexer.Images(GENERATIONS, "payoffs")
    assert (image.step, image.width, image.height) == (4, 400, 400)
