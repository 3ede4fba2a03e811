"""The page about other systems' algorithms: every name on it is one."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from benchmarks.learning_tasks import TASKS
from ludus.driver.scenario_kinds import SCENARIOS
from ludus.learners.registry import ALGORITHMS
from ludus.solvers.registry import META_SOLVERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "other-systems.md"


def test_every_name_is_known_and_every_algorithm_has_its_place() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = {kind: set(re.findall(rf"`{kind}=(\w+)`", text)) for kind in ("algorithm", "scenario", "meta_solver")}
    assert named["scenario"] <= set(SCENARIOS)
    assert named["meta_solver"] <= set(META_SOLVERS)
    assert named["algorithm"] == set(ALGORITHMS)
    presets = {path.name.removesuffix(".yaml") for path in (resources.files("ludus.driver") / "presets").iterdir()}
    assert set(re.findall(r"presets? ((?:`[\w-]+`(?:, )?)+)", text)) != set()
    for found in re.findall(r"presets? ((?:`[\w-]+`(?:, )?)+)", text):
        assert set(re.findall(r"`([\w-]+)`", found)) <= presets
    cells = {
        name
        for line in text.splitlines()
        if line.count("|") == 4
        for name in re.findall(r"`([a-z0-9-]+)`", line.split("|")[3])
    }
    assert len(cells) > 20
    assert cells <= set(TASKS)
