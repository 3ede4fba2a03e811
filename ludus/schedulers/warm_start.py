"""What a new policy starts from: Light-MALib's rules, conditional on the generation, as data."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ludus.core.config import Config
from ludus.core.types import PolicyRef
from ludus.population.base import View


class WarmStart(Config):
    """One rule: from generation `first` to `last` (inclusive, None: for ever) new policies start from `source`.

    random: fresh weights. last: a copy of the population's newest policy. best: a copy of its policy with the highest mean payoff
    against the current meta-strategy. file: weights from `path` (a policy file of the same architecture).
    """

    source: Literal["random", "last", "best", "file"] = "random"
    first: int = Field(default=1, ge=1)
    last: int | None = Field(default=None, ge=1)
    path: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> WarmStart:
        if (self.source == "file") != (self.path is not None):
            raise ValueError("`path` belongs to source: file, and source: file needs one")
        if self.last is not None and self.last < self.first:
            raise ValueError(f"from generation {self.first} to {self.last} there is none")
        return self


def choose(
    rules: tuple[WarmStart, ...],
    *,
    generation: int,
    population: int,
    view: View,
    gains: NDArray[np.float64],
) -> PolicyRef | str | None:
    """The start of a new policy of `population`: a ref, a file, or None for random. The first rule that applies decides.

    gains: float64[n], mean payoff of each of the population's policies against the meta-strategy.
    The initial policies (generation 0) are not copied: they are not of the learner's architecture.
    """
    for rule in rules:
        if rule.first <= generation and (rule.last is None or generation <= rule.last):
            refs = view.populations[population]
            if rule.source == "file":
                return rule.path
            if rule.source == "random" or len(refs) < 2:
                return None
            return refs[-1] if rule.source == "last" else refs[1 + int(np.argmax(gains[1:]))]
    return None
