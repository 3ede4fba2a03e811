"""Whether a run improves: NashConv; else games against its earlier strategies and random play; of a single agent, its return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from ludus.apps.ui.figures.base import Number, all_finite, finite, thin
from ludus.apps.ui.figures.meta_game import Floats, MetaGame
from ludus.core import recorders
from ludus.core.types import Curve
from ludus.metagame.solvers.confidence import student
from ludus.storage.reader import Reader
from ludus.storage.records import StoredTask

WINDOW = 5
"""Generations of a change."""
LEAST_POINTS = 4
"""Values that a trend needs."""
NOTHING = 1e-4
"""Share of the range of returns below which a payoff counts as 0."""
MAX_CURVE = 120
"""Points of the chart."""
NEWEST = 100
"""Episodes of training that a return is the mean of, at least."""
NORMAL = float(ndtri(0.975))
"""Standard errors of half a 95% interval."""
_BLOCKS = 20  # parts of a training, of a change over five of them
_QUARTER = "the last quarter of the training"

IMPROVES, UNCHANGED, WORSE, UNKNOWN = "improves", "no measurable change", "gets worse", "not yet known"
SOLVED, UNTRAINED = "nothing is left to gain", "nothing is trained"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95% interval; low and high are None where it has none."""

    value: Number
    low: Number = None
    high: Number = None

    @staticmethod
    def around(value: float, half_width: float) -> Estimate:
        """Return the interval of a value and its half width."""
        return Estimate(finite(value), finite(value - half_width), finite(value + half_width))


NONE = Estimate(None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The newest meta-strategies against an earlier strategy; of a single agent, what an earlier policy earns. who: which one, in words.
    games: that were played; 0 where payoffs were computed."""

    who: str
    estimate: Estimate
    games: int


@dataclass(frozen=True, slots=True)
class Improvement:
    """measure: "NashConv", "NashConv, at least", "win rate", "payoff" or "return"; "" where nothing is known. verdict: one of the constants
    above. sentence: the verdict with its reason. change: of the value, with its interval, over the time that `over` names. of: whose value
    it is, and when. par: a comparison of equals (0.5 of a win rate), None where there is none. x: of the curve, named x_title; values, low,
    high: its points. who, opponent: whose win rates or payoffs `against` has, and against whom those of the curve are; empty for others.
    frame: what a chart shows of a mean whose intervals have no known limits: the least and the largest value of a run's curve."""

    measure: str
    verdict: str
    sentence: str
    change: Estimate
    over: str
    now: Estimate
    of: str
    par: Number
    against: list[Comparison]
    x_title: str
    x: list[Number]
    values: list[Number]
    low: list[Number]
    high: list[Number]
    who: str = ""
    opponent: str = ""
    frame: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class NewestReturn:
    """Return of a single agent's newest policy. half_width: of its 95% interval (Student's t), None where a single episode is known. of:
    whose it is, and when."""

    value: float
    half_width: Number
    episodes: int
    of: str


# --------------------------------------------------------------------------------------------------------------------
# Trends.


@dataclass(frozen=True, slots=True)
class Trend:
    """Change over `span` steps of a line of least squares, with half of its 95% interval."""

    change: float
    half_width: float
    span: int


def trend(values: Sequence[float] | Floats) -> Trend | None:
    """Return the change over the last `WINDOW` steps, by the line through the last 2 · `WINDOW` values (ordinary least squares, Student's t
    with n - 2 degrees of freedom): the scatter around the line is the noise. None with fewer than `LEAST_POINTS` finite values."""
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)][-2 * WINDOW :]
    n = len(known)
    if n < LEAST_POINTS:
        return None
    x = np.arange(n) - (n - 1) / 2
    gradient = float(x @ known / (x @ x))
    rest = known - known.mean() - gradient * x
    error = math.sqrt(float(rest @ rest) / (n - 2) / float(x @ x))
    span = min(WINDOW, n - 1)
    return Trend(span * gradient, span * error * float(stdtrit(n - 2, 0.975)), span)


