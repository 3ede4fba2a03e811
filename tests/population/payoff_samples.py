"""Payoff tables and matches for the tests beside this file."""

import numpy as np
from hypothesis import strategies as st

from ludus.core.types import Match, PolicyRef
from ludus.metagame.population.match_log import moments
from ludus.metagame.population.payoff_table import PayoffTable


def table(sizes=(2, 3), population=None, zero_sum=False, bound=10.0):
    population = tuple(population or range(len(sizes)))
    made = PayoffTable(utility_range=[(-bound, bound)] * len(population), population=population, zero_sum=zero_sum)
    for which, size in enumerate(sizes):
        for _ in range(size):
            made.add_policy(which)
    return made


def match(name, profile, samples, *, population=None, versions=None, wins=()):
    population = population or range(len(profile))
    versions = versions or [0] * len(profile)
    seats = tuple(PolicyRef(q, f"p{i}", v) for q, i, v in zip(population, profile, versions, strict=True))
    found = moments(np.asarray(samples, dtype=float).reshape(-1, len(profile)))
    return Match(name, tuple(profile), seats, int(found.n), found.mean, found.m2, wins)


def same(a, b):
    return all(
        np.array_equal(getattr(a, name), getattr(b, name), equal_nan=name in ("mean", "m2"))
        for name in ("mean", "count", "m2", "exact")
    )


@st.composite
def logs(draw):
    """Matches of random profiles in random amounts: seats are drawn unequally."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 12))
    profiles = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=count, max_size=count))
    amounts = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    return [
        match(f"m{i}", p, rng.uniform(-9, 9, size=(n, 2)))
        for i, (p, n) in enumerate(zip(profiles, amounts, strict=True))
    ]
