"""Index the types of attributes and keywords for `benchmarks.rename`: `python -m benchmarks.rename_types OUTPUT`.

mypy, as a library, checks all files that a rename reaches: about four minutes of one core, and 6 GB of memory. OUTPUT is a pickle of

    {file: {(line, column where the name ends): classes, (line, column where the call begins, keyword): callees}}

with full names: of the class that defines an attribute, of the module that has a global, and of the class or function that is called. A
name that begins with "?" is one of a type that mypy does not know, or that has no such attribute.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

from mypy import build, nodes, types
from mypy.fscache import FileSystemCache
from mypy.main import process_options

from benchmarks.rename import FOLDERS, ROOT, Types

CACHE = ROOT / "build" / "rename_types"
_NOT_BELOW = frozenset(  # what a node refers to, and does not hold
    (
        "node",
        "info",
        "type",
        "definition",
        "original_def",
        "defn",
        "names",
        "imports",
        "analyzed",
        "variables",
        "plugin_deps",
        "def_frame",
    )
)


def index() -> dict[str, Types]:
    """Return the references of each file, by its path below the repository."""
    _forget_own_files()
    arguments = ["--config-file", str(ROOT / "pyproject.toml"), "--check-untyped-defs", "--cache-dir", str(CACHE)]
    files = FileSystemCache()
    sources, options = process_options([*arguments, *FOLDERS], fscache=files)
    options.export_types = options.preserve_asts = True
    paths = [source.path for source in sources if source.path is not None and source.path.endswith(".py")]
    texts = {path: Path(path).read_text(encoding="utf-8") for path in paths}
    result = build.build(sources, options, fscache=files)
    out: dict[str, Types] = {}
    for state in result.graph.values():
        if state.tree is not None and state.path is not None and state.path in texts:
            out[os.path.relpath(state.path, ROOT)] = _references(state.tree, texts[state.path], result.types)
    return out


def _forget_own_files() -> None:
    """Remove the project's own files from mypy's cache: what comes from there has no syntax tree."""
    for database in CACHE.rglob("cache.*.db"):
        with closing(sqlite3.connect(database)) as connection, connection:
            for folder in FOLDERS:
                connection.execute("DELETE FROM files2 WHERE path LIKE ?", (f"{folder}/%",))


def _references(tree: nodes.MypyFile, text: str, known: dict[nodes.Expression, types.Type]) -> Types:
    lines, out = text.splitlines(), defaultdict[Any, set[str]](set)

    def place(line: int, column: int | None) -> tuple[int, int]:  # mypy counts bytes
        return line, len(lines[line - 1].encode()[: column or 0].decode(errors="replace"))

    for node in _nodes(tree):
        if isinstance(node, nodes.MemberExpr) and node.end_line is not None:  # of what is written there
            module = node.expr.node if isinstance(node.expr, nodes.RefExpr) else None
            owners = (
                [module.fullname] if isinstance(module, nodes.MypyFile) else _owners(known.get(node.expr), node.name)
            )
            out[place(node.end_line, node.end_column)].update(owners)
        elif isinstance(node, nodes.CallExpr):
            for keyword in filter(None, node.arg_names):
                out[*place(node.line, node.column), keyword].add(_callee(node.callee, known.get(node.callee)))
    return {key: tuple(sorted(names)) for key, names in out.items()}


def _nodes(tree: nodes.Node) -> Iterator[nodes.Node]:
    """Yield all nodes of a tree. (mypy's own visitors are compiled, and cannot be derived from.)"""
    stack: list[Any] = [tree]
    visited = set[int]()
    while stack:
        item = stack.pop()
        if isinstance(item, list | tuple):
            stack.extend(item)
        elif isinstance(item, nodes.Node) and not isinstance(item, nodes.TypeInfo) and id(item) not in visited:
            visited.add(id(item))
            yield item
            stack.extend(_parts(item))


def _parts(node: nodes.Node) -> Iterator[Any]:
    kind: Any = type(node)
    for name in _fields(kind):
        with suppress(AssertionError):  # of a property that this node does not have
            yield getattr(node, name, None)


@cache
def _fields(kind: Any) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and name not in _NOT_BELOW]


def _owners(kind: types.Type | None, name: str) -> Iterator[str]:
    """Yield the full names of the classes that define an attribute of a type."""
    match types.get_proper_type(kind):
        case types.Instance(type=info):
            yield next((base.fullname for base in info.mro if name in base.names), f"?{info.fullname}")
        case types.UnionType(items=items):
            for item in items:
                yield from _owners(item, name)
        case types.TypeType(item=item):
            yield from _owners(item, name)
        case types.CallableType() as function:
            yield from _owners(function.ret_type if function.is_type_obj() else function.fallback, name)
        case types.Overloaded(items=items):
            yield from _owners(items[0], name)
        case types.TypeVarType(upper_bound=bound):
            yield from _owners(bound, name)
        case types.TupleType(partial_fallback=fallback) | types.LiteralType(fallback=fallback):
            yield from _owners(fallback, name)
        case types.NoneType():
            return
        case other:
            yield f"?{type(other).__name__}"


def _callee(callee: nodes.Expression, kind: types.Type | None) -> str:
    """Return the full name of the class or function that is called."""
    name = callee.fullname if isinstance(callee, nodes.RefExpr) else ""
    function = types.get_proper_type(kind)
    if not isinstance(function, types.CallableType):
        return name or "?"
    if function.is_type_obj():
        instance = types.get_proper_type(function.ret_type)
        return instance.type.fullname if isinstance(instance, types.Instance) else name or "?"
    return (function.definition.fullname if function.definition else "") or name or "?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    output = parser.parse_args().output.resolve()
    os.chdir(ROOT)
    references = index()
    output.write_bytes(pickle.dumps(references))
    print(f"{sum(map(len, references.values()))} references of {len(references)} files")


if __name__ == "__main__":
    main()
