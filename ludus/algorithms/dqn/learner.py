"""DQN's learners: the shared base of action-value learners, and its two backends, CPU kernels for perceptrons and
autograd."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.algorithms.common.base import REPLAY, LearnerContext, Priorities
from ludus.algorithms.common.information_states import InformationStates, unique_ids
from ludus.algorithms.common.replay_learner import LEAST_PRIORITY, NetworkEnsemble, ReplayLearner, initial_priorities
from ludus.algorithms.common.returns import gather_next
from ludus.algorithms.dqn.kernels import next_values, q_loss
from ludus.algorithms.dqn.losses import (
    Candidates,
    CategoricalReturn,
    MeanReturn,
    QuantileReturn,
    ReturnKind,
    double_values,
    gather_actions,
    munchausen_bonus,
    soft_policy,
)
from ludus.backend.device import LazyRows, Placement, UpdateCost, gather_rows, resolve_placement, to_device, to_numpy
from ludus.backend.mlp import Layout, as_rows
from ludus.backend.network import GuardedAdam, OptimizerStepResult, finite, multiplications
from ludus.backend.ranks import RankGroup
from ludus.core import seeding
from ludus.core.errors import TrainingError
from ludus.core.types import Array, Metrics, PolicySpec, State, Weights
from ludus.policies.action_value_policy import action_values
from ludus.policies.action_values import (
    ActionValues,
    TeamValues,
    layout_of,
    load_weights,
    make_network,
    uniform_network,
)
from ludus.policies.actor_critic import arrays_of
from ludus.replay.base import ON_HOST, ItemColumns, Sample
from ludus.replay.table import resident
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.dqn.config import DQN, QLearning

# --------------------------------------------------------------------------------------------------------------------
# The part of an update that all learners of action values share: what surrounds the gradient.


@dataclass(frozen=True, slots=True, eq=False)
class QLossResult:
    """Means over items of the weighted loss, of Q and of |error|, and the errors float[items]; finite: whether all
    targets are. Tensors on the learner's device, or numbers."""

    loss: Tensor | float
    value: Tensor | float
    error: Tensor | float
    errors: Tensor
    finite: Tensor | bool

    @staticmethod
    def nothing(device: torch.device) -> QLossResult:
        """Return the result for no items."""
        zero = torch.zeros((), device=device)
        return QLossResult(zero, zero, zero, torch.zeros(0, device=device), zero == 0.0)


