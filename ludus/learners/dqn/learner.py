"""DQN's learners: what all that learn action values share, and its two back ends, compiled for perceptrons and by autograd."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.core import seeding
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
from ludus.learners.network import FlatModule, Passes, TrainedNetwork
from ludus.learners.optimizer import Adam
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
    rows_of,
)
from ludus.policies.actor_critic import arrays_of
from ludus.policies.mlp import as_rows
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.learners.dqn.options import DQN, QLearning

# --------------------------------------------------------------------------------------------------------------------
# The part of an update that all learners of action values share: what surrounds the gradient.

SUMS = 3  # loss, Q and |error| of an update, which ranks add up together with the gradient
_LEAST = 1e-6  # priority of an item without an error


class FlatParameters(Protocol):
    """A network's parameters as one vector, and the gradient of one update; `joint` is the gradient, and `sums` behind it in memory."""

    flat: Array
    gradient: Array
    sums: Array
    joint: Array


@dataclass(frozen=True, slots=True, eq=False)
class QLossResult:
    """Means over items of the weighted loss, of Q and of |error|, and the last float64[items] by themselves. finite: of the targets."""

    loss: float
    value: float
    error: float
    errors: NDArray[np.float64]
    finite: bool = True


class QLearner(ABC):
    """Draws items from the replay table, takes one step of Adam for each batch, and lets the target network follow. Subclasses say what
    items are and how their gradient is found."""

    def __init__(
        self,
        config: QLearning,
        context: LearnerContext,
        spec: PolicySpec,
        *,
        online: FlatParameters,
        target: FlatParameters,
    ) -> None:
        self.spec = spec
        self.config = config
        self._ranks, self._seed = context.ranks, context.seed
        self._online_parameters, self._target_parameters = online, target
        agree(self._ranks, online.flat)
        target.flat[:] = online.flat
        self._adam = Adam(len(online.flat))
        self._before = [np.empty_like(online.flat) for _ in range(3)]  # weights and moments, while a step is made
        enumeration = context.env.enumeration
        self._states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        self._actions = int(spec.config["actions"])
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._budget = Budget.of(config.collect(), context)
        self._found: Priorities = []
        self._inserted = 0
        self._updates = 0
        self._blind = 0  # rows that should have been bootstrapped and have no observation

    @abstractmethod
    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """See `Learner`."""

    @abstractmethod
    def _gradient(self, columns: ItemColumns, rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        """Fills the online network's gradient, of all ranks' items together."""

    @abstractmethod
    def _network_weights(self) -> Weights:
        """Copies of the online parameters by name."""

    def batches(self) -> Sequence[tuple[str, int]]:
        """The updates that are due: `updates_per_decision` × decisions since there were `min_size`, less those done."""
        config = self.config
        due = int((self._inserted - config.min_size) * config.updates_per_decision) - self._updates
        return [(REPLAY, config.batch)] * max(0, due)

    def update(self, batch: Sample) -> Metrics:
        """One gradient step. Raises TrainingError before it is made, if something is not finite."""
        config, rows, progress = self.config, len(batch.index), self._budget.progress
        rate, importance = config.learning_rate.at(progress), config.importance.at(progress)
        weight = (batch.probability / batch.probability.min(initial=1.0)) ** -importance if config.prioritised else None
        found = self._gradient(batch.columns, rows, weight)
        if not math.isfinite(found.loss):
            raise self._error("the loss" if found.finite else "the rewards or targets")
        norm = self._step(rate)
        self._updates += 1
        self._follow_target()
        self._found = [(REPLAY, batch.index, found.errors + _LEAST)] if config.prioritised else []
        return {
            "rows": float(rows),
            "loss": found.loss,
            "td_error": found.error,
            "q_mean": found.value,
            "gradient_norm": norm,
            "learning_rate": rate,
            "epsilon": self._epsilon,
            "tails_without_value": float(self._blind),
        }

    def priorities(self) -> Priorities:
        """See `Prioritises`: the absolute errors."""
        return self._found

    def _step(self, rate: float) -> float:
        """Moves the weights by their gradient, and answers its norm. Raises TrainingError, and moves nothing, if one is not finite."""
        online, adam, steps = self._online_parameters, self._adam, self._adam.steps
        for kept, array in zip(self._before, (online.flat, adam.m, adam.v), strict=True):
            np.copyto(kept, array)
        norm = adam.step(online.flat, online.gradient, rate=rate, max_norm=self.config.max_gradient_norm)
        with np.errstate(invalid="ignore", over="ignore"):  # of infinite weights, which the sum is to show
            total = float(online.flat.sum())
        finite = math.isfinite(total) or bool(np.isfinite(online.flat).all())
        if not (math.isfinite(norm) and finite):
            for kept, array in zip(self._before, (online.flat, adam.m, adam.v), strict=True):
                np.copyto(array, kept)
            adam.steps = steps
            raise self._error("the gradient" if not math.isfinite(norm) else "the weights")
        return norm

    def _joint(self, mine: QLossResult, rows: int) -> QLossResult:
        """What all ranks found; gradients are summed in place."""
        sums, errors = self._online_parameters.sums, np.zeros(rows)
        sums[:] = mine.loss, mine.value, mine.error
        self._ranks.sum(self._online_parameters.joint)
        if self.config.prioritised:
            errors[self._ranks.share(rows)] = mine.errors
            self._ranks.sum(errors)
        loss, value, error = map(float, sums)
        return QLossResult(loss, value, error, errors, mine.finite)

    def _follow_target(self) -> None:
        if self.config.polyak is not None:
            self._target_parameters.flat += np.float32(self.config.polyak) * (
                self._online_parameters.flat - self._target_parameters.flat
            )
        elif self._updates % self.config.target_period == 0:
            self._target_parameters.flat[:] = self._online_parameters.flat

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
        return {**self._network_weights(), "epsilon": np.array([self._epsilon], np.float32)}

    def state_dict(self) -> State:
        return {
            "weights": self._online_parameters.flat.copy(),
            "target": self._target_parameters.flat.copy(),
            "adam": self._adam.state_dict(),
            "budget": self._budget.state_dict(),
            "inserted": self._inserted,
            "updates": self._updates,
            "blind": self._blind,
        }

    def load_state_dict(self, state: State) -> None:
        self._online_parameters.flat[:], self._target_parameters.flat[:] = state["weights"], state["target"]
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
    return (ModuleLearner if autograd_because(config, spec) else CompiledLearner)(config, context, start)


def autograd_because(config: DQN, spec: PolicySpec) -> str:
    """Why the passes of this network are not written out; "" if they are."""
    if "agents" in spec.config:
        return "agents have a network each"
    if config.munchausen:
        return "munchausen takes the mean over a soft policy"
    return (
        ""
        if layout_of(spec) is not None
        else "the network is no perceptron that answers means from observations as they are"
    )


class DQNLearner(QLearner):
    """Learns from n-step transitions that its table replays. On both roads the parameters are one vector, in the same order, so that state
    fits either."""

    config: DQN

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
    """n rows over m states: q float32[m, A] of the online network, mask bool[m, A], state int32[n], after float64[n] next values."""

    passes: Passes
    q: Array
    mask: NDArray[np.bool_]
    state: NDArray[np.int32]
    after: NDArray[np.float64]


class CompiledLearner(DQNLearner):
    """On enumerated games the networks run on the states that occur in a batch, each once, and rows gather from there."""

    def __init__(self, config: DQN, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        layout, weights = layout_of(spec), arrays_of(begin(spec, context, start))
        assert layout is not None
        self._online, self._target = (TrainedNetwork({"q": layout}, weights, sums=sums) for sums in (SUMS, 0))
        super().__init__(config, context, spec, online=self._online, target=self._target)
        self._inputs = layout.widths[0]
        self._x, self._every = torch.zeros(0, self._inputs), np.ones((0, self._actions), np.bool_)
        self._passes = Passes(self._online, self._x)  # its buffers are kept from one batch to the next of as many rows

    def _gradient(self, columns: ItemColumns, rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        share = self._ranks.share(rows)
        mine = {name: column[share] for name, column in columns.items()}
        action = np.ascontiguousarray(mine["action"], np.int32)
        seen = self._evaluate_rows(mine) if self._states is None else self._evaluate_ids(self._states, mine)
        target = mine["reward"] + mine["discount"].astype(np.float64) * seen.after
        weight = np.ones(len(action)) if weight is None else weight[share]
        gradient = seen.passes.gradients["q"]
        loss, value, errors = q_loss(
            seen.q, seen.mask, seen.state, action, target, weight, self.config.huber_delta, gradient, rows
        )
        finite = bool(np.isfinite(target).all())
        found = QLossResult(loss, value, float(errors.sum()) / max(1, rows), errors, finite)
        seen.passes.backward()
        return self._joint(found, rows) if self._ranks.size > 1 else found

    def _evaluate_ids(self, states: StateTable, columns: ItemColumns) -> _Evaluated:
        """One pass over the states that occur, now or next."""
        now, after = columns["observation"] - states.base, columns["next"]
        both = np.concatenate([now, np.where(after >= 0, after - states.base, -1)])
        unique, index = compact(both, len(states))
        x, mask = states.x[torch.from_numpy(unique)], states.mask[unique]
        passes = Passes(self._online, x)
        passes.forward()
        q = action_values(passes.outputs["q"], mask)
        target_values = action_values(self._target.evaluate("q", x), mask)
        state, following = index[: len(now)], index[len(now) :]
        value = next_values(q if self.config.double else target_values, target_values, mask, following)
        return _Evaluated(passes, q, mask, state, value)

    def _evaluate_rows(self, columns: ItemColumns) -> _Evaluated:
        """One pass over the observations, and one without gradients over the next ones."""
        rows, after = len(columns["observation"]), as_rows(columns["next"], self._inputs)
        if rows != len(self._every):
            self._x, self._every = torch.zeros(rows, self._inputs), np.ones((rows, self._actions), np.bool_)
            self._passes = Passes(self._online, self._x)
        self._x.numpy()[:] = columns["observation"].reshape(rows, self._inputs)
        passes, every = self._passes, self._every
        legal, legal_after = columns.get("mask", every), columns.get("next_mask", every)
        passes.forward()
        q = action_values(passes.outputs["q"], legal)
        target_values = action_values(self._target.evaluate("q", after), legal_after)
        online_values = (
            action_values(self._online.evaluate("q", after), legal_after) if self.config.double else target_values
        )
        state = np.arange(rows, dtype=np.int32)
        return _Evaluated(passes, q, legal, state, next_values(online_values, target_values, legal_after, state))

    def _network_weights(self) -> Weights:
        return self._online.weights()


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

    def __init__(self, config: DQN, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        self._online, self._target = begin(spec, context, start), network_of(spec).requires_grad_(False)
        layout = layout_of(spec) if "agents" not in spec.config else None
        online, target = FlatModule(self._online, sums=SUMS, layout=layout), FlatModule(self._target, layout=layout)
        super().__init__(config, context, spec, online=online, target=target)
        self._kind = kind_of(config, self._online)

    def _gradient(self, columns: ItemColumns, rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        mine = self._rows(columns, rows, weight)
        self._online_parameters.joint.fill(0.0)
        target = self._targets(mine)
        out = self._online(mine.x, mine.legal, _pick(mine.noise, _ONLINE), _pick(mine.levels, _ONLINE))
        chosen = taken(out, mine.action)
        losses, errors = self._kind.compare(chosen, target, _pick(mine.levels, _ONLINE))
        loss = (losses * mine.weight).sum() / max(1, rows)
        if len(mine.action):
            torch.autograd.backward(loss)
        value = float(self._online.head.means(chosen.detach()[:, None]).sum()) / max(1, rows)
        each: NDArray[np.float64] = errors.numpy().astype(np.float64)
        found = QLossResult(
            float(loss.detach()), value, float(each.sum()) / max(1, rows), each, bool(target.isfinite().all())
        )
        return self._joint(found, rows) if self._ranks.size > 1 else found

    @torch.no_grad()
    def _targets(self, rows: TransitionRows) -> Tensor:
        """What the online network's answers are compared with."""
        config, target, head = self.config, self._target, self._online.head
        noise, levels = _pick(rows.noise, _TARGET), _pick(rows.levels, _TARGET)
        after = target(rows.after, rows.legal_after, noise, levels)
        if config.munchausen:
            policy, log_policy = soft_policy(head.means(after), rows.legal_after, config.munchausen_temperature)
            now = head.means(target(rows.x, rows.legal, noise, levels))
            _, log_now = soft_policy(now, rows.legal, config.munchausen_temperature)
            bonus = munchausen_bonus(
                log_now, rows.action, weight=config.munchausen_weight, least=config.munchausen_least
            )
            return self._kind.target(rows.reward + bonus, rows.discount, Candidates(after, policy, log_policy))
        values = head.means(after)
        if config.double:
            online = self._online(rows.after, rows.legal_after, _pick(rows.noise, _CHOICE), _pick(rows.levels, _CHOICE))
            values = head.means(online)
        best = double_values(values, after, rows.legal_after)[:, None]
        one = torch.ones(len(best), 1)
        return self._kind.target(rows.reward, rows.discount, Candidates(best, one, torch.zeros_like(one)))

    def _rows(self, columns: ItemColumns, rows: int, weight: NDArray[np.float64] | None) -> TransitionRows:
        share = self._ranks.share(rows)
        mine = {name: column[share] for name, column in columns.items()}
        x, legal = self._seen(mine["observation"], mine.get("mask"))
        after, legal_after = self._seen(mine["next"], mine.get("next_mask"))
        weight = np.ones(rows) if weight is None else weight
        levels, noise = self._chance(rows)
        return TransitionRows(
            x=x,
            after=after,
            legal=legal,
            legal_after=legal_after,
            action=torch.from_numpy(mine["action"].astype(np.int64)),
            reward=torch.from_numpy(mine["reward"]),
            discount=torch.from_numpy(mine["discount"]),
            weight=torch.from_numpy(weight[share].astype(np.float32)),
            levels=None if levels is None else levels[:, share],
            noise=noise,
        )

    def _seen(self, observation: Array, mask: NDArray[np.bool_] | None) -> tuple[Tensor, Tensor]:
        """(inputs float32[n, *shape], legal bool[n, A]); of ids that are unknown, those of some state, whose discount is 0."""
        if self._states is None:
            legal = np.ones((len(observation), self._actions), np.bool_) if mask is None else mask
            return rows_of(observation, self._online.shape), torch.from_numpy(legal)
        ids = np.maximum(observation - self._states.base, 0).astype(np.int64)
        x = self._states.x[torch.from_numpy(ids)].view(-1, *self._online.shape)
        return x, torch.from_numpy(self._states.mask[ids])

    def _chance(self, rows: int) -> tuple[Tensor | None, Tensor | None]:
        """(levels float32[3, rows, K], noise float32[3, size]) of this update, where the head wants them; the same on all ranks."""
        head, levels, noise = self._online.head, None, None
        if head.noise_size or head.cosine is not None:
            rng = seeding.generator(self._seed, "dqn", "update", self._updates)
            if head.cosine is not None:
                levels = torch.from_numpy(rng.random((3, rows, head.head.atoms), np.float32))
                levels[_CHOICE] = head.levels
            if head.noise_size:
                normal = torch.from_numpy(rng.standard_normal((3, head.noise_size), np.float32))
                noise = normal.sign() * normal.abs().sqrt()
        return levels, noise

    def _network_weights(self) -> Weights:
        return arrays_of(self._online)


def _pick(of: Tensor | None, which: int) -> Tensor | None:
    return None if of is None else of[which]


def kind_of(config: DQN, module: ActionValues | TeamValues) -> ReturnKind:
    """How the answers of this module are learned."""
    if config.distribution == "none":
        return MeanReturn(config.huber_delta)
    if config.distribution == "c51":
        return CategoricalReturn(module.head.support)
    return QuantileReturn(config.huber_delta)
