"""Which scope a name token of a Python file belongs to: for renames that have to keep to one function, or to what a module exports."""

from __future__ import annotations

import ast
import io
import tokenize
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

Position = tuple[int, int]
"""Line from 1, column from 0 in characters."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(eq=False)
class Scope:
    """Module, class, function, lambda or comprehension."""

    kind: str
    name: str
    """Qualified name of the innermost function or class around it, "" in the module."""
    parent: Scope | None
    bound: set[str] = field(default_factory=set)
    free: set[str] = field(default_factory=set)
    """Names that it declares `nonlocal` or `global`."""

    def owner(self, name: str) -> Scope:
        """Return the scope that binds the name: the module where no other does."""
        scope: Scope = self
        inner = True
        while scope.parent is not None:
            if name in scope.bound and (scope.kind != "class" or inner):
                return scope
            inner = inner and scope.kind == "comprehension"
            scope = scope.parent
        return scope


@dataclass(frozen=True)
class NameToken:
    """One use of a name.

    Attributes:
        name: As it is written.
        position: Where it begins.
        index: Its index among the tokens.
        role: "name", "attribute" (after a dot), "keyword" (of a call), "import" (what is imported), or "dotted" (part of a module's name).
        scope: Scope in which it stands.
    """

    name: str
    position: Position
    index: int
    role: str
    scope: Scope

    @property
    def end(self) -> Position:
        return self.position[0], self.position[1] + len(self.name)


class SourceFile:
    """Tokens and scopes of one file."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8") if text is None else text
        self.lines = self.text.splitlines(keepends=True)
        self.tree = ast.parse(self.text)
        self.tokens = list(tokenize.generate_tokens(io.StringIO(self.text).readline))
        self.module = Scope("module", "", None)
        self._starts: list[Position] = [(0, 0)]
        self._scopes: list[Scope] = [self.module]
        builder = _Builder(self)
        builder.block(self.tree.body, self.module)
        self.imports = builder.imports
        self._flatten(builder.intervals)
        self.keywords = builder.keywords
        self._import_lines = self._lines_of_imports()
        self.names = self._names()

    def _lines_of_imports(self) -> dict[int, tuple[Position, bool]]:
        """Return, for each line of an import, where its word `import` stands, and whether it is `from ... import`."""
        lines = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom | ast.Import):
                words = (
                    t.start
                    for t in self.tokens
                    if t.string == "import" and t.start >= self.position(node.lineno, node.col_offset)
                )
                start = next(words)
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    lines[line] = (start, isinstance(node, ast.ImportFrom))
        return lines

    def position(self, line: int, column: int) -> Position:
        """Return the position in characters of one that `ast` gives in bytes."""
        text = self.lines[line - 1]
        return line, column if text.isascii() else len(text.encode()[:column].decode())

    def scope_at(self, position: Position) -> Scope:
        return self._scopes[bisect_right(self._starts, position) - 1]

    def former_names(self) -> set[int]:
        """Return the lines of names of earlier releases: of `_RENAMED = {...}`, and of what calls `_warn_renamed` to forward."""
        lines: set[int] = set()
        for node in ast.walk(self.tree):
            names = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_RENAMED"
            forwards = isinstance(node, ast.FunctionDef) and any(_warns(statement) for statement in node.body)
            if names or forwards:
                lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
        return lines

    def module_before(self, token: NameToken) -> str:
        """Return the module whose attribute a name is, as the file imports it; "" where it is none."""
        if token.index < 2:
            return ""
        before = self.tokens[token.index - 2]
        if before.string == "ludus":
            return "ludus"
        return next((f"{module}.{name}" for module, name, here in self.imports.values() if here == before.string), "")

    def _flatten(self, intervals: list[tuple[Position, Position, Scope]]) -> None:
        """Make one row of starts of them, where the innermost counts."""
        events = sorted(intervals, key=lambda item: (item[0], (-item[1][0], -item[1][1])))
        stack: list[tuple[Position, Scope]] = [((1 << 30, 0), self.module)]
        for start, end, scope in events:
            while stack[-1][0] <= start:
                closed = stack.pop()[0]
                self._mark(closed, stack[-1][1])
            self._mark(start, scope)
            stack.append((end, scope))
        while len(stack) > 1:
            closed = stack.pop()[0]
            self._mark(closed, stack[-1][1])

    def _mark(self, start: Position, scope: Scope) -> None:
        if self._starts[-1] == start:
            self._scopes[-1] = scope
        else:
            self._starts.append(start)
            self._scopes.append(scope)

    def _names(self) -> list[NameToken]:
        names = []
        before = ""
        for index, token in enumerate(self.tokens):
            if token.type == tokenize.NAME:
                names.append(
                    NameToken(token.string, token.start, index, self._role(token, before), self.scope_at(token.start))
                )
            if token.type not in (tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                before = token.string
        return names

    def _role(self, token: tokenize.TokenInfo, before: str) -> str:
        if token.start[0] in self._import_lines and token.string not in ("import", "from", "as"):
            return self._import_role(token, before)
        if before == ".":
            return "attribute"
        return "keyword" if token.start in self.keywords else "name"

    def _import_role(self, token: tokenize.TokenInfo, before: str) -> str:
        if before == "as":
            return "name"
        start, imports = self._import_lines[token.start[0]]
        return "import" if imports and token.start > start else "dotted"


def _warns(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("_warn_renamed(")


class _Builder:
    """Walks a tree once: intervals of scopes, keywords of calls, imported names."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.intervals: list[tuple[Position, Position, Scope]] = []
        self.keywords: dict[Position, Position] = {}
        """Where a keyword of a call stands, and where the call begins."""
        self.imports: dict[Position, tuple[str, str, str]] = {}
        """Module, name and name here of each `from module import name [as here]` at any place."""

    def block(self, nodes: list[ast.stmt], scope: Scope) -> None:
        for node in nodes:
            self.visit(node, scope)

    def interval(self, node: ast.AST, scope: Scope) -> None:
        start = self.source.position(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = self.source.position(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        self.intervals.append((start, end, scope))

    def visit(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, _FUNCTIONS):
            self.function(node, scope)
        elif isinstance(node, ast.ClassDef):
            self.class_(node, scope)
        elif isinstance(node, ast.Lambda):
            self.lambda_(node, scope)
        elif isinstance(node, _COMPREHENSIONS):
            self.comprehension(node, scope)
        else:
            self.simple(node, scope)
            for child in ast.iter_child_nodes(node):
                self.visit(child, scope)

    def simple(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            scope.bound.add(node.id)
        elif isinstance(node, ast.NamedExpr) and isinstance(node.target, ast.Name):
            outer = scope
            while outer.kind == "comprehension" and outer.parent is not None:
                outer = outer.parent
            outer.bound.add(node.target.id)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                position = self.source.position(alias.lineno, alias.col_offset)
                self.imports[position] = (node.module or "", alias.name, alias.asname or alias.name)
                scope.bound.add(alias.asname or alias.name)
        elif isinstance(node, ast.Import):
            scope.bound.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif (isinstance(node, ast.ExceptHandler) and node.name) or (
            isinstance(node, ast.MatchAs | ast.MatchStar) and node.name
        ):
            scope.bound.add(node.name)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            scope.free.update(node.names)
        elif isinstance(node, ast.Call):
            call = self.source.position(node.lineno, node.col_offset)
            self.keywords |= {
                self.source.position(word.lineno, word.col_offset): call for word in node.keywords if word.arg
            }

    def header(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope, inner: Scope) -> None:
        """Count defaults and annotations to the scope around the function, and arguments to its own."""
        arguments = node.args
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ):
            if argument is None:
                continue
            inner.bound.add(argument.arg)
            if argument.annotation is not None:
                self.outside(argument.annotation, scope)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self.outside(default, scope)

    def outside(self, node: ast.AST, scope: Scope) -> None:
        self.interval(node, scope)
        self.visit(node, scope)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        scope.bound.add(node.name)
        inner = Scope("function", f"{scope.name}.{node.name}".lstrip("."), scope)
        start = self.source.position(node.lineno, node.col_offset)
        end = self.source.position(node.end_lineno or node.lineno, node.end_col_offset or 0)
        line = self.source.lines[start[0] - 1]
        name = line.index(node.name, start[1] + 4)
        self.intervals.append((start, end, inner))
        self.intervals.append((start, (start[0], name + len(node.name)), scope))
        self.header(node, scope, inner)
        if node.returns is not None:
            self.outside(node.returns, scope)
        for decorator in node.decorator_list:
            self.visit(decorator, scope)
        self.block(node.body, inner)
        inner.bound -= inner.free

    def class_(self, node: ast.ClassDef, scope: Scope) -> None:
        scope.bound.add(node.name)
        inner = Scope("class", f"{scope.name}.{node.name}".lstrip("."), scope)
        first = node.body[0]
        decorated = getattr(first, "decorator_list", None)
        start = (decorated or [first])[0]
        begin = self.source.position(start.lineno, 0)
        self.intervals.append((begin, self.source.position(node.end_lineno or 0, node.end_col_offset or 0), inner))
        for item in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(item, scope)
        self.block(node.body, inner)

    def lambda_(self, node: ast.Lambda, scope: Scope) -> None:
        inner = Scope("lambda", scope.name, scope)
        self.interval(node, inner)
        self.header(node, scope, inner)
        self.visit(node.body, inner)

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: Scope) -> None:
        inner = Scope("comprehension", scope.name, scope)
        self.interval(node, inner)
        self.outside(node.generators[0].iter, scope)
        for number, generator in enumerate(node.generators):
            self.visit(generator.target, inner)
            if number:
                self.visit(generator.iter, inner)
            for condition in generator.ifs:
                self.visit(condition, inner)
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for part in parts:
            self.visit(part, inner)
