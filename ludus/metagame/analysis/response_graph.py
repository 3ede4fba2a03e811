"""The response graph of α-Rank: its strongly connected components, sinks, and dominance.

Vertices are profiles of pure policies; from each an edge leads to those in which one player has done something that pays it as well or
better (Omidshafiei et al. 2019, "α-Rank: multi-agent evaluation by evolution", on Markov-Conley chains). What evolution under strong
selection comes to stay in are the sinks: strongly connected components that no edge leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ludus.core.errors import SolverError
from ludus.core.ties import TIE
from ludus.metagame.solvers.alpha_rank import SMALL, response, stationary

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

MAX_STATES = 2000
"""Of a Markov chain whose stationary distribution is computed: about a second."""
_FEW = 64  # opponents by which most pairs are told apart


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """Strongly connected components. label: int64[n] the component of each vertex. sink: bool[components], that no edge leaves."""

    label: Places
    sink: NDArray[np.bool_]

    @property
    def size(self) -> Places:
        """Return int64[components], the vertices of each."""
        return np.bincount(self.label, minlength=len(self.sink)).astype(np.int64)


def strong_components(source: Places, target: Places, n: int) -> Components:
    """Return the strongly connected components of a graph of n vertices. source, target: int64[E], its edges."""
    graph = coo_array((np.ones(len(source), np.bool_), (source, target)), shape=(n, n)).tocsr()
    count, label = connected_components(graph, directed=True, connection="strong")
    sink = np.ones(count, np.bool_)
    sink[label[source[label[source] != label[target]]]] = False
    return Components(label.astype(np.int64), sink)


def better_replies(mean: Floats, tie: float) -> tuple[Places, Places]:
    """Return source, target int64[E] over the profiles of mean float64[P, n_0, …] in C order: few edges by which just those are reached
    that all weakly better replies reach. Payoffs of a player's replies to one and the same are in an order, so an edge from each to the
    next better one is enough, and one back between equals. Unknown ones (NaN) have no edges."""
    index = np.arange(mean[0].size).reshape(mean.shape[1:])
    sources, targets = [], []
    for player, table in enumerate(mean):
        payoff = np.moveaxis(table, player, 0).reshape(table.shape[player], -1)
        state = np.moveaxis(index, player, 0).reshape(payoff.shape)
        order = np.argsort(payoff, axis=0, kind="stable")
        payoff, state = np.take_along_axis(payoff, order, 0), np.take_along_axis(state, order, 0)
        step = np.diff(payoff, axis=0)
        known = ~np.isnan(step)
        equal = known & (step <= tie)
        lower, upper = state[:-1], state[1:]
        sources += [lower[known], upper[equal]]
        targets += [upper[known], lower[equal]]
    return np.concatenate(sources), np.concatenate(targets)


def gains_between(places: Places, payoff: Floats) -> Floats:
    """Return float64[k, k]: what the one player gains in which profiles differ by going from one to the other; NaN where they differ in
    several. places: int64[k, P] profiles. payoff: float64[k, P] what each player earns in them."""
    differ = places[:, None, :] != places[None, :, :]
    gain = payoff[None, :, :] - payoff[:, None, :]
    return np.where(differ.sum(axis=2) == 1, np.where(differ, gain, 0.0).sum(axis=2), np.nan)


def alpha_rank_masses(source: Places, target: Places, gain: Floats, states: int, tie: float) -> Floats | None:
    """Return float64[states], the stationary distribution of α-Rank's chain for infinite alpha (Rowland et al. 2019, section 2; equals take
    over half the time). source, target: int64[E], every change of one policy; gain: float64[E], what it pays. None where the chain is too
    large, or floating point cannot tell."""
    if states > MAX_STATES:
        return None
    for epsilon in (0.0, SMALL):  # several sinks: the limit of small noise decides between them
        try:
            mass = stationary(source, target, response(gain, epsilon, tie=tie), states)
        except SolverError:
            return None
        if mass is not None:
            return mass
    return None


def single_population_gains(mean: Floats) -> Floats:
    """Return float64[n, n]: by how much the column's policy earns more than the row's when they meet, in a game whose two players draw from
    one population; NaN on the diagonal, and where they have not met.

    Args:
        mean: float64[2, n, n], the payoffs of both players.
    """
    own = (mean[0] + mean[1].T) / 2
    gain = np.asarray(own.T - own)
    np.fill_diagonal(gain, np.nan)
    return gain


def tie_within(mean: Floats) -> float:
    """Return the difference within which payoffs of a table count as equal."""
    known = mean[np.isfinite(mean)]
    return TIE * float(np.ptp(known)) if len(known) else 0.0


def dominance(rows: Floats, tie: float) -> list[tuple[int, int, bool]]:
    """Return (k, by, strictly) for each row of float64[n, m] that another one weakly dominates, by one with the largest mean of these.
    NaN: not known; only what is known of both is compared, and all that is known of the dominated one must be known of the other."""
    n = len(rows)
    known = np.isfinite(rows)
    if not known.any():
        return []
    values = np.where(known, rows, -np.inf)  # unknown of the other: nobody is dominated by it
    worth = np.where(known, rows, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    possible = ~np.eye(n, dtype=np.bool_)  # [by, k]
    for column in np.unique(np.linspace(0, rows.shape[1] - 1, _FEW).round().astype(int)).tolist():
        possible &= values[:, column, None] >= values[:, column] - tie
    possible &= known.any(axis=1)
    out, open_rows = [], np.ones(n, np.bool_)
    for by in np.argsort(-worth, kind="stable").tolist():
        left = np.flatnonzero(possible[by] & open_rows)
        if not len(left):
            continue
        compared = known[left]
        ahead = np.where(compared, values[by] - np.where(compared, rows[left], 0.0), 0.0)
        ahead = np.where(compared & ~known[by], -np.inf, ahead)
        weak = (ahead >= -tie).all(axis=1) & (ahead > tie).any(axis=1)
        for at in np.flatnonzero(weak).tolist():
            out.append((int(left[at]), by, bool((ahead[at] > tie)[compared[at]].all())))
        open_rows[left[weak]] = False
    return sorted(out)
