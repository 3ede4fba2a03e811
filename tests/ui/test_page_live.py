"""The page while things happen: runs that grow, a server that dies, runs that go; at any width, by keys alone, and read aloud."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import synthetic_run as synthetic
from page_tools import Server, opened, refusals, remove_run, run_ids

from ludus.storage.base import RunSummary
from ludus.storage.store import Store

pytestmark = pytest.mark.slow

ROUTES = ("", "/population", "/learning", "/log", "/policy/0/p3", "/play")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two players, one of three, and one without generations."""
    folder = tmp_path_factory.mktemp("runs")
    synthetic.write(folder / "two", generations=12)
    synthetic.write(folder / "three", generations=4, players=3)
    synthetic.write(folder / "empty", generations=0)
    return folder


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with Server(root) as started:
        yield started


def test_a_run_appears_grows_and_ends_while_the_page_is_open(browser: Any, root: Path, server: Server) -> None:
    with opened(browser, server) as page, opened(browser, server) as other:
        page.wait_for_selector("text=two")
        trained = start(root, "grows", "kuhn", "generations=30")
        page.get_by_role("link", name="grows").click(timeout=60_000)
        page.wait_for_selector("h1:has-text('grows')")
        other.wait_for_selector("text=grows")  # a second tab sees the same
        assert trained.wait(120) == 0
        page.wait_for_selector("main >> text=finished", timeout=20_000)
        other.wait_for_selector("tr:has-text('grows') >> text=finished")
        assert page.messages == other.messages == []
    remove_run(root / "grows")


