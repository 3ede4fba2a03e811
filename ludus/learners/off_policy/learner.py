"""What the learners of actor-critic algorithms with replay share: transitions, when updates are due, and their state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import TrainingError
from ludus.core.types import Array, Metrics, PolicySpec, State, Weights
from ludus.learners.base import REPLAY, LearnerContext
from ludus.learners.network import TrainedNetwork
from ludus.learners.optimizer import Adam
from ludus.learners.ranks import Ranks, agree
from ludus.learners.returns import follow, n_step
from ludus.learners.schedule import Budget, Schedule
from ludus.learners.spaces import reward_scale
from ludus.policies.actor_critic import first_weights, layouts
from ludus.policies.heads import Bounds
from ludus.policies.mlp import Layout, Workspace, split
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.learners.off_policy.options import OffPolicy

# --------------------------------------------------------------------------------------------------------------------
# The critics' loss, compiled.


@njit(cache=True)
def regression(q: Array, action: NDArray[np.int32], target: Array, gradient: Array, joint: int) -> tuple[float, float]:
    """½ (Q - y)² and Q, each summed over n rows and divided by `joint` (n, or the rows of all ranks); the first one's gradient with respect
    to q is written to gradient. q, gradient float[n, A], action int32[n] says which column was taken, target float[n] is y."""
    loss, value, rows = 0.0, 0.0, max(1, joint)
    gradient[:] = 0
    for i in range(len(q)):
        taken = float(q[i, action[i]])
        error = taken - float(target[i])
        loss += 0.5 * error * error
        value += taken
        gradient[i, action[i]] = error / rows
    return loss / rows, value / rows


# --------------------------------------------------------------------------------------------------------------------
# Perceptrons of one layout that learn together: passes forward and backward, also to their inputs, and targets that
# follow them.

_SUMS = 3  # numbers that ranks add up together with the gradient
_relu_backward = torch.ops.aten.threshold_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


class Ensemble:
    """One network or several of one form, an optimizer of them all, and a target copy of each.

    outputs, gradients: NumPy views float32[n, outputs] per network, of the last forward pass, and to be filled in before `backward`.
    sums: float32[3], which `join` adds up over the ranks, together with the gradients.
    """

    def __init__(self, parts: Mapping[str, Layout], weights: Weights, *, ranks: Ranks) -> None:
        self.layout, self._ranks = next(iter(parts.values())), ranks
        self._network, self._target = TrainedNetwork(parts, weights, sums=_SUMS), TrainedNetwork(parts, weights)
        agree(ranks, self._network.flat)
        self._target.flat[:] = self._network.flat
        self._online, self._following = torch.from_numpy(self._network.flat), torch.from_numpy(self._target.flat)
        self._adam = Adam(len(self._network.flat), epsilon=1e-8)
        self._names, self.sums = tuple(parts), self._network.sums
        self._room(0)

    def _room(self, rows: int) -> None:
        self._work = [Workspace(self.layout, rows) for _ in self._names]
        self.outputs = [work.out.numpy() for work in self._work]
        self.gradients = [work.gradient.numpy() for work in self._work]

    def forward(self, x: torch.Tensor, *, target: bool = False, count: int | None = None) -> list[Array]:
        """x float32[n, inputs] -> `outputs`, of the targets if so; valid until the next pass. count: only of the first so many."""
        if len(x) != len(self._work[0].out):
            self._room(len(x))
        layers = (self._target if target else self._network).layers
        for name, work in zip(self._names[:count], self._work, strict=False):
            work.forward(layers[name], x)
        return self.outputs[:count]

    def backward(self, x: torch.Tensor) -> None:
        """The parameters' gradients, from `gradients` and the last forward pass, over x and not of the targets."""
        for name, work in zip(self._names, self._work, strict=True):
            work.backward(self._network.layers[name], x, self._network.into[name])

    @torch.no_grad()
    def input_gradient(self, columns: slice, *, count: int | None = None) -> Array:
        """The gradient float32[n, columns] with respect to these of the inputs, from the same as `backward`, summed over the networks, or
        over the first `count` of them."""
        total: torch.Tensor | None = None
        for name, work in zip(self._names[:count], self._work, strict=False):
            layers, gradient = self._network.layers[name], work.gradients[-1]
            for k in range(len(layers) - 1, 0, -1):
                below = work.outputs[k - 1]
                gradient = torch.mm(gradient, layers[k][0], out=work.gradients[k - 1])
                if self.layout.activation == "tanh":
                    _tanh_backward(gradient, below, grad_input=gradient)
                else:
                    _relu_backward(gradient, below, 0, grad_input=gradient)
            part = torch.mm(gradient, layers[0][0][:, columns])
            total = part if total is None else total.add_(part)
        assert total is not None
        return total.numpy()

    def join(self) -> None:
        """Add up the gradients, and `sums`, of all ranks."""
        if self._ranks.size > 1:
            self._ranks.sum(self._network.joint)

    def step(self, *, rate: float, max_norm: float, what: str) -> float:
        """One step of Adam (Kingma and Ba 2015). Answers the gradient's norm; raises TrainingError before the step if it is not finite."""
        norm = self._adam.step(self._network.flat, self._network.gradient, rate=rate, max_norm=max_norm)
        if not math.isfinite(norm):
            raise TrainingError(f"the gradient of {what} became NaN or infinite")
        return norm

    def follow(self, share: float) -> None:
        """target += share (online - target). (Lillicrap et al. 2016, algorithm 1.)"""
        self._following.lerp_(self._online, share)

    def weights(self) -> dict[str, Array]:
        """Copies of the parameters by name."""
        return self._network.weights()

    def state_dict(self) -> State:
        return {
            "weights": self._network.flat.copy(),
            "target": self._target.flat.copy(),
            "adam": self._adam.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self._network.flat[:], self._target.flat[:] = state["weights"], state["target"]
        self._adam.load_state_dict(state["adam"])


def fresh(parts: Mapping[str, Layout], rng: np.random.Generator, *, gain: float) -> Mapping[str, Array]:
    """Initial parameters of networks: orthogonal, outputs of this gain."""
    return {k: v for layout in parts.values() for k, v in split(layout.initial(rng, gain), layout.shapes()).items()}


@dataclass(frozen=True, slots=True, eq=False)
class CriticStepResult:
    """What a step of the critics found: mean loss and Q of the batch, and the gradient's norm."""

    loss: float
    value: float
    norm: float


class OffPolicyLearner:
    """Base: a subclass makes `actor` and `critics`, says what is stored of actions, and what one update does (`learn`)."""

    name = ""
    actor: Ensemble
    critics: Ensemble

    def __init__(self, config: OffPolicy, context: LearnerContext, spec: PolicySpec, *, fresh_start: bool) -> None:
        self.spec = spec
        self._config, self._seed, self.ranks = config, context.seed, context.ranks
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self.budget = Budget.of(config.collect(), context)
        self._noise = torch.Generator().manual_seed(seeding.key(context.seed, self.name, "noise") % 2**63)
        self._fresh_start = fresh_start
        self._inserted = self.updates = 0

    def fresh_critics(self, layout: Layout, *, count: int) -> Ensemble:
        """`count` critics "q0", "q1" … with targets, initialised from the context's seed."""
        parts = {f"q{k}": Layout(layout.widths, layout.activation).under(f"q{k}") for k in range(count)}
        rng = seeding.generator(self._seed, self.name, "critics")
        return Ensemble(parts, fresh(parts, rng, gain=1.0), ranks=self.ranks)

    # ------------------------------------------------------------------------------------------ data

    def stored(self, rows: Trajectories, following: NDArray[np.int64]) -> ItemColumns:
        """Observations, actions and what comes `following` (see `returns.n_step`) as they are kept in the table."""
        raise NotImplementedError

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """n-step transitions, in scaled rewards."""
        rows, config = trajectories, self._config
        reward, discount, following = n_step(rows.start, rows.reward, rows.tail, config.gamma, config.n_step)
        columns = {
            "reward": (reward * self._scale).astype(np.float32),
            "discount": discount.astype(np.float32),
            "version_lo": np.repeat(rows.version_lo, np.diff(rows.start)),
            **self.stored(rows, following),
        }
        self.budget.add(rows)
        self._inserted += rows.num_rows
        return [(REPLAY, columns)]

    def batches(self) -> Sequence[tuple[str, int]]:
        """The updates that are due: `updates_per_decision` × decisions since the first `start_decisions`, less those done."""
        config = self._config
        due = int((self._inserted - config.start_decisions) * config.updates_per_decision) - self.updates
        return [(REPLAY, config.batch)] * max(0, due)

    @property
    def warm_up(self) -> bool:
        """Whether actions are still uniform ones. Not after a start from a policy: its own ones tell more."""
        return self._fresh_start and self._inserted < self._config.start_decisions

    # ------------------------------------------------------------------------------------------ learning

    def learn(self, columns: ItemColumns, rows: int) -> Metrics:
        """One update from this rank's share of a batch of `rows`. Raises TrainingError."""
        raise NotImplementedError

    def update(self, batch: Sample) -> Metrics:
        """One gradient step of the critics, and one of the actor where it is due. Raises TrainingError."""
        rows = len(batch.index)
        columns = batch.columns
        if self.ranks.size > 1:
            share = self.ranks.share(rows)
            columns = {name: column[share] for name, column in columns.items()}
        try:
            metrics = self.learn(columns, rows)
        except TrainingError as error:
            raise TrainingError(
                f"{type(self._config).__name__} update {self.updates + 1}: {error}. The weights from before this step are kept; a smaller "
                "learning_rate, or finite rewards and observations, may help."
            ) from None
        self.updates += 1
        return {"rows": float(rows), **metrics, "learning_rate": self.rate(self._config.learning_rate)}

    def fit(
        self, x: torch.Tensor, action: NDArray[np.int32], target: NDArray[np.float64], rows: int
    ) -> CriticStepResult:
        """One step of all critics towards float64[n] targets; action int32[n]: their output that is meant."""
        critics = self.critics
        critics.sums[:] = 0.0
        for q, gradient in zip(critics.forward(x), critics.gradients, strict=True):
            critics.sums[:2] += regression(q, action, target, gradient, rows)
        critics.backward(x)
        critics.join()
        loss, value = (float(total) / len(critics.outputs) for total in critics.sums[:2])
        if not math.isfinite(loss):
            raise TrainingError("the critics' loss became NaN or infinite")
        return CriticStepResult(loss, value, self.step(critics, "the critics"))

    def step(self, ensemble: Ensemble, what: str) -> float:
        """One optimizer step; see `Ensemble.step`."""
        config = self._config
        rate = config.learning_rate
        if ensemble is self.critics and config.critic_learning_rate is not None:
            rate = config.critic_learning_rate
        return ensemble.step(rate=self.rate(rate), max_norm=config.max_gradient_norm, what=what)

    def rate(self, schedule: Schedule) -> float:
        """A schedule's value now."""
        return schedule.at(self.budget.progress)

    def normals(self, count: int, rows: int, size: int) -> Array:
        """Standard normal deviates float32[count, n, size] for this rank's share of `rows`."""
        drawn: Array = torch.randn(count, rows, size, generator=self._noise).numpy()
        return drawn[:, self.ranks.share(rows)]

    # ------------------------------------------------------------------------------------------ state

    def state_dict(self) -> State:
        return {
            "actor": self.actor.state_dict(),
            "critics": self.critics.state_dict(),
            "budget": self.budget.state_dict(),
            "noise": self._noise.get_state().numpy().copy(),
            "fresh_start": self._fresh_start,
            "inserted": self._inserted,
            "updates": self.updates,
        }

    def load_state_dict(self, state: State) -> None:
        self.actor.load_state_dict(state["actor"])
        self.critics.load_state_dict(state["critics"])
        self.budget.load_state_dict(state["budget"])
        self._noise.set_state(torch.from_numpy(np.array(state["noise"], np.uint8)))
        self._fresh_start = bool(state["fresh_start"])
        self._inserted, self.updates = int(state["inserted"]), int(state["updates"])


# --------------------------------------------------------------------------------------------------------------------
# What learners of continuous actions share: actions in [-1, 1], and critics of (observation, action).


class BoxLearner(OffPolicyLearner):
    """now, after: float32[n, inputs + size], a batch's observations and next ones, each beside a place for actions in [-1, 1]."""

    def __init__(
        self, config: OffPolicy, context: LearnerContext, spec: PolicySpec, start: Weights | None, *, critics: int
    ) -> None:
        super().__init__(config, context, spec, fresh_start=start is None)
        layout = layouts(spec)["policy"]
        parameters = first_weights(spec, start, seed=seeding.key(context.seed, self.name, "actor") % 2**63)
        self.actor = Ensemble({"actor": layout}, parameters, ranks=context.ranks)
        self.box, self.inputs = Bounds.of(spec.config["action"]), layout.widths[0]
        widths = (self.inputs + self.box.size, *layout.widths[1:-1], 1)
        self.critics = self.fresh_critics(Layout(widths, layout.activation), count=critics)
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
