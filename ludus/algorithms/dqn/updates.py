"""The part of an update that all learners of action values share: what surrounds the gradient."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.base import LearnerContext, Priorities
from ludus.algorithms.dqn.base import TABLE, QLearning
from ludus.algorithms.optimizer import Adam
from ludus.algorithms.progress import Budget
from ludus.algorithms.ranks import agree
from ludus.algorithms.spaces import reward_scale
from ludus.algorithms.states import StateTable
from ludus.data.base import Columns, Sample
from ludus.data.trajectories import Trajectories
from ludus.errors import TrainingError
from ludus.types import Array, Metrics, PolicySpec, State, Weights

SUMS = 3  # loss, Q and |error| of an update, which ranks add up together with the gradient
_LEAST = 1e-6  # priority of an item without an error


class Parameters(Protocol):
    """A network's parameters as one vector, and the gradient of one update; `joint` is the gradient, and `sums` behind it in memory."""

    flat: Array
    gradient: Array
    sums: Array
    joint: Array


@dataclass(frozen=True, slots=True, eq=False)
class Found:
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
        online: Parameters,
        target: Parameters,
    ) -> None:
        self.spec = spec
        self._settings = config
        self._ranks, self._seed = context.ranks, context.seed
        self._online, self._target = online, target
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
    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, Columns]]:
        """See `Learner`."""

    @abstractmethod
    def _gradient(self, columns: Columns, rows: int, weight: NDArray[np.float64] | None) -> Found:
        """Fills the online network's gradient, of all ranks' items together."""

    @abstractmethod
    def _network_weights(self) -> Weights:
        """Copies of the online parameters by name."""

    def batches(self) -> Sequence[tuple[str, int]]:
        """The updates that are due: `updates_per_decision` × decisions since there were `min_size`, less those done."""
        config = self._settings
        due = int((self._inserted - config.min_size) * config.updates_per_decision) - self._updates
        return [(TABLE, config.batch)] * max(0, due)

    def update(self, batch: Sample) -> Metrics:
        """One gradient step. Raises TrainingError before it is made, if something is not finite."""
        config, rows, progress = self._settings, len(batch.index), self._budget.progress
        rate, importance = config.learning_rate.at(progress), config.importance.at(progress)
        weight = (batch.probability / batch.probability.min(initial=1.0)) ** -importance if config.prioritised else None
        found = self._gradient(batch.columns, rows, weight)
        if not math.isfinite(found.loss):
            raise self._error("the loss" if found.finite else "the rewards or targets")
        norm = self._step(rate)
        self._updates += 1
        self._follow_target()
        self._found = [(TABLE, batch.index, found.errors + _LEAST)] if config.prioritised else []
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
        online, adam, steps = self._online, self._adam, self._adam.steps
        for kept, array in zip(self._before, (online.flat, adam.m, adam.v), strict=True):
            np.copyto(kept, array)
        norm = adam.step(online.flat, online.gradient, rate=rate, max_norm=self._settings.max_gradient_norm)
        with np.errstate(invalid="ignore", over="ignore"):  # of infinite weights, which the sum is to show
            total = float(online.flat.sum())
        finite = math.isfinite(total) or bool(np.isfinite(online.flat).all())
        if not (math.isfinite(norm) and finite):
            for kept, array in zip(self._before, (online.flat, adam.m, adam.v), strict=True):
                np.copyto(array, kept)
            adam.steps = steps
            raise self._error("the gradient" if not math.isfinite(norm) else "the weights")
        return norm

    def _joint(self, mine: Found, rows: int) -> Found:
        """What all ranks found; gradients are summed in place."""
        sums, errors = self._online.sums, np.zeros(rows)
        sums[:] = mine.loss, mine.value, mine.error
        self._ranks.sum(self._online.joint)
        if self._settings.prioritised:
            errors[self._ranks.share(rows)] = mine.errors
            self._ranks.sum(errors)
        loss, value, error = map(float, sums)
        return Found(loss, value, error, errors, mine.finite)

    def _follow_target(self) -> None:
        if self._settings.polyak is not None:
            self._target.flat += np.float32(self._settings.polyak) * (self._online.flat - self._target.flat)
        elif self._updates % self._settings.target_period == 0:
            self._target.flat[:] = self._online.flat

    def _error(self, what: str) -> TrainingError:
        return TrainingError(
            f"{type(self._settings).__name__} update {self._updates + 1}: {what} became NaN or infinite. The weights from before this "
            "update are kept; a smaller learning_rate, or finite rewards and observations, may help."
        )

    @property
    def _epsilon(self) -> float:
        return self._settings.epsilon.at(self._budget.progress)

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return {**self._network_weights(), "epsilon": np.array([self._epsilon], np.float32)}

    def state_dict(self) -> State:
        return {
            "weights": self._online.flat.copy(),
            "target": self._target.flat.copy(),
            "adam": self._adam.state_dict(),
            "budget": self._budget.state_dict(),
            "inserted": self._inserted,
            "updates": self._updates,
            "blind": self._blind,
        }

    def load_state_dict(self, state: State) -> None:
        self._online.flat[:], self._target.flat[:] = state["weights"], state["target"]
        self._adam.load_state_dict(state["adam"])
        self._budget.load_state_dict(state["budget"])
        self._inserted, self._updates, self._blind = (int(state[key]) for key in ("inserted", "updates", "blind"))