def _last(generations: int) -> str:
    return "the last generation" if generations == 1 else f"the last {generations} generations"


def verdict_of(change: float, half_width: float, *, lower_is_better: bool = False) -> str:
    """Return the verdict on a change with its interval: it improves, or gets worse, where the interval does not hold 0. With one that
    does, nothing is said of whether it could still improve."""
    better = -change if lower_is_better else change
    return IMPROVES if better > half_width else WORSE if better < -half_width else UNCHANGED


def plus_minus(change: float, half_width: float) -> str:
    """Return "−0.15 ± 0.18": the interval with two digits."""
    digits = 2 if not half_width or not math.isfinite(half_width) else max(0, 1 - math.floor(math.log10(half_width)))
    digits = min(digits, 6)
    sign = "+" if change > 0 else "−" if round(abs(change), digits) else ""
    return f"{sign}{abs(change):.{digits}f} ± {half_width:.{digits}f}"


SAID = {
    IMPROVES: "Improves",
    UNCHANGED: "No measurable change",
    WORSE: "Gets worse",
    UNKNOWN: "Not yet known",
}


def _unknown(why: str, *, measure: str = "", now: Estimate = NONE, of: str = "") -> Improvement:
    return Improvement(measure, UNKNOWN, f"{SAID[UNKNOWN]}: {why}", NONE, "", now, of, None, [], "", [], [], [], [])


# --------------------------------------------------------------------------------------------------------------------
# NashConv.


Score = tuple[int, float, bool]
"""Number of a generation, its NashConv, and whether that is no bound."""


def _scores(reader: Reader) -> list[Score]:
    """Return those that are known, oldest first. A generation's other columns are large where there are many policies."""
    rows = reader.query("SELECT number, nash_conv, exact FROM generations WHERE nash_conv IS NOT NULL ORDER BY number")
    return [(number, value, bool(exact)) for number, value, exact in rows if math.isfinite(value)]


def _by_nash_conv(known: Sequence[Score], span: float) -> Improvement:
    """span: range of the returns, summed over the players."""
    exact = all(is_exact for _, _, is_exact in known)
    measure = "NashConv" if exact else "NashConv, at least"
    values = np.array([value for _, value, _ in known])
    change = trend(values)
    if math.isfinite(span) and values[-1] < NOTHING * span:
        verdict, sentence = SOLVED, "Nothing is left to gain: the meta-strategies are an equilibrium."
    elif change is None:
        verdict = UNKNOWN
        sentence = f"{SAID[verdict]}: a trend needs {LEAST_POINTS} generations."
    else:
        verdict = verdict_of(change.change, change.half_width, lower_is_better=True)
        text = plus_minus(change.change, change.half_width)
        sentence = (
            f"{SAID[verdict]}: {'NashConv' if exact else 'the bound'} changed by {text} over {_last(change.span)}."
        )
    curve = thin(known, MAX_CURVE)
    return Improvement(
        measure=measure,
        verdict=verdict,
        sentence=sentence,
        change=NONE if change is None else Estimate.around(change.change, change.half_width),
        over="" if change is None else _last(change.span),
        now=Estimate(finite(float(values[-1]))),
        of=f"of the meta-strategies of generation {known[-1][0]}; lower is better, 0 at an equilibrium",
        par=None,
        against=[],
        x_title="generation",
        x=[float(number) for number, _, _ in curve],
        values=[finite(value) for _, value, _ in curve],
        low=[],
        high=[],
    )


# --------------------------------------------------------------------------------------------------------------------
# Games against earlier strategies.

Profile = tuple[Floats, ...]
"""[P] a distribution over each player's policies."""


Places = NDArray[np.int64]
Cells = tuple[Floats, Floats, NDArray[np.int64]]
"""score, its variance and games of some profiles, [k_0, …]; NaN where none was played."""


