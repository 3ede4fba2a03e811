"""Named statistics of matches: moments of what is known, merges, and what a match with some must be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from payoff_samples import match, table

from ludus.core.errors import DataError
from ludus.core.types import Match, NamedStatistics
from ludus.metagame.population.match_log import (
    merge_statistics,
    pack_matches,
    same_match,
    statistics_of,
    unpack_matches,
)

NAMES = ("goals", "shots")
SAMPLES = np.array([[[1, 4], [0, 2]], [[3, np.nan], [0, 6]], [[2, np.nan], [0, np.nan]]], float)
"""[3 episodes, 2 players, 2 names]"""


def counted(rows: slice = slice(None)) -> NamedStatistics:
    found = statistics_of(NAMES, SAMPLES[rows])
    assert found is not None
    return found


def with_statistics(name: str = "m", given: NamedStatistics | None = None) -> Match:
    return replace(match(name, (0, 1), [[1, -1], [2, -2], [3, -3]]), statistics=given or counted())


def test_moments_are_of_what_is_known() -> None:
    found = counted()
    assert found.n.tolist() == [[3, 1], [3, 2]]
    assert found.mean.tolist() == [[2, 4], [0, 4]]
    assert found.m2.tolist() == [[2, 0], [0, 8]]


def test_nothing_is_known_of_nothing() -> None:
    assert statistics_of((), SAMPLES) is None
    assert statistics_of(NAMES, None) is None
    found = counted(slice(2, 3))
    assert found.n.tolist() == [[1, 0], [1, 0]]
    assert np.isnan(found.mean).tolist() == [[False, True], [False, True]]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_parts_together_are_the_whole(at: int) -> None:
    parts = [statistics_of(NAMES, SAMPLES[:at]), None, counted(slice(at, None))]
    whole, found = counted(), merge_statistics(parts if at else parts[1:])
    assert found is not None
    np.testing.assert_array_equal(found.n, whole.n)
    np.testing.assert_allclose(found.mean, whole.mean)
    np.testing.assert_allclose(found.m2, whole.m2)


def test_other_names_are_not_merged() -> None:
    with pytest.raises(DataError, match="the same names"):
        merge_statistics([counted(), replace(counted(), names=("goals", "cards"))])


def test_a_match_with_other_statistics_is_another() -> None:
    one = with_statistics()
    assert same_match(one, with_statistics())
    assert not same_match(one, replace(one, statistics=None))
    assert not same_match(one, with_statistics(given=replace(counted(), m2=counted().m2 + 1)))
    table_ = table((1, 2))
    table_.record([one])
    with pytest.raises(DataError, match="other content"):
        table_.record([replace(one, statistics=None)])


def test_they_come_back_from_a_checkpoint_to_the_bit() -> None:
    table_ = table((1, 2))
    other = replace(counted(), names=("cards", "shots"))
    log = [with_statistics("a"), match("b", (0, 1), [[1, -1]]), with_statistics("c", other), with_statistics("d")]
    table_.record(log)
    again = table((1, 2))
    again.load_state_dict(table_.state_dict())
    assert all(map(same_match, again.log, table_.log))
    assert not again.log[0].statistics.n.flags.writeable  # type: ignore[union-attr]


def test_a_checkpoint_from_before_has_none() -> None:
    packed = dict(pack_matches([match("b", (0, 1), [[1, -1]])], 2))
    del packed["statistics"]
    assert unpack_matches(packed)[0].statistics is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"names": ("goals", "goals")}, "expected different names"),
        ({"n": np.zeros((2, 3), np.int64)}, r"expected different names, and \(2, 2\) each"),
        ({"n": np.full((2, 2), 4)}, "of 3 episodes has statistics that are known in"),
        ({"mean": np.full((2, 2), np.nan)}, "'goals' is no finite number"),
        ({"m2": np.array([[0.0, -1.0], [0.0, 0.0]])}, "'shots' is no finite number"),
    ],
)
def test_match_statistics_reject_malformed_arrays(change: dict[str, object], words: str) -> None:
    table_ = table((1, 2))
    with pytest.raises(DataError, match=words):
        table_.record([with_statistics(given=replace(counted(), **change))])  # type: ignore[arg-type]
    assert table_.log == ()
