"""Protocols of what an on-policy learner trains: by autograd (`ludus.algorithms.on_policy.autograd_model`), or by CPU kernels
(`ludus.algorithms.on_policy.kernels`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import CollectConfig
from ludus.algorithms.common.information_states import InformationStates
from ludus.algorithms.common.losses import Distribution
from ludus.algorithms.common.schedule import Schedule
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.rewards.base import LearnedRewardOptions
from ludus.backend.device import Placement, to_device
from ludus.core.types import Array, Metrics, PolicySpec, State, Weights
from ludus.replay.blocks import Block, BlockRows
from ludus.replay.trajectories import Trajectories

Floats = NDArray[np.float64]


class StepOptions(Protocol):
    """Options of an algorithm that models read (`ludus.algorithms.on_policy.config.Gradient` documents them)."""

    @property
    def kl_limit(self) -> float | None: ...
    @property
    def max_gradient_norm(self) -> float: ...
    @property
    def step_rows(self) -> int: ...


class OnPolicyConfig(StepOptions, Protocol):
    """Options of an algorithm that learners read."""

    @property
    def epochs(self) -> int: ...
    @property
    def minibatches(self) -> int: ...
    @property
    def learning_rate(self) -> Schedule: ...
    @property
    def gamma(self) -> float: ...
    @property
    def gae_lambda(self) -> float: ...
    @property
    def discount(self) -> str: ...
    @property
    def correction(self) -> str: ...
    @property
    def rho_bar(self) -> float: ...
    @property
    def c_bar(self) -> float: ...
    @property
    def normalise_advantages(self) -> bool: ...
    @property
    def scale_rewards(self) -> bool: ...
    @property
    def team_rewards(self) -> bool: ...
    @property
    def learned_reward(self) -> LearnedRewardOptions | None: ...
    def collect(self) -> CollectConfig: ...


@dataclass(frozen=True, slots=True)
class StepStats:
    """Result of the gradient steps of one epoch.

    Attributes:
        scalars: The loss and the values of `Model.names`, of the last step.
        grad_norm: Norm of its gradient, before clipping.
        early_stopped: Whether the policy exceeded `kl_limit`; later steps were skipped.
        nonfinite: Whether a loss, gradient or weight became NaN or infinite.
    """

    scalars: list[float]
    grad_norm: float
    early_stopped: bool
    nonfinite: bool

    @staticmethod
    def initial(scalars: int) -> StepStats:
        """Return the statistics before the first step."""
        return StepStats([0.0] * scalars, 0.0, early_stopped=False, nonfinite=False)

    def nonfinite_name(self, names: Sequence[str]) -> str:
        """Return which quantity is not finite, in words."""
        if math.isfinite(self.scalars[0]):
            return "a weight" if math.isfinite(self.grad_norm) else "the gradient"
        parts = (name for name, x in zip(names, self.scalars[1:], strict=True) if not math.isfinite(x))
        return f"the {next(parts, 'loss').replace('_', ' ')}"


METRICS: Final = ("policy_loss", "value_loss", "entropy", "kl")
"""First names of a policy-gradient model's `names`; an algorithm's `extra_metrics` follow, in that order."""


class HostModel(Protocol):
    """A model whose numbers are in this process's memory."""

    @property
    def options(self) -> StepOptions: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def flat(self) -> Array:
        """Return the parameters, float32[size]."""
        ...

    def compute_gradient(self, part: Any, progress: float) -> list[float]:
        """Compute the gradient of all ranks' rows. Return the loss and the scalars of `names`."""
        ...

    def move(self, rate: float) -> float:
        """Take a step of Adam, unless the gradient is not finite. Return its norm."""
        ...


def optimizer_steps_cpu(
    model: HostModel, parts: Iterable[Any], rate: float, progress: float, last: StepStats
) -> StepStats:
    """Run `Model.steps` on a CPU, where numbers are read as they are computed. last: statistics of the epoch before."""
    limit = model.options.kl_limit
    for part in parts:
        scalars = model.compute_gradient(part, progress)
        if limit is not None and scalars[1 + model.names.index("kl")] > limit:
            return replace(last, early_stopped=True)
        is_finite = math.isfinite(scalars[0])
        norm = model.move(rate) if is_finite else math.nan
        last = StepStats(scalars, norm, early_stopped=False, nonfinite=not math.isfinite(norm))
        if last.nonfinite:
            return last
    with np.errstate(invalid="ignore", over="ignore"):  # of infinite weights, which the sum is to show
        total = float(model.flat.sum())
    return last if math.isfinite(total) or np.isfinite(model.flat).all() else replace(last, nonfinite=True)


