"""From a network's outputs to actions: what an action space makes of numbers, for acting. The same densities for learning, in torch, are in
`ludus.learners.losses`.

A head is chosen by the `action` part of a `PolicySpec.config`:

    {"kind": "categorical", "actions": A}                  A logits; int32[n] actions
    {"kind": "multi_categorical", "choices": [A_0, …]}     logits side by side; int32[n, d] actions
    {"kind": "gaussian", "low", "high", "shape"}           means and log standard deviations; clipped to the bounds
    {"kind": "tanh", "low", "high", "shape"}               the same, squashed into the bounds by tanh

Box actions are scaled: the network's numbers lie in [-1, 1] where both bounds are finite. A clipped Gaussian has probability masses at its
bounds, and its logp there is the mass's logarithm: that of the action which was played, exactly. (Fujita and Maeda 2018, "Clipped action
policy gradient".)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri

from ludus.core.errors import PolicyError
from ludus.core.types import Array
from ludus.policies.categorical import sample

LEAST = 2.0**-25  # half of the least float32 uniform that is not 0
LEAST_LOG_STD, MOST_LOG_STD = -5.0, 2.0  # of a network's log standard deviations (Haarnoja et al. 2018 have -20 and 2)
MOST = 1.0 - 2.0**-20  # what tanh is taken for where it has rounded to 1
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)

Floats: TypeAlias = NDArray[np.float64]


class Head(Protocol):
    """What an action space makes of outputs float32[n, outputs]. free: how many of the outputs, the last ones, are parameters that do not
    depend on the observation."""

    @property
    def outputs(self) -> int: ...
    @property
    def free(self) -> int: ...
    @property
    def noise_width(self) -> int: ...

    def act(
        self, out: NDArray[np.float32], mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, greedy: bool
    ) -> tuple[Array, NDArray[np.float32]]:
        """(actions, logp float32[n]) from noise float32[n, noise_width]; greedy: the most probable ones, of which logp is 0."""
        ...


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of `outputs` actions, legal ones only."""

    outputs: int
    free: int = 0
    noise_width: int = 1

    def act(
        self, out: NDArray[np.float32], mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, greedy: bool
    ) -> tuple[Array, NDArray[np.float32]]:
        return sample(out, mask, noise, actions=self.outputs, greedy=greedy)


