"""OpenSkill's ratings (Weng and Lin 2011), through the library `openskill`: two or more players, and teams, by rank."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ludus.core.errors import ConfigError, DataError, nearest
from ludus.core.packages import require
from ludus.core.types import Match
from ludus.metagame.population.base import Payoffs
from ludus.metagame.population.ratings.base import RatingTable, population_sizes, rating_table
from ludus.metagame.population.ratings.bradley_terry import Z95
from ludus.metagame.population.ratings.win_counts import connected_groups, group_notes

MODELS: Final = {
    "plackett_luce": "PlackettLuce",
    "bradley_terry_full": "BradleyTerryFull",
    "bradley_terry_part": "BradleyTerryPart",
    "thurstone_mosteller_full": "ThurstoneMostellerFull",
    "thurstone_mosteller_part": "ThurstoneMostellerPart",
}
"""Our names, and those of the library's classes."""
Game = tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]
"""(teams of policies, rank of each team; 0 is best, equal ranks are draws)"""


@dataclass(frozen=True, kw_only=True)
class OpenSkill:
    """OpenSkill (Weng and Lin 2011): mean skill mu (at first 25) with its 95% belief interval mu ± 1.96 sigma, updated in the order of the
    log.

    Two-player matches with win counts are played episode by episode, wins, draws and losses spread evenly; any other match counts as one
    game, ranked by the mean returns (of teams: summed). A policy that plays in several seats of a match is rated by other matches only.
    Each game is one call of the library. The interval is the model's belief. Policies are frozen, so by default the model has no drift
    (`tau` 0) and every game narrows the interval, even if the results have cycles. With drift the interval has a lower bound, and it
    widens while one side wins every game.

    Attributes:
        model: Model of the openskill library.
        tau: Standard deviation that each game adds to a skill, for skills that change; openskill's own default is 25/300.
        teams: Seats that play together, such as ((0, 1), (2, 3)); default: each player alone.
    """

    model: str = "plackett_luce"
    tau: float = 0.0
    teams: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ConfigError(f"openskill: unknown model {self.model!r}{nearest(self.model, MODELS)}")
        if not (math.isfinite(self.tau) and self.tau >= 0):
            raise ConfigError(f"openskill: tau={self.tau!r} was given; expected a finite number of at least 0.")
        _library()  # whoever lacks it hears of it before a run, not after

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Rate the policies. Raises DataError for one player, or teams that are no partition of the seats."""
        if payoffs.num_players == 1:
            raise DataError(
                "openskill rates who wins, given a game of one player; mean_payoff, worst_opponent and alpha_rank rate by returns."
            )
        seats = tuple((p,) for p in range(payoffs.num_players)) if not self.teams else self.teams
        if sorted(p for team in seats for p in team) != list(range(payoffs.num_players)) or len(seats) < 2:
            raise DataError(
                f"openskill: the teams {seats} were given; expected at least two that have each of the {payoffs.num_players} seats once."
            )
        sizes = population_sizes(payoffs)
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        first = [int(start[p]) for p in payoffs.population]
        model = getattr(_library(), MODELS[self.model])(
            tau=float(self.tau)
        )  # not to `rate`, which takes 0 for "not given"
        skills = [model.rating() for _ in range(sum(sizes))]
        together = np.zeros((len(skills), len(skills)))
        for match in log:
            for teams, ranks in _games(match, first, seats):
                _update(model, skills, teams, ranks)
                together[teams[0][0], [i for team in teams for i in team]] = 1
        mu, sigma = (np.array([getattr(s, name) for s in skills]) for name in ("mu", "sigma"))
        group = connected_groups(len(mu), *np.nonzero(together))
        return rating_table(
            "openskill", "skill", sizes, mu, half_width=Z95 * sigma, group=group, notes=group_notes(group)
        )


def _library() -> Any:
    return require("openskill.models", "the rating openskill")


def _games(match: Match, first: Sequence[int], seats: Sequence[Sequence[int]]) -> Iterator[Game]:
    policy = [start + i for start, i in zip(first, match.profile, strict=True)]
    teams = tuple(tuple(policy[p] for p in team) for team in seats)
    if len({i for team in teams for i in team}) < len(policy):
        return  # a policy cannot be rated against, or beside, itself
    if len(policy) == 2 and match.wins:
        wins, draws, losses = match.wins[seats[0][0]]
        for outcome in _spread((wins, draws, losses)):
            yield teams, ((0, 1), (0, 0), (1, 0))[outcome]
        return
    returns = [sum(float(match.mean[p]) for p in team) for team in seats]
    yield teams, tuple(sum(other > own for other in returns) for own in returns)


def _spread(counts: Sequence[int]) -> list[int]:
    """Return which outcome each of sum(counts) episodes has, every outcome at even distances."""
    at = np.concatenate([(np.arange(c) + 0.5) / c for c in counts if c] or [np.empty(0)])
    which = np.repeat(np.arange(len(counts)), counts)
    return [int(k) for k in which[np.argsort(at, kind="stable")]]


def _update(model: Any, skills: list[Any], teams: tuple[tuple[int, ...], ...], ranks: tuple[int, ...]) -> None:
    rated = model.rate([[skills[i] for i in team] for team in teams], ranks=list(ranks))
    for team, new in zip(teams, rated, strict=True):
        for i, skill in zip(team, new, strict=True):
            skills[i] = skill
