"""The first screen of a run, and an experiment's page, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_run as synthetic
from page_tools import Server, opened, run_ids

from ludus.core.types import Match
from ludus.storage.base import GenerationRecord
from ludus.storage.store import Store

pytestmark = pytest.mark.slow

QUESTIONS = ["Does it improve?", "What happens now?", "Who beats whom?", "What is the mixture?", "Where does it cycle?"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Rock, paper and scissors; twelve policies of each of two players; an experiment of three seeds."""
    root = tmp_path_factory.mktemp("runs")
    _rock_paper_scissors(root / "rps")
    synthetic.write(root / "many", generations=11)
    for seed in range(3):
        _seed(root / "cart" / f"seed-{seed}", seed)
    (root / "cart" / "experiment.yaml").write_text("format: 1\nruns: {}\n", encoding="utf-8")
    with Server(root) as started:
        yield started


def _rock_paper_scissors(run_dir: Path) -> None:
    facts = synthetic.info(run_dir, population=(0, 0), utility_range=((-1.0, 1.0),) * 2)
    with Store.create(run_dir, facts) as store:
        for place, name in enumerate(("rock", "paper", "scissors")):
            record = synthetic.policy(0, place)
            store.policy_added(replace(record, ref=record.ref._replace(policy=name)))
        earned = np.array([0.0, -1.0, 1.0, 1.0, 0.0, -1.0, -1.0, 1.0, 0.0])
        store.payoffs_recorded(np.array([*np.ndindex(3, 3)]), np.stack([earned, -earned], axis=1))
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


def test_a_single_agent_has_two_answers_and_its_experiment_the_mean(browser: Any, server: Server) -> None:
    with opened(browser, server, viewport={"width": 390, "height": 844}) as page:
        _run(page, "cart/seed-0")
        assert page.locator(".five h2:visible").all_inner_texts() == QUESTIONS[:2]
        assert "10" in page.inner_text(".improves .now-value b")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.get_by_role("link", name="cart", exact=False).first.click()
        page.wait_for_selector("h1:text-is('cart')")
        # 10, 11 and 12: Student's t with two degrees of freedom times 1 / sqrt(3)
        assert page.inner_text(".improves .now-value b") == "11.0 ± 2.5"
        assert page.locator("table tbody tr").count() == 3
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.get_by_role("link", name="cart/seed-2").click()
        page.wait_for_selector("h1:has-text('seed-2')")
        assert page.messages == []
