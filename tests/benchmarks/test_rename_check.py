"""What counts as a change of names only."""

from __future__ import annotations

import pytest

from benchmarks.rename_check import Renames, check, compare

RENAMES = Renames.of(
    {
        "modules": {"ludus.core.errors": "ludus.base.faults", "ludus.learners": "ludus.algorithms"},
        "files": {"tests/old.py": "tests/new.py"},
        "names": {"found": ["result", "answer"], "Slopes": "Gradients"},
        "strings": {"no slope": "no gradient"},
    }
)

OLD = '''
"""A module."""
from ludus.core import errors
from ludus.core.errors import ConfigError
from ludus.learners.ppo import Slopes
import zlib
import ludus.learners.ppo

__all__ = ["Slopes", "ask"]
TABLE = {"a": "ludus.learners.ppo:Slopes"}

class Slopes:
    """Of a loss."""
    size: "list[Slopes]"

def ask(x, *, found=1.5):
    """Asks."""
    if found:
        raise errors.ConfigError("no slope")
    return getattr(x, "found") + ludus.learners.ppo.f(found) + (lambda found: found)(2)
'''
NEW = '''
import zlib

import ludus.algorithms.ppo
from ludus.algorithms.ppo import Gradients
from ludus.base import faults
from ludus.base.faults import ConfigError

__all__ = ["ask", "Gradients"]
TABLE = {"a": "ludus.algorithms.ppo:Gradients"}


class Gradients:
    size: "list[Gradients]"  # in order


def ask(x, *, result=1.5):
    """Ask for more, in other words."""
    if result:
        raise faults.ConfigError("no gradient")
    return getattr(x, "result") + ludus.algorithms.ppo.f(result) + (lambda answer: answer)(2)
'''


def differences(old: str, new: str, renames: Renames = RENAMES) -> list[str]:
    return [what for _, _, what in compare(old, new, renames).differences]


def test_renames_moves_order_of_imports_and_docstrings_are_no_difference() -> None:
    assert differences(OLD, NEW) == []
    assert compare(OLD, NEW, RENAMES).pairs["found", "answer"] == 2
    assert differences(NEW, OLD)  # the map has one direction


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("f(1)", "f(2)", "1 became 2"),
        ("f(1)", "f(True)", "1 became True"),
        ("f(0.1)", "f(0.10000000000000002)", "0.1 became 0.10000000000000002"),
        ("f(0.0)", "f(-0.0)", "0.0 became -0.0"),
        ("a + b", "b + a", "a became b, which the map does not have"),
        ("a + b", "a - b", "Add became Sub"),
        ("f(a)", "f(a, b)", "1 statements or parts became 2"),
        ("def f(): pass", "def f(): pass\ndef g(): pass", "1 statements or parts became 2; new: g"),
        ("f('x y')", "f('x z')", "'x y' became 'x z'"),
        ("f(b'x')", "f('x')", "b'x' became 'x'"),
        ("f('found it')", "f('result it')", "'found it' became 'result it'"),
        ("from a import b", "from a import c", "imports have ('a', 'b', '') no more"),
        ("import a", "", "1 statements or parts became 0, or imports are elsewhere"),
        ("__all__ = ['a', 'b']", "__all__ = ['a']", "__all__ has b no more"),
        ("from . import a", "from .. import a", "imports have ('p.q', 'a', '') no more"),
        ("def f(): pass", "async def f(): pass", "def f(): pass became async def f(): pass"),
        ("def f(found, result): return found", "def f(result, result_): return result", "result became result_, which"),
        ("def f(found, other): result", "def f(result, other): result", "result and found both became result in"),
        ("def f(found): return found", "def f(result): return answer", "found became both result and answer in one"),
        ("def f(found):\n  def g(): return result", "def f(answer):\n  def g(): return answer", "result became answer, which"),
        ("def f(found):\n  return lambda: result", "def f(result):\n  return lambda: result", "result and found both became"),
    ],
)  # fmt: skip
def test_everything_else_is_one(old: str, new: str, what: str) -> None:
    comparison = compare(old, new, RENAMES, paths=("p/q/r.py", "p/q/r.py"))
    assert [each for _, _, each in comparison.differences if what in each]


def test_texts_may_differ_where_that_is_asked_for() -> None:
    assert differences("f(f'no {x} here')", "f(f'not {x} here')") == ["'no ' became 'not '"]
    assert differences("f(f'no {x} here')", "f(f'not {x} here')", Renames.of({}, texts=True)) == []
    assert differences("f('no')", "f('not')", Renames.of({}, texts=True)) == ["'no' became 'not'"]


def test_files_are_where_the_map_says() -> None:
    assert RENAMES.file("ludus/learners/ppo/__init__.py") == "ludus/algorithms/ppo/__init__.py"
    assert RENAMES.file("ludus/core/errors.py") == "ludus/base/faults.py"
    assert RENAMES.file("ludus/core/errors_of.py") == "ludus/core/errors_of.py"
    old = {"tests/old.py": "1", "ludus/learners/a.py": "2", "ludus/core/b.py": "3"}
    same = {"tests/new.py": "1", "ludus/algorithms/a.py": "2", "ludus/core/b.py": "3"}
    assert check(old, same, RENAMES)[0] == {}
    different, _ = check(old, {"tests/new.py": "1", "ludus/core/b.py": "3", "ludus/core/c.py": "4"}, RENAMES)
    assert different == {
        "ludus/core/c.py": ["it is new"],
        "ludus/learners/a.py": ["it is gone; ludus/algorithms/a.py was expected"],
    }


def test_a_map_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown key 'name' in the map"):
        Renames.of({"name": {}})
