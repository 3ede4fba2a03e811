"""Matches: their statistics, what is asked of one before it is kept, and their form in checkpoints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError
from ludus.core.types import Match, NamedStatistics, PolicyRef, PolicySpec, State
from ludus.metagame.population.base import Lineage, PolicyRecord

# --------------------------------------------------------------------------------------------------------------------
# Pure functions on (n, mean, M2): the sufficient statistics of a sample's mean and variance. M2 is the sum of
# squared deviations.


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """n (a count, or a weight), mean float64[P], m2 float64[P]. mean is NaN where n is 0."""

    n: float
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]


def moments(samples: NDArray[np.float64]) -> Moments:
    """Of samples float64[n, P]."""
    n = len(samples)
    mean = samples.mean(axis=0) if n else np.full(samples.shape[1], np.nan)
    return Moments(n, mean, ((samples - mean) ** 2).sum(axis=0))


def merge(a: Moments, b: Moments) -> Moments:
    """Return the moments of both samples together (Chan, Golub and LeVeque 1983, eq. 2.1)."""
    if a.n == 0 or b.n == 0:
        return b if a.n == 0 else a
    n = a.n + b.n
    delta = b.mean - a.mean
    return Moments(n, a.mean + delta * (b.n / n), a.m2 + b.m2 + delta**2 * (a.n * b.n / n))


def decayed(a: Moments, factor: float) -> Moments:
    """Return the same sample with every weight multiplied by `factor`."""
    return Moments(a.n * factor, a.mean, a.m2 * factor)


def statistics_of(names: Sequence[str], samples: NDArray[np.float64] | None) -> NamedStatistics | None:
    """Of episodes' statistics float64[n, P, S], NaN where one is not known; None if there are no names."""
    if samples is None or not names:
        return None
    known = ~np.isnan(samples)
    n = known.sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean = np.where(known, samples, 0.0).sum(axis=0) / n
    m2 = np.where(known, (samples - mean) ** 2, 0.0).sum(axis=0)
    return NamedStatistics(tuple(names), n, mean, m2)


def merge_statistics(parts: Iterable[NamedStatistics | None]) -> NamedStatistics | None:
    """Those of all parts together, one after the other, as `merge` does; of some of them nothing may be known. Raises DataError if their
    names differ."""
    total: NamedStatistics | None = None
    for part in parts:
        if total is None or part is None:
            total = part if total is None else total
            continue
        if total.names != part.names:
            raise DataError(
                f"statistics {list(total.names)} and {list(part.names)} cannot be merged; expected the same names."
            )
        n = total.n + part.n
        share = part.n / np.maximum(n, 1)
        old, new = np.where(total.n > 0, total.mean, 0.0), np.where(part.n > 0, part.mean, 0.0)
        mean = np.where(n > 0, old + (new - old) * share, np.nan)
        apart = np.where((total.n > 0) & (part.n > 0), new - old, 0.0)
        total = NamedStatistics(total.names, n, mean, total.m2 + part.m2 + apart**2 * (total.n * share))
    return total


def statistics_by_policy(
    counted: Iterable[tuple[Sequence[Hashable], NamedStatistics | None]], policies: Sequence[Hashable]
) -> NamedStatistics | None:
    """Return who played each player in a match, and its statistics -> [len(policies), S] over all matches and seats, in their order; None
    if there are none. Raises DataError as `merge_statistics`."""
    parts: dict[Hashable, list[NamedStatistics]] = {}
    for seats, statistics in counted:
        if statistics is not None:
            for player, policy in enumerate(seats):
                at = slice(player, player + 1)
                own_row = NamedStatistics(statistics.names, statistics.n[at], statistics.mean[at], statistics.m2[at])
                parts.setdefault(policy, []).append(own_row)
    if not parts:
        return None
    names = next(iter(parts.values()))[0].names
    nothing = statistics_of(names, np.empty((0, 1, len(names))))
    rows = [merge_statistics([nothing, *parts.get(policy, ())]) for policy in policies]
    known = [row for row in rows if row is not None]
    return NamedStatistics(names, *(np.concatenate([getattr(row, column) for row in known]) for column in _COLUMNS))


# --------------------------------------------------------------------------------------------------------------------
# Pure functions on single match records.


