"""Pure functions on single match records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ludus.types import Match


def whole(value: Any) -> bool:
    """Whether it is a whole number, of Python's or of NumPy's."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def same_match(a: Match, b: Match) -> bool:
    """Whether two records say the same, to the bit."""
    scalars = all(
        getattr(a, f.name) == getattr(b, f.name) for f in dataclasses.fields(Match) if f.name not in ("mean", "m2")
    )
    return scalars and np.array_equal(a.mean, b.mean) and np.array_equal(a.m2, b.m2)


def frozen_match(match: Match) -> Match:
    """The same in plain numbers, with arrays of its own that cannot be written."""
    mean, m2 = np.array(match.mean, dtype=np.float64), np.array(match.m2, dtype=np.float64)
    mean.setflags(write=False)
    m2.setflags(write=False)
    return dataclasses.replace(
        match,
        profile=tuple(int(i) for i in match.profile),
        seats=tuple(match.seats),
        n=int(match.n),
        mean=mean,
        m2=m2,
        wins=tuple((int(won), int(drawn), int(lost)) for won, drawn, lost in match.wins),
        exact=bool(match.exact),
    )


def consistent(wins: Sequence[tuple[int, int, int]]) -> bool:
    """Whether counts of won, drawn and lost episodes can be those of one match: at most one player wins an episode."""
    episodes = {sum(counts) for counts in wins}
    if len(episodes) > 1 or min(map(min, wins)) < 0 or sum(won for won, _, _ in wins) > max(episodes):
        return False
    return len(wins) != 2 or tuple(wins[0]) == tuple(wins[1])[::-1]


def brief(match: Match) -> str:
    """For messages."""
    return f"profile {match.profile}, n = {match.n}, mean {[float(u) for u in match.mean]}"
