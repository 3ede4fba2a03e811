"""What the learner trains, behind one protocol: by autograd (`ludus.algorithms.on_policy.autograd_model`), or by passes that are written
out (`ludus.algorithms.on_policy.kernels`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import Collect
from ludus.algorithms.common.information_states import StateTable
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
    """What models ask of an algorithm's options (`ludus.algorithms.on_policy.config.Gradient` says what they mean)."""

    @property
    def kl_limit(self) -> float | None: ...
    @property
    def max_gradient_norm(self) -> float: ...
    @property
    def step_rows(self) -> int: ...


class Settings(StepOptions, Protocol):
    """What learners ask of an algorithm's options."""

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
    def collect(self) -> Collect: ...


@dataclass(frozen=True, slots=True)
class Told:
    """After the steps of an epoch. scalars: the loss and those of `Model.names`, of the last step that was made, and the norm of its
    gradient. stopped: the policy has gone beyond `kl_limit`, and no step was made since. wrong: something is NaN or infinite."""

    scalars: list[float]
    norm: float
    stopped: bool
    wrong: bool

    @staticmethod
    def nothing(scalars: int) -> Told:
        """Before the first step."""
        return Told([0.0] * scalars, 0.0, stopped=False, wrong=False)

    def what(self, names: Sequence[str]) -> str:
        """What is wrong."""
        if math.isfinite(self.scalars[0]):
            return "a weight" if math.isfinite(self.norm) else "the gradient"
        parts = (name for name, x in zip(names, self.scalars[1:], strict=True) if not math.isfinite(x))
        return f"the {next(parts, 'loss').replace('_', ' ')}"


class Stepped(Protocol):
    """A model whose numbers are in this process's memory."""

    @property
    def options(self) -> StepOptions: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def flat(self) -> Array:
        """The parameters."""
        ...

    def found(self, part: Any, progress: float) -> list[float]:
        """The loss of all ranks' rows, and the scalars of `names`; fills in the gradient."""
        ...

    def move(self, rate: float) -> float:
        """A step of Adam, unless the gradient is no number. Its norm."""
        ...


def steps_here(model: Stepped, parts: Iterable[Any], rate: float, progress: float, last: Told) -> Told:
    """`Model.steps` on a CPU, where numbers are looked at as they come. last: what was told of the epoch before."""
    limit = model.options.kl_limit
    for part in parts:
        scalars = model.found(part, progress)
        if limit is not None and scalars[1 + model.names.index("kl")] > limit:
            return replace(last, stopped=True)
        fine = math.isfinite(scalars[0])
        norm = model.move(rate) if fine else math.nan
        last = Told(scalars, norm, stopped=False, wrong=not math.isfinite(norm))
        if last.wrong:
            return last
    with np.errstate(invalid="ignore", over="ignore"):  # of infinite weights, which the sum is to show
        total = float(model.flat.sum())
    return last if math.isfinite(total) or np.isfinite(model.flat).all() else replace(last, wrong=True)


