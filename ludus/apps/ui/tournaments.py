"""Tournaments for the page: the list of those in a folder, and the leaderboard and table of win rates of one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import RunError
from ludus.metagame.population.ratings.base import rank_intervals
from ludus.tournament.results import PairingResult
from ludus.tournament.tournament_report import MEAN, TournamentReport, stored_report
from ludus.tournament.tournament_store import FILE, StoredTournament, read_tournament

FOLDER = "tournaments"
"""Where `ludus tournament` puts results by default: a folder of that name next to `runs`."""
_COUNTS = attrgetter("won", "drawn", "lost")
_ENDS = ("wins", "draws", "losses")
MOST_IN_TABLE = 60
"""Entrants of the table of win rates, the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TournamentLine:
    """A tournament in the list. id: what the page knows it by. best: its first entrant, "" without results. last: Unix time of its newest
    result. error: why it cannot be read; ""."""

    id: str
    name: str
    game: str = ""
    entrants: int = 0
    episodes: int = 0
    best: str = ""
    last: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow:
    """An entrant. ranks: (best, worst) that 95% intervals leave open, None where they are not known. mean: return against all others, each
    meeting with equal weight; half_width: of its 95% interval. rating, low, high: None where there is none. win_rate: won episodes and half
    of the drawn ones, of all; None in games of one player."""

    name: str
    detail: str
    ranks: tuple[int, int] | None
    mean: float | None
    half_width: float | None
    rating: float | None
    low: float | None
    high: float | None
    wins: int
    draws: int
    losses: int
    win_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What an entrant came to against another. mean: return, half_width: of its 95% interval."""

    wins: int
    draws: int
    losses: int
    mean: float | None
    half_width: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TournamentView:
    """order: what orders the rows, and what `ranks` are by: a rating, or the mean return. pairs: [n][n] of the first n rows, row against
    column; None of those that have not met."""

    id: str
    name: str
    game: str
    players: int
    episodes: int
    last: float
    order: str
    rating: str
    rows: Sequence[LeaderboardRow]
    pairs: Sequence[Sequence[Pair | None]]
    notes: Sequence[str]


def tournament_dirs(root: Path) -> list[Path]:
    """Return the folders of tournaments in a folder of runs, in its folder `tournaments`, and in one of that name next to it."""
    places = dict.fromkeys((root, root / FOLDER, root.resolve().parent / FOLDER))
    return sorted({path.parent.resolve() for place in places for path in place.glob(f"*/{FILE}") if path.is_file()})


def tournament_line(folder: Path, *, id: str) -> TournamentLine:
    """Return a folder's line, also of one that cannot be read."""
    try:
        stored = read_tournament(folder)
        report = _report(stored)
    except RunError as error:
        return TournamentLine(id=id, name=folder.name, error=str(error).replace(str(folder), folder.name))
    return TournamentLine(
        id=id,
        name=folder.name,
        game=stored.game,
        entrants=len(stored.entrants),
        episodes=0 if report is None else report.episodes,
        best="" if report is None else report.standings[0].name,
        last=stored.last,
    )


def tournament_view(folder: Path, *, id: str) -> TournamentView:
    """Return a tournament's leaderboard and table. Raises RunError as `read_tournament`, and for one without results."""
    stored = read_tournament(folder)
    report = _report(stored)
    if report is None:
        raise RunError(f"{folder.name} has no results yet. Wait for the first ones.")
    low, high = _ends(report)
    ranks = rank_intervals(low, high)
    return TournamentView(
        id=id,
        name=folder.name,
        game=stored.game,
        players=report.players,
        episodes=report.episodes,
        last=stored.last,
        order=report.order,
        rating=report.rating,
        rows=[*_rows(report, stored, ranks)],
        pairs=_pairs(report),
        notes=report.notes,
    )


def _report(stored: StoredTournament) -> TournamentReport | None:
    return stored_report(stored) if stored.played else None


def _ends(report: TournamentReport) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return float64[n] twice: the ends of the intervals that ranks are by."""
    if report.order == MEAN:
        mean, half = (np.array([getattr(one, name) for one in report.standings]) for name in ("mean", "half_width"))
        return mean - half, mean + half
    return np.array([one.low for one in report.standings]), np.array([one.high for one in report.standings])


def _rows(report: TournamentReport, stored: StoredTournament, ranks: NDArray[np.int64]) -> Iterator[LeaderboardRow]:
    for one, (best, worst) in zip(report.standings, ranks.tolist(), strict=True):
        wins, draws, losses = _COUNTS(one)
        yield LeaderboardRow(
            name=one.name,
            detail=stored.entrants.get(one.name, ""),
            ranks=(best, worst) if best else None,
            mean=_number(one.mean),
            half_width=_number(one.half_width),
            rating=_number(one.rating),
            low=_number(one.low),
            high=_number(one.high),
            wins=wins,
            draws=draws,
            losses=losses,
            win_rate=(wins + draws / 2) / one.episodes if one.episodes and report.players > 1 else None,
        )


def _pairs(report: TournamentReport) -> list[list[Pair | None]]:
    names = [one.name for one in report.standings[:MOST_IN_TABLE]]
    counts = _wins_between(report.results) if report.players == 2 else {}
    table = []
    for i, row in enumerate(names):
        cells: list[Pair | None] = []
        for j, column in enumerate(names):
            wins, draws, losses = (counts.get((row, column), Counter())[end] for end in _ENDS)
            mean = _number(float(report.cross[i, j])) if i != j else None
            half = _number(float(report.cross_half[i, j]))
            known = mean is not None or wins + draws + losses > 0
            cells.append(Pair(wins=wins, draws=draws, losses=losses, mean=mean, half_width=half) if known else None)
        table.append(cells)
    return table


def _wins_between(results: Sequence[PairingResult]) -> dict[tuple[str, str], Counter[str]]:
    """Return (entrant, opponent) -> episodes won, drawn and lost, over all seats."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for result in results:
        for match in result.matches:
            for seat, wins in enumerate(match.wins):
                own, other = match.seats[seat].policy, match.seats[1 - seat].policy
                ends = dict(zip(_ENDS, wins, strict=True))
                counts.setdefault((own, other), Counter()).update(ends)
    return counts


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
