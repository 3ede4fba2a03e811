"""A run steered from the page: what cannot be undone is asked twice, and who may only watch has no buttons."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import synthetic_run as synthetic
from page_tools import Server, opened

from ludus.runs.control import STATUS_FILE, Status, read_order, read_status, write_live_file
from ludus.storage.reader import Reader
from ludus.storage.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Of a run whose driver lives, and never takes an order."""
    folder = tmp_path / "runs" / "steered"
    with Store.create(folder, synthetic.info(folder, generations=4)) as store:
        store.policy_added(synthetic.policy(0, 0))
        store.generation_done(synthetic.generation(0, (1, 1), nash_conv=4.0))
        store.commit("g0")
        status = Status(
            "a session", socket.gethostname(), 1, "0.1.0", began=0.0, written=0.0, generation=1, generations=4
        )
        write_live_file(folder, status)
        yield store


@pytest.fixture
def run_dir(store: Store) -> Path:
    return store.run_dir


def test_stop_is_asked_twice(browser: Any, run_dir: Path) -> None:
    with Server(run_dir.parent) as server, opened(browser, server) as page:
        page.get_by_role("link", name="steered", exact=True).click()
        stop = page.get_by_role("button", name="Stop …")
        stop.click()
        assert page.evaluate("document.activeElement.textContent") == "No"
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.textContent") == "Stop …"
        page.get_by_role("combobox", name="Speed").select_option("0.5")
        page.get_by_role("button", name="Pause").click()
        _wait(page, run_dir, "paused")
        order = read_order(run_dir)
        assert order is not None
        assert (order.paused, order.speed, order.stop, order.session) == (True, 0.5, False, "a session")
        stop.click()
        page.get_by_role("button", name="Yes, stop the run").click()
        _wait(page, run_dir, "stop")
        assert page.messages == []


def test_buttons_and_tabs_come_when_the_run_goes_on_and_can_be_played(browser: Any, store: Store) -> None:
    run_dir = store.run_dir
    status = read_status(run_dir)
    assert status is not None
    (run_dir / STATUS_FILE).unlink()  # as before `ludus resume`, and before the first policy is there
    with Server(run_dir.parent) as server, opened(browser, server) as page:
        page.get_by_role("link", name="steered", exact=True).click()
        page.wait_for_selector("h1:has-text('steered')")
        play, pause = page.get_by_role("link", name="Play", exact=True), page.get_by_role("button", name="Pause")
        assert (play.count(), pause.count()) == (0, 0)
        with Reader(run_dir) as reader:
            first = reader.any_policy()
        assert first is not None
        (run_dir / first.file).parent.mkdir(parents=True)
        (run_dir / first.file).write_bytes(b"weights")
        write_live_file(run_dir, status)
        pause.wait_for()
        store.policy_added(synthetic.policy(0, 1))
        store.commit("g1")
        play.wait_for()
        assert page.get_by_role("link", name="Log", exact=True).count() == 1
        assert page.messages == []


def _wait(page: Any, run_dir: Path, name: str) -> None:
    for _ in range(100):
        order = read_order(run_dir)
        if order is not None and getattr(order, name):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"the order has no {name!r} after ten seconds")


def test_who_may_only_watch_has_no_buttons(browser: Any, run_dir: Path) -> None:
    with Server(run_dir.parent, options=("--watch-only",)) as server, opened(browser, server) as page:
        page.get_by_role("link", name="steered", exact=True).click()
        page.wait_for_selector("text=generation 1 of 4")
        assert page.get_by_role("button", name="Pause").count() == 0
        assert page.get_by_role("button", name="Stop …").count() == 0