@dataclass(frozen=True, eq=False)
class Results:
    """What players earn, by profile, of which only those are computed that are asked for.

    rate: whether scores are shares of games won, a draw as half of one; else they are payoffs. seats: whose scores there are; where two
    players share a population it is the first alone, whose scores are of both seats together. tie: difference that counts as none."""

    game: MetaGame
    rate: bool
    seats: int
    tie: float

    @property
    def par(self) -> float:
        """Return the score of equals in a zero-sum game."""
        return 0.5 if self.rate else 0.0

    def cells(self, player: int, places: Sequence[Places]) -> Cells:
        """Return the results of a player at the profiles of some policies of each player."""
        score, variance, games = self._seat(player, places)
        if not self.game.symmetric:
            return score, variance, games
        second, spread, more = self._seat(1 - player, places[::-1])
        second, spread = second.T, spread.T
        one = np.where(np.isfinite(score), variance, spread)
        both = np.isfinite(score) & np.isfinite(second)
        variance = np.where(both, (variance + spread) / 4, one)
        score = np.where(both, (score + second) / 2, np.where(np.isfinite(score), score, second))
        if self.game.info.zero_sum:  # two copies are equals, without a game
            alike = np.isnan(score) & (places[0][:, None] == places[1])
            score, variance = np.where(alike, self.par, score), np.where(alike, 0.0, variance)
        return score, variance, games + more.T

    def _seat(self, player: int, places: Sequence[Places]) -> Cells:
        log, at = self.game.log, np.ix_(*places)
        if self.rate:
            wins, draws, losses = (log.wins[player, end][at].astype(np.float64) for end in range(3))
            games = wins + draws + losses
            with np.errstate(all="ignore"):
                score = (wins + draws / 2) / games
            # Agresti and Coull (1998): two wins and two losses more than were counted, so that it is not 0 where all were won
            center = (wins + draws / 2 + NORMAL**2 / 2) / (games + NORMAL**2)
            spread = np.where(games > 0, center * (1 - center) / (games + NORMAL**2), np.nan)
            return score, spread, games.astype(np.int64)
        n, m2 = log.count[at].astype(np.float64), log.m2[player][at]
        with np.errstate(all="ignore"):
            spread = np.where(log.exact[at], 0.0, np.where(n > 1, m2 / (n * (n - 1)), np.nan))
        return log.mean[player][at], spread, log.count[at]

    def expected(self, player: int, weights: Sequence[Floats]) -> tuple[float, float, int]:
        """Return (score, variance, games) of a player under independent weights [P] float64[n_p]; NaN where an unknown profile has some."""
        places = [np.flatnonzero(weight) for weight in weights]
        score, variance, games = self.cells(player, places)
        for axis in reversed(range(len(weights))):
            weight = weights[axis][places[axis]]
            score, variance = (
                np.tensordot(values, row, axes=(axis, 0)) for values, row in ((score, weight), (variance, weight**2))
            )
        return float(score), float(variance), int(games.sum())


def results(game: MetaGame) -> Results:
    """Return shares of games won where two play and winners were counted, else payoffs."""
    rate = game.players == 2 and bool(game.log.wins.any()) and not game.log.exact.any()
    return Results(game, rate, 1 if game.symmetric else game.players, NOTHING * (1.0 if rate else payoff_range(game)))


def payoff_range(game: MetaGame) -> float:
    """Return the range of a player's returns: of the game, where it is finite, else of the payoffs; 0 where none is known."""
    low, high = game.returns(0)
    if math.isfinite(high - low):
        return high - low
    known = game.log.mean[0][np.isfinite(game.log.mean[0])]
    return float(np.ptp(known)) if len(known) else 0.0


