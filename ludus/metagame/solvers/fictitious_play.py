"""Fictitious play on the meta-game, for any number of players."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel
from ludus.core.errors import ConfigError
from ludus.core.ties import TIE
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.dynamics import SUMS, add, contract, mix_rows, own_axis_last, padded_uniform

REFRESH = 1_000
"""Sums of payoffs are computed anew after so many steps, so that rounding does not pile up."""


@inner(fastmath=SUMS)
def respond(values: NDArray[np.float64], scale: float, response: NDArray[np.float64]) -> None:
    """Equal weight on all best responses, into `response`; equals as `ludus.core.ties` has it. values float64[n]: `scale` times the
    payoffs."""
    most, least = -np.inf, np.inf
    for i in range(len(values)):
        most, least = max(most, values[i]), min(least, values[i])
    best = most - TIE * max(scale, most, -least)
    tied = 0
    for i in range(len(values)):
        tied += values[i] >= best
    share = 1.0 / tied
    for i in range(len(values)):
        response[i] = share if values[i] >= best else 0.0


@inner
def average_gain(
    table: NDArray[np.float64],
    counts: NDArray[np.float64],
    responses: NDArray[np.float64],
    sizes: NDArray[np.int64],
    player: int,
) -> NDArray[np.float64]:
    """Return float64[n_player]: what the player's sums of payoffs gain when `responses` are added to the others' `counts`.

    The sums are multilinear in the counts, so the gain telescopes: T(c+r, c'+r') - T(c, c') = T(r, c') + T(c+r, r'). Each term holds
    one response, which is mostly a single strategy: it selects a slice of the tensor before anything is multiplied.
    """
    out = np.zeros(sizes[player])
    for turn in range(len(sizes)):
        if turn == player:
            continue
        before = 1
        for other in range(turn):
            before *= sizes[other] if other != player else 1
        size = sizes[turn]
        after = len(table) // (before * size)
        blocks = table.reshape(before, size, after)
        left = np.empty(before * after)
        for b in range(before):
            mix_rows(blocks[b], responses[turn, :size], left[b * after : (b + 1) * after])
        for other in range(len(sizes)):
            if other not in (player, turn):
                weights = counts[other, : sizes[other]]
                if other < turn:
                    weights = weights.copy()
                    add(weights, responses[other, : sizes[other]])
                mixed = np.empty(len(left) // len(weights))
                mix_rows(left.reshape(len(weights), len(mixed)), weights, mixed)
                left = mixed
        add(out, left)
    return out


@kernel
def fictitious_play(
    tables: NDArray[np.float64],
    sizes: NDArray[np.int64],
    counts: NDArray[np.float64],
    weight: float,
    iterations: int,
) -> None:
    """Brown (1951), all players at once: everybody best-responds to the others' average strategies, ties shared equally, and the
    response is counted. `counts` [P, max n_p] is changed in place; each player's sum to `weight` at the start."""
    players = len(sizes)
    values, responses = np.zeros_like(counts), np.zeros_like(counts)
    for iteration in range(iterations):
        scale = (weight + iteration) ** (players - 1)
        for player in range(players):
            size = sizes[player]
            if iteration % REFRESH == 0:
                contract(tables[player], counts, sizes, player, values[player, :size])
            respond(values[player, :size], scale, responses[player])
        for player in range(players):
            add(values[player, : sizes[player]], average_gain(tables[player], counts, responses, sizes, player))
        for player in range(players):
            add(counts[player], responses[player])


@dataclass(frozen=True, kw_only=True)
class FictitiousPlay:
    """Fictitious play (Brown 1951) from uniform strategies, all players simultaneously, ties shared equally.

    Its averages converge to Nash in two-player zero-sum games (gap about 1 / sqrt(iterations)), potential games and some others, but not
    in all (Shapley 1964); the gap that it returns shows how far it came. Players who share a population get the same strategy.

    Attributes:
        iterations: Number of iterations.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    iterations: int = 10_000

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ConfigError(f"fictitious_play: iterations is {self.iterations}, expected at least 1.")

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries or NaN. Each solve starts anew: averages over an older game would be
        stale."""
        normal_form.require_complete(payoffs, "fictitious_play")
        mean, sizes = normal_form.symmetrize(payoffs), np.array(payoffs.sizes, dtype=np.int64)
        counts = padded_uniform(payoffs.sizes)
        tables = own_axis_last(mean) / (normal_form.payoff_range(mean) or 1.0)  # ties are within a part of the range
        fictitious_play(tables, sizes, counts, 1.0, self.iterations)
        marginals = normal_form.unpadded(counts, payoffs)
        return MetaSolution(marginals, float(normal_form.deviation_gains(mean, marginals).sum()))
