"""What an on-policy learner trains: the base class of both backends."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.information_states import InformationStates
from ludus.algorithms.on_policy.batch import Batch
from ludus.backend.device import Placement
from ludus.core import seeding
from ludus.core.types import Array, Metrics, PolicySpec, State, Weights
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.mmd.config import MMD
    from ludus.algorithms.on_policy.config import Gradient

Floats = NDArray[np.float64]
OnPolicyConfig: TypeAlias = "Gradient | MMD"
"""Options of an algorithm. Mirror descent has some of `Gradient`'s as constants."""


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


def fresh_seed(context: LearnerContext) -> int:
    """Return the seed of a task's first weights, the same for all backends."""
    return seeding.key(context.seed, "on-policy", "weights") % 2**63


def state_table(context: LearnerContext) -> InformationStates | None:
    """Return the information states of an enumerated game; None: it is none."""
    enumeration = context.env.enumeration
    return InformationStates.of(enumeration, context.seats) if enumeration is not None else None


class Model(ABC):
    """Parameters and loss of an on-policy algorithm, as `OnPolicyLearner` trains them: by autograd on any device
    (`ludus.algorithms.on_policy.autograd_model.TorchModel`), or by CPU kernels
    (`ludus.algorithms.on_policy.kernels.KernelModel`).

    Attributes:
        config: Options of the algorithm.
        spec: Spec of the published policy.
        names: Names of the scalars that `steps` reports after the loss.
        placement: Device and backend.
        shape: Shape of one observation as `values` takes it.
        table: Information states of an enumerated game, or None.
        actions: Width of action masks; 0: actions are not discrete.
        memory: Floats of recurrent state per slot; 0: feed-forward.
        sequence: Length of truncated backpropagation through time, in decisions.
        state: Width of a central critic's extra input; 0: there is none.
        uses_state_table: Whether it learns from the distinct states of a batch, not from rows.
        mean_reducible: Whether its loss is a mean over rows, whatever they are, and takes None for a mask that allows
            everything; True of Ludus's own.
        inputs: What `Inputs.of` made for it.
    """

    config: OnPolicyConfig
    spec: PolicySpec
    names: tuple[str, ...]
    placement: Placement
    shape: tuple[int, ...]
    table: InformationStates | None
    actions: int
    memory: int = 0
    sequence: int = 1
    state: int = 0
    uses_state_table = False
    mean_reducible = False
    inputs: Any = None
    _last_stats: StepStats

    @abstractmethod
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

    @abstractmethod
    def log_prob(self, batch: Batch) -> Tensor:
        """Return the log-probabilities [n] of the batch's actions."""

    def rewards(self, rows: Trajectories, reward: Floats, progress: float) -> Floats:
        """Return a rollout's rewards float64[N] as they are learned from, and update their statistics. progress: of the
        budget, in [0, 1]."""
        return reward

    # ------------------------------------------------------------------------------------------ one update

    @abstractmethod
    def snapshot(self) -> Any:
        """Return copies of the parameters and the optimizer's state, for `restore`."""

    @abstractmethod
    def restore(self, snapshot: Any) -> None:
        """Restore a `snapshot`."""

    @abstractmethod
    def learning(self, batch: Batch, seed: int) -> AbstractContextManager[Any]:
        """Return the context of an update's steps, which yields the rows that `prepare` takes. seed: of the random
        numbers in them."""

    @abstractmethod
    def prepare(self, rows: Any, which: Sequence[Any] | None) -> Iterable[Any]:
        """Return what the steps on each lot of units (`Batch.part`) have in common; None: on all units together."""

    def steps(self, parts: Iterable[Any], rate: float, progress: float) -> StepStats:
        """Take one step of Adam for each part, until the KL limit is exceeded or a number is not finite. On a CPU,
        where numbers are read as they are computed.

        Args:
            parts: Of `prepare`.
            rate: Step size.
            progress: Of the budget, in [0, 1].
        """
        limit, stats = self.config.kl_limit, self._last_stats
        for part in parts:
            scalars = self.compute_gradient(part, progress)
            if limit is not None and scalars[1 + self.names.index("kl")] > limit:
                stats = replace(stats, early_stopped=True)
                break
            norm = self.move(rate) if math.isfinite(scalars[0]) else math.nan
            stats = StepStats(scalars, norm, early_stopped=False, nonfinite=not math.isfinite(norm))
            if stats.nonfinite:
                break
        else:
            with np.errstate(invalid="ignore", over="ignore"):  # of infinite weights, which the sum is to show
                total = float(self.flat.sum())
            if not math.isfinite(total) and not np.isfinite(self.flat).all():
                stats = replace(stats, nonfinite=True)
        self._last_stats = stats
        return stats

    @property
    @abstractmethod
    def flat(self) -> Array:
        """Return the parameters, float32[size], of a model on a CPU."""

    @abstractmethod
    def compute_gradient(self, part: Any, progress: float) -> list[float]:
        """Compute the gradient of all ranks' rows. Return the loss and the scalars of `names`."""

    @abstractmethod
    def move(self, rate: float) -> float:
        """Take a step of Adam on a CPU, unless the gradient is not finite. Return its norm."""

    def _begin(self) -> None:
        """Reset the statistics of the last step."""
        self._last_stats = StepStats.initial(1 + len(self.names))

    def coefficients(self, progress: float) -> Metrics:
        """Return the present coefficients of the loss, as metrics."""
        return {}

    def after_update(self, batch: Batch, progress: float) -> None:  # noqa: B027 - most models have no statistics
        """Update the statistics from the rows of an update."""

    # ------------------------------------------------------------------------------------------ state

    @abstractmethod
    def weights(self) -> Weights:
        """Return copies of the policy's weights and statistics."""

    @abstractmethod
    def state_dict(self) -> State:
        """Return weights, optimizer and statistics."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Restore a `state_dict`."""


class ActionBatch(NamedTuple):
    """Columns of a `Batch`, before there are rewards."""

    x: Tensor
    mask: Tensor | None
    action: Tensor
    logp: Tensor
