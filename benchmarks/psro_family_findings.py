"""What the authors of each member of the family found, and what the cells of `benchmarks.psro_family` say of it.

Each finding is a pure function from cells to a sentence with numbers (means over the seeds, with 95% intervals) and whether it holds, which
95% intervals decide, or leave undecided.
Where cells are missing it answers None. Exploitability is of what the method announces, unless a sentence says "population": that is of the
least exploitable mixture of its policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from benchmarks.psro_family_cells import Cell, Cells, all_of, below, interval

SOLVED = 0.01  # exploitability in Kuhn poker at which it counts as solved
NEAR = 1.25  # times as exploitable, and still as good
CLOSE = 0.02  # exploitability that is as good as another's, whatever that is


@dataclass(frozen=True, slots=True)
class Verdict:
    """numbers: a sentence. holds: whether they agree with the authors' finding; None: too few seeds, or too far apart."""

    numbers: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Finding:
    """claim: of `source`. judge: what the cells say of it, None where some are missing."""

    method: str
    source: str
    claim: str
    judge: Callable[[Cells], Verdict | None]


# ---------------------------------------------------------------------------------------------- measures of cells


def _ends(cells: Sequence[Cell]) -> list[float]:
    return [cell.end for cell in cells]


def _end(cells: Sequence[Cell]) -> float:
    return mean(_ends(cells))


def _population(cells: Sequence[Cell], share: float = 1.0) -> list[float]:
    return [cell.population_at(share) for cell in cells]


def _early(cells: Sequence[Cell], share: float) -> list[float]:
    return [cell.at(share) for cell in cells]


def risen(cells: Sequence[Cell]) -> list[float]:
    """Per cell, all rises of its exploitability together."""
    return [float(cell.rises.sum()) for cell in cells]


def _near(mine: Sequence[Cell], others: Sequence[Cell]) -> bool | None:
    """Whether it is at most NEAR times as exploitable, or CLOSE to nothing."""
    there = _end(others)
    return below(_ends(mine), _ends(others), margin=max(NEAR * there, CLOSE) - there)


def _missing(*groups: Sequence[Cell]) -> bool:
    return not all(groups)


# ---------------------------------------------------------------------------------------------- kinds of findings


def solves_kuhn(method: str) -> Callable[[Cells], Verdict | None]:
    """Its announced meta-strategy is (nearly) an equilibrium of Kuhn poker in the end, and falls on Leduc poker."""

    def judge(cells: Cells) -> Verdict | None:
        kuhn, leduc = cells("kuhn", method), cells("leduc", method)
        if _missing(kuhn, leduc):
            return None
        early, late = _early(leduc, 0.1), _ends(leduc)
        numbers = f"Kuhn {interval(_ends(kuhn))}; Leduc {interval(early)} after a tenth of the episodes, {interval(late)} in the end"
        return Verdict(numbers, all_of(below(_ends(kuhn), SOLVED), below(late, early)))

    return judge


def as_good_as(
    method: str, other: str, *, games: Sequence[str] = ("kuhn", "leduc")
) -> Callable[[Cells], Verdict | None]:
    """In the end at most NEAR times as exploitable as another method in each game, or CLOSE to none."""

    def judge(cells: Cells) -> Verdict | None:
        if any(_missing(cells(game, method), cells(game, other)) for game in games):
            return None
        said = [
            f"{game.capitalize()} {interval(_ends(cells(game, method)))} (`{other}` {interval(_ends(cells(game, other)))})"
            for game in games
        ]
        return Verdict("; ".join(said), all_of(*(_near(cells(g, method), cells(g, other)) for g in games)))

    return judge


def less_exploitable(method: str, other: str, *, game: str = "leduc") -> Callable[[Cells], Verdict | None]:
    """In the end, in what it announces."""

    def judge(cells: Cells) -> Verdict | None:
        mine, others = cells(game, method), cells(game, other)
        if _missing(mine, others):
            return None
        numbers = f"{game.capitalize()} {interval(_ends(mine))} (`{other}` {interval(_ends(others))})"
        return Verdict(numbers, below(_ends(mine), _ends(others)))

    return judge


