"""From a network's outputs to actions: what an action space makes of numbers, for acting. The same densities for learning, in torch, are in
`ludus.algorithms.common.losses`.

A head is chosen by the `action` part of a `PolicySpec.config`:

    {"kind": "categorical", "actions": A}                  A logits; int32[n] actions
    {"kind": "multi_categorical", "choices": [A_0, …]}     concatenated logits; int32[n, d] actions
    {"kind": "gaussian", "low", "high", "shape"}           means and log standard deviations; clipped to the bounds
    {"kind": "tanh", "low", "high", "shape"}               the same, squashed into the bounds by tanh
    {"kind": "point", "low", "high", "shape"}              points, squashed by tanh, with a Gaussian around them; clipped to the bounds.
                                                           "spread": its width differs by environments (`specs.per_env_exploration`)

Box actions are scaled: the network's numbers lie in [-1, 1] where both bounds are finite. A clipped Gaussian has probability masses at its
bounds, and its logp there is the mass's logarithm: that of the action which was played, exactly. (Fujita and Maeda 2018, "Clipped action
policy gradient".) "log_std": [least, most] bounds the logarithms of standard deviations; [-5, 2] where a head does not say it.

Some outputs are no network's: `free`, numbers that travel with the weights, the same for every observation. With "warm_up": true, one of
them says whether "explore" draws uniformly from the box instead (invariant 8: exploration is part of the weights).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ludus.core.arrays import kernel
from ludus.core.errors import PolicyError
from ludus.core.types import Array
from ludus.policies.categorical import sample
from ludus.policies.specs import per_env_exploration

LEAST = 2.0**-25  # half of the least float32 uniform that is not 0
LOG_STD = (-5.0, 2.0)
MOST = 1.0 - 2.0**-20  # what tanh is taken for where it has rounded to 1
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)

Floats: TypeAlias = NDArray[np.float64]


class Head(Protocol):
    """What an action space makes of outputs float32[n, outputs].

    Attributes:
        outputs: Number of outputs.
        free: How many of the last outputs do not depend on the observation: first learned ones, then `numbers`.
        numbers: Names of weights of one entry each, which the learner sets.
        noise_width: Uniforms per row.
    """

    @property
    def outputs(self) -> int: ...
    @property
    def free(self) -> int: ...
    @property
    def numbers(self) -> tuple[str, ...]: ...
    @property
    def noise_width(self) -> int: ...

    def act(
        self, out: NDArray[np.float32], mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, greedy: bool
    ) -> tuple[Array, NDArray[np.float32]]:
        """Return (actions, logp float32[n]) from noise float32[n, noise_width]; greedy: the most probable ones, with
        logp 0."""
        ...


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of `outputs` actions, legal ones only."""

    outputs: int
    free: int = 0
    numbers: tuple[str, ...] = ()
    noise_width: int = 1

    def act(
        self, out: NDArray[np.float32], mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, greedy: bool
    ) -> tuple[Array, NDArray[np.float32]]:
        return sample(out, mask, noise, actions=self.outputs, greedy=greedy)


@dataclass(frozen=True, slots=True)
class MultiCategorical:
    """One of choices[k] in each place k, independently. Masks bool[n, Σ choices] are concatenated as the logits are."""

    choices: tuple[int, ...]
    free: int = 0
    numbers: tuple[str, ...] = ()

    @property
    def outputs(self) -> int:
        return sum(self.choices)

    @property
    def noise_width(self) -> int:
        return len(self.choices)

    def act(
        self, out: NDArray[np.float32], mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, greedy: bool
    ) -> tuple[Array, NDArray[np.float32]]:
        if mask is not None and mask.shape != (len(out), self.outputs):
            raise PolicyError(
                f"a mask of shape {mask.shape} for {len(out)} rows of the choices {list(self.choices)}; expected "
                f"{(len(out), self.outputs)}, or none."
            )
        action, logp = np.empty((len(out), len(self.choices)), np.int32), np.zeros(len(out), np.float32)
        end = 0
        for k, count in enumerate(self.choices):
            part = slice(end, end := end + count)
            legal = None if mask is None else np.ascontiguousarray(mask[:, part])
            action[:, k], one = sample(
                np.ascontiguousarray(out[:, part]), legal, noise[:, k : k + 1], actions=count, greedy=greedy
            )
            logp += one
        return action, logp


