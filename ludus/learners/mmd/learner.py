"""The learner of magnetic mirror descent and R-NaD."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.core.errors import TrainingError
from ludus.core.seeding import generator
from ludus.core.types import Array, Metrics, State, Tail, Weights
from ludus.learners.base import ROLLOUTS, LearnerContext
from ludus.learners.mmd.losses import (
    Floats,
    MMDLosses,
    MMDTransitions,
    explained,
    log_policy,
    log_uniform,
    not_finite,
    policy_losses,
)
from ludus.learners.network import Passes, TrainedNetwork
from ludus.learners.on_policy.models import fresh_seed
from ludus.learners.optimizer import Adam
from ludus.learners.ppo.compressed import CompressedRows, compress, squared_value_loss
from ludus.learners.ppo.steps import Fail, PPOBatch
from ludus.learners.ranks import agree
from ludus.learners.schedule import Budget
from ludus.learners.states import StateTable, compact
from ludus.policies.actor_critic import first_weights, layouts
from ludus.policies.mlp import as_rows
from ludus.policies.registry import build_policy
from ludus.policies.specs import joined, part_of
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.learners.mmd.options import MMD

# --------------------------------------------------------------------------------------------------------------------
# Gradient steps of magnetic mirror descent: losses of some rows, and Adam.


@dataclass(frozen=True, slots=True, eq=False)
class MMDMinibatch:
    """Rows of one step compressed over m states, with the policies float64[m, A] that they are held to, and buffers for the network."""

    mask: NDArray[np.bool_]
    compressed: CompressedRows
    before: Floats
    magnet: Floats
    passes: Passes


@dataclass(frozen=True, slots=True)
class MMDStepResult:
    """Losses before the step (means over its rows), and the gradient's norm before it was clipped."""

    losses: MMDLosses
    value_loss: float
    norm: float

    @staticmethod
    def nothing() -> MMDStepResult:
        """Of an update without rows."""
        return MMDStepResult(MMDLosses(0.0, 0.0, 0.0, 0.0, 0.0), 0.0, 0.0)


class MMDStepper:
    """Moves `network`."""

    def __init__(self, config: MMD, network: TrainedNetwork, *, actions: int) -> None:
        self.adam = Adam(len(network.flat))
        self._config, self._network, self._actions = config, network, actions
        self._value_part = "value" if config.value_network == "separate" else "policy"

    def part(self, batch: PPOBatch, before: Floats, magnet: Floats, index: NDArray[np.int64]) -> MMDMinibatch:
        """Some of the rows."""
        states, state = compact(batch.state[index], len(batch.mask))
        rows = (batch.action[index], batch.logp[index], batch.advantage[index], batch.target[index], batch.value[index])
        piece = PPOBatch(batch.x[torch.from_numpy(states)], batch.mask[states], state, *rows, len(index))
        return self.prepare(piece, before[states], magnet[states])

    def prepare(self, batch: PPOBatch, before: Floats, magnet: Floats) -> MMDMinibatch:
        """Once for all steps on the same rows."""
        compressed = compress(
            batch.state,
            batch.action,
            batch.logp,
            batch.advantage,
            batch.target,
            states=len(batch.mask),
            actions=self._actions,
            rows=batch.joint,
        )
        return MMDMinibatch(batch.mask, compressed, before, magnet, Passes(self._network, batch.x))

    def take(
        self, part: MMDMinibatch, *, rate: float, alpha: float, beta: float, where: str, fail: Fail
    ) -> MMDStepResult:
        """One gradient step. Raises what `fail` makes of what is not finite, and where."""
        config, passes = self._config, part.passes
        passes.forward()
        losses = policy_losses(
            passes.outputs["policy"],
            part.mask,
            part.compressed,
            magnet=part.magnet,
            before=part.before,
            alpha=alpha,
            beta=beta,
            clip=config.clip,
            gradient=passes.gradients["policy"],
        )
        out, gradient = passes.outputs[self._value_part], passes.gradients[self._value_part]
        value = squared_value_loss(out, part.compressed, scale=config.value_coefficient, gradient=gradient)
        for name, loss in (("policy loss", losses.surrogate), ("divergence", losses.moved), ("value loss", value)):
            if not math.isfinite(loss):
                raise fail(f"the {name}", f"in {where}")
        passes.backward()
        norm = self.adam.step(self._network.flat, self._network.gradient, rate=rate, max_norm=config.max_gradient_norm)
        if not math.isfinite(norm):
            raise fail("the gradient", f"in {where}")
        return MMDStepResult(losses, value, norm)


