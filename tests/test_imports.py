"""Packages of `ludus` import each other in one direction."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import ludus

ROOT = Path(ludus.__file__).parent


def package_of(path: Path) -> str:
    """The first name below `ludus`: a package, or a module beside it."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Packages that a module imports anywhere, but for the sake of types only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing = {id(inner) for node in ast.walk(tree) if _for_types(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in typing or not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("ludus"):
            continue
        _, *rest = str(node.module).split(".")
        yield from rest[:1] if rest else [alias.name for alias in node.names if alias.name != "__version__"]


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def graph() -> dict[str, set[str]]:
    out: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        if path.parent != ROOT or path.name != "__init__.py":  # the public names are resolved when they are first used
            package = package_of(path)
            out.setdefault(package, set()).update(set(imports(path)) - {package})
    return out


def test_no_two_packages_import_each_other() -> None:
    found = graph()
    assert {"types", "envs", "runner", "cli"} <= found.keys()
    assert "scenario" in found["cli"]
    try:
        order = list(TopologicalSorter(found).static_order())
    except CycleError as error:
        pytest.fail(f"packages import each other: {' <- '.join(error.args[1])}")
    assert order.index("types") < order.index("envs") < order.index("runner") < order.index("cli")


def test_seams_import_no_implementation() -> None:
    """`base` modules import records, other seams, and pure data only."""
    allowed = {"types", "errors", "base", "trajectories", "payoffs", "game_tree", "ranks"}
    for path in ROOT.glob("*/base.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ludus"):
                assert str(node.module).rsplit(".", 1)[-1] in allowed, f"{path} imports {node.module}"