# --------------------------------------------------------------------------------------------------------------------
# Boxes. What is drawn and its log-probability are compiled, one call for a batch: kernels fill action float32[n, size]
# and logp float32[n], and answer the first row whose outputs are not finite, or -1.


@kernel
def log_tanh_derivative(u):  # type: ignore[no-untyped-def]
    """Return log(1 - tanh(u)²), exact also where tanh rounds to ±1: 2 (log 2 - |u| - log(1 + e^(-2|u|)))."""
    return 2.0 * (math.log(2.0) - abs(u) - math.log1p(math.exp(-2.0 * abs(u))))


@kernel
def normal_density(deviate, log_std):  # type: ignore[no-untyped-def]
    """Return the log-density of a number `deviate` standard deviations from its mean."""
    return -0.5 * deviate * deviate - HALF_LOG_TWO_PI - log_std


@kernel
def _log_beyond(x):  # type: ignore[no-untyped-def]
    """Return log P(Z > x) of a standard normal Z."""
    if x < 25.0:
        return math.log(0.5 * math.erfc(x / math.sqrt(2.0)))
    return -0.5 * x * x - HALF_LOG_TWO_PI - math.log(x) + math.log1p(-1.0 / (x * x))  # erfc underflows at 38


@kernel
def _tanh(x):  # type: ignore[no-untyped-def]
    """Return tanh(x) to an absolute error of 1e-16; four times as fast as the library's."""
    return 1.0 - 2.0 / (1.0 + math.exp(2.0 * x))


@kernel
def _scaled(x, low, high, middle, half):  # type: ignore[no-untyped-def]
    """Return the network's number as an action, float32 within the bounds."""
    return min(max(np.float32(middle + half * x), np.float32(low)), np.float32(high))


@kernel
def _draw_clipped(out, std, squash, normal, greedy, low, high, middle, half, action, logp):  # type: ignore[no-untyped-def]
    """Sample clipped actions. std [n, size], or [n, 1]. squash: means are tanh of the outputs."""
    for i in range(len(out)):
        total = 0.0
        for j in range(len(low)):
            m, s = float(out[i, j]), float(std[i, min(j, std.shape[1] - 1)])
            if not (math.isfinite(m) and math.isfinite(s)):
                return i
            m = _tanh(m) if squash else m
            random = s > 0.0 and not greedy
            a = _scaled(m + s * normal[i, j] if random else m, low[j], high[j], middle[j], half[j])
            if random:
                z = ((a - middle[j]) / half[j] - m) / s
                if a <= low[j]:
                    total += _log_beyond(-z)
                elif a >= high[j]:
                    total += _log_beyond(z)
                else:
                    total += normal_density(z, math.log(s * half[j]))
            action[i, j] = a
        logp[i] = total
    return -1


