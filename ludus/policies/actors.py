"""Perceptrons that play points of a box: deterministic with noise around it, or a Gaussian squashed by tanh.

The network answers in [-1, 1] per entry of the action; what is played is rescaled to the bounds that the spec names. The log-probability
that is recorded is that of the action as it is played, in the environment's units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtri

from ludus.core.errors import PolicyError
from ludus.core.types import Act, Array, Enumeration, PolicySpec, Weights
from ludus.policies.checks import choice, entry, fitted, integer, one_spec, widths
from ludus.policies.mlp import ACTIVATIONS, Layout, flatten, split
from ludus.policies.perceptron import Perceptron, Perceptrons

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
"""Bounds of a squashed Gaussian's logarithms of standard deviations. (Haarnoja et al. 2018, their code.)"""

_LEAST = 2.0**-25  # half of the least float32 uniform that is not 0
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


@njit(cache=True)
def log_slope(u):  # type: ignore[no-untyped-def]
    """log(1 - tanh(u)²), the logarithm of tanh's slope, exact also where tanh rounds to ±1: 2 (log 2 - |u| - log(1 + e^(-2|u|)))."""
    return 2.0 * (math.log(2.0) - abs(u) - math.log1p(math.exp(-2.0 * abs(u))))


@njit(cache=True)
def _rescaled(unit, low, high):  # type: ignore[no-untyped-def]
    """From [-1, 1] to the bounds, as float32 within them."""
    value = np.float32(0.5 * (low + high) + 0.5 * (high - low) * unit)
    return min(max(value, np.float32(low)), np.float32(high))


@njit(cache=True)
def _uniform(chance, low, high, action):  # type: ignore[no-untyped-def]
    """One row, uniform over the box; answers its log-density."""
    logp = 0.0
    for j in range(len(action)):
        action[j] = _rescaled(2.0 * chance[j] - 1.0, low[j], high[j])
        logp -= math.log(high[j] - low[j])
    return logp


@njit(cache=True)
def _log_beyond(x):  # type: ignore[no-untyped-def]
    """log P(Z > x) of a normal deviate."""
    if x < 25.0:
        return math.log(0.5 * math.erfc(x / math.sqrt(2.0)))
    return -0.5 * x * x - _HALF_LOG_TAU - math.log(x)  # erfc underflows at 38


@njit(cache=True, error_model="numpy")
def _draw_deterministic(out, chance, normal, own, greedy, low, high, action, logp):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        noise, warm_up = own[min(i, len(own) - 1), 0], own[min(i, len(own) - 1), 1]
        if warm_up > 0.0 and not greedy:
            logp[i] = _uniform(chance[i], low, high, action[i])
            continue
        total = 0.0
        for j in range(len(low)):
            if math.isnan(out[i, j]):
                return i
            middle = math.tanh(out[i, j])
            unit = middle
            if noise > 0.0 and not greedy:
                unit += noise * normal[i, j]
                if abs(unit) < 1.0:
                    total -= 0.5 * normal[i, j] ** 2 + _HALF_LOG_TAU + math.log(noise * 0.5 * (high[j] - low[j]))
                else:
                    unit = 1.0 if unit > 0.0 else -1.0
                    total += _log_beyond((1.0 - unit * middle) / noise)
            action[i, j] = _rescaled(unit, low[j], high[j])
        logp[i] = total
    return -1


@njit(cache=True, error_model="numpy")
def _draw_squashed(out, chance, normal, own, greedy, low, high, action, logp):  # type: ignore[no-untyped-def]
    size = len(low)
    for i in range(len(out)):
        if own[min(i, len(own) - 1), 0] > 0.0 and not greedy:
            logp[i] = _uniform(chance[i], low, high, action[i])
            continue
        total = 0.0
        for j in range(size):
            u = float(out[i, j])
            if math.isnan(u) or math.isnan(out[i, size + j]):
                return i
            if not greedy:
                log_std = min(max(float(out[i, size + j]), LOG_STD_MIN), LOG_STD_MAX)
                u += math.exp(log_std) * normal[i, j]
                total -= 0.5 * normal[i, j] ** 2 + _HALF_LOG_TAU + log_std
                total -= log_slope(u) + math.log(0.5 * (high[j] - low[j]))
            action[i, j] = _rescaled(math.tanh(u), low[j], high[j])
        logp[i] = total
    return -1


class BoxActor:
    """The bounds of a spec: an action is middle + half × what the network answers. low, middle, half float64[size]."""

    def __init__(self, spec: PolicySpec) -> None:
        self.shape = widths(spec, "shape")
        self.size = math.prod(self.shape)
        self.low, self.high = self._bounds(spec, "low"), self._bounds(spec, "high")
        if not (self.low < self.high).all():
            raise PolicyError(
                f"policy spec {spec.kind!r}: low {self.low.tolist()} is not below high {self.high.tolist()} in every place."
            )
        self.half = 0.5 * (self.high - self.low)
        self.middle = self.low + self.half

    def _bounds(self, spec: PolicySpec, key: str) -> NDArray[np.float64]:
        given = entry(spec, key)
        numbers = isinstance(given, (list, tuple)) and all(isinstance(bound, (int, float)) for bound in given)
        if not numbers or len(given) != self.size or not np.isfinite(np.array(given, np.float64)).all():
            raise PolicyError(f"policy spec {spec.kind!r}: {key} is {given!r}; expected {self.size} finite numbers.")
        return np.array(given, np.float64)

    def to_unit(self, action: Array) -> NDArray[np.float32]:
        """Actions [n, *shape] as float32[n, size] in [-1, 1]."""
        rows = np.asarray(action, np.float64).reshape(len(action), self.size)
        return np.clip((rows - self.middle) / self.half, -1.0, 1.0).astype(np.float32)


