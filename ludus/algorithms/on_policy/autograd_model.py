"""Models that autograd trains, on any device: the base class, and custom modules with a custom loss. The networks of the
policy-gradient family are in `ludus.algorithms.on_policy.learner`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import CategoricalDistribution, Distribution, log_prob
from ludus.algorithms.on_policy.batch import Batch, padded_size
from ludus.algorithms.on_policy.model import ActionBatch, Model, OnPolicyConfig, StepStats, fresh_seed, state_table
from ludus.backend.device import UpdateCost, resolve_placement, to_device
from ludus.backend.mlp import Layout
from ludus.backend.network import FlatModule, ModuleAdam, NonFiniteGuard, draws_numbers, learning, multiplications
from ludus.backend.ranks import GradientSum, broadcast_from_rank0
from ludus.core.errors import LudusError, PolicyError, ScenarioError
from ludus.core.types import Array, State, Weights
from ludus.core.user_code import describe_error
from ludus.policies.actor_critic import arrays_of, load_arrays
from ludus.policies.torch_module import make_networks, networks_of, require_critic

if TYPE_CHECKING:
    from ludus.algorithms.on_policy.config import OnPolicy
    from ludus.replay.blocks import Block, BlockRows

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")
_Part = TypeVar("_Part")

_TOLERANCE = 1e-3  # of a loss that is summed in another order
_SMALL = 1e9
"""Multiplications of a step below which a GPU spends its time on beginning kernels, whatever their rows: to compile fewer sizes is worth
more than to have no rows that weigh nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class VersionedBatches:
    """Parts of a batch whose gradients are taken at different parameters, for one step on the mean over all rows.
    parts: (the parameters float32[size], None: the present ones; this rank's share; rows of all ranks)."""

    parts: Sequence[tuple[Tensor | None, Batch, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Epochs:
    """All epochs of an update whose numbers are read once, at its end.

    Attributes:
        batch: Its rows.
        index: int64[steps, n], the rows of each step; -1: none.
    """

    batch: Batch
    index: Tensor


class TorchModel(Model):
    """Base of models that autograd trains. Subclasses implement `loss`.

    Attributes:
        module: Module whose weights are published.
        distribution: Of the policy's outputs.
        cuda_graph_safe: Whether a step depends only on its arguments and on what is on the device.
        uses_cuda_graph: Whether its steps are kept as CUDA graphs.
        no_compile_reason: Why it is not compiled; "": nothing is in the way.
        small: Whether a GPU spends a step's time on beginning kernels.
        draws: Whether its networks, or its loss, may draw random numbers.
        has_statistics: Whether statistics in memory are updated after each update.
    """

    has_statistics = False
    cuda_graph_safe, no_compile_reason = False, ""
    distribution: Distribution = CategoricalDistribution()
    module: nn.Module

    def __init__(
        self,
        config: OnPolicyConfig,
        module: nn.Module,
        context: LearnerContext,
        *,
        names: tuple[str, ...] = (),
        layouts: Iterable[Layout] = (),
        no_kernel_reason: str = "",
    ) -> None:
        """layouts: see `FlatModule`. no_kernel_reason: why CPU kernels do not train it."""
        self.names, self.table, self._ranks, self.config = names, state_table(context), context.ranks, config
        no_compile_reason = (
            "it remembers, and its sequences have many lengths" if self.memory else self.no_compile_reason
        )
        whole = self.cuda_graph_safe and self.mean_reducible and not no_compile_reason
        work = UpdateCost(
            multiplications(module),
            config.step_rows,
            has_cpu_kernel=False,
            no_kernel_reason=no_kernel_reason,
            no_compile_reason=no_compile_reason,
            kind="graph" if whole and context.ranks.size == 1 else "step",
        )
        self.placement = resolve_placement(context.device, work)
        self._fixed = self.mean_reducible and not no_compile_reason  # its means can leave rows out
        self.small = work.multiplications * work.rows < _SMALL
        self._sizes: Literal[2, 8] = 2 if self.small and self.placement.device != "cpu" else 8
        self.uses_cuda_graph = (
            self.cuda_graph_safe and self._fixed and context.ranks.size == 1 and self.placement.graphs is not None
        )
        # Of the class: methods of this object would close a circle.
        self._loss = self.placement.compiled(type(self).loss, part=self.uses_cuda_graph)
        self._whole = self.placement.repeated(type(self)._gradient_steps)
        self._epochs = self.placement.repeated(type(self)._minibatch_steps)
        self._repeated: dict[Callable[..., Any], Callable[..., Any]] = {}
        self.parameters = FlatModule(module, sums=1 + len(names), device=self.placement.torch, layouts=layouts)
        # to seed torch's streams takes a tenth of a small update; a loss of one's own may draw, too
        self.draws = not self.cuda_graph_safe or draws_numbers(module)
        self.adam = ModuleAdam(self.parameters)
        if self._ranks.size > 1:
            broadcast_from_rank0(self._ranks, self.parameters.values)
        self._joint = GradientSum(self.parameters, self._ranks)
        self._checked = self.mean_reducible or context.ranks.size == 1
        self._guard = NonFiniteGuard(self.placement.torch)
        # Off the CPU, always the same memory: scalars and norm of the last step, and whether the policy has gone too far.
        self._last = torch.zeros(2 + len(names), device=self.placement.torch)
        self._stopped = torch.zeros((), dtype=torch.bool, device=self.placement.torch)
        self._before: Any = None  # the last state without a number that is not finite, of updates that are read later
        self._begin()

    def _begin(self) -> None:
        super()._begin()
        self._last.zero_()
        self._stopped.zero_()

    def loss(self, batch: Batch, coefficients: Sequence[float]) -> tuple[Tensor, Sequence[Tensor]]:
        """Return (the loss, means over rows of the scalars of `names`) of at least one row. coefficients: as
        `loss_coefficients` returns them."""
        raise NotImplementedError

    def loss_coefficients(self, progress: float) -> tuple[float, ...]:
        """Return the coefficients of the loss that change with the progress of the budget."""
        return ()

    def snapshot(self) -> Any:
        buffers = {name: buffer.clone() for name, buffer in self.parameters.module.named_buffers()}
        return self.parameters.values.clone(), buffers, self.adam.snapshot()

    def restore(self, snapshot: Any) -> None:
        values, buffers, adam = snapshot
        self.parameters.values.copy_(values)
        for name, buffer in self.parameters.module.named_buffers():
            buffer.copy_(buffers[name])
        self.adam.restore(adam)
        self._guard.nonfinite.zero_()

    @contextmanager
    def at(self, parameters: Tensor | None) -> Iterator[None]:
        """Use other parameters float32[size] inside the context, with statistics as they are. None: the present ones."""
        if parameters is None:
            yield
            return
        values = self.parameters.values
        present = values.clone()
        values.copy_(parameters)
        try:
            yield
        finally:
            values.copy_(present)

    @contextmanager
    def learning(self, batch: Batch, seed: int) -> Iterator[Batch]:
        self._begin()
        if not self._checked:
            self._require_mean(batch)
        with learning(self.parameters.module, seed + self._ranks.rank if self.draws else None):
            yield batch

    def prepare(self, rows: Batch, which: Sequence[NDArray[np.int64] | Tensor] | None) -> Iterator[tuple[Batch, int]]:
        """Yield (this rank's share, rows of all ranks)."""
        for part in [rows] if which is None else map(rows.part, which):
            yield self._share(part), len(part)

    def _share(self, batch: Batch) -> Batch:
        return batch if self._ranks.size == 1 else batch.part(self._ranks.share(batch.units))

    def prepare_epochs(self, batch: Batch, orders: Tensor, count: int) -> Epochs | None:
        """Return an update's epochs as one part, which is one graph; None where steps are no small graphs, or something is decided by what
        is read after an epoch.

        Args:
            batch: Its rows, without memory.
            orders: int64[epochs, n], the order of the rows in each.
            count: Minibatches of an epoch.
        """
        if not (self.uses_cuda_graph and self.small) or self.config.kl_limit is not None:
            return None
        size = padded_size(-(-len(batch) // count), sizes=self._sizes)
        where = np.full((count, size), -1)
        for row, part in zip(where, np.array_split(np.arange(len(batch)), count), strict=True):
            row[: len(part)] = part
        place = to_device(where.ravel(), orders.device)
        index = torch.where(place >= 0, orders[:, place.clamp(min=0)], -1)
        return Epochs(batch, index.view(-1, size))

    def steps(
        self, parts: Iterable[tuple[Batch, int] | VersionedBatches | Epochs], rate: float, progress: float
    ) -> StepStats:
        """Take the steps. Off the CPU decisions are masks on the device, and numbers are read once."""
        if self.placement.device == "cpu" and not self.uses_cuda_graph:
            return super().steps(parts, rate, progress)
        coefficients = self.loss_coefficients(progress)
        for part, times in _runs(parts):
            if isinstance(part, Epochs):
                self._epochs(self, self._shaped(part.batch), part.index, rate, coefficients)
                continue
            if self.uses_cuda_graph and not isinstance(part, VersionedBatches):
                self._whole(self, self._shaped(part[0]), rate, coefficients, times)
                continue
            for _ in range(times):
                self._move(self.gradient(part, progress), rate)
        self._guard.watch(self.parameters.values)
        (*scalars, norm, stopped), wrong = self._guard.read([*self._last, self._stopped])
        return StepStats(scalars, norm, bool(stopped), wrong)

    def take_steps(
        self, batch: Batch, index: Tensor | None, rate: float, coefficients: Sequence[float], epochs: int
    ) -> Tensor:
        """Run all steps of an update on rows of which some have weight 0, without reading a number. Once something is not finite, nothing
        moves any more, until `undo_failed_updates` is called.

        Args:
            batch: Its rows; without any of a weight above 0 nothing moves.
            index: int64[steps, n], as of `Epochs`; None: `epochs` steps on the whole batch.
            rate: Step size.
            coefficients: Of `loss_coefficients`.
            epochs: Passes over the batch.

        Returns:
            float32[3 + len(names)]: of the last step the loss, the values of `names` and the norm of the gradient; and whether something
            was not finite.
        """
        self._keep_state()
        self._begin()
        with learning(self.parameters.module, None):
            if index is None:
                self._stopped.copy_(~(batch.weight > 0).any() if batch.weight is not None else self._stopped)
                self._gradient_steps(batch, rate, coefficients, epochs)
            else:
                self._minibatch_steps(batch, index, rate, coefficients)
        self._guard.watch(self.parameters.values)
        return torch.cat([self._last, self._guard.nonfinite.float().view(1)])

    def repeated(self, step: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
        """Return a function of tensors of the device as `Placement.repeated` does; its graphs live as long as this model."""
        if step not in self._repeated:
            self._repeated[step] = self.placement.repeated(step)
        return self._repeated[step]

    def _keep_state(self) -> None:
        """Keep a copy of parameters and optimizer, unless something has not been finite since that was read last."""
        wrong = self._guard.nonfinite
        if self.adam.on_cpu:
            self._before = self._before if wrong else self.snapshot()
            return
        tensors = self.parameters.values, *self.adam.tensors
        if self._before is None:
            self._before = [torch.empty_like(tensor) for tensor in tensors]
        for copy, tensor in zip(self._before, tensors, strict=True):
            copy.copy_(torch.where(wrong, copy, tensor))

    def undo_failed_updates(self) -> None:
        """Return to the state before the first update of `take_steps` in which something was not finite."""
        if self.adam.on_cpu:
            self.restore(self._before)
            return
        self._guard.nonfinite.zero_()
        for tensor, copy in zip((self.parameters.values, *self.adam.tensors), self._before, strict=True):
            tensor.copy_(copy)

    def _gradient_steps(self, batch: Batch, rate: float, coefficients: Sequence[float], times: int) -> None:
        """Run whole steps of a single rank on the same rows, `times` of them."""
        for _ in range(times):
            self._fill(batch, coefficients)
            self._move(self.parameters.grad[self.parameters.size :].clone(), rate)

    def _minibatch_steps(self, batch: Batch, index: Tensor, rate: float, coefficients: Sequence[float]) -> None:
        """Run a whole step of a single rank on each row of `index`, as `Epochs` describes."""
        for rows in index.unbind(0):
            there = rows >= 0
            if batch.weight is not None:  # of rows that are not counted, a minibatch may have none
                self._stopped.copy_(~there.any())
            part = batch.part(rows.clamp(min=0))
            self._fill(replace(part, weight=there.to(torch.float32) / there.sum().clamp(min=1)), coefficients)
            self._move(self.parameters.grad[self.parameters.size :].clone(), rate)

    def _move(self, scalars: Tensor, rate: float) -> None:
        """Step along the computed gradient of a loss with these scalars, without reading numbers."""
        limit, wrong = self.config.kl_limit, self._guard.nonfinite.clone()
        if limit is not None:
            self._stopped |= scalars[1 + self.names.index("kl")] > limit
        norm = self._guard.step(
            self.adam, scalars[0], rate=rate, max_norm=self.config.max_gradient_norm, unwanted=self._stopped
        )
        stats = torch.cat([scalars, norm.to(scalars).view(1)])
        self._last.copy_(torch.where(self._stopped | wrong, self._last, stats))  # of the last made, or that was to be

    @property
    def flat(self) -> Array:
        return self.parameters.flat

    def compute_gradient(self, part: tuple[Batch, int] | VersionedBatches, progress: float) -> list[float]:
        return list(self.gradient(part, progress).tolist())

    def move(self, rate: float) -> float:
        return self.adam.step_on_cpu(rate=rate, max_norm=self.config.max_gradient_norm)

    def gradient(self, part: tuple[Batch, int] | VersionedBatches, progress: float) -> Tensor:
        """Compute the parameters' gradient. Return the loss of all ranks' rows and the scalars of `names`, on the
        device."""
        if isinstance(part, VersionedBatches):
            return self._mean_gradient(part, progress)
        (local_batch, joint), parameters = part, self.parameters
        self._joint.begin(len(local_batch) / joint)
        if len(local_batch):
            self._fill(self._shaped(local_batch), self.loss_coefficients(progress))
        else:  # the mean of no rows is not defined
            parameters.zero()
        self._joint.end()
        return parameters.grad[parameters.size :].clone()

    def _mean_gradient(self, batches: VersionedBatches, progress: float) -> Tensor:
        grad, rows = self.parameters.grad, sum(joint for _, _, joint in batches.parts)
        total = torch.zeros_like(grad)
        for parameters, local_batch, joint in batches.parts:
            with self.at(parameters):
                self.gradient((local_batch, joint), progress)
            total += grad * (joint / rows)
        grad.copy_(total)
        return total[self.parameters.size :]

    def _shaped(self, batch: Batch) -> Batch:
        """Return the batch padded to one of few sizes, where each size is another graph."""
        few = self._fixed and (self.uses_cuda_graph or self.placement.compiles)
        return batch.padded(sizes=self._sizes) if few else batch

    def _fill(self, batch: Batch, coefficients: Sequence[float]) -> None:
        """Compute the gradient of at least one row, and the sums behind it."""
        with self.placement.products():
            loss, metrics = self._loss(self, batch, coefficients)
        self.parameters.differentiate(loss)
        sums = self.parameters.grad[self.parameters.size :]
        sums.copy_(torch.stack([loss.detach(), *(metric.detach() for metric in metrics)]))

    def _require_mean(self, batch: Batch) -> None:
        """Raise ScenarioError unless the loss of the batch is the mean of the losses of the ranks' rows, as ranks
        assume."""
        joint, local_batch = len(batch), self._share(batch)
        share = len(local_batch)
        with torch.no_grad():
            coefficients = self.loss_coefficients(0.0)
            whole = float(self.loss(batch, coefficients)[0])
            both = np.array([whole, float(self.loss(local_batch, coefficients)[0]) * share / joint if share else 0.0])
        self._ranks.sum(both)  # the same on all ranks, so that all of them raise
        if abs(both[0] / self._ranks.size - both[1]) > _TOLERANCE * max(1.0, abs(both[1])):
            raise ScenarioError(
                f"{type(self.config).__name__}: the loss of {joint} rows is {whole:.6g}, and {self._ranks.size} ranks make {both[1]:.6g} "
                "of it. With several ranks a loss must be the mean over rows of what each row costs, nothing else; or use one rank."
            )
        self._checked = True

    def outputs(self, x: Tensor) -> Tensor:
        """Return the policy's outputs for observations [n, *shape]."""
        raise NotImplementedError

    def rewards_on_device(
        self, reward: Tensor, progress: float, *, acted: ActionBatch, rows: BlockRows, block: Block
    ) -> Tensor:
        """Return the `rewards` of a block's rows float64[n], on their device."""
        return reward

    def weights(self) -> Weights:
        return arrays_of(self.module)

    def state_dict(self) -> State:
        return {"weights": self.weights(), "adam": self.adam.state_dict()}

    def load_state_dict(self, state: State) -> None:
        load_arrays(self.module, state["weights"])
        self.adam.load_state_dict(state["adam"])


class CustomModel(TorchModel):
    """The modules and the loss of an `OnPolicy` algorithm."""

    config: OnPolicy

    def __init__(self, config: OnPolicy, context: LearnerContext, start: Weights | None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        self.shape: tuple[int, ...] = (int(self.spec.config["inputs"]),)
        self.actions = int(self.spec.config["actions"])
        seed = fresh_seed(context)
        networks = networks_of(self.spec, start) if start is not None else make_networks(self.spec, seed=seed)
        require_critic(self.spec, networks)
        if context.ranks.size > 1:
            _require_no_batch_norm(networks)
        self.module = networks
        self._networks = cast(Mapping[str, nn.Module], networks)
        super().__init__(config, networks, context)

    def values(
        self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        return self._networks["critic"](x).reshape(-1), None

    def outputs(self, x: Tensor) -> Tensor:
        return cast(Tensor, self._networks["policy"](x))

    def log_prob(self, batch: Batch) -> Tensor:
        return log_prob(self.outputs(batch.x), batch.action, batch.mask)

    def loss(self, batch: Batch, coefficients: Sequence[float]) -> tuple[Tensor, Sequence[Tensor]]:
        name = self.spec.config["maker"]
        try:
            loss = self.config.loss(self._networks, batch)
        except LudusError:
            raise
        except Exception as error:
            raise PolicyError(f"{name}: loss() of {len(batch)} rows raised {describe_error(error)}.") from error
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            description = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise PolicyError(
                f"{name}: loss() of {len(batch)} rows answers {description}; expected a scalar, their mean."
            )
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise PolicyError(
                f"{name}: loss() answers a number that depends on no network, so nothing would be learned."
            )
        return loss, ()


def _require_no_batch_norm(networks: nn.Module) -> None:
    for name, module in networks.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ScenarioError(
                f"the network {name!r} is a {type(module).__name__}, whose answers for a row depend on the rows beside it; several ranks, "
                "which have different rows, would not learn what one does. Use LayerNorm, or one rank."
            )


def _runs(parts: Iterable[_Part]) -> Iterator[tuple[_Part, int]]:
    """Yield each part with how often it comes in a row, as the whole batch does in all epochs."""
    last, times = None, 0
    for part in parts:
        if part is last:
            times += 1
            continue
        if last is not None:
            yield last, times
        last, times = part, 1
    if last is not None:
        yield last, times
