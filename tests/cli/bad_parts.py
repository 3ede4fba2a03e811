"""Meta-solvers of one's own with faults, for bad_inputs.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ludus.core.types import MetaSolution


@dataclass(frozen=True)
class Raises:
    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, payoffs: Any, *, warm: Any = None, rng: Any) -> MetaSolution:
        raise ZeroDivisionError("nothing can be divided by nothing")


@dataclass(frozen=True)
class TwoTooMany:
    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, payoffs: Any, *, warm: Any = None, rng: Any) -> MetaSolution:
        return MetaSolution(tuple(np.full(n, 2.0 / n) for n in payoffs.sizes), 0.0)
