"""What the learners of actor-critic algorithms with replay share: transitions, when updates are due, their networks, and their state.

An update is told twice: by `autograd`, the plain text of it, on any device; and `written`, with compiled passes and gradients, for
perceptrons on a CPU. Tests hold them to be equal; `placement` says which of them computes. (One that is `plain` is told once.)
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
from ludus.algorithms.common.information_states import StateTable
from ludus.algorithms.common.replay_learner import LEAST_PRIORITY, Ensemble, ReplayLearner
from ludus.algorithms.common.returns import follow
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
    declared,
    layouts,
    load_arrays,
    make_network,
    uniform_network,
)
from ludus.policies.bodies import ACTIVATIONS, own_stream
from ludus.policies.checks import fitted
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
    """½ (Q - y)² and Q, each summed over n rows and divided by `joint` (n, or the rows of all ranks); the first one's gradient with respect
    to q is written to gradient. q, gradient float[n, A], action int32[n] says which column was taken, target float[n] is y."""
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
    """`regression` where the loss of row i counts weight[i] times; |Q - y| is added to errors. weight, errors float[n]."""
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
    """Perceptrons of one layout, behind a body each if there are any. They see float[n, …], and float[n, d] beside what bodies make of it,
    and answer float[networks, n, outputs]."""

    def __init__(self, layout: Layout, *, seed: int, count: int, bodies: Sequence[nn.Module] = ()) -> None:
        """Initialised as `uniform_network` says."""
        super().__init__()
        with own_stream(seed):
            self.members = nn.ModuleList(_perceptron(layout) for _ in range(count))
        self.bodies = nn.ModuleList(bodies)

    def forward(self, x: Tensor, beside: Tensor | None = None, count: int | None = None) -> Tensor:
        """As the class says; count: only of the first so many. beside float[n, K, d]: K for each row, of which the answers are
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
    """As `uniform_network` has it where actions are of a box. Softmax actors have a small last layer (`make_network`): they are nearly
    uniform, and warm up so."""
    discrete = str(spec.config["action"]["kind"]).endswith("categorical")
    return make_network(spec, seed=seed) if discrete else uniform_network(spec, seed=seed)


