"""TensorBoard's reader, for which `ludus.reporting.tensorboard` writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


def point(tag, step, value=0.0):
    return Event(wall_time=1.0, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]))


def start(step):
    return Event(wall_time=1.0, step=step, session_log=SessionLog(status=SessionLog.START))


def write(folder: Path, name, events):
    path = folder / f"events.out.tfevents.{name}"
    with path.open("wb") as stream:
        for event in [Event(wall_time=1.0, file_version="brain.Event:2"), *events]:
            RecordWriter(stream).write(event.SerializeToString())
    return path


def steps(folder: Path, tag):
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    return [event.step for event in accumulator.Scalars(tag)]


def killed_and_resumed(folder: Path, *first):
    """Two sessions over one axis: 0 to 10, and after a kill again 6 to 12. first: events at the head of the second file."""
    write(folder, 1, [point("a", step) for step in range(11)])
    write(folder, 2, [*first, *(point("a", step) for step in range(6, 13))])


def test_steps_that_go_back_are_kept_beside_the_former_ones(tmp_path: Path):
    """Why a resumed run begins its files with an event of a session's start."""
    killed_and_resumed(tmp_path)
    assert len(steps(tmp_path, "a")) == 18


def test_start_of_a_session_purges_its_step_and_later_ones(tmp_path: Path):
    """`TensorBoardWriter._begin` gives the first step that the session writes."""
    killed_and_resumed(tmp_path, start(6))
    assert steps(tmp_path, "a") == [*range(13)]


def test_start_of_a_session_purges_all_tags(tmp_path: Path):
    """Why each axis has a folder of its own: a start at generation 2 would take the points of later decisions."""
    write(
        tmp_path,
        1,
        [point("generations", 1), point("decisions", 500), point("generations", 2), point("decisions", 900)],
    )
    write(tmp_path, 2, [start(2), point("generations", 2)])
    assert steps(tmp_path, "generations") == [1, 2]
    assert steps(tmp_path, "decisions") == []


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_record_that_a_kill_has_cut_ends_its_file_only(cut, tmp_path: Path):
    """A killed session may leave half an event; what it wrote before and what the next session writes are read."""
    path = write(tmp_path, 1, [point("a", 1), point("a", 2)])
    path.write_bytes(path.read_bytes()[:-cut])
    write(tmp_path, 2, [start(2), point("a", 2), point("a", 3)])
    assert steps(tmp_path, "a") == [1, 2, 3]


def test_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: Path):
    """Why `_begin` numbers files beyond the last one of the folder: a clock may go back between two sessions."""
    write(tmp_path, "0000000002", [start(2), point("a", 2)])
    write(tmp_path, "0000000001", [point("a", 1), point("a", 2), point("a", 3)])
    assert steps(tmp_path, "a") == [1, 2]
