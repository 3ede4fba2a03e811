"""Shared parts of learners with replay: networks with target networks, pacing of updates, their metrics, and state."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.algorithms.common.base import REPLAY, CollectConfig, LearnerContext
from ludus.algorithms.common.config import BEST, TAKEN, Budget, Schedule
from ludus.algorithms.common.returns import gather_next, n_step
from ludus.algorithms.common.space_checks import reward_scale
from ludus.algorithms.rewards.base import LearnedReward, LearnedRewardOptions
from ludus.backend.device import Placement, to_numpy
from ludus.backend.mlp import Layout, Workspace
from ludus.backend.network import FlatModule, ModuleAdam, NonFiniteGuard, slices
from ludus.backend.ranks import GradientSum, RankGroup, broadcast_from_rank0
from ludus.core.errors import DataError, TrainingError
from ludus.core.types import Array, Metrics, PolicySpec, State
from ludus.policies.actor_critic import arrays_of
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

# --------------------------------------------------------------------------------------------------------------------
# Networks that learn together, and targets that follow them.

_SUMS = 3  # numbers that ranks add up together with the gradient


class NetworkEnsemble:
    """One network or several of one architecture, an optimizer of them all, and a target copy of each.

    Called, they evaluate by autograd, on any device. `layouts` have CPU kernels for perceptrons over the same
    parameters.

    Attributes:
        sums: float32[3], which `join` adds up over the ranks, together with the gradients.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        ranks: RankGroup,
        placement: Placement,
        layouts: Sequence[Layout],
        order: Sequence[Layout] = (),
        epsilon: float = 1e-8,
    ) -> None:
        """Moves the module to its device.

        Args:
            module: The networks.
            ranks: Ranks that train them together.
            placement: Device and backend.
            layouts: Layouts of the networks, in the order of their parameters, if CPU kernels evaluate them; else
                empty.
            order: The same, whether or not kernels evaluate them; see `FlatModule`.
            epsilon: Adam's ε.
        """
        device, self._ranks, self._placement = placement.torch, ranks, placement
        self.online = FlatModule(copy.deepcopy(module), sums=_SUMS, layouts=order, device=device)
        self.target = FlatModule(module.requires_grad_(False), layouts=order, device=device)
        if ranks.size > 1:
            broadcast_from_rank0(ranks, self.online.values)
        self._joint = GradientSum(self.online, ranks)
        self.target.values.copy_(self.online.values)
        self.adam = ModuleAdam(self.online, epsilon=epsilon)
        self._layouts = layouts
        self._places = slices(layouts)
        self._work = [Workspace(layout) for layout in layouts]

    @property
    def sums(self) -> Array:
        """Return the sums; see the class."""
        return self.online.sums

    def weights(self) -> dict[str, Array]:
        """Return copies of parameters and buffers by name."""
        return arrays_of(self.online.module)

    def update_target(self, share: float) -> None:
        """Move the target networks: target += share (online - target). (Lillicrap et al. 2016, algorithm 1.)"""
        self.target.values.lerp_(self.online.values, share)

    def state_dict(self) -> State:
        weights, target = (to_numpy(flat.values).copy() for flat in (self.online, self.target))
        return {"weights": weights, "target": target, "adam": self.adam.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: State) -> None:
        """Restore a state of any device."""
        self.online.values.copy_(torch.from_numpy(state["weights"]))
        self.target.values.copy_(torch.from_numpy(state["target"]))
        self.adam.load_state_dict(state["adam"])

    # ------------------------------------------------------------------------------------------ by autograd

    def __call__(self, *inputs: Any, target: bool = False) -> Tensor:
        """Return the module's output (the head's of an actor-critic) in float32; the target network's if `target`."""
        with self._placement.products():
            out = (self.target if target else self.online).module(*inputs)
        answer: Tensor = out[0] if isinstance(out, tuple) else out
        return answer.float()

    def descend(
        self, loss: Tensor, stats: Sequence[Tensor], *, rate: float, max_norm: float, guard: NonFiniteGuard
    ) -> tuple[Tensor, Tensor]:
        """Take one step of Adam on this rank's part of the loss, unless a number is not finite. Return float32[3], the
        loss and `stats` summed over the ranks, and the gradient's norm."""
        self._joint.begin()
        self.online.differentiate(loss)
        sums = self.online.grad[self.online.size :]
        sums[: 1 + len(stats)] = torch.stack([loss.detach(), *(number.detach() for number in stats)])
        self._joint.end()
        sums = sums.clone()
        return sums, guard.step(self.adam, sums[0], rate=rate, max_norm=max_norm)

    # ------------------------------------------------------------------------------------------ CPU kernels

    @property
    def outputs(self) -> list[Array]:
        """Return float32[n, outputs] per network, of the last forward pass."""
        return [work.out for work in self._work]

    @property
    def gradients(self) -> list[Array]:
        """Return the gradients of `outputs`, to be filled in before `backward`."""
        return [work.gradient for work in self._work]

    def forward(self, x: torch.Tensor, *, target: bool = False, count: int | None = None) -> list[Array]:
        """Evaluate the networks by CPU kernels: x float32[n, inputs] -> `outputs`, valid until the next pass.

        Args:
            x: Inputs.
            target: Whether the target networks are evaluated.
            count: Number of first networks to evaluate; None: all.
        """
        flat, rows = (self.target if target else self.online).flat, x.numpy()
        for place, work in zip(self._places[:count], self._work, strict=False):
            work.forward(flat[place], rows)
        return self.outputs[:count]

    def backward(self, x: torch.Tensor) -> None:
        """Compute the parameters' gradients from `gradients` and the last forward pass over x, of the online networks."""
        rows = x.numpy()
        for place, work in zip(self._places, self._work, strict=True):
            work.backward(self.online.flat[place], rows, self.online.gradient[place])

    def input_gradient(self, columns: slice, *, count: int | None = None) -> Array:
        """Return the gradient float32[n, columns] by these columns of the inputs, summed over the networks, or over the
        first `count` of them."""
        pairs = zip(self._places[:count], self._work, strict=False)
        first, *others = (work.input_gradient(self.online.flat[place])[:, columns] for place, work in pairs)
        for other in others:
            first += other
        return first

    def join(self) -> None:
        """Add up the gradients and `sums` of all ranks."""
        if self._ranks.size > 1:
            self._ranks.sum(self.online.joint)

    def step(self, *, rate: float, max_norm: float, what: str) -> float:
        """Take one step of Adam (Kingma and Ba 2015). Return the gradient's norm; raise TrainingError before the step
        if it is not finite."""
        norm = self.adam.step_on_cpu(rate=rate, max_norm=max_norm)
        if not math.isfinite(norm):
            raise TrainingError(f"the gradient of {what} became NaN or infinite")
        return norm


