"""Uniformly random policies: over the legal actions, or over a space of another kind."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ludus.core.errors import PolicyError
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights
from ludus.policies.base import check_mode, entry, integer, integers
from ludus.policies.categorical import CategoricalPolicy
from ludus.policies.heads import MultiCategorical

_LEAST = 2.0**-25  # half of the least float32 uniform that is not 0


class RandomPolicy(CategoricalPolicy):
    """Kind `random`; config as `random_spec` makes it. Both modes are uniform: it has no best action.

    Config `actions`: their number, of which a legal one is sampled; int32[n]. `choices`: one of choices[k] in each
    place k, likewise; int32[n, d]. `low`, `high` and `shape`: a box; float32[n, *shape]. As in Gymnasium, an entry
    without bounds (None) is standard normal, and one with a single bound is beyond it by a standard exponential; logp
    is that of the density.
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        del weights  # it has none
        self.spec = spec
        self._choices: MultiCategorical | None = None
        self._box: _Box | None = None
        if "choices" in spec.config:
            self._choices = MultiCategorical(integers(spec, "choices"))
            self.noise_width = self._choices.noise_width
        elif "low" in spec.config:
            self._box = _Box(spec)
            self.noise_width = self._box.size
        else:
            self.actions = integer(spec, "actions")

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """Implement `CategoricalPolicy.act`; vectors of actions as in the class. Masks of `choices` are concatenated,
        bool[n, Σ choices]."""
        if self._box is None and self._choices is None:
            return super().act(observation, mask, memory, noise, mode=mode)
        check_mode(self, mode)
        if self._box is not None:
            return self._box.draw(noise.astype(np.float64))
        assert self._choices is not None
        if mask is None:
            counts = np.array(self._choices.choices)
            logp = np.full(len(noise), -np.log(counts).sum(), np.float32)
            return PolicyOutput((noise.astype(np.float64) * counts).astype(np.int32), logp)
        level = np.zeros((len(noise), self._choices.outputs), np.float32)
        return PolicyOutput(*self._choices.act(level, mask, noise, greedy=False))

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Implement `CategoricalPolicy.tabulate`; None for vectors of actions."""
        if self._box is not None or self._choices is not None:
            return None
        return super().tabulate(enumeration, player, mode=mode)

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        probs = mask.astype(np.float64)
        return probs / np.maximum(probs.sum(axis=1, keepdims=True), 1.0), {}

    def weights(self) -> Weights:
        return {}


class _Box:
    """Samples from a box of `size` numbers."""

    def __init__(self, spec: PolicySpec) -> None:
        self.shape = integers(spec, "shape")
        self.size = int(np.prod(self.shape))
        self._low, self._high = self._bounds(spec, "low", -np.inf), self._bounds(spec, "high", np.inf)
        if not (self._low <= self._high).all():
            raise PolicyError(f"policy spec 'random': low {self._low.tolist()} is above high {self._high.tolist()}.")

    def _bounds(self, spec: PolicySpec, key: str, missing: float) -> NDArray[np.float64]:
        values = entry(spec, key)
        if not isinstance(values, (list, tuple)) or len(values) != self.size:
            raise PolicyError(
                f"policy spec 'random': {key} is {values!r}; expected {self.size} numbers, or None for no bound."
            )
        return np.array([missing if bound is None else float(bound) for bound in values])

    def draw(self, noise: NDArray[np.float64]) -> PolicyOutput:
        """Return actions float32[n, *shape] and the logarithms of their densities, from noise [n, size]."""
        low, high = self._low, self._high
        below, above = np.isfinite(low), np.isfinite(high)
        action, logp = np.empty_like(noise), np.zeros_like(noise)
        both, none = below & above, ~below & ~above
        width = (high - low)[both]
        action[:, both] = low[both] + width * noise[:, both]
        logp[:, both] = -np.log(np.where(width > 0.0, width, 1.0))
        action[:, none] = normal = ndtri(np.maximum(noise[:, none], _LEAST))
        logp[:, none] = -0.5 * (normal**2 + np.log(2.0 * np.pi))
        for one, start, sign in ((below & ~above, low, 1.0), (above & ~below, high, -1.0)):
            logp[:, one] = np.log1p(-noise[:, one])
            action[:, one] = start[one] - sign * logp[:, one]
        clipped = np.clip(action.astype(np.float32), low.astype(np.float32), high.astype(np.float32))
        return PolicyOutput(clipped.reshape(len(noise), *self.shape), logp.sum(axis=1).astype(np.float32))
