"""Finds tests that compare exactly what two programs have computed in floats: on the next machine, which rounds otherwise, they fail.

What is compared exactly: both sides of `==`, and what `array_equal`, `torch.equal`, `assert_array_equal` … and comparisons with
`rtol=0, atol=0` are given, and helpers that do so with their arguments, or whose names begin with `same` or `assert_same`.

A comparison is reported where

- one side comes, in the tests themselves, of an operation whose result depends on the processor (`ROUNDING`: products, transcendental
  functions, means; the rest of IEEE arithmetic is the same everywhere), or both sides do of methods that compute with such (`COMPUTING`).
  What only a method of Ludus has computed may be compared with numbers that are written down: 0, 1, 2.5, from inputs that make them exact;
- and the sides were not made by the same calls: one program may be compared with itself. A function that is called with other arguments
  is the same program, a method of another class is not;
- and none is `pytest.approx`.

Values are followed through assignments, loops, comprehensions, `append`, functions of the file, and those imported from files beside it.
What is read back from where it was stored is what was put there: it is followed no further, and rounds nothing.

What this cannot see (one method of two objects that compute differently), the suite under rounding noise does: `make test-noise`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ROUNDING = words("""
    exp exp2 expm1 log log2 log10 log1p logaddexp logsumexp softmax log_softmax softplus sigmoid tanh sin cos gelu
    erf pow power dot matmul mm bmm mv addmm einsum inner outer vdot tensordot linear conv1d conv2d lstm gru lstsq
    pinv eig eigh svd cholesky mean nanmean average std var norm trapezoid convolve interp polyfit
""")
"""Functions and methods whose results another processor rounds otherwise; and all of `linalg`."""

COMPUTING = words("""
    best_response best_response_joint realisation values payoffs payoffs_slice exploitability nash_conv solve
    forward backward errors advantages targets losses loss gradient gradients update learn train act tabulate
    probabilities rate entropy distribution log_prob gae vtrace
""")
"""Methods and functions of Ludus, and of torch's modules, that compute with those."""

EXACT = words("""
    len range isinstance hasattr type id str repr bool int all any isfinite isnan signbit zeros ones full eye arange
    zeros_like ones_like empty allclose isclose array_equal equal tobytes_of shape size count keys names sha256
    hexdigest read_text read_bytes startswith endswith count_nonzero bincount integers choice permutation random
    standard_normal normal uniform default_rng time perf_counter monotonic
""")
"""Calls whose results are no rounded numbers, whatever their arguments are."""

ALIKE = words("""
    numpy tolist copy deepcopy astype detach cpu item float float32 float64 list tuple dict set sorted asarray array
    stack concatenate vstack hstack reshape ravel flatten squeeze view from_numpy tensor as_tensor zip enumerate map
    filter reversed next iter abs max min maximum minimum sum nansum argmax argmin argsort sort where take clip
    round transpose swapaxes expand_dims broadcast_to repeat tile contiguous double to items tobytes get pop
    broadcast_arrays unsqueeze flip roll split chunk cat append ascontiguousarray values_of clone gather
    index_select masked_fill moveaxis diff logical_and logical_or cast partial fromiter namedtuple nan_to_num
    fromkeys union copysign
""")
"""Calls whose results are their receivers' and arguments' numbers, or say which of them is the greatest."""

STORED = words("""
    load loads load_state_dict read open recv receive fetch load_policy load_file safe_load from_bytes unpack decode
    read_parquet weights_of
""")
"""Calls that give back what was put somewhere."""

WHOLE = words("""
    shape dtype kind size sizes ndim n count names notes unit group id samples device layout __name__ extras
""")
"""Attributes that are no rounded numbers."""

COMPARING = words("""
    array_equal assert_array_equal equal assert_equal same_weights
""")
"""Functions that compare their first two arguments exactly."""

TOLERANT = words("""
    allclose isclose assert_allclose assert_close approx
""")
"""Those that allow for rounding."""


class Value(NamedTuple):
    """What is known of an expression. origins: calls and names that made it. rounds: 2 where it comes of `ROUNDING`, 1 of `COMPUTING`."""

    origins: frozenset[str] = frozenset()
    rounds: int = 0
    approximate: bool = False


NOTHING = Value()
_WITHOUT_NUMBERS = (ast.Compare, ast.BoolOp, ast.JoinedStr, ast.Constant)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def joined(values: Iterable[Value]) -> Value:
    values = list(values)
    return Value(
        frozenset().union(*(value.origins for value in values)),
        max((value.rounds for value in values), default=0),
        any(value.approximate for value in values),
    )


