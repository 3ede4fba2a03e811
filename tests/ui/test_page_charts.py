"""Charts in a browser: what their axes, their cursor, their controls and their files do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic_run as synthetic
from page_tools import Opened, wait_until

from ludus.apps.ui.report import write_report

Look = Callable[..., Opened]

pytestmark = pytest.mark.slow

# A place of its own for charts that a test draws: window.draw(data, view) -> number of the chart.
DRAW = """async () => {
  const { use } = await import('ludus/app.js'), module = (name) => use(`${name}.js`);
  const [{ lines }, { View }, axes] = ['charts', 'view', 'axes'].map(module);
  document.querySelector('main').replaceChildren();
  const places = [];
  Object.assign(window, { lines, axes, places, shared: new View('x') });
  window.draw = (data, view) => {
    const place = document.createElement('div');
    document.querySelector('main').append(place);
    places.push({ place, chart: lines(place, data, view) });
    return places.length - 1;
  };
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(synthetic.write(tmp_path_factory.mktemp("charts") / "run", generations=2)).as_uri()


@pytest.fixture
def page(report: str, look: Look) -> Any:
    opened = look(report)
    opened.page.evaluate(DRAW)
    yield opened.page
    assert opened.said == []


def _draw(page: Any, *data: dict[str, Any]) -> None:
    """Charts of one view, one below the other."""
    page.evaluate("(all) => all.forEach((data) => draw(data, shared))", list(data))
    wait_until(page, "(n) => document.querySelectorAll('.chart canvas').length === n", arg=len(data))


def _hover(page: Any, which: int, share: float) -> None:
    box = page.locator(".u-over").nth(which).bounding_box()
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)


def _tip(page: Any) -> list[str]:
    return [line for line in str(page.locator(".tip:visible").inner_text()).split("\n") if line]


def test_a_logarithmic_axis_holds_all_series(page: Any) -> None:
    """NashConv falls to 1 and a gain to 0.4: the axis goes below both. What is 0 stands at its lower edge, and a note says so."""
    x = [0, 1, 2]
    series = [{"name": "NashConv", "values": [9, 3, 1]}, {"name": "gain", "values": [0.51, 0.45, 0.4]}]
    low, high = page.evaluate(
        "() => { const { low, high } = axes.axis([9, 3, 1, 0.51, 0.45, 0.4], { log: true }); return [low, high]; }"
    )
    assert low < 0.4 < 9 < high
    _draw(page, {"x": x, "xTitle": "generation", "log": True, "series": series})
    assert page.locator(".chart .hint:visible").count() == 0
    page.evaluate("(data) => draw(data)", {"x": x, "log": True, "series": [{"name": "gain", "values": [0.5, 0, -0.1]}]})
    note = page.locator(".chart .hint:visible").inner_text()
    assert note == "Values of 0 or below are drawn at the lower edge of the logarithmic axis: gain."


def test_ranges_and_ticks(page: Any) -> None:
    assert page.evaluate("axes.axis([0, 1e-5, 2e-5], { share: true })") == {"low": 0, "high": 0.01, "floor": None}
    rounding = page.evaluate("axes.axis([0.25, 0.25 + 2e-16, 0.25])")  # no difference, so it does not fill the axis
    assert (rounding["low"], rounding["high"]) == pytest.approx((0.125, 0.375))
    floor = page.evaluate("axes.axis([0, 0.01, 1], { log: true })")
    assert 0 < floor["floor"] == floor["low"] <= 0.005
    assert page.evaluate("axes.logTicks(0.91, 0.95, 6)") == [0.91, 0.92, 0.93, 0.94, 0.95]
    assert page.evaluate("axes.logTicks(1.3, 5.1, 4)") == [1.5, 2, 3, 5], "one near the lowest value"
    assert page.evaluate("axes.logTicks(0.3, 40, 12)") == [0.3, 1, 3, 10, 30]
    assert page.evaluate("axes.logTicks(1e-6, 1, 3)") == [1e-6, 1e-4, 1e-2, 1]


def test_smoothing_is_tensorboard_s(page: Any) -> None:
    """Sums of half of each value, halved at each step, over 1 - w^n: the first value is itself. A hole stays one."""
    values = page.evaluate("axes.smoothed([4, 8, null, 8], 0.5)")
    assert values == [4, pytest.approx((0.5 * 2 + 4) / 0.75), None, pytest.approx((0.25 * 2 + 0.5 * 4 + 4) / 0.875)]
    assert page.evaluate("axes.smoothed([4, 8], 0)") == [4, 8]


