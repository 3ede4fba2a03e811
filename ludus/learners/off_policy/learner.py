"""What the learners of actor-critic algorithms with replay share: transitions, when updates are due, their networks, and their state.

An update is told twice: by `autograd`, the plain text of it, on any device; and `written`, with compiled passes and gradients, for
perceptrons on a CPU. Tests hold them to be equal; `placement` says which of them computes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.core import seeding
from ludus.core.device import Placement, Work, fetched, placed, to_device, to_host
from ludus.core.errors import TrainingError
from ludus.core.types import Array, Metrics, PolicySpec, State, Weights
from ludus.learners.base import REPLAY, LearnerContext
from ludus.learners.network import FlatModule, multiplications
from ludus.learners.optimizer import ModuleAdam
from ludus.learners.ranks import Ranks, agree
from ludus.learners.returns import follow, n_step
from ludus.learners.schedule import Budget, Schedule
from ludus.learners.spaces import reward_scale
from ludus.policies.actor_critic import Tower, arrays_of, first_weights, layouts, load_arrays, make_network
from ludus.policies.bodies import ACTIVATIONS
from ludus.policies.heads import Bounds, head_of
from ludus.policies.mlp import Layer, Layout, Workspace
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
# Networks of one form that learn together, and targets that follow them.

_ACTOR = ("actor_loss", "actor_gradient_norm")
_SUMS = 3  # numbers that ranks add up together with the gradient
_HERE = Placement("cpu", written=True, precision="float32", why="as it is")
_relu_backward = torch.ops.aten.threshold_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


class Critics(nn.Module):
    """Perceptrons of one layout, behind a body each if there are any. They see float[n, …], and float[n, d] beside what bodies make of it,
    and answer float[networks, n, outputs]."""

    def __init__(
        self, layout: Layout, rng: np.random.Generator, *, count: int, bodies: Sequence[nn.Module] = ()
    ) -> None:
        """Initialised orthogonally, outputs with gain 1."""
        super().__init__()
        self.members = nn.ModuleList(_perceptron(layout, rng) for _ in range(count))
        self.bodies = nn.ModuleList(bodies)

    def forward(self, x: Tensor, beside: Tensor | None = None, count: int | None = None) -> Tensor:
        """As the class says; count: only of the first so many."""
        answers = []
        for k, member in enumerate(list(self.members)[:count]):
            seen = self.bodies[k](x) if len(self.bodies) else x.flatten(1)
            answers.append(member(seen if beside is None else torch.cat([seen, beside], dim=1)))
        return torch.stack(answers)


def _perceptron(layout: Layout, rng: np.random.Generator) -> nn.Sequential:
    layers: list[nn.Module] = []
    for weight, bias in layout.layers(torch.from_numpy(layout.initial(rng, 1.0))):
        linear = nn.utils.skip_init(nn.Linear, *reversed(weight.shape))  # type: ignore[no-untyped-call]
        linear.weight.data, linear.bias.data = weight, bias
        layers += [linear, ACTIVATIONS[layout.activation]()]
    return nn.Sequential(*layers[:-1])


class Ensemble:
    """One network or several of one form, an optimizer of them all, and a target copy of each.

    Called, they answer by autograd, on any device. The passes of `layouts` are written out, for perceptrons on a CPU, over the same
    parameters. outputs, gradients: NumPy views float32[n, outputs] per network, of the last such pass forward, and to be filled in before
    `backward`. sums: float32[3], which `join` adds up over the ranks, together with the gradients.
    """

    def __init__(
        self, module: nn.Module, *, ranks: Ranks, placement: Placement = _HERE, layouts: Sequence[Layout] = ()
    ) -> None:
        """Moves the module to its place. layouts: of its networks, in the order of their parameters, if those are all that it has."""
        device, self._ranks, self._placement = placement.torch, ranks, placement
        self.online = FlatModule(copy.deepcopy(module), sums=_SUMS, device=device)
        self.target = FlatModule(module.requires_grad_(False), device=device)
        agree(ranks, self.online.values)
        self.target.values.copy_(self.online.values)
        self._parameters = list(self.online.module.parameters())
        self._adam = ModuleAdam(self.online, epsilon=1e-8)
        self._layouts = layouts
        self._layers, self._into, self._followers = (
            _views(layouts, flat) for flat in (self.online.values, self.online.slopes, self.target.values)
        )
        self._room(0)

    @property
    def sums(self) -> Array:
        """See the class."""
        return self.online.sums

    def weights(self) -> dict[str, Array]:
        """Copies of parameters and buffers by name."""
        return arrays_of(self.online.module)

    def follow(self, share: float) -> None:
        """target += share (online - target). (Lillicrap et al. 2016, algorithm 1.)"""
        self.target.values.lerp_(self.online.values, share)

    def state_dict(self) -> State:
        weights, target = (to_host(flat.values).copy() for flat in (self.online, self.target))
        return {"weights": weights, "target": target, "adam": self._adam.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: State) -> None:
        """Of any device."""
        self.online.values.copy_(torch.from_numpy(state["weights"]))
        self.target.values.copy_(torch.from_numpy(state["target"]))
        self._adam.load_state_dict(state["adam"])

    # ------------------------------------------------------------------------------------------ by autograd

    def __call__(self, *given: Any, target: bool = False) -> Tensor:
        """What the module answers, of an actor-critic the head's outputs, in float32; its target if so."""
        with self._placement.products():
            out = (self.target if target else self.online).module(*given)
        answer: Tensor = out[0] if isinstance(out, tuple) else out
        return answer.float()

    def descend(
        self, loss: Tensor, told: Sequence[Tensor], *, rate: float, max_norm: float, held: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One step of Adam down this rank's part of the loss, unless it is `held`, or something is no number. Answers float32[3], the loss
        and what is told of it, summed over the ranks, and the gradient's norm."""
        self.online.zero()
        torch.autograd.backward(loss, inputs=self._parameters)
        sums = self.online.slopes[self.online.size :]
        sums[: 1 + len(told)] = torch.stack([loss.detach(), *(number.detach() for number in told)])
        self._ranks.sum(self.online.slopes)
        sums = sums.clone()
        return sums, self._adam.step(rate=rate, max_norm=max_norm, held=held | ~sums[0].isfinite())

    # ------------------------------------------------------------------------------------------ written out

    def _room(self, rows: int) -> None:
        self._work = [Workspace(layout, rows) for layout in self._layouts]
        self.outputs = [work.out.numpy() for work in self._work]
        self.gradients = [work.gradient.numpy() for work in self._work]

    def forward(self, x: torch.Tensor, *, target: bool = False, count: int | None = None) -> list[Array]:
        """x float32[n, inputs] -> `outputs`, of the targets if so; valid until the next pass. count: only of the first so many."""
        if len(x) != len(self._work[0].out):
            self._room(len(x))
        for layers, work in zip((self._followers if target else self._layers)[:count], self._work, strict=False):
            work.forward(layers, x)
        return self.outputs[:count]

    def backward(self, x: torch.Tensor) -> None:
        """The parameters' gradients, from `gradients` and the last forward pass, over x and not of the targets."""
        for layers, into, work in zip(self._layers, self._into, self._work, strict=True):
            work.backward(layers, x, into)

    @torch.no_grad()
    def input_gradient(self, columns: slice, *, count: int | None = None) -> Array:
        """The gradient float32[n, columns] with respect to these of the inputs, from the same as `backward`, summed over the networks, or
        over the first `count` of them."""
        total: torch.Tensor | None = None
        for layers, work in zip(self._layers[:count], self._work, strict=False):
            gradient = work.gradients[-1]
            for k in range(len(layers) - 1, 0, -1):
                below = work.outputs[k - 1]
                gradient = torch.mm(gradient, layers[k][0], out=work.gradients[k - 1])
                if work.layout.activation == "tanh":
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
            self._ranks.sum(self.online.joint)

    def step(self, *, rate: float, max_norm: float, what: str) -> float:
        """One step of Adam (Kingma and Ba 2015). Answers the gradient's norm; raises TrainingError before the step if it is not finite."""
        norm = self._adam.step_here(rate=rate, max_norm=max_norm)
        if not math.isfinite(norm):
            raise TrainingError(f"the gradient of {what} became NaN or infinite")
        return norm


def _views(layouts: Sequence[Layout], flat: Tensor) -> list[list[Layer]]:
    """The layers of perceptrons that lie one after the other in a vector."""
    out, at = [], 0
    for layout in layouts:
        out.append(layout.layers(flat[at : at + layout.size]))
        at += layout.size
    return out


class OffPolicyLearner:
    """Base: a subclass says what is stored of actions, what its critics see, and what one update does, in both ways."""

    name = ""
    actor: Ensemble
    critics: Ensemble

    def __init__(self, config: OffPolicy, context: LearnerContext, spec: PolicySpec, start: Weights | None) -> None:
        self.spec = spec
        self._config, self._seed, self.ranks = config, context.seed, context.ranks
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self.budget = Budget.of(config.collect(), context)
        self._noise = torch.Generator().manual_seed(seeding.key(context.seed, self.name, "noise") % 2**63)
        self._fresh_start = start is None
        self._inserted = self.updates = 0
        self.layout = layouts(spec).get("policy")  # of an actor that is a perceptron
        self.shape, head = tuple(spec.config["shape"]), head_of(spec.config["action"])
        self.outputs = head.outputs - head.free
        self.features = math.prod(self.shape) if self.layout else self._sight("actor").features

    def _sight(self, *stream: str | int) -> Tower:
        """A fresh body, as the actor has one."""
        return make_network(self.spec, seed=seeding.key(self._seed, self.name, *stream) % 2**63).actor

    def make_networks(self, context: LearnerContext, start: Weights | None, critic: Layout, *, critics: int) -> None:
        """The actor, from `start` if there is one, and critics, initialised from the context's seed, in the place that is chosen."""
        seed = seeding.key(self._seed, self.name, "actor") % 2**63
        actor = make_network(self.spec, seed=seed)
        if start is not None:
            load_arrays(actor, first_weights(self.spec, start, seed=seed))
        bodies = [] if self.layout else [self._sight("critics", k).body for k in range(critics)]
        judges = Critics(critic, seeding.generator(self._seed, self.name, "critics"), count=critics, bodies=bodies)
        work = multiplications(actor) + multiplications(judges)
        why = "" if self.layout else "only perceptrons have passes that are written out"
        self.placement = placed(context.device, Work(work, self._config.batch, self.layout is not None, why))
        self.device = self.placement.torch
        parts = ([self.layout], [critic] * critics) if self.placement.written and self.layout else ([], [])
        self.actor, self.critics = (
            Ensemble(module, ranks=self.ranks, placement=self.placement, layouts=layouts)
            for module, layouts in zip((actor, judges), parts, strict=True)
        )
        self._wrong = torch.zeros((), dtype=torch.bool, device=self.device)
        self._improved: Array | Tensor = np.zeros(2)  # the loss of the actor's last step, and the gradient's norm
        if not self.placement.written:
            self._improved = torch.zeros(2, device=self.device)
        self._told: Metrics = {}
        self._unread = 0  # updates of this round that are still to come

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
        due = max(0, int((self._inserted - config.start_decisions) * config.updates_per_decision) - self.updates)
        self._unread = due
        return [(REPLAY, config.batch)] * due

    @property
    def warm_up(self) -> bool:
        """Whether actions are still uniform ones. Not after a start from a policy: its own ones tell more."""
        return self._fresh_start and self._inserted < self._config.start_decisions

    # ------------------------------------------------------------------------------------------ learning

    def written(self, columns: ItemColumns, rows: int) -> Metrics:
        """One update from this rank's share of a batch of `rows`, of perceptrons on a CPU; what is to be told beside the actor's loss.
        Raises TrainingError."""
        raise NotImplementedError

    def autograd(self, columns: Mapping[str, Tensor], rows: int) -> Mapping[str, Tensor]:
        """The same on any device, from where it reads nothing back."""
        raise NotImplementedError

    def update(self, batch: Sample) -> Metrics:
        """One gradient step of the critics, and one of the actor where it is due. Raises TrainingError. By autograd, numbers are read back
        once in a round of `batches`: the metrics in between are those of before, and an error comes with the last update, or with the one
        that it is of where updates are asked for one by one."""
        rows = len(batch.index)
        columns = batch.columns
        if self.ranks.size > 1:
            share = self.ranks.share(rows)
            columns = {name: column[share] for name, column in columns.items()}
        try:
            if self.placement.written:
                told = self.written(columns, rows)
                metrics = {**told, **dict(zip(_ACTOR, self._improved.tolist(), strict=True))}
            else:
                metrics = dict(self._by_autograd(columns, rows))
        except TrainingError as error:
            raise TrainingError(
                f"{type(self._config).__name__} update {self.updates + 1}: {error}. The weights from before this step are kept; a smaller "
                "learning_rate, or finite rewards and observations, may help."
            ) from None
        self.updates += 1
        return {"rows": float(rows), **metrics, "learning_rate": self.rate(self._config.learning_rate)}

    def _by_autograd(self, columns: ItemColumns, rows: int) -> Metrics:
        told = self.autograd({name: to_device(column, self.device) for name, column in columns.items()}, rows)
        told = {**told, **dict(zip(_ACTOR, self._improved, strict=True))}
        self._unread -= 1
        if self._unread <= 0:
            *numbers, wrong = fetched([*told.values(), self._wrong])
            self._told = dict(zip(told, numbers, strict=True))
            if wrong:
                self._wrong.zero_()
                raise TrainingError("a loss or its gradient became NaN or infinite")
        return self._told

    def fit(
        self, x: torch.Tensor, action: NDArray[np.int32], target: NDArray[np.float64], rows: int
    ) -> dict[str, float]:
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
        return ensemble.step(rate=self._rate_of(ensemble), max_norm=self._config.max_gradient_norm, what=what)

    def answers(self, x: Tensor, *, target: bool = False) -> Tensor:
        """What the actor's network says, by autograd, without what does not depend on observations; by the target if so."""
        return self.actor(self.shown(x), target=target)[:, : self.outputs]

    def shown(self, observation: Tensor) -> Tensor:
        """Observations [n, …] as networks see them, float32[n, *shape]."""
        return observation.float().reshape(-1, *self.shape)

    def fit_modules(self, values: Tensor, target: Tensor, rows: int) -> dict[str, Tensor]:
        """`fit` by autograd: of what critics say, float[networks, n], towards targets float[n]."""
        loss = 0.5 * (values - target).square().sum() / max(1, rows)
        sums, norm = self.descend(self.critics, loss, values.sum() / max(1, rows))
        loss, value, _ = sums / len(values)
        return {"critic_loss": loss, "q_mean": value, "critic_gradient_norm": norm}

    def improve(self, loss: Tensor, *told: Tensor) -> Tensor:
        """One step of the actor by autograd; what is told, summed over the ranks."""
        sums, norm = self.descend(self.actor, loss, *told)
        self._improved = torch.stack([sums[0], norm.to(sums)])
        return sums[1 : 1 + len(told)]

    def descend(self, ensemble: Ensemble, loss: Tensor, *told: Tensor) -> tuple[Tensor, Tensor]:
        """One optimizer step; see `Ensemble.descend`. Where a number is none, nothing moves until it is read."""
        rate, max_norm = self._rate_of(ensemble), self._config.max_gradient_norm
        sums, norm = ensemble.descend(loss, told, rate=rate, max_norm=max_norm, held=self._wrong)
        self._wrong = self._wrong | ~(sums[0].isfinite() & norm.isfinite())
        return sums, norm

    def _rate_of(self, networks: Ensemble) -> float:
        config = self._config
        own = config.critic_learning_rate if networks is self.critics else None
        return self.rate(config.learning_rate if own is None else own)

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
            "improved": np.array(to_host(self._improved) if isinstance(self._improved, Tensor) else self._improved),
            "budget": self.budget.state_dict(),
            "noise": self._noise.get_state().numpy().copy(),
            "fresh_start": self._fresh_start,
            "inserted": self._inserted,
            "updates": self.updates,
        }

    def load_state_dict(self, state: State) -> None:
        self.actor.load_state_dict(state["actor"])
        self.critics.load_state_dict(state["critics"])
        improved = np.array(state["improved"])
        self._improved = improved if self.placement.written else torch.from_numpy(improved).float().to(self.device)
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

    def judged(self, x: Tensor, action: Tensor, *, target: bool = False, count: int | None = None) -> Tensor:
        """What critics say, by autograd, float[networks, n], of observations and actions in [-1, 1]; count: only the first so many."""
        return self.critics(self.shown(x), action, count, target=target)[..., 0]
