"""Two runs against each other: their policies meet, and the value of that game says whose population is the better one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import ConfigError, DataError
from ludus.core.process_settings import standard_settings
from ludus.evaluation.evaluate import Tell, require_two_player_zero_sum
from ludus.evaluation.exact import refuse_device
from ludus.evaluation.run_ratings import cell_variance
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.confidence import half_width
from ludus.metagame.solvers.nash import Nash
from ludus.storage.stored_run import open_run
from ludus.tournament.entrants import TournamentField, read_field, run_at
from ludus.tournament.results import PairingResult, payoffs_of
from ludus.tournament.run import Options, computable, exact_tournament, run_tournament

# --------------------------------------------------------------------------------------------------------------------
# Measures of populations, rather than of single policies.


@dataclass(frozen=True, slots=True, eq=False)
class Performance:
    """value: what the mixture over `first` earns against the one over `second`, if both are at their best. variance: of it, to first order,
    from the noise of the cells that they play. spread: the sum of variance² over degrees of freedom, for `half_width`. first,
    second: places of the policies. mixtures: float64[first], float64[second]."""

    value: float
    variance: float
    spread: float
    first: tuple[int, ...]
    second: tuple[int, ...]
    mixtures: tuple[NDArray[np.float64], NDArray[np.float64]]


def population_performance(
    payoffs: Payoffs, first: Sequence[int], second: Sequence[int], *, tolerance: float = 1e-6
) -> Performance:
    """Return relative population performance: the value, for player 0, of the game in which it draws from its policies `first` and player 1
    from its policies `second` (Balduzzi et al. 2019, Open-ended learning in symmetric zero-sum games, definition 3). Above 0, `first` is
    the better population. With the mixtures that earn it and its variance: a cell moves the value by what both mixtures play it (the
    envelope theorem), and cells are taken for independent.

    Zero-sum, two players; seat orders are pooled where they share a population, so swapping `first` and `second` turns the sign.
    tolerance: of the equilibrium, as a fraction of the payoffs' range. Raises DataError for empty or unknown choices; SolverError for
    missing entries among these profiles and for other games.
    """
    normal_form.require_two_player_zero_sum(
        payoffs, "relative population performance", advice="a tournament compares policies of any game"
    )
    for player, chosen in enumerate((first, second)):
        if not chosen or not all(0 <= i < payoffs.sizes[player] for i in chosen):
            raise DataError(
                f"relative population performance: policies {list(chosen)} of player {player} were given; expected at least one of "
                f"0 to {payoffs.sizes[player] - 1}."
            )
    apart = replace(payoffs, mean=normal_form.symmetrize(payoffs), population=(0, 1))
    part = apart.part({0: first, 1: second})
    solution = Nash(tolerance=tolerance).solve(part, rng=seeding.generator(0, "rpp"))
    row, column = solution.strategies
    weight = np.outer(row, column) ** 2
    noisy = weight > 0  # what nobody plays may have an infinite variance
    variance, spread = (noise[np.ix_(first, second)][noisy] for noise in _noise(payoffs))
    return Performance(
        value=float(row @ normal_form.zero_sum_matrix(part) @ column),
        variance=float(weight[noisy] @ variance),
        spread=float(weight[noisy] ** 2 @ spread),
        first=tuple(first),
        second=tuple(second),
        mixtures=(row, column),
    )


def _noise(payoffs: Payoffs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return float64[n_0, n_1] each: the variance of the mean of player 0's returns, over both seat orders where they are pooled, and its
    square over its degrees of freedom; 0 where exact, infinite after one episode."""
    variance = cell_variance(payoffs, 0)
    spread = variance**2 / np.maximum(payoffs.count - 1.0, 1.0)
    if normal_form.share_population(payoffs):
        return (variance + variance.T) / 4, (spread + spread.T) / 8  # not 16: one meeting's deals are in both orders
    return variance, spread


