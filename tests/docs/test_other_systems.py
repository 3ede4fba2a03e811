"""The page about other systems' algorithms: every name on it is one."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from statistics import mean

from benchmarks.learning_cells import RESULTS, Run
from benchmarks.learning_tasks import TASKS
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.metagame.solvers.registry import META_SOLVERS
from ludus.runs.scenario_kinds import SCENARIOS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "other-systems.md"


def test_every_name_is_known_and_every_algorithm_has_its_place() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = {kind: set(re.findall(rf"`{kind}=(\w+)`", text)) for kind in ("algorithm", "scenario", "meta_solver")}
    assert named["scenario"] <= set(SCENARIOS)
    assert named["meta_solver"] <= set(META_SOLVERS)
    assert named["algorithm"] == set(ALGORITHMS)
    presets = {path.name.removesuffix(".yaml") for path in (resources.files("ludus.runs") / "presets").iterdir()}
    assert set(re.findall(r"presets? ((?:`[\w-]+`(?:, )?)+)", text)) != set()
    for found in re.findall(r"presets? ((?:`[\w-]+`(?:, )?)+)", text):
        assert set(re.findall(r"`([\w-]+)`", found)) <= presets
    cells = {name for figures in figures_of(text) for name in re.findall(r"`([a-z0-9]+-[a-z0-9-]+)`", figures)}
    assert len(cells) > 20
    assert cells <= set(TASKS)


def test_every_figure_stands_on_the_page_that_its_row_links_to() -> None:
    wrong, seen = [], 0
    for figures in figures_of(PAGE.read_text(encoding="utf-8")):
        links = re.findall(r"\]\(([^)#]+)", figures)
        there = "".join((PAGE.parent / link).read_text(encoding="utf-8") for link in links)
        numbers = re.findall(
            r"(?<![\w-])−?\d[\d,.]*\d|(?<![\w-])\d(?!\w)", re.sub(r"`[^`]*`|\]\([^)]*\)|SB3", "", figures)
        )
        seen += len(numbers)
        wrong += [
            (n, figures) for n in numbers if re.search(rf"(?<![\d.,−]){re.escape(n)}(?![\d.,]*\d)", there) is None
        ]
    assert seen > 60
    assert wrong == []


def test_figures_of_cells_are_the_means_of_what_is_stored() -> None:
    """Where there are three seeds or more."""
    wrong, seen = [], set()
    for figures in figures_of(PAGE.read_text(encoding="utf-8")):
        for cell, said in re.findall(r"`([a-z0-9]+-[a-z0-9-]+)` (−?\d[\d,]*(?:\.\d+)?)", figures):
            files = [RESULTS / Run(cell, seed).path for seed in TASKS[cell].seeds]
            scores = [json.loads(file.read_text())["repetition"]["figures"]["score"] for file in files if file.exists()]
            if len(scores) >= 3:
                seen.add(cell)
                value, digits = float(said.replace("−", "-").replace(",", "")), len(said.partition(".")[2])
                if round(mean(scores), digits) != value:
                    wrong.append((cell, said))
    assert len(seen) > 20
    assert wrong == []


def figures_of(text: str) -> list[str]:
    """The last column of every row of the page's tables."""
    return [line.split("|")[3] for line in text.splitlines() if line.count("|") == 4]
