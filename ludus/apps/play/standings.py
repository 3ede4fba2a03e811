"""Standings of people, game by game: results of rated games, and ratings by OpenSkill's Plackett-Luce (Weng and Lin 2011)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, TypeAlias

from ludus.apps.play.people import PlayedGame
from ludus.core.packages import require
from ludus.metagame.population.ratings.bradley_terry import Z95

_Entrant: TypeAlias = tuple[str, ...]
"""("person", game, name), or ("policy", game, run, name)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A person's in one game. games, won, drawn, lost, mean (of the returns): of rated games; a game that is not zero-sum has neither
    wins nor ratings. unrated: number of other games. rating: None without rated games; half_width: of its 95% interval, as
    the model believes."""

    name: str
    game: str
    games: int
    won: int
    drawn: int
    lost: int
    mean: float | None
    unrated: int
    rating: float | None
    half_width: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GameLine:
    """A game in the list. seats: [P] names. has_replay: whether it can be stepped through; those of very large ones are not kept."""

    id: str
    time: float
    game: str
    run: str
    seats: Sequence[str]
    people: Sequence[bool]
    returns: Sequence[float]
    rated: bool
    has_replay: bool
    zero_sum: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleView:
    people: Sequence[Standing]
    games: Sequence[GameLine]


@dataclass(slots=True)
class _Tally:
    returns: list[float] = field(default_factory=list)
    unrated: int = 0
    results: dict[str, int] = field(default_factory=lambda: {"won": 0, "drawn": 0, "lost": 0})


def result_of(player: int, returns: Sequence[float]) -> str:
    """won (more than everybody else), drawn (as much as the best), lost; a player alone has none: ""."""
    others = [value for p, value in enumerate(returns) if p != player]
    if not others:
        return ""
    best = max(others)
    return "won" if returns[player] > best else "drawn" if returns[player] == best else "lost"


def ratings_of(games: Sequence[PlayedGame]) -> dict[_Entrant, Any]:
    """Of everybody in the rated games, by the order of these: objects with mu and sigma. The policies that people met are rated beside
    them, version by version: a name stands for one set of weights of one run. Each game has ratings of its own. Games in which somebody
    sits twice say nothing, nor do those that are not zero-sum, where to earn more than another is no win. People learn, so skills drift
    here (the library's own tau), unlike in the rating `openskill`."""
    model = require("openskill.models", "ratings of people").PlackettLuce()
    skills: dict[_Entrant, Any] = {}
    for game in games:
        entrants = entrants_of(game)
        if not (game.rated and game.zero_sum) or len(entrants) < 2 or len(set(entrants)) < len(entrants):
            continue
        teams = [[skills.setdefault(one, model.rating())] for one in entrants]
        updated = model.rate(teams, scores=[float(value) for value in game.returns])
        skills.update({one: team[0] for one, team in zip(entrants, updated, strict=True)})
    return skills


def entrants_of(game: PlayedGame) -> list[_Entrant]:
    """Return who sat where."""
    return [
        ("person", game.game, seat.name) if seat.person else ("policy", game.game, game.run, seat.name)
        for seat in game.seats
    ]


def people_view(games: Sequence[PlayedGame], *, most: int = 200) -> PeopleView:
    """Everybody in each game, the best first, and the newest games. most: of these."""
    tallies: dict[tuple[str, str], _Tally] = {}
    for game in games:
        for player, seat in enumerate(game.seats):
            if seat.person:
                _count(tallies.setdefault((game.game, seat.name), _Tally()), game, player)
    skills = ratings_of(games)
    people = []
    for (game_id, name), tally in tallies.items():
        skill = skills.get(("person", game_id, name))
        people.append(
            Standing(
                name=name,
                game=game_id,
                games=len(tally.returns),
                **tally.results,
                mean=fmean(tally.returns) if tally.returns else None,
                unrated=tally.unrated,
                rating=None if skill is None else float(skill.mu),
                half_width=None if skill is None else Z95 * float(skill.sigma),
            )
        )
    people.sort(key=lambda one: (one.game, one.rating is None, -(one.rating or 0.0), one.name))
    return PeopleView(people=people, games=[_line(game) for game in reversed(games[-most:])])


def _count(tally: _Tally, game: PlayedGame, player: int) -> None:
    """Add one game of a person."""
    if not game.rated:
        tally.unrated += 1
        return
    tally.returns.append(game.returns[player])
    if game.zero_sum and (result := result_of(player, game.returns)):
        tally.results[result] += 1


def _line(game: PlayedGame) -> GameLine:
    return GameLine(
        id=game.id,
        time=game.time,
        game=game.game,
        run=game.run,
        seats=[seat.name for seat in game.seats],
        people=[seat.person for seat in game.seats],
        returns=game.returns,
        rated=game.rated,
        has_replay=game.has_replay,
        zero_sum=game.zero_sum,
    )
