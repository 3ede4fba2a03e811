"""A tournament on disk: appended whole, counted once, refused where it contradicts."""

from __future__ import annotations

import errno
import fcntl
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ludus.core.errors import DataError, RunError
from ludus.core.types import Match
from ludus.metagame.population.match_log import Moments
from ludus.tournament.meetings import Pairing
from ludus.tournament.tournament_store import FILE, PlayedChunk, TournamentStore, match_of_seating

ENTRANTS = {"a": ("1" * 64, "first"), "b": ("2" * 64, "second"), "c": ("3" * 64, "third")}


def store(folder: Path, **changes) -> TournamentStore:
    return TournamentStore(folder, **{"game": "G", "seed": 0, "entrants": ENTRANTS, **changes})


def played(first: int, n: int, mean: float = 0.5, names: str = "ab") -> PlayedChunk:
    meeting = Pairing(tuple(names), (tuple(names), tuple(names[::-1])))

    def order(seats: tuple[str, ...]) -> Match:
        found = Moments(n, np.array([mean, -mean]), np.array([2.0, 2.0]))
        return match_of_seating(meeting, first, seats, found, ((n, 0, 0), (0, 0, n)))

    both = np.array([mean, -mean])
    return PlayedChunk(meeting.id, first, n, both, 2 * abs(both), tuple(map(order, meeting.seatings)))


def contents(folder: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(folder / FILE) as db:
        rows = [
            row for t in ("tournament", "entrants", "pieces", "matches") for row in db.execute(f"SELECT * FROM {t}")
        ]
    db.close()
    return rows


def test_store_round_trip(tmp_path: Path) -> None:
    with store(tmp_path / "t") as open_:
        assert open_.record([played(0, 10), played(10, 5, 0.25), played(0, 7, names="ac")]) == 3
    with store(tmp_path / "t") as again:
        assert again.stored() == {'["a", "b"]': [(0, 10), (10, 5)], '["a", "c"]': [(0, 7)]}
        pieces = again.played()
    assert [(p.pairing, p.first, p.n) for p in pieces] == [
        ('["a", "b"]', 0, 10),
        ('["a", "b"]', 10, 5),
        ('["a", "c"]', 0, 7),
    ]
    assert [o.profile for o in pieces[0].matches] == [(0, 1), (1, 0)]
    assert [ref.policy for ref in pieces[0].matches[1].seats] == ["b", "a"]
    assert pieces[1].mean.tolist() == [0.25, -0.25]
    assert pieces[1].matches[0].wins == ((5, 0, 0), (0, 0, 5))
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == [FILE]


def test_nothing_counts_twice(tmp_path: Path) -> None:
    with store(tmp_path) as open_:
        assert open_.record([played(0, 10)]) == 1
        assert open_.record([played(0, 10)]) == 0
        assert open_.record([played(5, 10), played(20, 5)]) == 1  # cut otherwise by another command
        assert open_.stored() == {'["a", "b"]': [(0, 10), (20, 5)]}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (played(0, 10, 0.75), r"deals 0 to 9 of \[\"a\", \"b\"\] are stored with other results"),
        (played(10, 10, np.nan), "not finite numbers; nothing was recorded"),
    ],
)
def test_contradictions_are_refused_whole(tmp_path: Path, wrong: PlayedChunk, words: str) -> None:
    with store(tmp_path) as open_:
        open_.record([played(0, 10)])
        before = contents(tmp_path)
        with pytest.raises(DataError, match=words):
            open_.record([played(30, 10), wrong])
        assert contents(tmp_path) == before
        assert open_.record([played(30, 10)]) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"game": "H"}, "holds a tournament of G; these entrants play H"),
        ({"seed": 4}, "was begun with --seed 0, and 4 was given"),
        (
            {"entrants": {**ENTRANTS, "a": ("9" * 64, "")}},
            "'a' is not what played under this name .* was 111111111111… and is 9999",
        ),
    ],
)
def test_another_tournament_is_refused(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with store(tmp_path) as open_:
        open_.record([played(0, 10)])
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(RunError, match=words):
        store(tmp_path, **changes)
    assert (tmp_path / FILE).read_bytes() == before


def test_who_has_no_results_yet_may_change(tmp_path: Path) -> None:
    with store(tmp_path) as open_:
        open_.record([played(0, 10)])
    with store(tmp_path, entrants={**ENTRANTS, "c": ("9" * 64, "")}) as open_:
        open_.record([played(0, 10, names="ac")])
    with pytest.raises(RunError, match="'c' is not what played"):
        store(tmp_path)


def test_one_command_at_a_time(tmp_path: Path) -> None:
    with store(tmp_path) as first:
        first.record([played(0, 10)])
        with pytest.raises(RunError, match="another `ludus tournament` plays in"):
            store(tmp_path)
        assert first.record([played(10, 10)]) == 1
    store(tmp_path).close()


def test_a_command_that_was_killed_blocks_nobody(tmp_path: Path) -> None:
    code = f"""
import os, pathlib, signal
from ludus.tournament.tournament_store import TournamentStore
TournamentStore(pathlib.Path({str(tmp_path)!r}), game="G", seed=0, entrants={{}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    store(tmp_path).close()


def test_a_change_while_it_is_open_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)  # a file system without locks
    with store(tmp_path) as one, store(tmp_path, entrants={**ENTRANTS, "b": ("9" * 64, "")}) as other:
        one.record([played(0, 10)])
        with pytest.raises(RunError, match="'b' is not what played"):
            other.record([played(10, 10)])
        assert one.stored() == {'["a", "b"]': [(0, 10)]}


def test_foreign_and_damaged_files_are_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(RunError, match="is not a tournament's database"):
        store(tmp_path)
    (tmp_path / FILE).write_bytes(b"no database at all, but long enough to be read as a header" * 3)
    with pytest.raises(RunError, match="cannot be used"):
        store(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be made"):
        store(tmp_path / "file" / "t")


@pytest.mark.parametrize(
    ("version", "words"), [(1, "version 1; .* Go on with the Ludus that wrote it"), (99, "Upgrade ludus")]
)
def test_another_version_is_refused(tmp_path: Path, version: int, words: str) -> None:
    store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    with pytest.raises(RunError, match=words):
        store(tmp_path)


def test_a_command_that_died_before_it_made_its_tables_does_no_harm(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / FILE)
    db.execute("PRAGMA journal_mode = WAL")
    db.close()
    with store(tmp_path) as open_:
        assert open_.record([played(0, 10)]) == 1
