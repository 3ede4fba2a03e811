"""The payoff table: an append-only match log, exact cells, and views of them.

    record(matches) ──> log (idempotent by id) ──┬─> view()                    all matches, kept up to date as they come
    record_exact(block) ──> exact cells ─────────┼─> view("latest")            only matches of the newest versions
                                                 └─> view("decayed", decay=d)  old matches count less

Cells are kept per profile in the players' seat order: with a shared population (i, j) and (j, i) are different cells, so nothing
depends on how often each order happened to be drawn. An exact value replaces sampled ones. Arrays double when they are full, and a
view shares them: it is copied only when something is written inside what was handed out, so adding rows costs the rows alone.

With an archive (the run's database) the log does not stay in memory: `release` gives up what the archive has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError
from ludus.core.types import Match, State
from ludus.metagame.population.base import MatchArchive, Payoffs
from ludus.metagame.population.match_log import (
    MatchRules,
    Moments,
    as_block,
    check_equal,
    check_match,
    check_range,
    check_total,
    decayed,
    describe_match,
    frozen_match,
    merge,
    pack_matches,
    rules_of,
    same_match,
    unpack_matches,
    wider_range,
)

# --------------------------------------------------------------------------------------------------------------------
# Rectangular blocks of profiles: a box is the cells start … stop - 1 on every player's axis.

Corner: TypeAlias = tuple[int, ...]


def block_slices(start: Sequence[int], stop: Sequence[int]) -> tuple[slice, ...]:
    """The index of the cells start … stop - 1 in an array with a leading player axis."""
    return (slice(None), *(slice(a, b) for a, b in zip(start, stop, strict=True)))


def crop(values: NDArray[np.float64], first: Corner, start: Corner, stop: Corner) -> NDArray[np.float64]:
    """The cells start … stop - 1 of a block whose first cell is `first`."""
    offset = [(a - f, b - f) for a, b, f in zip(start, stop, first, strict=True)]
    return values[block_slices([a for a, _ in offset], [b for _, b in offset])]


def outside(start: Corner, stop: Corner, inner: Corner) -> Iterator[tuple[Corner, Corner]]:
    """Yield disjoint boxes that make up start … stop without 0 … inner.

    One box per axis: the cells that lie beyond `inner` on it, and not on earlier axes.
    """
    for axis in range(len(start)):
        low, high = list(start), list(stop)
        for earlier in range(axis):
            high[earlier] = min(stop[earlier], inner[earlier])
        low[axis] = max(start[axis], inner[axis])
        if all(a < b for a, b in zip(low, high, strict=True)):
            yield tuple(low), tuple(high)


# --------------------------------------------------------------------------------------------------------------------
# The arrays under a payoff table: they grow by doubling, and are copied only if something inside a shared part is
# written.


class CellArrays:
    """mean, m2 float64[P, c_0, …], weight [c_0, …] (int64 counts, or what decay left of them), exact bool[c_0, …], matches int32[c_0, …]
    (how many a profile has); c: capacities."""

    def __init__(self, players: int, capacity: int, weight: type[np.int64 | np.float64] = np.int64) -> None:
        self.players = players
        self._weight = weight
        self.sizes = (0,) * players
        # with many players start small
        self._allocate((max(1, capacity if players <= 3 else 2),) * players)
        self._shared: tuple[int, ...] | None = None

    def _allocate(self, capacity: tuple[int, ...]) -> None:
        # memory beyond the used region is left untouched: pages that nobody writes cost nothing
        try:
            self.mean = np.empty((self.players, *capacity))
            self.m2 = np.zeros((self.players, *capacity))
            self.weight: NDArray[Any] = np.zeros(capacity, dtype=self._weight)
            self.exact = np.zeros(capacity, dtype=np.bool_)
            self.matches = np.zeros(capacity, dtype=np.int32)
        except (MemoryError, ValueError) as error:  # NumPy has no more than 64 axes, and no sizes beyond 2^63
            raise DataError(
                f"the payoff table of {self.players} players would need {math.prod(capacity):.2g} cells, which do not fit into memory: "
                "each agent is a player, and all their policies are crossed. Let one player have the agents of a team (env.options.teams), "
                "or keep fewer policies."
            ) from error

    def reserve(self, sizes: tuple[int, ...]) -> None:
        """Grow to `sizes`, new cells being missing; amortised constant time per cell."""
        capacity = self.exact.shape
        if any(size > room for size, room in zip(sizes, capacity, strict=True)):
            old, region = (self.mean, self.m2), block_slices((0,) * self.players, self.sizes)
            old_cells = self.weight, self.exact, self.matches
            factor = 2 ** min(1.0, 3 / self.players)  # of each axis: 8 times the cells at most
            self._allocate(
                tuple(r if size <= r else max(int(factor * r), size) for size, r in zip(sizes, capacity, strict=True))
            )
            for new, source in zip((self.mean, self.m2), old, strict=True):
                new[region] = source[region]
            for cells, source_cells in zip((self.weight, self.exact, self.matches), old_cells, strict=True):
                cells[region[1:]] = source_cells[region[1:]]
            self._shared = None  # what was shared keeps the old arrays
        for start, stop in outside((0,) * self.players, sizes, self.sizes):
            self.mean[block_slices(start, stop)] = np.nan
        self.sizes = sizes

    # ------------------------------------------------------------------------------------------ reading

    def share(
        self, sizes: tuple[int, ...]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
        """Return read-only mean, count, m2, exact of the first `sizes` cells; later writes leave them as they are."""
        region = tuple(slice(0, size) for size in sizes)
        mean, m2, exact = self.mean[(slice(None), *region)], self.m2[(slice(None), *region)], self.exact[region]
        count = (
            self.weight[region] if self._weight is np.int64 else np.floor(self.weight[region] + 1e-9).astype(np.int64)
        )
        for array in (mean, m2, exact, count):
            array.setflags(write=False)
        self._shared = tuple(max(a, b) for a, b in zip(sizes, self._shared or sizes, strict=True))
        return mean, count, m2, exact

    def get(self, profile: tuple[int, ...]) -> Moments:
        at: tuple[Any, ...] = (slice(None), *profile)
        return Moments(float(self.weight[profile]), self.mean[at].copy(), self.m2[at].copy())

    def exact_only(self, sizes: tuple[int, ...], weight: type[np.int64 | np.float64]) -> CellArrays:
        """Return a copy with the exact cells alone."""
        out = CellArrays(self.players, 1, weight)
        out.reserve(sizes)
        region = block_slices((0,) * self.players, sizes)
        out.load_exact(np.where(self.exact[region[1:]], self.mean[region], np.nan))
        return out

    # ------------------------------------------------------------------------------------------ writing

    def detach(self, profiles: Iterable[Sequence[int]]) -> None:
        """Before writing these cells: copy the arrays if one of them lies in a shared part."""
        shared = self._shared
        if shared is None or not any(all(i < size for i, size in zip(p, shared, strict=True)) for p in profiles):
            return
        self.mean, self.m2, self.weight, self.exact = (
            self.mean.copy(),
            self.m2.copy(),
            self.weight.copy(),
            self.exact.copy(),
        )
        self._shared = None

    def put(self, profile: tuple[int, ...], moments: Moments) -> None:
        at: tuple[Any, ...] = (slice(None), *profile)
        self.weight[profile], self.mean[at], self.m2[at] = moments.n, moments.mean, moments.m2

    def set_exact_cell(self, profile: tuple[int, ...], mean: NDArray[np.float64]) -> None:
        self.put(profile, Moments(0.0, mean, np.zeros(self.players)))
        self.exact[profile] = True

    def set_exact(
        self, values: NDArray[np.float64], start: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Make the block `values` float64[P, k_0, …] from the cell `start` exact; the profiles and values of cells that were not."""
        everything = block_slices(start, [a + k for a, k in zip(start, values.shape[1:], strict=True)])
        where = everything[1:]
        new = ~self.exact[where]
        profiles = np.argwhere(new) + np.array(start)
        if new.all():
            self.detach([start])
            self.mean[everything], self.m2[everything], self.weight[where] = values, 0.0, 0
        else:
            self.detach(profiles)
            self.mean[everything][:, new], self.m2[everything][:, new], self.weight[where][new] = values[:, new], 0.0, 0
        self.exact[where] = True
        return profiles, values[:, new].T

    def load_exact(self, mean: NDArray[np.float64]) -> None:
        """Make every cell exact that is not NaN in `mean` float64[P, n_0, …] (all cells in use)."""
        region = block_slices((0,) * self.players, self.sizes)
        self.mean[region], self.exact[region[1:]] = mean, ~np.isnan(mean[0])

    # ------------------------------------------------------------------------------------------ state

    def pack_played(self) -> State:
        """Return the profiles that have matches, int32[k, P], with how many they have, n, mean and M2: [k], [k], [k, P], [k, P]."""
        region = block_slices((0,) * self.players, self.sizes)
        where = np.nonzero(self.matches[region[1:]])
        return {
            "profile": np.stack(where, axis=1).astype(np.int32),
            "matches": self.matches[where],
            "n": self.weight[where],
            **{name: np.ascontiguousarray(getattr(self, name)[(slice(None), *where)].T) for name in ("mean", "m2")},
        }

    def load_played(self, state: Mapping[str, Any]) -> None:
        """Set what `pack_played` has packed."""
        where = tuple(np.asarray(state["profile"]).T)
        self.matches[where], self.weight[where] = state["matches"], state["n"]
        self.mean[(slice(None), *where)], self.m2[(slice(None), *where)] = state["mean"].T, state["m2"].T