def is_whole_number(value: Any) -> bool:
    """Return whether it is a whole number, of Python's or of NumPy's."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def win_rate(returns: NDArray[np.float64], seat: NDArray[np.int8]) -> float:
    """The share of the episodes, float64[n, P], that the player in seat[n] won: with a return above all others' (alone: above 0)."""
    rows = np.arange(len(seat))
    others = np.array(returns)
    others[rows, seat] = -np.inf
    best = others.max(axis=1) if returns.shape[1] > 1 else np.zeros(len(seat))
    return float((returns[rows, seat] > best).mean())


def same_match(a: Match, b: Match) -> bool:
    """Return whether two records say the same, to the bit."""
    scalars = all(
        getattr(a, f.name) == getattr(b, f.name)
        for f in dataclasses.fields(Match)
        if f.name not in ("mean", "m2", "statistics", "outside")
    )
    arrays = np.array_equal(a.mean, b.mean) and np.array_equal(a.m2, b.m2)
    return scalars and arrays and _same_statistics(a.statistics, b.statistics)


def _same_statistics(a: NamedStatistics | None, b: NamedStatistics | None) -> bool:
    if a is None or b is None:
        return a is b
    same = (np.array_equal(x, y, equal_nan=True) for x, y in ((a.n, b.n), (a.mean, b.mean), (a.m2, b.m2)))
    return a.names == b.names and all(same)


def frozen_match(match: Match) -> Match:
    """Return the same in plain numbers, with arrays of its own that cannot be written."""
    mean, m2 = _frozen(match.mean, np.float64), _frozen(match.m2, np.float64)
    counted = match.statistics
    if counted is not None:
        numbers = _frozen(counted.n, np.int64), _frozen(counted.mean, np.float64), _frozen(counted.m2, np.float64)
        counted = NamedStatistics(tuple(counted.names), *numbers)
    return dataclasses.replace(
        match,
        profile=tuple(int(i) for i in match.profile),
        seats=tuple(match.seats),
        n=int(match.n),
        mean=mean,
        m2=m2,
        wins=tuple((int(wins), int(draws), int(losses)) for wins, draws, losses in match.wins),
        exact=bool(match.exact),
        statistics=counted,
    )


