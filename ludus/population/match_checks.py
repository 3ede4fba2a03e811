"""What a payoff table asks of a match before it keeps it. Pure, and of constant time for each match."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.errors import DataError
from ludus.population.matches import consistent, whole
from ludus.types import Match, PolicyRef

EXACT_TOLERANCE = 1e-9
"""Exact values of one cell may differ by this fraction of the utility range (rounding depends on the batch they were computed in)."""

SUM_TOLERANCE = 1e-6
"""Exact payoffs of a zero-sum game may miss their constant sum by this fraction of the utility range, as meta-solvers allow."""

PLAYED_TOLERANCE = 1e-4
"""Likewise where they were played: rewards may be sums of float32."""

_MOST_UNITS = 2**53  # counted exactly, as an integer and as a float


@dataclass(frozen=True, slots=True)
class Rules:
    """What is true of every result of a table: utility_range [P] (least, largest), population [P], zero_sum as in `EnvSpec`. total: what
    the payoffs of a profile sum to, where that is known before any result."""

    utility_range: tuple[tuple[float, float], ...]
    population: tuple[int, ...]
    zero_sum: bool
    total: float | None

    @property
    def players(self) -> int:
        return len(self.population)


def rules_of(utility_range: Sequence[tuple[float, float]], population: Sequence[int], zero_sum: bool) -> Rules:
    """The sum is known in a zero-sum game of two players in which each can win just what the other can lose: it is 0."""
    ranges = tuple((float(low), float(high)) for low, high in utility_range)
    total = None
    if zero_sum and len(ranges) == 2 and np.isfinite(ranges).all():
        (a, b), (c, d) = ranges
        total = 0.0 if math.isclose(a, -d) and math.isclose(b, -c) else None
    return Rules(ranges, tuple(int(p) for p in population), bool(zero_sum), total)


def check_match(match: Match, sizes: Sequence[int], rules: Rules) -> None:
    """Raises DataError, with the match's id, if it is malformed, NaN, out of range, or contradicts itself."""
    _check_profile(match, sizes)
    _check_seats(match, rules.population)
    _check_counts(match, rules.players)
    players = (rules.players,)
    mean, m2 = _numbers(match, "mean"), _numbers(match, "m2")
    if mean.shape != players or m2.shape != players:
        raise DataError(f"match {match.id!r}: mean and m2 have shapes {mean.shape} and {m2.shape}, expected {players}.")
    payoffs = mean.tolist()
    if not all(low <= u <= high for u, (low, high) in zip(payoffs, rules.utility_range, strict=True)):
        check_range(as_block(mean), match.profile, rules, f"match {match.id!r}: ")
    _check_spread(match, m2, rules)
    if rules.total is not None and sum(payoffs) != rules.total:
        check_total(as_block(mean), match.profile, rules, rules.total, PLAYED_TOLERANCE)


