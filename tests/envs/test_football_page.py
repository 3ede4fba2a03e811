"""The page about observations, masks, rewards and statistics names all of them, with their widths."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from football_scenes import seen

from ludus.contrib.football.encoders import ENCODERS, MASKS, encoder
from ludus.contrib.football.match_statistics import NAMES
from ludus.contrib.football.shaping import TERMS

PAGE = (Path(__file__).parents[2] / "docs" / "environments" / "football-observations.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]


def named(heading: str) -> set[str]:
    """What the first cells of a section's tables name."""
    first = [line.split("|")[1] for line in section(heading).splitlines() if line.startswith("|")]
    return {name for cell in first for name in re.findall(r"`(\w+)`", cell)}


def test_tables_are_complete() -> None:
    assert named("Rewards") == set(TERMS)
    assert named("Statistics") == set(NAMES)
    assert named("Masks") - {"masks"} == set(MASKS)
    assert named("Observations") >= set(ENCODERS)


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_widths_are_those_of_the_page(name: str) -> None:
    n, m = 4, 3
    view = seen(left_team=np.zeros((n, 2)), right_team=np.zeros((m, 2)))
    (width,) = re.findall(rf"\| `{name}` \| ([^|]+) \|", section("Observations"))
    numbers = [int(number) for number in re.findall(r"\d+", width)] + [0, 0]
    assert len(encoder(name, view).names) == numbers[0] + numbers[1] * n + numbers[2] * m


def test_columns_are_named() -> None:
    """Each column of `features` stands in the table, or what it begins with."""
    rows = [line.split("|")[1] for line in section("Observations").splitlines() if line.startswith("|")]
    cells = [cell for row in rows for cell in re.findall(r"`([^`]+)`", row)]
    beginnings = tuple(cell.removesuffix("…").rstrip("0123456789_") + "_" for cell in cells if cell.endswith("…"))
    columns = encoder("features", seen()).names
    assert len(beginnings) >= 10
    assert [name for name in columns if name not in cells and not name.startswith(beginnings)] == []
    assert [start for start in beginnings if not any(name.startswith(start) for name in columns)] == []
