"""pause, throttle, unpause, stop and status, beside a loop that stands for a driver."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import synthetic_run as synthetic

from ludus.cli.main import main
from ludus.core.types import Mixture, TrainingTask
from ludus.runs.control import (
    STATUS_FILE,
    Control,
    LiveOrder,
    Status,
    StopRequest,
    read_order,
    read_status,
    remove_live_files,
    write_live_file,
)
from ludus.storage.base import NullObserver, RunSummary
from ludus.storage.store import Store

RUN = "try1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LUDUS_DEBUG", raising=False)
    return synthetic.write(tmp_path / "runs" / RUN, generations=2, finished=False)


class Driver(threading.Thread):
    """Holds the run's lock and asks after each step, until it is stopped."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.stop, self.paces = folder, StopRequest(), list[str]()
        self.checkpoints = 0
        self.ready = threading.Event()
        self.listens = threading.Event()
        self.listens.set()

    def _checkpoint(self) -> None:
        self.checkpoints += 1

    def run(self) -> None:
        class Watcher(NullObserver):
            def pace_changed(_, pace: str) -> None:
                self.paces.append(pace)

        with (
            Store.open(self.folder) as store,
            closing(Control(self.folder, self.stop, observer=Watcher(), event=lambda kind, text: None)) as control,
        ):
            control.run_started(synthetic.info(self.folder))
            control.task_started(TrainingTask("t", 3, 1, (1,), "1-3", Mixture(())))
            control.task_progress(0.25, {})
            control.check()
            self.ready.set()
            while not self.stop.requested:
                time.sleep(0.001)  # its step, in which others may work
                self.listens.wait()
                control.check(checkpoint=self._checkpoint)
            store.run_finished(RunSummary(self.folder, 2, 4.0, 100, 0.5, self.stop.reason, complete=False))


@pytest.fixture
def driver(folder: Path) -> Iterator[Driver]:
    driver = Driver(folder)
    driver.start()
    assert driver.ready.wait(20)
    yield driver
    driver.stop.request("the test is over")
    driver.listens.set()
    driver.join(20)
    assert not driver.is_alive()


