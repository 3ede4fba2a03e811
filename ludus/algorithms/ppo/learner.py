"""PPO's learner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.algorithms.base import LearnerContext
from ludus.algorithms.network import Network, Passes
from ludus.algorithms.optimizer import Adam
from ludus.algorithms.ppo.batch import Batch
from ludus.algorithms.ppo.cells import Cells, PolicyTerms, cells_of, clipped_value_terms, policy_terms, value_terms
from ludus.algorithms.ppo.config import PPO, TABLE
from ludus.algorithms.progress import Budget
from ludus.algorithms.ranks import agree
from ludus.algorithms.returns import gae, tail_values
from ludus.algorithms.spaces import reward_scale
from ludus.algorithms.states import StateTable, compact
from ludus.data.base import Columns, Sample
from ludus.data.trajectories import Trajectories
from ludus.errors import TrainingError
from ludus.policies.mlp import as_rows
from ludus.policies.network import MLPPolicy, initial_weights, layouts
from ludus.seeding import generator
from ludus.types import Array, Metrics, State, Tail, Weights

_SUMS = 5  # surrogate, entropy, KL, clipped and value loss of a step


@dataclass(frozen=True, slots=True)
class _Step:
    terms: PolicyTerms
    value_loss: float
    norm: float


class PPOLearner:
    """Learns from decision rows whose advantages were computed when they arrived, with the values of the weights of that time."""

    def __init__(self, config: PPO, context: LearnerContext, start: Weights | None = None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        weights = start if start is not None else initial_weights(self.spec, generator(context.seed, "ppo", "weights"))
        self._ranks = context.ranks
        self._network = Network(layouts(self.spec), MLPPolicy(self.spec, weights).weights(), sums=_SUMS)
        agree(self._ranks, self._network.flat)
        self._value_part = "value" if config.value_network == "separate" else "policy"
        self._adam = Adam(len(self._network.flat))
        enumeration = context.env.enumeration
        self._states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        self._inputs, self._actions = int(self.spec.config["inputs"]), int(self.spec.config["actions"])
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._seed = context.seed
        self._budget = Budget.of(config.collect(), context)
        self._progress = 0.0  # of the budget, before the rows of the next update were collected
        self._updates = 0
        self._waiting = 0
        self._blind = 0  # tails that should have been bootstrapped and have no observation

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, Columns]]:
        """Decision rows with advantage and value target (in scaled rewards), from the current value network."""
        rows = trajectories
        value, after = self._values(rows.observation), self._values(rows.tail_observation)
        if self._states is not None:
            unseen = (rows.tail_observation < 0) & (rows.tail != Tail.TERMINATED)
            self._blind += int(np.count_nonzero(unseen))
        reward = rows.reward.astype(np.float64) * self._scale
        advantage, target = gae(
            rows.start, reward, value, tail_values(rows.tail, after), self.config.gamma, self.config.gae_lambda
        )
        columns = {
            "observation": rows.observation,
            "action": rows.action,
            "logp": rows.logp,
            "advantage": advantage.astype(np.float32),
            "target": target.astype(np.float32),
            "value": value.astype(np.float32),
            "version_lo": np.repeat(rows.version_lo, np.diff(rows.start)),
        }
        if self._states is None and rows.mask is not None:
            columns["mask"] = rows.mask
        self._budget.add(rows)
        self._waiting += rows.num_rows
        return [(TABLE, columns)]

    def _values(self, observation: Array) -> NDArray[np.float64]:
        """Values float64[n]; 0 for ids of -1, of which nothing is known. A state that occurs often is evaluated once."""
        states = self._states
        if states is None:
            return self._evaluate(as_rows(observation, self._inputs))
        if not (observation >= 0).any():
            return np.zeros(len(observation))
        x, index = states.x, np.where(observation >= 0, observation - states.base, -1)
        if len(observation) < len(states):  # of a large game, only what occurs
            occurring, index = compact(index, len(states))
            x = x[torch.from_numpy(occurring)]
        return np.where(index >= 0, self._evaluate(x)[index], 0.0)

    def _evaluate(self, x: torch.Tensor) -> NDArray[np.float64]:
        return self._network.evaluate(self._value_part, x)[:, -1].astype(np.float64)

    def batches(self) -> Sequence[tuple[str, int]]:
        """All rows that wait, as one update."""
        return [(TABLE, 0)] if self._waiting else []

    # ------------------------------------------------------------------------------------------ learning

    def update(self, batch: Sample) -> Metrics:
        """`epochs` passes over the rows. Raises TrainingError; the weights are then those from before the update."""
        flat, adam = self._network.flat.copy(), self._adam.state_dict()
        try:
            metrics = self._learn(self._batch(batch.columns))
            if not np.isfinite(self._network.flat).all():
                raise self._error("the weights", f"after a step of rate {metrics['learning_rate']:g}")
        except TrainingError:
            self._network.flat[:] = flat
            self._adam.load_state_dict(adam)
            raise
        self._updates += 1
        self._waiting = 0
        self._progress = self._budget.progress
        return metrics

    def _batch(self, columns: Columns) -> Batch:
        advantage = columns["advantage"].astype(np.float64)
        for name, array in (("advantages", advantage), ("value targets", columns["target"])):
            if not np.isfinite(array).all():
                raise self._error(f"the {name}", "already before the first epoch: look for it in rewards or values")
        if self.config.normalise_advantages:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        joint = len(advantage)
        rows = (columns["action"], columns["logp"], advantage, columns["target"], columns["value"], joint)
        observation = columns["observation"]
        if self._states is not None:
            states, state = compact(observation - self._states.base, len(self._states))
            return Batch(self._states.x[torch.from_numpy(states)], self._states.mask[states], state, *rows)
        mask = columns.get("mask")
        if mask is None:
            mask = np.ones((joint, self._actions), np.bool_)
        return Batch(as_rows(observation, self._inputs), mask, np.arange(joint, dtype=np.int32), *rows)

    def _learn(self, batch: Batch) -> Metrics:
        config, rng = self.config, generator(self._seed, "ppo", "shuffle", self._updates)
        rate, bonus = config.learning_rate.at(self._progress), config.entropy.at(self._progress)
        whole = None
        if config.minibatches == 1:
            alone = self._ranks.size == 1
            whole = [self._prepare(batch if alone else batch.part(np.arange(batch.joint), self._ranks))]
        last: _Step | None = None
        for epoch in range(config.epochs):
            for k, (part, cells, passes) in enumerate(whole or map(self._prepare, self._minibatches(batch, rng))):
                step = self._step(
                    part, cells, passes, rate=rate, bonus=bonus, where=f"epoch {epoch + 1}, minibatch {k + 1}"
                )
                if step is None:
                    return self._metrics(batch, last, epoch, rate=rate, bonus=bonus)
                last = step
        return self._metrics(batch, last, config.epochs, rate=rate, bonus=bonus)

    def _minibatches(self, batch: Batch, rng: np.random.Generator) -> list[Batch]:
        shuffled = rng.permutation(len(batch.state))
        parts = np.array_split(shuffled, self.config.minibatches)
        return [batch.part(part, self._ranks) for part in parts if len(part)]

    def _prepare(self, batch: Batch) -> tuple[Batch, Cells, Passes]:
        cells = cells_of(
            batch.state,
            batch.action,
            batch.logp,
            batch.advantage,
            batch.target,
            states=len(batch.mask),
            actions=self._actions,
            rows=batch.joint,
        )
        return batch, cells, Passes(self._network, batch.x)

    def _step(
        self, batch: Batch, cells: Cells, passes: Passes, *, rate: float, bonus: float, where: str
    ) -> _Step | None:
        """One gradient step; None if the policy has already moved beyond `target_kl`."""
        config, joint = self.config, self._ranks.size > 1
        passes.forward()
        terms, value = self._terms(batch, cells, passes, bonus)
        if joint:  # whatever is decided below is decided alike by all ranks
            passes.backward()
            terms, value = self._joint(terms, value)
        if config.target_kl is not None and terms.kl > 1.5 * config.target_kl:
            return None
        for name, loss in (("policy loss", terms.surrogate), ("entropy", terms.entropy), ("value loss", value)):
            if not math.isfinite(loss):
                raise self._error(f"the {name}", f"in {where}")
        if not joint:
            passes.backward()
        norm = self._adam.step(self._network.flat, self._network.gradient, rate=rate, max_norm=config.max_gradient_norm)
        if not math.isfinite(norm):
            raise self._error("the gradient", f"in {where}")
        return _Step(terms, value, norm)

    def _terms(self, batch: Batch, cells: Cells, passes: Passes, bonus: float) -> tuple[PolicyTerms, float]:
        """Losses of this rank's rows as shares of the joint means; their gradients go to the passes."""
        config, part = self.config, self._value_part
        terms = policy_terms(
            passes.outputs["policy"],
            batch.mask,
            cells,
            clip=config.clip,
            entropy=bonus,
            gradient=passes.gradients["policy"],
        )
        out, gradient = passes.outputs[part], passes.gradients[part]
        if config.clip_value is None:
            return terms, value_terms(out, cells, scale=config.value_coefficient, gradient=gradient)
        return terms, clipped_value_terms(
            out,
            batch.state,
            batch.target,
            batch.value,
            clip=config.clip_value,
            scale=config.value_coefficient,
            gradient=gradient,
            rows=batch.joint,
        )

    def _joint(self, terms: PolicyTerms, value: float) -> tuple[PolicyTerms, float]:
        """Sums of all ranks' losses, and of their gradients in place."""
        sums = self._network.sums
        sums[:] = terms.surrogate, terms.entropy, terms.kl, terms.clipped, value
        self._ranks.sum(self._network.joint)
        surrogate, entropy, kl, clipped, value = map(float, sums)
        return PolicyTerms(surrogate, entropy, kl, clipped), value

    def _error(self, what: str, where: str) -> TrainingError:
        return TrainingError(
            f"PPO update {self._updates + 1}: {what} became NaN or infinite {where}. The weights from before this update are kept; "
            "a smaller learning_rate, or finite rewards and observations, may help."
        )

    def _metrics(self, batch: Batch, step: _Step | None, epochs: int, *, rate: float, bonus: float) -> Metrics:
        spread = float(np.var(batch.target))
        unexplained = float(np.var(batch.target - batch.value))
        out = {
            "rows": float(batch.joint),
            "epochs": float(epochs),
            "learning_rate": rate,
            "entropy_coefficient": bonus,
            "explained_variance": 1.0 - unexplained / spread if spread > 0 else 0.0,
            "tails_without_value": float(self._blind),
        }
        if step is not None:
            out |= {
                "policy_loss": step.terms.surrogate,
                "value_loss": step.value_loss,
                "entropy": step.terms.entropy,
                "kl": step.terms.kl,
                "clip_fraction": step.terms.clipped,
                "gradient_norm": step.norm,
            }
        return out

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return self._network.weights()

    def state_dict(self) -> State:
        return {
            "weights": self._network.flat.copy(),
            "adam": self._adam.state_dict(),
            "budget": self._budget.state_dict(),
            "progress": self._progress,
            "updates": self._updates,
            "waiting": self._waiting,
            "blind": self._blind,
        }

    def load_state_dict(self, state: State) -> None:
        self._network.flat[:] = state["weights"]
        self._adam.load_state_dict(state["adam"])
        self._budget.load_state_dict(state["budget"])
        self._progress = float(state["progress"])
        self._updates, self._waiting, self._blind = (int(state[key]) for key in ("updates", "waiting", "blind"))
