"""Does a commit change names only? Compares the syntax trees of all Python files of two commits under a map of names.

    python -m benchmarks.rename_check OLD NEW [--map MAP.yaml] [--texts]

MAP.yaml, each part of which may be missing:

    modules: {ludus.learners.around: ludus.learners.placement}   modules and packages, with all below them
    files: {tests/learners/together.py: tests/learners/ranks.py}   other files that move
    names: {found: [result, answer], seen: known}   identifiers, of which one may have several new words
    strings: {"old text": "new text"}   whole strings; those of modules, module:Class and single identifiers need no entry

Equal are trees whose identifiers and strings differ by the map alone, without comments, docstrings, formatting and the order of imports
and of `__all__`. In a function two names must stay two, and one must stay one.
With --texts strings with a blank in them may differ, for commits that reword messages.

Prints the renames with their counts, and each file that differs otherwise, with its lines. Exit status: 1 if there is one, 2 when it could
not start.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from benchmarks.machine import ROOT

MOST = 5  # differences that are printed of a file
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_CODE = re.compile(r"[\w.:\[\]{}/-]+")  # strings that name something
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_IDENTIFIERS = {
    (ast.Name, "id"),
    (ast.Attribute, "attr"),
    (ast.arg, "arg"),
    (ast.keyword, "arg"),
    (ast.FunctionDef, "name"),
    (ast.AsyncFunctionDef, "name"),
    (ast.ClassDef, "name"),
    (ast.ExceptHandler, "name"),
    (ast.Global, "names"),
    (ast.Nonlocal, "names"),
    (ast.MatchAs, "name"),
    (ast.MatchStar, "name"),
    (ast.MatchMapping, "rest"),
    (ast.MatchClass, "kwd_attrs"),
}
_LOCAL = {(ast.Name, "id"), (ast.arg, "arg"), (ast.ExceptHandler, "name"), (ast.MatchAs, "name")}


# ------------------------------------------------------------------------------------------ the map


@dataclass(frozen=True)
class Renames:
    """What may become what. modules: dotted, old to new. names: by old identifier, all new ones."""

    modules: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    strings: Mapping[str, str] = field(default_factory=dict)
    texts: bool = False

    @classmethod
    def of(cls, data: Mapping[str, Any], *, texts: bool = False) -> Renames:
        """The map that a YAML file has. Raises ValueError for keys that are none."""
        if unknown := data.keys() - {"modules", "files", "names", "strings"}:
            raise ValueError(f"unknown key {sorted(unknown)[0]!r} in the map; expected modules, files, names, strings")
        names: dict[str, set[str]] = {}
        for old, new in (data.get("names") or {}).items():
            names.setdefault(old, set()).update([new] if isinstance(new, str) else new)
        modules = dict(data.get("modules") or {})
        for old, new in modules.items():  # `errors.X` after `from ludus.core import errors`
            names.setdefault(old.rpartition(".")[2], set()).add(new.rpartition(".")[2])
        sets = {old: frozenset(new) for old, new in names.items()}
        return cls(modules, dict(data.get("files") or {}), sets, dict(data.get("strings") or {}), texts)

    def module(self, name: str) -> str:
        """The new name of a module, or of what is in one: by the longest entry that it lies below."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            if (new := self.modules.get(".".join(parts[:end]))) is not None:
                return ".".join([new, *parts[end:]])
        return name

    def file(self, path: str) -> str:
        """Where a file is now."""
        if path in self.files:
            return self.files[path]
        package = path.endswith("/__init__.py")
        dotted = path.removesuffix("/__init__.py" if package else ".py").replace("/", ".")
        return self.module(dotted).replace(".", "/") + ("/__init__.py" if package else ".py")

    def identifier(self, old: str, new: str) -> bool:
        """Whether one may become the other."""
        return old == new or new in self.names.get(old, ())

    def dotted(self, old: str, new: str) -> bool:
        """Whether a module, or what is in one, may become the other."""
        before, after = self.module(old).split("."), new.split(".")
        return len(before) == len(after) and all(map(self.identifier, before, after))

    def string(self, old: str, new: str) -> bool:
        """Whether one text may become the other."""
        if old == new or self.strings.get(old) == new:
            return True
        if self.texts and " " in old and " " in new:
            return True
        if not (_CODE.fullmatch(old) or is_annotation(old)):
            return False
        if _WORD.sub("·", old) != _WORD.sub("·", new):
            return False
        return all(map(self.dotted, _WORD.findall(old), _WORD.findall(new)))


