"""The games of people: kept apart from runs, and what comes of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ludus.apps.play.people import APPLICATION_ID, People, PlayedGame, PlayedSeat
from ludus.apps.play.standings import people_view, result_of
from ludus.core.errors import RunError


def game(id: str, returns: Sequence[float] = (1, -1), *, rated: bool = True) -> PlayedGame:
    seats = [PlayedSeat(person=True, name="Ada"), PlayedSeat(person=False, name="@1/1-4")]
    return PlayedGame(
        id=id, time=5.0, game="openspiel/kuhn_poker", run="k", seats=seats, returns=[*returns], steps=3, rated=rated
    )


def test_games_come_back_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people = People(tmp_path / "runs" / "people.db")  # a folder that there is not yet
    assert people.games() == []
    assert people.replay("a") is None
    assert not people.path.exists()
    people.path.parent.mkdir()
    people.path.touch()  # as a full disk leaves it
    assert (people.games(), people.replay("a")) == ([], None)
    people.path.unlink()
    people.path.parent.rmdir()
    people.add(game("a"), b'{"x": 1}')
    people.add(game("b", (0.5, -0.5), rated=False))
    replayed = replace(game("a"), has_replay=True)
    assert People(people.path).games() == [replayed, game("b", (0.5, -0.5), rated=False)]
    assert people.replay("a") == b'{"x": 1}'
    assert people.replay("b") is None
    with pytest.raises(RunError, match="cannot be written"):
        people.add(game("a"))  # an id comes once
    assert len(people.games()) == 2
    monkeypatch.setattr("ludus.apps.play.people._MOST_REPLAY", 8)
    people.add(game("c"), b'{"y": "longer than eight bytes"}')
    assert [line.has_replay for line in people_view(people.games()).games] == [False, False, True]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "people.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")
    for act in (People(path).games, lambda: People(path).add(game("a"))):
        with pytest.raises(RunError, match="no database of games"):
            act()
    path.write_bytes(b"no database at all, but long enough to be looked at")
    with pytest.raises(RunError, match="cannot be read"):
        People(path).games()


def test_a_newer_ludus_wrote_it(tmp_path: Path) -> None:
    people = People(tmp_path / "people.db")
    people.add(game("a"))
    with closing(sqlite3.connect(people.path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(RunError, match="newer Ludus"):
        people.games()


def test_results_are_by_the_best_of_the_others() -> None:
    assert [result_of(p, [3, 1, 3]) for p in range(3)] == ["drawn", "lost", "drawn"]
    assert result_of(0, [2, 1, 1]) == "won"
    assert result_of(0, [7]) == ""


def test_standings_and_ratings() -> None:
    """A first win between two newcomers is worth 2.635 in Plackett and Luce's model (25 ± 25/3 each, beta 25/6): 25 + (σ² / c) × 1/2 with
    c = √(2 (σ² + β²)) = 13.176."""
    ada, bob = PlayedSeat(person=True, name="Ada"), PlayedSeat(person=True, name="Bob")
    first = replace(game("a"), seats=[ada, bob])
    view = people_view([first, replace(first, id="b", returns=[0.0, 0.0], rated=False), game("c", rated=False)])
    assert [(one.name, one.games, one.won, one.drawn, one.lost, one.mean, one.unrated) for one in view.people] == [
        ("Ada", 1, 1, 0, 0, 1.0, 2),
        ("Bob", 1, 0, 0, 1, -1.0, 1),
    ]
    assert view.people[0].rating == pytest.approx(27.635, abs=1e-3)
    assert view.people[1].rating == pytest.approx(22.365, abs=1e-3)
    assert [line.id for line in view.games] == ["c", "b", "a"]
    assert view.games[0].people == [True, False]
    alone = people_view([replace(first, seats=[ada], returns=[500.0])])
    assert (alone.people[0].rating, alone.people[0].won) == (None, 0)
    against_oneself = people_view([replace(first, seats=[ada, ada])])
    assert against_oneself.people[0].rating is None


def test_each_game_has_ratings_of_its_own() -> None:
    ada, bob = PlayedSeat(person=True, name="Ada"), PlayedSeat(person=True, name="Bob")
    won = replace(game("a"), seats=[ada, bob])
    other = replace(won, id="b", game="openspiel/tic_tac_toe", returns=[-1.0, 1.0])
    dilemma = replace(won, id="c", game="openspiel/matrix_pd", returns=[10.0, 0.0], zero_sum=False)
    view = people_view([won, other, dilemma])
    assert [(one.game.partition("/")[2], one.name) for one in view.people] == [
        *(("kuhn_poker", name) for name in ("Ada", "Bob")),
        *(("matrix_pd", name) for name in ("Ada", "Bob")),
        *(("tic_tac_toe", name) for name in ("Bob", "Ada")),
    ]
    kuhn, _, cooperates, defects, tictactoe, _ = view.people
    assert kuhn.rating == pytest.approx(tictactoe.rating)
    assert [(one.rating, one.won, one.lost, one.mean) for one in (cooperates, defects)] == [
        (None, 0, 0, 10.0),
        (None, 0, 0, 0.0),
    ]


def test_a_file_of_an_older_ludus_is_read_and_written_on(tmp_path: Path) -> None:
    people = People(tmp_path / "people.db")
    people.add(game("a"))
    people.add(game("b", (5, 5)))
    with closing(sqlite3.connect(people.path)) as connection:
        connection.executescript("ALTER TABLE games DROP COLUMN zero_sum; PRAGMA user_version = 1;")
    assert [one.zero_sum for one in people.games()] == [True, False]  # by whether returns add up to 0
    people.add(replace(game("c"), zero_sum=False))
    assert [one.zero_sum for one in people.games()] == [True, False, False]
    with closing(sqlite3.connect(people.path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
