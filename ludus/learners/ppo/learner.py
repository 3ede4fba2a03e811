"""PPO's learner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.core.errors import TrainingError
from ludus.core.seeding import generator
from ludus.core.types import Array, Metrics, State, Tail, Weights
from ludus.learners.base import ROLLOUTS, LearnerContext
from ludus.learners.diversity import Divergence
from ludus.learners.network import TrainedNetwork
from ludus.learners.on_policy.models import fresh_seed
from ludus.learners.on_policy.teams import team_rewards
from ludus.learners.ppo.compressed import log_probs
from ludus.learners.ppo.steps import SUMS, PPOBatch, PPOStepper, PPOStepResult
from ludus.learners.ranks import agree
from ludus.learners.returns import bootstrap_values, corrected, gae, normalised, trace_columns
from ludus.learners.schedule import Budget
from ludus.learners.spaces import reward_scale
from ludus.learners.states import StateTable, compact
from ludus.policies.actor_critic import first_weights, layouts
from ludus.policies.mlp import as_rows
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.learners.ppo.options import PPO


class PPOLearner:
    """Learns from decision rows whose advantages were computed when they arrived, with the values of the weights of that time."""

    def __init__(self, config: PPO, context: LearnerContext, start: Weights | None = None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        weights = first_weights(self.spec, start, seed=fresh_seed(context))
        self._ranks = context.ranks
        self._network = TrainedNetwork(layouts(self.spec), weights, sums=SUMS)
        agree(self._ranks, self._network.flat)
        self._value_part = "value" if config.value_network == "separate" else "policy"
        enumeration = context.env.enumeration
        self._states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        self._inputs, self._actions = math.prod(self.spec.config["shape"]), self.spec.config["action"]["actions"]
        self._steps = PPOStepper(config, self._network, actions=self._actions, ranks=self._ranks)
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._divergence = (
            Divergence(context.diversity, context.env, context.seats) if context.diversity is not None else None
        )
        self._seed = context.seed
        self._budget = Budget.of(config.collect(), context)
        self._progress = 0.0  # of the budget, before the rows of the next update were collected
        self._updates = 0
        self._waiting = 0
        self._blind = 0  # segments that should have been bootstrapped and have no observation

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Decision rows with advantage and value target (in scaled rewards), from the current value network."""
        rows = trajectories
        value, after = self._values(rows.observation), self._values(rows.bootstrap_observation)
        if self._states is not None:
            unseen = (rows.bootstrap_observation < 0) & (rows.tail != Tail.TERMINATED)
            self._blind += int(np.count_nonzero(unseen))
        received = team_rewards(rows) if self.config.team_rewards else rows.reward.astype(np.float64)
        reward = received * self._scale
        if self._divergence is not None:
            reward = reward + self._divergence.reward(rows.observation, rows.mask, rows.action, rows.logp)
        bootstrap_value = bootstrap_values(rows.tail, after)
        advantage, target = gae(rows.start, reward, value, bootstrap_value, self.config.gamma, self.config.gae_lambda)
        columns = {
            "observation": rows.observation,
            "action": rows.action,
            "logp": rows.logp,
            "advantage": advantage.astype(np.float32),
            "target": target.astype(np.float32),
            "value": value.astype(np.float32),
            "version_lo": np.repeat(rows.version_lo, np.diff(rows.start)),
        }
        if self.config.correction == "vtrace":
            columns |= trace_columns(rows.start, reward, value, bootstrap_value)
        if self._states is None and rows.mask is not None:
            columns["mask"] = rows.mask
        self._budget.add(rows)
        self._waiting += rows.num_rows
        return [(ROLLOUTS, columns)]

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
        return [(ROLLOUTS, 0)] if self._waiting else []

    # ------------------------------------------------------------------------------------------ learning

    def update(self, batch: Sample) -> Metrics:
        """`epochs` passes over the rows. Raises TrainingError; the weights are then those from before the update."""
        flat, adam = self._network.flat.copy(), self._steps.adam.state_dict()
        try:
            metrics = self._learn(self._batch(batch.columns))
            if not np.isfinite(self._network.flat).all():
                raise self._error("the weights", f"after a step of rate {metrics['learning_rate']:g}")
        except TrainingError:
            self._network.flat[:] = flat
            self._steps.adam.load_state_dict(adam)
            raise
        self._updates += 1
        self._waiting = 0
        self._progress = self._budget.progress
        return metrics

    def _batch(self, columns: ItemColumns) -> PPOBatch:
        x, mask, state = self._seen(columns)
        if self.config.correction == "vtrace":
            columns = {**columns, **self._corrected(columns, x, mask, state)}
        advantage = columns["advantage"].astype(np.float64)
        for name, array in (("advantages", advantage), ("value targets", columns["target"])):
            if not np.isfinite(array).all():
                raise self._error(f"the {name}", "already before the first epoch: look for it in rewards or values")
        weight = columns.get("weight")
        if self.config.normalise_advantages:
            advantage = normalised(advantage, weight)
        elif weight is not None:
            advantage = advantage * weight
        rows = (columns["action"], columns["logp"], advantage, columns["target"], columns["value"])
        return PPOBatch(x, mask, state, *rows, joint=len(advantage))

    def _seen(self, columns: ItemColumns) -> tuple[torch.Tensor, NDArray[np.bool_], NDArray[np.int32]]:
        """x float32[m, inputs] and mask bool[m, A] of the states that occur, and state int32[n] of the rows."""
        observation = columns["observation"]
        if self._states is not None:
            states, state = compact(observation - self._states.base, len(self._states))
            return self._states.x[torch.from_numpy(states)], self._states.mask[states], state
        mask = columns.get("mask")
        if mask is None:
            mask = np.ones((len(observation), self._actions), np.bool_)
        return as_rows(observation, self._inputs), mask, np.arange(len(observation), dtype=np.int32)

    def _corrected(
        self, columns: ItemColumns, x: torch.Tensor, mask: NDArray[np.bool_], state: NDArray[np.int32]
    ) -> Mapping[str, Array]:
        """What the weights of now make of the rows. Their ratios then count from these weights, not from those that acted; how far the
        two are apart is in the advantages, which V-trace weights."""
        config, value = self.config, self._evaluate(x)[state]
        logp = log_probs(self._network.evaluate("policy", x), mask, state, columns["action"].astype(np.int32))
        target, advantage, weight = corrected(
            columns,
            value=value,
            logp=logp,
            gamma=config.gamma,
            lam=config.gae_lambda,
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
        )
        target = target.astype(np.float32)
        return {"advantage": advantage, "weight": weight, "target": target, "value": value, "logp": logp}

    def _learn(self, batch: PPOBatch) -> Metrics:
        config, rng = self.config, generator(self._seed, "ppo", "shuffle", self._updates)
        rate, bonus = config.learning_rate.at(self._progress), config.entropy.at(self._progress)
        whole = None
        if config.minibatches == 1:
            alone = self._ranks.size == 1
            whole = [self._steps.prepare(batch if alone else batch.part(np.arange(batch.joint), self._ranks))]
        last: PPOStepResult | None = None
        for epoch in range(config.epochs):
            for k, part in enumerate(whole or map(self._steps.prepare, self._minibatches(batch, rng))):
                where = f"epoch {epoch + 1}, minibatch {k + 1}"
                step = self._steps.take(part, rate=rate, bonus=bonus, where=where, fail=self._error)
                if step is None:
                    return self._metrics(batch, last, epoch, rate=rate, bonus=bonus)
                last = step
        return self._metrics(batch, last, config.epochs, rate=rate, bonus=bonus)

    def _minibatches(self, batch: PPOBatch, rng: np.random.Generator) -> list[PPOBatch]:
        shuffled = rng.permutation(len(batch.state))
        parts = np.array_split(shuffled, self.config.minibatches)
        return [batch.part(part, self._ranks) for part in parts if len(part)]

    def _error(self, what: str, where: str) -> TrainingError:
        return TrainingError(
            f"PPO update {self._updates + 1}: {what} became NaN or infinite {where}. The weights from before this update are kept; "
            "a smaller learning_rate, or finite rewards and observations, may help."
        )

    def _metrics(
        self, batch: PPOBatch, step: PPOStepResult | None, epochs: int, *, rate: float, bonus: float
    ) -> Metrics:
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
        if self._divergence is not None:
            out["distance"] = self._divergence.nats
        if step is not None:
            out |= {
                "policy_loss": step.losses.surrogate,
                "value_loss": step.value_loss,
                "entropy": step.losses.entropy,
                "kl": step.losses.kl,
                "clip_fraction": step.losses.clipped,
                "gradient_norm": step.norm,
            }
        return out

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return self._network.weights()

    def state_dict(self) -> State:
        return {
            "weights": self._network.flat.copy(),
            "adam": self._steps.adam.state_dict(),
            "budget": self._budget.state_dict(),
            "progress": self._progress,
            "updates": self._updates,
            "waiting": self._waiting,
            "blind": self._blind,
        }

    def load_state_dict(self, state: State) -> None:
        self._network.flat[:] = state["weights"]
        self._steps.adam.load_state_dict(state["adam"])
        self._budget.load_state_dict(state["budget"])
        self._progress = float(state["progress"])
        self._updates, self._waiting, self._blind = (int(state[key]) for key in ("updates", "waiting", "blind"))