@kernel
def _draw_squashed(out, least, most, normal, greedy, low, high, middle, half, action, logp):  # type: ignore[no-untyped-def]
    """Sample squashed actions. (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications", appendix C.)"""
    size, scale = len(low), np.sum(np.log(half))
    for i in range(len(out)):
        total = 0.0 if greedy else -scale
        for j in range(size):
            mean, log_std = float(out[i, j]), min(max(float(out[i, size + j]), least), most)
            if not (math.isfinite(mean) and math.isfinite(out[i, size + j])):
                return i
            if greedy:
                action[i, j] = _scaled(_tanh(mean), low[j], high[j], middle[j], half[j])
                continue
            std = math.exp(log_std)
            action[i, j] = _scaled(_tanh(mean + std * normal[i, j]), low[j], high[j], middle[j], half[j])
            # of the action that is played, which float32 has rounded: learners know no other. With x = tanh u, u is
            # (log(1 + x) - log(1 - x)) / 2, and the logarithm of its derivative log(1 + x) + log(1 - x).
            x = min(max((action[i, j] - middle[j]) / half[j], -MOST), MOST)
            above, below = math.log(1.0 + x), math.log(1.0 - x)
            total += normal_density((0.5 * (above - below) - mean) / std, log_std) - above - below
        logp[i] = total
    return -1


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Bounds of box actions, flat float64[size], as float32 actions reach them. action = middle + half × the network's
    number; clipped to low and high, which may be infinite."""

    low: Floats
    high: Floats
    middle: Floats
    half: Floats
    shape: tuple[int, ...]

    @staticmethod
    def of(config: Mapping[str, Any]) -> Bounds:
        """Return the bounds in a head's configuration. Raise PolicyError if they are invalid."""
        low = np.array([-np.inf if bound is None else np.float32(bound) for bound in config["low"]], np.float64)
        high = np.array([np.inf if bound is None else np.float32(bound) for bound in config["high"]], np.float64)
        shape = tuple(int(n) for n in config["shape"])
        if not (len(low) == len(high) == math.prod(shape)) or not (low < high).all():
            raise PolicyError(
                f"an action space of shape {list(shape)} has bounds {config['low']} to {config['high']}; expected one of each for every "
                "entry, low < high."
            )
        both = np.isfinite(low) & np.isfinite(high)
        middle = np.where(both, (np.where(both, low, 0.0) + np.where(both, high, 0.0)) / 2.0, 0.0)
        half = np.where(both, (np.where(both, high, 0.0) - np.where(both, low, 0.0)) / 2.0, 1.0)
        return Bounds(low, high, middle, half, shape)

    @property
    def size(self) -> int:
        return len(self.low)

    def to_unit(self, action: Array) -> NDArray[np.float32]:
        """Return actions [n, *shape] as float32[n, size] in [-1, 1], of finite bounds."""
        rows = np.asarray(action, np.float64).reshape(len(action), self.size)
        return np.clip((rows - self.middle) / self.half, -1.0, 1.0).astype(np.float32)

    def uniform(self, chance: Floats) -> tuple[NDArray[np.float32], float]:
        """Return flat actions [n, size] from uniforms, and the log-density of all of them, of finite bounds."""
        action = (self.low + (self.high - self.low) * chance).astype(np.float32)
        return action, -float(np.log(self.high - self.low).sum())


class _BoxHead:
    """Base of heads of boxes. A subclass implements sampling."""

    __slots__ = ()
    bounds: Bounds
    numbers: tuple[str, ...]

    @property
    def noise_width(self) -> int:
        return self.bounds.size

    def act(
        self, out: NDArray[np.float32], mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, greedy: bool
    ) -> tuple[Array, NDArray[np.float32]]:
        """Implement `Head.act`. Raises PolicyError for outputs that are not finite."""
        del mask  # of whole numbers
        n, box = len(out), self.bounds
        chance = np.maximum(noise, LEAST, dtype=np.float64)
        action, logp = np.empty((n, box.size), np.float32), np.zeros(n, np.float32)
        arguments = (ndtri(chance), greedy, box.low, box.high, box.middle, box.half, action, logp)
        row = self._draw(out, arguments)
        if row >= 0:
            raise PolicyError(
                f"row {row} of {n} has no action: the policy's outputs are {out[row].tolist()}; check the observations and the weights."
            )
        if "warm_up" in self.numbers and not greedy and (warm := out[:, -1] > 0.0).any():
            action[warm], logp[warm] = box.uniform(chance[warm])
        return action.reshape(n, *box.shape), logp

    def _draw(self, out: NDArray[np.float32], arguments: tuple[Any, ...]) -> int:
        """Call a kernel with these last arguments."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Gaussian(_BoxHead):
    """Normal numbers, clipped to the bounds. Standard deviations do not depend on the observation."""

    bounds: Bounds
    log_std: tuple[float, float] = LOG_STD
    numbers: tuple[str, ...] = ()

    @property
    def outputs(self) -> int:
        return 2 * self.bounds.size

    @property
    def free(self) -> int:
        return self.bounds.size

    def _draw(self, out: NDArray[np.float32], arguments: tuple[Any, ...]) -> int:
        size = self.bounds.size
        return int(
            _draw_clipped(out, np.exp(np.clip(out[:, size:], *self.log_std, dtype=np.float64)), False, *arguments)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Squashed(_BoxHead):
    """tanh of normal numbers, scaled to finite bounds. Standard deviations are the network's."""

    bounds: Bounds
    log_std: tuple[float, float] = LOG_STD
    numbers: tuple[str, ...] = ()

    @property
    def outputs(self) -> int:
        return 2 * self.bounds.size + self.free

    @property
    def free(self) -> int:
        return len(self.numbers)

    def _draw(self, out: NDArray[np.float32], arguments: tuple[Any, ...]) -> int:
        return int(_draw_squashed(out, *self.log_std, *arguments))


