"""Models that autograd trains (`ludus.algorithms.on_policy.model`): custom modules, or the networks of the
policy-gradient family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.information_states import InformationStates
from ludus.algorithms.common.losses import (
    CategoricalDistribution,
    Distribution,
    approximate_kl,
    distribution_of,
    log_prob,
    value_loss,
)
from ludus.algorithms.common.schedule import Schedule
from ludus.algorithms.common.statistics import DiscountedReturns, RunningMoments
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.config import needs_autograd
from ludus.algorithms.on_policy.model import (
    METRICS,
    ActionBatch,
    Floats,
    Model,
    StepOptions,
    StepStats,
    optimizer_steps_cpu,
)
from ludus.backend.device import UpdateCost, resolve_placement, to_numpy
from ludus.backend.mlp import Layout
from ludus.backend.network import FlatModule, learning, multiplications
from ludus.backend.optimizer import ModuleAdam, NonFiniteGuard
from ludus.backend.ranks import GradientSum, broadcast_from_rank0
from ludus.core import seeding
from ludus.core.errors import LudusError, PolicyError, ScenarioError
from ludus.core.types import Array, EnvSpec, Metrics, PolicySpec, State, Weights
from ludus.core.user_code import describe_error
from ludus.policies.actor_critic import (
    ActorCritic,
    Normalizer,
    ReturnScale,
    TeamNetwork,
    agents_in,
    arrays_of,
    layouts,
    load_arrays,
    make_network,
    shapes_of,
)
from ludus.policies.checks import validate_weights
from ludus.policies.torch_module import make_networks, networks_of, require_critic
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.on_policy.config import OnPolicy, PolicyGradient
    from ludus.replay.blocks import Block, BlockRows


def fresh_seed(context: LearnerContext) -> int:
    """Return the seed of a task's first weights, the same for all backends."""
    return seeding.key(context.seed, "on-policy", "weights") % 2**63


def state_table(context: LearnerContext) -> InformationStates | None:
    """Return the information states of an enumerated game; None: it is none."""
    enumeration = context.env.enumeration
    return InformationStates.of(enumeration, context.seats) if enumeration is not None else None


# --------------------------------------------------------------------------------------------------------------------
# By autograd: any module, and a loss of it.

