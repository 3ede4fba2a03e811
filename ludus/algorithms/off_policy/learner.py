"""Shared parts of actor-critic learners with replay: transitions, pacing of updates, their networks, and their state.

An update is implemented twice: in `autograd`, the readable form, on any device; and in `written`, with CPU kernels, for
perceptrons. Tests compare them; `placement` says which one runs. (A learner that is `autograd_only` has one.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.algorithms.common.base import REPLAY, LearnerContext, Priorities
from ludus.algorithms.common.information_states import InformationStates
from ludus.algorithms.common.replay_learner import LEAST_PRIORITY, NetworkEnsemble, ReplayLearner
from ludus.algorithms.common.returns import gather_next
from ludus.backend.device import LazyRows, UpdateCost, gather_rows, resolve_placement, to_device, to_numpy
from ludus.backend.mlp import Layout
from ludus.backend.network import multiplications
from ludus.core import seeding
from ludus.core.arrays import kernel
from ludus.core.errors import TrainingError
from ludus.core.types import Array, Metrics, PolicySpec, State, Weights
from ludus.policies.actor_critic import (
    ActorCritic,
    Tower,
    describe_network,
    layouts,
    load_arrays,
    make_network,
    uniform_network,
)
from ludus.policies.base import validate_weights
from ludus.policies.bodies import ACTIVATIONS, own_stream
from ludus.policies.heads import Bounds, head_of
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.table import resident
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.off_policy.config import OffPolicy

# --------------------------------------------------------------------------------------------------------------------
# The critics' loss, compiled.


@kernel
def regression(q: Array, action: NDArray[np.int32], target: Array, gradient: Array, joint: int) -> tuple[float, float]:
    """Return (½ (Q - y)², Q), each summed over n rows and divided by `joint`.

    Args:
        q: float[n, A].
        action: int32[n], column of each row's action.
        target: float[n], y.
        gradient: float[n, A]; the gradient of the first by q is written to it.
        joint: n, or the rows of all ranks.
    """
    loss, value, rows = 0.0, 0.0, max(1, joint)
    gradient[:] = 0
    for i in range(len(q)):
        q_action = float(q[i, action[i]])
        error = q_action - float(target[i])
        loss += 0.5 * error * error
        value += q_action
        gradient[i, action[i]] = error / rows
    return loss / rows, value / rows


@kernel
def weighted_regression(
    q: Array, action: NDArray[np.int32], target: Array, weight: Array, gradient: Array, errors: Array, joint: int
) -> tuple[float, float]:
    """Return `regression` with loss weights float[n]; |Q - y| is added to errors float[n]."""
    loss, value, rows = 0.0, 0.0, max(1, joint)
    gradient[:] = 0
    for i in range(len(q)):
        q_action = float(q[i, action[i]])
        error = q_action - float(target[i])
        loss += 0.5 * weight[i] * error * error
        value += q_action
        gradient[i, action[i]] = weight[i] * error / rows
        errors[i] += abs(error)
    return loss / rows, value / rows


# --------------------------------------------------------------------------------------------------------------------
# Networks of one form that learn together, and targets that follow them.

_ACTOR = ("actor_loss", "actor_gradient_norm")


class Critics(nn.Module):
    """Perceptrons of one layout, each after a body if there are bodies: float[n, …], and float[n, d] concatenated to
    the body's output -> float[networks, n, outputs]."""

    def __init__(self, layout: Layout, *, seed: int, count: int, bodies: Sequence[nn.Module] = ()) -> None:
        """Initialised as by `uniform_network`."""
        super().__init__()
        with own_stream(seed):
            self.members = nn.ModuleList(_perceptron(layout) for _ in range(count))
        self.bodies = nn.ModuleList(bodies)

    def forward(self, x: Tensor, beside: Tensor | None = None, count: int | None = None) -> Tensor:
        """Return the outputs. count: only of the first networks. beside float[n, K, d]: K inputs per row, with outputs
        float[networks, n, K, outputs]."""
        answers = []
        for k, member in enumerate(list(self.members)[:count]):
            features = self.bodies[k](x) if len(self.bodies) else x.flatten(1)
            if beside is not None and beside.dim() == 3:
                features = features[:, None].expand(-1, beside.shape[1], -1)
            answers.append(member(features if beside is None else torch.cat([features, beside], dim=-1)))
        return torch.stack(answers)