def compared(table: Results, own: Profile, other: Profile) -> tuple[float, float, int]:
    """Return (score, variance, games) of one profile's players, each alone against the others of another profile: the mean over players. Of
    payoffs, above what the other profile's own player earns there."""
    if table.seats < len(own):  # one population: both seats together
        own, other = ((np.mean(rows, axis=0),) * len(rows) for rows in (own, other))
    scores, variances, games = [], [], 0
    for player in range(table.seats):
        mixed = tuple(own[p] if p == player else other[p] for p in range(len(own)))
        score, variance, played = table.expected(player, mixed)
        scores.append(score - (0.0 if table.rate else table.expected(player, other)[0]))
        variances.append(variance)
        games += played
    return float(np.mean(scores)), float(np.sum(variances)) / table.seats**2, games


def _estimate(table: Results, own: Profile, other: Profile) -> tuple[Estimate, int]:
    score, variance, games = compared(table, own, other)
    half = NORMAL * math.sqrt(variance) if math.isfinite(variance) else math.nan
    low, high = (max(0.0, score - half), min(1.0, score + half)) if table.rate else (score - half, score + half)
    return Estimate(finite(score), finite(low), finite(high)), games


def _padded(marginals: Sequence[Floats], sizes: Sequence[int]) -> Profile:
    return tuple(np.pad(row[:size], (0, max(0, size - len(row)))) for row, size in zip(marginals, sizes, strict=True))


def _first(game: MetaGame) -> tuple[Profile, bool]:
    """Return the profile of each population's first policy, and whether all of them play at random."""
    starts = [game.members[own][0].record for own in game.info.population]
    profile = tuple(np.eye(1, size, record.index)[0] for size, record in zip(game.sizes, starts, strict=True))
    return profile, all(record.spec.kind == "random" for record in starts)


def _by_games(game: MetaGame, reader: Reader) -> Improvement:
    numbers = reader.generation_numbers()
    last = numbers[-1]
    # Not the start itself, once there is more: nearly all that has learned is better than that.
    least = numbers[1 if len(numbers) > 2 else 0]
    back = max(number for number in [least, *numbers] if number <= max(least, last - WINDOW))
    wanted = sorted({*thin(numbers, MAX_CURVE), back, *numbers[-2:]})
    strategies = {n: _padded(rows, game.sizes) for n, rows in reader.marginals(wanted).items()}
    table, now = results(game), strategies[last]
    start, is_random = _first(game)
    opponents = [("random play" if is_random else "the start", start)]
    if len(numbers) > 1 and numbers[-2] != numbers[0]:
        opponents.append((f"generation {numbers[-2]}, the one before", strategies[numbers[-2]]))
    if back not in (numbers[0], *numbers[-2:]):
        opponents.append((f"generation {back}", strategies[back]))
    against = []
    for who, profile in opponents:
        estimate, games = _estimate(table, now, profile)
        if estimate.value is not None:
            against.append(Comparison(who, estimate, games))
    curve = {n: _estimate(table, strategies[n], start)[0] for n in thin(numbers, MAX_CURVE)}
    known = {n: estimate for n, estimate in curve.items() if estimate.value is not None}
    measure = "win rate" if table.rate else "payoff"
    if not math.isfinite(compared(table, now, strategies[back])[0]):
        back = numbers[max(0, len(numbers) - 2)]  # of those that were played, the one before is the likeliest
    verdict, did, change = _judged(table, now, strategies[back], last - back)
    since = "" if verdict == UNKNOWN else f" since {_named(back, numbers)}"
    if since and back not in numbers[-2:]:
        newest = _judged(table, now, strategies[numbers[-2]], last - numbers[-2])[0]
        if newest == verdict:
            since += " and since the previous generation"
        elif newest != UNKNOWN:
            since += f"; {newest} since the previous generation"
    who = "random play" if is_random else "the start"
    gained = "" if table.rate else ", above what that earns itself"
    return Improvement(
        measure=measure,
        verdict=verdict,
        sentence=f"{SAID[verdict]}{since}: {did}.",
        change=change,
        over=_last(last - back),
        now=curve[last],
        of=f"of generation {last} against {who}{gained}",
        par=table.par,
        against=against,
        x_title="generation",
        x=[float(n) for n in known],
        values=[estimate.value for estimate in known.values()],
        low=[estimate.low for estimate in known.values()],
        high=[estimate.high for estimate in known.values()],
        who=f"generation {last}",
        opponent=who,
    )


