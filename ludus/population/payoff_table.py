"""The payoff table: an append-only match log, exact cells, and views of them.

    record(matches) ──> log (idempotent by id) ──┬─> view()                    all matches, kept up to date as they come
    record_exact(block) ──> exact cells ─────────┼─> view("latest")            only matches of the newest versions
                                                 └─> view("decayed", decay=d)  old matches count less

Cells are kept per profile in the players' seat order: with a shared population (i, j) and (j, i) are different cells, so nothing
depends on how often each order happened to be drawn. An exact value replaces sampled ones. Arrays double when they are full, and a
view shares them: it is copied only when something is written inside what was handed out, so adding rows costs the rows alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.errors import DataError
from ludus.population.boxes import box, cut, outside
from ludus.population.cells import Cells
from ludus.population.matches import brief, consistent, frozen_match, same_match
from ludus.population.packing import pack_matches, unpack_matches
from ludus.population.payoffs import Payoffs
from ludus.population.statistics import Moments, decayed, merge
from ludus.types import Match, State

Kind: TypeAlias = Literal["all", "latest", "decayed"]
KINDS: tuple[Kind, ...] = ("all", "latest", "decayed")

EXACT_TOLERANCE = 1e-9
"""Exact values of one cell may differ by this fraction of the utility range (rounding depends on the batch they were computed in)."""


class PayoffTable:
    """Results of profiles of P players who draw from `population[p]`; players may share a population."""

    def __init__(
        self,
        *,
        utility_range: Sequence[tuple[float, float]],
        population: Sequence[int],
        zero_sum: bool,
        capacity: int = 8,
    ) -> None:
        """utility_range: [P] least and largest return (infinities allowed). population: [P] indices 0, 1, … without gaps."""
        if len(utility_range) != len(population) or sorted(set(population)) != list(range(len(set(population)))):
            raise DataError(
                f"population {tuple(population)} and {len(utility_range)} utility ranges: expected one of each per player, "
                "populations counted from 0 without gaps."
            )
        self.utility_range = tuple((float(low), float(high)) for low, high in utility_range)
        self.population = tuple(int(p) for p in population)
        self.zero_sum = bool(zero_sum)
        self._sizes = [0] * len(set(self.population))
        self._log: list[Match] = []
        self._ids: dict[str, int] = {}
        self._matches: Counter[tuple[int, ...]] = Counter()
        self._cells = Cells(len(self.population), capacity)
        self._whole = self.sizes  # the cells 0 … _whole[p] - 1 are all exact

    # ------------------------------------------------------------------------------------------ what is in it

    @property
    def num_players(self) -> int:
        return len(self.population)

    @property
    def population_sizes(self) -> tuple[int, ...]:
        """Policies per population."""
        return tuple(self._sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Policies per player: the lengths of the table's axes."""
        return tuple(self._sizes[p] for p in self.population)

    @property
    def log(self) -> tuple[Match, ...]:
        """Every match, in the order of recording."""
        return tuple(self._log)

    def __contains__(self, match_id: object) -> bool:
        return match_id in self._ids

    def matches_of(self, profile: tuple[int, ...]) -> int:
        """How many matches of a profile the log has."""
        return self._matches[profile]

    # ------------------------------------------------------------------------------------------ growing

    def add_policy(self, population: int) -> int:
        """Make room for one more policy; its index in the population. The new cells are holes."""
        if not 0 <= population < len(self._sizes):
            raise DataError(f"there is no population {population}; populations are 0 to {len(self._sizes) - 1}.")
        self._sizes[population] += 1
        self._cells.reserve(self.sizes)
        return self._sizes[population] - 1

    def record(self, matches: Iterable[Match]) -> tuple[Match, ...]:
        """Append matches; those that were new, in order. A match recorded twice counts once.

        Raises DataError, with the table untouched, if any match is malformed, NaN, outside the utility range, or carries a known id
        with different content.
        """
        new: dict[str, Match] = {}
        for match in matches:
            self._check(match)
            known = self._log[self._ids[match.id]] if match.id in self._ids else new.get(match.id)
            if known is None:
                new[match.id] = frozen_match(match)
            elif not same_match(known, match):
                raise DataError(
                    f"match {match.id!r} was recorded before with other content ({brief(known)}; now {brief(match)}). "
                    "Ids must name one result for ever."
                )
        for match in new.values():
            self._ids[match.id] = len(self._log)
            self._log.append(match)
            self._matches[match.profile] += 1
        self._cells.detach([match.profile for match in new.values()])
        for match in new.values():
            _apply(self._cells, match, 1.0)
        return tuple(new.values())

    def record_exact(
        self, values: NDArray[np.float64], *, start: Sequence[int] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Set a block of exact cells: values float64[P, k_0, …] for the profiles start[p] … start[p] + k_p - 1 (start: zeros).

        Answers with the cells that were not exact before: profiles int64[k, P] and mean float64[k, P]. Raises DataError, with the
        table untouched, if a value is NaN, outside the utility range, or contradicts an earlier exact value.
        """
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
        boxes = list(outside(first, stop, self._whole))
        self._check_whole(values, first, stop)
        for start_, stop_ in boxes:
            self._check_block(cut(values, first, start_, stop_), start_)
        new = [self._cells.set_exact(cut(values, first, a, b), a) for a, b in boxes]
        if self._cells.exact[tuple(slice(0, size) for size in self.sizes)].all():
            self._whole = self.sizes
        profiles, means = [p for p, _ in new], [m for _, m in new]
        empty = np.empty((0, self.num_players))
        return np.concatenate([empty.astype(np.int64), *profiles]), np.concatenate([empty, *means])

    # ------------------------------------------------------------------------------------------ views

    def view(self, kind: Kind = "all", *, decay: float = 0.99) -> Payoffs:
        """What is known now, in read-only arrays that later recording does not change. A pure function of the log and the exact cells.

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
        for match in self._log:
            if keep is None or keep(match):
                _apply(cells, match, decay if kind == "decayed" else 1.0)
        return self._payoffs(cells)

    def _payoffs(self, cells: Cells) -> Payoffs:
        mean, count, m2, exact = cells.share(self.sizes)
        return Payoffs(mean, count, m2, exact, self.utility_range, self.population, self.zero_sum)

    def _newest(self) -> Callable[[Match], bool]:
        newest: dict[tuple[int, str], int] = {}
        for match in self._log:
            for seat in match.seats:
                name = (seat.population, seat.policy)
                newest[name] = max(newest.get(name, 0), seat.version or 0)
        return lambda match: all(newest[s.population, s.policy] == s.version for s in match.seats)

    # ------------------------------------------------------------------------------------------ state

    def state_dict(self) -> State:
        """The log, the exact cells: mean float64[P, n_0, …] (NaN where not exact), and the sizes of the part that is all exact."""
        exact = self._cells.exact_only(self.sizes, np.int64)
        return {
            "sizes": list(self._sizes),
            "log": pack_matches(self._log, self.num_players),
            "exact": exact.mean[box((0,) * self.num_players, self.sizes)].copy(),
            "whole": list(self._whole),
        }

    def load_state_dict(self, state: State) -> None:
        """Replaces everything; the views are equal to the bit, since the log is replayed in its order."""
        self._sizes, self._log, self._ids = [int(n) for n in state["sizes"]], [], {}
        self._matches.clear()
        self._cells, self._whole = Cells(self.num_players, 1), tuple(int(n) for n in state["whole"])
        self._cells.reserve(self.sizes)
        self._cells.load_exact(np.asarray(state["exact"], dtype=np.float64))
        self.record(unpack_matches(state["log"]))

    # ------------------------------------------------------------------------------------------ checks

    def _check(self, match: Match) -> None:
        players = self.num_players
        if len(match.profile) != players or len(match.seats) != players:
            raise DataError(
                f"match {match.id!r} has profile {match.profile} and {len(match.seats)} seats, expected {players} of each."
            )
        if any(not 0 <= i < size for i, size in zip(match.profile, self.sizes, strict=True)):
            raise DataError(
                f"match {match.id!r} has profile {match.profile}, outside the table of sizes {self.sizes}; add the policies first."
            )
        for seat, population in zip(match.seats, self.population, strict=True):
            if seat.population != population or seat.version is None:
                raise DataError(
                    f"match {match.id!r}: {seat} in a seat of population {population}; expected that population and a version."
                )
        if np.shape(match.mean) != (players,) or np.shape(match.m2) != (players,):
            raise DataError(
                f"match {match.id!r}: mean and m2 have shapes {np.shape(match.mean)} and {np.shape(match.m2)}, expected ({players},)."
            )
        if match.n < (0 if match.exact else 1) or (match.wins and len(match.wins) != players):
            raise DataError(
                f"match {match.id!r}: n is {match.n} and wins {match.wins}, expected at least one unit and one triple per player."
            )
        if match.wins and not consistent(match.wins):
            raise DataError(
                f"match {match.id!r} has the win counts {match.wins}, which contradict each other: each player needs as many episodes as "
                "the others, and of two players one has won what the other has lost."
            )
        if not (np.isfinite(match.m2).all() and (match.m2 >= 0).all()):
            raise DataError(
                f"match {match.id!r}: m2 is {match.m2.tolist()}, expected finite numbers that are not negative."
            )
        cell = match.mean.reshape(players, *([1] * players))
        self._check_values(cell, match.profile, f"match {match.id!r}: ")
        if match.exact:
            self._check_block(cell, match.profile)

    def _check_values(self, values: NDArray[np.float64], first: Sequence[int], what: str = "") -> None:
        for player, (low, high) in enumerate(self.utility_range):
            spare = EXACT_TOLERANCE * max(
                1.0, abs(low) if np.isfinite(low) else 1.0, abs(high) if np.isfinite(high) else 1.0
            )
            mine = values[player]
            if mine.size == 0 or (low - spare <= mine.min() and mine.max() <= high + spare and np.isfinite(mine).all()):
                continue
            wrong = np.argwhere(~((mine >= low - spare) & (mine <= high + spare) & np.isfinite(mine)))[0]
            profile = tuple(int(i) + a for i, a in zip(wrong, first, strict=True))
            raise DataError(
                f"{what}player {player}'s payoff of profile {profile} is {mine[tuple(wrong)]}, expected a number from {low} to {high} "
                "(the environment's utility range). Nothing was recorded."
            )

    def _check_whole(self, values: NDArray[np.float64], first: tuple[int, ...], stop: tuple[int, ...]) -> None:
        """The part of a block that lies among cells all of which are exact. Equal to the bit is the usual case, and quickly seen."""
        stop = tuple(min(a, b) for a, b in zip(stop, self._whole, strict=True))
        if any(a >= b for a, b in zip(first, stop, strict=True)):
            return
        known = cut(values, first, first, stop)
        if not np.array_equal(known, self._cells.mean[box(first, stop)]):
            self._check_block(known, first)

    def _check_block(self, values: NDArray[np.float64], first: Sequence[int]) -> None:
        """In range, and equal to what is exact already, up to rounding."""
        self._check_values(values, first)
        where = box(first, tuple(a + k for a, k in zip(first, values.shape[1:], strict=True)))
        known = self._cells.exact[where[1:]]
        if not known.any():
            return
        old = self._cells.mean[where]
        scale = max(1.0, float(np.abs(values).max()))
        wrong = (np.abs(values - old) > EXACT_TOLERANCE * scale).any(axis=0) & known
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            profile = tuple(int(i) + a for i, a in zip(at, first, strict=True))
            raise DataError(
                f"profile {profile} has the exact payoffs {[float(u[at]) for u in old]}, "
                f"and is now said to have {[float(u[at]) for u in values]}. Policies of a population must not change."
            )


def _apply(cells: Cells, match: Match, decay: float) -> None:
    if match.exact:
        cells.set_exact_cell(match.profile, match.mean)
    elif not cells.exact[match.profile]:
        old = cells.get(match.profile)
        cells.put(match.profile, merge(decayed(old, decay), Moments(match.n, match.mean, match.m2)))
