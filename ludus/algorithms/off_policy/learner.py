"""What the learners of actor-critic algorithms with replay share: transitions, when updates are due, and their state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ludus import seeding
from ludus.algorithms.base import LearnerContext
from ludus.algorithms.off_policy.config import TABLE, OffPolicy
from ludus.algorithms.off_policy.ensemble import Ensemble, fresh
from ludus.algorithms.off_policy.terms import regression
from ludus.algorithms.progress import Budget
from ludus.algorithms.returns import n_step
from ludus.algorithms.schedule import Schedule
from ludus.algorithms.spaces import reward_scale
from ludus.data.base import Columns, Sample
from ludus.data.trajectories import Trajectories
from ludus.errors import TrainingError
from ludus.policies.mlp import Layout
from ludus.types import Array, Metrics, PolicySpec, State


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
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
        names = tuple(f"q{k}" for k in range(count))
        rng = seeding.generator(self._seed, self.name, "critics")
        return Ensemble(layout, fresh(layout, names, rng, gain=1.0), names, ranks=self.ranks)

    # ------------------------------------------------------------------------------------------ data

    def stored(self, rows: Trajectories, following: NDArray[np.int64]) -> Columns:
        """Observations, actions and what comes `following` (see `returns.n_step`) as they are kept in the table."""
        raise NotImplementedError

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, Columns]]:
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
        return [(TABLE, columns)]

    def batches(self) -> Sequence[tuple[str, int]]:
        """The updates that are due: `updates_per_decision` × decisions since the first `start_decisions`, less those done."""
        config = self._config
        due = int((self._inserted - config.start_decisions) * config.updates_per_decision) - self.updates
        return [(TABLE, config.batch)] * max(0, due)

    @property
    def warm_up(self) -> bool:
        """Whether actions are still uniform ones. Not after a start from a policy: its own ones tell more."""
        return self._fresh_start and self._inserted < self._config.start_decisions

    # ------------------------------------------------------------------------------------------ learning

    def learn(self, columns: Columns, rows: int) -> Metrics:
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

    def fit(self, x: torch.Tensor, action: NDArray[np.int32], target: NDArray[np.float64], rows: int) -> Fitted:
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
        return Fitted(loss, value, self.step(critics, "the critics"))

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
