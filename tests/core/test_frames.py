"""Room for the frames of calls (`ludus.core.machine.reserve_stack`)."""

from __future__ import annotations

import resource

import pytest

from ludus.core.machine import reserve_stack


def _leaf(x: int) -> int:
    return x + 1


def _faults(depth: int) -> int:
    """Most pages that 200 calls of a function bring in, over every depth down to this one."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for k in range(200):
        _leaf(k)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return max(most, _faults(depth - 1)) if depth else most


def test_calls_bring_in_no_memory_at_any_depth() -> None:
    assert reserve_stack(_faults)(300) < 100  # without: some 200 where the calls cross the end of a piece


def test_a_roomy_function_stays_what_it_is() -> None:
    @reserve_stack
    def ratio(a: float, *, by: float = 2.0) -> float:
        """Half."""
        return a / by

    assert (ratio(3.0), ratio(3.0, by=3.0), ratio.__doc__, ratio.__name__) == (1.5, 1.0, "Half.", "ratio")
    with pytest.raises(ZeroDivisionError):
        ratio(1.0, by=0.0)