def is_annotation(text: str) -> bool:
    """Whether a string may be a type: Mapping[str, Any] | None."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    kinds = (
        ast.Expression,
        ast.Name,
        ast.Attribute,
        ast.Subscript,
        ast.Tuple,
        ast.List,
        ast.BinOp,
        ast.BitOr,
        ast.Constant,
        ast.Load,
    )
    return all(isinstance(node, kinds) for node in ast.walk(tree))


# ------------------------------------------------------------------------------------------ trees without what does not count


def stripped(text: str) -> ast.Module:
    """The tree of a source without docstrings, those of attributes too."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                rest = [each for each in body if not is_docstring(each)]
                empty = ast.Pass(lineno=getattr(node, "lineno", 1), col_offset=0)
                setattr(node, name, rest or ([empty] if body else []))
    return tree


def is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def dotted_of(node: ast.AST) -> str:
    """a.b.c of an expression that is one; else ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str, str]]:
    """(module or "", name, as) of each name that a statement imports; relative ones made absolute."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield "", alias.name, alias.asname or ""
        return
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    module = ".".join([*above, *([node.module] if node.module else [])])
    for alias in node.names:
        yield module, alias.name, alias.asname or ""


# ------------------------------------------------------------------------------------------ comparing


class Comparison:
    """Walks two trees side by side. differences: (line of the old file, of the new one, what). renames: (old, new) -> how often."""

    def __init__(self, renames: Renames, *, old_package: str = "", new_package: str = "") -> None:
        self.renames, self.packages = renames, (old_package, new_package)
        self.differences: list[tuple[int, int, str]] = []
        self.pairs: Counter[tuple[str, str]] = Counter()
        self._lines = (0, 0)
        self._scopes: list[Scope] = []

    def differ(self, what: str) -> None:
        """Notes a difference at the lines where the walk is."""
        self.differences.append((*self._lines, what))

    def node(self, old: Any, new: Any) -> None:
        """Compares two nodes, or two values of a field."""
        if isinstance(old, ast.AST) and isinstance(new, ast.AST):
            self._lines = (getattr(old, "lineno", self._lines[0]), getattr(new, "lineno", self._lines[1]))
            self._nodes(old, new)
        elif isinstance(old, list) and isinstance(new, list):
            self._lists(old, new)
        elif type(old) is not type(new) or repr(old) != repr(new):
            self.differ(f"{short(old)} became {short(new)}")

    def _nodes(self, old: ast.AST, new: ast.AST) -> None:
        if type(old) is not type(new):
            self.differ(f"{short(old)} became {short(new)}")
            return
        if isinstance(old, ast.Constant) and isinstance(new, ast.Constant):
            self._constants(old.value, new.value)
        elif self._is_module(whole := dotted_of(old)):
            if not self.renames.dotted(whole, after := dotted_of(new)):
                self.differ(f"{whole} became {after}")
        elif is_all(old) and is_all(new):
            self._matched(all_of(old), all_of(new), "__all__ has", self.renames.string)
        elif isinstance(old, _SCOPES):
            self._scopes.append(Scope())
            self._fields(old, new)
            self._scopes.pop()
        else:
            self._fields(old, new)

    def _is_module(self, dotted: str) -> bool:
        """Whether a dotted expression begins with a package that has moved."""
        first, dot, _ = dotted.partition(".")
        return bool(dot) and any(name.partition(".")[0] == first for name in self.renames.modules)

    def _fields(self, old: ast.AST, new: ast.AST) -> None:
        for name in old._fields:
            before, after = getattr(old, name, None), getattr(new, name, None)
            if (type(old), name) in _IDENTIFIERS:
                self._identifiers(before, after, local=(type(old), name) in _LOCAL)
            elif name not in ("ctx", "kind", "type_comment"):
                self.node(before, after)

    def _identifiers(self, old: Any, new: Any, *, local: bool) -> None:
        before, after = ([name] if name is None or isinstance(name, str) else name for name in (old, new))
        if len(before) != len(after) or (None in before) != (None in after):
            self.differ(f"{old} became {new}")
            return
        for one, other in zip(before, after, strict=True):
            if one is None:
                continue
            if one != other:
                self.pairs[one, other] += 1
            if not self.renames.identifier(one, other):
                self.differ(f"{one} became {other}, which the map does not have")
            elif local and self._scopes:
                self._local(one, other)

    def _local(self, old: str, new: str) -> None:
        own = self._scopes[-1]
        if own.new.setdefault(old, new) != new:
            self.differ(f"{old} became both {own.new[old]} and {new} in one function")
        for scope in self._scopes:
            if scope.old.setdefault(new, old) != old:
                self.differ(f"{old} and {scope.old[new]} both became {new} in one function")

    def _constants(self, old: Any, new: Any) -> None:
        if isinstance(old, str) and isinstance(new, str):
            if not self.renames.string(old, new):
                self.differ(f"{short(old)} became {short(new)}")
        elif type(old) is not type(new) or repr(old) != repr(new):
            self.differ(f"{old!r} became {new!r}")

    def _lists(self, old: Sequence[Any], new: Sequence[Any]) -> None:
        """Statements between imports, and the imports of each block of them as a set."""
        before, after = list(blocks(old)), list(blocks(new))
        if [kind for kind, _ in before] != [kind for kind, _ in after]:
            self.differ(
                f"{len(old)} statements or parts became {len(new)}, or imports are elsewhere{unmatched(old, new)}"
            )
            return
        for (imports, one), (_, other) in zip(before, after, strict=True):
            if imports:
                items, others = (
                    [item for node in nodes for item in imported(node, package)]
                    for nodes, package in zip((one, other), self.packages, strict=True)
                )
                self._matched(items, others, "imports have", self._same_import)
            elif len(one) != len(other):
                self.differ(f"{len(one)} statements or parts became {len(other)}{unmatched(one, other)}")
            else:
                for each, also in zip(one, other, strict=True):
                    self.node(each, also)

    def _same_import(self, old: tuple[str, str, str], new: tuple[str, str, str]) -> bool:
        (module, name, bound), (now, also, binds) = old, new
        if bool(module) != bool(now):
            return False
        whole, after = (".".join(filter(None, pair)) for pair in ((module, name), (now, also)))
        return self.renames.dotted(whole, after) and self.renames.identifier(bound, binds)

    def _matched(self, old: Sequence[Any], new: Sequence[Any], what: str, same: Any) -> None:
        """Each of the old ones has one of the new ones; those with fewest candidates choose first."""
        rest = list(new)
        for each in sorted(old, key=lambda one: sum(same(one, other) for other in new)):
            match = next((other for other in rest if same(each, other)), None)
            if match is None:
                self.differ(f"{what} {each} no more")
            else:
                rest.remove(match)
        for other in rest:
            self.differ(f"{what} {other}, which is new")


