"""Rename what a map names, in code, strings, comments and documents: `python -m benchmarks.rename MAP [--types INDEX]`.

A map is YAML:

    identifiers: {Old: New}                      # a name that stands for one thing in the whole tree: every token of it
    globals: {"ludus.core.errors:old": new}      # a function, class or constant of a module, where files import it
    members: {"ludus.core.base.Class.old": new}  # a method or attribute, by mypy's types, which --types has
    locals: {ludus/core/base.py: {"Class.method": {old: new}}}  # a variable of one function

Strings and documents follow where they name code: a string that is nothing but names, and what stands in backquotes. A local name is left,
and reported, where the new one is already used in that function. What is left to do by hand is printed.
"""

from __future__ import annotations

import argparse
import pickle
import re
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.rename_scopes import NameToken, Position, SourceFile

ROOT = Path(__file__).parents[1]
FOLDERS = ("ludus", "tests", "benchmarks", "examples")
Types = dict[tuple[int, ...] | tuple[int, int, str], tuple[str, ...]]
"""Owners of an attribute by the end of its name; what a call calls, by its start and the name of a keyword."""

_CODE_STRING = re.compile(r"[\w.:\[\], |]+")
_QUOTED = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
_BRACES = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True)
class RenameMap:
    """What is renamed; see the module."""

    identifiers: dict[str, str] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    locals: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> RenameMap:
        return cls(**(yaml.safe_load(path.read_text(encoding="utf-8")) or {}))

    @property
    def prose(self) -> dict[str, str]:
        """Return the names that are replaced in backquotes and in documents: those that stand for one thing."""
        return self.identifiers

    def local_names(self, path: str) -> dict[str, dict[str, str]]:
        return self.locals.get(path, {})


@dataclass
class Report:
    """What was changed, and what a person has to look at."""

    changed: int = 0
    left: list[str] = field(default_factory=list)


