"""Inputs of reward networks: decisions with what followed them, observations and actions as numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.losses import CategoricalDistribution, MultiCategoricalDistribution
from ludus.algorithms.common.space_checks import byte_scale, one_space
from ludus.algorithms.common.statistics import RunningMoments
from ludus.algorithms.rewards.base import NOTHING_AFTER
from ludus.backend.device import to_device, to_numpy
from ludus.core.errors import TrainingError
from ludus.core.types import Array, EnvSpec, SegmentEnd, State
from ludus.envs.spaces import Choices
from ludus.policies.specs import float32_bounds
from ludus.replay.trajectories import Trajectories

Index = NDArray[np.int64]
BOUND = 5.0
"""Normalised observations are clipped to ± this. (Burda et al. 2019, section 2.4.)"""
_ROWS = 1024  # whose statistics are taken at a time


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """N decisions.

    Attributes:
        observation: [N, *shape], as in `Trajectories` (int32[N] ids where the environment is enumerated).
        action: [N, …].
        mask: bool[N, A], or None.
        after: [N, *shape], the agent's next observation.
        known: bool[N], whether that is known (an id of -1 is not, nor what `NOTHING_AFTER` flags).
        ended: bool[N], whether the episode terminated with the decision.
    """

    observation: Array
    action: Array
    mask: NDArray[np.bool_] | None
    after: Array
    known: NDArray[np.bool_]
    ended: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.action)

    @staticmethod
    def of(rows: Trajectories, *, enumerated: bool) -> Steps:
        """Return the rows of trajectories."""
        steps = Steps.from_segments(
            rows.observation,
            rows.action,
            rows.mask,
            start=rows.start,
            tail=rows.tail,
            bootstrap=rows.bootstrap_observation,
            enumerated=enumerated,
        )
        nothing = rows.extras.get(NOTHING_AFTER)
        return steps if nothing is None else replace(steps, known=steps.known & ~nothing)

    @staticmethod
    def from_segments(
        observation: Array,
        action: Array,
        mask: NDArray[np.bool_] | None,
        *,
        start: Index,
        tail: NDArray[np.int8],
        bootstrap: Array,
        enumerated: bool,
    ) -> Steps:
        """Return the steps of segments, none of them empty: start int64[S + 1], tail int8[S] and bootstrap [S, *shape]
        as in `Trajectories`."""
        last = start[1:] - 1
        after = np.empty_like(observation)
        after[:-1] = observation[1:]
        after[last] = bootstrap
        ended = np.zeros(len(action), np.bool_)
        ended[last] = tail == SegmentEnd.TERMINATED
        known = after >= 0 if enumerated else np.ones(len(action), np.bool_)
        return Steps(observation, action, mask, after, known, ended)


# --------------------------------------------------------------------------------------------------------------------


class Observations:
    """Observations of the agents in some seats as numbers float32[n, *shape]: decoded ids of an enumerated game; uint8
    images in 0 … 1; or normalised by running mean and standard deviation, clipped to ± `BOUND`."""

    def __init__(
        self, env: EnvSpec, seats: tuple[int, ...], *, what: str, normalise: bool, device: torch.device
    ) -> None:
        """what: Name of the network, for messages. Raise ScenarioError if the seats' spaces differ."""
        space = one_space(env, seats, algorithm=what)[0]
        enumeration = env.enumeration
        self._table = None if enumeration is None else enumeration.observation
        self.shape = tuple(space.shape or ()) if enumeration is None else enumeration.observation.shape[1:]
        self.shape = self.shape or (1,)
        self.enumerated, self._what, self.device = enumeration is not None, what, device
        self._scale = byte_scale(env, space)
        self.moments = RunningMoments(self.shape) if normalise else None
        self._settle()

    @property
    def size(self) -> int:
        """Return the number of entries of one observation."""
        return math.prod(self.shape)

    def update_statistics(self, observation: Array) -> None:
        """Count observations [n, …] for the statistics. Raise TrainingError if one is not finite."""
        if self.moments is None or not len(observation):
            return
        for at in range(0, len(observation), _ROWS):
            part = self._on_host(observation[at : at + _ROWS])
            if part.dtype.kind == "f" and not np.isfinite(part).all():
                raise TrainingError(f"{self._what}: an observation is NaN or infinite; look at the environment.")
            self.moments.add(part)
        self._settle()

    def to_tensor(self, observation: Array) -> Tensor:
        """Return observations [n, *shape] on the device, not normalised: float32, or uint8 images."""
        return to_device(self._on_host(observation), self.device)

    def normalize(self, raw: Tensor) -> Tensor:
        """Return float32[n, *shape] of the result of `to_tensor`, or of some of its rows."""
        x = raw.float()
        if self.moments is None:
            return x if self._scale == 1.0 else x * self._scale
        return ((x - self._mean) / self._std).clamp(-BOUND, BOUND)

    def _on_host(self, observation: Array) -> Array:
        rows = observation if self._table is None else self._table[np.maximum(observation, 0)]
        images = rows.dtype == np.uint8 and len(self.shape) > 2
        return np.ascontiguousarray(rows, None if images else np.float32).reshape(len(rows), *self.shape)

    def _settle(self) -> None:
        if self.moments is not None:
            std = np.sqrt(self.moments.var + 1e-8)
            mean, std = (np.ascontiguousarray(part, np.float32) for part in (self.moments.mean, std))
            self._mean, self._std = to_device(mean, self.device), to_device(std, self.device)

    def state_dict(self) -> State:
        return {} if self.moments is None else self.moments.state_dict()

    def load_state_dict(self, state: State) -> None:
        if self.moments is not None:
            self.moments.load_state_dict(state)
            self._settle()


