"""Learning from rows of older weights, a small version of it."""

from __future__ import annotations

import pytest

from benchmarks.gradients_lag import SETTINGS, STALE, run


@pytest.mark.slow
def test_late_slopes_are_those_of_the_weights_that_acted() -> None:
    """Without a lag there is no difference, with one there is."""
    setting = SETTINGS[-1]
    now, late = (
        [run(setting, lag=lag, correction=correction, seed=0, quick=True) for correction in ("none", STALE)]
        for lag in (0, 2)
    )
    assert now[0] == now[1]
    assert late[0] != late[1]