class Model(Protocol):
    """shape: of an observation as `values` takes it. table: the states of an enumerated game. memory: floats that one slot remembers, 0:
    none. sequence: decisions through which gradients flow back, with a memory. actions: width of masks; 0: there are none. state: width of
    what a central critic sees beside x; 0: there is none. names: of the scalars that `steps` finds beside the loss. by_states: it learns
    from the states that occur, not from rows. trusted: it is ours; its loss is a mean over rows, whatever the rows, and takes None for a
    mask that forbids nothing."""

    spec: PolicySpec
    shape: tuple[int, ...]
    table: StateTable | None
    memory: int
    sequence: int
    actions: int
    state: int
    by_states: bool
    trusted: bool

    placement: Placement

    @property
    def names(self) -> tuple[str, ...]: ...

    def values(
        self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """(values [n], memory after [S, M]) of rows x, with the states [n, width] of a central critic, as `ActorCritic.unroll` takes
        memory."""
        ...

    def log_prob(self, batch: Batch) -> Tensor:
        """Log-probabilities [n] of the batch's actions."""
        ...

    def rewards(self, rows: Trajectories, reward: Floats, progress: float) -> Floats:
        """Rewards float64[N] of a rollout, as they are learned from; its statistics see them. progress: of the budget."""
        ...

    def kept(self) -> Any:
        """Parameters, and the optimizer's state: what `restore` goes back to."""
        ...

    def restore(self, snapshot: Any) -> None: ...

    def learning(self, batch: Batch, seed: int) -> AbstractContextManager[Any]:
        """Around the steps of an update; gives what `prepare` takes. seed: of what is random in them."""
        ...

    def prepare(self, rows: Any, which: Sequence[Any] | None) -> Iterable[Any]:
        """What the steps on some units of a batch have in common, for each of these lots (`Batch.part`); None: for all units together."""
        ...

    def steps(self, parts: Iterable[Any], rate: float, progress: float) -> Told:
        """One of Adam for each part, until the policy has gone too far or something is no number. progress: of the budget."""
        ...

    def coefficients(self, progress: float) -> Metrics:
        """Of the loss, as they are now, for metrics."""
        ...

    def learned(self, batch: Batch, progress: float) -> None:
        """After an update from these rows: statistics see them."""
        ...

    def weights(self) -> Weights: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


class Acted(NamedTuple):
    """Columns of a `Batch`, before there are rewards."""

    x: Tensor
    mask: Tensor | None
    action: Tensor
    logp: Tensor


class ActingModel(Model, Protocol):
    """One that can act where it is. distribution: of what its policy's head says."""

    @property
    def distribution(self) -> Distribution: ...

    def outputs(self, x: Tensor) -> Tensor:
        """What the head says of observations [n, *shape]."""
        ...

    def rewards_in_place(
        self, reward: Tensor, progress: float, *, acted: Acted, rows: BlockRows, block: Block
    ) -> Tensor:
        """As `rewards`, of a block's rows float64[n], on their device."""
        ...


# --------------------------------------------------------------------------------------------------------------------


class Inputs:
    """What a model is shown of observations, or of ids in an enumerated game, on its device. Of such a game, there: states float32[I, …]
    and legal bool[I, A]."""

    def __init__(self, model: Model) -> None:
        self._shape, self._device, self._table = model.shape, model.placement.torch, model.table
        self._masked, self._actions = not model.trusted, model.actions
        if self._table is not None:
            self.states, self.legal = self._table.x.to(self._device), to_device(self._table.mask, self._device)

    def __call__(self, observation: Array | Tensor) -> Tensor:
        """float32, or images of uint8 as they are, [n, *shape]; of ids that are unknown (-1), some state's."""
        shape = (len(observation), *self._shape)
        if self._table is not None:
            return self.states[self.index(observation)].reshape(shape)
        if isinstance(observation, np.ndarray):  # here NumPy is faster
            dtype = np.uint8 if observation.dtype == np.uint8 and len(shape) > 2 else np.float32
            return to_device(np.ascontiguousarray(observation, dtype).reshape(shape), self._device)
        there = observation.reshape(shape)
        return there if there.dtype == torch.uint8 and len(shape) > 2 else there.float()

    def mask(self, observation: Array | Tensor, mask: Array | Tensor | None) -> Tensor | None:
        """bool[n, A], of masks that came with observations; None: all is legal."""
        if self._table is not None:
            return self.legal[self.index(observation)]
        if mask is None and self._masked:  # losses of one's own are written for masks
            return torch.ones(len(observation), self._actions, dtype=torch.bool, device=self._device)
        return None if mask is None else to_device(mask, self._device)

    def index(self, ids: Array | Tensor) -> Tensor:
        """int64[n]: which row of the table of states each is; 0 of unknown ones."""
        assert self._table is not None
        return (to_device(ids, self._device).long() - self._table.base).clamp(min=0)
