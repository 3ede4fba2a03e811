"""The players of a league, and whom they meet: pure functions (Vinyals et al. 2019, supplement, pseudocode of `multiagent.py`).

There each player draws its next opponent; here the same draws are probabilities: of an episode of main agent M

    1/2     anyone of the past, by pfsp(squared)
    15/100  for a random main agent m: checkpoints of main exploiters by pfsp(squared), if one of them beats M too often; otherwise those of
            m's checkpoints that M has forgotten how to beat, by pfsp(squared), if there are such; otherwise as below
    35/100  for a random main agent m: m itself, or, if it is too strong yet, its checkpoints by pfsp(variance)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.opponents.priority import Weighting, pfsp
from ludus.schedulers.win_rates import Member, without_monotonic_suffix

Array = NDArray[np.float64]
Role = Literal["main", "main_exploiter", "league_exploiter"]
ROLES: tuple[Role, ...] = ("main", "main_exploiter", "league_exploiter")


@dataclass(frozen=True, slots=True)
class Player:
    """A learner of the league: the number-th of its role in its population."""

    population: int
    role: Role
    number: int

    @property
    def name(self) -> str:
        """Also the beginning of its policies' ids."""
        return f"{self.role}-{self.number}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A policy of the past. parent: the player it was made by; None: it was there from the start, and counts as every main agent's first
    checkpoint."""

    member: Member
    parent: Player | None = None

    def by(self, player: Player) -> bool:
        """Whether it is one of `player`'s."""
        return player == self.parent if self.parent is not None else player.role == "main"


Opponent = Player | Checkpoint
Rate = Callable[[Player, Opponent], float]
"""How often a player beats an opponent, in [0, 1]."""


@dataclass(frozen=True, slots=True)
class LeagueRules:
    """The numbers of the paper's supplement; `least` and `most` stand for its 2e9 and 4e9 steps, in chunks.

    past: share of a main agent's games against anyone of the past. verification: share in which it looks for what it is bad at. strong: win
    rate above which an opponent is beaten. weak: a main agent that wins less often against another meets its checkpoints first; a
    checkpoint of an exploiter against which it wins less often is looked for. hopeless: the same for main exploiters.
    reset: probability that a league exploiter starts anew after a checkpoint; main exploiters always do. Raises ConfigError for
    numbers that make no sense.
    """

    past: float = 0.5
    verification: float = 0.15
    strong: float = 0.7
    weak: float = 0.3
    hopeless: float = 0.1
    least: int = 2
    most: int = 4
    reset: float = 0.25
    main: Weighting = "squared"
    curriculum: Weighting = "variance"
    exploiter: Weighting = "linear_capped"

    def __post_init__(self) -> None:
        shares = (
            self.past,
            self.verification,
            self.past + self.verification,
            self.strong,
            self.weak,
            self.hopeless,
            self.reset,
        )
        if not all(0 <= share <= 1 for share in shares) or not 1 <= self.least <= self.most:
            raise ConfigError(
                "a league's shares and rates are from 0 to 1, past and verification together too, and least is from 1 to most; "
                f"given {self}."
            )


@dataclass(slots=True)
class Draw:
    """Probabilities of opponents, in the order in which they were first given any."""

    probs: dict[Opponent, float] = field(default_factory=dict)

    def add(self, opponents: Sequence[Opponent], weights: Iterable[float], share: float) -> None:
        """`share` of the games, by `weights` that sum to 1."""
        for opponent, weight in zip(opponents, weights, strict=True):
            if weight > 0 and share > 0:
                self.probs[opponent] = self.probs.get(opponent, 0.0) + share * float(weight)


def opponents_of(
    player: Player, mains: Sequence[Player], past: Sequence[Checkpoint], rate: Rate, rules: LeagueRules
) -> Mapping[Opponent, float]:
    """Whom `player` meets in a seat of the population that `mains` and `past` (oldest first, not empty) belong to; sums to 1."""
    draw = Draw()
    rates = np.array([rate(player, checkpoint) for checkpoint in past])
    if player.role == "league_exploiter":
        draw.add(past, pfsp(rates, rules.exploiter), 1.0)
    elif player.role == "main_exploiter":
        for main in mains:
            _meet(draw, player, main, past, rates, rate, rules, share=1.0 / len(mains))
    else:
        draw.add(past, pfsp(rates, rules.main), rules.past)
        for main in mains:
            verify = rules.verification / len(mains)
            play = (1.0 - rules.past - rules.verification) / len(mains)
            weak = _to_verify(main, past, rates, rules)
            if weak.any():
                draw.add([c for c, here in zip(past, weak, strict=True) if here], pfsp(rates[weak], rules.main), verify)
            else:
                play += verify
            _meet(draw, player, main, past, rates, rate, rules, share=play)
    return draw.probs


def _meet(
    draw: Draw,
    player: Player,
    main: Player,
    past: Sequence[Checkpoint],
    rates: Array,
    rate: Rate,
    rules: LeagueRules,
    *,
    share: float,
) -> None:
    """A main agent, or its checkpoints while it is too strong."""
    enough = rules.weak if player.role == "main" else rules.hopeless
    its = _made_by(main, past)
    if player == main or rate(player, main) > enough or not its.any():
        draw.add([main], [1.0], share)
    else:
        draw.add([c for c, here in zip(past, its, strict=True) if here], pfsp(rates[its], rules.curriculum), share)


def _to_verify(main: Player, past: Sequence[Checkpoint], rates: Array, rules: LeagueRules) -> NDArray[np.bool_]:
    """Which of the past a main agent should be tried against; none if all is well."""
    exploiters = np.array([c.parent is not None and c.parent.role == "main_exploiter" for c in past], np.bool_)
    if exploiters.any() and rates[exploiters].min() < rules.weak:
        return exploiters
    its = np.flatnonzero(_made_by(main, past))
    its = its[: without_monotonic_suffix(rates[its])]
    chosen = np.zeros(len(past), np.bool_)
    if len(its) and rates[its].min() < rules.strong:
        chosen[its] = True
    return chosen


def ready(age: int, rates: Sequence[float], rules: LeagueRules) -> bool:
    """Whether a player becomes a checkpoint. age: its chunks since the last one. rates: against those it is there to beat: main agents for
    a main exploiter, the whole past for the others."""
    if age < rules.least:
        return False
    return age >= rules.most or min(rates, default=0.0) > rules.strong


def _made_by(player: Player, past: Sequence[Checkpoint]) -> NDArray[np.bool_]:
    return np.array([checkpoint.by(player) for checkpoint in past], np.bool_)
