"""Duties of a solver towards its caller: memory that is counted before it is taken, a look at who wants it to stop, and an answer that
is given although it misses a tolerance.

    require_memory(bytes, …)      before arrays are made
    look()                        between two iterations of what may take seconds
    note = note_of(error, …)      an answer with its note, rather than an error, while it is of use
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ludus.core.errors import SolverError
from ludus.core.machine import free_memory

USEFUL = 1e-3
"""The part of the payoffs' range by which an answer may miss what was asked for, and be given with a note. What misses by more is none."""

_watcher: ContextVar[Callable[[], None] | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Callable[[], None]) -> Iterator[None]:
    """While this is open, `check_watcher` calls the watcher, which may raise to end whatever is being solved."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def check_watcher() -> None:
    """Let the watcher have a look, between two iterations. What it raises must pass: a solver keeps no state."""
    if (watcher := _watcher.get()) is not None:
        watcher()


def require_memory(needed: float, *, solver: str, what: str, advice: str) -> None:
    """Refuse what would not fit.

    Args:
        needed: Bytes, about.
        solver: Its name.
        what: The memory is for, with its size.
        advice: What else can be done.

    Raises:
        SolverError: If less is free.
    """
    free = free_memory()
    if free is not None and needed > free:
        raise SolverError(
            f"{solver}: {what} needs about {needed / 2**30:.3g} GiB, and {free / 2**30:.3g} GiB are free; nothing was taken. {advice}"
        )


def note_of(error: float, tolerance: float, *, solver: str, advice: str, of: str = "an equilibrium") -> str:
    """Return what to say of an answer that has missed its tolerance.

    Args:
        error: By how much conditions are missed, as a part of the payoffs' range.
        tolerance: That was asked for.
        solver: Its name.
        advice: What else can be done, as a sentence.
        of: What was looked for.

    Returns:
        A sentence; "" where the error is within ten times the tolerance, which is rounding.

    Raises:
        SolverError: For an error above `USEFUL`, and NaN.
    """
    if error <= 10.0 * tolerance:
        return ""
    text = f"{solver}: stopped {error:.1e} of the payoffs' range from {of}; {tolerance:.0e} was asked for. {advice}"
    if not error <= USEFUL:
        raise SolverError(text)
    return text