@dataclass(frozen=True, slots=True)
class MultiCategorical:
    """One of choices[k] in each place k, independently. Masks bool[n, Σ choices] lie side by side as the logits do."""

    choices: tuple[int, ...]
    free: int = 0

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


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Of box actions, flat float64[size]. action = middle + half × the network's number; clipped to low and high, which may be infinite."""

    low: Floats
    high: Floats
    middle: Floats
    half: Floats
    shape: tuple[int, ...]

    @staticmethod
    def of(config: Mapping[str, Any]) -> Bounds:
        """Raises PolicyError if they are wrong."""
        low = np.array([-np.inf if bound is None else float(bound) for bound in config["low"]])
        high = np.array([np.inf if bound is None else float(bound) for bound in config["high"]])
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

    def clipped(self, scaled: Floats) -> NDArray[np.float32]:
        """The network's numbers float64[n, size] as flat actions."""
        action = (self.middle + self.half * scaled).astype(np.float32)
        return np.clip(action, self.low.astype(np.float32), self.high.astype(np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class Gaussian:
    """Normal numbers, clipped to the bounds. Standard deviations do not depend on the observation."""

    bounds: Bounds

    @property
    def outputs(self) -> int:
        return 2 * self.bounds.size

    @property
    def free(self) -> int:
        return self.bounds.size

    @property
    def noise_width(self) -> int:
        return self.bounds.size

    def act(
        self, out: NDArray[np.float32], mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, greedy: bool
    ) -> tuple[Array, NDArray[np.float32]]:
        del mask  # of whole numbers
        mean, std, normal = _moments(out, noise, self.bounds.size)
        action = self.bounds.clipped(mean if greedy else mean + std * normal)
        logp = np.zeros(len(out)) if greedy else clipped_log_prob(mean, std, action, self.bounds).sum(axis=1)
        return action.reshape(len(out), *self.bounds.shape), logp.astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Squashed:
    """tanh of normal numbers, scaled to finite bounds. Standard deviations are the network's."""

    bounds: Bounds
    free: int = 0

    @property
    def outputs(self) -> int:
        return 2 * self.bounds.size

    @property
    def noise_width(self) -> int:
        return self.bounds.size

    def act(
        self, out: NDArray[np.float32], mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, greedy: bool
    ) -> tuple[Array, NDArray[np.float32]]:
        del mask
        mean, std, normal = _moments(out, noise, self.bounds.size)
        action = self.bounds.clipped(np.tanh(mean if greedy else mean + std * normal))
        logp = np.zeros(len(out)) if greedy else squashed_log_prob(mean, std, action, self.bounds).sum(axis=1)
        return action.reshape(len(out), *self.bounds.shape), logp.astype(np.float32)


def head_of(config: Mapping[str, Any]) -> Head:
    """The head that the `action` part of a spec names. Raises PolicyError for one that is wrong."""
    kind = config.get("kind")
    try:
        if kind == "categorical":
            return Categorical(_count(config["actions"]))
        if kind == "multi_categorical":
            return MultiCategorical(tuple(_count(n) for n in config["choices"]))
        if kind == "gaussian":
            return Gaussian(Bounds.of(config))
        if kind == "tanh":
            bounds = Bounds.of(config)
            if not (np.isfinite(bounds.low).all() and np.isfinite(bounds.high).all()):
                raise PolicyError("tanh squashes actions into finite bounds; give some, or use a 'gaussian' head.")
            return Squashed(bounds)
    except KeyError as error:
        raise PolicyError(f"the head {kind!r} of a policy spec lacks {error}; it has {sorted(config)}.") from error
    raise PolicyError(
        f"the head of a policy spec is {kind!r}; expected 'categorical', 'multi_categorical', 'gaussian' or 'tanh'."
    )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PolicyError(f"a head has {value!r} actions; expected a whole number of at least 1.")
    return value


def _moments(out: NDArray[np.float32], noise: NDArray[np.float32], size: int) -> tuple[Floats, Floats, Floats]:
    """Means, standard deviations and standard normal numbers float64[n, size]. Raises PolicyError for NaN."""
    out64 = out[:, : 2 * size].astype(np.float64)
    if not np.isfinite(out64).all():
        row = int(np.argmin(np.isfinite(out64).all(axis=1)))
        raise PolicyError(
            f"row {row} of {len(out)}: the policy's outputs are {out[row].tolist()}; check the observations and the weights."
        )
    log_std = np.clip(out64[:, size:], LEAST_LOG_STD, MOST_LOG_STD)
    return out64[:, :size], np.exp(log_std), ndtri(np.maximum(noise.astype(np.float64), LEAST))


def clipped_log_prob(mean: Floats, std: Floats, action: Array, bounds: Bounds) -> Floats:
    """float64[n, size]: log-density of each entry of flat actions of a clipped Gaussian; at the bounds, the log of the mass there."""
    low, high = bounds.low.astype(np.float32), bounds.high.astype(np.float32)
    z = ((action - bounds.middle) / bounds.half - mean) / std
    density = -0.5 * z * z - np.log(std) - _HALF_LOG_TWO_PI - np.log(bounds.half)
    return np.where(action <= low, log_ndtr(z), np.where(action >= high, log_ndtr(-z), density))


def squashed_log_prob(mean: Floats, std: Floats, action: Array, bounds: Bounds) -> Floats:
    """float64[n, size]: log N(atanh u) - log(1 - u²) - log half, u being the scaled entry. (Haarnoja et al. 2018, appendix C.)"""
    z = np.arctanh(np.clip((action - bounds.middle) / bounds.half, -MOST, MOST))
    standard = (z - mean) / std
    correction = 2.0 * (math.log(2.0) - z - np.logaddexp(0.0, -2.0 * z))  # log(1 - tanh²), without cancellation
    return -0.5 * standard**2 - np.log(std) - _HALF_LOG_TWO_PI - correction - np.log(bounds.half)
