"""Rules without regret: entries that do better against the learner are drawn more often.

The entries' values are means over the episodes that drew them, so each entry needs to be drawn now and then: `explore` of the probability
is spread evenly. An entry that a rollout did not draw counts as average in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.opponents.base import Evidence
from ludus.types import State


@dataclass(frozen=True, slots=True)
class RegretMatchingPlus:
    """Probabilities in proportion to the positive part of cumulative regrets, which is cut at zero in every round (Tammelin 2014,
    regret matching+). Needs no rate and no range."""

    explore: float = 0.05

    def __post_init__(self) -> None:
        _check(explore=self.explore)

    def start(self, probs: NDArray[np.float64]) -> State:
        return {"regret": np.zeros(len(probs)), "start": np.array(probs)}

    def update(self, state: State, evidence: Evidence) -> State:
        regret = np.maximum(state["regret"] + _advantage(evidence, self.probs(state)), 0.0)
        return {**state, "regret": regret}

    def probs(self, state: State) -> NDArray[np.float64]:
        regret = state["regret"]
        total = regret.sum()
        return _explored(regret / total if total > 0 else state["start"], self.explore)


@dataclass(frozen=True, slots=True)
class Hedge:
    """Probabilities in proportion to exp(rate_t × cumulative advantage), rate_t = rate × sqrt(ln K / t) / scale (Freund and Schapire 1997;
    the falling rate of Auer, Cesa-Bianchi and Gentile 2002). scale: the greatest advantage seen so far."""

    rate: float = 1.0
    explore: float = 0.05

    def __post_init__(self) -> None:
        _check(explore=self.explore)
        if not self.rate > 0:
            raise ConfigError(f"hedge: rate is {self.rate}, expected above 0.")

    def start(self, probs: NDArray[np.float64]) -> State:
        return {"sum": np.zeros(len(probs)), "start": np.array(probs), "rounds": 0, "scale": 0.0}

    def update(self, state: State, evidence: Evidence) -> State:
        gained = _advantage(evidence, self.probs(state))
        return {
            **state,
            "sum": state["sum"] + gained,
            "rounds": int(state["rounds"]) + 1,
            "scale": max(float(state["scale"]), float(np.abs(gained).max())),
        }

    def probs(self, state: State) -> NDArray[np.float64]:
        start, scale = np.asarray(state["start"]), float(state["scale"])
        if scale == 0.0:
            return _explored(start, self.explore)
        rate = self.rate * np.sqrt(np.log(max(2, len(start))) / state["rounds"]) / scale
        power = rate * state["sum"]
        weight = start * np.exp(power - power.max())
        return _explored(weight / weight.sum(), self.explore)


def _check(*, explore: float) -> None:
    if not 0.0 <= explore <= 1.0:
        raise ConfigError(f"explore is {explore}, expected a share from 0 to 1.")


def _advantage(evidence: Evidence, probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[K]: each entry's value above the mean under `probs`; 0 where it was not played."""
    seen = evidence.played > 0
    if not seen.any():
        return np.zeros(len(probs))
    weight = np.where(seen, probs, 0.0)
    total = weight.sum()
    value = np.where(seen, evidence.value, 0.0)
    mean = float((weight * value).sum() / total) if total > 0 else float(value[seen].mean())
    return np.where(seen, value - mean, 0.0)


def _explored(probs: NDArray[np.float64], explore: float) -> NDArray[np.float64]:
    return np.asarray((1.0 - explore) * probs + explore / len(probs))
