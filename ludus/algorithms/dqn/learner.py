"""DQN's learner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.algorithms.base import LearnerContext, Priorities
from ludus.algorithms.dqn.config import DQN, TABLE
from ludus.algorithms.dqn.terms import next_values, q_terms
from ludus.algorithms.network import Network, Passes
from ludus.algorithms.optimizer import Adam
from ludus.algorithms.progress import Budget
from ludus.algorithms.ranks import agree
from ludus.algorithms.returns import follow, n_step
from ludus.algorithms.spaces import reward_scale
from ludus.algorithms.states import StateTable, compact
from ludus.data.base import Columns, Sample
from ludus.data.trajectories import Trajectories
from ludus.errors import TrainingError
from ludus.policies.mlp import as_rows
from ludus.policies.q_network import QPolicy, action_values, initial_weights, q_layout
from ludus.seeding import generator
from ludus.types import Array, Metrics, State, Weights

_SUMS = 3  # loss, Q and |error| of an update
_LEAST = 1e-6  # priority of a row without an error


@dataclass(frozen=True, slots=True, eq=False)
class _Evaluated:
    """n rows over m states: q float32[m, A] of the online network, mask bool[m, A], state int32[n], after float64[n] next values."""

    passes: Passes
    q: Array
    mask: NDArray[np.bool_]
    state: NDArray[np.int32]
    after: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Means over rows of the weighted loss, of Q and of |error|, and the last float64[rows] by themselves."""

    loss: float
    value: float
    error: float
    errors: NDArray[np.float64]


