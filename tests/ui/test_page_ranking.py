"""The ranking in a browser: which intervals it shows, and the ranks that they leave open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_run as synthetic
from page_tools import Opened, Server, opened, run_ids

from ludus.apps.ui.report import write_report
from ludus.core.types import Match
from ludus.storage.base import GenerationRecord
from ludus.storage.store import Store

pytestmark = pytest.mark.slow


def _played(run_dir: Path, won: dict[tuple[int, int], int], *, of: int, counted: bool) -> Path:
    """So many wins of player 0 by profile, of three policies of one population; the first is what the meta-strategies play."""
    facts = synthetic.info(run_dir, population=(0, 0), utility_range=((-1.0, 1.0),) * 2)
    with Store.create(run_dir, facts) as store:
        for place in range(3):
            store.policy_added(synthetic.policy(0, place, generation=place))
        matches = []
        for k, (profile, wins) in enumerate(won.items()):
            mean, seats = 2 * wins / of - 1, tuple(synthetic.policy(0, place).ref for place in profile)
            m2 = of * (1 - mean**2)
            results = ((wins, 0, of - wins), (of - wins, 0, wins)) if counted else ((0, 0, 0),) * 2
            matches.append(Match(f"m{k}", profile, seats, of, np.array([mean, -mean]), np.array([m2, m2]), results))
        store.matches_recorded(matches)
        marginal = (1.0, 0.0, 0.0)
        store.generation_done(GenerationRecord(0, 1.0, 100, None, marginals=(marginal, marginal)))
        store.commit("g0")
    return run_dir


def _ranking(page: Any) -> Any:
    card = page.locator("section.card", has=page.get_by_role("heading", name="Ranking"))
    card.scroll_into_view_if_needed()
    card.locator("tbody tr").first.wait_for()
    return card


def test_intervals_of_a_mean_return_are_a_choice(tmp_path: Path, look: Callable[..., Opened]) -> None:
    """p1 has won 200 of 200: no end of its interval lies above 1. Student's interval is narrower, and said to hold at one time."""
    run_dir = _played(tmp_path / "run", {(1, 0): 200, (2, 0): 120}, of=200, counted=False)
    seen = look(f"{write_report(run_dir).as_uri()}#/run/this/population")
    card = _ranking(seen.page)
    assert "95% confidence sequence: valid at any time, also while matches are added." in card.inner_text()
    rows = {row.split()[1]: row.split() for row in card.locator("tbody tr").all_inner_texts()}
    assert rows["p1"][0] == "1"
    assert rows["p1"][2:5] == ["1.000", "+0.000", "−0.068"]
    assert rows["p2"][0] == "2–3"  # p0 against itself earns 0, which the interval of 0.2 holds
    card.get_by_label("Intervals of the mean return").select_option("student")
    assert "valid at one time that was chosen beforehand" in card.inner_text()
    rows = {row.split()[1]: row.split() for row in card.locator("tbody tr").all_inner_texts()}
    assert rows["p2"][0] == "2"
    assert rows["p2"][2:5] == ["0.20", "±", "0.14"]
    assert seen.said == []


def test_ratings_of_wins_rank(tmp_path: Path, look: Callable[..., Opened]) -> None:
    run_dir = _played(tmp_path / "run", {(1, 0): 190, (2, 0): 188, (2, 1): 100}, of=200, counted=True)
    card = _ranking(look(f"{write_report(run_dir).as_uri()}#/run/this/population").page)
    assert "Rank: the places that the intervals of the rating leave open." in card.inner_text()
    assert [row.split()[0] for row in card.locator("tbody tr").all_inner_texts()] == ["1–2", "1–2", "3"]


def test_learning_of_seeds_is_compared_as_a_mean_with_a_band(tmp_path: Path, browser: Any) -> None:
    for seed in range(2):
        synthetic.write(tmp_path / "runs" / f"seed-{seed}", generations=2)
    with Server(tmp_path / "runs") as server, opened(browser, server) as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        ids = run_ids(page)
        page.evaluate(f"location.hash = '/compare?runs={','.join(ids.values())}'")
        card = page.locator("section.card", has=page.get_by_role("heading", name="Learning"))

        card.locator("h4", has_text="return").wait_for()
        card.scroll_into_view_if_needed()
        card.locator(".metric canvas").first.wait_for()
        assert card.locator("h4").all_inner_texts()[0] == "return"
        assert card.locator(".legend button").all_inner_texts() == [
            f"seed-{seed}: population {population}" for seed in range(2) for population in range(2)
        ]
        assert [line for line in page.messages if line.startswith("error")] == []