class Renamer:
    """Applies a map to files.

    Args:
        names: The map.
        types: By file, by the end of a name: classes that define the attribute; by the start of a call: classes or functions that it calls.
        report: Takes what is left.
    """

    def __init__(self, names: RenameMap, types: dict[str, Types], report: Report) -> None:
        self.names = names
        self.types = types
        self.report = report
        self._members: dict[str, dict[str, str]] = defaultdict(dict)
        for old, new in names.members.items():
            owner, name = old.rsplit(".", 1)
            self._members[name][owner] = new
        self._globals: dict[str, dict[str, str]] = defaultdict(dict)
        for old, new in names.globals.items():
            module, name = old.split(":")
            self._globals[name][module] = new

    def file(self, path: Path) -> None:
        relative = str(path.relative_to(ROOT))
        source = SourceFile(path)
        former = source.former_names()
        edits = {place: new for place, new in self._edits(source, relative) if place[0][0] not in former}
        text = _applied(source, edits)
        if text != source.text:
            self.report.changed += len(edits)
            path.write_text(text, encoding="utf-8")

    def document(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        changed = _QUOTED.sub(lambda match: _words(match[0], self.names.prose), text)
        if changed != text:
            path.write_text(changed, encoding="utf-8")

    def _edits(self, source: SourceFile, path: str) -> Iterator[tuple[tuple[Position, Position], str]]:
        exported = self._known_globals(source, path)
        local = self._local_renames(source, path)
        members = self.types.get(path, {})
        for token in source.names:
            new = self.names.identifiers.get(token.name) or self._new_name(
                source, path, token, exported, local, members
            )
            if new is not None:
                yield (token.position, token.end), new
        words = self.names.prose | {old: new for old, new in exported.items() if old not in _COMMON}
        yield from _strings(source, words, lambda name, at: self._inside_string(source, at, name, exported, local))

    def _inside_string(
        self, source: SourceFile, at: Position, name: str, exported: dict[str, str], local: dict[tuple[str, str], str]
    ) -> str:
        """Return what a name of an f-string is called now, which begins at a position."""
        if name in self.names.identifiers:
            return self.names.identifiers[name]
        owner = source.scope_at(at).owner(name)
        if owner is source.module or _imports_inside(source, owner, name):
            return exported.get(name, name)
        return local.get((owner.name, name), name)

    def _new_name(
        self,
        source: SourceFile,
        path: str,
        token: NameToken,
        exported: dict[str, str],
        local: dict[tuple[str, str], str],
        members: Types,
    ) -> str | None:
        name = token.name
        if token.role == "import":
            module, imported, _ = source.imports.get(token.position, ("", "", ""))
            return self._globals.get(imported, {}).get(module)
        if token.role == "name":
            owner = token.scope.owner(name)
            if owner is source.module:
                return exported.get(name) or local.get(("", name))
            if owner.kind == "class":
                return self._member(name, (f"{_module(path)}.{owner.name}",), path, token)
            return local.get((owner.name, name)) or (
                exported.get(name) if _imports_inside(source, owner, name) else None
            )
        if token.role in ("attribute", "keyword") and name in self._members:
            key = token.end if token.role == "attribute" else (*source.keywords[token.position], name)
            return self._member(name, members.get(key, ("?",)), path, token)
        if token.role == "attribute" and name in self._globals:
            return self._globals[name].get(source.module_before(token))
        return None

    def _member(self, name: str, owners: Iterable[str], path: str, token: NameToken) -> str | None:
        known = self._members.get(name, {})
        names = {known.get(owner) for owner in owners}
        new = names - {None}
        if known and self.types and (any(owner.startswith("?") for owner in owners) or (new and None in names)):
            self.report.left.append(f"{path}:{token.position[0]}: {name} of {', '.join(owners)}")
        return new.pop() if len(new) == 1 else None

    def _known_globals(self, source: SourceFile, path: str) -> dict[str, str]:
        """Return the globals of the map that the file defines or imports under their own names."""
        module = _module(path)
        exported = {name: new[module] for name, new in self._globals.items() if module in new}
        for imported, name, known_as in source.imports.values():
            new = self._globals.get(name, {}).get(imported)
            if new is not None and known_as == name:
                exported[name] = new
        return exported

    def _local_renames(self, source: SourceFile, path: str) -> dict[tuple[str, str], str]:
        renames = {}
        for function, names in self.names.local_names(path).items():
            for old, new in names.items():
                uses = [token for token in source.names if token.name == old and token.role == "name"]
                if not any(
                    token.scope.owner(old).name == function and token.scope.owner(old).kind != "class" for token in uses
                ):
                    self.report.left.append(f"{path}: {function or 'module'} has no {old}")
                elif self._taken(source, function, new):
                    self.report.left.append(f"{path}: {function}: {new} is used already, {old} stays")
                else:
                    renames[function, old] = new
        return renames

    def _taken(self, source: SourceFile, function: str, new: str) -> bool:
        return any(
            token.name == new
            and token.role == "name"
            and (token.scope.name + ".").startswith(function + "." if function else "")
            for token in source.names
        )


_COMMON = frozenset(
    (
        "found",
        "given",
        "told",
        "where",
        "placed",
        "taken",
        "walk",
        "follow",
        "agree",
        "alone",
        "most",
        "stack",
        "brief",
        "leave",
        "give",
    )
)
"""Words of prose that are names as well: in backquotes they are not replaced."""


def _imports_inside(source: SourceFile, owner: Any, name: str) -> bool:
    """Whether a function imports the name itself."""
    return any(t.name == name and t.role == "import" and t.scope.owner(name) is owner for t in source.names)


def _module(path: str) -> str:
    parts = path.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _words(text: str, names: dict[str, str]) -> str:
    if not names:
        return text
    return re.sub(r"\w+", lambda match: names.get(match[0], match[0]), text)


def _strings(
    source: SourceFile, words: dict[str, str], code: dict[str, str]
) -> Iterator[tuple[tuple[Position, Position], str]]:
    """Yield strings and comments in which a name of the map stands for code."""
    for token in source.tokens:
        if token.type == tokenize.COMMENT:
            new = _QUOTED.sub(lambda match: _words(match[0], words), token.string)
        elif token.type == tokenize.STRING:
            new = _string(token.string, words, lambda name, at=token.start: code(name, at))
        else:
            continue
        if new != token.string:
            yield (token.start, token.end), new


def _string(text: str, words: dict[str, str], code: Callable[[str], str]) -> str:
    match = re.fullmatch(r"(?s)([a-zA-Z]*)(\"\"\"|'''|\"|')(.*)\2", text)
    assert match is not None
    prefix, quote, inner = match.groups()
    if "f" in prefix.lower():
        inner = _BRACES.sub(lambda part: re.sub(r"(?<![.\w])\w+(?!\s*=[^=])", lambda m: code(m[0]), part[0]), inner)
    elif _CODE_STRING.fullmatch(inner) and " " not in inner.strip():
        return prefix + quote + _words(inner, words) + quote
    return prefix + quote + _QUOTED.sub(lambda part: _words(part[0], words), inner) + quote


def _applied(source: SourceFile, edits: dict[tuple[Position, Position], str]) -> str:
    lines = list(source.lines)
    for (start, end), new in sorted(edits.items(), reverse=True):
        head, tail = lines[start[0] - 1][: start[1]], lines[end[0] - 1][end[1] :]
        lines[start[0] - 1 : end[0]] = [head + new + tail]
    return "".join(lines)


def python_files() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def documents() -> list[Path]:
    files = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "ludus").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
    return [*files, *(ROOT / "benchmarks").rglob("*.md")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("map", type=Path)
    parser.add_argument("--types", type=Path)
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    types: dict[str, Types] = pickle.loads(options.types.read_bytes()) if options.types else {}  # noqa: S301  its own file
    report = Report()
    renamer = Renamer(RenameMap.load(options.map), types, report)
    for path in [file.resolve() for file in options.files] or python_files():
        renamer.file(path)
    for path in documents():
        renamer.document(path)
    print(f"{report.changed} places")
    print(*report.left, sep="\n")


if __name__ == "__main__":
    main()
