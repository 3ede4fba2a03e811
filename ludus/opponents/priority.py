"""Rules that give priority to opponents which are worth the learner's time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.opponents.base import Evidence
from ludus.types import State

Weighting: TypeAlias = Literal["squared", "variance", "linear", "linear_capped"]
WEIGHTINGS: tuple[Weighting, ...] = ("squared", "variance", "linear", "linear_capped")


def pfsp_weights(win_rate: NDArray[np.float64], weighting: Weighting) -> NDArray[np.float64]:
    """float64[K] -> float64[K], not normalised: how much an opponent that the learner beats with this probability matters (Vinyals et
    al. 2019, "prioritized fictitious self-play"). squared: (1 - x)², the hard ones; variance: x (1 - x), those of one's own level;
    linear: 1 - x; linear_capped: min(½, 1 - x)."""
    lost = 1.0 - win_rate
    if weighting == "squared":
        return np.asarray(lost**2)
    if weighting == "variance":
        return np.asarray(win_rate * lost)
    if weighting == "linear":
        return np.asarray(lost)
    if weighting == "linear_capped":
        return np.asarray(np.minimum(0.5, lost))
    raise ConfigError(f"weighting {weighting!r} was given; there are {', '.join(WEIGHTINGS)}.")


def pfsp(win_rate: NDArray[np.float64], weighting: Weighting) -> NDArray[np.float64]:
    """float64[K] probabilities; uniform where no opponent matters (all are always beaten)."""
    weight = pfsp_weights(win_rate, weighting)
    total = weight.sum()
    return np.asarray(weight / total) if total > 0 else np.full(len(weight), 1.0 / len(weight))


@dataclass(frozen=True, slots=True)
class PFSP:
    """`pfsp` of the win rates within the task. prior: draws that each opponent starts with. decay: what earlier episodes keep of their
    weight with each rollout."""

    weighting: Weighting = "squared"
    prior: float = 10.0
    decay: float = 0.99

    def __post_init__(self) -> None:
        pfsp_weights(np.zeros(1), self.weighting)
        if not self.prior > 0:
            raise ConfigError(f"pfsp: prior is {self.prior}, expected a number of draws above 0.")
        if not 0.0 < self.decay <= 1.0:
            raise ConfigError(f"pfsp: decay is {self.decay}, expected above 0, at most 1.")

    def start(self, probs: NDArray[np.float64]) -> State:
        return {"won": np.zeros(len(probs)), "played": np.zeros(len(probs)), "start": np.array(probs)}

    def update(self, state: State, evidence: Evidence) -> State:
        won = self.decay * state["won"] + evidence.won
        return {**state, "won": won, "played": self.decay * state["played"] + evidence.played}

    def probs(self, state: State) -> NDArray[np.float64]:
        if not state["played"].any():
            return np.asarray(state["start"])
        rate = (state["won"] + 0.5 * self.prior) / (state["played"] + self.prior)
        return pfsp(rate, self.weighting)


@dataclass(frozen=True, slots=True)
class Quality:
    """Softmax of quality scores; with every episode that the learner wins against entry k, q_k falls by rate / (K p_k), so that what is
    beaten is met less often and nothing is forgotten for good (OpenAI et al. 2019, "Dota 2 with Large Scale Deep Reinforcement Learning",
    appendix on opponents; rate 0.01 there). The scores begin with the logarithms of the given probabilities."""

    rate: float = 0.01

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ConfigError(f"quality: rate is {self.rate}, expected above 0.")

    def start(self, probs: NDArray[np.float64]) -> State:
        return {"score": np.log(np.maximum(probs, 1e-12))}

    def update(self, state: State, evidence: Evidence) -> State:
        """Each score falls at most by 1 in a rollout, however many episodes that has."""
        probs = self.probs(state)
        fall = np.minimum(1.0, self.rate * evidence.won / (len(probs) * np.maximum(probs, 1e-12)))
        return {"score": state["score"] - fall}

    def probs(self, state: State) -> NDArray[np.float64]:
        weight = np.exp(state["score"] - state["score"].max())
        return np.asarray(weight / weight.sum())