PayoffKind: TypeAlias = Literal["all", "latest", "decayed"]
KINDS: tuple[PayoffKind, ...] = ("all", "latest", "decayed")


class PayoffTable:
    """Results of profiles of P players who draw from `population[p]`; players may share a population."""

    def __init__(
        self,
        *,
        utility_range: Sequence[tuple[float, float]],
        population: Sequence[int],
        zero_sum: bool,
        capacity: int = 8,
        archive: MatchArchive | None = None,
    ) -> None:
        """utility_range: [P] least and largest return (infinities allowed). population: [P] indices 0, 1, … without gaps. archive: where
        all that is recorded can be read again; see `release`."""
        if len(utility_range) != len(population) or sorted(set(population)) != list(range(len(set(population)))):
            raise DataError(
                f"population {tuple(population)} and {len(utility_range)} utility ranges: expected one of each per player, "
                "populations counted from 0 without gaps."
            )
        self._set_rules(rules_of(utility_range, population, zero_sum))
        self._declared, self.population = self.utility_range, self._rules.population
        self.zero_sum = self._rules.zero_sum
        self._sizes = [0] * len(set(self.population))
        self._archive = archive
        self._released = 0  # matches at the beginning of the log that only the archive has
        self._log: list[Match] = []  # the later ones
        self._ids: dict[str, int] = {}  # their places
        self._cells = CellArrays(len(self.population), capacity)
        self._whole = self.sizes  # the cells 0 … _whole[p] - 1 are all exact
        self._total = self._rules.total  # that exact payoffs of a zero-sum game sum to, once it is known

    # ------------------------------------------------------------------------------------------ what is in it

    @property
    def num_players(self) -> int:
        return len(self.population)

    @property
    def population_sizes(self) -> tuple[int, ...]:
        """Return policies per population."""
        return tuple(self._sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return policies per player: the lengths of the table's axes."""
        return tuple(self._sizes[p] for p in self.population)

    @property
    def log(self) -> tuple[Match, ...]:
        """Return every match, in the order of recording; those that were released are read from the archive."""
        archived = self._archive.first_matches(self._released) if self._archive is not None and self._released else ()
        return (*archived, *self._log)

    def __len__(self) -> int:
        """Return the number of matches of the log."""
        return self._released + len(self._log)

    def __contains__(self, match_id: object) -> bool:
        return isinstance(match_id, str) and match_id in self._known([match_id])

    def matches_of(self, profile: tuple[int, ...]) -> int:
        """Return how many matches of a profile the log has."""
        return int(self._cells.matches[profile])

    def log_after(self, place: int) -> Sequence[Match]:
        """Return the matches from a place of the log on; those that were not released are there at once."""
        return self._log[place - self._released :] if place >= self._released else self.log[place:]

    def _known(self, ids: Sequence[str]) -> dict[str, Match]:
        known = {name: self._log[self._ids[name]] for name in ids if name in self._ids}
        if self._archive is not None and self._released and (others := [name for name in ids if name not in known]):
            known.update(self._archive.matches_with(others))
        return known

    # ------------------------------------------------------------------------------------------ growing

    def add_policy(self, population: int) -> int:
        """Make room for one more policy; its index in the population. The new cells are missing."""
        if not 0 <= population < len(self._sizes):
            raise DataError(f"there is no population {population}; populations are 0 to {len(self._sizes) - 1}.")
        self._sizes[population] += 1
        self._cells.reserve(self.sizes)
        return self._sizes[population] - 1

    def record(self, matches: Iterable[Match]) -> tuple[Match, ...]:
        """Append matches; those that were new, in order. A match recorded twice counts once.

        The utility range widens to what matches say is `outside` of it. Raises DataError, with the table untouched, if any match is
        malformed, NaN, outside the range, contradicts itself, a zero-sum game or an exact payoff, or carries a known id with different
        content.
        """
        matches = tuple(matches)
        new, total = self._checked(matches)
        self._set_rules(self._rules_with(matches))
        self._keep(new)
        self._total = total
        return new

    def _keep(self, new: Sequence[Match]) -> None:
        for match in new:
            self._ids[match.id] = len(self._log)
            self._log.append(match)
            self._cells.matches[match.profile] += 1
        self._cells.detach([match.profile for match in new])
        for match in new:
            _apply(self._cells, match, 1.0)

    def record_exact(
        self, values: NDArray[np.float64], *, start: Sequence[int] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Set a block of exact cells: values float64[P, k_0, …] for the profiles start[p] … start[p] + k_p - 1 (start: zeros).

        Answers with the cells that were not exact before: profiles int64[k, P] and mean float64[k, P]. Raises DataError, with the
        table untouched, if a value is NaN, outside the utility range, or contradicts an earlier exact value or a zero-sum game.
        """
        first, boxes, total = self._checked_block(values, start, self._total)
        new = [self._cells.set_exact(crop(values, first, a, b), a) for a, b in boxes]
        self._total = total
        if self._cells.exact[tuple(slice(0, size) for size in self.sizes)].all():
            self._whole = self.sizes
        profiles, means = [p for p, _ in new], [m for _, m in new]
        empty = np.empty((0, self.num_players))
        return np.concatenate([empty.astype(np.int64), *profiles]), np.concatenate([empty, *means])

    def check(self, matches: Iterable[Match], values: NDArray[np.float64]) -> None:
        """Raise DataError if `record` of these matches and then `record_exact` of this block would, and changes nothing."""
        matches = tuple(matches)
        new, total = self._checked(matches)
        self._checked_block(values, None, total)
        for match in new:
            if match.exact and all(i < k for i, k in zip(match.profile, values.shape[1:], strict=True)):
                cell = values[block_slices(match.profile, [i + 1 for i in match.profile])]
                check_equal(as_block(match.mean), cell, np.ones_like(cell[0], np.bool_), match.profile)

    # ------------------------------------------------------------------------------------------ views

    def view(self, kind: PayoffKind = "all", *, decay: float = 0.99) -> Payoffs:
        """Return what is known now, in read-only arrays that later recording does not change. A pure function of the log and the exact
        cells.

        "all": every match. "latest": matches in which every policy had the newest version that the log knows of it. "decayed": each
        later match of a profile multiplies the weights of its earlier ones by `decay` (as AlphaStar's payoff matrix does); counts are
        the weights that are left, rounded down.
        """
        if kind not in KINDS:
            raise DataError(f"unknown view {kind!r}; views are {', '.join(KINDS)}.")
        if kind == "all":
            return self._payoffs(self._cells)
        if not 0.0 < decay <= 1.0:
            raise DataError(f"decay is {decay}, expected above 0, at most 1.")
        cells = self._cells.exact_only(self.sizes, np.float64 if kind == "decayed" else np.int64)
        keep = self._newest() if kind == "latest" else None
        for match in self.log:
            if keep is None or keep(match):
                _apply(cells, match, decay if kind == "decayed" else 1.0)
        return self._payoffs(cells)

    def _payoffs(self, cells: CellArrays) -> Payoffs:
        mean, count, m2, exact = cells.share(self.sizes)
        return Payoffs(mean, count, m2, exact, self.utility_range, self.population, self.zero_sum)

    def _newest(self) -> Callable[[Match], bool]:
        newest: dict[tuple[int, str], int] = {}
        for match in self.log:
            for seat in match.seats:
                name = (seat.population, seat.policy)
                newest[name] = max(newest.get(name, 0), seat.version or 0)
        return lambda match: all(newest[s.population, s.policy] == s.version for s in match.seats)

    # ------------------------------------------------------------------------------------------ state

    def release(self) -> None:
        """Give up the matches of the log in memory, once the archive has all of them durably. Views stay as they are."""
        if self._archive is not None:
            self._released += len(self._log)
            self._log, self._ids = [], {}

    def state_dict(self) -> State:
        """Return the exact cells: mean float64[P, n_0, …] (NaN where not exact), the sizes of the part that is all exact, and the log; with
        an archive, which has it, the played cells and the number of matches instead."""
        cells, region = self._cells, block_slices((0,) * self.num_players, self.sizes)
        archived = {"played": cells.pack_played(), "matches": len(self)}
        return {
            "sizes": list(self._sizes),
            **({"log": pack_matches(self._log, self.num_players)} if self._archive is None else archived),
            "exact": np.where(cells.exact[region[1:]], cells.mean[region], np.nan),
            "whole": list(self._whole),
            **({"utility_range": np.array(self.utility_range)} if self.utility_range != self._declared else {}),
        }

    def load_state_dict(self, state: State) -> None:
        """Replace everything; the views are equal to the bit: the log is replayed in its order, or the played cells are as they were."""
        self._sizes, self._log, self._ids = [int(n) for n in state["sizes"]], [], {}
        self._released = int(state.get("matches", 0))
        wider = wider_range(self._declared, np.array(state.get("utility_range", self._declared)).T) or self._declared
        self._set_rules(replace(self._rules, utility_range=wider))
        self._cells, self._whole = CellArrays(self.num_players, 1), tuple(int(n) for n in state["whole"])
        self._cells.reserve(self.sizes)
        self._cells.load_exact(np.asarray(state["exact"], dtype=np.float64))
        if "log" in state:
            self._keep(
                [frozen_match(match) for match in unpack_matches(state["log"])]
            )  # they were checked when they came
        else:
            self._cells.load_played(state["played"])
        exact = self._cells.mean[:, self._cells.exact]
        self._total = self._total_of(exact, self._rules.total)

    # ------------------------------------------------------------------------------------------ checks

    def _rules_with(self, matches: Iterable[Match]) -> MatchRules:
        ends = [np.array(match.outside).T for match in matches if match.outside is not None]
        wider = wider_range(self.utility_range, np.concatenate(ends)) if ends else None
        return self._rules if wider is None else replace(self._rules, utility_range=wider)

    def _set_rules(self, rules: MatchRules) -> None:
        self._rules, self.utility_range = rules, rules.utility_range

    def _checked(self, matches: Sequence[Match]) -> tuple[tuple[Match, ...], float | None]:
        """Those that are new, and what exact payoffs sum to then."""
        new: dict[str, Match] = {}
        exact: dict[tuple[int, ...], NDArray[np.float64]] = {}
        total, sizes, rules = self._total, self.sizes, self._rules_with(matches)
        recorded = self._known([match.id for match in matches if isinstance(match.id, str)])
        for candidate in matches:
            check_match(candidate, sizes, rules)
            match = frozen_match(candidate)
            known = recorded.get(match.id) or new.get(match.id)
            if known is not None and not same_match(known, match):
                raise DataError(
                    f"match {match.id!r} was recorded before with other content ({describe_match(known)}; now {describe_match(match)}). "
                    "Ids must name one result for ever."
                )
            if known is not None:
                continue
            new[match.id] = match
            if match.exact:
                cell = as_block(match.mean)
                earlier = as_block(exact.setdefault(match.profile, match.mean))
                check_equal(earlier, cell, np.ones_like(cell[0], np.bool_), match.profile)
                total = self._check_new(cell, match.profile, total)
        return tuple(new.values()), total

    def _checked_block(
        self, values: NDArray[np.float64], start: Sequence[int] | None, total: float | None
    ) -> tuple[Corner, list[tuple[Corner, Corner]], float | None]:
        """Return the first profile of a block, the boxes of it that lie beyond the part that is all exact, and what exact payoffs sum to
        then."""
        first = tuple(int(i) for i in start) if start is not None else (0,) * self.num_players
        if values.ndim != self.num_players + 1 or len(values) != self.num_players or len(first) != self.num_players:
            raise DataError(
                f"a block of shape {values.shape} from {first}: expected [P, k_0, …] with P = {self.num_players}."
            )
        stop = tuple(a + k for a, k in zip(first, values.shape[1:], strict=True))
        if min(first) < 0 or any(end > size for end, size in zip(stop, self.sizes, strict=True)):
            raise DataError(
                f"the block {first} to {stop} lies outside the table of sizes {self.sizes}; add the policies first."
            )
        self._check_whole(values, first, stop)
        boxes = list(outside(first, stop, self._whole))
        for a, b in boxes:
            total = self._check_new(crop(values, first, a, b), a, total)
        return first, boxes, total

    def _check_whole(self, values: NDArray[np.float64], first: Corner, stop: Corner) -> None:
        """The part of a block that lies among cells all of which are exact. Equal to the bit is the usual case, and quickly seen."""
        stop = tuple(min(a, b) for a, b in zip(stop, self._whole, strict=True))
        if any(a >= b for a, b in zip(first, stop, strict=True)):
            return
        known = crop(values, first, first, stop)
        if not np.array_equal(known, self._cells.mean[block_slices(first, stop)]):
            self._check_block(known, first)

    def _check_block(self, values: NDArray[np.float64], first: Sequence[int]) -> None:
        """In range, and equal to what is exact already, up to rounding."""
        check_range(values, first, self._rules)
        where = block_slices(first, tuple(a + k for a, k in zip(first, values.shape[1:], strict=True)))
        known = self._cells.exact[where[1:]]
        if known.any():
            check_equal(self._cells.mean[where], values, known, first)

    def _check_new(self, values: NDArray[np.float64], first: Sequence[int], total: float | None) -> float | None:
        """`_check_block`, and in a zero-sum game that all cells sum to `total` (None: not known yet); what exact payoffs sum to then."""
        self._check_block(values, first)
        total = self._total_of(values, total)
        if total is not None:
            check_total(values, first, self._rules, total)
        return total

    def _total_of(self, values: NDArray[np.float64], total: float | None) -> float | None:
        """Return `total`; if that is None, what the exact payoffs float64[P, …] sum to in a zero-sum game, by the first of them."""
        if total is not None or not self.zero_sum or self.num_players < 2 or values.size == 0:
            return total
        return float(values.reshape(self.num_players, -1)[:, 0].sum())


def _apply(cells: CellArrays, match: Match, decay: float) -> None:
    if match.exact:
        cells.set_exact_cell(match.profile, match.mean)
    elif not cells.exact[match.profile]:
        old = cells.get(match.profile)
        cells.put(match.profile, merge(decayed(old, decay), Moments(match.n, match.mean, match.m2)))
