"""A rule that draws opponents by what would make the learner's payoffs unlike those of its population.

Response diversity of a policy is the distance of its row a of payoffs, against the opponents' policies, to the convex hull of the rows that
are there (Liu et al. 2021, "Towards unifying behavioral and response diversity", there its square; Perez-Nieves et al. 2021 measure a whole
population, by the expected cardinality of a determinantal point process). The gradient of ½ distance² by a is a - p, where p is the nearest
point of the hull. So a policy gains both payoff against the meta-strategy σ and diversity when it trains against opponents drawn by
σ + weight × (a - p). Opponents with a negative share, against which it would have to lose more, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from ludus.errors import ConfigError
from ludus.opponents.base import Evidence
from ludus.types import State

Floats = NDArray[np.float64]


def nearest_in_hull(rows: Floats, point: Floats) -> Floats:
    """float64[m] weights, summing to 1, of the point of the convex hull of rows float64[m, n] that is nearest to float64[n].

    With x = t β, ‖(rows - point)ᵀ x‖² + (1 - Σ x)² is least, over x ≥ 0, at the β of the nearest point: a problem of least squares with
    non-negative unknowns, which needs no penalty (Lawson and Hanson 1974, chapter 23).
    """
    moved = rows - point
    moved = np.vstack([moved.T / max(float(np.abs(moved).max()), 1e-300), np.ones(len(rows))])
    found, _ = nnls(moved, np.append(np.zeros(len(point)), 1.0))
    return np.asarray(found / found.sum())


def hull_difference(rows: Floats, point: Floats) -> Floats:
    """float64[n]: the point minus the nearest point of the hull; its length is the response diversity, its direction the gradient."""
    return np.asarray(point - nearest_in_hull(rows, point) @ rows)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rule of one group of factors, against K entries. rows: float64[m, K], or None where the learner never meets the group."""

    rows: Floats | None
    weight: float
    explore: float
    prior: float
    decay: float

    def start(self, probs: Floats) -> State:
        return {"earned": np.zeros(len(probs)), "played": np.zeros(len(probs)), "start": np.array(probs)}

    def update(self, state: State, evidence: Evidence) -> State:
        new = np.where(evidence.played > 0, evidence.played * evidence.earned, 0.0)
        played = self.decay * state["played"] + evidence.played
        return {**state, "earned": self.decay * state["earned"] + new, "played": played}

    def probs(self, state: State) -> Floats:
        share = np.array(state["start"])
        seen = state["played"] > 0
        if self.rows is not None and seen.any():
            played = state["played"][seen]
            found = hull_difference(self.rows[:, seen], state["earned"][seen] / played)
            share[seen] += self.weight * np.maximum(found, 0.0) * played / (played + self.prior)
        return np.asarray((1.0 - self.explore) * share / share.sum() + self.explore / len(share))


@dataclass(frozen=True, slots=True)
class ResponseDiversity:
    """tables: for each group of factors, the payoffs [m][K] of the population's m policies against its K entries, or None. weight: of a
    difference of one, in the unit of payoffs. explore: of the games, spread evenly, since payoffs against an opponent that is never met
    are not known. prior: episodes against an opponent with which what is known of it counts half. decay: what earlier episodes keep of
    their weight with each rollout, as the learner changes."""

    tables: tuple[tuple[tuple[float, ...], ...] | None, ...]
    weight: float = 1.0
    explore: float = 0.05
    prior: float = 20.0
    decay: float = 0.9

    def __post_init__(self) -> None:
        if not (
            0.0 <= self.weight < np.inf and 0.0 <= self.explore <= 1.0 and self.prior >= 0.0 and 0.0 < self.decay <= 1.0
        ):
            raise ConfigError(
                f"response diversity: weight and prior are 0 or more, explore is a share, and decay is above 0, at most 1; given weight: "
                f"{self.weight}, prior: {self.prior}, explore: {self.explore}, decay: {self.decay}."
            )

    def of_group(self, group: int) -> Rows:
        """The rule of a group."""
        table = self.tables[group]
        rows = None if table is None else np.array(table, np.float64)
        return Rows(rows, self.weight, self.explore, self.prior, self.decay)