def as_block(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[P] of one cell as a block float64[P, 1, …]."""
    cell: NDArray[np.float64] = np.asarray(mean, np.float64).reshape(len(mean), *([1] * len(mean)))
    return cell


def check_range(values: NDArray[np.float64], first: Sequence[int], rules: Rules, what: str = "") -> None:
    """Raises DataError, naming the profile, if a value of the block float64[P, k_0, …] from `first` on is NaN or out of range."""
    for player, (low, high) in enumerate(rules.utility_range):
        spare = EXACT_TOLERANCE * max(
            1.0, abs(low) if np.isfinite(low) else 1.0, abs(high) if np.isfinite(high) else 1.0
        )
        mine = values[player]
        if mine.size == 0 or (low - spare <= mine.min() and mine.max() <= high + spare and np.isfinite(mine).all()):
            continue
        wrong = np.argwhere(~((mine >= low - spare) & (mine <= high + spare) & np.isfinite(mine)))[0]
        raise DataError(
            f"{what}player {player}'s payoff of profile {_profile(wrong, first)} is {mine[tuple(wrong)]}, expected a number from {low} to "
            f"{high} (the environment's utility range). Nothing was recorded."
        )


def check_total(
    values: NDArray[np.float64], first: Sequence[int], rules: Rules, total: float, tolerance: float = SUM_TOLERANCE
) -> None:
    """Raises DataError, naming the profile, if payoffs of the block float64[P, k_0, …] from `first` on do not sum to `total`."""
    sums = values.sum(axis=0)
    width = max(high - low for low, high in rules.utility_range)
    scale = max(1.0, width if np.isfinite(width) else float(np.abs(values).max(initial=0.0)))
    wrong = np.abs(sums - total) > tolerance * scale
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        why = "as those of others do" if rules.total is None else f"with returns in {rules.utility_range}"
        raise DataError(
            f"the payoffs of profile {_profile(at, first)} are {[float(u[at]) for u in values]}, which sum to {float(sums[at]):.6g}; the "
            f"game is declared zero-sum, {why}, so {total:.6g} was expected. Correct the result, or what the environment says of its game."
        )


def check_equal(
    old: NDArray[np.float64], new: NDArray[np.float64], known: NDArray[np.bool_], first: Sequence[int]
) -> None:
    """Raises DataError, naming the profile, if two blocks float64[P, k_0, …] of exact payoffs differ where `known` bool[k_0, …]."""
    wrong = (np.abs(new - old) > EXACT_TOLERANCE * max(1.0, float(np.abs(new).max()))).any(axis=0) & known
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        raise DataError(
            f"profile {_profile(at, first)} has the exact payoffs {[float(u[at]) for u in old]}, "
            f"and is now said to have {[float(u[at]) for u in new]}. Policies of a population must not change."
        )


def _profile(at: Sequence[int], first: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(i) + int(a) for i, a in zip(at, first, strict=True))


def _numbers(match: Match, name: str) -> NDArray[np.float64]:
    given = getattr(match, name)
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"match {match.id!r}: {name} is {given!r}, expected one number for each player.") from error


def _check_profile(match: Match, sizes: Sequence[int]) -> None:
    if not isinstance(match.id, str):
        raise DataError(f"a match has the id {match.id!r}, expected text.")
    if len(match.profile) != len(sizes) or len(match.seats) != len(sizes):
        raise DataError(
            f"match {match.id!r} has profile {match.profile} and {len(match.seats)} seats, expected {len(sizes)} of each."
        )
    if not all(map(whole, match.profile)):
        raise DataError(
            f"match {match.id!r} has profile {match.profile}, expected whole numbers: places in populations."
        )
    if any(not 0 <= i < size for i, size in zip(match.profile, sizes, strict=True)):
        raise DataError(
            f"match {match.id!r} has profile {match.profile}, outside the table of sizes {tuple(sizes)}; add the policies first."
        )


def _check_seats(match: Match, populations: Sequence[int]) -> None:
    for seat, population in zip(match.seats, populations, strict=True):
        if not isinstance(seat, PolicyRef) or seat.population != population or not whole(seat.version):
            raise DataError(
                f"match {match.id!r}: {seat} in a seat of population {population}; expected that population and a version."
            )


def _check_counts(match: Match, players: int) -> None:
    n, wins = match.n, match.wins
    if not whole(n) or n > _MOST_UNITS:
        raise DataError(f"match {match.id!r}: n is {n!r}, expected a whole number of units.")
    if n < (0 if match.exact else 1) or (wins and len(wins) != players):
        raise DataError(
            f"match {match.id!r}: n is {n} and wins {wins}, expected at least one unit and one triple per player."
        )
    if not wins:
        return
    if not all(len(counts) == 3 and all(map(whole, counts)) for counts in wins):
        raise DataError(f"match {match.id!r} has the win counts {wins}, expected three whole numbers per player.")
    if not consistent(wins):
        raise DataError(
            f"match {match.id!r} has the win counts {wins}, which contradict each other: each player needs as many episodes as "
            "the others, and of two players one has won what the other has lost."
        )
    episodes, most = sum(wins[0]), math.factorial(players)
    if not match.exact and (episodes % n or not n <= episodes <= most * n):
        raise DataError(
            f"match {match.id!r}: n is {n} and the win counts {wins} are of {episodes} episodes; expected as many for every unit, which is "
            f"an episode, or a block of at most {most}, one for each order of seats."
        )


def _check_spread(match: Match, m2: NDArray[np.float64], rules: Rules) -> None:
    """n numbers in [low, high] have at most n ((high - low) / 2)² as their squared deviations (Popoviciu's inequality)."""
    spread = m2.tolist()
    if not all(0 <= x < math.inf for x in spread):
        raise DataError(f"match {match.id!r}: m2 is {m2.tolist()}, expected finite numbers that are not negative.")
    for player, (low, high) in enumerate(rules.utility_range):
        most = match.n * ((high - low) / 2) ** 2
        if spread[player] > most * (1 + 1e-6) + EXACT_TOLERANCE:
            raise DataError(
                f"match {match.id!r}: player {player}'s m2 is {spread[player]}, expected at most {most:.6g}: n is {match.n} and returns "
                f"lie between {low} and {high} (the environment's utility range)."
            )
