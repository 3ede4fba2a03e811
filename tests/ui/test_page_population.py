"""The pages of a population in a real browser, served from made-up runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_run as synthetic

from benchmarks import synthetic_league
from ludus.apps.ui.server.access import Access
from ludus.apps.ui.server.address import LOOPBACK, STEER, listen
from ludus.apps.ui.server.known_runs import KnownRuns
from ludus.apps.ui.server.serving import Served, serve
from ludus.core.types import Match, PolicyRef
from ludus.metagame.population.base import Lineage
from ludus.storage.base import GenerationRecord
from ludus.storage.store import Store

pytestmark = pytest.mark.slow

PAIRS = np.array([[i, j] for i in range(3) for j in range(3)])
CIRCLE = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
"""What a row earns from a column, of rock, paper and scissors."""


def _write_circle(run_dir: Path) -> None:
    """Two players, one population, every payoff computed."""
    info = synthetic.info(run_dir, population=(0, 0), utility_range=((-1.0, 1.0),) * 2)
    with Store.create(run_dir, info) as store:
        for place, name in enumerate(("rock", "paper", "scissors")):
            policy = synthetic.policy(0, place, generation=place)
            lineage = Lineage(f"g{place}/p0", place, PolicyRef(0, "rock", 0) if place else None, "last")
            store.policy_added(replace(policy, ref=PolicyRef(0, name, 0), lineage=lineage))
        earned = CIRCLE.ravel()
        store.payoffs_recorded(PAIRS, np.stack([earned, -earned], axis=1))
        third = (1 / 3, 1 / 3, 1 / 3)
        store.generation_done(GenerationRecord(2, 1.0, 100, 0.0, gains=(0.0, 0.0), marginals=(third, third)))
        store.commit("g2")


def _write_three(run_dir: Path) -> None:
    """Three players with two policies each. Player 0 earns 10 i + j where player 2 plays its second policy, as it does."""
    with Store.create(run_dir, synthetic.info(run_dir, players=3, utility_range=((-20.0, 20.0),) * 3)) as store:
        for player in range(3):
            for place in (0, 1):
                store.policy_added(synthetic.policy(player, place, generation=place))
        profiles = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
        earned = np.where(profiles[:, 2] == 1, 10.0 * profiles[:, 0] + profiles[:, 1], -7.0)
        store.payoffs_recorded(profiles, np.stack([earned, -earned, 0 * earned], axis=1))
        marginals = ((0.5, 0.5), (0.5, 0.5), (0.0, 1.0))
        store.generation_done(GenerationRecord(1, 1.0, 100, None, marginals=marginals))
        store.commit("g1")


def _write_alone(run_dir: Path) -> None:
    """One player, whose second policy earns 3 in every episode."""
    with Store.create(run_dir, synthetic.info(run_dir, players=1, utility_range=((0.0, 4.0),))) as store:
        for place in (0, 1):
            store.policy_added(synthetic.policy(0, place, generation=place))
        store.payoffs_recorded(np.array([[0], [1]]), np.array([[1.0], [3.0]]))
        store.generation_done(GenerationRecord(1, 1.0, 100, None, marginals=((0.0, 1.0),)))
        store.commit("g1")


@dataclass(frozen=True)
class Running:
    server: Served
    runs: KnownRuns
    root: Path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("runs")
    _write_circle(root / "circle")
    _write_three(root / "three")
    _write_alone(root / "alone")
    Store.create(root / "nobody", synthetic.info(root / "nobody")).close()
    synthetic_league.write(root / "league", synthetic_league.League(policies=20, played=0.9, running=True))
    runs = KnownRuns(root=root)
    server = serve(runs, listen(LOOPBACK, 0), access=Access(), host=LOOPBACK)
    thread = threading.Thread(target=server.run)
    thread.start()
    yield Running(server, runs, root)
    server.end()
    thread.join()


class Pages:
    """Opens pages of the server; afterwards none may have written to its console."""

    def __init__(self, browser: Any, running: Running) -> None:
        self._browser, self._served, self._runs = browser, running.server, running.runs
        self._contexts: list[Any] = []
        self.said: list[str] = []

    def open(self, run: str, path: str = "/population", **settings: Any) -> Any:
        context = self._browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        self._contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        known = next(one for one in self._runs.all() if one.name == run)
        page.goto(self._served.link(STEER, f"#/run/{known.id}{path}"))
        page.wait_for_selector("h1")
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def pages(browser: Any, running: Running) -> Iterator[Pages]:
    opened = Pages(browser, running)
    yield opened
    opened.close()
    assert not opened.said


def _part(page: Any, title: str) -> Any:
    """The card with this heading, on the screen and filled."""
    part = page.locator("section.part", has=page.locator("h2", has_text=title))
    part.scroll_into_view_if_needed()
    part.locator("canvas, table, .empty").first.wait_for()
    return part


def _said(page: Any, text: str) -> None:
    page.locator("#announcer", has_text=text).wait_for(state="attached")


def test_payoffs_by_keyboard_and_the_cycle_in_words(pages: Pages) -> None:
    page = pages.open("circle")
    payoffs = _part(page, "Payoffs")
    canvas = payoffs.locator("canvas")
    payoffs.get_by_role("button", name="by age").click()
    canvas.focus()
    canvas.press("ArrowDown")  # the first key goes to the first cell
    _said(page, "rock against rock: 0 exactly")
    canvas.press("ArrowRight")
    _said(page, f"rock against paper: {chr(0x2212)}1 exactly")
    canvas.press("End")
    _said(page, "rock against scissors: 1 exactly")
    canvas.press("Enter")
    details = page.locator(".heat-details")
    details.get_by_text("rock against scissors", exact=True).wait_for()
    assert f"scissors against rock: {chr(0x2212)}1 exactly" in details.inner_text()
    assert [link.get_attribute("href").rsplit("/", 3)[1:] for link in details.locator("h3 a").all()] == [
        ["policy", "0", "rock"],
        ["policy", "0", "scissors"],
    ]

    graph = _part(page, "Response graph")
    told = graph.locator(".answers-cycle").inner_text()
    turns = ("rock beats scissors", "scissors beats paper", "paper beats rock")
    assert all(turn in f"{told} {told.split(' ', 1)[1]}" for turn in turns)
    assert graph.get_by_text("component of 3 policies (of 3): no pure ranking", exact=True).is_visible()
    graph.locator(".answers-cycle").press("Enter")
    assert graph.locator(".answers-cycle").get_attribute("aria-pressed") == "true"


def test_three_players_choose_whose_payoffs(pages: Pages) -> None:
    page = pages.open("three")
    payoffs = _part(page, "Payoffs")
    payoffs.get_by_role("button", name="by age").click()
    canvas, choice = payoffs.locator("canvas"), payoffs.get_by_label("Whose payoffs")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        canvas.press(key)
    _said(page, "p1 against p1: 11 exactly")  # 10 i + j; against player 2's second policy alone
    assert "player 2" in payoffs.locator(".hint").first.inner_text().lower()
    choice.select_option(label="What player 1 earns: 0 × 1")
    payoffs.get_by_text("What player 1 earns on average").wait_for()
    canvas.press("Home")
    _said(page, f"p1 against p0: {chr(0x2212)}10 exactly")
    assert "of=1" in page.url  # so that the address can be passed on
    page.reload()
    payoffs.get_by_text("What player 1 earns on average").wait_for()


def test_a_single_player_has_no_opponent(pages: Pages) -> None:
    page = pages.open("alone")
    payoffs = _part(page, "Payoffs")
    payoffs.get_by_role("button", name="by age").click()
    canvas = payoffs.locator("canvas")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        canvas.press(key)
    _said(page, "p1: 3 exactly")
    assert payoffs.locator(".heat-details h3").inner_text() == "p1"
    for title in ("Meta-strategy", "Ranking", "Lineage", "Response graph", "Map of policies"):
        assert not _part(page, title).locator(".failure").count()


def test_where_nobody_is_yet_each_part_says_what_will_come(pages: Pages) -> None:
    page = pages.open("nobody")
    for title in ("Payoffs", "Meta-strategy", "Ranking", "Lineage", "Response graph", "Map of policies"):
        assert "appear" in _part(page, title).locator(".empty").inner_text() or title == "Ranking"


def _pointed(page: Any, canvas: Any) -> str:
    """Which cell lies under a certain place of the canvas."""
    box = canvas.bounding_box()
    for away in (40, 0):
        page.mouse.move(box["x"] + 250 + away, box["y"] + 250)
    return str(page.locator(".stage-tip p").first.inner_text())


def _asked(page: Any, canvas: Any) -> str:
    """What is told of 0-7 against 0-6, by the search and the keys."""
    search = page.get_by_label("Find a policy")
    search.fill("0-7")
    search.press("Enter")
    canvas.press("ArrowLeft")
    _said(page, "0-7 against 0-6: ")
    return str(page.locator("#announcer").inner_text())


def test_new_results_change_what_is_seen_and_nothing_else(pages: Pages, running: Running) -> None:
    page = pages.open("league")
    payoffs, ranking = _part(page, "Payoffs"), _part(page, "Ranking")
    for _ in range(2):  # down, then up
        ranking.get_by_role("button", name="generation").click()
    payoffs.scroll_into_view_if_needed()
    payoffs.get_by_role("button", name="by age").click()
    canvas = payoffs.locator("canvas")
    assert re.fullmatch(r"0-7 against 0-6: .* 32 episodes, won \d+ · drawn 0 · lost \d+", _asked(page, canvas))
    seen = _pointed(page, canvas)

    seats = (PolicyRef(0, "0-7", 0), PolicyRef(0, "0-6", 0))
    with Store.open(running.root / "league") as store:
        n = 100_000
        found = Match("new", (7, 6), seats, n, np.array([0.5, -0.5]), np.array([1.0, 1.0]), ((n, 0, 0), (0, 0, n)))
        store.matches_recorded([found])
        store.commit("later")

    for _ in range(100):
        after = _asked(page, canvas)
        if "100,032 episodes" in after:
            break
        page.wait_for_timeout(100)
    assert re.fullmatch(r"0-7 against 0-6: .* ± .*, 100,032 episodes, won 100,\d+ · drawn 0 · lost \d+", after)
    assert _pointed(page, canvas) == seen
    assert payoffs.get_by_role("button", name="by age").get_attribute("aria-pressed") == "true"
    ranking.scroll_into_view_if_needed()
    assert ranking.locator("tbody tr").first.inner_text().split()[1] == "0-0"  # the oldest, and the weakest


def test_a_policy_leads_to_its_family_and_opponents(pages: Pages) -> None:
    page = pages.open("circle", "/policy/0/rock")
    page.locator("h2", has_text="rock").wait_for()
    family = page.locator(".family")
    assert [link.inner_text() for link in family.locator("dd").nth(1).locator("a").all()] == ["paper", "scissors"]
    table = page.get_by_role("region", name="Results").locator("tbody tr")
    assert [row.inner_text().split()[0] for row in table.all()] == ["scissors", "rock", "paper"]
    bars = page.locator("section", has=page.locator("h2", has_text="Results")).locator("canvas")
    bars.press("ArrowRight")
    _said(page, "against scissors: 1")
    bars.press("Enter")
    page.locator("h2", has_text="scissors").wait_for()
    assert page.locator(".family dd").first.inner_text() == "rock"
    page.get_by_role("link", name="All policies").click()
    _part(page, "Payoffs")


@pytest.mark.parametrize("path", ["/population", "/policy/0/0-7"])
def test_a_phone_scrolls_one_way(pages: Pages, path: str) -> None:
    page = pages.open("league", path, viewport={"width": 390, "height": 800}, color_scheme="dark")
    page.locator("canvas").first.wait_for()
    for part in page.locator("section:visible").all():
        part.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def _call(page: Any, module: str, function: str, *arguments: object) -> Any:
    """What a function of one of the page's modules answers."""
    code = "async ([module, name, args]) => (await import(`/page/${module}`))[name](...args)"
    return page.evaluate(code, [module, function, list(arguments)])


