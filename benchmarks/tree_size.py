"""How large the package is: lines of Python by tier and package, files, and circles of imports.

    python -m benchmarks.tree_size

The library is what is neither in `contrib`, `apps`, `cli` nor `testing`. Imports for types count as imports, names in strings do not.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).parents[1] / "ludus"
BESIDE = ("contrib", "apps", "cli", "testing")
BAR = 80_000
"""Lines that the library may have."""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circles(sources: dict[str, str]) -> list[list[str]]:
    """Return the sets of modules that import each other in a circle. sources: the text of each module."""
    number = {module: k for k, module in enumerate(sources)}
    edges = [
        (number[module], number[target])
        for module, text in sources.items()
        for node in ast.walk(ast.parse(text))
        for target in _targets(node)
        if target in number and target != module
    ]
    source, target = np.array(edges or [(0, 0)]).T
    graph = coo_array((np.ones(len(source)), (source, target)), shape=(len(number),) * 2)
    _, label = connected_components(graph, directed=True, connection="strong")
    groups = defaultdict(list)
    for module, which in zip(sources, label.tolist(), strict=True):
        groups[which].append(module)
    return [group for group in groups.values() if len(group) > 1]


def _targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def main() -> int:
    sources = {module_of(path): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
    lines, files = defaultdict[str, int](int), defaultdict[str, int](int)
    for path in sorted(ROOT.rglob("*.py")):
        first, *rest = path.relative_to(ROOT).parts
        size = sources[module_of(path)].count("\n")
        tier = first if first in BESIDE or not rest else "library"
        for name in dict.fromkeys((tier, first, "all")):
            lines[name] += size
            files[name] += 1
    packages = sorted(set(lines) - {*BESIDE, "library", "all"}, key=lambda name: -lines[name])
    for name in (*packages, "library", *BESIDE, "all"):
        print(f"{name:12} {lines[name]:8,} lines {files[name]:5} files")
    del sources["ludus"]  # it is in no tier, and resolves names when they are first used
    found = circles(sources)
    for group in found:
        print("circle:", ", ".join(group))
    print(f"{len(found)} circles; the library has {lines['library'] / BAR:.1%} of its {BAR:,} lines")
    return int(bool(found) or lines["library"] > BAR)


if __name__ == "__main__":
    sys.exit(main())
