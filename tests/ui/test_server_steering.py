"""Orders that the page leaves for a run's driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import synthetic_run as synthetic
from server_tools import Asker, asking

from ludus.apps.ui.server import control_routes
from ludus.runs.control import Control, StopRequest, read_order
from ludus.storage.base import NullObserver
from ludus.storage.store import Store


class Driver(threading.Thread):
    """Holds the run's lock and asks after each step while it listens, until it is stopped."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.stop, self.checkpoints = folder, StopRequest(), 0
        self.ready, self.listens = threading.Event(), threading.Event()
        self.listens.set()

    def _checkpoint(self) -> None:
        self.checkpoints += 1

    def run(self) -> None:
        with (
            Store.open(self.folder),
            closing(Control(self.folder, self.stop, observer=NullObserver(), event=lambda kind, text: None)) as control,
        ):
            self.ready.set()
            while not self.stop.requested:
                time.sleep(0.001)  # its step, in which others may work
                self.listens.wait()
                control.check(checkpoint=self._checkpoint)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(synthetic.write(tmp_path / "runs" / "try1", generations=1, finished=False))
    driver.start()
    assert driver.ready.wait(20)
    yield driver
    driver.stop.request("the test is over")
    driver.listens.set()
    driver.join(20)
    assert not driver.is_alive()


@pytest.fixture
def asker(driver: Driver) -> Iterator[Asker]:
    with asking(driver.folder.parent) as asker:
        yield asker


def test_a_run_is_paused_slowed_and_stopped(driver: Driver, asker: Asker) -> None:
    path = f"/api/runs/{asker.run_id('try1')}/order"
    session = asker.order(path, {"do": "pause"}).json()["status"]["session"]
    orders = [{"do": "throttle", "speed": 0.25}, {"do": "checkpoint"}, {"do": "go_on", "session": session}]
    replies = [asker.order(path, order).json() for order in orders]
    assert [reply["status"]["state"] for reply in replies] == ["paused", "paused", "running at 25%"]
    assert [reply["status"]["pace"] for reply in replies] == [0.0, 0.0, 0.25]
    assert [reply["taken"] for reply in replies] == 3 * [True]
    assert (driver.checkpoints, replies[2]["status"]["checkpoints"]) == (1, 1)
    stopped = asker.order(path, {"do": "stop", "session": session}).json()
    assert stopped["status"] is None or stopped["status"]["state"] == "stopping"
    driver.join(20)
    late = asker.order(path, {"do": "pause"})
    assert (late.status_code, "run 'try1' is not running" in late.json()["error"]) == (409, True)


def test_an_order_that_is_not_taken_yet_stands(driver: Driver, asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_routes, "WAIT", 0.0)
    driver.listens.clear()
    reply = asker.order(f"/api/runs/{asker.run_id('try1')}/order", {"do": "checkpoint"}).json()
    assert (reply["taken"], reply["status"]["state"]) == (False, "running")
    order = read_order(driver.folder)
    assert order is not None
    assert order.checkpoints == 1


def test_an_order_is_for_the_session_that_the_page_shows(driver: Driver, asker: Asker) -> None:
    reply = asker.order(f"/api/runs/{asker.run_id('try1')}/order", {"do": "stop", "session": "another"})
    assert (reply.status_code, "another session" in reply.json()["error"]) == (409, True)
    assert not driver.stop.requested


def test_orders_that_are_none(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "try1", generations=0)
    wrong: list[object] = [
        {},
        {"do": "fly"},
        {"do": "throttle"},
        {"do": "pause", "speed": 0.5},
        {"do": "throttle", "speed": 0},
        {"do": "throttle", "speed": 2},
        {"do": "throttle", "speed": "NaN"},
        {"do": "pause", "more": 1},
        [],
        "pause",
    ]
    with asking(tmp_path) as asker:
        path = f"/api/runs/{asker.run_id('try1')}/order"
        for order in wrong:
            reply = asker.order(path, order)
            assert (reply.status_code, [*reply.json()]) == (422, ["error"]), order
        assert asker.order(path, {"do": "pause"}).status_code == 409