_TOLERANCE = 1e-3  # of a loss that is summed in another order
_SMALL = 1e9
"""Multiplications of a step below which a GPU spends its time on beginning kernels, whatever their rows: to compile fewer sizes is worth
more than to have no rows that weigh nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class VersionedBatches:
    """Parts of a batch whose gradients are taken at different parameters, for one step on the mean over all rows.
    parts: (the parameters float32[size], None: the present ones; this rank's share; rows of all ranks)."""

    parts: Sequence[tuple[Tensor | None, Batch, int]]


class TorchModel:
    """Base of models that autograd trains. Subclasses implement `loss`.

    Attributes:
        cuda_graph_safe: Whether a step depends only on its arguments and on what is on the device.
        module: Module whose weights are published.
    """

    uses_state_table, mean_reducible, memory, no_compile_reason = False, False, 0, ""
    cuda_graph_safe = (
        False  # whether a step depends on what it is given and on what lies on the device, and on nothing else
    )
    distribution: Distribution = CategoricalDistribution()
    module: nn.Module  # whose weights are published

    def __init__(
        self,
        options: StepOptions,
        module: nn.Module,
        context: LearnerContext,
        *,
        names: tuple[str, ...] = (),
        layouts: Iterable[Layout] = (),
        no_kernel_reason: str = "",
    ) -> None:
        """layouts: see `FlatModule`. no_kernel_reason: why CPU kernels do not train it."""
        self.names, self.table, self._ranks, self.options = names, state_table(context), context.ranks, options
        no_compile_reason = (
            "it remembers, and its sequences have many lengths" if self.memory else self.no_compile_reason
        )
        work = UpdateCost(
            multiplications(module),
            options.step_rows,
            has_cpu_kernel=False,
            no_kernel_reason=no_kernel_reason,
            no_compile_reason=no_compile_reason,
        )
        self.placement = resolve_placement(context.device, work)
        self._fixed = self.mean_reducible and not no_compile_reason  # its means can leave rows out
        small = self.placement.device != "cpu" and work.multiplications * work.rows < _SMALL
        self._sizes: Literal[2, 8] = 2 if small else 8
        self._uses_cuda_graph = (
            self.cuda_graph_safe and self._fixed and context.ranks.size == 1 and self.placement.graphs is not None
        )
        # Of the class: methods of this object would close a circle.
        self._loss = self.placement.compiled(type(self).loss, part=self._uses_cuda_graph)
        self._whole = self.placement.repeated(type(self)._gradient_step)
        self.parameters = FlatModule(module, sums=1 + len(names), device=self.placement.torch, layouts=layouts)
        self.adam = ModuleAdam(self.parameters)
        broadcast_from_rank0(self._ranks, self.parameters.values)
        self._joint = GradientSum(self.parameters, self._ranks)
        self._checked = self.mean_reducible or context.ranks.size == 1
        self._guard = NonFiniteGuard(self.placement.torch)
        # Off the CPU, always the same memory: scalars and norm of the last step, and whether the policy has gone too far.
        self._last = torch.zeros(2 + len(names), device=self.placement.torch)
        self._stopped = torch.zeros((), dtype=torch.bool, device=self.placement.torch)
        self._begin()

    def _begin(self) -> None:
        """Reset the statistics of the last step."""
        self._last_stats = StepStats.initial(1 + len(self.names))
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
        state = self.parameters.module.state_dict()
        return {name: tensor.clone() for name, tensor in state.items()}, self.adam.snapshot()

    def restore(self, snapshot: Any) -> None:
        self.parameters.module.load_state_dict(snapshot[0])
        self.adam.restore(snapshot[1])

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
        with learning(self.parameters.module, seed + self._ranks.rank):
            yield batch

    def prepare(self, rows: Batch, which: Sequence[NDArray[np.int64] | Tensor] | None) -> Iterator[tuple[Batch, int]]:
        """Yield (this rank's share, rows of all ranks)."""
        for part in [rows] if which is None else map(rows.part, which):
            yield self._share(part), len(part)

    def _share(self, batch: Batch) -> Batch:
        return batch if self._ranks.size == 1 else batch.part(self._ranks.share(batch.units))

    def steps(self, parts: Iterable[tuple[Batch, int] | VersionedBatches], rate: float, progress: float) -> StepStats:
        """Take the steps. Off the CPU decisions are masks on the device, and numbers are read once."""
        if self.placement.device == "cpu" and not self._uses_cuda_graph:
            self._last_stats = optimizer_steps_cpu(self, parts, rate, progress, self._last_stats)
            return self._last_stats
        coefficients = self.loss_coefficients(progress)
        local_batch: Batch | None = None
        for part in parts:
            if not self._uses_cuda_graph or isinstance(part, VersionedBatches):
                self._move(self.gradient(part, progress), rate)
                continue
            if part[0] is not local_batch:  # as all are that are the whole batch
                local_batch, shaped = part[0], self._shaped(part[0])
            self._whole(self, shaped, rate, coefficients)
        self._guard.watch(self.parameters.values)
        (*scalars, norm, stopped), wrong = self._guard.read([*self._last, self._stopped])
        return StepStats(scalars, norm, bool(stopped), wrong)

    def _gradient_step(self, batch: Batch, rate: float, coefficients: Sequence[float]) -> None:
        """Run a whole step of a single rank."""
        self._fill(batch, coefficients)
        self._move(self.parameters.grad[self.parameters.size :].clone(), rate)

    def _move(self, scalars: Tensor, rate: float) -> None:
        """Step along the computed gradient of a loss with these scalars, without reading numbers."""
        limit, wrong = self.options.kl_limit, self._guard.nonfinite.clone()
        if limit is not None:
            self._stopped |= scalars[1 + self.names.index("kl")] > limit
        norm = self._guard.step(
            self.adam, scalars[0], rate=rate, max_norm=self.options.max_gradient_norm, unwanted=self._stopped
        )
        stats = torch.cat([scalars, norm.to(scalars).view(1)])
        self._last.copy_(torch.where(self._stopped | wrong, self._last, stats))  # of the last made, or that was to be

    @property
    def flat(self) -> Array:
        return self.parameters.flat

    def compute_gradient(self, part: tuple[Batch, int] | VersionedBatches, progress: float) -> list[float]:
        return list(self.gradient(part, progress).tolist())

    def move(self, rate: float) -> float:
        return self.adam.step_on_cpu(rate=rate, max_norm=self.options.max_gradient_norm)

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
        few = self._fixed and (self._uses_cuda_graph or self.placement.compiles)
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
                f"{type(self.options).__name__}: the loss of {joint} rows is {whole:.6g}, and {self._ranks.size} ranks make {both[1]:.6g} "
                "of it. With several ranks a loss must be the mean over rows of what each row costs, nothing else; or use one rank."
            )
        self._checked = True

    def rewards(self, rows: Trajectories, reward: Floats, progress: float) -> Floats:
        return reward

    def rewards_on_device(
        self, reward: Tensor, progress: float, *, acted: ActionBatch, rows: BlockRows, block: Block
    ) -> Tensor:
        return reward

    def coefficients(self, progress: float) -> Metrics:
        return {}

    def after_update(self, batch: Batch, progress: float) -> None:
        """Do nothing: its only statistics are its modules' own."""

    def weights(self) -> Weights:
        return arrays_of(self.module)

    def state_dict(self) -> State:
        return {"weights": self.weights(), "adam": self.adam.state_dict()}

    def load_state_dict(self, state: State) -> None:
        load_arrays(self.module, state["weights"])
        self.adam.load_state_dict(state["adam"])


