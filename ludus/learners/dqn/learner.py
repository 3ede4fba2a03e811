"""DQN's learners: what all that learn action values share, and its two back ends, compiled for perceptrons and by autograd."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.core import seeding
from ludus.core.device import Placement, Work, placed, to_device, to_host
from ludus.core.errors import TrainingError
from ludus.core.types import Array, Metrics, PolicySpec, State, Weights
from ludus.learners.base import REPLAY, LearnerContext, Priorities
from ludus.learners.dqn.losses import (
    Candidates,
    CategoricalReturn,
    MeanReturn,
    QuantileReturn,
    ReturnKind,
    double_values,
    munchausen_bonus,
    next_values,
    q_loss,
    soft_policy,
    taken,
)
from ludus.learners.network import FlatModule, multiplications
from ludus.learners.optimizer import GuardedAdam
from ludus.learners.ranks import agree
from ludus.learners.returns import follow, n_step
from ludus.learners.schedule import Budget
from ludus.learners.spaces import reward_scale
from ludus.learners.states import StateTable, compact
from ludus.policies.action_values import (
    ActionValues,
    TeamValues,
    action_values,
    layout_of,
    load_weights,
    make_network,
    network_of,
)
from ludus.policies.actor_critic import arrays_of
from ludus.policies.mlp import Layout, Workspace, as_rows, forward
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.learners.dqn.options import DQN, QLearning

# --------------------------------------------------------------------------------------------------------------------
# The part of an update that all learners of action values share: what surrounds the gradient.

SUMS = 3  # loss, Q and |error| of an update, which ranks add up together with the gradient
_LEAST = 1e-6  # priority of an item without an error


@dataclass(frozen=True, slots=True, eq=False)
class QLossResult:
    """Means over items of the weighted loss, of Q and of |error|, and the last float[items] by themselves; finite: of the targets. Tensors
    on the learner's device, or numbers."""

    loss: Tensor | float
    value: Tensor | float
    error: Tensor | float
    errors: Tensor
    finite: Tensor | bool

    @staticmethod
    def nothing(device: torch.device) -> QLossResult:
        """Of no items."""
        zero = torch.zeros((), device=device)
        return QLossResult(zero, zero, zero, torch.zeros(0, device=device), zero == 0.0)