class QLearner(ReplayLearner):
    """One step of Adam for each batch of items, and a target network. Subclasses implement items and their gradient.

    On a CPU, and for priorities, every update reads its numbers. Elsewhere only a round's last one does, see
    `GuardedAdam`.
    """

    config: QLearning

    def __init__(
        self,
        config: QLearning,
        context: LearnerContext,
        spec: PolicySpec,
        *,
        network: nn.Module,
        placement: Placement,
        layout: Layout | None = None,
    ) -> None:
        """layout: Layout of a perceptron, whose parameters are then stored as CPU kernels need them."""
        super().__init__(config, context, spec)
        self.settle(placement)
        layouts = [layout] if layout is not None else []
        written = layouts if placement.written else []
        self.networks = NetworkEnsemble(
            network, ranks=self.ranks, placement=placement, layouts=written, order=layouts, epsilon=1e-5
        )
        enumeration = context.env.enumeration
        self._states = InformationStates.of(enumeration, context.seats) if enumeration is not None else None
        if self._states is not None:
            self._inputs, self._legal = self._states.x.to(self.device), to_device(self._states.mask, self.device)
        self._actions = int(spec.config["actions"])
        self._priorities: Priorities = []
        self._unknown_bootstraps = 0  # rows that should have been bootstrapped and have no observation
        self._adam = GuardedAdam(self.networks.adam, self.guard, self.networks.target.values)

    @abstractmethod
    def _gradient(self, columns: Mapping[str, Any], rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        """Compute the online network's gradient, of all ranks' items together."""

    @property
    def network(self) -> nn.Module:
        """Return the policy's network, with the trained parameters."""
        return self.networks.online.module

    def learn(self, batch: Sample) -> Metrics:
        """Take one gradient step; see `ReplayLearner.learn`."""
        config, rows, weight = self.config, len(batch.index), None
        if config.prioritised:
            weight = self.importance_weights(batch)
        result, metrics = self._learned(batch.columns, rows, weight)
        if config.polyak is not None:
            self.networks.update_target(config.polyak)
        elif (self.updates + 1) % config.target_period == 0:
            self.networks.update_target(1.0)
        self._priorities = []
        if config.prioritised:
            self._priorities = [(REPLAY, batch.index, to_numpy(result.errors).astype(np.float64) + LEAST_PRIORITY)]
        return {**metrics, "epsilon": self._epsilon, "tails_without_value": float(self._unknown_bootstraps)}

    def _learned(
        self, columns: Mapping[str, Any], rows: int, weight: NDArray[np.float64] | None
    ) -> tuple[QLossResult, Metrics]:
        """Move the weights. Return the loss result and the metrics. Raise TrainingError, with the weights restored, if
        a number is not finite."""
        result, config = self._gradient(columns, rows, weight), self.config
        step = self._adam.step(
            result.loss,
            (result.error, result.value, result.finite),
            rate=self.rate(config.learning_rate),
            max_norm=config.max_gradient_norm,
            look=self._looks(),
        )
        return result, self._read_metrics(step)

    def _looks(self) -> bool:
        """Return whether this update's numbers are read."""
        self._unread -= 1
        return self.config.prioritised or self._unread <= 0

    def _read_metrics(self, step: OptimizerStepResult | None) -> Metrics:
        if step is not None:
            if step.nonfinite:
                what = (
                    "the rewards or targets" if step.nonfinite == "the loss" and not step.metrics[2] else step.nonfinite
                )
                raise TrainingError(f"{what} became NaN or infinite")
            error, value, _ = step.metrics
            self._metrics = {"loss": step.loss, "td_error": error, "q_mean": value, "gradient_norm": step.norm}
        return self._metrics

    def priorities(self) -> Priorities:
        """Return the absolute errors; see `SupportsPriorities`."""
        return self._priorities

    def _joint(self, local: QLossResult, rows: int) -> QLossResult:
        """Return the result of all ranks; gradients are summed in place."""
        if self.ranks.size == 1:
            return local
        parameters, errors = self.networks.online, torch.zeros(rows, dtype=torch.float64, device=self.device)
        for at, number in enumerate((local.loss, local.value, local.error), parameters.size):
            parameters.grad[at] = number
        self.ranks.sum(parameters.grad)
        if self.config.prioritised:
            errors[self.ranks.share(rows)] = local.errors.double()
            self.ranks.sum(errors)
        loss, value, error = parameters.grad[parameters.size :].clone()
        return QLossResult(loss, value, error, errors, local.finite)

    def _network_inputs(self, observation: Array | Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return inputs float32[n, *shape] of observations or ids [n, …]; for unknown ids those of some state."""
        if self._states is None:
            return to_device(observation.reshape(-1, *shape), self.device).float()
        return self._inputs[self._ids(observation)].view(-1, *shape)

    def _ids(self, observation: Array | Tensor) -> Tensor:
        """Return the rows of the state table, int64[n, …], on the device; 0 where unknown."""
        assert self._states is not None
        return (to_device(observation, self.device).long() - self._states.base).clamp(min=0)

    def local_columns(self, columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
        """Return this rank's share of a batch of `rows`, on the device, except columns that stay in host memory."""
        share = self.ranks.share(rows)
        here = {name: column[share] for name, column in columns.items()}
        return {name: c if name in ON_HOST else to_device(c, self.device) for name, c in here.items()}

    def _weights(self, weight: NDArray[np.float64] | None, rows: int) -> Tensor:
        """Return the weights of this rank's share, float32[n]."""
        share = self.ranks.share(rows)
        if weight is None:
            return torch.ones(share.stop - share.start, device=self.device)
        return to_device(weight[share].astype(np.float32), self.device)

    @property
    def _epsilon(self) -> float:
        return self.rate(self.config.epsilon)

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return {**arrays_of(self.network), "epsilon": np.array([self._epsilon], np.float32)}

    def state_dict(self) -> State:
        return {**super().state_dict(), **self.networks.state_dict(), "blind": self._unknown_bootstraps}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.networks.load_state_dict(state)
        self._unknown_bootstraps = int(state["blind"])


def init_network(
    spec: PolicySpec, context: LearnerContext, start: Weights | None, *, uniform: bool = False
) -> ActionValues | TeamValues:
    """Return a learner's initial network: fresh, from the task's seed, or with the given weights. uniform: initialised
    by `uniform_network`, else by `make_network`."""
    make = uniform_network if uniform else make_network
    network = make(spec, seed=seeding.key(context.seed, "dqn", "weights") % 2**63)
    if start is not None:
        load_weights(network, spec, start)
    return network


# --------------------------------------------------------------------------------------------------------------------
# DQN, which replays transitions: what the kernels and autograd share, and which one is used.


def make_learner(config: DQN, context: LearnerContext, start: Weights | None = None) -> DQNLearner:
    """Make the learner that uses CPU kernels where possible, else autograd."""
    spec = config.policy(context.env, context.seats)
    network, reason = init_network(spec, context, start, uniform=True), why_not_cpu_kernel(config, spec)
    work = UpdateCost(
        multiplications(network),
        config.batch,
        has_cpu_kernel=not reason,
        no_kernel_reason=reason,
        no_compile_reason="",
        kind="graph" if _captures(spec, context.ranks) else "step",
    )
    placement = resolve_placement(context.device, work)
    return (KernelDQNLearner if placement.written else TorchDQNLearner)(config, context, spec, network, placement)


def _captures(spec: PolicySpec, ranks: RankGroup) -> bool:
    """Return whether a GPU repeats steps of such a network as CUDA graphs."""
    return ranks.size == 1 and "agents" not in spec.config


def why_not_cpu_kernel(config: DQN, spec: PolicySpec) -> str:
    """Return why CPU kernels do not train this network; "": they do."""
    if "agents" in spec.config:
        return "agents have a network each"
    if config.munchausen:
        return "munchausen takes the mean over a soft policy"
    return "" if layout_of(spec) is not None else "it is no perceptron that answers means of observations as they are"


class DQNLearner(QLearner):
    """Learns from n-step transitions that its table replays. With both backends the parameters are one vector, in the
    same order, so that state fits either."""

    config: DQN

    def __init__(
        self,
        config: DQN,
        context: LearnerContext,
        spec: PolicySpec,
        network: ActionValues | TeamValues,
        placement: Placement,
    ) -> None:
        layout = layout_of(spec) if "agents" not in spec.config else None
        super().__init__(config, context, spec, network=network, placement=placement, layout=layout)
        self._online, self._target = (
            cast(ActionValues | TeamValues, flat.module) for flat in (self.networks.online, self.networks.target)
        )

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return n-step transitions, in scaled rewards."""
        rows = trajectories
        columns, next_index = self.transitions(rows)
        after = gather_next(rows.observation, rows.bootstrap_observation, next_index)
        if self._states is not None:
            unseen = after < 0
            self._unknown_bootstraps += int(np.count_nonzero(unseen & (columns["discount"] > 0.0)))
            columns["discount"] = np.where(unseen, np.float32(0.0), columns["discount"])
        columns |= {"observation": rows.observation, "action": rows.action, "next": after}
        if self._states is None and rows.mask is not None:
            bootstrap_mask = (
                rows.bootstrap_mask
                if rows.bootstrap_mask is not None
                else np.ones((len(rows.tail), self._actions), np.bool_)
            )
            columns["mask"] = rows.mask
            columns["next_mask"] = gather_next(rows.mask, bootstrap_mask, next_index)
        if self.config.initial_priority == "error":
            columns["priority"] = initial_priorities(rows, columns, next_index)
        return [self.table_items(columns)]


# --------------------------------------------------------------------------------------------------------------------
# DQN of perceptrons that learn means: compiled, without autograd.


@dataclass(frozen=True, slots=True, eq=False)
class _Evaluated:
    """n rows over m states x float32[m, inputs]: q float32[m, A] of the online network, mask bool[m, A], state
    int32[n], after float64[n] next values."""

    x: Tensor
    q: Array
    mask: NDArray[np.bool_]
    state: NDArray[np.int32]
    after: NDArray[np.float64]


class KernelDQNLearner(DQNLearner):
    """DQN by CPU kernels. On enumerated games the networks are evaluated once for each distinct state of a batch."""

    _x, _every = torch.zeros(0, 0), np.ones((0, 0), np.bool_)  # kept from one batch to the next of as many rows

    def _gradient(self, columns: Mapping[str, Any], rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        share = self.ranks.share(rows)
        local_columns = {name: column[share] for name, column in columns.items()}
        action = np.ascontiguousarray(local_columns["action"], np.int32)
        evaluation = (
            self._evaluate_rows(local_columns)
            if self._states is None
            else self._evaluate_ids(self._states, local_columns)
        )
        target = local_columns["reward"] + local_columns["discount"].astype(np.float64) * evaluation.after
        weight, networks = np.ones(len(action)) if weight is None else weight[share], self.networks
        loss, value, errors = q_loss(
            evaluation.q,
            evaluation.mask,
            evaluation.state,
            action,
            target,
            weight,
            self.config.huber_delta,
            networks.gradients[0],
            rows,
        )
        networks.backward(evaluation.x)
        error, finite = float(errors.sum()) / max(1, rows), bool(np.isfinite(target).all())
        result = QLossResult(loss, value, error, torch.from_numpy(errors), finite)
        return self._joint(result, rows)

    def _values(self, x: Tensor, mask: NDArray[np.bool_], *, target: bool = False) -> Array:
        """Return values of the online network, through which `backward` can then go, or of its target."""
        return action_values(self.networks.forward(x, target=target)[0], mask)

    def _evaluate_ids(self, states: InformationStates, columns: ItemColumns) -> _Evaluated:
        """Evaluate the distinct states of a batch, present and next, in one pass."""
        now, after = columns["observation"] - states.base, columns["next"]
        both = np.concatenate([now, np.where(after >= 0, after - states.base, -1)])
        unique, index = unique_ids(both, len(states))
        x, mask = states.x[torch.from_numpy(unique)], states.mask[unique]
        target_values, q = self._values(x, mask, target=True), self._values(x, mask)
        state, following = index[: len(now)], index[len(now) :]
        value = next_values(q if self.config.double else target_values, target_values, mask, following)
        return _Evaluated(x, q, mask, state, value)

    def _evaluate_rows(self, columns: ItemColumns) -> _Evaluated:
        """Evaluate the observations in one pass, and the next ones in another without gradients."""
        rows, inputs = len(columns["observation"]), math.prod(self._online.shape)
        if self._x.shape != (rows, inputs):
            self._x, self._every = torch.zeros(rows, inputs), np.ones((rows, self._actions), np.bool_)
        self._x.numpy()[:] = columns["observation"].reshape(rows, inputs)
        after, every = as_rows(columns["next"], inputs), self._every
        legal, legal_after = columns.get("mask", every), columns.get("next_mask", every)
        online_values = target_values = self._values(after, legal_after, target=True)
        if self.config.double:
            online_values = self._values(after, legal_after)
        q = self._values(self._x, legal)
        state = np.arange(rows, dtype=np.int32)
        return _Evaluated(self._x, q, legal, state, next_values(online_values, target_values, legal_after, state))


# --------------------------------------------------------------------------------------------------------------------
# DQN of any body and head, by autograd.


@dataclass(frozen=True, slots=True, eq=False)
class TransitionRows:
    """n transitions as tensors.

    Attributes:
        x: float32[n, *shape], observations.
        after: float32[n, *shape], next observations.
        legal: bool[n, A].
        legal_after: bool[n, A].
        action: int64[n].
        reward: float32[n].
        discount: float32[n].
        weight: float32[n].
        levels: float32[3, n, K], levels of quantile functions: of the online network, the target, and the network that
            chooses; or None.
        noise: float32[3, …], likewise of noisy layers; or None.
    """

    x: Tensor
    after: Tensor
    legal: Tensor
    legal_after: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    weight: Tensor
    levels: Tensor | None
    noise: Tensor | None


_ONLINE, _TARGET, _CHOICE = range(3)

_StepInputs = tuple[Mapping[str, Tensor] | LazyRows, Tensor | None, Tensor | None, Tensor | None]
"""A rank's share of a batch, as it was stored, on the device; weights, levels and noise as in `TransitionRows`."""
_StepResult = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""As `QLossResult`."""


class TorchDQNLearner(DQNLearner):
    """DQN by autograd; its random numbers are from a stream of each update."""

    def _learned(
        self, columns: Mapping[str, Any], rows: int, weight: NDArray[np.float64] | None
    ) -> tuple[QLossResult, Metrics]:
        if not self._uses_cuda_graph:
            return super()._learned(columns, rows, weight)
        self._adam.keep()
        inputs = self._step_inputs(resident(columns, self.device, but=ON_HOST), rows, weight)
        result, norm = self._whole(self, inputs, rows, self.rate(self.config.learning_rate))
        stats = (result[2], result[1], result[4])
        step = self._adam.look(result[0], norm, stats) if self._looks() else None
        return QLossResult(*result), self._read_metrics(step)

    @property
    def _uses_cuda_graph(self) -> bool:
        return self.placement.graphs is not None and _captures(self.spec, self.ranks)

    @cached_property
    def _whole(self) -> Callable[[TorchDQNLearner, _StepInputs, int, float], tuple[_StepResult, Tensor]]:
        return self.placement.repeated(TorchDQNLearner._gradient_step)

    def _gradient_step(self, inputs: _StepInputs, rows: int, rate: float) -> tuple[_StepResult, Tensor]:
        """Run a whole step of a single rank. Return its result, and the gradient's norm."""
        result = self._differentiate(inputs, rows)
        return result, self._adam.move(result[0], rate=rate, max_norm=self.config.max_gradient_norm)

    def _gradient(self, columns: Mapping[str, Any], rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        return self._joint(
            QLossResult(*self._differentiate(self._step_inputs(self.local_columns(columns, rows), rows, weight), rows)),
            rows,
        )

    def _differentiate(self, inputs: _StepInputs, rows: int) -> _StepResult:
        transitions = self._rows(inputs)
        loss, *stats = self._compiled_compare(self, transitions, max(1, rows))
        if len(transitions.action):
            self.networks.online.differentiate(loss)
        else:
            self.networks.online.zero()
        value, error, errors, finite = stats
        return loss.detach(), value, error, errors, finite

    @cached_property
    def _compiled_compare(self) -> Callable[[TorchDQNLearner, TransitionRows, int], _StepResult]:
        return self.placement.compiled(TorchDQNLearner._compare, part=self._uses_cuda_graph)

    def _compare(self, transitions: TransitionRows, rows: int) -> _StepResult:
        """Return the fields of `QLossResult`, with means over `rows`."""
        target = self._targets(transitions)
        chosen = gather_actions(
            self._outputs(transitions.x, transitions.legal, transitions, _ONLINE), transitions.action
        )
        losses, errors = kind_of(self.config, self._online).compare(chosen, target, _pick(transitions.levels, _ONLINE))
        loss = (losses * transitions.weight).sum() / rows
        value = self._online.head.means(chosen.detach()[:, None]).sum() / rows
        return loss, value, errors.sum() / rows, errors, finite(target.sum())

    def _outputs(self, x: Tensor, legal: Tensor, rows: TransitionRows, which: int) -> Tensor:
        """Return the outputs float32[n, A, K]; which: whose levels and noise."""
        noise, levels = _pick(rows.noise, which), _pick(rows.levels, which)
        return self.networks(x, legal, noise, levels, target=which == _TARGET)

    @torch.no_grad()
    def _targets(self, rows: TransitionRows) -> Tensor:
        """Return what the online network's outputs are compared with."""
        config, head, kind = self.config, self._online.head, kind_of(self.config, self._online)
        after = self._outputs(rows.after, rows.legal_after, rows, _TARGET)
        if config.munchausen:
            policy, log_policy = soft_policy(head.means(after), rows.legal_after, config.munchausen_temperature)
            now = head.means(self._outputs(rows.x, rows.legal, rows, _TARGET))
            _, log_now = soft_policy(now, rows.legal, config.munchausen_temperature)
            bonus = munchausen_bonus(
                log_now, rows.action, weight=config.munchausen_weight, least=config.munchausen_least
            )
            return kind.target(rows.reward + bonus, rows.discount, Candidates(after, policy, log_policy))
        values = head.means(after)
        if config.double:
            values = head.means(self._outputs(rows.after, rows.legal_after, rows, _CHOICE))
        best = double_values(values, after, rows.legal_after)[:, None]
        return kind.target(rows.reward, rows.discount, Candidates(best))

    def _step_inputs(
        self, stored: Mapping[str, Tensor] | LazyRows, rows: int, weight: NDArray[np.float64] | None
    ) -> _StepInputs:
        """Return this rank's share of a batch of `rows`, with weights, levels and noise."""
        levels, noise = self._chance(rows)
        levels = None if levels is None else levels[:, self.ranks.share(rows)]
        return stored, None if weight is None else self._weights(weight, rows), levels, noise

    def _rows(self, inputs: _StepInputs) -> TransitionRows:
        columns, weight, levels, noise = gather_rows(inputs[0]), *inputs[1:]
        x, legal = self._inputs_and_masks(columns["observation"], columns.get("mask"))
        after, legal_after = self._inputs_and_masks(columns["next"], columns.get("next_mask"))
        return TransitionRows(
            x=x,
            after=after,
            legal=legal,
            legal_after=legal_after,
            action=columns["action"].long(),
            reward=columns["reward"],
            discount=columns["discount"],
            weight=torch.ones_like(columns["reward"]) if weight is None else weight,
            levels=levels,
            noise=noise,
        )

    def _inputs_and_masks(self, observation: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (inputs float32[n, *shape], legal bool[n, A]); for unknown ids those of some state, whose discount is
        0."""
        if self._states is not None:
            mask = self._legal[self._ids(observation)]
        elif mask is None:
            mask = torch.ones(len(observation), self._actions, dtype=torch.bool, device=self.device)
        return self._network_inputs(observation, self._online.shape), mask

    def _chance(self, rows: int) -> tuple[Tensor | None, Tensor | None]:
        """Return (levels float32[3, rows, K], noise float32[3, size]) of this update, where the head needs them; the
        same on all ranks."""
        head, levels, noise = self._online.head, None, None
        if head.noise_size or head.cosine is not None:
            rng = seeding.generator(self._seed, "dqn", "update", self.updates)
            if head.cosine is not None:
                levels = to_device(rng.random((3, rows, head.head.atoms), np.float32), self.device)
                levels[_CHOICE] = head.levels
            if head.noise_size:
                normal = to_device(rng.standard_normal((3, head.noise_size), np.float32), self.device)
                noise = normal.sign() * normal.abs().sqrt()
        return levels, noise


def _pick(of: Tensor | None, which: int) -> Tensor | None:
    return None if of is None else of[which]


def kind_of(config: DQN, module: ActionValues | TeamValues) -> ReturnKind:
    """Return how the outputs of this module are learned."""
    if config.distribution == "none":
        return MeanReturn(config.huber_delta)
    if config.distribution == "c51":
        return CategoricalReturn(module.head.support)
    return QuantileReturn(config.huber_delta)