class Actions:
    """Actions as numbers float32[n, width]: discrete ones as one-hot vectors, concatenated where there are several;
    those of a box scaled to -1 … 1 between their bounds, unbounded ones unchanged."""

    def __init__(self, env: EnvSpec, seats: tuple[int, ...], *, what: str, device: torch.device) -> None:
        """what: Name of the network, for messages. Raise ScenarioError if the seats' spaces differ."""
        space = one_space(env, seats, algorithm=what)[1]
        self._choices, self.device = Choices.of(space), device
        if env.enumeration is not None:
            self._choices = Choices(
                np.array([env.enumeration.mask.shape[1]]), np.zeros(1, np.int64), env.enumeration.mask.shape[1]
            )
        if self._choices is None:
            assert isinstance(space, Box)
            low, high = (bound.ravel().astype(np.float64) for bound in float32_bounds(space))
            finite = np.isfinite(low) & np.isfinite(high) & (low < high)
            self._middle = np.where(finite, (np.where(finite, low, 0.0) + np.where(finite, high, 0.0)) / 2, 0.0)
            self._half = np.where(finite, (np.where(finite, high, 1.0) - np.where(finite, low, 0.0)) / 2, 1.0)
            self.width = len(low)
        else:
            self.width = self._choices.width
            counts = tuple(self._choices.counts.tolist())
            self._distribution = CategoricalDistribution() if len(counts) == 1 else MultiCategoricalDistribution(counts)

    def numbers(self, action: Array) -> Array:
        """Return actions as numbers float32[n, width]."""
        flat = action.reshape(len(action), math.prod(action.shape[1:]))  # of no rows -1 would say nothing
        if self._choices is None:
            return ((flat - self._middle) / self._half).astype(np.float32)
        out = np.zeros((len(flat), self.width), np.float32)
        np.put_along_axis(out, self._choices.starts + flat.astype(np.int64), 1.0, axis=1)
        return out

    def to_tensor(self, action: Array) -> Tensor:
        """Return `numbers` on the device."""
        return to_device(self.numbers(action), self.device)

    def error(self, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
        """Return the error [n] of a network's outputs [n, width] for actions as numbers [n, width]: -log p within the
        legal ones of discrete actions, half the squared distance of those in a box."""
        if self._choices is None:
            return 0.5 * (out - action).square().sum(dim=1)
        parts = torch.split_with_sizes(action, self._choices.counts.tolist(), 1)
        action_index = torch.stack([part.argmax(dim=1) for part in parts], dim=1)
        return -self._distribution.log_prob(out, action_index[:, 0] if len(parts) == 1 else action_index, mask)


def masks_of(env: EnvSpec, steps: Steps) -> NDArray[np.bool_] | None:
    """Return legal actions bool[N, A] of the steps; None: all are."""
    return steps.mask if env.enumeration is None else env.enumeration.mask[steps.observation]


_PART = 4096  # rows


def in_parts(function, rows: int) -> NDArray[np.float64]:  # type: ignore[no-untyped-def]
    """Return float64[rows] of `function(slice)`, evaluated without gradients on parts of the rows."""
    if not rows:
        return np.zeros(0)
    with torch.no_grad():
        parts = [function(slice(at, min(rows, at + _PART))) for at in range(0, rows, _PART)]
        return to_numpy(torch.cat(parts)).astype(np.float64)
