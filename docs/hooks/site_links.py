"""Links of pages, as they stand in the repository, and the lines of a name in a Python file. Needs neither MkDocs nor Ludus."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator
from functools import cache

from site_layout import ROOT

LINK = re.compile(
    r"(^```.*?^```[^\S\n]*$|``.*?``|`[^`\n]*`)|(\]\()([^)\s]+)((?: \"[^\"]*\")?\))", re.DOTALL | re.MULTILINE
)
"""A block or span of code (group 1), or the target of a link (group 3) and its title (group 4)."""
OUTSIDE = re.compile(r"[a-z][a-z+.-]*:")


def targets(text: str) -> Iterator[str]:
    """Yield the targets of a page's links that stay in the repository, as they are written."""
    for match in LINK.finditer(text):
        if match[3] and not OUTSIDE.match(match[3]):
            yield match[3]


def rewrite(text: str, change: Callable[[str], str]) -> str:
    """Return the page with each target of `targets` replaced by `change(target)`."""

    def replacement(match: re.Match[str]) -> str:
        if not match[3] or OUTSIDE.match(match[3]):
            return match[0]
        return f"{match[2]}{change(match[3])}{match[4]}"

    return LINK.sub(replacement, text)


def resolve(target: str, path: str) -> tuple[str, str]:
    """Return (path in the repository, fragment) of a link that stands in the page `path` of the repository."""
    file, _, fragment = target.partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path, fragment


@cache
def definitions(path: str) -> dict[str, tuple[int, int]]:
    """Return the first and last line of each class, function and assignment of a Python file, by its qualified name."""
    lines: dict[str, tuple[int, int]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                lines[prefix + child.name] = (first, child.end_lineno or child.lineno)
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.Assign | ast.AnnAssign):
                for name in child.targets if isinstance(child, ast.Assign) else [child.target]:
                    if isinstance(name, ast.Name):
                        lines[prefix + name.id] = (child.lineno, child.end_lineno or child.lineno)
            elif isinstance(child, ast.If | ast.Try):
                visit(child, prefix)

    visit(ast.parse((ROOT / path).read_text(encoding="utf-8")), "")
    return lines


def lines_of(path: str, name: str) -> tuple[int, int]:
    """Return the first and last line of `Class.method` in a Python file.

    Raises:
        KeyError: The file has no such name.
    """
    if name not in definitions(path):
        raise KeyError(f"{path} has no {name!r}; a link names a class, function or constant of the file")
    return definitions(path)[name]
