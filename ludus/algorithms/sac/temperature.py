"""What entropy is worth: fixed, or moved so that the policy's entropy goes to a target."""

from __future__ import annotations

import math

import numpy as np

from ludus.algorithms.optimizer import Adam
from ludus.errors import TrainingError
from ludus.types import State


class Temperature:
    """α > 0, kept as its logarithm. (Haarnoja et al. 2018, section 5.)"""

    def __init__(self, start: float, *, learned: bool) -> None:
        self._log, self._gradient = np.array([math.log(start)]), np.zeros(1)
        self._adam = Adam(1, epsilon=1e-8, dtype=np.float64)
        self._learned = learned

    @property
    def value(self) -> float:
        """α."""
        return math.exp(self._log[0])

    def move(self, *, entropy: float, target: float, rate: float) -> None:
        """A step of Adam down log α × (entropy - target), the loss of equation 18 by the logarithm, as its authors' code has it. Raises
        TrainingError if the entropy is no number. Nothing happens to one that is fixed."""
        if not self._learned:
            return
        self._gradient[0] = entropy - target
        if not math.isfinite(self._adam.step(self._log, self._gradient, rate=rate, max_norm=0.0)):
            raise TrainingError("the policy's entropy became NaN or infinite")

    def state_dict(self) -> State:
        return {"log": self._log.copy(), "adam": self._adam.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._log[:] = state["log"]
        self._adam.load_state_dict(state["adam"])
