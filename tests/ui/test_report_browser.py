"""Reports and comparisons as files, in a real headless browser: what is drawn and said, and that the console stays quiet."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic
from page_tools import Opened

from ludus.apps.ui.comparison import Baseline, compare, write_comparison
from ludus.apps.ui.report import write_report
from ludus.apps.ui.run_metrics import read_group
from ludus.core.types import NamedStatistics
from ludus.storage.store import Store

Look = Callable[..., Opened]

PAGES = ("", "/population", "/policy/0/p0", "/learning", "/log")


@pytest.mark.slow
def test_a_report_opens_from_a_file(tmp_path: Path, look: Look) -> None:
    run_dir = tmp_path / "<b>leduc"
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        for number, value in enumerate([4.0, 2.0, 0.5]):
            store.policy_added(synthetic.policy(0, number))
            store.policy_added(synthetic.policy(1, number))
            store.generation_done(synthetic.generation(number, (number + 1,) * 2, nash_conv=value))
        store.event("training", "loss became NaN", level="warning")
        store.commit("g2")
    opened = look(write_report(run_dir).as_uri())
    assert opened.said == []
    assert opened.text("h1") == "<b>leduc"
    assert opened.text(".kicker") == "Ludus report"
    assert opened.text(".improves .verdict") == "Not yet known A trend needs 4 generations."
    assert opened.text(".improves .now-value b") == "0.500"
    assert opened.text(".happens .verdict strong") == "Interrupted"
    chart = opened.page.get_attribute("section:has(h2:text-is('NashConv')) .plot", "aria-label")
    assert chart.startswith(
        "Chart of NashConv over generations. NashConv: from 4 at 0 to 0.500 at 2, between 0.500 and 4. gain of player 0: from 2"
    )
    assert "training: loss became NaN" in opened.text("main")
    opened.page.click("nav >> text=Log")
    opened.page.wait_for_selector(".log .warning")
    assert opened.page.url.endswith("#/run/this/log")
    assert opened.said == []


@pytest.mark.slow
@pytest.mark.parametrize(("generations", "players", "with_nash_conv"), [(0, 2, True), (4, 3, True), (3, 2, False)])
def test_every_page_of_a_report(
    tmp_path: Path, look: Look, generations: int, players: int, with_nash_conv: bool
) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=generations, players=players, with_nash_conv=with_nash_conv)
    address = write_report(run_dir).as_uri()
    for page in PAGES:
        opened = look(f"{address}#/run/this{page}")
        assert opened.said == []
        failures = ["Population 0 has no policy p0."] if page == "/policy/0/p0" and not generations else []
        assert [text.strip() for text in opened.page.locator(".failure p").all_inner_texts()] == failures, page
    first = look(address)
    charts = first.page.locator(".chart canvas").count()
    assert charts == (generations > 0) * (1 + with_nash_conv)  # the answer and, below, NashConv in detail
    assert ("NashConv" in first.text("main")) == (generations > 0 and with_nash_conv)
    assert ("The first generation has not finished" in first.text("main")) == (generations == 0)


@pytest.mark.slow
def test_no_page_scrolls_sideways_and_everything_has_a_name(tmp_path: Path, look: Look) -> None:
    address = write_report(synthetic.write(tmp_path / "run", generations=60)).as_uri()
    for page in PAGES:
        opened = look(f"{address}#/run/this{page}", width=390, dark=True)
        assert opened.said == []
        assert opened.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), page
        assert opened.page.evaluate(_NAMELESS) == [], page
        levels = [
            int(tag[1])
            for tag in opened.page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => h.tagName)")
        ]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(b <= a + 1 for a, b in pairwise(levels)), (page, levels)


_NAMELESS = """() => {
  const named = (node) => node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || node.title
    || node.textContent.trim() || [...(node.labels ?? [])].some((label) => label.textContent.trim());
  const all = document.querySelectorAll("button, a[href], input, select, [role=img], [tabindex='0']");
  return [...all].filter((node) => !named(node)).map((node) => node.outerHTML.slice(0, 200));
}"""


@pytest.mark.slow
def test_the_keyboard_alone_reads_a_chart_and_sorts_a_table(tmp_path: Path, look: Look) -> None:
    opened = look(write_report(synthetic.write(tmp_path / "run", generations=3)).as_uri())
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.focus(".plot >> nth=0")
    page.keyboard.press("End")
    assert page.inner_text(".chart [aria-live] >> nth=0").startswith("generation 3, NashConv ")
    heading = page.locator("th button:text-is('policy')").first
    heading.focus()
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort]").first.inner_text().startswith("policy")
    assert page.evaluate("document.activeElement.textContent") == "policy"  # the focus stays
    assert page.locator("td[data-key=policy] >> nth=0").inner_text() == "p0"


@pytest.mark.slow
def test_dark_theme_prints_dark_on_white(tmp_path: Path, look: Look) -> None:
    page = look(write_report(synthetic.write(tmp_path / "run", generations=2)).as_uri(), dark=True).page
    colours = []
    for media, other in (("screen", None), ("print", "rgb(232, 230, 225)")):
        page.emulate_media(media=media)
        for _ in range(50):
            colour = page.evaluate("getComputedStyle(document.querySelector('h1')).color")
            if colour != other:
                break
            page.wait_for_timeout(100)
        colours.append(colour)
    assert colours == ["rgb(232, 230, 225)", "rgb(31, 35, 40)"]
    assert page.evaluate("getComputedStyle(document.querySelector('.tabs')).display") == "none"


@pytest.mark.slow
def test_numbers_and_addresses(tmp_path: Path, look: Look) -> None:
    page = look(write_report(synthetic.write(tmp_path / "run", generations=0)).as_uri()).page

    def said(module: str, call: str) -> object:
        return page.evaluate(
            f"import('ludus/app.js').then((page) => {{ const {{ {call.split('(')[0]} }} = page.use('{module}.js'); return {call}; }})"
        )

    numbers = ["0", "0.12345", "-0.5", "12.3456", "1234.5", "-12345", "0.00000012", "2e10", "null", "NaN"]
    written = ["0", "0.123", "−0.500", "12.35", "1,235", "−12,345", "1.2e−7", "2.0e10", "–", "–"]
    assert [said("charts", f"number({value})") for value in numbers] == written
    times = [0, 9.94, 59.4, 59.6, 245, 7380, 172_800, 277_200]
    told = ["0.0 s", "9.9 s", "59 s", "1 min 0 s", "4 min 5 s", "2 h 3 min", "2 d 0 h", "3 d 5 h"]
    assert [said("charts", f"span({seconds})") for seconds in times] == told
    assert said("axes", "ticks(-0.02, 1.02, 5)") == [0, 0.5, 1]
    assert said("axes", "ticks(0, 1, 5)") == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert [said("members", f"called('{name}')") for name in ("@best", "@0/0-3", "constructor")] == [
        "the best policy",
        "0/0-3",
        "constructor",
    ]
    assert said("dom", "time(0).title") == "1970-01-01 00:00:00 UTC"
    here = page.evaluate("new Date(0).getHours()")
    assert re.search(rf" {here:02}:00:00 [A-Z]", str(said("dom", "time(0).textContent"))), "with its time zone"
    assert [said("dom", f"time({odd}).textContent") for odd in ("1.7e18", "NaN")] == ["–", "–"]
    where = "match('#/run/ab/policy/1/p%2F3?x=1')"
    found = said("app", f"{where}")
    assert isinstance(found, dict)
    assert found["params"] == {"run": "ab", "population": "1", "policy": "p/3"}
    assert said("app", "match('#/nowhere/at/all')") is None


@pytest.mark.slow
def test_nash_conv_has_a_logarithmic_axis_where_any_is_above_zero(tmp_path: Path, look: Look) -> None:
    page = look(write_report(synthetic.write(tmp_path / "run", generations=0)).as_uri()).page
    for total, gains, log, note in (
        ([4.0, 2.0, 0.5], [[2.0, 1.0, 1e-10], [2.0, 1.0, 0.5]], True, ""),  # 1e-10 is rounding, and 0
        ([4.0, 2.0], [[3.0, 0.02], [1.0, 1e-5]], True, ""),
        ([4.0, None, 1e-16], [[2.0, None, 0.0], [2.0, None, 1e-16]], True, ""),
        ([0.0, 0.0], [[0.0, 0.0]], False, "NashConv is 0 in every generation, so the axis is linear."),
        ([-0.5, -0.1], [[-0.5, -0.1]], False, "No NashConv is above 0, so the axis is linear."),
    ):
        found = page.evaluate(
            "async data => (await import('ludus/app.js')).use('overview.js').onAxis(data, true)",
            {"nash_conv": total, "gains": gains},
        )
        assert (found["log"], found["note"]) == (log, note)
        assert all(value is None or value == 0 or abs(value) > 1e-9 for row in found["gains"] for value in row)
    linear = page.evaluate(
        "async () => (await import('ludus/app.js')).use('overview.js').onAxis({ nash_conv: [1, 0], gains: [] }, false)"
    )
    assert (linear["log"], linear["note"]) == (False, "")


@pytest.mark.slow
def test_a_broken_page_is_noticed(tmp_path: Path, look: Look) -> None:
    report = write_report(synthetic.write(tmp_path / "run", generations=1))
    text = report.read_text(encoding="utf-8")
    report.write_text(text.replace("%0Abegin();", "%0Abegin();undefinedFunction();"), encoding="utf-8")
    assert any("undefinedFunction is not defined" in line for line in look(report.as_uri()).said)


@pytest.mark.slow
def test_a_comparison_is_drawn_and_told(tmp_path: Path, look: Look) -> None:
    for name, lengths in (("a", (2, 3)), ("b", (3,)), ("c", (2, 2))):
        for seed, generations in enumerate(lengths):
            synthetic.write(tmp_path / name / f"seed-{seed}", generations=generations)
    groups = [read_group(str(tmp_path / name)) for name in "abc"]
    groups = [replace(group, name=name) for group, name in zip(groups, ("a", "<b>", "c"), strict=True)]
    page = write_comparison(compare(groups, baselines=[Baseline("paper", 1.0, 0.2)]), tmp_path / "page.html")
    opened = look(page.as_uri(), width=390)
    assert opened.said == []
    assert opened.text("h1") == "a, <b> and c"
    headings = opened.page.locator("h2:visible").all_inner_texts()
    assert headings[0] == "NashConv (lower is better)"
    assert headings[1:] == [
        "Difference of the scenarios",
        "Sample efficiency",
        "Performance profile",
        "Probability of improvement",
        "Runs",
    ]
    assert opened.page.locator("text=The scenarios are the same, up to names and seeds.").count() == 1
    assert opened.page.locator(".chart canvas").count() == 2
    rows = opened.page.locator(".intervals >> nth=0").locator("li")
    assert [text.split("\n")[0] for text in rows.all_inner_texts()] == [
        "a (n = 2)",
        "<b> (n = 1)",
        "c (n = 2)",
        "paper",
    ]
    assert opened.page.locator(".intervals .of").last.inner_text() == "a over c", "a single run has no probability"
    assert "1 (0.800 to 1.200)" in rows.last.inner_text()
    assert opened.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert opened.page.evaluate(_NAMELESS) == []


@pytest.mark.slow
def test_one_run_of_each_has_no_profile(tmp_path: Path, look: Look) -> None:
    """Nor a probability of improvement; a sentence says why. 0.951 and 0.912 do not fill an axis."""
    for name, text in (("a", "{gamma: 0.9, lr: 1}"), ("b", "{gamma: 1, lr: 1}")):
        with Store.create(
            tmp_path / name, synthetic.info(tmp_path / name, text=f"algorithm: {text}\nseed: 7\n")
        ) as store:
            for number in range(3):
                value = {"a": 0.951, "b": 0.912}[name] + 2 - number
                store.generation_done(synthetic.generation(number, (1, 1), nash_conv=value))
            store.commit("last")
    page = write_comparison(compare([read_group(str(tmp_path / name)) for name in "ab"]), tmp_path / "page.html")
    opened = look(page.as_uri())
    assert opened.page.locator("h2:visible").all_inner_texts()[1:] == [
        "Difference of the scenarios",
        "Sample efficiency",
        "Runs",
    ]
    assert "one run of each (n = 1)" in opened.text("main")
    lefts = opened.page.evaluate(
        "[...document.querySelectorAll('.diamond')].map((mark) => parseFloat(mark.style.left))"
    )
    assert [80 < left < 96 for left in lefts] == [True, True], lefts  # percent of an axis from 0
    difference = opened.page.locator("table.difference")
    assert difference.locator("tbody tr").all_inner_texts() == ["algorithm", "gamma\t0.9\t1"]
    assert opened.said == []


@pytest.mark.slow
def test_eighteen_statistics_fit_a_screen(tmp_path: Path, look: Look) -> None:
    """One of all policies, with each opponent's; or all of one policy."""
    run_dir = tmp_path / "counts"
    names = ("goals", *(f"count_{k}" for k in range(17)))
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        for player, place in ((0, 0), (0, 1), (1, 0)):
            store.policy_added(synthetic.policy(player, place))
        for place, goals in enumerate([1.5, 0.25]):
            means = np.array([[goals] * 18, [1.0] * 18])
            counted = NamedStatistics(names, np.full((2, 18), 4), means, np.ones((2, 18)))
            match = synthetic.match(f"m{place}", (place, 0), 4, [0.5, -0.5], [1, 1])
            store.matches_recorded([replace(match, statistics=counted)])
        store.commit("c")
    opened = look(write_report(run_dir).as_uri())
    assert opened.said == []
    card = opened.page.locator("section", has=opened.page.get_by_role("heading", name="Statistics"))
    first = card.locator("tbody tr").first
    assert first.inner_text().split() == ["p0", "1.500", "4", "1", "opponent"]
    first.locator("summary").click()
    assert first.locator("dl").inner_text().split() == ["p0", "1.500"]
    card.get_by_role("button", name="all of a policy").click()
    card.locator("select").select_option("p1")
    assert card.locator("tbody tr").count() == 18
    assert card.locator("tbody tr").first.inner_text().split() == ["goals", "0.250", "0.875", "0.250", "1.500"]
    wide = card.evaluate(
        "(node) => [...node.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth).length"
    )
    assert wide == 0