class CustomModel(TorchModel):
    """The modules and the loss of an `OnPolicy` algorithm."""

    memory, sequence, state = 0, 1, 0

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


# --------------------------------------------------------------------------------------------------------------------
# The family's networks as the learner trains them: loss, and statistics that travel with the weights.

_ROWS = 4096  # that are evaluated at a time


class NetworkOptions(StepOptions, Protocol):
    """Options of an algorithm that `ActorCriticModel` reads."""

    extra_metrics: ClassVar[tuple[str, ...]]

    @property
    def sequence(self) -> int: ...
    @property
    def initial_std(self) -> float: ...
    @property
    def gamma(self) -> float: ...
    @property
    def entropy(self) -> Schedule: ...
    @property
    def value_coefficient(self) -> float: ...
    @property
    def clip_value(self) -> float | None: ...
    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec: ...
    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor: ...
    def metrics(self, logp: Tensor, batch: Batch) -> Mapping[str, Tensor]: ...


class ActorCriticModel(TorchModel):
    """An `ActorCritic` network, or a `TeamNetwork` of them. Statistics are of all agents' rows, and every network of a
    team has them."""

    mean_reducible = cuda_graph_safe = True

    def __init__(
        self, config: NetworkOptions, context: LearnerContext, start: Weights | None, *, no_kernel_reason: str = ""
    ) -> None:
        """no_kernel_reason: Why CPU kernels do not train it."""
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        self.module: Any = self._fresh(fresh_seed(context))
        if start is not None:
            load_arrays(self.module, validate_weights(self.spec, start, shapes_of(self.module)))
        self._networks = self.module.networks
        self._active_network: ActorCritic | TeamNetwork = self.module  # by `_forward`
        first, self.sequence = self._networks[0], config.sequence
        self.shape, self.memory, self.state = first.shape, first.memory, first.state
        action = self.spec.config["action"]
        self.actions = first.head_of.outputs if "categorical" in action["kind"] else 0
        self.distribution = distribution_of(action)
        self._observation_moments, self._state_moments = _moments(first.normaliser), _moments(first.state_normaliser)
        self._returns = None if (scale := _moments(first.returns)) is None else DiscountedReturns(config.gamma)
        if self._returns is not None and scale is not None:
            self._returns.moments = scale
        trained, plain = self._trained()
        # Rows of several networks are divided by numbers; what a custom loss depends on is unknown.
        self.cuda_graph_safe = self.cuda_graph_safe and len(self._networks) == 1 and _is_ours(config)
        super().__init__(
            config, trained, context, names=self._metric_names(config), layouts=plain, no_kernel_reason=no_kernel_reason
        )

    def _trained(self) -> tuple[nn.Module, Sequence[Layout]]:
        """Return (the module whose parameters move, the layouts of its parameters if they are only perceptrons)."""
        plain = self._layouts()
        whole = sum(len(layout.shapes()) for layout in plain) == sum(1 for _ in self.module.parameters())
        return self.module, plain if whole else ()

    def _metric_names(self, config: NetworkOptions) -> tuple[str, ...]:
        """Return `Model.names`."""
        return (*METRICS, *config.extra_metrics)

    # ------------------------------------------------------------------------------------------ the network

    def _fresh(self, seed: int) -> Any:
        """Return a fresh network of the spec."""
        make = TeamNetwork if agents_in(self.spec) > 1 else make_network
        return make(self.spec, seed=seed, initial_std=self.config.initial_std)

    def _layouts(self) -> Sequence[Layout]:
        """Return the layouts for `FlatModule`."""
        return list(layouts(self.spec).values())

    def values(
        self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return values; 0 without a value network."""
        if start is None and memory is None:
            if self._networks[0].value is None:
                return x.new_zeros(len(x)), None
            count = -(-len(x) // _ROWS) or 1
            states = [None] * count if state is None else torch.tensor_split(state, count)
            parts = zip(torch.tensor_split(x, count), states, strict=True)
            return torch.cat([self.module.value_of(part.float(), its).float() for part, its in parts]), None
        _, value, after = self.module.unroll(x.float(), memory, start, state)
        return x.new_zeros(len(x)) if value is None else value, after

    def outputs(self, x: Tensor) -> Tensor:
        out: Tensor = self.module.unroll(x.float(), None, None, None)[0]
        return out

    def log_prob(self, batch: Batch) -> Tensor:
        return self.distribution.log_prob(self._forward(batch)[0], batch.action, batch.mask)

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        out, value, _ = self._active_network.unroll(batch.x.float(), batch.memory, batch.start, batch.state)
        return out.float(), None if value is None else value.float()

    def loss_coefficients(self, progress: float) -> tuple[float, ...]:
        return (self.config.entropy.at(progress),)

    def loss(self, batch: Batch, coefficients: Sequence[float]) -> tuple[Tensor, Sequence[Tensor]]:
        config, (out, value) = self.config, self._forward(batch)
        logp = self.distribution.log_prob(out, batch.action, batch.mask)
        policy = batch.mean(self._surrogate(logp, batch))
        entropy = batch.mean(self.distribution.entropy(out, batch.mask))
        loss, value_term = policy - coefficients[0] * entropy, policy.new_zeros(())
        if value is not None:
            value_term = batch.mean(value_loss(value, batch.target, old_value=batch.value, clip=config.clip_value))
            loss = loss + config.value_coefficient * value_term
        with torch.no_grad():
            kl = batch.mean(approximate_kl(logp, batch.logp))
            extra = [batch.mean(config.metrics(logp, batch)[name]) for name in config.extra_metrics]
        return loss, (policy, value_term, entropy, kl, *extra)

    def _surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        name = f"{type(self.config).__module__}:{type(self.config).__qualname__}"
        try:
            out = self.config.surrogate(logp, batch)
        except LudusError:
            raise
        except Exception as error:
            raise PolicyError(f"{name}: surrogate() of {len(logp)} rows raised {describe_error(error)}.") from error
        if not isinstance(out, Tensor) or out.shape != logp.shape:  # one of another shape would be broadcast
            description = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise PolicyError(
                f"{name}: surrogate() of {len(logp)} rows answers {description}; expected a loss of each row."
            )
        return out

    # ------------------------------------------------------------------------------------------ statistics

    def rewards(self, rows: Trajectories, reward: Floats, progress: float) -> Floats:
        """Return rewards, divided by the standard deviation of discounted returns, these ones included, if that is
        enabled. Rewards that are not finite are left to fail in the loss."""
        if self._returns is None:
            return reward
        if np.isfinite(reward).all():
            self._returns.add(rows, reward)
            for network in self._networks:
                _publish(self._returns.moments, network.returns)
        return reward * self._returns.scale

    def rewards_on_device(
        self, reward: Tensor, progress: float, *, acted: ActionBatch, rows: BlockRows, block: Block
    ) -> Tensor:
        if self._returns is None:
            return reward
        self._returns.add_block(block, rows, reward)
        for network in self._networks:
            _publish(self._returns.moments, network.returns)
        return reward * self._returns.scale

    def coefficients(self, progress: float) -> Metrics:
        return {"entropy_coefficient": self.config.entropy.at(progress)}

    def after_update(self, batch: Batch, progress: float) -> None:
        """Update the statistics: the rows were collected and learned from with the statistics before them; the next
        rollout uses the new ones."""
        if self._observation_moments is not None:
            self._observation_moments.add_rows(batch.x)
        if self._state_moments is not None and batch.state is not None:
            self._state_moments.add_rows(batch.state)
        for network in self._networks:
            _publish(self._observation_moments, network.normaliser)
            _publish(self._state_moments, network.state_normaliser)

    # ------------------------------------------------------------------------------------------ state

    @property
    def _statistics(self) -> dict[str, RunningMoments | DiscountedReturns]:
        moments = {"observations": self._observation_moments, "states": self._state_moments, "returns": self._returns}
        return {name: statistics for name, statistics in moments.items() if statistics is not None}

    def state_dict(self) -> State:
        return {**super().state_dict(), **{name: each.state_dict() for name, each in self._statistics.items()}}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        for name, each in self._statistics.items():
            each.load_state_dict(state[name])


def make_model(config: PolicyGradient, context: LearnerContext, start: Weights | None = None) -> Model:
    """Make the model that autograd trains."""
    why = needs_autograd(config.policy(context.env, context.seats))
    return ActorCriticModel(config, context, start, no_kernel_reason=f"autograd learns {why}" if why else "")


def _is_ours(config: NetworkOptions) -> bool:
    """Return whether Ludus implements what the algorithm adds to the loss."""
    parts = type(config).surrogate, type(config).metrics
    return all(part.__module__.startswith("ludus.") for part in parts)


def _moments(buffers: Normalizer | ReturnScale | None) -> RunningMoments | None:
    """Return the moments in the weights, which may be those of a warm start."""
    if buffers is None:
        return None
    moments = RunningMoments(tuple(buffers.mean.shape))
    moments.start(count=float(buffers.count), mean=to_numpy(buffers.mean), var=to_numpy(buffers.var))
    return moments


def _publish(moments: RunningMoments | None, buffers: Normalizer | ReturnScale | None) -> None:
    if moments is not None and buffers is not None:
        buffers.mean.copy_(torch.from_numpy(np.asarray(moments.mean)))
        buffers.var.copy_(torch.from_numpy(np.asarray(moments.var)))
        buffers.count.fill_(moments.count)