def _named(number: int, numbers: Sequence[int]) -> str:
    if number == numbers[0]:
        return "the start"
    return "the previous generation" if number == numbers[-2] else f"generation {number}"


def _judged(table: Results, now: Profile, before: Profile, span: int) -> tuple[str, str, Estimate]:
    """Return the verdict on the newest strategies against those of `span` generations before, its reason, and what is above par."""
    score, variance, _ = compared(table, now, before)
    if not math.isfinite(score) or not math.isfinite(variance):
        return UNKNOWN, "the newest strategies have not played earlier ones", NONE
    half = NORMAL * math.sqrt(variance)
    verdict = verdict_of(score - table.par, max(half, table.tie))
    since = f"those of {span} generation{'s' if span > 1 else ''} before"
    if table.rate:
        did = f"the newest strategies win {100 * score:.0f}% ± {100 * half:.0f}% of their games against {since}"
    else:
        did = f"the newest strategies earn {plus_minus(score, half)} more against {since} than these earn themselves"
    return verdict, did, Estimate.around(score - table.par, half)


# --------------------------------------------------------------------------------------------------------------------
# Returns of a single agent.


def newest_return(reader: Reader) -> NewestReturn | None:
    """Return what the newest policy of a single agent earns: in the episodes of evaluation, else in the newest `NEWEST` of its training.
    None where several play, and where no episode has ended."""
    if reader.info().players != 1:
        return None
    log, names = reader.payoff_log(), reader.policy_names().get(reader.info().population[0], [])
    known = np.flatnonzero(np.isfinite(log.mean[0]))
    if len(known) and known[-1] == len(names) - 1:
        k = int(known[-1])
        n, mean, m2 = int(log.count[k]), float(log.mean[0][k]), float(log.m2[0][k])
        if log.exact[k]:
            return NewestReturn(mean, 0.0, 0, f"policy {names[k]}, computed")
        return NewestReturn(mean, _half(n, m2), n, f"policy {names[k]}, {n:,} episodes of evaluation")
    task = newest_training(reader)
    curve = None if task is None else reader.curve(task.id, points=recorders.LIMIT)
    if task is None or curve is None or not len(curve):
        return _of_generations(reader, names)
    newest = recorders.last(curve, episodes=NEWEST)
    n, mean, m2 = int(newest["n"][0]), float(newest["mean"][0]), float(newest["m2"][0])
    if not n or not math.isfinite(mean):
        return None
    return NewestReturn(mean, _half(n, m2), n, f"policy {task.policy}, the newest {n:,} episodes of its training")


def _of_generations(reader: Reader, names: Sequence[str]) -> NewestReturn | None:
    """Return what a run of a version without curves has stored of its newest training."""
    values = reader.metrics(f"response/{reader.info().population[0]}/return", "generations").value
    known = values[np.isfinite(values)]
    return (
        NewestReturn(float(known[-1]), None, 0, f"policy {names[-1]}, at the end of its training")
        if len(known)
        else None
    )


def _half(n: int, m2: float) -> Number:
    return finite(student(n) * math.sqrt(m2 / (n - 1) / n)) if n > 1 else None


def newest_training(reader: Reader) -> StoredTask | None:
    """Return the training task that began last and has a curve, None where none has."""
    rows = reader.query(
        "SELECT population, policy, id FROM tasks WHERE kind = 'train' AND EXISTS (SELECT 1 FROM curves WHERE task = id) "
        "ORDER BY generation DESC, id LIMIT 1"
    )
    if not rows:
        return None
    population, policy, newest = rows[0]
    return next(task for task in reader.tasks(policy=(population, policy)) if task.id == newest)