def test_curves_of_seeds_make_a_mean_with_a_band(page: Any) -> None:
    """As far as both have come: from 1 to 3, straight between points, holes left out."""
    found = page.evaluate(
        "axes.banded([{ x: [0, 1, 2, 4], values: [0, 1, null, 4] }, { x: [1, 2, 3], values: [3, 4, 5] }, { x: [], values: [] }])"
    )
    assert found == {"x": [1, 2, 3], "mean": [2, 3, 4], "low": [1, 2, 3], "high": [3, 4, 5]}
    assert page.evaluate("axes.banded([{ x: [0], values: [1] }, { x: [2], values: [3] }]).x") == []


def test_few_points_keep_the_peaks(page: Any) -> None:
    kept = page.evaluate(
        """() => {
      const x = Array.from({ length: 10000 }, (_, k) => k), y = x.map(Math.sin);
      [y[5077], y[123]] = [9, -9];
      return axes.drawnPlaces(x, y, [0, 9999], 300);
    }"""
    )
    assert {0, 123, 5077, 9999} <= set(kept)
    assert len(kept) <= 602
    assert page.evaluate("axes.drawnPlaces([0, 1, 2, 3, 4, 5], [1, 1, 1, 1, 1, 1], [2.5, 3.5], 300)") == [2, 3, 4]


def test_the_cursor_shows_all_series_and_that_of_other_charts(page: Any) -> None:
    """Series have places of their own; the one that ended long before says where its value stands."""
    ten = list(range(10))
    _draw(
        page,
        {"xTitle": "decisions", "series": [
            {"name": "a", "x": ten, "values": [10 * v for v in ten]},
            {"name": "b", "x": [v + 0.25 for v in ten], "values": ten},
            {"name": "c", "x": [0, 2], "values": [7, 5]},
        ]},
        {"xTitle": "decisions", "series": [{"name": "a", "x": ten, "values": ten}]},
    )  # fmt: skip
    _hover(page, 0, 8.02 / 9.25)
    assert _tip(page) == ["decisions 8", "80 a", "8 b", "5, at 2 c"]
    assert page.evaluate("shared.charts.size") == 2
    lefts = page.evaluate("[...document.querySelectorAll('.u-cursor-x')].map((line) => line.style.transform)")
    assert all(line.startswith("translate(") and "-10px" not in line for line in lefts)


def test_dragging_zooms_all_charts_and_a_double_click_shows_all(page: Any) -> None:
    ten = list(range(11))
    one = {"xTitle": "decisions", "height": 200, "series": [{"name": "a", "x": ten, "values": [100, *ten[1:]]}]}
    _draw(page, one, {**one, "log": True})
    box = page.locator(".u-over").first.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 40, steps=4)
    page.mouse.up()
    assert page.evaluate("shared.zoom") == pytest.approx([5, 7], abs=0.1)
    tops = page.evaluate("[...shared.charts].map((chart) => [chart.uplot.scales.x.max, chart.uplot.scales.y.max])")
    assert all(x == pytest.approx(7, abs=0.1) and y < 12 for x, y in tops)
    page.mouse.dblclick(box["x"] + 30, box["y"] + 30)
    assert page.evaluate("shared.zoom") is None
    assert page.evaluate("[...shared.charts][1].uplot.scales.x.max") == 10


def test_keys_zoom_and_move(page: Any) -> None:
    ten = list(range(11))
    _draw(page, {"xTitle": "decisions", "series": [{"name": "a", "x": ten, "values": ten}]})
    page.focus(".plot")
    page.keyboard.press("End")
    assert page.inner_text(".chart [aria-live]") == "decisions 10, a 10"
    page.keyboard.press("+")
    assert page.evaluate("shared.zoom") == pytest.approx([5, 10])
    page.keyboard.press("0")
    assert page.evaluate("shared.zoom") is None


def test_a_click_in_the_legend_isolates_and_shift_hides_one(page: Any) -> None:
    series = [{"name": name, "values": [k, k + 1]} for k, name in enumerate("abc")]
    _draw(page, {"x": [0, 1], "series": series})

    def pressed() -> list[str]:
        return page.evaluate("[...document.querySelectorAll('.legend button')].map((b) => b.ariaPressed)")  # type: ignore[no-any-return]

    page.click(".legend button >> nth=1")
    assert pressed() == ["false", "true", "false"]
    page.click(".legend button >> nth=1")
    assert pressed() == ["true", "true", "true"]
    page.click(".legend button >> nth=0", modifiers=["Shift"])
    assert pressed() == ["false", "true", "true"]
    page.focus(".legend button >> nth=2")
    page.keyboard.press("Control+Enter")
    assert pressed() == ["false", "true", "false"]
    assert page.evaluate("document.activeElement.textContent") == "c"