# --------------------------------------------------------------------------------------------------------------------
# The shell of a learner.


LEAST_PRIORITY = 1e-6
"""Of an item without an error."""


def initial_priorities(
    rows: Trajectories, columns: Mapping[str, Array], next_index: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the priorities |R + discount × best(next) − taken| of rows, float32[N], by the weights that acted, whose
    values came with the rows (`RolloutRequest.bootstrap_value`). (Horgan et al. 2018, section 3 and algorithm 1.)

    Rows of added segments, or whose rewards are not finite, have the largest priority of the others.

    Args:
        rows: The trajectories.
        columns: "reward" and "discount" of the n-step targets, in scaled rewards.
        next_index: int64[N], as `returns.n_step` returns it.

    Raises:
        DataError: Rows without values.
    """
    if rows.bootstrap_value is None or not {TAKEN, BEST} <= rows.extras.keys():
        raise DataError(
            f"with initial_priority=error rows bring the extras {TAKEN!r} and {BEST!r}, and bootstrap_value, of the policy that acted; "
            f"these have the extras {sorted(rows.extras)}. Collect with this algorithm's policy, or set initial_priority=largest."
        )
    after = gather_next(rows.extras[BEST], rows.bootstrap_value, next_index)
    target = columns["reward"] + columns["discount"].astype(np.float64) * after
    priority = np.abs(target - rows.extras[TAKEN]) + LEAST_PRIORITY
    known = np.isfinite(priority)  # an update says what is not
    if rows.added is not None:
        known &= ~np.repeat(rows.added, np.diff(rows.start))
    priority[~known] = priority[known].max(initial=0.0) or 1.0
    return priority.astype(np.float32)


class ReplaySettings(Protocol):
    """Options of an algorithm that `ReplayLearner` reads."""

    @property
    def batch(self) -> int: ...

    @property
    def gamma(self) -> float: ...

    @property
    def n_step(self) -> int: ...

    @property
    def updates_per_decision(self) -> float: ...

    @property
    def learning_rate(self) -> Schedule: ...

    @property
    def importance(self) -> Schedule: ...

    @property
    def scale_rewards(self) -> bool: ...

    @property
    def learned_reward(self) -> LearnedRewardOptions | None: ...

    def collect(self) -> CollectConfig: ...

    def due(self, *, decisions: int, items: int, updates: int) -> int: ...


class ReplayLearner(ABC):
    """Base of learners whose updates become due by what was collected, from one table. A subclass implements `items`
    and one update (`learn`)."""

    config: ReplaySettings
    placement: Placement

    def __init__(self, config: ReplaySettings, context: LearnerContext, spec: PolicySpec) -> None:
        self.config, self.spec, self.ranks, self._seed = config, spec, context.ranks, context.seed
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._context = context
        self._learned_reward: LearnedReward | None = None
        self.budget = Budget.of(config.collect(), context)
        self._inserted = self._items = self.updates = 0
        self._metrics: Metrics = {}
        self._unread = 0  # updates of this round that are still to come

    def settle(self, placement: Placement) -> None:
        """Set the device and backend."""
        self.placement, self.device = placement, placement.torch
        self.guard = NonFiniteGuard(self.device)
        learned = self.config.learned_reward
        if learned is not None:
            gamma = self.config.gamma
            self._learned_reward = learned.build(self._context, placement, replayed=True, gamma=gamma)

    # ------------------------------------------------------------------------------------------ data

    @abstractmethod
    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return the items of a rollout; see `Learner`."""

    def count(self, trajectories: Trajectories) -> None:
        """Count what was collected."""
        self.budget.add(trajectories)
        self._inserted += trajectories.num_decisions

    def rewarded(self, rows: Trajectories) -> Trajectories:
        """Return the same rows with the rewards that are learned from, in the game's units. Learned rewards are
        computed once, when rows are inserted."""
        if self._learned_reward is None:
            return rows
        result = self._learned_reward.of(rows, rows.reward.astype(np.float64) * self._scale)
        return replace(rows, reward=(result.reward / self._scale).astype(np.float32))

    def transitions(self, rows: Trajectories) -> tuple[dict[str, Array], NDArray[np.int64]]:
        """Count the rows; return (columns of n-step targets in scaled rewards, next rows as `returns.n_step` returns
        them)."""
        rows = self.rewarded(rows)
        self.count(rows)
        reward, discount, next_index = n_step(rows.start, rows.reward, rows.tail, self.config.gamma, self.config.n_step)
        columns = {
            "reward": (reward * self._scale).astype(np.float32),
            "discount": discount.astype(np.float32),
            "version_lo": np.repeat(rows.version_lo, np.diff(rows.start)),
        }
        return columns, next_index

    def table_items(self, columns: ItemColumns) -> tuple[str, ItemColumns]:
        """Count items for the table; return its name and the items."""
        self._items += len(next(iter(columns.values())))
        return REPLAY, columns

    def batches(self) -> Sequence[tuple[str, int]]:
        """Return the updates that are due (`ReplayOptions.due`)."""
        due = self.config.due(decisions=self._inserted, items=self._items, updates=self.updates)
        self._unread = max(0, due)
        return [(REPLAY, self.config.batch)] * self._unread

    # ------------------------------------------------------------------------------------------ learning

    @abstractmethod
    def learn(self, batch: Sample) -> Metrics:
        """Run one update. Return its metrics; raise TrainingError, which names what became NaN or infinite."""

    def update(self, batch: Sample) -> Metrics:
        """Run one update. Raise TrainingError.

        Numbers of `read` are read once in a round of `batches`: metrics in between are those of the last read, and an
        error is raised by the round's last update.
        """
        try:
            metrics = self.learn(batch)
        except TrainingError as error:
            raise TrainingError(
                f"{type(self.config).__name__} update {self.updates + 1}: {error}. The weights from before this update are kept; a smaller "
                "learning_rate, or finite rewards and observations, may help."
            ) from None
        self.updates += 1
        learned = {} if self._learned_reward is None else self._learned_reward.metrics
        rate = {"learning_rate": self.rate(self.config.learning_rate)}
        return {"rows": float(len(batch.index)), **metrics, **learned, **rate}

    def read(self, stats: Mapping[str, Tensor], *, now: bool = False) -> Metrics:
        """Return the numbers of an update, if it is the round's last or `now`; else those of the last read. Raise
        TrainingError if one of them, or of those not read, is not finite."""
        self._unread -= 1
        if self._unread <= 0 or now:
            numbers, wrong = self.guard.read([*stats.values()])
            self._metrics = dict(zip(stats, numbers, strict=True))
            if wrong:
                raise TrainingError("a loss or its gradient became NaN or infinite")
        return self._metrics

    def importance_weights(self, batch: Sample) -> NDArray[np.float64]:
        """Return (least chance of the batch / an item's chance)^importance, float64[n]. (Schaul et al. 2016, section
        3.4.)"""
        weights: NDArray[np.float64] = (batch.probability / batch.probability.min(initial=1.0)) ** -self.rate(
            self.config.importance
        )
        return weights

    def rate(self, schedule: Schedule) -> float:
        """Return a schedule's present value."""
        return schedule.at(self.budget.progress)

    # ------------------------------------------------------------------------------------------ state

    def state_dict(self) -> State:
        return {
            "budget": self.budget.state_dict(),
            "inserted": self._inserted,
            "items": self._items,
            "updates": self.updates,
            **({} if self._learned_reward is None else {"learned_reward": self._learned_reward.state_dict()}),
        }

    def load_state_dict(self, state: State) -> None:
        self.budget.load_state_dict(state["budget"])
        self._inserted, self.updates = int(state["inserted"]), int(state["updates"])
        self._items = int(state.get("items", 0))  # of earlier versions, which no items paced
        if self._learned_reward is not None:
            self._learned_reward.load_state_dict(state["learned_reward"])
