"""A league of main agents, main exploiters and league exploiters that train together (AlphaStar: Vinyals et al. 2019, supplement).

After each chunk every player's newest snapshot is evaluated against those that matchmaking depends on; who is ready becomes a
checkpoint, which stays in the league for ever, and exploiters start anew. The other snapshots stay in their population as members
that nobody meets. `ludus.schedulers.league` says whom players meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter

from ludus.core import seeding
from ludus.core.errors import ConfigError, article
from ludus.core.parts import build_part, dump_part
from ludus.core.types import MetaSolution, Mixture, PolicyRef, State, TrainingResult, TrainingTask
from ludus.metagame.population.base import Places, View
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.match_selection import PolicyProfile
from ludus.metagame.solvers.pfsp import Weighting, pfsp
from ludus.metagame.solvers.registry import solve
from ludus.schedulers.config import ScheduleContext, Solver
from ludus.schedulers.planning import ChunkedScheduler, MatchSelection, OwnPastOptions, refuse_changes
from ludus.schedulers.win_rates import Member, WinRates, without_monotonic_suffix

# --------------------------------------------------------------------------------------------------------------------
# The players of a league, and whom they meet: pure functions (Vinyals et al. 2019, supplement, pseudocode of
# `multiagent.py`). There each player draws its next opponent; here the same draws are probabilities: of an episode
# of main agent M
#
#     1/2     anyone of the past, by pfsp(squared)
#     15/100  for a random main agent m: checkpoints of main exploiters by pfsp(squared), if one of them beats M too
#             often; otherwise those of m's checkpoints that M has forgotten how to beat, by pfsp(squared), if there are
#             such; otherwise as below
#     35/100  for a random main agent m: m itself, or, if it is too strong yet, its checkpoints by pfsp(variance)

Array = NDArray[np.float64]
Role = Literal["main", "main_exploiter", "league_exploiter"]
ROLES: tuple[Role, ...] = ("main", "main_exploiter", "league_exploiter")


@dataclass(frozen=True, slots=True)
class LeaguePlayer:
    """A learner of the league: the number-th of its role in its population."""

    population: int
    role: Role
    number: int

    @property
    def name(self) -> str:
        """Also the beginning of its policies' ids."""
        return f"{self.role}-{self.number}"


@dataclass(frozen=True, slots=True)
class PlayerCheckpoint:
    """A policy of the past. parent: the player it was made by; None: it was there from the start, and counts as every main agent's first
    checkpoint."""

    member: Member
    parent: LeaguePlayer | None = None

    def by(self, player: LeaguePlayer) -> bool:
        """Return whether it is one of `player`'s."""
        return player == self.parent if self.parent is not None else player.role == "main"


Opponent = LeaguePlayer | PlayerCheckpoint
Rate = Callable[[LeaguePlayer, Opponent], float]
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
class OpponentDraw:
    """Probabilities of opponents, in the order in which they were first given any."""

    probs: dict[Opponent, float] = field(default_factory=dict)

    def add(self, opponents: Sequence[Opponent], weights: Iterable[float], share: float) -> None:
        """`share` of the games, by `weights` that sum to 1."""
        for opponent, weight in zip(opponents, weights, strict=True):
            if weight > 0 and share > 0:
                self.probs[opponent] = self.probs.get(opponent, 0.0) + share * float(weight)


def opponent_probabilities(
    player: LeaguePlayer,
    mains: Sequence[LeaguePlayer],
    past: Sequence[PlayerCheckpoint],
    rate: Rate,
    rules: LeagueRules,
) -> Mapping[Opponent, float]:
    """Return the opponents of `player` in a seat of the population that `mains` and `past` (oldest first, not empty) belong to; sums to
    1."""
    draw = OpponentDraw()
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
                draw.add(
                    [c for c, is_weak in zip(past, weak, strict=True) if is_weak], pfsp(rates[weak], rules.main), verify
                )
            else:
                play += verify
            _meet(draw, player, main, past, rates, rate, rules, share=play)
    return draw.probs


