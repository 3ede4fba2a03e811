"""How MADDPG's learner sees actions: as points of [-1, 1]^d, or one-hot."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.maddpg.terms import gumbel_softmax, straight_through
from ludus.policies.actors import Box
from ludus.policies.checks import integer
from ludus.types import Array, PolicySpec


class Answer(NamedTuple):
    """action float[r, d], as the critic sees it; through float[r, d]: what it is a function of, backwards."""

    action: Array
    through: Array


class Acting(Protocol):
    """One kind of actions. width: d, the actor's outputs and what the critic sees of one agent. random: whether an answer needs Gumbel
    deviates float32[r, d]."""

    width: int
    random: bool

    def stored(self, action: Array) -> Array:
        """Actions [T, n, …] as the table keeps them."""
        ...

    def seen(self, stored: Array) -> Array:
        """Stored ones [m, n, …] as the critic sees them, float32[m, n, d]."""
        ...

    def answer(self, out: Array, gumbel: Array | None, mask: NDArray[np.bool_] | None) -> Answer:
        """What the actor's outputs float32[r, d] stand for."""
        ...

    def backward(self, answer: Answer, slope: Array) -> Array:
        """dS/doutputs float[r, d] where dS/daction is slope."""
        ...


class Points:
    """Actions in a box."""

    random = False

    def __init__(self, spec: PolicySpec) -> None:
        self._box = Box(spec)
        self.width = self._box.size

    def stored(self, action: Array) -> Array:
        """See `Acting`: float32[T, n, d] in [-1, 1]."""
        return self._box.to_unit(action.reshape(-1, *self._box.shape)).reshape(*action.shape[:2], self.width)

    def seen(self, stored: Array) -> Array:
        """See `Acting`."""
        return stored

    def answer(self, out: Array, gumbel: Array | None, mask: NDArray[np.bool_] | None) -> Answer:
        """See `Acting`: tanh."""
        action = np.tanh(out)
        return Answer(action, action)

    def backward(self, answer: Answer, slope: Array) -> Array:
        """See `Acting`."""
        out: Array = slope * (1.0 - answer.through * answer.through)
        return out


class Choices:
    """Discrete actions, by the Gumbel-softmax with a straight-through gradient."""

    random = True

    def __init__(self, spec: PolicySpec, *, temperature: float) -> None:
        self.width, self._temperature = integer(spec, "actions"), temperature

    def stored(self, action: Array) -> Array:
        """See `Acting`: int32[T, n]."""
        return action.astype(np.int32)

    def seen(self, stored: Array) -> Array:
        """See `Acting`: one-hot."""
        out: Array = (stored[..., None] == np.arange(self.width)).astype(np.float32)
        return out

    def answer(self, out: Array, gumbel: Array | None, mask: NDArray[np.bool_] | None) -> Answer:
        """See `Acting`: a draw from the softmax."""
        assert gumbel is not None
        return Answer(*gumbel_softmax(out, gumbel, mask, temperature=self._temperature))

    def backward(self, answer: Answer, slope: Array) -> Array:
        """See `Acting`."""
        return straight_through(answer.through, slope, temperature=self._temperature)