class QLearner(ABC):
    """Draws items from the replay table, takes one step of Adam for each batch, and lets the target network follow. Subclasses say what
    items are and how their gradient is found.

    On a CPU, and for priorities, every update looks at its numbers. Elsewhere only the last one that is due does (`GuardedAdam`): an error
    comes at the end, with the weights from before the first of them.
    """

    def __init__(
        self,
        config: QLearning,
        context: LearnerContext,
        spec: PolicySpec,
        *,
        online: nn.Module,
        target: nn.Module,
        placement: Placement,
        layout: Layout | None = None,
    ) -> None:
        """layout: the networks', if they are perceptrons (see `FlatModule`)."""
        self.spec, self.config, self.placement = spec, config, placement
        self._ranks, self._seed, self._device = context.ranks, context.seed, placement.torch
        self._online_parameters, self._target_parameters = (
            FlatModule(module, sums=sums, layouts=() if layout is None else (layout,), device=self._device)
            for module, sums in ((online, SUMS), (target.requires_grad_(False), 0))
        )
        agree(self._ranks, self._online_parameters.values)
        self._target_parameters.values.copy_(self._online_parameters.values)
        self._adam = GuardedAdam(self._online_parameters, self._target_parameters.values)
        enumeration = context.env.enumeration
        self._states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        self._inputs = None if self._states is None else self._states.x.to(self._device)
        self._actions = int(spec.config["actions"])
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._budget = Budget.of(config.collect(), context)
        self._found: Priorities = []
        self._inserted = 0
        self._updates = 0
        self._blind = 0  # rows that should have been bootstrapped and have no observation
        self._due = 0  # updates of this round that are left

    @abstractmethod
    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """See `Learner`."""

    @abstractmethod
    def _gradient(self, columns: ItemColumns, rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        """Fills the online network's gradient, of all ranks' items together."""

    @property
    @abstractmethod
    def network(self) -> nn.Module:
        """The policy's, of the parameters that are learned."""

    def batches(self) -> Sequence[tuple[str, int]]:
        """The updates that are due: `updates_per_decision` × decisions since there were `min_size`, less those done."""
        config = self.config
        self._due = max(0, int((self._inserted - config.min_size) * config.updates_per_decision) - self._updates)
        return [(REPLAY, config.batch)] * self._due

    def update(self, batch: Sample) -> Metrics:
        """One gradient step. Raises TrainingError, and goes back, if something is not finite."""
        config, rows, progress = self.config, len(batch.index), self._budget.progress
        rate, importance = config.learning_rate.at(progress), config.importance.at(progress)
        weight = (batch.probability / batch.probability.min(initial=1.0)) ** -importance if config.prioritised else None
        found = self._gradient(batch.columns, rows, weight)
        self._due -= 1
        step = self._adam.step(
            found.loss,
            (found.error, found.value, found.finite),
            rate=rate,
            max_norm=config.max_gradient_norm,
            look=config.prioritised or self._due <= 0,
        )
        if step is not None and step.wrong:
            raise self._error("the rewards or targets" if step.wrong == "the loss" and not step.told[2] else step.wrong)
        self._updates += 1
        self._follow_target()
        if step is None:
            return {}
        self._found = []
        if config.prioritised:
            self._found = [(REPLAY, batch.index, to_host(found.errors).astype(np.float64) + _LEAST)]
        return {
            "loss": step.loss,
            "td_error": step.told[0],
            "q_mean": step.told[1],
            "gradient_norm": step.norm,
            "rows": float(rows),
            "learning_rate": rate,
            "epsilon": self._epsilon,
            "tails_without_value": float(self._blind),
        }

    def priorities(self) -> Priorities:
        """See `Prioritises`: the absolute errors."""
        return self._found

    def _joint(self, mine: QLossResult, rows: int) -> QLossResult:
        """What all ranks found; gradients are summed in place."""
        if self._ranks.size == 1:
            return mine
        parameters, errors = self._online_parameters, torch.zeros(rows, dtype=torch.float64, device=self._device)
        for at, number in enumerate((mine.loss, mine.value, mine.error), parameters.size):
            parameters.slopes[at] = number
        self._ranks.sum(parameters.slopes)
        if self.config.prioritised:
            errors[self._ranks.share(rows)] = mine.errors.double()
            self._ranks.sum(errors)
        loss, value, error = parameters.slopes[parameters.size :].clone()
        return QLossResult(loss, value, error, errors, mine.finite)

    def _follow_target(self) -> None:
        online, target = self._online_parameters.values, self._target_parameters.values
        if self.config.polyak is not None:
            target.lerp_(online, self.config.polyak)
        elif self._updates % self.config.target_period == 0:
            target.copy_(online)

    def _seen(self, observation: Array, shape: tuple[int, ...]) -> Tensor:
        """Inputs float32[n, *shape] of observations or ids [n, …]; of ids that are unknown, those of some state."""
        if self._states is None or self._inputs is None:
            return to_device(observation, self._device).to(torch.float32).view(-1, *shape)
        ids = np.maximum(observation - self._states.base, 0).astype(np.int64)
        return self._inputs[to_device(ids, self._device)].view(-1, *shape)

    def _error(self, what: str) -> TrainingError:
        return TrainingError(
            f"{type(self.config).__name__} update {self._updates + 1}: {what} became NaN or infinite. The weights from before this "
            "update are kept; a smaller learning_rate, or finite rewards and observations, may help."
        )

    @property
    def _epsilon(self) -> float:
        return self.config.epsilon.at(self._budget.progress)

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return {**arrays_of(self.network), "epsilon": np.array([self._epsilon], np.float32)}

    def state_dict(self) -> State:
        return {
            "weights": to_host(self._online_parameters.values).copy(),
            "target": to_host(self._target_parameters.values).copy(),
            "adam": self._adam.state_dict(),
            "budget": self._budget.state_dict(),
            "inserted": self._inserted,
            "updates": self._updates,
            "blind": self._blind,
        }

    def load_state_dict(self, state: State) -> None:
        for parameters, name in ((self._online_parameters, "weights"), (self._target_parameters, "target")):
            parameters.values.copy_(torch.from_numpy(state[name]))
        self._adam.load_state_dict(state["adam"])
        self._budget.load_state_dict(state["budget"])
        self._inserted, self._updates, self._blind = (int(state[key]) for key in ("inserted", "updates", "blind"))


def begin(spec: PolicySpec, context: LearnerContext, start: Weights | None) -> ActionValues | TeamValues:
    """The network that a learner begins with: fresh, from the task's seed, or with the weights that are given."""
    network = make_network(spec, seed=seeding.key(context.seed, "dqn", "weights") % 2**63)
    if start is not None:
        load_weights(network, spec, start)
    return network


# --------------------------------------------------------------------------------------------------------------------
# DQN, which replays transitions: what its two roads share, and which one is taken.


def make_learner(config: DQN, context: LearnerContext, start: Weights | None = None) -> DQNLearner:
    """By passes that are written out where they can be, else by autograd."""
    spec = config.policy(context.env, context.seats)
    network, because = begin(spec, context, start), autograd_because(config, spec)
    work = Work(multiplications(network), config.batch, written=not because, because=because)
    placement = placed(context.device, work)
    return (CompiledLearner if placement.written else ModuleLearner)(config, context, spec, network, placement)


def autograd_because(config: DQN, spec: PolicySpec) -> str:
    """Why the passes of this network are not written out; "" if they are."""
    if "agents" in spec.config:
        return "agents have a network each"
    if config.munchausen:
        return "munchausen takes the mean over a soft policy"
    return "" if layout_of(spec) is not None else "it is no perceptron that answers means of observations as they are"


class DQNLearner(QLearner):
    """Learns from n-step transitions that its table replays. On both roads the parameters are one vector, in the same order, so that state
    fits either."""

    config: DQN

    def __init__(
        self,
        config: DQN,
        context: LearnerContext,
        spec: PolicySpec,
        network: ActionValues | TeamValues,
        placement: Placement,
    ) -> None:
        self._online, self._target = network, network_of(spec)
        self._layout = layout_of(spec) if "agents" not in spec.config else None
        super().__init__(
            config, context, spec, online=network, target=self._target, placement=placement, layout=self._layout
        )

    @property
    def network(self) -> nn.Module:
        """See `QLearner.network`."""
        return self._online

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """n-step transitions, in scaled rewards."""
        rows = trajectories
        reward, discount, following = n_step(rows.start, rows.reward, rows.tail, self.config.gamma, self.config.n_step)
        after = follow(rows.observation, rows.bootstrap_observation, following)
        if self._states is not None:
            unseen = after < 0
            self._blind += int(np.count_nonzero(unseen & (discount > 0.0)))
            discount = np.where(unseen, 0.0, discount)
        columns = {
            "observation": rows.observation,
            "action": rows.action,
            "reward": (reward * self._scale).astype(np.float32),
            "discount": discount.astype(np.float32),
            "next": after,
            "version_lo": np.repeat(rows.version_lo, np.diff(rows.start)),
        }
        if self._states is None and rows.mask is not None:
            bootstrap_mask = (
                rows.bootstrap_mask
                if rows.bootstrap_mask is not None
                else np.ones((len(rows.tail), self._actions), np.bool_)
            )
            columns["mask"] = rows.mask
            columns["next_mask"] = follow(rows.mask, bootstrap_mask, following)
        self._budget.add(rows)
        self._inserted += rows.num_rows
        return [(REPLAY, columns)]


# --------------------------------------------------------------------------------------------------------------------
# DQN of perceptrons that learn means: compiled, without autograd.


@dataclass(frozen=True, slots=True, eq=False)
class _Evaluated:
    """n rows over m states x float32[m, inputs]: q float32[m, A] of the online network, mask bool[m, A], state int32[n], after float64[n]
    next values."""

    x: Tensor
    q: Array
    mask: NDArray[np.bool_]
    state: NDArray[np.int32]
    after: NDArray[np.float64]


class CompiledLearner(DQNLearner):
    """On enumerated games the networks run on the states that occur in a batch, each once, and rows gather from there."""

    def __init__(
        self,
        config: DQN,
        context: LearnerContext,
        spec: PolicySpec,
        network: ActionValues | TeamValues,
        placement: Placement,
    ) -> None:
        super().__init__(config, context, spec, network, placement)
        online, target, layout = self._online_parameters, self._target_parameters, self._layout
        assert layout is not None
        self._layers, self._into = layout.layers(online.values), layout.layers(online.slopes)
        self._target_layers, self._activation = layout.layers(target.values), layout.activation
        self._x, self._every = torch.zeros(0, layout.widths[0]), np.ones((0, self._actions), np.bool_)
        self._room(layout, 0)

    def _room(self, layout: Layout, rows: int) -> None:
        self._work = Workspace(layout, rows)
        self._out, self._slope = self._work.out.numpy(), self._work.gradient.numpy()

    def _gradient(self, columns: ItemColumns, rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        share = self._ranks.share(rows)
        mine = {name: column[share] for name, column in columns.items()}
        action = np.ascontiguousarray(mine["action"], np.int32)
        seen = self._evaluate_rows(mine) if self._states is None else self._evaluate_ids(self._states, mine)
        target = mine["reward"] + mine["discount"].astype(np.float64) * seen.after
        weight = np.ones(len(action)) if weight is None else weight[share]
        loss, value, errors = q_loss(
            seen.q, seen.mask, seen.state, action, target, weight, self.config.huber_delta, self._slope, rows
        )
        self._work.backward(self._layers, seen.x, self._into)
        error, finite = float(errors.sum()) / max(1, rows), bool(np.isfinite(target).all())
        found = QLossResult(loss, value, error, torch.from_numpy(errors), finite)
        return self._joint(found, rows)

    def _forward(self, x: Tensor) -> Array:
        """Outputs of the online network, which are followed by `backward`."""
        if len(x) != len(self._out):
            self._room(self._work.layout, len(x))
        self._work.forward(self._layers, x)
        return self._out

    def _evaluate_ids(self, states: StateTable, columns: ItemColumns) -> _Evaluated:
        """One pass over the states that occur, now or next."""
        now, after = columns["observation"] - states.base, columns["next"]
        both = np.concatenate([now, np.where(after >= 0, after - states.base, -1)])
        unique, index = compact(both, len(states))
        x, mask = states.x[torch.from_numpy(unique)], states.mask[unique]
        q = action_values(self._forward(x), mask)
        target_values = action_values(forward(self._target_layers, x, self._activation).numpy(), mask)
        state, following = index[: len(now)], index[len(now) :]
        value = next_values(q if self.config.double else target_values, target_values, mask, following)
        return _Evaluated(x, q, mask, state, value)

    def _evaluate_rows(self, columns: ItemColumns) -> _Evaluated:
        """One pass over the observations, and one without gradients over the next ones."""
        rows, inputs = len(columns["observation"]), self._x.shape[1]
        if rows != len(self._x):  # what is read is kept from one batch to the next of as many rows
            self._x, self._every = torch.zeros(rows, inputs), np.ones((rows, self._actions), np.bool_)
        self._x.numpy()[:] = columns["observation"].reshape(rows, inputs)
        after, every = as_rows(columns["next"], inputs), self._every
        legal, legal_after = columns.get("mask", every), columns.get("next_mask", every)
        q = action_values(self._forward(self._x), legal)
        online_values = target_values = action_values(
            forward(self._target_layers, after, self._activation).numpy(), legal_after
        )
        if self.config.double:
            online_values = action_values(forward(self._layers, after, self._activation).numpy(), legal_after)
        state = np.arange(rows, dtype=np.int32)
        return _Evaluated(self._x, q, legal, state, next_values(online_values, target_values, legal_after, state))


# --------------------------------------------------------------------------------------------------------------------
# DQN of any body and head, by autograd.


@dataclass(frozen=True, slots=True, eq=False)
class TransitionRows:
    """n transitions as tensors: x and after float32[n, *shape], legal and legal_after bool[n, A], action int64[n], reward, discount and
    weight float32[n]; levels float32[3, n, K] for quantile functions: of the online network, the target, and who chooses; noise
    float32[3, …] likewise."""

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


class ModuleLearner(DQNLearner):
    """By autograd; what they need of chance is drawn from a stream of the update's own."""

    def __init__(
        self,
        config: DQN,
        context: LearnerContext,
        spec: PolicySpec,
        network: ActionValues | TeamValues,
        placement: Placement,
    ) -> None:
        super().__init__(config, context, spec, network, placement)
        self._kind = kind_of(config, self._online)

    def _gradient(self, columns: ItemColumns, rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        mine = self._rows(columns, rows, weight)
        self._online_parameters.zero()
        target = self._targets(mine)
        chosen = taken(self._asked(self._online, mine.x, mine.legal, mine, _ONLINE), mine.action)
        losses, errors = self._kind.compare(chosen, target, _pick(mine.levels, _ONLINE))
        loss = (losses * mine.weight).sum() / max(1, rows)
        if len(mine.action):
            torch.autograd.backward(loss)
        value = self._online.head.means(chosen.detach()[:, None]).sum() / max(1, rows)
        found = QLossResult(loss.detach(), value, errors.sum() / max(1, rows), errors, target.isfinite().all())
        return self._joint(found, rows)

    def _asked(
        self, module: ActionValues | TeamValues, x: Tensor, legal: Tensor, rows: TransitionRows, which: int
    ) -> Tensor:
        """float32[n, A, K]; which: whose chance."""
        with self.placement.products():
            out: Tensor = module(x, legal, _pick(rows.noise, which), _pick(rows.levels, which))
        return out.float()

    @torch.no_grad()
    def _targets(self, rows: TransitionRows) -> Tensor:
        """What the online network's answers are compared with."""
        config, target, head = self.config, self._target, self._online.head
        after = self._asked(target, rows.after, rows.legal_after, rows, _TARGET)
        if config.munchausen:
            policy, log_policy = soft_policy(head.means(after), rows.legal_after, config.munchausen_temperature)
            now = head.means(self._asked(target, rows.x, rows.legal, rows, _TARGET))
            _, log_now = soft_policy(now, rows.legal, config.munchausen_temperature)
            bonus = munchausen_bonus(
                log_now, rows.action, weight=config.munchausen_weight, least=config.munchausen_least
            )
            return self._kind.target(rows.reward + bonus, rows.discount, Candidates(after, policy, log_policy))
        values = head.means(after)
        if config.double:
            values = head.means(self._asked(self._online, rows.after, rows.legal_after, rows, _CHOICE))
        best = double_values(values, after, rows.legal_after)[:, None]
        one = torch.ones(len(best), 1, device=self._device)
        return self._kind.target(rows.reward, rows.discount, Candidates(best, one, torch.zeros_like(one)))

    def _rows(self, columns: ItemColumns, rows: int, weight: NDArray[np.float64] | None) -> TransitionRows:
        share = self._ranks.share(rows)
        mine = {name: column[share] for name, column in columns.items()}
        x, legal = self._situation(mine["observation"], mine.get("mask"))
        after, legal_after = self._situation(mine["next"], mine.get("next_mask"))
        weight = np.ones(rows) if weight is None else weight
        levels, noise = self._chance(rows)
        return TransitionRows(
            x=x,
            after=after,
            legal=legal,
            legal_after=legal_after,
            action=to_device(mine["action"].astype(np.int64), self._device),
            reward=to_device(mine["reward"], self._device),
            discount=to_device(mine["discount"], self._device),
            weight=to_device(weight[share].astype(np.float32), self._device),
            levels=None if levels is None else levels[:, share],
            noise=noise,
        )

    def _situation(self, observation: Array, mask: NDArray[np.bool_] | None) -> tuple[Tensor, Tensor]:
        """(inputs float32[n, *shape], legal bool[n, A]); of ids that are unknown, those of some state, whose discount is 0."""
        if self._states is not None:
            mask = self._states.mask[np.maximum(observation - self._states.base, 0)]
        elif mask is None:
            mask = np.ones((len(observation), self._actions), np.bool_)
        return self._seen(observation, self._online.shape), to_device(mask, self._device)

    def _chance(self, rows: int) -> tuple[Tensor | None, Tensor | None]:
        """(levels float32[3, rows, K], noise float32[3, size]) of this update, where the head wants them; the same on all ranks."""
        head, levels, noise = self._online.head, None, None
        if head.noise_size or head.cosine is not None:
            rng = seeding.generator(self._seed, "dqn", "update", self._updates)
            if head.cosine is not None:
                levels = to_device(rng.random((3, rows, head.head.atoms), np.float32), self._device)
                levels[_CHOICE] = head.levels
            if head.noise_size:
                normal = to_device(rng.standard_normal((3, head.noise_size), np.float32), self._device)
                noise = normal.sign() * normal.abs().sqrt()
        return levels, noise


def _pick(of: Tensor | None, which: int) -> Tensor | None:
    return None if of is None else of[which]


def kind_of(config: DQN, module: ActionValues | TeamValues) -> ReturnKind:
    """How the answers of this module are learned."""
    if config.distribution == "none":
        return MeanReturn(config.huber_delta)
    if config.distribution == "c51":
        return CategoricalReturn(module.head.support)
    return QuantileReturn(config.huber_delta)
