"""Conditions on the steps of an episode, as a person types them: `reward[0] > 0 and step > 10`.

    reward[0] > 0                           a player was paid something in the step
    player == 1 and prob < 0.05             player 1 did what its policy seldom does
    observation[3] > 0.2 or terminated

A condition is parsed once, by Python's own parser, into functions; what is not of this small grammar is refused, and nothing is ever
evaluated as Python. Names of the whole step: step, reward, return, due (each of the last three by player: `reward[0]`), terminated,
truncated; and, by player too, the statistics that the environment names, which are known with the last step. Names of one decision: player,
agent, action, prob, logp, value, legal, observation. A condition that uses one of these holds in a step if it holds for any of its
decisions; `reward` without a player is then that of the decision's own player.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, UnknownName, join_or
from ludus.core.types import Array

_LONGEST = 500  # characters; Python's parser gives up on what is nested a hundred times deeper
_BY_PLAYER = ("reward", "return", "due")
_OF_STEP = ("step", *_BY_PLAYER, "terminated", "truncated")
_OF_DECISION = ("player", "agent", "action", "prob", "logp", "value", "legal", "observation")
_VECTORS = ("action", "observation")
NAMES = (*_OF_STEP, *_OF_DECISION)
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max}
_RETURN = "return_"  # since the word is Python's own


class DecisionScope(Protocol):
    """One decision of a step, as conditions see it. `prob` and `value` may be computed when they are asked for."""

    player: int
    agent: int
    action: Array
    observation: Array

    @property
    def prob(self) -> float: ...
    @property
    def logp(self) -> float: ...
    @property
    def value(self) -> float: ...
    @property
    def legal(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class StepScope:
    """A step, as conditions see it. reward, returns: float64[P], of the step and so far. due: bool[P]. terminated, truncated: whether the
    episode ended so with it. statistics: float64[P, S] of the episode, NaN before its end."""

    step: int
    reward: NDArray[np.float64]
    returns: NDArray[np.float64]
    due: NDArray[np.bool_]
    terminated: bool
    truncated: bool
    decisions: Sequence[DecisionScope] = ()
    statistics: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """Facts of an episode that conditions can use. observation: how many numbers the largest one has; action: the largest action. columns:
    names of the numbers of observations, where there are some. statistics: [S] names."""

    players: int
    observation: int
    action: int = 1
    columns: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()


_Function = Callable[[StepScope, "DecisionScope | None"], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Breakpoint:
    """A condition that was parsed. of_decisions: whether it asks about single decisions."""

    text: str
    of_decisions: bool
    _holds: _Function

    def holds(self, scope: StepScope) -> bool:
        """Return whether it holds in a step. What is not known (the probability of a bot's move, say) is NaN, which no comparison but !=
        holds for."""
        if not self.of_decisions:
            return bool(self._holds(scope, None))
        return any(bool(self._holds(scope, decision)) for decision in scope.decisions)


def parse_breakpoint(text: str, known: Known) -> Breakpoint:
    """Return a condition on the steps of an episode of which this much is known. Raises ConfigError that says what is wrong, and the
    names."""
    if not text.strip():
        raise ConfigError(f"no condition was given; write one such as 'reward[0] > 0'. {_names()}")
    if len(text) > _LONGEST:
        raise ConfigError(f"a condition of {len(text)} characters was given; {_LONGEST} are allowed.")
    try:
        tree = ast.parse(re.sub(r"\breturn\b", _RETURN, text.strip()), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        problem = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigError(f"the condition {text!r} cannot be read: {problem}. {_names()}") from error
    builder = _Builder(text, known)
    function = builder.build(tree.body)
    return Breakpoint(text.strip(), builder.of_decisions, function)


def _names() -> str:
    return f"The names are {', '.join(NAMES)}."


_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _divided(how: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: how(a, b) if b != 0 else math.nan


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divided(operator.truediv),
    ast.FloorDiv: _divided(operator.floordiv),
    ast.Mod: _divided(operator.mod),
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


class _Builder:
    """Builder of functions from the nodes of one condition."""

    def __init__(self, text: str, known: Known) -> None:
        self.of_decisions = False
        self._text, self._known = text, known
        self._by_player_names = (*_BY_PLAYER, *(name for name in known.statistics if name not in NAMES))
        self._kinds: Mapping[type[ast.expr], Callable[[Any], _Function]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Subscript: self._entry,
            ast.BoolOp: self._both,
            ast.UnaryOp: self._unary,
            ast.BinOp: self._binary,
            ast.Compare: self._compare,
            ast.Call: self._call,
        }

    def build(self, node: ast.expr) -> _Function:
        """Return what a node computes."""
        make = self._kinds.get(type(node))
        if make is None:
            raise self._wrong(f"{ast.unparse(node).replace(_RETURN, 'return')!r} is not a part of conditions")
        return make(node)

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(
            f"the condition {self._text!r} cannot be used: {what}. It may have numbers, comparisons, and, or, not, + - * / // %, "
            f"{', '.join(_FUNCTIONS)}. {_names()}"
        )

    def _constant(self, node: ast.Constant) -> _Function:
        value = node.value
        if not isinstance(value, int | float):
            raise self._wrong(f"{value!r} is no number")
        try:
            number = float(value)
        except OverflowError:
            raise self._wrong(f"a number of {len(ast.unparse(node))} digits is too large") from None
        return lambda *_: number

    def _name(self, node: ast.Name) -> _Function:
        name = self._checked(node)
        if name in self._by_player_names:
            return self._by_player(name, None)
        if name == "action" and self._known.action > 1:
            raise self._wrong(
                f"an action has {self._known.action} numbers; write action[0] to action[{self._known.action - 1}]"
            )
        if name == "action":
            self.of_decisions = True
            return lambda _, decision: decision.action.item() if decision else math.nan
        if name == "observation":
            raise self._wrong("an observation has many numbers; write observation[0], say")
        if name in _OF_DECISION:
            self.of_decisions = True
            return lambda _, decision: getattr(decision, name)
        return lambda step, _: getattr(step, name)

    def _checked(self, node: ast.expr) -> str:
        """Return the name that a node is."""
        if not isinstance(node, ast.Name):
            raise self._wrong("only a name can stand before [ ]")
        name = "return" if node.id == _RETURN else node.id
        known = (*NAMES, *self._known.statistics)
        if name not in known:
            raise UnknownName("name in a condition", name, known)
        return name

    def _by_player(self, name: str, player: int | None) -> _Function:
        values = self._values(name)
        if player is not None or self._known.players == 1:
            return lambda step, _: values(step)[player or 0].item()
        self.of_decisions = True
        return lambda step, decision: values(step)[decision.player].item() if decision else math.nan

    def _values(self, name: str) -> Callable[[StepScope], Array]:
        """Return [P] of a name."""
        if name in _BY_PLAYER:
            field = "returns" if name == "return" else name
            return lambda step: np.asarray(getattr(step, field))
        column, nobody = self._known.statistics.index(name), np.full(self._known.players, np.nan)
        return lambda step: nobody if step.statistics is None else step.statistics[:, column]

    def _entry(self, node: ast.Subscript) -> _Function:
        name = self._checked(node.value)
        if name in self._by_player_names:
            return self._by_player(name, self._index(name, node.slice, self._known.players, "players"))
        if name not in _VECTORS:
            raise self._wrong(f"{name} is one number; leave [ ] out")
        self.of_decisions = True
        k = self._index(name, node.slice, getattr(self._known, name), "numbers")
        return lambda _, decision: _number(getattr(decision, name), k)

    def _index(self, name: str, node: ast.expr, size: int, what: str) -> int:
        value = node.value if isinstance(node, ast.Constant) else None
        if name == "observation" and isinstance(value, str):
            if not self._known.columns:
                raise self._wrong(
                    f"this environment does not name what is seen, so {value!r} is not known; write observation[0], say"
                )
            if value not in self._known.columns:
                raise UnknownName("column of observations", value, self._known.columns)
            return self._known.columns.index(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._wrong(f"a whole number was expected in {name}[{ast.unparse(node)}]")
        if value >= size:
            raise self._wrong(f"{name}[{value}] was asked for, and there are {size} {what}, from 0 to {size - 1}")
        return value

    def _both(self, node: ast.BoolOp) -> _Function:
        parts = [self.build(part) for part in node.values]
        if isinstance(node.op, ast.And):
            return lambda step, decision: all(part(step, decision) for part in parts)
        return lambda step, decision: any(part(step, decision) for part in parts)

    def _unary(self, node: ast.UnaryOp) -> _Function:
        how, inner = _UNARY.get(type(node.op)), self.build(node.operand)
        if how is None:
            raise self._wrong(f"{ast.unparse(node)!r} is not a part of conditions")
        return lambda step, decision: how(inner(step, decision))

    def _binary(self, node: ast.BinOp) -> _Function:
        how = _BINARY.get(type(node.op))
        if how is None:
            raise self._wrong(f"{ast.unparse(node)!r} is not a part of conditions")
        left, right = self.build(node.left), self.build(node.right)
        return lambda step, decision: how(left(step, decision), right(step, decision))

    def _compare(self, node: ast.Compare) -> _Function:
        how = [_COMPARE.get(type(op)) for op in node.ops]
        if None in how:
            raise self._wrong(f"{ast.unparse(node)!r} is not a comparison of numbers; == != < <= > >= are")
        parts = [self.build(part) for part in (node.left, *node.comparators)]

        def compared(step: StepScope, decision: DecisionScope | None) -> bool:
            values = [part(step, decision) for part in parts]
            return all(op(a, b) for op, a, b in zip(how, values, values[1:], strict=False) if op is not None)

        return compared

    def _call(self, node: ast.Call) -> _Function:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        how = _FUNCTIONS.get(name)
        if how is None:
            raise self._wrong(f"there is no function {name!r}; there are {join_or(_FUNCTIONS)}")
        wanted = "one number" if name == "abs" else "two numbers or more"
        if node.keywords or (len(node.args) != 1 if name == "abs" else len(node.args) < 2):
            raise self._wrong(f"{name} takes {wanted}")
        parts = [self.build(part) for part in node.args]
        return lambda step, decision: how(*(part(step, decision) for part in parts))


def _number(array: Array, k: int) -> float:
    """Return entry k of a flat array; NaN where it has fewer."""
    flat = np.asarray(array).reshape(-1)
    return float(flat[k]) if k < len(flat) else math.nan