def _meet(
    draw: OpponentDraw,
    player: LeaguePlayer,
    main: LeaguePlayer,
    past: Sequence[PlayerCheckpoint],
    rates: Array,
    rate: Rate,
    rules: LeagueRules,
    *,
    share: float,
) -> None:
    """Add to the draw a main agent, or its checkpoints while it is too strong."""
    enough = rules.weak if player.role == "main" else rules.hopeless
    its = _made_by(main, past)
    if player == main or rate(player, main) > enough or not its.any():
        draw.add([main], [1.0], share)
    else:
        draw.add(
            [c for c, is_made_by in zip(past, its, strict=True) if is_made_by],
            pfsp(rates[its], rules.curriculum),
            share,
        )


def _to_verify(
    main: LeaguePlayer, past: Sequence[PlayerCheckpoint], rates: Array, rules: LeagueRules
) -> NDArray[np.bool_]:
    """Return which of the past a main agent should be tried against; none if all is well."""
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
    """Return whether a player becomes a checkpoint. age: its chunks since the last one. rates: against those it is there to beat: main
    agents for a main exploiter, the whole past for the others."""
    if age < rules.least:
        return False
    return age >= rules.most or min(rates, default=0.0) > rules.strong


def _made_by(player: LeaguePlayer, past: Sequence[PlayerCheckpoint]) -> NDArray[np.bool_]:
    return np.array([checkpoint.by(player) for checkpoint in past], np.bool_)


@dataclass(frozen=True, slots=True)
class LeagueStanding:
    """Where a player stands. age: chunks since its last checkpoint. task: its last one, if it goes on from it. snapshots: their places in
    its population since it last started anew, newest first, as far back as they count."""

    player: LeaguePlayer
    age: int = 0
    task: str | None = None
    snapshots: tuple[int, ...] = ()


_STANDINGS = TypeAdapter(tuple[LeagueStanding, ...])
_PAST = TypeAdapter(tuple[PlayerCheckpoint, ...])
_FADED = 0.01  # snapshots that count less than this part of the newest are forgotten


LEAGUE_RULES = {"alphastar": "ludus.schedulers.league:LeagueRules"}
"""Whom the players of a league meet, by name -> `module:Class`; each class's fields are its options."""


def _rules(value: Any) -> LeagueRules:
    rules = build_part("league's rules", value, LEAGUE_RULES, (LeagueRules,))
    if not isinstance(rules, LeagueRules):
        raise ConfigError(f"the rules of a league are LeagueRules; given {article(type(rules).__name__)}.")
    return rules


class LeagueOptions(OwnPastOptions):
    """A league (AlphaStar, Vinyals et al. 2019): main agents, main exploiters and league exploiters that train at the same time, from
    generation to generation.

    Attributes:
        main: Number of main agents in every population.
        main_exploiters: Number of main exploiters in every population.
        league_exploiters: Number of league exploiters in every population.
        rules: Whom they meet and when they are frozen, by default with the paper's numbers ({kind: alphastar, strong: 0.7} say).
        decay: What the results of a snapshot count beside those of the next newer one.
        start: The file of a policy that players start from, at first and anew (in the paper one that imitates people).
        meta_solver: Of the game among main agents and their checkpoints; null: the newest main agents are announced, all alike.
    """

    main: int = Field(1, ge=1)
    main_exploiters: int = Field(1, ge=0)
    league_exploiters: int = Field(2, ge=0)
    rules: Annotated[Any, BeforeValidator(_rules), PlainSerializer(lambda part: dump_part(part, LEAGUE_RULES))] = (
        "alphastar"
    )
    decay: float = Field(0.0, ge=0, lt=1)
    meta_solver: Solver | None = None
    cells: Literal["needed", "all"] = "needed"

    @property
    def roles(self) -> tuple[str, ...]:
        return ROLES

    @property
    def needs_learner(self) -> bool:
        return True

    @property
    def reads_rates(self) -> bool:
        return True

    def check_schedule(self, context: ScheduleContext) -> None:
        if self.meta_solver is not None:
            context.check_solver(self.meta_solver)
        super().check_schedule(context)