class _Actor:
    """What both have in common. A subclass says which weights of one number it has beside the network, and how it draws."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    memory_shape: tuple[int, ...] | None = None
    takes_ids: bool = False
    scalars: ClassVar[tuple[str, ...]]
    kernel: ClassVar[
        Callable[..., int]
    ]  # fills actions and their logp; answers the first row that is not a number, or -1

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.box = BoxActor(spec)
        self.noise_width = self.box.size
        layout = actor_layout(spec)
        shapes = layout.shapes()
        self._weights = fitted(spec, weights, {**shapes, **dict.fromkeys(self.scalars, (1,))})
        self.network = Perceptron(layout, flatten(self._weights, list(shapes)))
        self.own = np.array([[float(self._weights[name][0]) for name in self.scalars]])
        if self.own.min() < 0.0:
            raise PolicyError(
                f"a {spec.kind!r} policy's {', '.join(self.scalars)} are {self.own[0]}; expected none below 0."
            )

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> Act:
        """As `Policy.act`; actions float32[n, *shape], which no mask limits."""
        return self.answer(self.network.outputs(observation), noise, self.own, mode=mode)

    def answer(
        self, out: NDArray[np.float32], noise: NDArray[np.float32], own: NDArray[np.float64], *, mode: str
    ) -> Act:
        """The actions that outputs float32[n, ·] and uniforms float32[n, size] give. own float64[n or 1, ·]: the `scalars` of each row."""
        if mode not in self.modes:
            raise PolicyError(
                f"policy of kind {self.spec.kind!r} has no mode {mode!r}; it has {', '.join(self.modes)}."
            )
        n = len(out)
        action, logp = np.empty((n, self.box.size), np.float32), np.zeros(n, np.float32)
        chance = np.maximum(noise, _LEAST, dtype=np.float64)
        normal = ndtri(chance)
        kernel, box = type(self).kernel, self.box
        row = kernel(out, chance, normal, own, mode == "greedy", box.low, box.high, action, logp)
        if row >= 0:
            raise PolicyError(
                f"row {row} of {n} has no action: the network's outputs are {out[row].tolist()}; check the environment's observations "
                "and the weights."
            )
        return Act(action.reshape(n, *self.box.shape), logp)

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """None: actions are not enumerated."""
        return None

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}

    @classmethod
    def stack(cls, policies: Sequence[Self]) -> StackedActors:
        """Policies of one spec as one. Raises PolicyError if their specs differ."""
        return StackedActors(policies)


class DeterministicActor(_Actor):
    """Kind `deterministic`; config as `actor_spec` makes it. "greedy" plays tanh of the network's outputs, rescaled.

    "explore" adds `noise` × a normal deviate, before rescaling, and clips. logp is then the log-density, or, of an entry at a bound, the
    log-probability of being clipped to it; 0 for "greedy". Weights: `actor.K.weight` [out, in], `actor.K.bias`, `noise` float32[1], and
    `warm_up` float32[1]: where that is not 0, "explore" draws uniformly from the box instead. So exploration travels with the weights.
    """

    scalars = ("noise", "warm_up")
    kernel = staticmethod(_draw_deterministic)


class SquashedGaussianActor(_Actor):
    """Kind `squashed_gaussian`; config as `actor_spec` makes it: tanh(mean + standard deviation × normal), rescaled; "greedy": tanh(mean).

    The network answers size means, then size logarithms of standard deviations, bounded by `LOG_STD_MIN` and `LOG_STD_MAX`. logp is the
    log-density (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications", appendix C), 0 for "greedy". Weights:
    `actor.K.weight` [out, in], `actor.K.bias`, and `warm_up` float32[1], as those of `DeterministicActor`.
    """

    scalars = ("warm_up",)
    kernel = staticmethod(_draw_squashed)


class StackedActors:
    """K policies of one architecture, evaluated in one call. The answer equals K separate calls to rounding."""

    def __init__(self, policies: Sequence[_Actor]) -> None:
        self._first = policies[0]
        one_spec(policies)
        self._networks = Perceptrons([policy.network for policy in policies])
        self._own = np.concatenate([policy.own for policy in policies])

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
    ) -> Act:
        """As `Policy.act`, where row i is played by policy index[i], int[n] in 0 … K - 1."""
        return self._first.answer(self._networks.outputs(observation, index), noise, self._own[index], mode=mode)


_PER_ENTRY = {"deterministic": 1, "squashed_gaussian": 2}


def actor_layout(spec: PolicySpec) -> Layout:
    """The network of an actor's spec. Raises PolicyError for a spec that is wrong."""
    outputs = _PER_ENTRY.get(spec.kind, 1) * math.prod(widths(spec, "shape"))
    layers = (integer(spec, "inputs"), *widths(spec, "hidden"), outputs)
    return Layout(layers, choice(spec, "activation", ACTIVATIONS)).under("actor")


def initial_actor(spec: PolicySpec, rng: np.random.Generator) -> dict[str, Array]:
    """Fresh parameters `actor.K.…` of an actor's spec: orthogonal, and small outputs, so that tanh is not saturated."""
    layout = actor_layout(spec)
    return split(layout.initial(rng, 0.01), layout.shapes())