def test_numbers_orders_and_words(pages: Pages) -> None:
    page = pages.open("nobody")

    def interval(value: float | None, half: float | None) -> str:
        return str(_call(page, "measured.js", "interval", value, half))

    assert interval(0.63491, 0.0231) == "0.635 ± 0.023"
    assert interval(-1540.4, 18.3) == f"{chr(0x2212)}1,540 ± 18"
    assert interval(2.0, None) == "2"
    assert interval(None, 0.1) == "–"
    assert _call(page, "heatmap.js", "arranged", "age", [2, 0, 1], [0, 0, 0]) == [1, 2, 0]
    assert _call(page, "heatmap.js", "arranged", "cluster", [2, 0, 1], [1, 0, 0]) == [1, 2, 0]
    # A table in another order than by rating has strengths beside it; what never played comes last.
    assert _call(page, "heatmap.js", "arranged", "rating", [0, 1, 2], [0, 0, 1], [0.1, float("nan"), 0.5]) == [2, 0, 1]
    # Around zero where both signs can be, around the middle of the utility where they cannot; an outlier leaves the others their colours.
    assert _reach(page, [[-0.5, 0.25]], [-1, 1], "all") == {"centre": 0, "reach": 0.5, "cut": False}
    assert _reach(page, [[0.25, 0.5]], [0, 1], "all") == {"centre": 0.5, "reach": 0.25, "cut": False}
    assert _reach(page, [[0.1] * 999 + [50.0]], [-100, 100], "all") == {"centre": 0, "reach": 0.1, "cut": True}
    # By what is played: the last row and column are not, and earn most. Of one policy that is played, by what it earns against all.
    square = [[0.1] * 4 + [9.0] for _ in range(4)] + [[9.0] * 5]
    assert _reach(page, square, [-10, 10], "played", [0.25] * 4 + [0.0]) == {"centre": 0, "reach": 0.1, "cut": True}
    pure = [[0.0, 2.0, -1.0], [5.0, 5.0, 5.0], [-1.0, 5.0, 0.5]]
    assert _reach(page, pure, [-10, 10], "played", [1.0, 0.0, 0.0])["reach"] == 5.0
    # Nothing but noise: a scale that shows it as none.
    assert _reach(page, [[1e-7, -1e-7]], [-1, 1], "played", [1.0], 1e-4)["reach"] == pytest.approx(1e-3)
    assert _call(page, "lineage.js", "ranks", [3.0, 1.0, 1.00001, 7.0], 1e-3) == pytest.approx(
        [2 / 3, 1 / 6, 1 / 6, 1.0]
    )
    assert _call(page, "lineage.js", "ranks", [1e-8, -3e-7, 2.9e-8, 0.0], 1e-4) == [0.5] * 4
    assert _call(page, "responses.js", "inWords", list("abcdefghij"), "policies") == (
        "a beats j beats i beats h beats g beats … 4 more … beats b beats a"
    )
    assert _call(page, "responses.js", "inWords", ["a", "c"], "profiles") == "a → c → a"
    # A cycle's nodes first, then from each to where its most profitable deviation leads.
    edges = [[0, 1, 1.0], [1, 2, 1.0], [2, 0, 1.0], [2, 4, 2.0], [4, 3, 1.0]]
    assert _call(page, "responses.js", "around", 5, edges, [{"nodes": [0, 1, 2]}]) == [0, 1, 2, 4, 3]
    names = ["league_exploiter-0-12", "league_exploiter-0-13", "main-0-1", "row 2 column 3"]
    assert _call(page, "names.js", "shortNames", names) == ["LE0-12", "LE0-13", "main-0-1", "r2 c3"]
    alike = ["lazy_explorer-7", "league_exploiter-7", "conservative_one", "conservative_two"]
    shortened = _call(page, "names.js", "shortNames", alike)
    assert len(set(shortened)) == 4
    assert shortened[0] != shortened[1]


