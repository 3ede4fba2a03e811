"""Adam on one flat parameter vector, with the gradient's norm clipped, in one compiled pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.core.types import Array, State


@njit(cache=True, fastmath={"reassoc", "contract"})
def _norm(gradient: Array) -> float:
    total = 0.0
    for i in range(len(gradient)):
        total += float(gradient[i]) * float(gradient[i])
    return math.sqrt(total)


@njit(cache=True, error_model="numpy")  # the check of divisors would keep it from being vectorised: nine times slower
def _adam(p, g, m, v, scale, rate, beta1, beta2, epsilon, correction):  # type: ignore[no-untyped-def]
    scale, rate = p.dtype.type(scale), p.dtype.type(rate)
    b1, b2, epsilon = p.dtype.type(beta1), p.dtype.type(beta2), p.dtype.type(epsilon)
    c1, c2, root = p.dtype.type(1.0 - beta1), p.dtype.type(1.0 - beta2), p.dtype.type(correction)
    tiny = p.dtype.type(1e-30)
    for i in range(len(p)):
        x = g[i] * scale
        first = b1 * m[i] + c1 * x
        second = b2 * v[i] + c2 * x * x
        # moments of inputs that no longer occur decay for ever; denormal numbers would slow every later step
        m[i] = first if abs(first) > tiny else p.dtype.type(0)
        v[i] = second if second > tiny else p.dtype.type(0)
        p[i] -= rate * m[i] / (np.sqrt(v[i]) * root + epsilon)


@dataclass(slots=True)
class Adam:
    """State of the optimizer of `size` parameters. (Kingma and Ba 2015, algorithm 1, as torch.optim.Adam computes it.)"""

    size: int
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-5
    dtype: type = np.float32
    steps: int = 0
    m: NDArray[np.float32] = field(init=False)
    v: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        self.m, self.v = np.zeros(self.size, self.dtype), np.zeros(self.size, self.dtype)

    def step(self, parameters: Array, gradient: Array, *, rate: float, max_norm: float) -> float:
        """Moves `parameters` in place, by the gradient scaled down to `max_norm` (0: as it is). Answers the norm before.

        A gradient with a NaN or infinity changes nothing; its norm says so.
        """
        norm = float(_norm(gradient))
        if not math.isfinite(norm):
            return norm
        self.steps += 1
        scale = min(1.0, max_norm / (norm + 1e-6)) if max_norm > 0.0 else 1.0
        first, second = 1.0 - self.beta1**self.steps, 1.0 - self.beta2**self.steps
        _adam(
            parameters,
            gradient,
            self.m,
            self.v,
            scale,
            rate / first,
            self.beta1,
            self.beta2,
            self.epsilon,
            second**-0.5,
        )
        return norm

    def state_dict(self) -> State:
        return {"steps": self.steps, "m": self.m.copy(), "v": self.v.copy()}

    def load_state_dict(self, state: State) -> None:
        self.steps = int(state["steps"])
        self.m[:], self.v[:] = state["m"], state["v"]