class MMDLearner:
    """Learns from decision rows whose advantages were computed when they arrived, with the values of the weights of that time. Keeps a
    magnet network beside its own where the magnet moves."""

    def __init__(self, config: MMD, context: LearnerContext, start: Weights | None = None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        spec = config.plain_policy(context.env, context.seats)
        if start is not None and config.announce == "magnet":
            start = part_of(build_policy(self.spec, start).weights(), "average")
        weights = first_weights(spec, start, seed=fresh_seed(context))
        self._network, self._magnet = TrainedNetwork(layouts(spec), weights), TrainedNetwork(layouts(spec), weights)
        agree(context.ranks, self._network.flat)  # ranks then do the same whole work
        self._magnet.flat[:] = self._network.flat
        self._value_part = "value" if config.value_network == "separate" else "policy"
        enumeration = context.env.enumeration
        self._states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        self._inputs, self._actions = math.prod(spec.config["shape"]), int(spec.config["action"]["actions"])
        self._steps = MMDStepper(config, self._network, actions=self._actions)
        self._data = MMDTransitions(config, context)
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
        x, mask, state = self._seen(rows.observation, rows.mask)
        value = self._evaluate(x)[state]
        magnet = self._magnet_of(x, mask)[state, rows.action.astype(np.int64)] if self._data.transforms else None
        columns = self._data.columns(
            rows, value=value, after=self._tail_values(rows), magnet=magnet, progress=self._progress
        )
        self._budget.add(rows)
        self._waiting += rows.num_rows
        return [(ROLLOUTS, columns)]

    def _tail_values(self, rows: Trajectories) -> Floats:
        """Of the bootstrap observations float64[S]; 0 for ids of -1, of which nothing is known."""
        after = rows.bootstrap_observation
        if self._states is None:
            return self._evaluate(as_rows(after, self._inputs))
        known = after >= 0
        self._blind += int(np.count_nonzero(~known & (rows.tail != Tail.TERMINATED)))
        out = np.zeros(len(after))
        if known.any():
            states, state = compact(after[known] - self._states.base, len(self._states))
            out[known] = self._evaluate(self._states.x[torch.from_numpy(states)])[state]
        return out

    def _evaluate(self, x: torch.Tensor) -> Floats:
        return self._network.evaluate(self._value_part, x)[:, -1].astype(np.float64)

    def _seen(
        self, observation: Array, mask: NDArray[np.bool_] | None
    ) -> tuple[torch.Tensor, NDArray[np.bool_], NDArray[np.int32]]:
        """x float32[m, inputs] and mask bool[m, A] of the states that occur, and state int32[n] of the rows."""
        if self._states is not None:
            states, state = compact(observation - self._states.base, len(self._states))
            return self._states.x[torch.from_numpy(states)], self._states.mask[states], state
        if mask is None:
            mask = np.ones((len(observation), self._actions), np.bool_)
        return as_rows(observation, self._inputs), mask, np.arange(len(observation), dtype=np.int32)

    def _magnet_of(self, x: torch.Tensor, mask: NDArray[np.bool_]) -> Floats:
        """Its log-probabilities float64[m, A]; 0 where illegal."""
        if self.config.magnet == "uniform":
            return log_uniform(mask)
        return log_policy(self._magnet.evaluate("policy", x), mask)

    def batches(self) -> Sequence[tuple[str, int]]:
        """All rows that wait, as one update."""
        return [(ROLLOUTS, 0)] if self._waiting else []

    # ------------------------------------------------------------------------------------------ learning

    def update(self, batch: Sample) -> Metrics:
        """`epochs` passes over the rows. Raises TrainingError; the weights are then those from before the update."""
        flat, adam = self._network.flat.copy(), self._steps.adam.state_dict()
        try:
            metrics = self._learn(batch.columns)
            if not np.isfinite(self._network.flat).all():
                raise self._error("the weights", f"after a step of rate {metrics['learning_rate']:g}")
        except TrainingError:
            self._network.flat[:] = flat
            self._steps.adam.load_state_dict(adam)
            raise
        self._updates += 1
        self._waiting = 0
        self._progress = self._budget.progress
        self._move_magnet()
        return metrics

    def _move_magnet(self) -> None:
        if self.config.magnet == "moving":
            rate = np.float32(self.config.magnet_rate.at(self._progress))
            self._magnet.flat += rate * (self._network.flat - self._magnet.flat)
        elif self.config.magnet == "policy" and self._updates % self.config.magnet_period == 0:
            self._magnet.flat[:] = self._network.flat

    def _learn(self, columns: ItemColumns) -> Metrics:
        config, rng = self.config, generator(self._seed, "mmd", "shuffle", self._updates)
        if (bad := not_finite(columns)) is not None:
            raise self._error(bad, "already before the first epoch: look for it in the rewards, or in the values")
        x, mask, state = self._seen(columns["observation"], columns.get("mask"))
        before, magnet = log_policy(self._network.evaluate("policy", x), mask), self._magnet_of(x, mask)
        advantage = columns["advantage"].astype(np.float64)
        rows = (columns["action"], columns["logp"], advantage, columns["target"], columns["value"])
        batch = PPOBatch(x, mask, state, *rows, joint=len(advantage))
        step = self._epochs(batch, before=before, magnet=magnet, rng=rng)
        return {
            "rows": float(len(advantage)),
            "learning_rate": config.learning_rate.at(self._progress),
            "alpha": config.alpha.at(self._progress),
            "eta": config.eta.at(self._progress),
            "policy_loss": step.losses.surrogate,
            "value_loss": step.value_loss,
            "entropy": step.losses.entropy,
            "kl_magnet": step.losses.magnet,
            "kl": step.losses.moved,
            "clip_fraction": step.losses.clipped,
            "gradient_norm": step.norm,
            "explained_variance": explained(columns),
            "tails_without_value": float(self._blind),
        }

    def _epochs(self, batch: PPOBatch, *, before: Floats, magnet: Floats, rng: np.random.Generator) -> MMDStepResult:
        config = self.config
        alpha, eta = config.alpha.at(self._progress), config.eta.at(self._progress)
        weights = {
            "rate": config.learning_rate.at(self._progress),
            "alpha": alpha if config.regularise == "loss" else 0.0,
            "beta": 1.0 / eta if eta > 0.0 else 0.0,
        }
        whole = self._steps.prepare(batch, before, magnet) if config.minibatches == 1 else None
        step = MMDStepResult.nothing()
        for epoch in range(config.epochs):
            if whole is not None:
                step = self._steps.take(whole, **weights, where=f"epoch {epoch + 1}", fail=self._error)
                continue
            for k, index in enumerate(np.array_split(rng.permutation(len(batch.state)), config.minibatches)):
                if len(index):
                    part = self._steps.part(batch, before, magnet, index)
                    where = f"epoch {epoch + 1}, minibatch {k + 1}"
                    step = self._steps.take(part, **weights, where=where, fail=self._error)
        return step

    def _error(self, what: str, where: str) -> TrainingError:
        return TrainingError(
            f"{type(self.config).__name__} update {self._updates + 1}: {what} became NaN or infinite {where}. The weights from before "
            "this update are kept; a smaller learning_rate, or finite rewards and observations, may help."
        )

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        if self.config.announce == "newest":
            return self._network.weights()
        return joined({"newest": self._network.weights(), "average": self._magnet.weights()})

    def state_dict(self) -> State:
        return {
            "weights": self._network.flat.copy(),
            "magnet": self._magnet.flat.copy(),
            "adam": self._steps.adam.state_dict(),
            "budget": self._budget.state_dict(),
            "progress": self._progress,
            "updates": self._updates,
            "waiting": self._waiting,
            "blind": self._blind,
        }

    def load_state_dict(self, state: State) -> None:
        self._network.flat[:], self._magnet.flat[:] = state["weights"], state["magnet"]
        self._steps.adam.load_state_dict(state["adam"])
        self._budget.load_state_dict(state["budget"])
        self._progress = float(state["progress"])
        self._updates, self._waiting, self._blind = (int(state[key]) for key in ("updates", "waiting", "blind"))