@dataclass(frozen=True, slots=True, eq=False)
class Point(_BoxHead):
    """tanh of the network's numbers plus Gaussian noise of width `noise`; scaled, and clipped to finite bounds.
    (Lillicrap et al. 2016, "Continuous control with deep reinforcement learning".)"""

    bounds: Bounds
    numbers: tuple[str, ...] = ("noise", "warm_up")
    spread: float = 0.0

    @property
    def outputs(self) -> int:
        return self.bounds.size + self.free

    @property
    def free(self) -> int:
        return len(self.numbers)

    @property
    def noise_width(self) -> int:
        return self.bounds.size + (self.spread > 0.0)

    def act(
        self, out: NDArray[np.float32], mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, greedy: bool
    ) -> tuple[Array, NDArray[np.float32]]:
        """Implement `Head.act`. With a spread the first number of the noise is the position of a row's environment
        (`RolloutRequest.place`)."""
        if self.spread:
            out, size = out.copy(), self.bounds.size
            out[:, size] = per_env_exploration(out[:, size], noise[:, 0], spread=self.spread)
            noise = noise[:, 1:]
        return _BoxHead.act(self, out, mask, noise, greedy=greedy)

    def _draw(self, out: NDArray[np.float32], arguments: tuple[Any, ...]) -> int:
        size = self.bounds.size
        return int(_draw_clipped(out, out[:, size : size + 1], True, *arguments))


def head_of(config: Mapping[str, Any]) -> Head:
    """Return the head that the `action` part of a spec names. Raise PolicyError for an invalid one."""
    kind = config.get("kind")
    try:
        if kind == "categorical":
            return Categorical(_count(config["actions"]))
        if kind == "multi_categorical":
            return MultiCategorical(tuple(_count(n) for n in config["choices"]))
        if kind == "gaussian":
            return Gaussian(Bounds.of(config), _log_std(config))
        if kind in ("tanh", "point"):
            bounds = Bounds.of(config)
            if not (np.isfinite(bounds.low).all() and np.isfinite(bounds.high).all()):
                raise PolicyError("tanh squashes actions into finite bounds; give some, or use a 'gaussian' head.")
            if kind == "point":
                return Point(bounds, spread=float(config.get("spread", 0.0)))
            return Squashed(bounds, _log_std(config), ("warm_up",) if config.get("warm_up") else ())
    except KeyError as error:
        raise PolicyError(f"the head {kind!r} of a policy spec lacks {error}; it has {sorted(config)}.") from error
    raise PolicyError(
        f"the head of a policy spec is {kind!r}; expected 'categorical', 'multi_categorical', 'gaussian', 'tanh' or 'point'."
    )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PolicyError(f"a head has {value!r} actions; expected a whole number of at least 1.")
    return value


def _log_std(config: Mapping[str, Any]) -> tuple[float, float]:
    least, most = config.get("log_std", LOG_STD)
    if not least < most:
        raise PolicyError(
            f"a head's logarithms of standard deviations lie from {least} to {most}; expected least < most."
        )
    return float(least), float(most)
