"""A few of many environments whose names are combinations of choices."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations


def covering(names: Iterable[str], choices: Iterable[tuple[str, ...]]) -> list[str]:
    """Names among which any two choices that meet in some name meet. choices: of each name, one of every kind."""
    met: set[tuple[object, ...]] = set()
    kept = []
    for name, made in zip(names, choices, strict=True):
        pairs = set(combinations(enumerate(made), 2))
        if not pairs <= met:
            kept.append(name)
            met |= pairs
    return kept
