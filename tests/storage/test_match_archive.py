"""Matches that the database has durably need not stay in memory: nothing that is read of them changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.core.errors import DataError
from ludus.core.types import Match, NamedStatistics, PolicyRef, PolicySpec
from ludus.metagame.population.agent_manager import AgentManager
from ludus.metagame.population.base import MatchArchive
from ludus.metagame.population.match_log import same_match
from ludus.storage import checkpoint
from ludus.storage.reader import Reader
from ludus.storage.store import Store

ARRAYS = ("mean", "m2", "count", "exact")


def played(name: str, profile: tuple[int, int], n: int, seed: int, *, counted: bool = False) -> Match:
    rng = np.random.default_rng(seed)
    mean, won = rng.normal(), int(rng.integers(0, n))
    seats = tuple(PolicyRef(player, f"{player}-{place}", 0) for player, place in enumerate(profile))
    one = NamedStatistics(("score",), np.full((2, 1), n), rng.normal(size=(2, 1)), np.ones((2, 1)))
    wins = ((won, 1, n - won - 1), (n - won - 1, 1, won))
    arrays = np.array([mean, -mean]), np.full(2, 2.0 * n)
    return Match(name, profile, seats, n, *arrays, wins, statistics=one if counted else None)


def manager(store: Store | None, size: int = 3) -> AgentManager:
    members = AgentManager(
        utility_range=((-13.0, 13.0),) * 2, population=(0, 1), zero_sum=True, recorder=store, archive=store
    )
    for population in (0, 1):
        for place in range(size):
            members.add(population, f"{population}-{place}", PolicySpec("tabular", {}), {"table": np.ones(2)})
    return members


BATCHES = [
    [played("a", (0, 0), 8, 1), played("b", (1, 0), 9, 2, counted=True)],
    [played("c", (0, 0), 30, 3), played("d", (2, 1), 7, 4)],
    [played("e", (1, 0), 5, 5, counted=True)],
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run")) as store:
        yield store


def fill(members: AgentManager, store: Store) -> None:
    """Record all, each batch followed by what a barrier does."""
    for k, batch in enumerate(BATCHES):
        members.record_matches(batch)
        members.state_dict()
        store.commit(f"barrier-{k}")
        members.release_log()


def require_same(one: AgentManager, other: AgentManager) -> None:
    for array in ARRAYS:
        np.testing.assert_array_equal(getattr(one.view().payoffs, array), getattr(other.view().payoffs, array))
    for kind in ("latest", "decayed"):
        for array in ARRAYS:
            a, b = (getattr(each.table.view(kind, decay=0.5), array) for each in (one, other))
            np.testing.assert_array_equal(a, b)
    assert one.elo() == other.elo()
    assert len(one.table) == len(other.table)
    assert all(same_match(a, b) for a, b in zip(one.table.log, other.table.log, strict=True))
    assert [one.table.matches_of(p) for p in ((0, 0), (2, 1), (2, 2))] == [2, 1, 0]


def test_released_matches_are_read_from_the_database(store: Store) -> None:
    assert isinstance(store, MatchArchive)
    members, whole = manager(store), manager(None)
    fill(members, store)
    whole.record_matches([match for batch in BATCHES for match in batch])
    assert not members.table._log
    require_same(members, whole)
    assert [name in members.table for name in ("a", "z", 7)] == [True, False, False]
    assert [match.id for match in members.table.log_after(3)] == ["d", "e"]


def test_released_match_counts_once_and_names_one_result(store: Store) -> None:
    members = manager(store)
    fill(members, store)
    assert members.record_matches([BATCHES[0][1], BATCHES[1][0], played("f", (2, 2), 4, 9)])[0].id == "f"
    with pytest.raises(DataError, match=r"match 'a' was recorded before with other content"):
        members.record_matches([played("a", (0, 0), 8, 10)])
    assert len(members.table) == 6


def test_state_is_pooled_and_comes_back_to_the_bit(store: Store, tmp_path: Path) -> None:
    members = manager(store)
    fill(members, store)
    name = checkpoint.save(tmp_path / "checkpoint", 1, members.state_dict())
    state = checkpoint.load(tmp_path / "checkpoint", name)
    assert "log" not in state["table"]
    again = manager(store, size=0)
    again._store = None
    again.load_state_dict(state)
    require_same(again, members)
    assert checkpoint.save(tmp_path / "checkpoint", 1, again.state_dict()) == name


def test_state_of_a_run_of_before_holds_the_log(store: Store) -> None:
    whole, members = manager(None), manager(store, size=0)
    whole.record_matches([match for batch in BATCHES for match in batch])
    state = whole.state_dict()
    assert len(state["table"]["log"]["id"]) == 5
    fill(manager(store), store)
    members.load_state_dict(state)
    require_same(members, whole)
    members.release_log()
    require_same(members, whole)


def test_rewind_drops_the_last_matches_and_their_statistics(store: Store) -> None:
    fill(manager(store), store)
    store.rewind("barrier-1")
    with Reader(store.run_dir) as reader:
        assert [stored.match.id for stored in reader.matches()] == ["a", "b", "c", "d"]
        assert [match.id for match in reader.counted()] == ["b"]
    assert store.matches_with(["b", "e", "x"]).keys() == {"b"}
    store.rewind(None)
    assert store.first_matches(9) == ()