def _reach(
    page: Any,
    rows: list[list[float]],
    utility: list[float],
    scale: str,
    probability: Sequence[float] = (1.0,),
    negligible: float = 0.0,
) -> Any:
    """The colours' range of a table of payoffs whose rows and columns are played with these probabilities."""
    across = [*probability, *[0.0] * (len(rows[0]) - len(probability))]
    table = {
        "mean": [value for row in rows for value in row],
        "columns": [str(k) for k in range(len(rows[0]))],
        "utility": utility,
        "negligible": negligible,
        "row_probability": list(probability),
        "column_probability": across,
    }
    return _call(page, "heatmap.js", "range", table, scale)


def test_the_tip_of_a_cell_ends_with_a_new_order(pages: Pages) -> None:
    page = pages.open("league")
    payoffs = _part(page, "Payoffs")
    payoffs.get_by_role("button", name="by rating").click()
    box = payoffs.locator("canvas").bounding_box()
    for away in range(0, 200, 10):  # some cells of this row were played
        page.mouse.move(box["x"] + 200 + away, box["y"] + 150)
        if "won" in page.locator(".stage-tip:visible").inner_text():
            break
    assert re.search(r"won \d+ · drawn \d+ · lost \d+", page.locator(".stage-tip:visible").inner_text())
    payoffs.get_by_role("button", name="by age").focus()
    page.keyboard.press("Enter")  # the pointer stays where it is
    page.wait_for_timeout(200)
    assert not page.locator(".stage-tip:visible").count()


