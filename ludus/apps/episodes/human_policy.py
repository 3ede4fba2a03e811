"""A seat of a person: a `Policy` whose answer somebody gives."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import PolicyError
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights

KIND = "person"


class HumanPolicy:
    """A policy whose actions come from a person: `answer` before each of its decisions."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    noise_width = 1
    memory_shape: tuple[int, ...] | None = None
    takes_ids = False

    def __init__(self, player: int) -> None:
        """player: which seat it is of, so that no two are taken for alike."""
        self.spec = PolicySpec(KIND, {"player": player})
        self._answer: Array | None = None

    @property
    def ready(self) -> bool:
        """Return whether the next decision can be made."""
        return self._answer is not None

    def answer(self, action: Array) -> None:
        """The next one. action: [n, …], a row for each agent that is due."""
        self._answer = action

    def forget(self) -> None:
        """What was answered, and not played yet."""
        self._answer = None

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """See `Policy.act`. Raises PolicyError if nobody has answered, or for another number of agents."""
        action, self._answer = self._answer, None
        if action is None or len(action) != len(observation):
            count = "none" if action is None else str(len(action))
            raise PolicyError(f"{len(observation)} answers of a person are due, {count} were given. Make a move first.")
        return PolicyOutput(action, np.full(len(action), np.nan, np.float32))

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Return None: nobody knows what a person plays."""
        return None

    def weights(self) -> Weights:
        return {}