class Finding(NamedTuple):
    """An exact comparison of what two programs have computed. where: the function or method that it is in."""

    line: int
    where: str
    text: str


def findings(source: str, folder: Path | None = None) -> list[Finding]:
    """Those of a file, by line. folder: where modules of helpers are that it imports from."""
    module = ast.parse(source)
    outer = _Scope(module, "", _helpers(module, folder) if folder is not None else None)
    return sorted({finding for scope in outer.all() for finding in scope.findings()})


def _helpers(module: ast.Module, folder: Path) -> _Scope:
    """What is imported by name from files beside it."""
    scope = _Scope(ast.Module([], []), "", None)
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module and (path := folder / f"{node.module}.py").is_file():
            there = _module(path)
            for alias in node.names:
                if (function := there._functions.get(alias.name)) is not None:
                    scope._functions[alias.asname or alias.name] = function
                    scope._homes[alias.asname or alias.name] = there
    return scope


@cache
def _module(path: Path) -> _Scope:
    return _Scope(ast.parse(path.read_text(encoding="utf-8")), "", None)


# --------------------------------------------------------------------------------------------------------------------


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name in node._fields:
        field = getattr(node, name)
        if isinstance(field, list):
            yield from (child for child in field if isinstance(child, ast.AST))
        elif isinstance(field, ast.AST) and not isinstance(field, ast.expr_context):
            yield field


