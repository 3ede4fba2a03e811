"""Tournaments on the page: the list, the leaderboard with ranks that intervals leave open, and win rates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from ludus.apps.ui.server.access import WATCH, Access
from ludus.apps.ui.server.app import make_app
from ludus.apps.ui.server.known_runs import KnownRuns
from ludus.apps.ui.server.serving import make_state
from ludus.apps.ui.tournaments import tournament_dirs, tournament_line, tournament_view
from ludus.core.errors import RunError
from ludus.metagame.population.match_log import Moments
from ludus.metagame.population.ratings.base import rank_intervals
from ludus.tournament.meetings import Pairing
from ludus.tournament.tournament_store import FILE, PlayedChunk, TournamentStore, match_of_seating

GAME = json.dumps({"id": "openspiel/connect_four"})
ENTRANTS = {name: (digit * 64, f"policy {name}") for name, digit in (("a", "1"), ("b", "2"), ("c", "3"))}


def met(names: str, wins: tuple[int, int, int], *, first: int = 0) -> PlayedChunk:
    """Deals of two, each played in both orders: the first of them wins, draws and loses so often in each order, of returns 1, 0 and -1."""
    n, (won, drawn, lost) = sum(wins), wins
    mean = (won - lost) / n
    m2 = (won + lost) - n * mean**2
    pairing = Pairing(tuple(names), (tuple(names), tuple(names[::-1])))
    mirrored = (lost, drawn, won)

    def order(seats: tuple[str, ...]) -> object:
        sign = 1 if seats[0] == names[0] else -1
        counts = (wins, mirrored) if sign == 1 else (mirrored, wins)
        return match_of_seating(
            pairing, first, seats, Moments(n, sign * np.array([mean, -mean]), np.array([m2, m2])), counts
        )

    both = np.array([mean, -mean])
    return PlayedChunk(pairing.id, first, n, both, np.array([m2, m2]), tuple(map(order, pairing.seatings)))


def write(folder: Path, *chunks: PlayedChunk) -> Path:
    with TournamentStore(folder, game=GAME, seed=0, entrants=ENTRANTS) as store:
        store.record(chunks)
    return folder


def test_ranks_are_what_intervals_leave_open() -> None:
    """The first lies above all; the next two overlap; of the last nothing is known."""
    low, high = np.array([5.0, 1.0, 2.0, np.nan]), np.array([6.0, 3.0, 4.0, np.nan])
    assert rank_intervals(low, high).tolist() == [[1, 1], [2, 3], [2, 3], [0, 0]]
    assert rank_intervals(np.zeros(3), np.zeros(3)).tolist() == [[1, 3]] * 3


def test_a_leaderboard_and_who_wins_against_whom(tmp_path: Path) -> None:
    chunks = met("ab", (150, 20, 30)), met("ac", (190, 0, 10)), met("bc", (100, 60, 40))
    view = tournament_view(write(tmp_path / "four", *chunks), id="x")
    assert (view.game, view.players, view.episodes, view.order) == ("openspiel/connect_four", 2, 1200, "bradley_terry")
    assert [(row.name, row.detail, row.ranks) for row in view.rows] == [
        ("a", "policy a", (1, 1)),
        ("b", "policy b", (2, 2)),
        ("c", "policy c", (3, 3)),
    ]
    first, second, _ = view.rows
    assert (first.wins, first.draws, first.losses) == (680, 40, 80)
    assert first.win_rate == pytest.approx(0.875)
    assert first.low is not None
    assert second.high is not None
    assert first.low > second.high
    assert first.mean == pytest.approx((0.6 + 0.9) / 2)
    pair = view.pairs[0][1]
    assert pair is not None
    assert (pair.wins, pair.draws, pair.losses, pair.mean) == (300, 40, 60, pytest.approx(0.6))
    assert [[cell is None for cell in row] for row in view.pairs] == np.eye(3, dtype=bool).tolist()


def test_returns_of_many_sizes_are_ordered_by_their_mean(tmp_path: Path) -> None:
    chunk = met("ab", (6, 0, 4))
    large = PlayedChunk(
        chunk.pairing,
        0,
        chunk.n,
        np.array([-2.0, 2.0]),
        np.array([90.0, 90.0]),
        tuple(
            match_of_seating(
                Pairing(("a", "b"), (("a", "b"), ("b", "a"))),
                0,
                tuple(ref.policy for ref in match.seats),
                Moments(10, sign * np.array([-2.0, 2.0]), np.array([90.0, 80.0])),
                match.wins,
            )
            for sign, match in zip((1, -1), chunk.matches, strict=True)
        ),
    )
    view = tournament_view(write(tmp_path / "poker", large), id="x")
    assert (view.order, [row.name for row in view.rows]) == ("mean return", ["b", "a"])  # though a wins more often


def test_the_list_and_one_are_served_anew_when_a_result_comes(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    write(tmp_path / "tournaments" / "four", met("ab", (8, 1, 1)))
    broken = root / "broken"
    broken.mkdir()
    (broken / FILE).write_bytes(b"no database at all, but long enough to be looked at")
    access = Access(port=80)
    with TestClient(make_app(make_state(access, KnownRuns(root=root))), base_url="http://localhost") as client:
        assert client.get("/api/tournaments").status_code == 401
        client.cookies.set(access.cookie, access.tokens.of(WATCH))
        lines = {line["name"]: line for line in client.get("/api/tournaments").json()}
        assert lines["broken"]["error"]
        assert str(tmp_path) not in lines["broken"]["error"]
        four = lines["four"]
        assert (four["game"], four["entrants"], four["episodes"], four["best"]) == (
            "openspiel/connect_four",
            2,
            20,
            "a",
        )
        assert client.get(f"/api/tournaments/{lines['broken']['id']}").status_code == 409
        assert client.get("/api/tournaments/nope").status_code == 404
        assert client.get(f"/api/tournaments/{four['id']}").json()["episodes"] == 20
        write(tmp_path / "tournaments" / "four", met("ac", (8, 1, 1)))
        view = client.get(f"/api/tournaments/{four['id']}").json()
        assert (view["episodes"], len(view["rows"])) == (40, 3)
        assert view["pairs"][1][2] is None  # b and c have not met


def test_a_tournament_without_results_is_listed(tmp_path: Path) -> None:
    folder = write(tmp_path / "none")
    assert (tournament_line(folder, id="x").best, tournament_line(folder, id="x").error) == ("", "")
    with pytest.raises(RunError, match="no results yet"):
        tournament_view(folder, id="x")
    assert tournament_dirs(tmp_path) == [folder]
