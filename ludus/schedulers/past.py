"""Which of its past opponents a learner in self-play meets: pure rules over one number per opponent, which the scheduler keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.opponents.priority import Weighting, pfsp

Array = NDArray[np.float64]


@runtime_checkable
class PastRule(Protocol):
    """scores: float64[n], oldest opponent first; rates: float64[n], win rates of the learner's newest snapshot against them, or zeros
    unless the rule `reads` them; games: how many the learner has played against the past in its last chunk."""

    reads: ClassVar[bool]

    def probabilities(self, scores: Array, rates: Array) -> Array:
        """float64[n] that sum to 1; n > 0."""
        ...

    def updated(self, scores: Array, rates: Array, games: float) -> Array:
        """The scores after a chunk."""
        ...


@dataclass(frozen=True, kw_only=True)
class UniformPast:
    """All alike, or the `last` so many (Heinrich et al. 2015: a best response to the average of the past). Raises ConfigError for a `last`
    under 1."""

    reads: ClassVar[bool] = False
    last: int | None = None

    def __post_init__(self) -> None:
        if self.last is not None and self.last < 1:
            raise ConfigError(f"the last so many of the past are at least 1, or None for all; given last: {self.last}.")

    def probabilities(self, scores: Array, rates: Array) -> Array:
        n = len(scores)
        count = min(n, self.last or n)
        return np.concatenate([np.zeros(n - count), np.full(count, 1.0 / count)])

    def updated(self, scores: Array, rates: Array, games: float) -> Array:
        return scores


@dataclass(frozen=True, kw_only=True)
class PrioritisedPast:
    """In proportion to f(win rate): prioritised fictitious self-play (Vinyals et al. 2019)."""

    reads: ClassVar[bool] = True
    weighting: Weighting = "squared"

    def probabilities(self, scores: Array, rates: Array) -> Array:
        return pfsp(rates, self.weighting)

    def updated(self, scores: Array, rates: Array, games: float) -> Array:
        return scores


@dataclass(frozen=True, kw_only=True)
class QualityPast:
    """In proportion to exp(quality) (Berner et al. 2019, OpenAI Five, appendix on opponent sampling). A new opponent gets the best quality
    that there is. There, each game that the learner wins against opponent i, drawn with p_i of N, takes rate / (N p_i) from i's
    quality. It plays p_i of its games against i; so a chunk takes rate × games × win rate / N, in expectation."""

    reads: ClassVar[bool] = True
    rate: float = 0.01

    def probabilities(self, scores: Array, rates: Array) -> Array:
        weights = np.exp(scores - scores.max())
        return np.asarray(weights / weights.sum())

    def updated(self, scores: Array, rates: Array, games: float) -> Array:
        return scores - self.rate * games * rates / max(1, len(scores))


def grown(scores: Array, size: int) -> Array:
    """`scores` for `size` opponents: new ones get the best that there is, the first ones 0."""
    best = float(scores.max()) if len(scores) else 0.0
    return np.concatenate([scores, np.full(size - len(scores), best)])