def test_a_tail_is_provisional_until_it_is_stored(page: Any) -> None:
    one = {"name": "a", "x": [0, 1, 2], "values": [0, 1, 2], "tail": {"x": [1.5, 3, 4], "values": [9, 3, 4]}}
    _draw(page, {"xTitle": "decisions", "series": [one]})
    _hover(page, 0, 0.999)
    assert _tip(page) == ["decisions 4", "4, provisional a"]
    assert page.evaluate("shared.charts.values().next().value.uplot.series.map((s) => String(s.dash ?? ''))") == [
        "",
        "",
        "3,3",
    ]
    stored = {"name": "a", "x": [0, 1, 2, 3, 4], "values": [0, 1, 2, 3, 4]}
    page.evaluate("(data) => places[0].chart.set(data)", {"xTitle": "decisions", "series": [stored]})
    _hover(page, 0, 0.99)
    assert _tip(page) == ["decisions 4", "4 a"]
    only = {"xTitle": "decisions", "series": [{**one, "x": [], "values": []}]}
    page.evaluate("(data) => places[0].chart.set(data)", only)
    _hover(page, 0, 0.9)
    assert _tip(page)[1].endswith("provisional a")


def test_a_chart_is_saved_as_numbers_and_as_a_picture(page: Any, tmp_path: Path) -> None:
    series = [
        {"name": "a, b", "x": [0, 1], "values": [0.5, 1.5], "low": [0, 1], "high": [1, 2]},
        {"name": "c", "x": [1, 2], "values": [3, 4], "tail": {"x": [5], "values": [9]}},
    ]
    _draw(page, {"xTitle": "decisions", "yTitle": "policy loss", "series": series})
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV of policy loss").click()
    assert saved.value.suggested_filename == "policy-loss-decisions.csv"
    saved.value.save_as(tmp_path / "chart.csv")
    assert (tmp_path / "chart.csv").read_text() == (
        'decisions,"a, b","a, b low","a, b high",c\n0,0.5,0,1,\n1,1.5,1,2,3\n2,,,,4\n'
    )
    with page.expect_download() as saved:
        page.get_by_role("button", name="PNG of policy loss").click()
    saved.value.save_as(tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_many_long_curves_are_drawn_by_few_points(page: Any) -> None:
    """20 charts of 12 learners with 10,000 points each, at places of their own: a move of the shared cursor costs what is drawn, and
    reaches all of them."""
    page.evaluate(
        """() => {
      const all = (f) => Array.from({ length: 10000 }, (_, i) => f(i));
      const learner = (k, m) => ({ name: `learner ${k}`, x: all((i) => i + k / 12), values: all((i) => Math.sin(i / 500 + k) + m) });
      for (let m = 0; m < 20; m++) {
        const series = Array.from({ length: 12 }, (_, k) => learner(k, m));
        draw({ xTitle: 'decisions', yTitle: `metric ${m}`, height: 170, series }, shared);
      }
    }"""
    )
    wait_until(page, "document.querySelectorAll('.chart canvas').length === 20")
    points = page.evaluate("Math.max(...[...shared.charts].map((chart) => chart.uplot.data[0].length))")
    assert points <= 12 * 2 * 1300  # two of each pixel and learner
    lefts = page.evaluate(
        "() => { const charts = [...shared.charts]; charts[0].uplot.setCursor({ left: 290, top: 20 });"
        " return charts.map((chart) => chart.uplot.cursor.left); }"
    )
    assert len(lefts) == 20
    assert lefts == pytest.approx([290] * 20, abs=1)


def test_all_metrics_of_learning_have_small_charts(report: str, look: Look) -> None:
    """They are drawn when they come near the screen, found by name, and smoothed and scaled together with the returns."""
    opened = look(f"{report}#/run/this/learning")
    page = opened.page
    card = page.locator("section.card", has=page.get_by_role("heading", name="Metrics"))
    names = card.locator("h4").all_inner_texts()
    assert "policy loss" in names
    assert "steps per second" in names
    card.scroll_into_view_if_needed()
    wait_until(page, "document.querySelectorAll('.metric canvas').length > 0")
    card.get_by_role("searchbox").fill("policy")
    assert card.locator("h4:visible").all_inner_texts() == ["policy loss"]
    page.locator(".smoothing input").fill("0.9")
    page.get_by_role("group", name="Scale").get_by_role("button", name="log").click()
    page.get_by_role("group", name="Over").get_by_role("button", name="episodes").click()
    label = card.locator(".metric:visible .plot").get_attribute("aria-label")
    assert label.startswith("Chart of policy loss over episodes.")
    assert opened.said == []