class DQNLearner:
    """Learns from n-step transitions that its table replays. On enumerated games the networks run on the states that occur in a batch,
    each once, and rows gather from there."""

    def __init__(self, config: DQN, context: LearnerContext, start: Weights | None = None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        if start is None:
            start = initial_weights(self.spec, generator(context.seed, "dqn", "weights"))
        weights = QPolicy(self.spec, start).weights()
        layout = q_layout(self.spec)
        self._ranks = context.ranks
        self._network, self._target = Network({"q": layout}, weights, sums=_SUMS), Network({"q": layout}, weights)
        agree(self._ranks, self._network.flat)
        self._target.flat[:] = self._network.flat
        self._adam = Adam(layout.size)
        enumeration = context.env.enumeration
        self._states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        self._inputs, self._actions = int(self.spec.config["inputs"]), int(self.spec.config["actions"])
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._budget = Budget.of(config.collect(), context)
        self._prioritised = config.priority_exponent > 0.0
        self._found: Priorities = []
        self._inserted = 0
        self._updates = 0
        self._blind = 0  # transitions that should have been bootstrapped and have no observation

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, Columns]]:
        """n-step transitions, in scaled rewards."""
        rows = trajectories
        reward, discount, following = n_step(rows.start, rows.reward, rows.tail, self.config.gamma, self.config.n_step)
        after = follow(rows.observation, rows.tail_observation, following)
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
            tail_mask = (
                rows.tail_mask if rows.tail_mask is not None else np.ones((len(rows.tail), self._actions), np.bool_)
            )
            columns["mask"] = rows.mask
            columns["next_mask"] = follow(rows.mask, tail_mask, following)
        self._budget.add(rows)
        self._inserted += rows.num_rows
        return [(TABLE, columns)]

    def batches(self) -> Sequence[tuple[str, int]]:
        """The updates that are due: `updates_per_decision` × decisions since the table was filled to `min_size`, less those done."""
        config = self.config
        due = int((self._inserted - config.min_size) * config.updates_per_decision) - self._updates
        return [(TABLE, config.batch)] * max(0, due)

    # ------------------------------------------------------------------------------------------ learning

    def update(self, batch: Sample) -> Metrics:
        """One gradient step. Raises TrainingError before it is made, if something is not finite."""
        config, rows = self.config, len(batch.index)
        rate, importance = config.learning_rate.at(self._budget.progress), config.importance.at(self._budget.progress)
        weight = (batch.probability / batch.probability.min(initial=1.0)) ** -importance if self._prioritised else None
        found = self._gradient(batch.columns, rows, weight)
        before = self._network.flat.copy(), self._adam.state_dict()
        norm = self._adam.step(self._network.flat, self._network.gradient, rate=rate, max_norm=config.max_gradient_norm)
        if not (math.isfinite(norm) and np.isfinite(self._network.flat).all()):
            self._network.flat[:] = before[0]
            self._adam.load_state_dict(before[1])
            raise self._error("the gradient" if not math.isfinite(norm) else "the weights")
        self._updates += 1
        self._follow_target()
        self._found = [(TABLE, batch.index, found.errors + _LEAST)] if self._prioritised else []
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

    def _gradient(self, columns: Columns, rows: int, weight: NDArray[np.float64] | None) -> _Found:
        """Fills the network's gradient, of all ranks' rows together."""
        share = self._ranks.share(rows)
        mine = {name: column[share] for name, column in columns.items()}
        action = np.ascontiguousarray(mine["action"], np.int32)
        seen = self._evaluate_rows(mine) if self._states is None else self._evaluate_ids(self._states, mine)
        target = mine["reward"] + mine["discount"].astype(np.float64) * seen.after
        weight = np.ones(len(action)) if weight is None else weight[share]
        gradient = seen.passes.gradients["q"]
        loss, value, errors = q_terms(
            seen.q, seen.mask, seen.state, action, target, weight, self.config.huber_delta, gradient, rows
        )
        found = _Found(loss, value, float(errors.sum()) / max(1, rows), errors)
        if self._ranks.size > 1:
            seen.passes.backward()
            found = self._joint(found, rows)
        if not math.isfinite(found.loss):
            raise self._error("the rewards or targets" if not np.isfinite(target).all() else "the loss")
        if self._ranks.size == 1:
            seen.passes.backward()
        return found

    def _joint(self, mine: _Found, rows: int) -> _Found:
        """What all ranks found; gradients are summed in place."""
        sums, errors = self._network.sums, np.zeros(rows)
        sums[:] = mine.loss, mine.value, mine.error
        self._ranks.sum(self._network.joint)
        if self._prioritised:
            errors[self._ranks.share(rows)] = mine.errors
            self._ranks.sum(errors)
        loss, value, error = map(float, sums)
        return _Found(loss, value, error, errors)

    def _evaluate_ids(self, states: StateTable, columns: Columns) -> _Evaluated:
        """One pass over the states that occur, now or next."""
        now, after = columns["observation"] - states.base, columns["next"]
        both = np.concatenate([now, np.where(after >= 0, after - states.base, -1)])
        unique, index = compact(both, len(states))
        x, mask = states.x[torch.from_numpy(unique)], states.mask[unique]
        passes = Passes(self._network, x)
        passes.forward()
        q = action_values(passes.outputs["q"], mask)
        judge = action_values(self._target.evaluate("q", x), mask)
        state, following = index[: len(now)], index[len(now) :]
        value = next_values(q if self.config.double else judge, judge, mask, following)
        return _Evaluated(passes, q, mask, state, value)

    def _evaluate_rows(self, columns: Columns) -> _Evaluated:
        """One pass over the observations, and one without gradients over the next ones."""
        x, after = as_rows(columns["observation"], self._inputs), as_rows(columns["next"], self._inputs)
        every = np.ones((len(x), self._actions), np.bool_)
        legal, legal_after = columns.get("mask", every), columns.get("next_mask", every)
        passes = Passes(self._network, x)
        passes.forward()
        q = action_values(passes.outputs["q"], legal)
        judge = action_values(self._target.evaluate("q", after), legal_after)
        chooser = action_values(self._network.evaluate("q", after), legal_after) if self.config.double else judge
        state = np.arange(len(x), dtype=np.int32)
        return _Evaluated(passes, q, legal, state, next_values(chooser, judge, legal_after, state))

    def _follow_target(self) -> None:
        if self.config.polyak is not None:
            self._target.flat += np.float32(self.config.polyak) * (self._network.flat - self._target.flat)
        elif self._updates % self.config.target_period == 0:
            self._target.flat[:] = self._network.flat

    def _error(self, what: str) -> TrainingError:
        return TrainingError(
            f"DQN update {self._updates + 1}: {what} became NaN or infinite. The weights from before this update are kept; a smaller "
            "learning_rate, or finite rewards and observations, may help."
        )

    @property
    def _epsilon(self) -> float:
        return self.config.epsilon.at(self._budget.progress)

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return {**self._network.weights(), "epsilon": np.array([self._epsilon], np.float32)}

    def state_dict(self) -> State:
        return {
            "weights": self._network.flat.copy(),
            "target": self._target.flat.copy(),
            "adam": self._adam.state_dict(),
            "budget": self._budget.state_dict(),
            "inserted": self._inserted,
            "updates": self._updates,
            "blind": self._blind,
        }

    def load_state_dict(self, state: State) -> None:
        self._network.flat[:], self._target.flat[:] = state["weights"], state["target"]
        self._adam.load_state_dict(state["adam"])
        self._budget.load_state_dict(state["budget"])
        self._inserted, self._updates, self._blind = (int(state[key]) for key in ("inserted", "updates", "blind"))