@dataclass
class Scope:
    """The names of a function: what each became, and of what each came, in functions within it too."""

    new: dict[str, str] = field(default_factory=dict)
    old: dict[str, str] = field(default_factory=dict)


def blocks(values: Sequence[Any]) -> Iterator[tuple[bool, list[Any]]]:
    """(whether they are imports, values that follow each other), in turn."""
    group: list[Any] = []
    imports = False
    for value in values:
        now = isinstance(value, ast.Import | ast.ImportFrom)
        if group and now != imports:
            yield imports, group
            group = []
        imports = now
        group.append(value)
    if group:
        yield imports, group


def unmatched(old: Sequence[Any], new: Sequence[Any]) -> str:
    """The functions and classes that only one of two bodies has, in words."""
    before, after = ({each.name for each in body if hasattr(each, "name")} for body in (old, new))
    gone, more = ", ".join(sorted(before - after)), ", ".join(sorted(after - before))
    return f"{f'; gone: {gone}' if gone else ''}{f'; new: {more}' if more else ''}"


def is_all(node: ast.AST) -> bool:
    """Whether a statement is `__all__ = [...]`."""
    return isinstance(node, ast.Assign) and dotted_of(node.targets[0]) == "__all__" and isinstance(node.value, ast.List)


def all_of(node: Any) -> list[str]:
    return [str(each.value) for each in node.value.elts if isinstance(each, ast.Constant)]


