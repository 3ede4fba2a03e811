"""Pure functions on normal-form games: checks of a payoff view, deviation gains, symmetrisation.

A game is `mean` float64[P, n_0, …, n_{P-1}]; a profile of mixed strategies is one float64[n_p] per player.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import SolverError
from ludus.core.types import MetaSolution
from ludus.metagame.population.base import Payoffs, Places, seats_of
from ludus.metagame.population.match_log import SUM_TOLERANCE

Marginals = tuple[NDArray[np.float64], ...]


def require_populated(payoffs: Payoffs, solver: str) -> None:
    """Raise SolverError if a population is empty."""
    for player, size in enumerate(payoffs.sizes):
        if size == 0:
            raise SolverError(
                f"{solver}: player {player} has no policies; add one to population {payoffs.population[player]} first."
            )


def require_complete(payoffs: Payoffs, solver: str) -> None:
    """Raise SolverError naming the first profile without a finite payoff."""
    require_populated(payoffs, solver)
    finite = np.isfinite(payoffs.mean)
    if finite.all():
        return
    bad = np.argwhere(~finite.all(axis=0))
    profile = tuple(int(i) for i in bad[0])
    unplayed = not payoffs.exact[profile] and payoffs.count[profile] == 0
    what = "has no payoff yet" if unplayed else f"has the payoffs {[float(u[profile]) for u in payoffs.mean]}"
    raise SolverError(f"{solver}: profile {profile} {what} ({len(bad)} such profiles). Evaluate it before solving.")


_ANY_GAME = "fictitious_play and projected_replicator_dynamics take any game"


def require_two_player(payoffs: Payoffs, solver: str, *, advice: str = _ANY_GAME) -> None:
    """Raise SolverError if there are not two players. advice: what else there is."""
    if payoffs.num_players != 2:
        raise SolverError(f"{solver} needs two players, given {payoffs.num_players}; {advice}.")


def require_two_player_zero_sum(payoffs: Payoffs, solver: str, *, advice: str = _ANY_GAME) -> None:
    """Raise SolverError if there are not two players, the game is not declared zero-sum, or exact payoffs do not add up. advice: what else
    there is."""
    require_two_player(payoffs, solver, advice=advice)
    if not payoffs.zero_sum:
        raise SolverError(f"{solver} needs a zero-sum game and this one is general-sum; {advice}.")
    if not payoffs.exact.any():
        return  # sampled means of both players come from the same episodes; a check of the sums would add nothing
    total = (payoffs.mean[0] + payoffs.mean[1])[payoffs.exact]
    spread = float(total.max() - total.min())
    if spread > SUM_TOLERANCE * max(payoff_range(payoffs.mean), 1e-300):
        raise SolverError(
            f"{solver}: the game is declared zero-sum, but the players' payoffs sum to between {total.min():.6g} and {total.max():.6g}."
        )


def payoff_range(mean: NDArray[np.float64]) -> float:
    """Return the largest difference between two payoffs of one player."""
    flat = mean.reshape(len(mean), -1)
    return float((flat.max(axis=1) - flat.min(axis=1)).max())


def values_against(
    mean: NDArray[np.float64], marginals: Sequence[NDArray[np.float64]], player: int
) -> NDArray[np.float64]:
    """Return float64[n_player]: what each of the player's strategies earns while the others play `marginals`."""
    table = np.moveaxis(mean[player], player, 0)
    for other in reversed([p for p in range(len(mean)) if p != player]):
        table = table @ marginals[other]
    return np.asarray(table)


def opponent_distribution(solution: MetaSolution, player: int) -> NDArray[np.float64]:
    """Return float64[n_0, … without n_player]: how probable each profile of the other players is."""
    if solution.joint is not None:
        return np.asarray(solution.joint.sum(axis=player))
    weight = np.ones(())
    for p, marginal in enumerate(solution.strategies):
        if p != player:
            weight = np.multiply.outer(weight, marginal)
    return np.asarray(weight)


def expected_payoffs(values: NDArray[np.float64], solution: MetaSolution, player: int) -> NDArray[np.float64]:
    """Return float64[n_player]: the mean of values float64[n_0, …] for each of the player's policies, others drawn from the solution; what
    that recommends to the player is not heard."""
    weight = opponent_distribution(solution, player)
    rows = np.moveaxis(values, player, 0)
    return np.asarray(rows.reshape(len(rows), weight.size) @ weight.ravel())