def _perceptron(layout: Layout) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(layout.widths):
        layers += [nn.Linear(inputs, outputs), ACTIVATIONS[layout.activation]()]
    return nn.Sequential(*layers[:-1])


def fresh_actor(spec: PolicySpec, *, seed: int) -> ActorCritic:
    """Return a fresh actor: initialised by `uniform_network` for boxes. Softmax actors have a small last layer
    (`make_network`): they start nearly uniform."""
    discrete = str(spec.config["action"]["kind"]).endswith("categorical")
    return make_network(spec, seed=seed) if discrete else uniform_network(spec, seed=seed)


class OffPolicyLearner(ReplayLearner):
    """Base: a subclass implements the stored columns, the critics' inputs, and one update in both forms.

    Attributes:
        autograd_only: Whether its updates have no CPU kernels.
        cuda_graph_safe: Whether `autograd` depends only on its arguments, its turn, and what is on the device.
    """

    name = ""
    actor: NetworkEnsemble
    critics: NetworkEnsemble

    config: OffPolicy
    autograd_only: ClassVar[bool] = False  # whether its updates are told by `autograd` only
    cuda_graph_safe: ClassVar[bool] = False
    """Whether what `autograd` does depends on what it is given, its turn, and what lies on the device, and on nothing else."""

    def __init__(self, config: OffPolicy, context: LearnerContext, spec: PolicySpec, start: Weights | None) -> None:
        super().__init__(config, context, spec)
        self._noise = torch.Generator().manual_seed(seeding.key(context.seed, self.name, "noise") % 2**63)
        self._fresh_start = start is None
        self.layout = layouts(spec).get("policy")  # of an actor that is a perceptron
        self.shape, head = tuple(spec.config["shape"]), head_of(spec.config["action"])
        self.outputs = head.outputs - head.free
        self.features = math.prod(self.shape) if self.layout else self._sight("actor").features
        self._weight: Array | None = None  # of this rank's rows, where they are drawn by priority
        self._errors: Array | Tensor = np.zeros(0)  # and what the critics miss them by
        self._step_rates, self._step_turn = (0.0, 0.0), 0  # of an update by autograd
        self._priorities: Priorities = ()

    def _sight(self, *stream: str | int) -> Tower:
        """Return a fresh body of the actor's kind."""
        return uniform_network(self.spec, seed=seeding.key(self._seed, self.name, *stream) % 2**63).actor

    def make_networks(self, context: LearnerContext, start: Weights | None, critic: Layout, *, critics: int) -> None:
        """Make the actor, from `start` if given, and critics, initialised from the context's seed, on the chosen
        device."""
        seed = seeding.key(self._seed, self.name, "actor") % 2**63
        actor = fresh_actor(self.spec, seed=seed)
        if start is not None:
            load_arrays(actor, validate_weights(self.spec, start, describe_network(self.spec).shapes))
        bodies = [] if self.layout else [self._sight("critics", k).body for k in range(critics)]
        critics_seed = seeding.key(self._seed, self.name, "critics") % 2**63
        networks = Critics(critic, seed=critics_seed, count=critics, bodies=bodies)
        work = multiplications(actor) + multiplications(networks)
        written = self.layout is not None and not self.autograd_only
        why = (
            f"{self.name}'s updates are computed by autograd"
            if self.autograd_only
            else "only perceptrons have CPU kernels"
        )
        self.settle(
            resolve_placement(
                context.device,
                UpdateCost(
                    work,
                    self.config.batch,
                    written,
                    "" if written else why,
                    no_compile_reason="",
                    kind="graph" if self.cuda_graph_safe and context.ranks.size == 1 else "step",
                ),
            )
        )
        parts = ([self.layout], [critic] * critics) if self.placement.written and self.layout else ([], [])
        self.actor, self.critics = (
            NetworkEnsemble(module, ranks=self.ranks, placement=self.placement, layouts=layouts)
            for module, layouts in zip((actor, networks), parts, strict=True)
        )
        self._critic_count, own = critics, type(self)
        repeats = self.cuda_graph_safe and self.ranks.size == 1 and self.placement.graphs is not None
        self._critic_step, self._actor_step = (
            self.placement.compiled(own._critic_loss, part=repeats),
            self.placement.compiled(own.actor_loss, part=repeats),
        )
        self._whole = self.placement.repeated(own._gradient_step) if repeats else own._gradient_step
        self._improved: Array | Tensor = np.zeros(2)  # the loss of the actor's last step, and the gradient's norm
        if not self.placement.written:
            self._improved = torch.zeros(2, device=self.device)

    # ------------------------------------------------------------------------------------------ data

    def stored(self, rows: Trajectories, next_index: NDArray[np.int64]) -> ItemColumns:
        """Return observations, actions and next observations as the table stores them. next_index: see
        `returns.n_step`."""
        raise NotImplementedError

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return n-step transitions, in scaled rewards."""
        columns, next_index = self.transitions(trajectories)
        columns |= self.priority_columns(trajectories, columns, next_index)
        return [self.table_items({**columns, **self.stored(trajectories, next_index)})]

    def priority_columns(
        self, rows: Trajectories, columns: ItemColumns, next_index: NDArray[np.int64]
    ) -> dict[str, Array]:
        """Return a column `priority`, if rows arrive with priorities; see `initial_priorities`."""
        return {}

    @property
    def warm_up(self) -> bool:
        """Return whether actions are still uniform. Not after a start from a policy, whose actions are better."""
        return self._fresh_start and self._inserted < self.config.start_decisions

    # ------------------------------------------------------------------------------------------ learning

    def written(self, columns: ItemColumns, rows: int) -> Metrics:
        """Run one update by CPU kernels on this rank's share of a batch of `rows`. Return the metrics except the
        actor's; raise TrainingError."""
        raise NotImplementedError

    def autograd(self, columns: Mapping[str, Tensor], rows: int) -> Mapping[str, Tensor]:
        """Run the same on any device, without reading numbers, given `random_columns`, too."""
        raise NotImplementedError

    def random_columns(self, rows: int) -> Mapping[str, Tensor]:
        """Return the random columns of an update, on the device."""
        return {}

    @property
    def turn(self) -> int:
        """Return the kind of the next update, where updates alternate."""
        return 0

    def learn(self, batch: Sample) -> Metrics:
        """Take one step of the critics, and one of the actor where it is due; see `ReplayLearner.learn`."""
        rows, columns = len(batch.index), batch.columns
        if self.ranks.size > 1:
            share = self.ranks.share(rows)
            columns = {name: column[share] for name, column in columns.items()}
        self._priorities = ()
        if self.config.prioritised:
            self._weight = self.importance_weights(batch)[self.ranks.share(rows)].astype(np.float32)
        metrics = self._learned(columns, rows)
        if self.config.prioritised:
            errors = self._all_errors(rows)
            if not np.isfinite(errors).all():  # where numbers are read later, if at all
                raise TrainingError("a critic's error became NaN or infinite")
            self._priorities = [(REPLAY, batch.index, errors + LEAST_PRIORITY)]
        return metrics

    def _learned(self, columns: Mapping[str, Any], rows: int) -> Metrics:
        if self.placement.written:
            return {**self.written(columns, rows), **dict(zip(_ACTOR, self._improved.tolist(), strict=True))}
        beside = dict(self.random_columns(rows))
        if self._weight is not None:
            beside["weight"] = to_device(self._weight, self.device)
        inputs = resident(columns, self.device, but=("priority", "version_lo")), beside
        stats, errors = self._whole(self, inputs, rows, self._rates(), self.turn)
        if errors is not None:
            self._errors = errors
        return self.read(stats)

    def _gradient_step(
        self,
        parts: tuple[Mapping[str, Tensor] | LazyRows, Mapping[str, Tensor]],
        rows: int,
        rates: tuple[float, float],
        turn: int,
    ) -> tuple[Mapping[str, Tensor], Tensor | None]:
        """Run a whole update. Return (statistics, and with weights the critics' errors). parts: stored columns, and
        further ones."""
        self._step_rates, self._step_turn = rates, turn
        batch = {**gather_rows(parts[0]), **parts[1]}
        stats = self.autograd(batch, rows)
        assert isinstance(self._improved, Tensor)
        assert isinstance(self._errors, Tensor) or "weight" not in batch
        errors = self._errors if isinstance(self._errors, Tensor) and "weight" in batch else None
        return {**stats, **dict(zip(_ACTOR, self._improved, strict=True))}, errors

    def _rates(self) -> tuple[float, float]:
        """Return the step sizes of the actor and of the critics."""
        config = self.config
        actor = self.rate(config.learning_rate)
        return actor, actor if config.critic_learning_rate is None else self.rate(config.critic_learning_rate)

    def _all_errors(self, rows: int) -> NDArray[np.float64]:
        """Return the mean absolute errors over the critics, float64[rows], of all ranks' rows."""
        local_errors = to_numpy(self._errors) if isinstance(self._errors, Tensor) else self._errors
        errors = np.zeros(rows)
        errors[self.ranks.share(rows)] = local_errors
        if self.ranks.size > 1:
            self.ranks.sum(errors)
        return errors

    def priorities(self) -> Priorities:
        """Return the absolute errors, where items are sampled by them; see `SupportsPriorities`."""
        return self._priorities

    def fit(
        self, x: torch.Tensor, action: NDArray[np.int32], target: NDArray[np.float64], rows: int
    ) -> dict[str, float]:
        """Take one step of all critics towards targets float64[n]. action: int32[n], output of each row."""
        critics = self.critics
        critics.sums[:] = 0.0
        errors = np.zeros(len(target))
        for q, gradient in zip(critics.forward(x), critics.gradients, strict=True):
            if self._weight is None:
                critics.sums[:2] += regression(q, action, target, gradient, rows)
            else:
                critics.sums[:2] += weighted_regression(q, action, target, self._weight, gradient, errors, rows)
        self._errors = errors / len(critics.outputs)
        critics.backward(x)
        critics.join()
        loss, value = (float(total) / len(critics.outputs) for total in critics.sums[:2])
        if not math.isfinite(loss):
            raise TrainingError("the critics' loss became NaN or infinite")
        norm = self.step(critics, "the critics")
        return {"critic_loss": loss, "q_mean": value, "critic_gradient_norm": norm}

    def step_actor(self) -> None:
        """Take one step of the actor, whose output gradients and `sums`, the loss first, are filled in for the rows of
        its last forward pass."""
        actor = self.actor
        actor.join()
        loss = float(actor.sums[0])
        self._improved = np.array([loss, self.step(actor, "the actor")])

    def step(self, ensemble: NetworkEnsemble, what: str) -> float:
        """Take one optimizer step; see `NetworkEnsemble.step`."""
        rate = self._rates()[ensemble is self.critics]
        return ensemble.step(rate=rate, max_norm=self.config.max_gradient_norm, what=what)

    def answers(self, x: Tensor, *, target: bool = False) -> Tensor:
        """Return the outputs of the actor's network, by autograd, without those that do not depend on observations; of
        the target if `target`."""
        return self.actor(self.network_inputs(x), target=target)[:, : self.outputs]

    def network_inputs(self, observation: Tensor) -> Tensor:
        """Return observations [n, …] as network inputs float32[n, *shape]."""
        return observation.float().reshape(-1, *self.shape)

    def values_and_targets(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return (critics' values float[networks, n], targets float[n]) of a batch with its random columns."""
        raise NotImplementedError

    def actor_loss(self, batch: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """Return (the actor's loss, statistics …): this rank's part of means over `rows`."""
        raise NotImplementedError

    def _critic_loss(self, batch: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """Return (loss, mean value), and with weights the rows' errors."""
        values, target = self.values_and_targets(batch)
        error = values - target
        if "weight" not in batch:
            return 0.5 * error.square().sum() / rows, values.sum() / rows
        loss = 0.5 * (batch["weight"] * error.square()).sum() / rows
        return loss, values.sum() / rows, error.detach().abs().mean(dim=0)

    def fit_modules(self, batch: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """Take the step of `fit` by autograd."""
        loss, value, *errors = self._critic_step(self, batch, max(1, rows))
        if errors:
            self._errors = errors[0]
        sums, norm = self.descend(self.critics, loss, value)
        loss, value, _ = sums / self._critic_count
        return {"critic_loss": loss, "q_mean": value, "critic_gradient_norm": norm}

    def improve(self, batch: Mapping[str, Tensor], rows: int) -> Tensor:
        """Take one step of the actor by autograd. Return its statistics, summed over the ranks."""
        critics, compiles = self.critics.online.module, self.placement.compiles
        if compiles:  # all gradients come, wanted or not
            critics.requires_grad_(False)
        try:
            loss, *stats = self._actor_step(self, batch, max(1, rows))
        finally:
            if compiles:
                critics.requires_grad_(True)
        sums, norm = self.descend(self.actor, loss, *stats)
        assert isinstance(self._improved, Tensor)
        self._improved.copy_(torch.stack([sums[0], norm.to(sums)]))
        return sums[1 : 1 + len(stats)]

    def descend(self, ensemble: NetworkEnsemble, loss: Tensor, *stats: Tensor) -> tuple[Tensor, Tensor]:
        """Take one optimizer step; see `NetworkEnsemble.descend`."""
        rate, max_norm = self._step_rates[ensemble is self.critics], self.config.max_gradient_norm
        return ensemble.descend(loss, stats, rate=rate, max_norm=max_norm, guard=self.guard)

    def normals(self, count: int, rows: int, size: int) -> Array:
        """Return standard normal deviates float32[count, n, size] for this rank's share of `rows`."""
        deviates: Array = torch.randn(count, rows, size, generator=self._noise).numpy()
        return deviates[:, self.ranks.share(rows)]

    # ------------------------------------------------------------------------------------------ state

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            "actor": self.actor.state_dict(),
            "critics": self.critics.state_dict(),
            "improved": np.array(to_numpy(self._improved) if isinstance(self._improved, Tensor) else self._improved),
            "noise": self._noise.get_state().numpy().copy(),
            "fresh_start": self._fresh_start,
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.actor.load_state_dict(state["actor"])
        self.critics.load_state_dict(state["critics"])
        improved = np.array(state["improved"])
        if isinstance(self._improved, Tensor):
            self._improved.copy_(torch.from_numpy(improved))
        else:
            self._improved = improved
        self._noise.set_state(torch.from_numpy(np.array(state["noise"], np.uint8)))
        self._fresh_start = bool(state["fresh_start"])


# --------------------------------------------------------------------------------------------------------------------
# What learners of discrete actions share: masks, the states of enumerated games, and critics that answer all actions at once.


class DiscreteLearner(OffPolicyLearner):
    """A softmax policy over legal actions. Fresh ones are nearly uniform, so that warming up needs nothing else."""

    def __init__(
        self, config: OffPolicy, context: LearnerContext, spec: PolicySpec, start: Weights | None, *, critics: int
    ) -> None:
        super().__init__(config, context, spec, start)
        critic = Layout((self.features, *(config.hidden if self.layout else ()), self.outputs), config.activation)
        self.make_networks(context, start, critic, critics=critics)
        enumeration = context.env.enumeration
        self.states = InformationStates.of(enumeration, context.seats) if enumeration is not None else None
        if self.states is not None:
            self._x, self._legal = (to_device(a, self.device) for a in (self.states.x.numpy(), self.states.mask))

    def stored(self, rows: Trajectories, next_index: NDArray[np.int64]) -> ItemColumns:
        """Return the stored columns, with masks unless observations are ids."""
        columns = {
            "observation": rows.observation,
            "action": rows.action.astype(np.int32),
            "next": gather_next(rows.observation, rows.bootstrap_observation, next_index),
        }
        if self.states is None and rows.mask is not None:
            after = rows.bootstrap_mask
            if after is None:
                after = np.ones((len(rows.tail), self.outputs), np.bool_)
            columns |= {"mask": rows.mask, "next_mask": gather_next(rows.mask, after, next_index)}
        return columns

    def inputs_and_masks(self, observation: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return inputs float32[n, *shape] and legal actions bool[n, A]; an unknown id (-1) counts as the first state."""
        if self.states is not None:
            ids = (observation - self.states.base).clamp(min=0).long()
            return self._x[ids], self._legal[ids]
        if mask is None:
            mask = torch.ones(len(observation), self.outputs, dtype=torch.bool, device=self.device)
        return self.network_inputs(observation), mask

    def targets(self, batch: Mapping[str, Tensor], value: Tensor) -> Tensor:
        """Return reward + discount × the value [n] of what follows, which is 0 where it is unknown."""
        discount = batch["discount"]
        if self.states is not None:
            discount = discount.masked_fill(batch["next"] < 0, 0.0)
        return batch["reward"] + discount * value

    def gather_values(self, batch: Mapping[str, Tensor], values: Tensor) -> Tensor:
        """Return the values [networks, n] of the actions taken, of values [networks, n, A]."""
        index = batch["action"].long().expand(len(values), -1)[..., None]
        return values.gather(2, index)[..., 0]

    def weights(self) -> Weights:
        return self.actor.weights()


# --------------------------------------------------------------------------------------------------------------------
# What learners of continuous actions share: actions in [-1, 1], and critics of (observation, action).


class BoxLearner(OffPolicyLearner):
    """Base of learners of actions in a box. now, after: float32[n, inputs + size], a batch's present and next
    observations, each followed by actions in [-1, 1]."""

    def __init__(
        self, config: OffPolicy, context: LearnerContext, spec: PolicySpec, start: Weights | None, *, critics: int
    ) -> None:
        super().__init__(config, context, spec, start)
        self.box, self.inputs = Bounds.of(spec.config["action"]), math.prod(self.shape)
        critic = Layout((self.features + self.box.size, *config.hidden, 1), config.activation)
        self.make_networks(context, start, critic, critics=critics)
        self._room(0)

    def _room(self, rows: int) -> None:
        self.output_index = np.zeros(rows, np.int32)  # which output of the critics is meant: their only one
        self.now, self.after = (torch.zeros(rows, self.inputs + self.box.size) for _ in range(2))
        (self.observation_rows, self.action), (self.next_observation_rows, self.next_action) = (
            (pairs[:, : self.inputs], pairs.numpy()[:, self.inputs :]) for pairs in (self.now, self.after)
        )

    def stored(self, rows: Trajectories, next_index: NDArray[np.int64]) -> ItemColumns:
        return {
            "observation": rows.observation,
            "action": self.box.to_unit(rows.action),
            "next": gather_next(rows.observation, rows.bootstrap_observation, next_index),
        }

    def place(self, columns: ItemColumns) -> None:
        """Write a batch into `now` and `after`; next actions are filled in by the learner."""
        n = len(columns["action"])
        if n != len(self.now):
            self._room(n)
        self.observation_rows.numpy()[:] = columns["observation"].reshape(n, self.inputs)
        self.next_observation_rows.numpy()[:] = columns["next"].reshape(n, self.inputs)
        self.action[:] = columns["action"]

    def action_grad(self, *, count: int | None = None) -> Array:
        """Return dS/da float32[n, size], where the critics' `gradients` are derivatives of S, from their last forward
        pass. count: only through the first networks."""
        return self.critics.input_gradient(slice(self.inputs, None), count=count)

    def values_of(self, x: Tensor, action: Tensor, *, target: bool = False, count: int | None = None) -> Tensor:
        """Return the critics' values, by autograd, float[networks, n], of observations and actions in [-1, 1]; count:
        only of the first networks. Of actions [n, K, size]: float[networks, n, K]."""
        return self.critics(self.network_inputs(x), action, count, target=target)[..., 0]
