"""The learner of on-policy algorithms: from rollouts to items, and from batches to steps of Adam on a `Model`
(`ludus.algorithms.on_policy.model`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import ROLLOUTS, LearnerContext
from ludus.algorithms.common.behavioral_diversity import Divergence
from ludus.algorithms.common.information_states import unique_ids, visited_states
from ludus.algorithms.common.returns import (
    bootstrap_values,
    learned_columns,
    normalize_advantages,
    not_finite,
    trace_columns,
    vtrace_targets,
)
from ludus.algorithms.common.schedule import Budget
from ludus.algorithms.common.space_checks import reward_scale
from ludus.algorithms.on_policy.batch import MEMORY, Batch, SegmentPieces, padded, unpadded, unroll_segments
from ludus.algorithms.on_policy.model import ActingModel, Floats, Inputs, Model, OnPolicyConfig, StepStats
from ludus.algorithms.on_policy.multi_agent import critic_states, team_rewards
from ludus.algorithms.on_policy.ondevice.learning import OnDeviceBatcher, on_device_unsupported_reason
from ludus.algorithms.rewards.base import LearnedRows
from ludus.backend.device import generator_on, scalars_to_host, to_device, to_numpy
from ludus.core import seeding
from ludus.core.errors import PolicyError, ScenarioError, TrainingError
from ludus.core.types import Array, Metrics, SegmentEnd, State, Weights
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.blocks import Block
from ludus.replay.trajectories import Trajectories

# --------------------------------------------------------------------------------------------------------------------
# From rollouts to items: values, advantages and targets, and memory at the beginning of sequences.


class ValueEstimates(NamedTuple):
    """Values of a rollout's rows float64[N], and of its bootstrap observations float64[S]. With a memory: its pieces,
    and the memory float32[Q, M] before each."""

    value: Floats
    after: Floats
    pieces: SegmentPieces | None = None
    before: NDArray[np.float32] | None = None


class ExperienceBuilder:
    """Builds the items of a learner's table: values, advantages and targets. unknown_bootstrap_count: segments so far
    whose bootstrap observation is unknown."""

    def __init__(self, config: OnPolicyConfig, model: Model, context: LearnerContext) -> None:
        self._config, self._model, self._device = config, model, model.placement.torch
        self.inputs = Inputs(model)
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._divergence = None
        if context.diversity is not None:
            if model.spec.config.get("action", {"kind": "categorical"})["kind"] != "categorical":
                raise ScenarioError(
                    "behavioural diversity compares probabilities of discrete actions; this policy plays vectors of them. Leave it out."
                )
            self._divergence = Divergence(context.diversity, context.env, context.seats)
        self._seats = context.seats
        self.unknown_bootstrap_count = 0
        learned = config.learned_reward
        self.learned_reward = (
            None if learned is None else learned.build(context, model.placement, replayed=False, gamma=config.gamma)
        )

    @property
    def metrics(self) -> Metrics:
        """Return metrics of the rollouts so far."""
        out = {"tails_without_value": float(self.unknown_bootstrap_count)} if self._model.names else {}
        out |= {} if self.learned_reward is None else self.learned_reward.metrics
        return out if self._divergence is None else {**out, "distance": self._divergence.nats}

    def build(self, rows: Trajectories, progress: float) -> ItemColumns:
        """Return items with advantage and target: rows, or with a memory sequences of them. progress: of the budget."""
        config, model = self._config, self._model
        if model.table is not None:
            self.unknown_bootstrap_count += int(
                np.count_nonzero((rows.bootstrap_observation < 0) & (rows.tail != SegmentEnd.TERMINATED))
            )
        state, bootstrap_state = critic_states(rows, self._seats) if model.state else (None, None)
        estimates = self.estimate_values(rows, state, bootstrap_state)
        value, after = estimates.value, estimates.after
        gamma = config.gamma if config.discount == "step" else 1.0
        team_reward = team_rewards(rows, gamma) if config.team_rewards else rows.reward.astype(np.float64)
        learned = LearnedRows(team_reward * self._scale)
        if self.learned_reward is not None:
            learned = self.learned_reward.of(rows, learned.reward, self._log_prob)
        reward = model.rewards(rows, learned.reward, progress)
        if self._divergence is not None:
            reward = reward + self._divergence.reward(rows.observation, rows.mask, rows.action, rows.logp)
        columns = learned_columns(
            rows,
            reward=reward,
            value=value,
            after=after,
            gamma=config.gamma,
            lam=config.gae_lambda,
            in_time=config.discount == "step",
        )
        if state is not None:
            columns["state"] = state
        if config.correction == "vtrace":
            columns |= trace_columns(rows.start, reward, value, bootstrap_values(rows.tail, after))
        if learned.advantage is not None:
            columns |= self._second_stream(columns["advantage"], learned)
        if model.table is None and rows.mask is not None and model.actions:
            columns["mask"] = rows.mask
        columns |= self.extra_columns(rows)
        return self.items(rows, columns, estimates)

    def estimate_values(
        self, rows: Trajectories, state: NDArray[np.float32] | None, bootstrap_state: NDArray[np.float32] | None
    ) -> ValueEstimates:
        """Return the values of a rollout's observations. state, bootstrap_state: inputs of a central critic."""
        pieces = before = last = None
        if self._model.memory:
            pieces = SegmentPieces.of(rows.start, self._model.sequence)
            value, before, last = self._walk(rows, pieces, state)
        else:
            value = self._values(rows.observation, None, state)
        return ValueEstimates(value, self._values(rows.bootstrap_observation, last, bootstrap_state), pieces, before)

    def items(self, rows: Trajectories, columns: dict[str, Array], estimates: ValueEstimates) -> ItemColumns:
        """Return columns of rows as columns of items, with the oldest weights that acted in each."""
        pieces, before = estimates.pieces, estimates.before
        if pieces is None or before is None:
            return {**columns, "version_lo": np.repeat(rows.version_lo, np.diff(rows.start))}
        items = padded(columns, pieces, self._model.sequence)
        return {**items, MEMORY: before, "version_lo": rows.version_lo[pieces.segment]}

    def extra_columns(self, rows: Trajectories) -> ItemColumns:
        """Return further columns of the rows that a subclass stores."""
        return {}

    def _second_stream(self, own: Array, learned: LearnedRows) -> dict[str, Array]:
        """Return the sum of both streams' advantages; for V-trace, which estimates the first again, also the second
        stream's and the weight of the first."""
        assert learned.advantage is not None
        both = (learned.weight * own + learned.advantage).astype(np.float32)
        if self._config.correction != "vtrace":
            return {"advantage": both}
        weight = np.full(len(both), learned.weight, np.float32)
        return {"advantage": both, "weight": weight, "other": learned.advantage.astype(np.float32)}

    def _log_prob(self, observation: Array, action: Array, mask: NDArray[np.bool_] | None) -> Floats:
        """Return log-probabilities as `ludus.algorithms.rewards.base.LogProb` does, of a network without memory."""
        columns = {
            "observation": observation,
            "action": action,
            **dict.fromkeys(_FLOATS, np.zeros(len(action), np.float32)),
        }
        columns |= {} if mask is None else {"mask": mask}
        if self._model.state:  # the critic's input, which is not used
            columns["state"] = np.zeros((len(action), self._model.state), np.float32)
        with torch.no_grad():
            return to_numpy(self._model.log_prob(self.batch(columns)[0])).astype(np.float64)

    def unpacked(self, items: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """Return (columns of rows, further fields of the `Batch`) of items that `items` built."""
        if not self._model.memory:
            return items, {}
        columns, start = unpadded(items)
        return columns, {"start": start, "memory": to_device(items[MEMORY], self._device)}

    def _walk(
        self, rows: Trajectories, pieces: SegmentPieces, state: NDArray[np.float32] | None
    ) -> tuple[Floats, NDArray[np.float32], NDArray[np.float32]]:
        if rows.memory0 is None:
            raise PolicyError(
                "a network with memory learns from trajectories without `memory0`; its policy must have one."
            )

        def segment_values(
            which: NDArray[np.int64], memory: NDArray[np.float32], start: NDArray[np.int64]
        ) -> tuple[Array, NDArray[np.float32]]:
            x, state_rows = self.inputs(rows.observation[which]), None if state is None else state[which]
            with torch.no_grad():
                out, after = self._model.values(x, self._tensor(memory), start, self._tensor(state_rows))
            assert after is not None
            return to_numpy(out), to_numpy(after)

        return unroll_segments(pieces, rows.memory0, segment_values)

    def _values(self, observation: Array, memory: Array | None, state: NDArray[np.float32] | None) -> Floats:
        """Return values float64[n]; 0 for unknown ids (-1). A state that occurs several times is evaluated once."""
        table, index = self._model.table, None
        if table is not None and memory is None and state is None:
            visited_states, index = unique_ids(np.where(observation >= 0, observation - table.base, -1), len(table))
            if not len(visited_states):
                return np.zeros(len(observation))
            x = self.inputs(visited_states + table.base)
        else:
            x = self.inputs(observation)
        with torch.no_grad():
            out = to_numpy(self._model.values(x, self._tensor(memory), None, self._tensor(state))[0]).astype(np.float64)
        if table is None:
            return out
        return np.where(observation >= 0, out if index is None else out[index], 0.0)

    def batch(self, items: Mapping[str, Any]) -> tuple[Batch, dict[str, Tensor]]:
        """Return (the batch, with advantages as they were estimated; the columns that V-trace needs)."""
        model = self._model
        columns, more = self.unpacked(items)
        observation, action, table = columns["observation"], columns["action"], model.table
        mask = columns.get("mask")
        if model.uses_state_table:
            x, mask, more["state_index"] = visited_states(
                table, observation, mask, inputs=math.prod(model.shape), actions=model.actions
            )
        else:
            x, mask = self.inputs(observation), self.inputs.mask(observation, mask)
        more["state"] = self._tensor(columns["state"]) if model.state else None
        more |= {name: to_device(columns[name], self._device) for name in _FLOATS}
        there = to_device(action, self._device)
        whole = there.long() if model.actions else there
        traced = {name: to_device(columns[name], self._device) for name in _TRACED if name in columns}
        return Batch(x, self._tensor(mask), whole, **more), traced

    def _tensor(self, array: Array | Tensor | None) -> Tensor | None:
        return None if array is None else to_device(array, self._device)


_FLOATS = ("logp", "advantage", "target", "value")  # columns that a loss looks at
_TRACED = ("reward", "ends", "after", "weight", "other")  # and that V-trace does


class OnPolicyLearner:
    """Learns from items whose advantages were computed when they arrived, with the values of the weights of that time."""

    makes_items: type[ExperienceBuilder] = ExperienceBuilder
    in_groups = False  # whether units of batches are groups of rows

    def __init__(self, config: OnPolicyConfig, model: Model, context: LearnerContext) -> None:
        self.config, self.model, self.spec, self._context = config, model, model.spec, context
        self.placement = model.placement
        self._items = self.makes_items(config, model, context)
        self._budget = Budget.of(config.collect(), context)
        self._progress = 0.0  # of the budget, before the rows of the next update were collected
        self._seed = context.seed
        self._updates = self._waiting = 0
        self._from_block = False  # whether this update's rows were played where it computes
        self._on_device = (
            None
            if self.on_device_unsupported_reason()
            else OnDeviceBatcher(config, cast(ActingModel, model), self._items.inputs, context)
        )

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return decision rows with advantage and value target; with a memory, sequences of them."""
        columns = self._items.build(trajectories, self._progress)
        self._budget.add(trajectories)
        self._waiting += trajectories.num_rows
        return [(ROLLOUTS, columns)]

    def batches(self) -> Sequence[tuple[str, int]]:
        """Return one update on all waiting items."""
        return [(ROLLOUTS, 0)] if self._waiting else []

    # ------------------------------------------------------------------------------------------ learning

    def update(self, batch: Sample) -> Metrics:
        """Run `epochs` times `minibatches` steps on the loss. Raise TrainingError; the weights of before this update
        then stay, as with any error."""
        return self._update(lambda: self._batch(batch.columns))

    def _update(self, make_batch: Callable[[], Batch]) -> Metrics:
        model, progress = self.model, self._progress
        rate, snapshot = self.config.learning_rate.at(progress), model.snapshot()
        try:
            learned = make_batch()
            metrics = self._learn(learned, rate)
        except Exception:
            model.restore(snapshot)
            raise
        self._updates += 1
        self._waiting = 0
        self._progress = self._budget.progress
        model.after_update(learned, self._progress)
        rates = {"learning_rate": rate, **model.coefficients(progress)}
        return {"rows": float(len(learned)), **rates, **self._items.metrics, **metrics}

    def _batch(self, columns: Mapping[str, Any]) -> Batch:
        if wrong := not_finite(columns):
            raise self._error(wrong, "before the first epoch: check rewards and value estimates")
        return self._weighted(*self._items.batch(columns))

    def _weighted(self, batch: Batch, traced: dict[str, Tensor]) -> Batch:
        """Return the batch with the advantages that the loss takes."""
        weight = None
        if self.config.correction == "vtrace" and len(batch):
            batch, weight = self._corrected(batch, traced)
        advantage = batch.advantage.double()
        if self.config.normalise_advantages:
            advantage = normalize_advantages(advantage, weight)
        elif weight is not None:
            advantage = advantage * weight
        return replace(batch, advantage=advantage.float())

    @torch.no_grad()
    def _corrected(self, batch: Batch, traced: dict[str, Tensor]) -> tuple[Batch, Tensor]:
        """Return the batch with targets and advantages by the present weights, and the importance weight of each row.
        Ratios of the loss then are relative to these weights, not to those that acted; that difference is in the
        advantages, which V-trace weights."""
        config = self.config
        logp = self.model.log_prob(batch)
        value = self.model.values(batch.x, batch.memory, batch.start, batch.state)[0]
        value = value if batch.state_index is None else value[torch.from_numpy(batch.state_index)]
        target, advantage, weight = vtrace_targets(
            {**traced, "logp": batch.logp},
            value=value,
            logp=logp,
            gamma=config.gamma,
            lam=config.gae_lambda,
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
        )
        if "other" in traced:
            advantage = traced["weight"] * advantage + traced["other"]
        return replace(batch, advantage=advantage, target=target.float(), logp=logp.float(), value=value), weight

    def _learn(self, batch: Batch, rate: float) -> Metrics:
        return {**self._run_epochs(batch, rate), **explained_variance(batch, self.model)}

    def _run_epochs(self, batch: Batch, rate: float) -> Metrics:
        """Run the epochs of an update. Return the statistics of the last step; raise TrainingError."""
        model, names = self.model, self.model.names
        stats, epochs = StepStats.initial(1 + len(names)), 0
        seed = seeding.key(self._seed, "on-policy", "update", *self._stream) % 2**63
        with model.learning(batch, seed) as rows:
            for count, parts in self._epochs(rows, batch.units):
                stats = model.steps(parts, rate, self._progress)
                epochs += 0 if stats.early_stopped else count
                if stats.nonfinite:
                    when = f"in epoch {epochs}" if count == 1 else f"in one of {count} epochs"
                    raise self._error(stats.nonfinite_name(names), f"{when}, at a rate of {rate:g}")
                if stats.early_stopped:
                    break
        out = {"loss": stats.scalars[0], "gradient_norm": stats.grad_norm, "epochs": float(epochs)}
        return {**out, **dict(zip(names, stats.scalars[1:], strict=True))}

    @property
    def _stream(self) -> tuple[int, ...]:
        """Return what the random numbers of the epochs depend on."""
        return (self._updates,)

    def shuffler(self) -> np.random.Generator:
        """Return the generator that assigns an update's rows to minibatches."""
        return seeding.generator(self._seed, "on-policy", "shuffle", *self._stream)

    def _error(self, what: str, where: str) -> TrainingError:
        return TrainingError(
            f"{type(self.config).__name__} update {self._updates + 1}: {what} became NaN or infinite {where}. The weights from before "
            "this update are kept; a smaller learning_rate, or finite rewards and observations, may help."
        )

    def _epochs(self, rows: Any, units: int) -> Iterator[tuple[int, Iterable[Any]]]:
        """Yield (number of epochs, prepared parts): the whole batch, or minibatches of its units, shuffled for each
        epoch; nothing for an empty batch. On a device all epochs of a whole batch come together, since reading numbers
        means waiting and nothing is decided by them."""
        count, epochs = min(self.config.minibatches, units), self.config.epochs
        if count < 2:
            whole = list(self.model.prepare(rows, None)) * count
            together = self.placement.device != "cpu" and self.config.kl_limit is None
            yield from [(epochs, whole * epochs)] * count if together else [(1, whole)] * (epochs * count)
            return
        if self.placement.device == "cpu" or self.model.memory or self.in_groups:
            rng = self.shuffler()
            for _ in range(epochs):
                yield 1, self.model.prepare(rows, np.array_split(rng.permutation(units), count))
            return
        device = self.placement.torch
        if not self._from_block:  # in the order in which a CPU would take them
            rng = self.shuffler()
            for _ in range(epochs):
                yield 1, self.model.prepare(rows, to_device(rng.permutation(units), device).tensor_split(count))
            return
        there = generator_on(device, seeding.key(self._seed, "on-policy", "shuffle", *self._stream))
        for _ in range(epochs):
            order = torch.randperm(units, generator=there, device=device)
            yield 1, self.model.prepare(rows, order.tensor_split(count))

    # ------------------------------------------------------------------------------------------ in place

    def on_device_unsupported_reason(self) -> str:
        return on_device_unsupported_reason(self.model, self._context, self.config)

    def table(self) -> Tensor:
        assert self._on_device is not None
        return self._on_device.table()

    def act(self, x: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        assert self._on_device is not None
        return self._on_device.act(x, mask, generator)

    def learn(self, block: Block) -> Metrics:
        assert self._on_device is not None
        self._budget.count(block.num_rows, block.num_episodes)
        there, progress = self._on_device, self._progress
        self._from_block = True
        try:
            return self._update(lambda: self._weighted(*there.batch(block, progress)))
        finally:
            self._from_block = False

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return self.model.weights()

    def state_dict(self) -> State:
        learned = self._items.learned_reward
        return {
            **self.model.state_dict(),
            **({} if learned is None else {"learned_reward": learned.state_dict()}),
            "budget": self._budget.state_dict(),
            "progress": self._progress,
            "updates": self._updates,
            "waiting": self._waiting,
            "blind": self._items.unknown_bootstrap_count,
        }

    def load_state_dict(self, state: State) -> None:
        self.model.load_state_dict(state)
        self._budget.load_state_dict(state["budget"])
        self._progress = float(state["progress"])
        if self._items.learned_reward is not None:
            self._items.learned_reward.load_state_dict(state["learned_reward"])
        self._updates, self._waiting, self._items.unknown_bootstrap_count = (
            int(state[key]) for key in ("updates", "waiting", "blind")
        )


def explained_variance(batch: Batch, model: Model) -> Metrics:
    """Return the explained variance 1 - Var(G - V) / Var(G) of the values that targets were made with, if there are
    any."""
    if not model.names:
        return {}
    spread, unexplained = scalars_to_host(
        [batch.target.var(correction=0), (batch.target - batch.value).var(correction=0)]
    )
    return {"explained_variance": 1.0 - unexplained / spread if spread > 0 else 0.0}
