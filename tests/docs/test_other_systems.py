"""The page about other systems' algorithms: every name on it is one."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from benchmarks.learning_tasks import TASKS
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.metagame.solvers.registry import META_SOLVERS
from ludus.runs.scenario import SCENARIOS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "concepts" / "other-systems.md"


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


def test_tasks_have_results_on_the_page_of_benchmarks() -> None:
    benchmarks = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    cells = {
        cell
        for tasks in last_cells(PAGE.read_text(encoding="utf-8"))
        for cell in re.findall(r"`([a-z0-9]+-[a-z0-9-]+)`", tasks)
    }
    assert len(cells) > 60
    assert cells <= set(TASKS)
    assert {cell for cell in cells if not re.search(rf"`{cell}` (?:\| )?−?\d", benchmarks)} == set()


def last_cells(text: str) -> list[str]:
    """Return the last column of every row of the page's tables."""
    return [line.split("|")[3] for line in text.splitlines() if line.count("|") == 4]