def short(value: Any) -> str:
    """Its source, as far as a line has room."""
    if isinstance(value, ast.AST):
        text = ast.unparse(value) if hasattr(value, "lineno") else type(value).__name__
    else:
        text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 90 else f"{text[:87]}…"


def compare(old: str, new: str, renames: Renames, *, paths: tuple[str, str] = ("", "")) -> Comparison:
    """Two sources of one module. paths: where they are, for relative imports."""
    packages = [path.rpartition("/")[0].replace("/", ".") for path in paths]
    comparison = Comparison(renames, old_package=packages[0], new_package=packages[1])
    comparison.node(stripped(old), stripped(new))
    return comparison


# ------------------------------------------------------------------------------------------ the command


def sources(commit: str) -> dict[str, str]:
    """path -> blob of every Python file of a commit."""
    lines = git("ls-tree", "-r", commit).splitlines()
    rows = ((line.split()[2], line.partition("\t")[2]) for line in lines)
    return {path: blob for blob, path in rows if path.endswith(".py")}


def git(*arguments: str) -> str:
    """What git answers; ends the program where it refuses."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"git {' '.join(arguments)}: {done.stderr.strip()}", file=sys.stderr)
        raise SystemExit(2)
    return done.stdout


def check(
    old: Mapping[str, str], new: Mapping[str, str], renames: Renames
) -> tuple[dict[str, list[str]], Counter[tuple[str, str]]]:
    """({file: how it differs otherwise}, renames with their counts). old, new: path -> blob."""
    different: dict[str, list[str]] = {}
    pairs: Counter[tuple[str, str]] = Counter()
    there = {renames.file(path): path for path in old}
    for path in sorted(new.keys() - there.keys()):
        different[path] = ["it is new"]
    for path, before in sorted(there.items()):
        if path not in new:
            different[before] = [f"it is gone; {path} was expected"]
        elif old[before] != new[path]:
            one, other = (git("cat-file", "blob", blob) for blob in (old[before], new[path]))
            comparison = compare(one, other, renames, paths=(before, path))
            pairs += comparison.pairs
            if comparison.differences:
                label = path if path == before else f"{before} -> {path}"
                different[label] = [f"{a} -> {b}: {what}" for a, b, what in comparison.differences]
    return different, pairs


def report(different: Mapping[str, Sequence[str]], pairs: Iterable[tuple[tuple[str, str], int]]) -> None:
    for (old, new), count in pairs:
        print(f"{old} -> {new}: {count}")
    for path, lines in different.items():
        print(path)
        for line in lines[:MOST]:
            print(f"    {line}")
        if len(lines) > MOST:
            print(f"    and {len(lines) - MOST} more")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rename_check", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("old", metavar="OLD", help="a commit")
    parser.add_argument("new", metavar="NEW", help="a commit")
    parser.add_argument("--map", metavar="MAP.yaml", help="old and new modules, files, names and strings")
    parser.add_argument("--texts", action="store_true", help="strings with a blank in them may differ")
    options = parser.parse_args(argv)
    data: Any = {}
    if options.map:
        with open(options.map, encoding="utf-8") as stream:
            data = yaml.safe_load(stream) or {}
    try:
        renames = Renames.of(data, texts=options.texts)
    except ValueError as error:
        parser.error(str(error))
    different, pairs = check(sources(options.old), sources(options.new), renames)
    report(different, pairs.most_common())
    print(f"{len(different)} files differ by more than names")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