def said(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_pause_and_unpause(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pause", RUN]) == 0
    assert said(capsys) == (
        "try1 is paused, in generation 3: best response of population 1 (25%). Continue with: ludus unpause try1\n"
    )
    assert main(["pause", RUN]) == 0
    assert said(capsys).startswith("try1 is paused already, in generation 3")
    assert main(["unpause", RUN]) == 0
    assert said(capsys) == "try1 continues.\n"
    assert main(["unpause", RUN]) == 0
    assert said(capsys) == "try1 is not paused; it runs.\n"
    assert driver.paces == ["paused", ""]


def test_throttle_by_share_and_percent(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["throttle", RUN, "50%"]) == 0
    assert main(["throttle", f"runs/{RUN}", "0.25"]) == 0
    assert main(["pause", RUN]) == 0
    assert main(["throttle", RUN, "0.1"]) == 0
    assert main(["unpause", RUN]) == 0
    assert main(["throttle", RUN, "1"]) == 0
    assert said(capsys).splitlines() == [
        "try1 runs at 50% of full speed.",
        "runs/try1 runs at 25% of full speed.",
        "try1 is paused, in generation 3: best response of population 1 (25%). Continue with: ludus unpause try1",
        "try1 runs at 10% of full speed, once it is unpaused: ludus unpause try1.",
        "try1 continues at 10% of full speed.",
        "try1 runs at full speed.",
    ]
    assert driver.paces == ["at 50% of full speed", "at 25% of full speed", "paused", "at 10% of full speed", ""]


def test_stop_waits_for_the_end(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pause", RUN]) == 0
    capsys.readouterr()
    assert main(["stop", RUN]) == 0
    assert said(capsys) == "try1 ended: it was stopped by `ludus stop`; `ludus resume try1` goes on with it.\n"
    err = refused(["pause", RUN], capsys)
    assert err == (
        "error: run 'try1' is not running: it was stopped by `ludus stop`; `ludus resume try1` goes on with it.\n"
    )


def test_checkpoint_waits_for_it(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", RUN]) == 0
    assert said(capsys) == "try1 has taken a checkpoint, in generation 3: best response of population 1 (25%).\n"
    assert driver.checkpoints == 1
    driver.listens.clear()
    err = refused(["checkpoint", RUN, "--wait", "0.1"], capsys)
    assert "has taken no checkpoint within 0.1 seconds. The order stands" in err


@pytest.mark.parametrize("line", [["pause"], ["throttle", "0.5"], ["stop"]])
def test_a_driver_in_a_long_step(
    driver: Driver, line: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.listens.clear()
    err = refused([line[0], RUN, *line[1:], "--wait", "0.1"], capsys)
    assert "within 0.1 seconds. The order stands: the run listens when its step ends" in err
    order = read_order(folder)
    assert order is not None
    assert order == LiveOrder(
        order.session, paused=line[0] == "pause", speed=float((*line, 1)[1]), stop=line[0] == "stop"
    )


def test_an_order_that_was_not_taken_can_be_taken_back(
    driver: Driver, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.listens.clear()
    refused(["pause", RUN, "--wait", "0"], capsys)
    assert main(["unpause", RUN]) == 0
    driver.listens.set()
    assert main(["throttle", RUN, "0.5"]) == 0
    assert main(["stop", RUN]) == 0
    assert driver.paces == ["at 50% of full speed"]


def test_an_order_for_a_run_that_ended_in_this_moment_is_taken_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_as_killed(folder, host="node7")
    write = write_live_file

    def ends_meanwhile(folder: Path, value: LiveOrder | Status) -> None:
        remove_live_files(folder)
        write(folder, value)

    monkeypatch.setattr("ludus.apps.common.control_requests.write_live_file", ends_meanwhile)
    assert "is not running" in refused(["pause", RUN], capsys)
    assert not list(folder.glob("*.json"))


def test_orders_add_up(driver: Driver, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    driver.listens.clear()
    refused(["throttle", RUN, "0.5", "--wait", "0"], capsys)
    refused(["pause", RUN, "--wait", "0"], capsys)
    driver.listens.set()
    assert main(["pause", RUN]) == 0
    status = read_status(folder)
    assert status is not None
    assert (status.paused, status.speed) == (True, 0.5)


def test_status_of_a_run_that_goes_on(driver: Driver, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pause", RUN]) == 0
    capsys.readouterr()
    assert main(["status", RUN]) == 0
    lines = [" ".join(line.split()) for line in said(capsys).splitlines()]
    status = read_status(folder)
    assert status is not None
    assert lines[0] == "try1"
    assert lines[1].startswith("state paused, for 0.")
    assert lines[2:4] == [
        "doing generation 3, best response of population 1, 25%",
        f"process {status.pid} on this machine, alive",
    ]
    assert lines[4].startswith("since 20")
    assert lines[-1].startswith("complete generation 2 of 20 after 4.2s, NashConv ")
    assert main(["runs"]) == 0
    assert said(capsys).splitlines()[-1].split()[-1] == "paused"


def test_status_of_runs_that_have_ended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", RUN]) == 0
    assert [" ".join(line.split()) for line in said(capsys).splitlines()][1] == "state interrupted"
    synthetic.write(folder.parent / "done", generations=1)
    assert main(["status", "done"]) == 0
    assert "finished: reached generations=1" in said(capsys)


def leave_as_killed(folder: Path, **changes: object) -> None:
    """What a driver that was killed has left: both files, no lock."""
    control = Control(folder, StopRequest(), observer=NullObserver(), event=lambda kind, text: None)
    control.task_started(TrainingTask("t", 3, 1, (1,), "1-3", Mixture(())))
    control._tell_at = 0.0
    control.check()
    status = read_status(folder)
    assert status is not None
    write_live_file(folder, replace(status, **changes))  # type: ignore[arg-type]


def test_a_run_that_was_killed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave_as_killed(folder)
    assert main(["status", RUN]) == 0
    out = [" ".join(line.split()) for line in said(capsys).splitlines()]
    assert out[1:3] == ["state interrupted", "was doing generation 3, best response of population 1"]
    assert out[3].endswith("on this machine, gone")
    assert out[-1] == "continue its process was killed, or its machine stopped: ludus resume try1"
    for command in ("pause", "unpause", "stop"):
        assert refused([command, RUN], capsys) == (
            "error: run 'try1' is not running: it was interrupted; `ludus resume try1` goes on with it.\n"
        )
    order = read_order(folder)
    assert order is not None
    assert not order.paused


def test_a_finished_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    synthetic.write(folder.parent / "done", generations=1)
    assert refused(["throttle", "done", "0.5"], capsys) == (
        "error: run 'done' is not running: it is finished (reached generations=1); "
        "`ludus resume done` with a higher generations=N, or another stop, extends it.\n"
    )


def test_a_driver_on_another_machine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whose lock this file system does not show: it may live, and the order is left for it."""
    leave_as_killed(folder, host="node7")
    err = refused(["pause", RUN, "--wait", "0"], capsys)
    assert err.endswith("on node7).\n")
    order = read_order(folder)
    assert order is not None
    assert order.paused
    assert main(["status", RUN]) == 0
    assert "running, or killed: the lock of its process is not seen here" in said(capsys)


def test_a_driver_that_takes_no_orders(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(folder):
        assert "takes no orders: it is only beginning, or its Ludus is older" in refused(["pause", RUN], capsys)


def test_a_driver_of_a_newer_ludus(driver: Driver, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    driver.listens.clear()
    path = folder / STATUS_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    for line in (["pause", RUN], ["status", RUN]):
        assert "is a newer Ludus" in refused(line, capsys)


def test_a_run_of_a_newer_ludus(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import sqlite3

    with closing(sqlite3.connect(folder / "ludus.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    for line in (["pause", RUN], ["status", RUN], ["stop", RUN]):
        assert "newer" in refused(line, capsys)


def test_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (["pause", "tyr1"], ["throttle", "tyr1", "0.5"], ["unpause", "tyr1"], ["stop", "tyr1"]):
        assert "did you mean 'try1'?" in refused(line, capsys)
    Path("empty").mkdir()
    assert "'empty' is not a run" in refused(["status", "empty"], capsys)


@pytest.mark.parametrize("speed", ["0", "2", "-1", "nan", "inf", "150%", "fast", "", "%"])
def test_speeds_that_are_none(speed: str, capsys: pytest.CaptureFixture[str]) -> None:
    err = refused(["throttle", RUN, speed], capsys)
    assert "such as 0.5 or 50%" in err
    assert ("`ludus pause`" in err) == (speed == "0")


def test_a_folder_that_cannot_be_written(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.listens.clear()
    monkeypatch.setattr(
        "ludus.apps.common.control_requests.write_live_file", Mock(side_effect=PermissionError(13, "Permission denied"))
    )
    assert "no order can be left in 'runs/try1': Permission denied." in refused(["pause", RUN], capsys)


def test_a_wait_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "a number of seconds was expected" in refused(["pause", RUN, "--wait", "soon"], capsys)
