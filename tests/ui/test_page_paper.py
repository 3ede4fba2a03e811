"""Printing: all tabs one after the other, in the paper's width and colours, nothing cut; of a report and of a served page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_tools import Opened, Server, opened, run_ids

from benchmarks.synthetic_league import League, write
from ludus.apps.ui.report import write_report

pytestmark = pytest.mark.slow

SHEETS = ["Overview", "Population", "Learning", "Log"]
PRINTED = """async () => {
  window.dispatchEvent(new Event("beforeprint"));
  for (let k = 0; k < 5000; k++) await null;  // as a browser that prints: no timer, no answer, no frame
  const all = (selector) => [...document.querySelectorAll(selector)], name = (one) => `${one.tagName}.${one.className}`;
  const out = (one) => one.getBoundingClientRect().right > one.closest(".card").getBoundingClientRect().right + 1;
  const pixels = (one) => new Uint32Array(one.getContext("2d").getImageData(0, 0, one.width, one.height).data.buffer);
  const rolls = (one) => ["auto", "scroll"].includes(getComputedStyle(one).overflowX) && one.scrollWidth > one.clientWidth;
  return {
    sheets: all(".sheet").map((one) => one.querySelector("h2").textContent),
    seen: all("main h2").filter((one) => one.offsetParent && !one.closest(".paper")).length,
    waiting: all(".paper .loading, .paper .failure").length,
    cards: all(".paper .card").length,
    wide: all(".paper .card :is(canvas, table, pre, .uplot)").filter((one) => one.offsetParent && out(one)).map(name),
    narrow: all(".paper .uplot").filter((one) => one.offsetWidth < 0.95 * one.parentElement.offsetWidth).map(name),
    blank: all(".paper canvas.stage-canvas").filter((one) => !pixels(one).some(Boolean)).length,
    scrolled: all(".paper .card *").filter(rolls).map(name),
    page: getComputedStyle(document.documentElement).getPropertyValue("--page").trim(),
  };
}"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write(folder / "league", League(policies=30, points=4, events=20))
    write(folder / "two", League(policies=8, shared=False, points=4, events=20))
    return folder


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with Server(root) as started:
        yield started


def judge(printed: dict[str, Any]) -> None:
    assert printed["sheets"] == SHEETS
    assert (printed["seen"], printed["waiting"], printed["blank"]) == (0, 0, 0)
    assert printed["cards"] >= 12
    assert (printed["wide"], printed["narrow"], printed["scrolled"]) == ([], [], [])
    assert printed["page"] == "#f6f5f2"  # light, whatever the screen is


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["league", "two"])
def test_a_report_prints_all_tabs(
    root: Path, tmp_path: Path, look: Callable[..., Opened], name: str, dark: bool
) -> None:
    shown = look(write_report(root / name, out=tmp_path / "report.html").as_uri(), dark=dark)
    judge(shown.page.evaluate(PRINTED))
    shown.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert shown.page.query_selector(".paper") is None
    assert shown.text("main h2 >> nth=0") == "Overview"
    assert shown.said == []


def test_a_printed_file_has_all_tabs_and_keeps_its_colours(
    root: Path, tmp_path: Path, look: Callable[..., Opened]
) -> None:
    shown = look(write_report(root / "two", out=tmp_path / "report.html").as_uri())
    for background in (False, True):
        content = shown.page.pdf(print_background=background, format="A4")
        assert len(re.findall(rb"/Type\s*/Page\b", content)) >= len(SHEETS)
    shown.page.emulate_media(media="print")
    exact = "getComputedStyle(document.querySelector('.legend .mark') ?? document.body).printColorAdjust"
    assert shown.page.evaluate(exact) == "exact"


def test_ctrl_p_on_a_served_page_asks_for_all_tabs_first(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        run = run_ids(page)["league"]
        page.evaluate(f"location.hash = '#/run/{run}/learning'")
        page.wait_for_selector("nav.tabs [aria-current] >> text=Learning")
        page.wait_for_selector(".card .uplot")
        page.evaluate("void (window.print = () => { window.wanted = true; })")  # or it would be called
        page.keyboard.press("Control+p")
        while not page.evaluate("window.wanted ?? false"):
            page.wait_for_timeout(50)
        judge(page.evaluate(PRINTED))
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert page.is_visible("text=Learning")
        assert page.messages == []


def test_without_ctrl_p_a_served_page_prints_the_tabs_that_were_seen(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        run = run_ids(page)["two"]
        page.evaluate(f"location.hash = '#/run/{run}/learning'")
        page.wait_for_selector("nav.tabs [aria-current] >> text=Learning")
        page.wait_for_selector(".card .uplot")
        printed = page.evaluate(PRINTED)
        assert printed["sheets"] == ["Learning"]
        assert (printed["waiting"], printed["wide"], printed["narrow"]) == (0, [], [])