class Model(Protocol):
    """Parameters and loss of an on-policy algorithm, as `OnPolicyLearner` trains them.

    Implementations: `TorchModel` (autograd, any device) and `KernelModel` (CPU kernels).

    Attributes:
        spec: Spec of the published policy.
        shape: Shape of one observation as `values` takes it.
        table: Information states of an enumerated game, or None.
        memory: Floats of recurrent state per slot; 0: feed-forward.
        sequence: Length of truncated backpropagation through time, in decisions.
        actions: Width of action masks; 0: actions are not discrete.
        state: Width of a central critic's extra input; 0: there is none.
        uses_state_table: Whether it learns from the distinct states of a batch, not from rows.
        mean_reducible: Whether its loss is a mean over rows, whatever they are, and takes None for a mask that allows
            everything; True of Ludus's own.
        placement: Device and backend.
    """

    spec: PolicySpec
    shape: tuple[int, ...]
    table: InformationStates | None
    memory: int
    sequence: int
    actions: int
    state: int
    uses_state_table: bool
    mean_reducible: bool

    placement: Placement

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the scalars that `steps` reports after the loss."""
        ...

    def values(
        self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return (values [n], memory after [S, M]).

        Args:
            x: Observations [n, *shape].
            memory: float32[S, M] before each segment, or None.
            start: int64[S + 1], where segments begin; None: every row is one step.
            state: float32[n, width], input of a central critic, or None.
        """
        ...

    def log_prob(self, batch: Batch) -> Tensor:
        """Return the log-probabilities [n] of the batch's actions."""
        ...

    def rewards(self, rows: Trajectories, reward: Floats, progress: float) -> Floats:
        """Return a rollout's rewards float64[N] as they are learned from, and update their statistics. progress: of the
        budget, in [0, 1]."""
        ...

    def snapshot(self) -> Any:
        """Return copies of the parameters and the optimizer's state, for `restore`."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Restore a `snapshot`."""
        ...

    def learning(self, batch: Batch, seed: int) -> AbstractContextManager[Any]:
        """Return the context of an update's steps, which yields the rows that `prepare` takes. seed: of the random
        numbers in them."""
        ...

    def prepare(self, rows: Any, which: Sequence[Any] | None) -> Iterable[Any]:
        """Return what the steps on each lot of units (`Batch.part`) have in common; None: on all units together."""
        ...

    def steps(self, parts: Iterable[Any], rate: float, progress: float) -> StepStats:
        """Take one step of Adam for each part, until the KL limit is exceeded or a number is not finite. progress: of
        the budget."""
        ...

    def coefficients(self, progress: float) -> Metrics:
        """Return the present coefficients of the loss, as metrics."""
        ...

    def after_update(self, batch: Batch, progress: float) -> None:
        """Update the statistics from the rows of an update."""
        ...

    def weights(self) -> Weights: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


class ActionBatch(NamedTuple):
    """Columns of a `Batch`, before there are rewards."""

    x: Tensor
    mask: Tensor | None
    action: Tensor
    logp: Tensor


class ActingModel(Model, Protocol):
    """A model that can act on its device. distribution: of its policy's outputs."""

    @property
    def distribution(self) -> Distribution: ...

    def outputs(self, x: Tensor) -> Tensor:
        """Return the head's outputs for observations [n, *shape]."""
        ...

    def rewards_on_device(
        self, reward: Tensor, progress: float, *, acted: ActionBatch, rows: BlockRows, block: Block
    ) -> Tensor:
        """Return the `rewards` of a block's rows float64[n], on their device."""
        ...


# --------------------------------------------------------------------------------------------------------------------


class Inputs:
    """Converts observations, or ids of an enumerated game, to a model's inputs on its device. For such a game it holds
    states float32[I, …] and legal bool[I, A] there."""

    def __init__(self, model: Model) -> None:
        self._shape, self._device, self._table = model.shape, model.placement.torch, model.table
        self._masked, self._actions = not model.mean_reducible, model.actions
        if self._table is not None:
            self.states, self.legal = self._table.x.to(self._device), to_device(self._table.mask, self._device)

    def __call__(self, observation: Array | Tensor) -> Tensor:
        """Return inputs [n, *shape]: float32, or uint8 images unchanged; for unknown ids (-1) those of some state."""
        shape = (len(observation), *self._shape)
        if self._table is not None:
            return self.states[self.index(observation)].reshape(shape)
        if isinstance(observation, np.ndarray):  # here NumPy is faster
            dtype = np.uint8 if observation.dtype == np.uint8 and len(shape) > 2 else np.float32
            return to_device(np.ascontiguousarray(observation, dtype).reshape(shape), self._device)
        there = observation.reshape(shape)
        return there if there.dtype == torch.uint8 and len(shape) > 2 else there.float()

    def mask(self, observation: Array | Tensor, mask: Array | Tensor | None) -> Tensor | None:
        """Return masks bool[n, A] of observations; None: everything is legal."""
        if self._table is not None:
            return self.legal[self.index(observation)]
        if mask is None and self._masked:  # losses of one's own are written for masks
            return torch.ones(len(observation), self._actions, dtype=torch.bool, device=self._device)
        return None if mask is None else to_device(mask, self._device)

    def index(self, ids: Array | Tensor) -> Tensor:
        """Return the rows int64[n] of the state table; 0 for unknown ids."""
        assert self._table is not None
        return (to_device(ids, self._device).long() - self._table.base).clamp(min=0)