class OffPolicyLearner(ReplayLearner):
    """Base: a subclass says what is stored of actions, what its critics see, and what one update does, in both ways."""

    name = ""
    actor: Ensemble
    critics: Ensemble

    config: OffPolicy
    plain: ClassVar[bool] = False  # whether its updates are told by `autograd` only
    repeats: ClassVar[bool] = False
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
        self._given_rates, self._given_turn = (0.0, 0.0), 0  # of an update by autograd
        self._found: Priorities = ()

    def _sight(self, *stream: str | int) -> Tower:
        """A fresh body, as the actor has one."""
        return uniform_network(self.spec, seed=seeding.key(self._seed, self.name, *stream) % 2**63).actor

    def make_networks(self, context: LearnerContext, start: Weights | None, critic: Layout, *, critics: int) -> None:
        """The actor, from `start` if there is one, and critics, initialised from the context's seed, in the place that is chosen."""
        seed = seeding.key(self._seed, self.name, "actor") % 2**63
        actor = fresh_actor(self.spec, seed=seed)
        if start is not None:
            load_arrays(actor, fitted(self.spec, start, declared(self.spec).shapes))
        bodies = [] if self.layout else [self._sight("critics", k).body for k in range(critics)]
        critics_seed = seeding.key(self._seed, self.name, "critics") % 2**63
        networks = Critics(critic, seed=critics_seed, count=critics, bodies=bodies)
        work = multiplications(actor) + multiplications(networks)
        written = self.layout is not None and not self.plain
        why = (
            f"{self.name}'s updates are told by autograd"
            if self.plain
            else "only perceptrons have passes that are written out"
        )
        self.settle(
            resolve_placement(
                context.device,
                UpdateCost(work, self.config.batch, written, "" if written else why, no_compile_reason=""),
            )
        )
        parts = ([self.layout], [critic] * critics) if self.placement.written and self.layout else ([], [])
        self.actor, self.critics = (
            Ensemble(module, ranks=self.ranks, placement=self.placement, layouts=layouts)
            for module, layouts in zip((actor, networks), parts, strict=True)
        )
        self._critic_count, own = critics, type(self)
        repeats = self.repeats and self.ranks.size == 1 and self.placement.graphs is not None
        self._critic_step, self._actor_step = (
            self.placement.compiled(own._critic_loss, part=repeats),
            self.placement.compiled(own.actor_loss, part=repeats),
        )
        self._whole = self.placement.repeated(own._descend) if repeats else own._descend
        self._improved: Array | Tensor = np.zeros(2)  # the loss of the actor's last step, and the gradient's norm
        if not self.placement.written:
            self._improved = torch.zeros(2, device=self.device)

    # ------------------------------------------------------------------------------------------ data

    def stored(self, rows: Trajectories, following: NDArray[np.int64]) -> ItemColumns:
        """Observations, actions and what comes `following` (see `returns.n_step`) as they are kept in the table."""
        raise NotImplementedError

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """n-step transitions, in scaled rewards."""
        columns, following = self.transitions(trajectories)
        columns |= self.brought(trajectories, columns, following)
        return [self.kept({**columns, **self.stored(trajectories, following)})]

    def brought(self, rows: Trajectories, columns: ItemColumns, following: NDArray[np.int64]) -> dict[str, Array]:
        """A column `priority`, if rows bring theirs; see `initial_priorities`."""
        return {}

    @property
    def warm_up(self) -> bool:
        """Whether actions are still uniform ones. Not after a start from a policy: its own ones tell more."""
        return self._fresh_start and self._inserted < self.config.start_decisions

    # ------------------------------------------------------------------------------------------ learning

    def written(self, columns: ItemColumns, rows: int) -> Metrics:
        """One update from this rank's share of a batch of `rows`, of perceptrons on a CPU; what is to be told beside the actor's loss.
        Raises TrainingError."""
        raise NotImplementedError

    def autograd(self, columns: Mapping[str, Tensor], rows: int) -> Mapping[str, Tensor]:
        """The same on any device, from where it reads nothing back; of what is `drawn`, too."""
        raise NotImplementedError

    def drawn(self, rows: int) -> Mapping[str, Tensor]:
        """What is random in an update, on the device, beside its columns."""
        return {}

    @property
    def turn(self) -> int:
        """Of updates that are not all alike, which one is next."""
        return 0

    def learn(self, batch: Sample) -> Metrics:
        """See `ReplayLearner.learn`: one step of the critics, and one of the actor where it is due."""
        rows, columns = len(batch.index), batch.columns
        if self.ranks.size > 1:
            share = self.ranks.share(rows)
            columns = {name: column[share] for name, column in columns.items()}
        self._found = ()
        if self.config.prioritised:
            self._weight = self.importance_weights(batch)[self.ranks.share(rows)].astype(np.float32)
        metrics = self._learned(columns, rows)
        if self.config.prioritised:
            errors = self._all_errors(rows)
            if not np.isfinite(errors).all():  # where numbers are read later, if at all
                raise TrainingError("a critic's error became NaN or infinite")
            self._found = [(REPLAY, batch.index, errors + LEAST_PRIORITY)]
        return metrics

    def _learned(self, columns: Mapping[str, Any], rows: int) -> Metrics:
        if self.placement.written:
            return {**self.written(columns, rows), **dict(zip(_ACTOR, self._improved.tolist(), strict=True))}
        beside = dict(self.drawn(rows))
        if self._weight is not None:
            beside["weight"] = to_device(self._weight, self.device)
        inputs = resident(columns, self.device, but=("priority", "version_lo")), beside
        stats, errors = self._whole(self, inputs, rows, self._rates(), self.turn)
        if errors is not None:
            self._errors = errors
        return self.read(stats)

    def _descend(
        self,
        parts: tuple[Mapping[str, Tensor] | LazyRows, Mapping[str, Tensor]],
        rows: int,
        rates: tuple[float, float],
        turn: int,
    ) -> tuple[Mapping[str, Tensor], Tensor | None]:
        """(what is told, and where rows have weights the critics' errors) of a whole update. parts: of what it is given, what was stored
        and what is beside it."""
        self._given_rates, self._given_turn = rates, turn
        batch = {**gather_rows(parts[0]), **parts[1]}
        stats = self.autograd(batch, rows)
        assert isinstance(self._improved, Tensor)
        assert isinstance(self._errors, Tensor) or "weight" not in batch
        errors = self._errors if isinstance(self._errors, Tensor) and "weight" in batch else None
        return {**stats, **dict(zip(_ACTOR, self._improved, strict=True))}, errors

    def _rates(self) -> tuple[float, float]:
        """Of the actor's steps, and of the critics'."""
        config = self.config
        actor = self.rate(config.learning_rate)
        return actor, actor if config.critic_learning_rate is None else self.rate(config.critic_learning_rate)

    def _all_errors(self, rows: int) -> NDArray[np.float64]:
        """Mean absolute errors over the critics, float64[rows], of all ranks' rows."""
        local_errors = to_numpy(self._errors) if isinstance(self._errors, Tensor) else self._errors
        errors = np.zeros(rows)
        errors[self.ranks.share(rows)] = local_errors
        if self.ranks.size > 1:
            self.ranks.sum(errors)
        return errors

    def priorities(self) -> Priorities:
        """See `Prioritises`: the absolute errors, where items are drawn by them."""
        return self._found

    def fit(
        self, x: torch.Tensor, action: NDArray[np.int32], target: NDArray[np.float64], rows: int
    ) -> dict[str, float]:
        """One step of all critics towards float64[n] targets; action int32[n]: their output that is meant."""
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
        """One step of the actor, whose gradients by its outputs and `sums`, the loss first, are filled in for the rows that it has seen."""
        actor = self.actor
        actor.join()
        loss = float(actor.sums[0])
        self._improved = np.array([loss, self.step(actor, "the actor")])

    def step(self, ensemble: Ensemble, what: str) -> float:
        """One optimizer step; see `Ensemble.step`."""
        rate = self._rates()[ensemble is self.critics]
        return ensemble.step(rate=rate, max_norm=self.config.max_gradient_norm, what=what)

    def answers(self, x: Tensor, *, target: bool = False) -> Tensor:
        """What the actor's network says, by autograd, without what does not depend on observations; by the target if so."""
        return self.actor(self.shown(x), target=target)[:, : self.outputs]

    def shown(self, observation: Tensor) -> Tensor:
        """Observations [n, …] as networks see them, float32[n, *shape]."""
        return observation.float().reshape(-1, *self.shape)

    def values_and_targets(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(what critics say float[networks, n], their targets float[n]) of a batch, what is random in it, and what changes with time."""
        raise NotImplementedError

    def actor_loss(self, batch: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """(the actor's loss, what is told beside it): this rank's part of means over so many rows."""
        raise NotImplementedError

    def _critic_loss(self, batch: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """(loss, mean value), and where rows have weights their errors."""
        values, target = self.values_and_targets(batch)
        error = values - target
        if "weight" not in batch:
            return 0.5 * error.square().sum() / rows, values.sum() / rows
        loss = 0.5 * (batch["weight"] * error.square()).sum() / rows
        return loss, values.sum() / rows, error.detach().abs().mean(dim=0)

    def fit_modules(self, batch: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """`fit` by autograd."""
        loss, value, *errors = self._critic_step(self, batch, max(1, rows))
        if errors:
            self._errors = errors[0]
        sums, norm = self.descend(self.critics, loss, value)
        loss, value, _ = sums / self._critic_count
        return {"critic_loss": loss, "q_mean": value, "critic_gradient_norm": norm}

    def improve(self, batch: Mapping[str, Tensor], rows: int) -> Tensor:
        """One step of the actor by autograd; what is told, summed over the ranks."""
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

    def descend(self, ensemble: Ensemble, loss: Tensor, *stats: Tensor) -> tuple[Tensor, Tensor]:
        """One optimizer step; see `Ensemble.descend`."""
        rate, max_norm = self._given_rates[ensemble is self.critics], self.config.max_gradient_norm
        return ensemble.descend(loss, stats, rate=rate, max_norm=max_norm, guard=self.guard)

    def normals(self, count: int, rows: int, size: int) -> Array:
        """Standard normal deviates float32[count, n, size] for this rank's share of `rows`."""
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
    """A softmax policy over legal actions. Fresh ones are nearly uniform, so warming up needs nothing else."""

    def __init__(
        self, config: OffPolicy, context: LearnerContext, spec: PolicySpec, start: Weights | None, *, critics: int
    ) -> None:
        super().__init__(config, context, spec, start)
        critic = Layout((self.features, *(config.hidden if self.layout else ()), self.outputs), config.activation)
        self.make_networks(context, start, critic, critics=critics)
        enumeration = context.env.enumeration
        self.states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        if self.states is not None:
            self._x, self._legal = (to_device(a, self.device) for a in (self.states.x.numpy(), self.states.mask))

    def stored(self, rows: Trajectories, following: NDArray[np.int64]) -> ItemColumns:
        """See `OffPolicyLearner.stored`; with masks, where observations are no ids that imply them."""
        columns = {
            "observation": rows.observation,
            "action": rows.action.astype(np.int32),
            "next": follow(rows.observation, rows.bootstrap_observation, following),
        }
        if self.states is None and rows.mask is not None:
            after = rows.bootstrap_mask
            if after is None:
                after = np.ones((len(rows.tail), self.outputs), np.bool_)
            columns |= {"mask": rows.mask, "next_mask": follow(rows.mask, after, following)}
        return columns

    def seen(self, observation: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Inputs float32[n, *shape] and legal actions bool[n, A]. Of an id of -1 nothing is known, and it counts as the first state."""
        if self.states is not None:
            ids = (observation - self.states.base).clamp(min=0).long()
            return self._x[ids], self._legal[ids]
        if mask is None:
            mask = torch.ones(len(observation), self.outputs, dtype=torch.bool, device=self.device)
        return self.shown(observation), mask

    def targets(self, batch: Mapping[str, Tensor], value: Tensor) -> Tensor:
        """reward + discount × the value [n] of what comes next, which is worth nothing where it is unknown."""
        discount = batch["discount"]
        if self.states is not None:
            discount = discount.masked_fill(batch["next"] < 0, 0.0)
        return batch["reward"] + discount * value

    def values_taken(self, batch: Mapping[str, Tensor], values: Tensor) -> Tensor:
        """Of values [networks, n, A] those of the actions taken, [networks, n]."""
        index = batch["action"].long().expand(len(values), -1)[..., None]
        return values.gather(2, index)[..., 0]

    def weights(self) -> Weights:
        return self.actor.weights()


# --------------------------------------------------------------------------------------------------------------------
# What learners of continuous actions share: actions in [-1, 1], and critics of (observation, action).


class BoxLearner(OffPolicyLearner):
    """now, after: float32[n, inputs + size], a batch's observations and next ones, each beside a place for actions in [-1, 1]."""

    def __init__(
        self, config: OffPolicy, context: LearnerContext, spec: PolicySpec, start: Weights | None, *, critics: int
    ) -> None:
        super().__init__(config, context, spec, start)
        self.box, self.inputs = Bounds.of(spec.config["action"]), math.prod(self.shape)
        critic = Layout((self.features + self.box.size, *config.hidden, 1), config.activation)
        self.make_networks(context, start, critic, critics=critics)
        self._room(0)

    def _room(self, rows: int) -> None:
        self.taken = np.zeros(rows, np.int32)  # which output of the critics is meant: their only one
        self.now, self.after = (torch.zeros(rows, self.inputs + self.box.size) for _ in range(2))
        (self.seen, self.action), (self.next_seen, self.next_action) = (
            (pairs[:, : self.inputs], pairs.numpy()[:, self.inputs :]) for pairs in (self.now, self.after)
        )

    def stored(self, rows: Trajectories, following: NDArray[np.int64]) -> ItemColumns:
        """See `OffPolicyLearner.stored`."""
        return {
            "observation": rows.observation,
            "action": self.box.to_unit(rows.action),
            "next": follow(rows.observation, rows.bootstrap_observation, following),
        }

    def place(self, columns: ItemColumns) -> None:
        """Put a batch into `now` and `after`; the next actions are the learner's to fill in."""
        n = len(columns["action"])
        if n != len(self.now):
            self._room(n)
        self.seen.numpy()[:] = columns["observation"].reshape(n, self.inputs)
        self.next_seen.numpy()[:] = columns["next"].reshape(n, self.inputs)
        self.action[:] = columns["action"]

    def slopes(self, *, count: int | None = None) -> Array:
        """dS/da float32[n, size], where S is what the critics' `gradients` are derivatives of, from their last forward pass. count: only by
        way of the first so many."""
        return self.critics.input_gradient(slice(self.inputs, None), count=count)

    def values_of(self, x: Tensor, action: Tensor, *, target: bool = False, count: int | None = None) -> Tensor:
        """What critics say, by autograd, float[networks, n], of observations and actions in [-1, 1]; count: only the first so many. Of
        actions [n, K, size]: float[networks, n, K]."""
        return self.critics(self.shown(x), action, count, target=target)[..., 0]