def better_population(method: str, other: str, *, game: str = "leduc") -> Callable[[Cells], Verdict | None]:
    """In the end, by the least exploitable mixture of all policies."""

    def judge(cells: Cells) -> Verdict | None:
        mine, others = cells(game, method), cells(game, other)
        if _missing(mine, others):
            return None
        numbers = (
            f"{game.capitalize()}, population {interval(_population(mine))} (`{other}` {interval(_population(others))})"
        )
        return Verdict(numbers, below(_population(mine), _population(others)))

    return judge


def average_converges(method: str) -> Callable[[Cells], Verdict | None]:
    """The uniform mean of the responses gets less exploitable; beside PSRO with Nash."""

    def judge(cells: Cells) -> Verdict | None:
        mine, nash = cells("leduc", method), cells("leduc", "psro")
        if _missing(mine, nash):
            return None
        shares = [_early(mine, share) for share in (0.1, 0.25, 0.5, 1.0)]
        numbers = (
            f"Leduc {', '.join(interval(s) for s in shares)} after 10, 25, 50 and 100% of the episodes "
            f"(`psro` in the end {interval(_ends(nash))})"
        )
        falls = np.diff(shares, axis=0)  # [3, seeds]
        return Verdict(numbers, all_of(*(below(fall.tolist(), 0.0) for fall in falls)))

    return judge


def rises_at_times(cells: Cells) -> Verdict | None:
    """PSRO's exploitability rises in some generations."""
    mine = cells("leduc", "psro")
    if _missing(mine):
        return None
    often = mean(float((cell.rises > 0).mean()) for cell in mine)
    most = max(float(cell.rises.max()) for cell in mine)
    return Verdict(f"Leduc: it rises in {often:.0%} of the generations, by at most {most:.2f}", often > 0)


def hardly_rises(cells: Cells) -> Verdict | None:
    """Anytime PSRO's rises together are less than half of PSRO's."""
    mine, others = cells("leduc", "anytime"), cells("leduc", "psro")
    if _missing(mine, others):
        return None
    most = [max(float(cell.rises.max()) for cell in some) for some in (mine, others)]
    numbers = (
        f"Leduc: all rises together {interval(risen(mine))}, the greatest {most[0]:.2f} "
        f"(`psro` {interval(risen(others))}, {most[1]:.2f})"
    )
    return Verdict(numbers, below(risen(mine), [value / 2 for value in risen(others)]))


def faster_at_first(method: str, others: Sequence[str], *, share: float = 0.1) -> Callable[[Cells], Verdict | None]:
    """After `share` of the episodes it is less exploitable than each of the others."""

    def judge(cells: Cells) -> Verdict | None:
        groups = [cells("leduc", name) for name in (method, *others)]
        if _missing(*groups):
            return None
        first, *rest = (_early(some, share) for some in groups)
        beside = ", ".join(f"`{name}` {interval(values)}" for name, values in zip(others, rest, strict=True))
        numbers = f"Leduc, after {share:.0%} of the episodes: {interval(first)} ({beside}); in the end {interval(_ends(groups[0]))}"
        return Verdict(numbers, all_of(*(below(first, values) for values in rest)))

    return judge


def gets_stuck(cells: Cells) -> Verdict | None:
    """Rectified PSRO stays far from an equilibrium where PSRO finds one."""
    groups = [cells(game, method) for game in ("kuhn", "leduc") for method in ("rectified", "psro")]
    if _missing(*groups):
        return None
    rectified, nash, leduc, beside = (_ends(some) for some in groups)
    numbers = (
        f"Kuhn {interval(rectified)} (`psro` {interval(nash)}); Leduc {interval(leduc)} (`psro` {interval(beside)})"
    )
    stuck = below([-value for value in rectified], -SOLVED)
    return Verdict(numbers, all_of(stuck, below(nash, SOLVED), below(beside, leduc)))


def newest_is_not_the_best(cells: Cells) -> Verdict | None:
    """Self-play's newest policies are more exploitable than earlier ones."""
    mine = cells("leduc", "self-play")
    if _missing(mine):
        return None
    best = [float(cell.exploitability.min()) for cell in mine]
    often = mean(float((cell.rises > 0).mean()) for cell in mine)
    numbers = (
        f"Leduc: newest {interval(_ends(mine))}, the best on the way {interval(best)}, more exploitable than the one before in "
        f"{often:.0%} of the generations"
    )
    return Verdict(numbers, mean(best) < _end(mine) and often > 0.25)
