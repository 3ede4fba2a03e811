"""The first screen of a run, and an experiment's page, in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_run as synthetic
from page_tools import Server, opened, run_ids

from ludus.apps.common.experiments import Experiment
from ludus.core.types import Match
from ludus.storage.base import GenerationRecord
from ludus.storage.run_dirs import RunLock
from ludus.storage.store import Store

pytestmark = pytest.mark.slow

QUESTIONS = ["Does it improve?", "What happens now?", "Who beats whom?", "What is the mixture?", "Where does it cycle?"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Rock, paper and scissors, of which in a second run some have not met; fourteen policies of each of two players; an experiment of
    four seeds, of which three have begun."""
    root = tmp_path_factory.mktemp("runs")
    _rock_paper_scissors(root / "rps")
    _rock_paper_scissors(root / "unplayed", met=5)
    synthetic.write(root / "many", generations=13)
    for seed in range(3):
        _seed(root / "cart" / f"seed-{seed}", seed)
    Experiment(root / "cart", {}, {f"seed-{seed}": (f"seed={seed}",) for seed in range(4)}).save()
    with Server(root) as started:
        yield started


def _rock_paper_scissors(run_dir: Path, *, met: int = 9) -> None:
    """met: profiles of which the payoff is known."""
    facts = synthetic.info(run_dir, population=(0, 0), utility_range=((-1.0, 1.0),) * 2)
    with Store.create(run_dir, facts) as store:
        for place, name in enumerate(("rock", "paper", "scissors")):
            record = synthetic.policy(0, place)
            store.policy_added(replace(record, ref=record.ref._replace(policy=name)))
        earned = np.array([0.0, -1.0, 1.0, 1.0, 0.0, -1.0, -1.0, 1.0, 0.0])
        store.payoffs_recorded(np.array([*np.ndindex(3, 3)])[:met], np.stack([earned, -earned], axis=1)[:met])
        even = (1 / 3, 1 / 3, 1 / 3)
        store.generation_done(GenerationRecord(0, 1.0, 0, 0.0, gains=(0.0, 0.0), marginals=(even, even)))
        store.commit("g0")


def _seed(run_dir: Path, seed: int) -> None:
    task = replace(synthetic.training(0, 1), seats=(0,))
    facts = synthetic.info(run_dir, players=1, population=(0,), seed=seed, text=f"scenario: x\nseed: {seed}\n")
    with Store.create(run_dir, facts) as store:
        for place in range(2):
            store.policy_added(synthetic.policy(0, place))
        store.task_started(task)
        store.curve_recorded(task.id, synthetic.curve(40))
        seats = (synthetic.policy(0, 1).ref,)
        store.matches_recorded([Match("m0", (1,), seats, 4, np.array([10.0 + seed]), np.array([12.0]), ())])
        store.commit("c1")


def _run(page: Any, name: str) -> None:
    page.wait_for_selector("html[data-ready]", state="attached")
    page.evaluate("to => { location.hash = to; }", f"#/run/{run_ids(page)[name]}")
    page.wait_for_selector(f"h1:text-is('{name}')")
    page.wait_for_selector(".improves .verdict strong")


def test_five_answers_stand_on_the_first_screen(browser: Any, server: Server) -> None:
    with opened(browser, server, viewport={"width": 1400, "height": 900}) as page:
        _run(page, "rps")
        assert page.locator(".five h2:visible").all_inner_texts() == QUESTIONS
        assert page.inner_text(".improves .verdict").startswith("Nothing is left to gain")
        cycle = page.inner_text(".cycles .verdict")
        assert cycle.replace(".", "").split(" beats ").count("paper") >= 1
        assert "paper beats rock" in f"{cycle} {cycle}"
        assert page.locator(".mixed .share-text").all_inner_texts() == ["33%"] * 3
        cell = page.locator("table.beats tbody tr", has_text="paper").locator("td").all()
        assert any("paper against rock: earns 1" in (one.get_attribute("title") or "") for one in cell)
        assert page.messages == []
        _run(page, "many")
        page.wait_for_selector("table.beats")
        bottom = page.evaluate(
            "Math.max(...[...document.querySelectorAll('.five > .card')].map((n) => n.getBoundingClientRect().bottom))"
        )
        assert bottom <= 900, "without scrolling"
        assert page.messages == []


# The least contrast of the texts of these cells with what they stand on, after WCAG 2.
CONTRAST = """selector => {
  const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const shares = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => c / 255);
    const linear = shares.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  return Math.min(...[...document.querySelectorAll(selector)].map((node) => {
    const style = getComputedStyle(node), [a, b] = [light(style.color), light(style.backgroundColor)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_cell_of_twelve_policies_has_a_number_that_can_be_read(browser: Any, server: Server, scheme: str) -> None:
    with opened(browser, server, viewport={"width": 1400, "height": 900}, color_scheme=scheme) as page:
        _run(page, "many")
        page.wait_for_selector("table.beats")
        cells = page.locator("table.beats tbody td").all_inner_texts()
        assert len(cells) == 144
        assert all(re.fullmatch(r"−?[0-9.]{1,4}", text) for text in cells), cells
        assert page.inner_text(".who-beats .many") == "the 12 most played of 14 policies of each player"
        assert "loses to the column's" in page.inner_text(".who-beats")
        assert "not played" not in page.inner_text(".who-beats")
        assert page.evaluate(CONTRAST, "table.beats tbody td") >= 4.5
        _run(page, "unplayed")
        page.wait_for_selector("table.beats td.hole")
        assert "not played against each other" in page.inner_text(".who-beats")
        assert page.inner_text(".who-beats .many") == "all 3 policies, the most played first"


def test_an_experiment_counts_all_seeds_that_it_lists(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        page.evaluate("location.hash = '#/experiment/cart'")
        page.wait_for_selector(".happens .verdict strong")
        assert page.inner_text(".lead").endswith("4 runs.")
        assert page.inner_text(".happens .verdict").startswith("Stopped 3 interrupted, 1 not begun of 4 runs.")
        with RunLock(server.root / "cart"):
            page.wait_for_selector(".happens .verdict:has-text('Running')")
            text = page.inner_text(".happens .verdict")
        assert text.startswith("Running 3 interrupted, 1 not begun of 4 runs. 75% done.")
        assert page.messages == []


def test_payoffs_are_written_short_and_alike(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        path = page.evaluate(
            "performance.getEntriesByType('resource').map((e) => e.name).find((n) => n.endsWith('/app.js'))"
        )
        brief = """async ([path, values]) => {
          const { brief } = await import(path.replace('app.js', 'beats.js'));
          return values.map(brief(values));
        }"""
        for values, told in (
            ([0.57, -0.2, 0], [".57", "−.20", "0"]),
            ([1.62, -0.04, 0.3], ["1.62", "−.04", ".30"]),
            ([310, -45.2, 0.4], ["310", "−45", "0"]),
            ([12000, -340000], ["12 k", "−340 k"]),
        ):
            assert page.evaluate(brief, [path, values]) == told


@pytest.mark.parametrize("name", ["rps", "many", "unplayed"])
def test_a_phone_has_room_for_all_answers(browser: Any, server: Server, name: str) -> None:
    with opened(browser, server, viewport={"width": 390, "height": 844}) as page:
        _run(page, name)
        page.wait_for_selector("table.beats")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        heading = page.locator("th[aria-sort]").first.bounding_box()
        assert heading["x"] + heading["width"] <= 390, "the column by which the ranking is sorted"