def _frozen(values: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    out: NDArray[Any] = np.array(values, dtype)
    out.setflags(write=False)
    return out


def wins_are_consistent(wins: Sequence[tuple[int, int, int]]) -> bool:
    """Return whether counts of won, drawn and lost episodes can be those of one match: at most one player wins an episode."""
    episodes = {sum(counts) for counts in wins}
    if len(episodes) > 1 or min(map(min, wins)) < 0 or sum(won for won, _, _ in wins) > max(episodes):
        return False
    return len(wins) != 2 or tuple(wins[0]) == tuple(wins[1])[::-1]


def describe_match(match: Match) -> str:
    """For messages."""
    return f"profile {match.profile}, n = {match.n}, mean {[float(u) for u in match.mean]}"


# --------------------------------------------------------------------------------------------------------------------
# What a payoff table asks of a match before it keeps it. Pure, and of constant time for each match.

EXACT_TOLERANCE = 1e-9
"""Exact values of one cell may differ by this fraction of the utility range (rounding depends on the batch they were computed in)."""

SUM_TOLERANCE = 1e-6
"""Exact payoffs of a zero-sum game may miss their constant sum by this fraction of the utility range; meta-solvers take their own range."""

PLAYED_TOLERANCE = 1e-4
"""Likewise where they were played: rewards may be sums of float32."""

_MOST_UNITS = 2**53  # counted exactly, as an integer and as a float


@dataclass(frozen=True, slots=True)
class MatchRules:
    """Facts that hold for every result of a table: utility_range [P] (least, largest), population [P], zero_sum as in `EnvSpec`. total:
    what the payoffs of a profile sum to, where that is known before any result."""

    utility_range: tuple[tuple[float, float], ...]
    population: tuple[int, ...]
    zero_sum: bool
    total: float | None

    @property
    def players(self) -> int:
        return len(self.population)


def rules_of(utility_range: Sequence[tuple[float, float]], population: Sequence[int], zero_sum: bool) -> MatchRules:
    """The sum is known in a zero-sum game of two players in which each can win just what the other can lose: it is 0."""
    ranges = tuple((float(low), float(high)) for low, high in utility_range)
    total = None
    if zero_sum and len(ranges) == 2 and np.isfinite(ranges).all():
        (a, b), (c, d) = ranges
        total = 0.0 if math.isclose(a, -d) and math.isclose(b, -c) else None
    return MatchRules(ranges, tuple(int(p) for p in population), bool(zero_sum), total)


def check_match(match: Match, sizes: Sequence[int], rules: MatchRules) -> None:
    """Raise DataError, with the match's id, if it is malformed, NaN, out of range, or contradicts itself."""
    _check_profile(match, sizes)
    _check_seats(match, rules.population)
    _check_counts(match, rules.players)
    players = (rules.players,)
    mean, m2 = _numbers(match, "mean"), _numbers(match, "m2")
    if mean.shape != players or m2.shape != players:
        raise DataError(f"match {match.id!r}: mean and m2 have shapes {mean.shape} and {m2.shape}, expected {players}.")
    payoffs = mean.tolist()
    if not all(low <= u <= high for u, (low, high) in zip(payoffs, rules.utility_range, strict=True)):
        tolerance = EXACT_TOLERANCE if match.exact else PLAYED_TOLERANCE
        check_range(as_block(mean), match.profile, rules, f"match {match.id!r}: ", tolerance=tolerance)
    _check_spread(match, m2, rules)
    if match.statistics is not None:
        _check_statistics(match, match.statistics, rules.players)
    if rules.total is not None and sum(payoffs) != rules.total:
        check_total(as_block(mean), match.profile, rules, rules.total, PLAYED_TOLERANCE)


def as_block(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[P] of one cell as a block float64[P, 1, …]."""
    cell: NDArray[np.float64] = np.asarray(mean, np.float64).reshape(len(mean), *([1] * len(mean)))
    return cell


def check_range(
    values: NDArray[np.float64],
    first: Sequence[int],
    rules: MatchRules,
    what: str = "",
    *,
    tolerance: float = EXACT_TOLERANCE,
) -> None:
    """Raise DataError, naming the profile, if a value of the block float64[P, k_0, …] from `first` on is NaN or out of range."""
    for player, (low, high) in enumerate(rules.utility_range):
        spare = _spare(low, high, tolerance)
        own = values[player]
        if own.size == 0 or (low - spare <= own.min() and own.max() <= high + spare and np.isfinite(own).all()):
            continue
        wrong = np.argwhere(~((own >= low - spare) & (own <= high + spare) & np.isfinite(own)))[0]
        raise DataError(
            f"{what}player {player}'s payoff of profile {_profile(wrong, first)} is {own[tuple(wrong)]}, expected a number from {low} to "
            f"{high} (the environment's utility range). Nothing was recorded."
        )


def _spare(low: float, high: float, tolerance: float) -> float:
    """By how much returns may leave their range: sums of rewards are rounded."""
    return tolerance * max([1.0, *(abs(bound) for bound in (low, high) if math.isfinite(bound))])


def wider_range(
    bounds: tuple[tuple[float, float], ...], returns: NDArray[np.float64]
) -> tuple[tuple[float, float], ...] | None:
    """Return [P] bounds that hold these returns float64[n, P] too; None where `bounds` [P] do, up to rounding."""
    low, high = np.array(bounds, np.float64).T
    spare = [_spare(*ends, PLAYED_TOLERANCE) for ends in bounds]
    if not ((returns < low - spare) | (returns > high + spare)).any():
        return None
    return tuple(
        zip(np.fmin(low, returns.min(axis=0)).tolist(), np.fmax(high, returns.max(axis=0)).tolist(), strict=True)
    )


def check_total(
    values: NDArray[np.float64], first: Sequence[int], rules: MatchRules, total: float, tolerance: float = SUM_TOLERANCE
) -> None:
    """Raise DataError, naming the profile, if payoffs of the block float64[P, k_0, …] from `first` on do not sum to `total`."""
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
    """Raise DataError, naming the profile, if two blocks float64[P, k_0, …] of exact payoffs differ where `known` bool[k_0, …]."""
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
    value = getattr(match, name)
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"match {match.id!r}: {name} is {value!r}, expected one number for each player.") from error


def _check_profile(match: Match, sizes: Sequence[int]) -> None:
    if not isinstance(match.id, str):
        raise DataError(f"a match has the id {match.id!r}, expected text.")
    if len(match.profile) != len(sizes) or len(match.seats) != len(sizes):
        raise DataError(
            f"match {match.id!r} has profile {match.profile} and {len(match.seats)} seats, expected {len(sizes)} of each."
        )
    if not all(map(is_whole_number, match.profile)):
        raise DataError(
            f"match {match.id!r} has profile {match.profile}, expected whole numbers: places in populations."
        )
    if any(not 0 <= i < size for i, size in zip(match.profile, sizes, strict=True)):
        raise DataError(
            f"match {match.id!r} has profile {match.profile}, outside the table of sizes {tuple(sizes)}; add the policies first."
        )


def _check_seats(match: Match, populations: Sequence[int]) -> None:
    for seat, population in zip(match.seats, populations, strict=True):
        if not isinstance(seat, PolicyRef) or seat.population != population or not is_whole_number(seat.version):
            raise DataError(
                f"match {match.id!r}: {seat} in a seat of population {population}; expected that population and a version."
            )


def _check_counts(match: Match, players: int) -> None:
    n, wins = match.n, match.wins
    if not is_whole_number(n) or n > _MOST_UNITS:
        raise DataError(f"match {match.id!r}: n is {n!r}, expected a whole number of units.")
    if n < (0 if match.exact else 1) or (wins and len(wins) != players):
        raise DataError(
            f"match {match.id!r}: n is {n} and wins {wins}, expected at least one unit and one triple per player."
        )
    if not wins:
        return
    if not all(len(counts) == 3 and all(map(is_whole_number, counts)) for counts in wins):
        raise DataError(f"match {match.id!r} has the win counts {wins}, expected three whole numbers per player.")
    if not wins_are_consistent(wins):
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


def _check_spread(match: Match, m2: NDArray[np.float64], rules: MatchRules) -> None:
    """n numbers in [low, high] have at most n ((high - low) / 2)² as their squared deviations (Popoviciu's inequality)."""
    spread = m2.tolist()
    if not all(0 <= x < math.inf for x in spread):
        raise DataError(f"match {match.id!r}: m2 is {m2.tolist()}, expected finite numbers that are not negative.")
    tolerance = EXACT_TOLERANCE if match.exact else PLAYED_TOLERANCE
    for player, (low, high) in enumerate(rules.utility_range):
        most = match.n * ((high - low) / 2) ** 2
        if spread[player] > match.n * ((high - low) / 2 + _spare(low, high, tolerance)) ** 2:
            raise DataError(
                f"match {match.id!r}: player {player}'s m2 is {spread[player]}, expected at most {most:.6g}: n is {match.n} and returns "
                f"lie between {low} and {high} (the environment's utility range)."
            )


def _check_statistics(match: Match, counted: NamedStatistics, players: int) -> None:
    shape = (players, len(counted.names))
    shapes = [np.shape(column) for column in (counted.n, counted.mean, counted.m2)]
    if shapes != [shape] * 3 or not counted.names or len(set(counted.names)) < len(counted.names):
        raise DataError(
            f"match {match.id!r} has statistics {list(counted.names)} of shapes {shapes}, expected different names, and {shape} each."
        )
    episodes = sum(match.wins[0]) if match.wins else match.n
    if (counted.n < 0).any() or (counted.n > episodes).any():
        raise DataError(
            f"match {match.id!r} of {episodes} episodes has statistics that are known in {counted.n.tolist()} of them."
        )
    fine = np.isfinite(counted.m2) & (counted.m2 >= 0) & (np.isfinite(counted.mean) | (counted.n == 0))
    if not fine.all():
        name = counted.names[int(np.argwhere(~fine)[0, 1])]
        raise DataError(f"match {match.id!r}: the mean or M2 of {name!r} is no finite number.")


# --------------------------------------------------------------------------------------------------------------------
# Matches, refs and specs as checkpoint state: arrays, and lists of JSON scalars.


def pack_ref(ref: PolicyRef) -> list[Any]:
    """Return [population, policy, version, mode]."""
    return [ref.population, ref.policy, ref.version, ref.mode]


def unpack_ref(packed: Sequence[Any]) -> PolicyRef:
    """Return what `pack_ref` packed."""
    return PolicyRef(*packed)


def pack_record(record: PolicyRecord) -> State:
    """Return everything but its index, which its place in a list says."""
    lineage = record.lineage
    return {
        "ref": pack_ref(record.ref),
        "kind": record.spec.kind,
        "config": dict(record.spec.config),
        "task": lineage.task,
        "generation": lineage.generation,
        "parent": None if lineage.parent is None else pack_ref(lineage.parent),
        "start": lineage.start,
    }


def unpack_record(index: int, state: Mapping[str, Any]) -> PolicyRecord:
    """Return what `pack_record` packed."""
    parent = None if state["parent"] is None else unpack_ref(state["parent"])
    lineage = Lineage(state["task"], state["generation"], parent, state["start"])
    return PolicyRecord(unpack_ref(state["ref"]), index, PolicySpec(state["kind"], state["config"]), lineage)


def pack_matches(matches: Sequence[Match], players: int) -> State:
    """Return columns over the k matches; wins are -1 where there are none. statistics: by their names, columns over those matches that have
    such, whose places are "match"."""
    k = len(matches)
    place: dict[PolicyRef, int] = {}  # of each policy that has played, among "refs"
    seats = [[place.setdefault(seat, len(place)) for seat in m.seats] for m in matches]
    nothing = ((-1, -1, -1),) * players
    return {
        "id": [m.id for m in matches],
        "refs": [pack_ref(ref) for ref in place],
        "seats": np.array(seats, dtype=np.int64).reshape(k, players),
        "wins": np.array([m.wins or nothing for m in matches], dtype=np.int64).reshape(k, players, 3),
        "profile": np.array([m.profile for m in matches], dtype=np.int64).reshape(k, players),
        "n": np.array([m.n for m in matches], dtype=np.int64),
        "mean": np.array([m.mean for m in matches], dtype=np.float64).reshape(k, players),
        "m2": np.array([m.m2 for m in matches], dtype=np.float64).reshape(k, players),
        "exact": np.array([m.exact for m in matches], dtype=np.bool_),
        "statistics": _pack_statistics(matches),
    }


def _pack_statistics(matches: Sequence[Match]) -> list[State]:
    by_names: dict[tuple[str, ...], list[int]] = {}
    for k, match in enumerate(matches):
        if match.statistics is not None:
            by_names.setdefault(match.statistics.names, []).append(k)
    return [
        {
            "names": list(names),
            "match": np.array(places, np.int64),
            **{column: np.stack([getattr(matches[k].statistics, column) for k in places]) for column in _COLUMNS},
        }
        for names, places in by_names.items()
    ]


_COLUMNS = ("n", "mean", "m2")


def _unpack_statistics(packed: Sequence[Mapping[str, Any]]) -> dict[int, NamedStatistics]:
    return {
        k: NamedStatistics(tuple(part["names"]), *(part[column][i] for column in _COLUMNS))
        for part in packed
        for i, k in enumerate(part["match"].tolist())
    }


def unpack_matches(state: Mapping[str, Any]) -> list[Match]:
    """Return what `pack_matches` packed; checkpoints of databases up to version 4 have no statistics."""
    counted = _unpack_statistics(state.get("statistics", ()))
    refs = [unpack_ref(packed) for packed in state["refs"]]
    rows = zip(state["profile"].tolist(), state["seats"].tolist(), state["wins"].tolist(), strict=True)
    return [
        Match(
            id=name,
            profile=tuple(profile),
            seats=tuple(refs[seat] for seat in seats),
            n=int(state["n"][i]),
            mean=state["mean"][i],
            m2=state["m2"][i],
            wins=tuple((w, d, lost) for w, d, lost in wins) if wins[0][0] >= 0 else (),
            exact=bool(state["exact"][i]),
            statistics=counted.get(i),
        )
        for i, (name, (profile, seats, wins)) in enumerate(zip(state["id"], rows, strict=True))
    ]
