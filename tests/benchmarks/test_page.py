"""The tables of docs/benchmarks.md: they are what the result files say, and nothing that is short is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import gpu, page, page_gpu
from benchmarks.contestants import Repetition
from benchmarks.gpu_runs import LAUNCHES, TIME_EACH
from benchmarks.gpu_store import Store
from benchmarks.machine import today
from benchmarks.page_commands import COMMANDS
from benchmarks.page_results import RESULTS, files, number, outcomes, score, table, wanted
from benchmarks.page_tables import BLOCKS, slower


def text() -> str:
    return page.PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_the_result_files_say() -> None:
    stale = [block.__name__ for block in BLOCKS if block() not in text()]
    assert stale == [], "python -m benchmarks.page writes the page anew"
    assert page.filled(text()) == text()


def test_what_is_reproduced_is_what_the_result_files_say() -> None:
    written = page.REPRODUCED.read_text(encoding="utf-8")
    assert page.filled(written, page.PAGES[page.REPRODUCED]) == written, (
        "python -m benchmarks.page writes the page anew"
    )


def test_the_page_has_each_block_once() -> None:
    marks = re.findall(r"<!-- benchmarks\.page (\w+): (\w+) -->", text())
    assert marks == [pair for name, _ in marks[::2] for pair in ((name, "begin"), (name, "end"))]
    assert sorted(name for name, _ in marks[::2]) == sorted(block.__name__ for block in BLOCKS)


def test_every_short_bar_is_in_the_table_of_what_is_slower_or_worse() -> None:
    rows = slower()
    stored = [(path.stem, bar) for path in files() for bar in json.loads(path.read_text())["bars"]]
    short = [(name, bar["name"]) for name, bar in stored if bar["verdict"] == "short"]
    judged = [(name, bar.name) for name, bars in outcomes().items() for bar in bars if bar.verdict == "short"]
    assert len(judged) > len(short) > 5
    for benchmark, bar in {*short, *judged}:
        row = f"| `{benchmark}` | " + (f"`{bar.partition(',')[0]}` |" if benchmark == "learning" else f"{bar} |")
        assert row in rows


def test_rows_of_a_gpu_are_of_one_early_repetition_until_they_are_stored(tmp_path: Path) -> None:
    names = [bar.name for bar in gpu.bars("cuda")]
    assert set(page_gpu.EARLIER) <= set(names)
    bar = "rollout of preset leduc, launches per game step"
    whole = "preset leduc, GPU, a whole run"
    earlier = {name: rest for name, *rest in page_gpu.rows(tmp_path)}
    assert list(earlier) == ["bar", *names]
    assert earlier[whole] == ["≤ 8s", "**39.7s**", "1, `--quick`", "H200, 2026-11-27"]
    assert earlier[bar] == ["≤ 2", "unjudged", "", ""]
    assert [name for name, *_ in page_gpu.figures(tmp_path)] == [
        "figure", "preset leduc, GPU: seconds", "preset leduc, one core, its own settings: seconds",
    ]  # fmt: skip

    store, known = Store(tmp_path, "H300"), gpu.contestants("cuda")
    for seed in (0, 1, 2):
        rollout = Repetition(seed, {LAUNCHES: 1.25 + seed / 100, TIME_EACH: 40.0})
        store.add(known["launches"], rollout, store.repetitions(known["launches"]), "H300")
    store.add(known["leduc"], Repetition(4, {"seconds": 9.0}), [], "H300")
    stored = {name: rest for name, *rest in page_gpu.rows(tmp_path)}
    assert stored[bar] == ["≤ 2", "1.26", "3", f"H300, {today()}"]
    assert stored[whole] == ["≤ 8s", "**9s**", "1", f"H300, {today()}"]
    figures = {name: rest for name, *rest in page_gpu.figures(tmp_path)}
    assert figures[bar.replace(",", ":")] == ["1.26", "1.25", "1.27", "3", f"H300, {today()}"]


def test_every_benchmark_with_results_is_in_the_list_of_commands() -> None:
    names = {path.stem for path in RESULTS.glob("*.json")} | {path.name for path in RESULTS.iterdir() if path.is_dir()}
    assert {name for name in names if not name.endswith(".quick")} <= set(COMMANDS)  # those are not committed
    assert set(outcomes()) <= set(COMMANDS)


def test_a_page_without_marks_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"benchmarks\.page headline: begin"):
        page.filled("# Benchmarks\n")


def test_figures_are_written_with_three_digits() -> None:
    assert [number(x) for x in (641555.0, 382.1, 55.28, 9.996, 2.28, 0.1449, 0.0037, 0.0, -1.5)] == [
        "641,555", "382", "55.3", "10.0", "2.28", "0.145", "0.0037", "0.000", "−1.50",
    ]  # fmt: skip
    assert number(0.25, 2) == "0.25"


def test_scores_have_an_interval_from_three_seeds_on() -> None:
    assert score([6029.4, 7560.1]) == "6,029; 7,560"
    assert score([500.0, 500.0, 500.0]) == "500.0 ± 0.0"
    assert score([-0.5, 0.0, 0.5]) == "0.000 ± 1.242"  # t at 2 degrees of freedom is 4.303, by 0.5 / √3


def test_conditions_and_tables() -> None:
    assert (wanted(">= 0.85"), wanted("<= -73.5"), wanted("> 1"), wanted(">= 8000000")) == (
        "≥ 0.85", "≤ −73.5", "> 1", "≥ 8,000,000",
    )  # fmt: skip
    assert table(("a", "b"), ("x", "1"), right=(1,)) == "| a | b |\n| --- | ---: |\n| x | 1 |"