def test_a_run_that_goes_on_is_shown_by_age(pages: Pages) -> None:
    live, finished = pages.open("league"), pages.open("circle")
    by_age = _part(live, "Payoffs").get_by_role("button", name="by age")
    state = live.evaluate("async (url) => (await (await fetch(url)).json()).state", _api(live, "overview"))
    assert by_age.get_attribute("aria-pressed") == str(state == "running").lower()
    assert _part(finished, "Payoffs").get_by_role("button", name="by rating").get_attribute("aria-pressed") == "true"


def _api(page: Any, panel: str) -> str:
    return f"api/runs/{page.url.split('#/run/')[1].split('/')[0]}/{panel}"


def _lanes(page: Any, members: Sequence[tuple[str, int, str | None]]) -> dict[str, int]:
    """Lanes of (name, generation, parent)."""
    population = {
        "population": 0,
        "members": [
            {"policy": name, "generation": born, "parent": parent and {"population": 0, "policy": parent}}
            for name, born, parent in members
        ],
    }
    code = """async (populations) => {
        const { members } = (await import("/page/lineage.js")).forest(populations);
        return [...members.values()].map((one) => [one.name, one.lane]);
    }"""
    return dict(page.evaluate(code, [population]))


def test_lines_of_copies_keep_their_lanes(pages: Pages) -> None:
    page = pages.open("nobody")
    # The longer line of copies goes straight on; a side line leaves it, and its lane is used again when it has ended.
    assert _lanes(
        page, [("a", 0, None), ("b", 1, "a"), ("c", 1, "a"), ("d", 2, "b"), ("e", 3, "d"), ("f", 5, "e"), ("g", 6, "e")]
    ) == {"a": 0, "b": 0, "c": 1, "d": 0, "e": 0, "f": 0, "g": 1}
    # Of one generation each has its own.
    assert sorted(_lanes(page, [("a", 0, None), ("b", 0, None), ("c", 0, None)]).values()) == [0, 1, 2]
