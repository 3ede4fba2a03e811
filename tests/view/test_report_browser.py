"""The report in a real headless browser: charts are drawn and the console stays quiet."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.core.types import NamedStatistics
from ludus.storage.store import Store
from ludus.view.compared_runs import read_group
from ludus.view.comparison import Baseline, compare, write_comparison
from ludus.view.report import write_report

_BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
    "--window-size=1280,2400",
    "--dump-dom",
)

pytestmark = pytest.mark.skipif(
    _BROWSER is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"
)


def _open(report: Path, profile: Path, *flags: str) -> tuple[str, list[str]]:
    """(document after its scripts ran, console messages)."""
    assert _BROWSER is not None
    command = [_BROWSER, *_FLAGS, *flags, f"--user-data-dir={profile}", report.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def _body(document: str) -> str:
    """Without scripts, whose text holds whatever words Plotly's does."""
    return re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("generations", "players", "with_nash_conv", "charts"),
    [
        (12, 2, True, 7),
        (0, 2, True, 0),
        pytest.param(4, 3, True, 8, marks=pytest.mark.slow),
        pytest.param(3, 2, False, 5, marks=pytest.mark.slow),
    ],
)
def test_charts_are_drawn(tmp_path: Path, generations: int, players: int, with_nash_conv: bool, charts: int) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=generations, players=players, with_nash_conv=with_nash_conv)
    document, console = _open(write_report(run_dir), tmp_path / "profile")
    assert console == []
    assert 'data-ready="yes"' in document
    body = _body(document)
    assert len(re.findall(r'<div class="chart[^"]*js-plotly-plot"', body)) == charts
    assert body.count('class="main-svg"') >= 2 * charts
    assert len(re.findall(r"<td class=\"rank\">", body)) == (generations + 1 if generations else 0)
    assert ("NashConv was not computed" in body) == (not with_nash_conv)
    assert ("No generation has finished yet" in body) == (generations == 0)


_PROBE = """<script>
const boxes = [...document.querySelectorAll("#payoff-chart .xaxislayer-above text")].map((label) => label.getBoundingClientRect());
const apart = boxes.every((box, k) => k === 0 || boxes[k - 1].right < box.left);
document.documentElement.dataset.labels = `${boxes.length} ${apart ? "apart" : "over each other"}`;
document.documentElement.dataset.scrolls = String(document.documentElement.scrollWidth > window.innerWidth);
</script></body>"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [500, 1280])  # Chromium's windows are no narrower
def test_labels_of_many_policies_stay_apart(tmp_path: Path, width: int) -> None:
    report = write_report(synthetic.write(tmp_path / "run", generations=110))
    page = report.read_text(encoding="utf-8")
    head, _, tail = page.rpartition("</body>")
    report.write_text(head + _PROBE + tail, encoding="utf-8")
    document, console = _open(report, tmp_path / "profile", f"--window-size={width},2400")
    assert console == []
    found = re.search(r'data-labels="(\d+) ([a-z ]+)"', document)
    assert found is not None
    assert int(found[1]) >= 3
    assert found[2] == "apart"
    assert 'data-scrolls="false"' in document


def test_a_broken_page_is_noticed(tmp_path: Path) -> None:
    report = write_report(synthetic.write(tmp_path / "run", generations=1))
    report.write_text(report.read_text(encoding="utf-8").replace("header();", "header(); undefinedFunction();"))
    document, console = _open(report, tmp_path / "profile")
    assert any("undefinedFunction is not defined" in line for line in console)
    assert 'data-ready="yes"' not in document


@pytest.mark.slow
def test_a_comparison_draws_its_charts(tmp_path: Path) -> None:
    groups = [read_group(str(synthetic.write(tmp_path / name, generations=k))) for name, k in (("a", 2), ("b", 3))]
    page = write_comparison(compare(groups, baselines=[Baseline("paper", 1.0, 0.2)]), tmp_path / "page.html")
    document, console = _open(page, tmp_path / "profile")
    assert console == []
    assert 'data-ready="yes"' in document
    assert len(re.findall(r'<div class="chart[^"]*js-plotly-plot"', _body(document))) == 4


@pytest.mark.slow
def test_statistics_are_a_table_with_each_opponents_on_hover(tmp_path: Path) -> None:
    run_dir = tmp_path / "counts"
    statistics = NamedStatistics(("goals",), np.array([[4], [4]]), np.array([[1.5], [0.25]]), np.array([[1.0], [1.0]]))
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        for player in range(2):
            store.policy_added(synthetic.policy(player, 0))
        store.matches_recorded([replace(synthetic.match("m", (0, 0), 4, [0.5, -0.5], [1, 1]), statistics=statistics)])
        store.commit("c")
    document, console = _open(write_report(run_dir), tmp_path / "profile")
    assert console == []
    table = re.search(r'<section id="statistics".*?</section>', document, re.DOTALL)
    assert table is not None
    assert "<th>goals</th>" in table[0]
    assert '<td title="against p0: 1.5000">1.5000</td>' in table[0]