class LeagueScheduler(ChunkedScheduler):
    """State beyond the chunk: the standing of each player, and the checkpoints."""

    options: LeagueOptions

    def __init__(
        self, options: LeagueOptions, *, population: tuple[int, ...], selection: MatchSelection | None = None
    ) -> None:
        """As `ChunkedScheduler`."""
        super().__init__(options, population=population, selection=selection)
        numbers = zip(ROLES, (options.main, options.main_exploiters, options.league_exploiters), strict=True)
        roles = [(role, number) for role, count in numbers for number in range(count)]
        players = [LeaguePlayer(k, role, number) for k in self.populations for role, number in roles]
        self.together = len(players)
        self._standings = {player: LeagueStanding(player) for player in players}
        self._past: tuple[PlayerCheckpoint, ...] = ()

    # ------------------------------------------------------------------------------------------ who is there

    def _mains(self, population: int) -> list[LeaguePlayer]:
        return [p for p in self._standings if p.population == population and p.role == "main"]

    def _checkpoints(self, population: int) -> list[PlayerCheckpoint]:
        return [checkpoint for checkpoint in self._past if checkpoint.member.population == population]

    def _members(self, opponent: Opponent) -> list[Member]:
        if isinstance(opponent, PlayerCheckpoint):
            return [opponent.member]
        return [Member(opponent.population, place) for place in self._standings[opponent].snapshots]

    # ------------------------------------------------------------------------------------------ results

    def needed(self, view: View) -> Iterable[PolicyProfile]:
        """Yield newest snapshots against those they may play against or have to beat."""
        self._begin(view)
        rates = self._win_rates(view)
        for player in self._standings:
            for member in self._members(player)[:1]:
                for population in self.against(player.population):
                    others = [m for o in self._rivals(player, population) for m in self._members(o)[:1] if m != member]
                    yield from rates.profiles(member, others)

    def game(self, view: View) -> Places | None:
        """Return the game among main agents and their checkpoints, if it is solved."""
        self._begin(view)
        return None if self.options.meta_solver is None else self._main_places()

    def _rivals(self, player: LeaguePlayer, population: int) -> list[Opponent]:
        mains, past = self._mains(population), self._checkpoints(population)
        if player.role == "league_exploiter":
            return [*past]
        if player.role == "main_exploiter":
            return [*mains, *(c for c in past if any(c.by(main) for main in mains))]
        return [*mains, *past]

    def review(self, view: View) -> None:
        """Add checkpoints, and reset learners."""
        self._begin(view)
        rates = self._win_rates(view)
        for player in [p for p in self._standings if self._is_ready(p, rates)]:
            standing = self._standings[player]
            self._past += (PlayerCheckpoint(Member(player.population, standing.snapshots[0]), player),)
            anew = LeagueStanding(player) if self._starts_anew(player) else replace(standing, age=0)
            self._standings[player] = anew

    def _is_ready(self, player: LeaguePlayer, rates: WinRates) -> bool:
        to_beat: list[Opponent] = []
        for population in self.against(player.population):
            to_beat += self._mains(population) if player.role == "main_exploiter" else self._checkpoints(population)
        return ready(self._standings[player].age, [self._rate(player, o, rates) for o in to_beat], self.options.rules)

    def _starts_anew(self, player: LeaguePlayer) -> bool:
        if player.role == "league_exploiter":
            path = (player.population, player.name, self.chunk)
            return bool(seeding.generator(self.options.seed, "reset", *path).random() < self.options.rules.reset)
        return player.role == "main_exploiter"

    def _begin(self, view: View) -> None:
        """Make checkpoints of the policies that are there from the start."""
        if self._past:
            return
        for population in self.populations:
            count = len(view.populations[population])
            self._past += tuple(PlayerCheckpoint(Member(population, place)) for place in range(count))

    def _win_rates(self, view: View) -> WinRates:
        reference = {k: self._newest(self._mains(k)[0]) for k in self.populations}
        return WinRates(view.payoffs, reference=reference, span=self.options.span)

    def _newest(self, main: LeaguePlayer) -> int:
        snapshots = self._standings[main].snapshots
        return snapshots[0] if snapshots else self._checkpoints(main.population)[0].member.place

    def _rate(self, player: LeaguePlayer, opponent: Opponent, rates: WinRates) -> float:
        return rates.rate(self._members(player), self._members(opponent), decay=self.options.decay)

    def trained(self, result: TrainingResult, view: View) -> None:
        """Record a new snapshot."""
        super().trained(result, view)
        place = view.place(result.ref)
        (player,) = (p for p in self._standings if self._task_id(p, result.task.generation) == result.task.id)
        old = self._standings[player]
        num_snapshots = (
            1
            if self.options.decay <= 0
            else 1 + int(min(100.0, np.log(_FADED) / np.log(min(self.options.decay, 0.99))))
        )
        self._standings[player] = LeagueStanding(
            player, old.age + 1, result.task.id, (place, *old.snapshots)[:num_snapshots]
        )

    # ------------------------------------------------------------------------------------------ what is announced

    def solution(self, view: View) -> MetaSolution:
        """Return the solution of the main agents."""
        places, payoffs = self._main_places(), self.payoffs.completed(view.payoffs)
        if self.options.meta_solver is None:
            newest = {k: sorted({self._newest(main) for main in self._mains(k)}) for k in self.populations}
            marginals = tuple(
                normal_form.scatter(np.full(len(newest[k]), 1.0 / len(newest[k])), newest[k], len(view.populations[k]))
                for k in self.population
            )
            return MetaSolution(marginals, np.nan)
        rng = seeding.generator(self.options.seed, "solve", self.chunk)
        return normal_form.lift(solve(self.options.meta_solver, payoffs.part(places), rng=rng), payoffs, places)

    def _main_places(self) -> dict[int, list[int]]:
        """Return the places of checkpoints of main agents and of their newest snapshots."""
        places = {}
        for population in self.populations:
            mains = self._mains(population)
            past = {c.member.place for c in self._checkpoints(population) if any(c.by(main) for main in mains)}
            places[population] = sorted(past | {self._newest(main) for main in mains})
        return places

    # ------------------------------------------------------------------------------------------ tasks

    def groups(self, view: View) -> Sequence[Sequence[TrainingTask]]:
        """Return one task per player, all together."""
        rates = self._win_rates(view)
        return [[self._task(player, view, rates) for player in self._standings]]

    def _task_id(self, player: LeaguePlayer, chunk: int) -> str:
        return f"chunk-{player.population}-{player.name}-{chunk}"

    def _task(self, player: LeaguePlayer, view: View, rates: WinRates) -> TrainingTask:
        chunk = self.chunk + 1
        return TrainingTask(
            id=self._task_id(player, chunk),
            generation=chunk,
            population=player.population,
            seats=self.seats(player.population),
            policy=f"{player.name}-{chunk}",
            opponents=self._opponents(player, view, rates),
            mode=self.options.mode,
            keep=True,
            length=self.options.chunks if player.role == "main" else 0,
            role=player.role,
            **self.source(player.population, self._standings[player].task, self.options.start),
        )

    def _opponents(self, player: LeaguePlayer, view: View, rates: WinRates) -> Mixture:
        def opponents_from(population: int) -> tuple[Sequence[PolicyRef], Sequence[float]]:
            probs = opponent_probabilities(
                player,
                self._mains(population),
                self._checkpoints(population),
                lambda own, other: self._rate(own, other, rates),
                self.options.rules,
            )
            return [self._ref(opponent, view) for opponent in probs], list(probs.values())

        return self.seat_by_seat(player.population, view, opponents_from)

    def _ref(self, opponent: Opponent, view: View) -> PolicyRef:
        if isinstance(opponent, PlayerCheckpoint):
            return view.populations[opponent.member.population][opponent.member.place]
        return PolicyRef(opponent.population, f"{opponent.name}-{self.chunk + 1}", None)

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            "standings": _STANDINGS.dump_python(tuple(self._standings.values()), mode="json"),
            "past": _PAST.dump_python(self._past, mode="json"),
        }

    def load_state_dict(self, state: State) -> None:
        """Raise RunError for a league of other players."""
        standings = _STANDINGS.validate_python(state["standings"])
        refuse_changes(_players(standing.player for standing in standings), _players(self._standings))
        super().load_state_dict(state)
        self._standings = {standing.player: standing for standing in standings}
        self._past = _PAST.validate_python(state["past"])


def _players(players: Iterable[LeaguePlayer]) -> dict[str, object]:
    """Return the options that say how many there are."""
    all_players = tuple(players)
    roles = zip(ROLES, ("main", "main_exploiters", "league_exploiters"), strict=True)
    of_each = {
        option: sum(p.role == role and p.population == all_players[0].population for p in all_players)
        for role, option in roles
    }
    return {"populations": sorted({p.population for p in all_players}), **of_each}