@dataclass(frozen=True, slots=True, eq=False)
class CrossPlayResult:
    """Result of `evaluate_cross_play`: what the first run's population earns against the second's, if both mix as well as they can.

    Attributes:
        runs: Directories of both runs.
        env: Id of the environment.
        value: Relative population performance; above 0 the first run is better.
        half_width: Half of its 95% interval; 0 if `exact`.
        exact: Whether payoffs were computed.
        deals: Deals of each pair of policies; 0 if computed.
        names: Names of all policies of the first and of the second run.
        seats: The same for each pair of seats whose policies differ, with both runs' mixtures over `names`.
    """

    runs: tuple[Path, Path]
    env: str
    value: float
    half_width: float
    exact: bool
    deals: int
    names: tuple[tuple[str, ...], tuple[str, ...]]
    seats: tuple[Performance, ...]


@standard_settings()
def evaluate_cross_play(
    run_dir: Path | str,
    other_dir: Path | str,
    *,
    deals: int = 100,
    seed: int = 0,
    device: str = "auto",
    tell: Tell | None = None,
) -> CrossPlayResult:
    """Compute the relative population performance of two runs of one zero-sum game with two players (Balduzzi et al. 2019, definition 3).

    Payoffs are computed where the game has a tree and no policy has memory. Otherwise each policy of one run plays `deals` deals against
    each policy of the other. The interval of sampled payoffs is of first order: noise in an entry moves the value by the probability with
    which both mixtures play it (the envelope theorem). It ignores that the best of many noisy entries are chosen. Nothing is written.

    Args:
        run_dir: Directory of the first run.
        other_dir: Directory of the second run.
        deals: Deals of each pair of policies, each played in every seating.
        seed: Seed of the deals.
        device: Where exact values are computed, as in `ludus.evaluation.exact.tree_on`.
        tell: Called with the progress, as by `play_tournament`.

    Returns:
        The performance; above 0 the first run is better.

    Raises:
        ConfigError: For one run given twice, and for different games.
        RunError: If a run cannot be read.
        ScenarioError: For a game that is not zero-sum with two players.
    """
    folders = Path(run_dir), Path(other_dir)
    if folders[0].resolve() == folders[1].resolve():
        raise ConfigError(f"{str(run_dir)!r} was given twice; a run is as good as itself. Give another run.")
    camps = [_entrants(folder) for folder in folders]
    field = read_field([*camps[0], *camps[1]], env=None, find_run=run_at)
    require_two_player_zero_sum(
        field.spec, "relative population performance", "Hold a tournament between the runs instead."
    )
    exact = computable(field)
    if not exact:
        refuse_device(device)
    camp = {name: k for k, names in enumerate(camps) for name in names}
    results = _results(field, camp, Options(episodes=deals, seed=seed), tell, device=device if exact else None)
    games = _seats(field, camps, results)
    variance = np.array(sum(p.variance for p in games) / len(games) ** 2)
    spread = np.array(sum(p.spread for p in games) / len(games) ** 4)
    return CrossPlayResult(
        runs=folders,
        env=field.spec.id,
        value=float(np.mean([p.value for p in games])),
        half_width=float(half_width(variance, spread)),
        exact=exact,
        deals=0 if exact else deals,
        names=(tuple(camps[0].values()), tuple(camps[1].values())),
        seats=tuple(games),
    )


def _entrants(folder: Path) -> dict[str, str]:
    """Return each policy's name, by the text that names it as an entrant."""
    run = open_run(folder)
    return {f"{folder}@{run.name(ref)}": ref.policy for ref in run.records}


def _results(
    field: TournamentField, camp: dict[str, int], options: Options, tell: Tell | None, *, device: str | None
) -> Sequence[PairingResult]:
    if device is not None:  # to compute on
        return exact_tournament(field, camps=camp, device=device).results
    with tempfile.TemporaryDirectory() as folder:
        return run_tournament(field, Path(folder) / "against", options, tell, camps=camp).results


def _seats(
    field: TournamentField, camps: Sequence[dict[str, str]], results: Sequence[PairingResult]
) -> list[Performance]:
    """With the first run in each seat, once if the same policies play both; means are over the seats in which two can meet."""
    place = {entrant.name: k for k, entrant in enumerate(field.entrants)}
    payoffs = payoffs_of(results, place, field.spec)
    able = [
        [[k for k, e in enumerate(field.entrants) if e.name in camp and e.seats[seat] is not None] for seat in (0, 1)]
        for camp in camps
    ]
    games = dict.fromkeys((tuple(able[0][seat]), tuple(able[1][1 - seat])) for seat in (0, 1))
    return [population_performance(payoffs, first, second) for first, second in games]