def training_blocks(curve: Curve) -> Floats:
    """Return the mean return in each of at most `_BLOCKS` equal parts of a training, by decisions; NaN where no episode ended."""
    decisions = curve["decisions"]
    if not len(curve) or decisions[-1] <= 0:
        return np.empty(0)
    block = np.minimum((decisions / decisions[-1] * _BLOCKS - 1e-9).astype(int), _BLOCKS - 1)
    n = np.where(np.isfinite(curve["mean"]), curve["n"], 0.0)
    count = np.bincount(block, n, _BLOCKS)
    with np.errstate(all="ignore"):
        return np.bincount(block, n * np.nan_to_num(curve["mean"]), _BLOCKS) / count


def _by_return(reader: Reader) -> Improvement:
    newest, task = newest_return(reader), newest_training(reader)
    curve = None if task is None else reader.curve(task.id, points=recorders.LIMIT)
    if newest is None:
        why = "nothing is trained" if reader.info().generations == 0 else "no episode has ended"
        return _unknown(f"{why}.", measure="return")
    half = newest.half_width
    now = Estimate(finite(newest.value)) if half is None else Estimate.around(newest.value, half)
    if curve is None or not len(curve):
        return _unknown("no training has a curve.", measure="return", now=now, of=f"of {newest.of}")
    change = trend(training_blocks(curve))
    if change is None:
        verdict, sentence = UNKNOWN, f"{SAID[UNKNOWN]}: too few episodes have ended."
    else:
        verdict = verdict_of(change.change, change.half_width)
        text = plus_minus(change.change, change.half_width)
        did = f"changed by {text}" if change.change or change.half_width else "did not change"
        sentence = f"{SAID[verdict]}: the return {did} over {_QUARTER}."
    log, names = reader.payoff_log(), reader.policies()
    against = []
    if len(names) > 1 and np.isfinite(log.mean[0][0]):
        who = "random play" if names[0].record.spec.kind == "random" else "the start"
        mean, n, half = float(log.mean[0][0]), int(log.count[0]), _half(int(log.count[0]), float(log.m2[0][0]))
        against = [Comparison(who, Estimate(finite(mean)) if half is None else Estimate.around(mean, half), n)]
    points = recorders.thinned(curve, MAX_CURVE)
    ended = np.isfinite(points["mean"])
    return Improvement(
        measure="return",
        verdict=verdict,
        sentence=sentence,
        change=NONE if change is None else Estimate.around(change.change, change.half_width),
        over=_QUARTER,
        now=now,
        of=f"of {newest.of}",
        par=None,
        against=against,
        x_title="decisions",
        x=all_finite(points["decisions"][ended]),
        values=all_finite(points["mean"][ended]),
        low=[],
        high=[],
    )


# --------------------------------------------------------------------------------------------------------------------


def improvement(reader: Reader, game: MetaGame) -> Improvement:
    """Return the answer of a run, by the first of these that is known: its return, where one agent plays; NashConv; games against earlier
    strategies."""
    if game.players == 1:
        return _by_return(reader)
    if scores := _scores(reader):
        return _by_nash_conv(scores, sum(high - low for low, high in game.info.utility_range))
    numbers = reader.generation_numbers()
    if not numbers:
        return _unknown("the first generation has not finished.")
    if len(numbers) == 1 and game.info.generations != 0:
        return _unknown(f"generation {numbers[0]} is the start, and generation {numbers[0] + 1} has not finished.")
    if not (game.log.exact.any() or game.log.count.any()):
        hint = " With cells=progress they do." if "cells: needed" in game.info.text else ""
        return _unknown(f"the policies of this run have not played each other, so that none is compared.{hint}")
    answer = _by_games(game, reader)
    if len(numbers) > 1:
        return answer
    of = answer.of.replace(f"generation {numbers[0]}", "the meta-strategy")
    sentence = "Nothing is trained: policies that were there before are compared."
    return replace(answer, verdict=UNTRAINED, sentence=sentence, of=of, who="the meta-strategy")