class _Scope:
    """A function, or the module: what its names stand for, and what it compares."""

    def __init__(self, node: ast.Module | _Function, name: str, outer: _Scope | None) -> None:
        self._name, self._outer = name, outer
        self._bound: dict[str, list[ast.expr]] = defaultdict(list)
        self._functions: dict[str, _Function] = {}
        self._homes: dict[str, _Scope] = {}
        self._going: set[str] = set()
        self._known: dict[str, Value] = {}
        self._inside: dict[str, _Scope] = {}
        self._parameters = (
            [] if isinstance(node, ast.Module) else [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        )
        self._nodes: list[ast.AST] = []
        self._within: list[tuple[str, _Function]] = []
        self._collect(node, f"{name}." if name else "", method=False)
        for child in self._nodes:
            self._bind(child)

    def _collect(self, root: ast.AST, path: str, *, method: bool) -> None:
        """The nodes of this scope, and the functions within: those of classes too, whose names are not known here."""
        left = [root]
        while left:
            for child in _children(left.pop()):
                if isinstance(child, _Function):
                    self._within.append((path + child.name, child))
                    if not method:
                        self._functions[child.name] = child
                elif isinstance(child, ast.ClassDef):
                    self._collect(child, f"{path}{child.name}.", method=True)
                else:
                    left.append(child)
                    if not method:
                        self._nodes.append(child)

    def all(self) -> Iterator[_Scope]:
        """This, and all within."""
        yield self
        for name, node in self._within:
            known = self._functions.get(node.name) is node
            yield from (self._inner(node.name) if known else _Scope(node, name, self)).all()

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                self._assign(target, value)
            case ast.AugAssign(target=target, op=op, value=value):
                self._assign(target, ast.BinOp(ast.Constant(0), op, value))
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                self._assign(target, value)
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._assign(target, value)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "add"), args=[value]):
                self._bound[name].append(value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        """Each of several targets stands for its part where the parts are written, else for all of it."""
        if isinstance(target, ast.Name):
            self._bound[target.id].append(value)
        elif isinstance(target, ast.Starred | ast.Subscript):
            self._assign(target.value, value)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = (
                value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else None
            )
            zipped = value.args if _named(value, "zip") and len(value.args) == len(target.elts) else None
            numbered = (
                [ast.Constant(0), value.args[0]] if _named(value, "enumerate") and len(target.elts) == 2 else None
            )
            for k, one in enumerate(target.elts):
                self._assign(one, (parts or zipped or numbered or [value] * len(target.elts))[k])

    # ---------------------------------------------------------------- what is compared

    def findings(self) -> Iterator[Finding]:
        for node in self._nodes:
            if isinstance(node, ast.expr) and (sides := self._compared(node)) and self._of_two_programs(*sides):
                yield Finding(node.lineno, self._name, ast.unparse(node))

    def _compared(self, node: ast.expr) -> tuple[Value, Value] | None:
        match node:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                return self._value(left), self._value(right)
            case ast.Call(args=[left, right, *_]) if self._compares(node):
                return self._value(left), self._value(right)
        return None

    def _compares(self, call: ast.Call) -> bool:
        name = _called(call.func)
        if name in TOLERANT:
            return {"rtol", "atol"} <= {
                k.arg for k in call.keywords if isinstance(k.value, ast.Constant) and k.value.value == 0
            }
        if name in COMPARING or name.startswith(("same", "assert_same")):
            return True
        scope = self._defining(name)
        return scope is not None and isinstance(call.func, ast.Name) and scope._compares_arguments(name)

    def _compares_arguments(self, name: str) -> bool:
        """Whether a function of this scope compares its first argument with its second."""
        inner = self._inner(name)
        if len(inner._parameters) < 2:
            return False
        first, second = inner._parameters[:2]
        for node in inner._nodes:
            if isinstance(node, ast.Call) and node.args and _called(node.func) == name:
                continue  # it calls itself
            if isinstance(node, ast.expr) and (sides := inner._compared(node)):
                names = [{origin.split(".")[0] for origin in side.origins} for side in sides]
                if (first in names[0] and second in names[1]) or (first in names[1] and second in names[0]):
                    return not any(side.approximate for side in sides)
        return False

    @staticmethod
    def _of_two_programs(left: Value, right: Value) -> bool:
        if left.approximate or right.approximate:
            return False
        return (
            max(left.rounds, right.rounds) == 2 or min(left.rounds, right.rounds) == 1
        ) and left.origins != right.origins

    # ---------------------------------------------------------------- what an expression is

    def _value(self, node: ast.AST | None) -> Value:
        if isinstance(node, _WITHOUT_NUMBERS) or not isinstance(node, ast.expr):
            return NOTHING
        rule = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        if rule is not None:
            return rule(node)
        part = next(
            (part for name in ("value", "elt", "body") if (part := getattr(node, name, None)) is not None), None
        )
        if part is not None and not isinstance(
            node, ast.IfExp
        ):  # an item, what is awaited, what a comprehension or a lambda makes
            return self._value(part)
        return joined(self._value(child) for child in _children(node) if isinstance(child, ast.expr))

    def _of_attribute(self, node: ast.Attribute) -> Value:
        if node.attr in WHOLE:
            return NOTHING
        of = self._value(node.value)
        if node.attr in ("T", "mT"):
            return of
        return of._replace(origins=frozenset(f"{origin}.{node.attr}" for origin in of.origins))

    def _of_subscript(self, node: ast.Subscript) -> Value:
        pair = self._bound_to(node.value.id) if isinstance(node.value, ast.Name) else None
        place = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(pair, ast.Tuple) and isinstance(place, int) and place < len(pair.elts):
            return self._value(pair.elts[place])
        return self._value(node.value)

    def _of_binop(self, node: ast.BinOp) -> Value:
        both = joined([self._value(node.left), self._value(node.right)])
        return Value(both.origins | {"@"}, 2, both.approximate) if isinstance(node.op, ast.MatMult) else both

    def _of_ifexp(self, node: ast.IfExp) -> Value:
        return joined([self._value(node.body), self._value(node.orelse)])

    def _of_dict(self, node: ast.Dict) -> Value:
        return joined(map(self._value, node.values))

    def _of_name(self, node: ast.Name) -> Value:
        return self._of_known(node.id)

    def _bound_to(self, name: str) -> ast.expr | None:
        """What a name always stands for in this scope."""
        values = self._bound.get(name, [])
        return values[0] if len(values) == 1 else None

    def _of_known(self, name: str) -> Value:
        if name in self._known:
            return self._known[name]
        if name in self._going:
            return NOTHING
        if name not in self._bound:
            outer = self._outer is not None and name not in self._parameters
            return self._outer._of_known(name) if outer and self._outer._knows(name) else Value(frozenset({name}))
        self._going.add(name)
        self._known[name] = joined(map(self._value, self._bound[name]))
        self._going.discard(name)
        return self._known[name]

    def _knows(self, name: str) -> bool:
        return name in self._bound or (self._outer is not None and self._outer._knows(name))

    def _of_call(self, call: ast.Call) -> Value:
        name = _called(call.func)
        if isinstance(call.func, ast.Name) and (scope := self._defining(name)):
            return Value(frozenset({f"{name}()"}), scope._rounds(name))
        if name in TOLERANT:
            return Value(approximate=True)
        if name in EXACT:
            return NOTHING
        if name in STORED:
            return Value(frozenset({name}))
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        receiver = NOTHING if isinstance(of, ast.Name) and of.id in ("np", "torch") else self._value(of)
        arguments = joined(map(self._value, [*call.args, *(keyword.value for keyword in call.keywords)]))
        if name in ROUNDING or (of is not None and _called(of) == "linalg"):
            return Value(arguments.origins | receiver.origins | {name}, 2)
        if name in ALIKE:
            return joined([arguments, receiver])
        origins = frozenset(f"{origin}.{name}()" for origin in receiver.origins) or frozenset({f"{name}()"})
        return Value(origins, int(name in COMPUTING and (bool(call.args) or name != "values")))  # those of a dictionary

    def _inner(self, name: str) -> _Scope:
        if name not in self._inside:
            path = f"{self._name}.{name}" if self._name else name
            self._inside[name] = _Scope(self._functions[name], path, self._homes.get(name, self))
        return self._inside[name]

    def _defining(self, name: str) -> _Scope | None:
        if name in self._functions:
            return self
        return self._outer._defining(name) if self._outer is not None else None

    def _rounds(self, name: str) -> int:
        """Whether what a function of this scope returns depends on rounding."""
        if f"{name}()" in self._going:
            return 0
        self._going.add(f"{name}()")
        inner = self._inner(name)
        answers = (node.value for node in inner._nodes if isinstance(node, ast.Return | ast.Yield))
        rounds = joined(map(inner._value, answers)).rounds
        self._going.discard(f"{name}()")
        return rounds


def _called(func: ast.expr) -> str:
    """The last name of what is called."""
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and _called(node.func) == name and len(node.args) > 0


# --------------------------------------------------------------------------------------------------------------------
# The house's tests.

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "guides" / "reproduce.md"

ALLOWED = {
    "envs/test_tree_ties.py:test_programs_choose_alike_against_uniform_play": "ties",
    "evaluation/test_exact_evaluator.py:test_a_restored_part_is_kept_to_the_bit": "resume",
    "algorithms/test_apex.py:test_policies_explore_as_their_environments_do": "choices",
    "algorithms/test_central_critics.py:test_statistics_of_states_travel_with_the_weights": "rebuilt",
    "algorithms/test_q_teams.py:test_rows_go_through_the_network_of_their_agent": "choices",
    "algorithms/test_r2d2.py:test_unrolling_equals_acting_step_by_step": "choices",
    "algorithms/test_separate_networks.py:test_each_agent_plays_its_own_network": "choices",
    "algorithms/test_separate_networks.py:test_teams_are_stacked": "choices",
    "policies/test_actor_critic.py:test_images": "rebuilt",
    "policies/test_own_networks.py:test_a_file_rebuilds_it": "rebuilt",
    "policies/test_policy_file.py:test_action_values_of_format_1_play_as_they_did": "choices",
    "policies/test_search.py:test_a_bot_searches_with_as_many_simulations_as_one_likes": "choices",
    "policies/test_search.py:test_modes_are_the_network_alone_and_two_ways_to_search": "choices",
    "policies/test_search.py:test_pending_leaves_count_as_virtual_losses": "choices",
    "policies/test_team_transformer.py:test_team_transformer_satisfies_policy_contract": "rebuilt",
    "policies/test_team_transformer.py:test_where_torch_computes_on_a_device_several_answer_as_each_does": "choices",
    "rollout/test_shared_inference.py:test_extras_are_those_that_were_asked_for": "choices",
    "rollout/test_shared_inference.py:test_policies_that_take_ids_beside_those_that_do_not": "choices",
    "rollout/test_shared_inference.py:test_the_same_as_local_copies": "choices",
}
"""By test, the row of the page that promises it, by the word in its first column."""


def rows(page: str) -> set[str]:
    """The words by which rows of the page's table are known."""
    return set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def faults(files: Iterable[Path], allowed: dict[str, str], page: str) -> Iterator[str]:
    """What is to be mended, one line for each: comparisons that nothing allows, and entries that allow nothing or cite no row."""
    used = set()
    for path in files:
        for finding in findings(path.read_text(encoding="utf-8"), path.parent):
            test = f"{path.relative_to(HERE)}:{finding.where}"
            used.add(test)
            if test not in allowed:
                yield (
                    f"tests/{path.relative_to(HERE)}:{finding.line}: {finding.text[:200]}: two programs are asked for equal floats. "
                    f"Compare with a tolerance; or, where {PAGE.name} promises equal bits, cite its row in tests/{Path(__file__).name}"
                )
    for test, row in allowed.items():
        if row not in rows(page):
            yield f"{test} cites the row {row!r}, which {PAGE.name} lacks; it has {', '.join(sorted(rows(page)))}"
        if test not in used:
            yield f"{test} compares nothing exactly any more: its entry can go"


if __name__ == "__main__":
    lines = list(faults(sorted(HERE.rglob("*.py")), ALLOWED, PAGE.read_text(encoding="utf-8")))
    print("\n".join(lines) or "No test asks two programs for equal floats.")
    sys.exit(bool(lines))
