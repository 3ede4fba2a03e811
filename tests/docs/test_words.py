"""Words that `docs/contributing/glossary.yaml` retires stay out of names, and out of prose they only fall: counts are in `words.yaml`."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import ludus

ROOT = Path(ludus.__file__).parents[1]
GLOSSARY: dict[str, Any] = yaml.safe_load((ROOT / "docs/contributing/glossary.yaml").read_text(encoding="utf-8"))
COUNTS: dict[str, dict[str, int]] = yaml.safe_load((Path(__file__).parent / "words.yaml").read_text(encoding="utf-8"))
"""The most that there may be. Lower a count with the commit that removes some."""


def identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


@cache
def names() -> Counter[str]:
    """Return how often each identifier stands in ludus/."""
    counts: Counter[str] = Counter()
    for path in (ROOT / "ludus").rglob("*.py"):
        counts.update(identifiers(ast.parse(path.read_text(encoding="utf-8"))))
    return counts


@cache
def prose() -> str:
    """Return the text of all sources and pages; the changelog and decisions tell of the past."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "decisions" not in path.parts]
    files = [ROOT / "README.md", *pages, *(ROOT / "ludus").rglob("*.md"), *(ROOT / "ludus").rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


@pytest.mark.parametrize("word", GLOSSARY["participles"])
def test_participles_in_names_only_fall(word: str) -> None:
    assert names()[word] <= COUNTS["names"][word], f"`{word}` is no name for new code: take a noun (glossary.yaml)"


def test_renamed_names_do_not_come_back() -> None:
    retired = {entry["old"]: entry["new"] for entry in GLOSSARY["renamed"] if "where" not in entry}
    back = {old: new for old, new in retired.items() if names()[old] > 0}
    assert not back, f"names that were retired, and what they are called now: {back}"


@pytest.mark.parametrize("phrase", COUNTS["prose"])
def test_retired_phrases_only_fall(phrase: str) -> None:
    count = len(re.findall(rf"\b{phrase}\b", prose(), re.IGNORECASE))
    assert count <= COUNTS["prose"][phrase], f"{phrase!r}: glossary.yaml has the standard term"