def deviation_gains(
    payoffs: Payoffs | NDArray[np.float64], marginals: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return float64[P]: how much each player would gain with its best pure strategy over its own marginal; all zero at equilibrium.

    Their sum is the NashConv of the meta-game. Missing entries give NaN.
    """
    mean = payoffs.mean if isinstance(payoffs, Payoffs) else payoffs
    gains = np.empty(len(mean))
    for player, strategy in enumerate(marginals):
        values = values_against(mean, marginals, player)
        gains[player] = values.max() - values @ strategy
    return np.maximum(gains, 0.0)


def zero_sum_matrix(payoffs: Payoffs) -> NDArray[np.float64]:
    """Return the row player's payoffs float64[n_0, n_1] of a two-player zero-sum view, contiguous.

    (u_0 - u_1) / 2 removes a constant sum. If both players draw from one population, the two seat orders are pooled with equal
    weight, (i, j) with the transposed (j, i), so the game is symmetric and its value 0, however often each order was played.
    """
    mean = payoffs.mean
    matrix = (mean[0] - mean[1]) * 0.5
    if share_population(payoffs):
        matrix = (matrix - matrix.T) * 0.5
    return np.ascontiguousarray(matrix)


def share_population(payoffs: Payoffs) -> bool:
    """Return whether two players draw from one population."""
    return len(set(payoffs.population)) < payoffs.num_players


def seat_orders(population: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the permutations of the seats that leave every seat to its population, sorted; seat p is played by who had seat order[p]. As
    many as the product of the populations' factorials: what can be done stage by stage, `swaps` does in no time."""
    groups = seats_of(population)
    orders = []
    for turned in itertools.product(*(itertools.permutations(group) for group in groups)):
        who = {
            seat: source
            for group, new in zip(groups, turned, strict=True)
            for seat, source in zip(group, new, strict=True)
        }
        orders.append(tuple(who[p] for p in range(len(population))))
    return sorted(orders)


def swaps(population: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """Yield seat orders in stages: one of each stage, or none, one stage after the other, is each of `seat_orders` once. (All orders of k +
    1 seats are those of k, followed by changing the last with one of these, or not.)"""
    players = range(len(population))
    for group in seats_of(population):
        for k, last in enumerate(group):
            if k:
                yield [tuple({other: last, last: other}.get(p, p) for p in players) for other in group[:k]]


def symmetrize(payoffs: Payoffs) -> NDArray[np.float64]:
    """Return `mean`, pooled with equal weight over all seat orders of players who share a population; unchanged if nobody does."""
    return pooled_seats(payoffs.mean, payoffs.population)


def pooled_seats(mean: NDArray[np.float64], population: Sequence[int]) -> NDArray[np.float64]:
    """Return the same of payoffs float64[P, n_0, …]."""
    for orders in swaps(population):
        total = mean.copy()
        for order in orders:
            # seat p of the permuted game is seat order[p] of the original
            for p in range(len(population)):
                total[p] += mean[order[p]].transpose(order)
        mean = total / (len(orders) + 1)
    return mean


def pool_marginals(marginals: Sequence[NDArray[np.float64]], population: Sequence[int]) -> Marginals:
    """One marginal per population: the average over the players who share it."""
    out = []
    for which in population:
        group = [m for m, p in zip(marginals, population, strict=True) if p == which]
        out.append(group[0] if len(group) == 1 else distribution(np.mean(group, axis=0)))
    return tuple(out)


def distribution(weights: NDArray[np.float64], *, least: float = 0.0) -> NDArray[np.float64]:
    """Return `weights` as a distribution: entries at most `least`, and negative ones, become 0; the rest sum to 1."""
    clipped = np.where(weights > max(least, 0.0), weights, 0.0)
    total = float(clipped.sum())
    if not math.isfinite(total) or total <= 0.0:
        raise SolverError(f"no distribution can be made of weights that sum to {total}.")
    return np.asarray(clipped / total)


def uniform(size: int) -> NDArray[np.float64]:
    """Return float64[size] of 1 / size."""
    return np.full(size, 1.0 / size)


def lift(solution: MetaSolution, payoffs: Payoffs, places: Places) -> MetaSolution:
    """Return a solution of the part of a meta-game at `places` as one of all its policies: the others have no weight. gap and warm stay
    those of the part."""
    if solution.marginals is not None:
        marginals = tuple(
            scatter(probs, places[which], size)
            for probs, which, size in zip(solution.marginals, payoffs.population, payoffs.sizes, strict=True)
        )
        return replace(solution, marginals=marginals)
    joint = np.zeros(payoffs.sizes)
    joint[np.ix_(*(places[which] for which in payoffs.population))] = solution.joint
    return replace(solution, joint=joint)


def scatter(probs: NDArray[np.float64], places: Sequence[int], size: int) -> NDArray[np.float64]:
    """Return float64[size]: `probs` at `places`, zero elsewhere."""
    out = np.zeros(size)
    out[list(places)] = probs
    return out


def nash_conv(payoffs: Payoffs, marginals: Sequence[NDArray[np.float64]]) -> float:
    """Return the sum of the deviation gains in the view as it is, seats pooled where a population is shared; NaN if it has missing
    entries."""
    return float(deviation_gains(symmetrize(payoffs), marginals).sum())


def unpadded(strategies: NDArray[np.float64], payoffs: Payoffs) -> Marginals:
    """Return rows of a padded array as distributions, one and the same for players who share a population."""
    rows = tuple(distribution(strategies[player, :size]) for player, size in enumerate(payoffs.sizes))
    return pool_marginals(rows, payoffs.population)


# --------------------------------------------------------------------------------------------------------------------
# Deviations from a joint distribution over profiles: what they gain, and the rows that forbid them. A game is
# `mean` float64[P, n_0, …, n_{P-1}]; a joint distribution is float64[n_0, …, n_{P-1}]. Two kinds of deviation
# (Aumann 1974; Moulin and Vial 1978): "cce", play `b` whatever is recommended; "ce", play `b` whenever `a` is
# recommended.

DeviationKind = Literal["ce", "cce"]


def joint_gains(mean: NDArray[np.float64], joint: NDArray[np.float64], kind: DeviationKind) -> NDArray[np.float64]:
    """Return float64[P]: the most each player gains in expectation by deviating: by one strategy for good ("cce"), or by the best answer to
    each recommendation ("ce", the swap regret). Never negative; their sum is zero at the equilibria of that kind."""
    gains = np.empty(len(mean))
    for player, table in enumerate(mean):
        values = recommended(table, joint, player)
        gain = values - np.diagonal(values)[:, None]  # [recommended, played]
        gains[player] = gain.max(axis=1).sum() if kind == "ce" else gain.sum(axis=0).max()
    return np.maximum(gains, 0.0)


def recommended(table: NDArray[np.float64], joint: NDArray[np.float64], player: int) -> NDArray[np.float64]:
    """Return float64[n, n]: [a, b] is what the player earns by playing b when a is recommended, times the probability of a."""
    size = joint.shape[player]
    weights = np.moveaxis(joint, player, 0).reshape(size, -1)
    return np.asarray(weights @ np.moveaxis(table, player, 0).reshape(size, -1).T)


def coarse_rows(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[n_0 + … + n_{P-1} or fewer, n_0 ⋯ n_{P-1}]: row (p, b) times the raveled joint is p's gain from playing b for good.

    Rows of zeros are left out."""
    sizes = mean.shape[1:]
    blocks = []
    for player, table in enumerate(mean):
        played = np.moveaxis(table, player, 0)  # [b, others…]
        for b in range(sizes[player]):
            blocks.append((np.expand_dims(played[b], player) - table).ravel())
    rows = np.array(blocks)
    return rows[rows.any(axis=1)]


def correlated_rows(mean: NDArray[np.float64]) -> Any:
    """Return sparse float64[sum n_p (n_p - 1) or fewer, n_0 ⋯ n_{P-1}]: row (p, a, b) times the raveled joint is p's gain from playing b
    when told a.

    Rows of zeros are left out."""
    from scipy.sparse import csr_array

    sizes = mean.shape[1:]
    index = np.arange(int(np.prod(sizes))).reshape(sizes)
    data, columns = [], []
    for player, table in enumerate(mean):
        size = sizes[player]
        others = index.size // size
        payoff = np.moveaxis(table, player, 0).reshape(size, others)
        place = np.moveaxis(index, player, 0).reshape(size, others)
        recommended, deviation = np.nonzero(~np.eye(size, dtype=np.bool_))
        data.append((payoff[deviation] - payoff[recommended]).ravel())
        columns.append(place[recommended].ravel())
    lengths = np.concatenate([np.full(n * (n - 1), index.size // n) for n in sizes])
    start = np.concatenate([[0], np.cumsum(lengths)])
    matrix = csr_array((np.concatenate(data), np.concatenate(columns), start), shape=(len(lengths), index.size))
    matrix.eliminate_zeros()
    return matrix[np.flatnonzero(np.diff(matrix.indptr))]


def symmetric_joint(joint: NDArray[np.float64], population: Sequence[int]) -> NDArray[np.float64]:
    """Return the average of the joint distribution over the seat orders of players who share a population."""
    for orders in swaps(population):
        joint = np.asarray(sum((joint.transpose(order) for order in orders), joint) / (len(orders) + 1))
    return joint