def start(root: Path, name: str, *options: str) -> subprocess.Popen[bytes]:
    """`ludus train` in a process, in a folder below which a page looks for runs."""
    command = [sys.executable, "-c", "from ludus.cli.main import script; script()", "train", *options]
    return subprocess.Popen(
        [*command, "--run-dir", str(root / name)], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def test_a_first_task_shows_before_any_checkpoint_of_it(browser: Any, root: Path, server: Server) -> None:
    """What the driver tells each second is on the page; a killed driver takes it back, and the page says what happened."""
    options = ("response={decisions: 100000000}", "generations=2", "checkpoints={iterations: 1000000}")
    trained = start(root, "long", "leduc", *options)
    try:
        with opened(browser, server) as page:
            page.get_by_role("link", name="long").click(timeout=120_000)
            page.wait_for_selector("h1:has-text('long')")
            run = run_ids(page)["long"]
            page.evaluate("to => { location.hash = to; }", f"#/run/{run}/learning")
            line = page.locator(".now li").first
            line.wait_for(timeout=120_000)
            assert re.search(r"population \d: return .+ steps/s, .*loss", line.inner_text())
            stored = page.evaluate("run => fetch(`api/runs/${run}/learning`).then(r => r.json())", run)
            assert stored["learners"] == []
            page.evaluate("to => { location.hash = to; }", f"#/run/{run}")
            page.locator(".happens dl div", has_text="episodes of training").get_by_text(re.compile("[1-9]")).wait_for()
            page.evaluate("to => { location.hash = to; }", f"#/run/{run}/learning")
            page.wait_for_selector(".run .at >> text=/generation 1 of 2 .*%.* about .* left/", timeout=60_000)
            page.wait_for_selector("text=/Since the last checkpoint.*steps\\/s.*processor.*memory.*environment/")
            charts = page.locator(".chart canvas")
            charts.first.wait_for()
            for axis in (
                "episodes",
                "updates",
                "seconds",
                "generations",
                "decisions",
            ):  # the last but one has no live points
                page.get_by_role("button", name=axis, exact=True).first.click()
                page.wait_for_timeout(200)
            page.reload()
            line.wait_for(timeout=20_000)  # the newest point is there at once
            trained.kill()
            page.wait_for_selector(".cause >> text=/interrupted.*was killed/", timeout=20_000)
            page.wait_for_selector(".cause >> text=ludus resume long")
            line.wait_for(state="hidden")
            page.wait_for_selector("text=No learner has reported yet")
            assert page.inner_text(".pill") == "interrupted"
            assert page.messages == []
    finally:
        trained.kill()
        trained.wait()
    remove_run(root / "long")


BAD = """
import gymnasium as gym

class Bad(gym.Wrapper):
    steps = 0

    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))

    def step(self, action):
        self.steps += 1
        if self.steps > 200:
            raise RuntimeError("the sensor gave no reading")
        return self.env.step(action)
"""


def test_an_error_of_an_environment_is_on_top_of_each_page_and_in_the_log(
    browser: Any, root: Path, server: Server
) -> None:
    (root / "badenv.py").write_text(BAD)
    assert start(root, "bad", "badenv:Bad", "--algorithm", "ppo").wait(120) != 0
    with opened(browser, server) as page:
        page.get_by_role("link", name="bad", exact=True).click(timeout=30_000)
        page.wait_for_selector(".cause >> text=/The run failed: .*RuntimeError: the sensor gave no reading/")
        told = page.inner_text(".cause")
        assert "Bad.step (badenv.py, line" in told.replace("\n", " ")
        assert "ludus resume bad" in told
        assert page.inner_text(".pill") == "failed"
        page.wait_for_selector(".happens .verdict >> text=Failed")
        assert page.inner_text("main").count("the sensor gave no reading") == 1
        page.get_by_role("link", name="Log").first.click()
        page.wait_for_selector(".log .error >> text=the sensor gave no reading")
        assert page.messages == []
    (root / "badenv.py").unlink()
    remove_run(root / "bad")


def test_a_failed_run_is_not_called_complete(browser: Any, root: Path, server: Server) -> None:
    run_dir = synthetic.write(root / "nan", generations=2, finished=False)
    summary = RunSummary(run_dir, 2, 1.0, 10, None, "the schedule is complete", complete=True, trained=2, failures=2)
    with Store.open(run_dir) as store:
        store.run_finished(replace(summary, failure="the loss is not finite"))
    with opened(browser, server) as page:
        page.get_by_role("link", name="nan").click(timeout=30_000)
        page.wait_for_selector(".cause >> text=the loss is not finite")
        page.wait_for_selector("main .happens .verdict strong")
        assert "schedule is complete" not in page.inner_text("body").lower()
    remove_run(root / "nan")


def test_a_server_that_many_ask_is_asked_again(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        page.wait_for_selector("text=two")
        refused = list[str]()

        def answer(route: Any) -> None:
            if len(refused) == 2:
                route.continue_()
                return
            refused.append(route.request.url)
            route.fulfill(status=429, headers={"Retry-After": "0.01"}, json={"error": "too many requests at a time."})

        page.route("**/api/runs/*/overview*", answer)
        page.get_by_role("link", name="two").click()
        page.wait_for_selector("main .happens .verdict strong")
        assert len(refused) == 2
        assert "too many requests" not in page.inner_text("body")


def test_a_server_that_dies_and_comes_back(browser: Any, root: Path, tmp_path: Path) -> None:
    with Server(root) as own, opened(browser, own) as page:
        page.wait_for_selector("text=two")
        own.kill()
        page.wait_for_selector("text=does not answer", timeout=30_000)
        synthetic.write(root / "later", generations=2)
        own.start()
        page.wait_for_selector("text=later", timeout=60_000)
        page.wait_for_selector("text=does not answer", state="hidden", timeout=30_000)
        assert all("Failed to load resource" in message for message in page.messages)  # the browser's own word for it
    remove_run(root / "later")


def test_a_run_that_is_deleted_under_the_page(browser: Any, root: Path, server: Server) -> None:
    synthetic.write(root / "doomed", generations=3)
    with opened(browser, server) as page:
        page.get_by_role("link", name="doomed").click(timeout=30_000)
        page.wait_for_selector("h1:has-text('doomed')")
        remove_run(root / "doomed")
        page.wait_for_selector("text=/is gone|no such run|has been deleted/i", timeout=30_000)
        page.get_by_role("link", name="Runs").first.click()
        page.wait_for_selector("text=two")
        assert page.get_by_role("link", name="doomed").count() == 0
        assert not [message for message in page.messages if "Failed to load resource" not in message]


@pytest.mark.parametrize("name", ["two", "three", "empty"])
def test_every_page_by_phone_in_the_dark_and_read_aloud(browser: Any, server: Server, name: str) -> None:
    """Nothing scrolls sideways, everything that can be used has a name, headings do not skip a level, and the console stays quiet."""
    phone = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "reduced_motion": "reduce"}
    with opened(browser, server, **phone) as page:
        page.wait_for_selector("text=two")
        run = run_ids(page)[name]
        for address in ("#/", "#/people", f"#/compare?runs={run}", *(f"#/run/{run}{route}" for route in ROUTES)):
            page.evaluate("to => { location.hash = to; }", address)
            page.wait_for_selector("h1")
            page.wait_for_load_state("networkidle") if address in ("#/people",) else page.wait_for_timeout(400)
            said = page.locator("body").aria_snapshot()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
            unnamed = re.findall(
                r"^\s*- (?:button|link|textbox|combobox|checkbox|tab|slider)(?::.*| \[.*)?$", said, re.M
            )
            assert unnamed == [], (address, unnamed)
            levels = [int(level) for level in re.findall(r"heading .*\[level=(\d)\]", said)]
            assert levels[:1] == [1], address
            assert all(after <= before + 1 for before, after in pairwise(levels)), (address, levels)
            refused = "Failed to load resource: the server responded with a status of 4"  # what made-up runs have not
            assert [m for m in page.messages if name == "two" or refused not in m] == [], (address, refusals(page))


def test_by_keys_alone(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        page.wait_for_selector("text=two")
        for _ in range(40):
            page.keyboard.press("Tab")
            focused = page.evaluate("document.activeElement.textContent")
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", focused
            if focused == "two":
                break
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('two')")
        assert page.messages == []
