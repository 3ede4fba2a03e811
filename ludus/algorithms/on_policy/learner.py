"""The learner of on-policy algorithms: from rollouts to items, and from batches to steps of Adam. What it moves, and whether by autograd or
by passes that are written out, is a `Model` (`ludus.algorithms.on_policy.model`)."""

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
from ludus.algorithms.common.information_states import compact, occurring
from ludus.algorithms.common.returns import (
    bootstrap_values,
    corrected,
    learned_columns,
    normalised,
    not_finite,
    trace_columns,
)
from ludus.algorithms.common.schedule import Budget
from ludus.algorithms.common.space_checks import reward_scale
from ludus.algorithms.on_policy.batch import MEMORY, Batch, SegmentPieces, padded, unpadded, walk
from ludus.algorithms.on_policy.model import ActingModel, Floats, Inputs, Model, Settings, Told
from ludus.algorithms.on_policy.multi_agent import critic_states, team_rewards
from ludus.algorithms.on_policy.ondevice.learning import InPlace, on_device_unsupported_reason
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


class Judged(NamedTuple):
    """Values of a rollout's rows float64[N], and of its bootstrap observations float64[S]. Of networks that remember: its pieces, and the
    memory float32[Q, M] before each."""

    value: Floats
    after: Floats
    pieces: SegmentPieces | None = None
    before: NDArray[np.float32] | None = None


class Transitions:
    """Makes the items of a learner's table. blind: segments so far that should have been bootstrapped and have no observation."""

    def __init__(self, config: Settings, model: Model, context: LearnerContext) -> None:
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
        self.blind = 0
        learned = config.learned_reward
        self.learned = (
            None if learned is None else learned.build(context, model.placement, replayed=False, gamma=config.gamma)
        )

    @property
    def metrics(self) -> Metrics:
        """What there is to say about rollouts so far."""
        out = {"tails_without_value": float(self.blind)} if self._model.names else {}
        out |= {} if self.learned is None else self.learned.metrics
        return out if self._divergence is None else {**out, "distance": self._divergence.nats}

    def of(self, rows: Trajectories, progress: float) -> ItemColumns:
        """Rows with advantage and target, or sequences of them. progress: of the budget."""
        config, model = self._config, self._model
        if model.table is not None:
            self.blind += int(np.count_nonzero((rows.bootstrap_observation < 0) & (rows.tail != SegmentEnd.TERMINATED)))
        state, bootstrap_state = critic_states(rows, self._seats) if model.state else (None, None)
        judged = self.judged(rows, state, bootstrap_state)
        value, after = judged.value, judged.after
        fading = config.gamma if config.discount == "step" else 1.0
        received = team_rewards(rows, fading) if config.team_rewards else rows.reward.astype(np.float64)
        learned = LearnedRows(received * self._scale)
        if self.learned is not None:
            learned = self.learned.of(rows, learned.reward, self._log_prob)
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
        columns |= self.beside(rows)
        return self.items(rows, columns, judged)

    def judged(
        self, rows: Trajectories, state: NDArray[np.float32] | None, bootstrap_state: NDArray[np.float32] | None
    ) -> Judged:
        """What a rollout's observations are worth. state, bootstrap_state: what a central critic sees beside them."""
        pieces = before = last = None
        if self._model.memory:
            pieces = SegmentPieces.of(rows.start, self._model.sequence)
            value, before, last = self._walk(rows, pieces, state)
        else:
            value = self._values(rows.observation, None, state)
        return Judged(value, self._values(rows.bootstrap_observation, last, bootstrap_state), pieces, before)

    def items(self, rows: Trajectories, columns: dict[str, Array], judged: Judged) -> ItemColumns:
        """Columns of rows as those of items, with the oldest weights that acted in each."""
        pieces, before = judged.pieces, judged.before
        if pieces is None or before is None:
            return {**columns, "version_lo": np.repeat(rows.version_lo, np.diff(rows.start))}
        items = padded(columns, pieces, self._model.sequence)
        return {**items, MEMORY: before, "version_lo": rows.version_lo[pieces.segment]}

    def beside(self, rows: Trajectories) -> ItemColumns:
        """Columns of the rows that a kind of learner keeps beside these."""
        return {}

    def _second_stream(self, own: Array, learned: LearnedRows) -> dict[str, Array]:
        """The sum of both streams' advantages; and the other one's and the weight of its own for V-trace, which estimates its own anew."""
        assert learned.advantage is not None
        both = (learned.weight * own + learned.advantage).astype(np.float32)
        if self._config.correction != "vtrace":
            return {"advantage": both}
        weight = np.full(len(both), learned.weight, np.float32)
        return {"advantage": both, "weight": weight, "other": learned.advantage.astype(np.float32)}

    def _log_prob(self, observation: Array, action: Array, mask: NDArray[np.bool_] | None) -> Floats:
        """As `ludus.algorithms.rewards.base.LogProb`, of a network without memory."""
        columns = {
            "observation": observation,
            "action": action,
            **dict.fromkeys(_FLOATS, np.zeros(len(action), np.float32)),
        }
        columns |= {} if mask is None else {"mask": mask}
        if self._model.state:  # the critic's, whom nobody asks
            columns["state"] = np.zeros((len(action), self._model.state), np.float32)
        with torch.no_grad():
            return to_numpy(self._model.log_prob(self.batch(columns)[0])).astype(np.float64)

    def unpacked(self, items: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """(columns of rows, what else a `Batch` says of their order) of what `items` made."""
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

        def look(
            which: NDArray[np.int64], memory: NDArray[np.float32], start: NDArray[np.int64]
        ) -> tuple[Array, NDArray[np.float32]]:
            x, state_rows = self.inputs(rows.observation[which]), None if state is None else state[which]
            with torch.no_grad():
                out, after = self._model.values(x, self._tensor(memory), start, self._tensor(state_rows))
            assert after is not None
            return to_numpy(out), to_numpy(after)

        return walk(pieces, rows.memory0, look)

    def _values(self, observation: Array, memory: Array | None, state: NDArray[np.float32] | None) -> Floats:
        """Values float64[n]; 0 for ids of -1, of which nothing is known. A state that occurs often is evaluated once."""
        table, index = self._model.table, None
        if table is not None and memory is None and state is None:
            occurring, index = compact(np.where(observation >= 0, observation - table.base, -1), len(table))
            if not len(occurring):
                return np.zeros(len(observation))
            x = self.inputs(occurring + table.base)
        else:
            x = self.inputs(observation)
        with torch.no_grad():
            out = to_numpy(self._model.values(x, self._tensor(memory), None, self._tensor(state))[0]).astype(np.float64)
        if table is None:
            return out
        return np.where(observation >= 0, out if index is None else out[index], 0.0)

    def batch(self, items: Mapping[str, Any]) -> tuple[Batch, dict[str, Tensor]]:
        """(what is learned from, with advantages as they were estimated; what V-trace wants beside it)."""
        model = self._model
        columns, more = self.unpacked(items)
        observation, action, table = columns["observation"], columns["action"], model.table
        mask = columns.get("mask")
        if model.by_states:
            x, mask, more["seen"] = occurring(
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

    makes_items: type[Transitions] = Transitions
    in_groups = False  # whether units of batches are groups of rows

    def __init__(self, config: Settings, model: Model, context: LearnerContext) -> None:
        self.config, self.model, self.spec, self._context = config, model, model.spec, context
        self.placement = model.placement
        self._items = self.makes_items(config, model, context)
        self._budget = Budget.of(config.collect(), context)
        self._progress = 0.0  # of the budget, before the rows of the next update were collected
        self._seed = context.seed
        self._updates = self._waiting = 0
        self._from_block = False  # whether this update's rows were played where it computes
        self._in_place = (
            None
            if self.on_device_unsupported_reason()
            else InPlace(config, cast(ActingModel, model), self._items.inputs, context)
        )

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Decision rows with advantage and critic's target; of networks that remember, sequences of them."""
        columns = self._items.of(trajectories, self._progress)
        self._budget.add(trajectories)
        self._waiting += trajectories.num_rows
        return [(ROLLOUTS, columns)]

    def batches(self) -> Sequence[tuple[str, int]]:
        """All items that wait, as one update."""
        return [(ROLLOUTS, 0)] if self._waiting else []

    # ------------------------------------------------------------------------------------------ learning

    def update(self, batch: Sample) -> Metrics:
        """`epochs` times `minibatches` steps on the loss. Raises TrainingError. The weights are those from before the update, whatever it
        raises."""
        return self._update(lambda: self._batch(batch.columns))

    def _update(self, make_batch: Callable[[], Batch]) -> Metrics:
        model, progress = self.model, self._progress
        rate, snapshot = self.config.learning_rate.at(progress), model.kept()
        try:
            learned = make_batch()
            metrics = self._learn(learned, rate)
        except Exception:
            model.restore(snapshot)
            raise
        self._updates += 1
        self._waiting = 0
        self._progress = self._budget.progress
        model.learned(learned, self._progress)
        rates = {"learning_rate": rate, **model.coefficients(progress)}
        return {"rows": float(len(learned)), **rates, **self._items.metrics, **metrics}

    def _batch(self, columns: Mapping[str, Any]) -> Batch:
        if wrong := not_finite(columns):
            raise self._error(wrong, "already before the first epoch: look for it in rewards or values")
        return self._weighted(*self._items.batch(columns))

    def _weighted(self, batch: Batch, traced: dict[str, Tensor]) -> Batch:
        """With the advantages that the loss takes."""
        weight = None
        if self.config.correction == "vtrace" and len(batch):
            batch, weight = self._corrected(batch, traced)
        advantage = batch.advantage.double()
        if self.config.normalise_advantages:
            advantage = normalised(advantage, weight)
        elif weight is not None:
            advantage = advantage * weight
        return replace(batch, advantage=advantage.float())

    @torch.no_grad()
    def _corrected(self, batch: Batch, traced: dict[str, Tensor]) -> tuple[Batch, Tensor]:
        """What the weights of now make of the rows, and what each weighs. Their ratios then count from these weights, not from those that
        acted; how far the two are apart is in the advantages, which V-trace weights."""
        config = self.config
        logp = self.model.log_prob(batch)
        value = self.model.values(batch.x, batch.memory, batch.start, batch.state)[0]
        value = value if batch.seen is None else value[torch.from_numpy(batch.seen)]
        target, advantage, weight = corrected(
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
        return {**self._descended(batch, rate), **explained(batch, self.model)}

    def _descended(self, batch: Batch, rate: float) -> Metrics:
        """The epochs of an update, and what was told of the last step. Raises TrainingError."""
        model, names = self.model, self.model.names
        stats, epochs = Told.nothing(1 + len(names)), 0
        seed = seeding.key(self._seed, "on-policy", "update", *self._stream) % 2**63
        with model.learning(batch, seed) as rows:
            for count, parts in self._epochs(rows, batch.units):
                stats = model.steps(parts, rate, self._progress)
                epochs += 0 if stats.stopped else count
                if stats.wrong:
                    when = f"in epoch {epochs}" if count == 1 else f"in one of {count} epochs"
                    raise self._error(stats.what(names), f"{when}, at a rate of {rate:g}")
                if stats.stopped:
                    break
        out = {"loss": stats.scalars[0], "gradient_norm": stats.norm, "epochs": float(epochs)}
        return {**out, **dict(zip(names, stats.scalars[1:], strict=True))}

    @property
    def _stream(self) -> tuple[int, ...]:
        """What is random in epochs depends on."""
        return (self._updates,)

    def shuffler(self) -> np.random.Generator:
        """What an update's rows are cut into minibatches by."""
        return seeding.generator(self._seed, "on-policy", "shuffle", *self._stream)

    def _error(self, what: str, where: str) -> TrainingError:
        return TrainingError(
            f"{type(self.config).__name__} update {self._updates + 1}: {what} became NaN or infinite {where}. The weights from before "
            "this update are kept; a smaller learning_rate, or finite rewards and observations, may help."
        )

    def _epochs(self, rows: Any, units: int) -> Iterator[tuple[int, Iterable[Any]]]:
        """The parts of each epoch, prepared: the whole batch, or minibatches of its units, shuffled anew; nothing where there are none. Of
        so many epochs: all of a whole batch, where to read numbers is to wait, and nothing is decided by them."""
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
        """As `SupportsOnDevice.on_device_unsupported_reason`."""
        return on_device_unsupported_reason(self.model, self._context, self.config)

    def table(self) -> Tensor:
        """As `SupportsOnDevice.table`."""
        assert self._in_place is not None
        return self._in_place.table()

    def act(self, x: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """As `SupportsOnDevice.act`."""
        assert self._in_place is not None
        return self._in_place.act(x, mask, generator)

    def learn(self, block: Block) -> Metrics:
        """As `SupportsOnDevice.learn`."""
        assert self._in_place is not None
        self._budget.count(block.num_rows, block.num_episodes)
        there, progress = self._in_place, self._progress
        self._from_block = True
        try:
            return self._update(lambda: self._weighted(*there.batch(block, progress)))
        finally:
            self._from_block = False

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return self.model.weights()

    def state_dict(self) -> State:
        learned = self._items.learned
        return {
            **self.model.state_dict(),
            **({} if learned is None else {"learned_reward": learned.state_dict()}),
            "budget": self._budget.state_dict(),
            "progress": self._progress,
            "updates": self._updates,
            "waiting": self._waiting,
            "blind": self._items.blind,
        }

    def load_state_dict(self, state: State) -> None:
        self.model.load_state_dict(state)
        self._budget.load_state_dict(state["budget"])
        self._progress = float(state["progress"])
        if self._items.learned is not None:
            self._items.learned.load_state_dict(state["learned_reward"])
        self._updates, self._waiting, self._items.blind = (int(state[key]) for key in ("updates", "waiting", "blind"))


def explained(batch: Batch, model: Model) -> Metrics:
    """1 - Var(G - V) / Var(G), where there is a value that targets were made with."""
    if not model.names:
        return {}
    spread, unexplained = scalars_to_host(
        [batch.target.var(correction=0), (batch.target - batch.value).var(correction=0)]
    )
    return {"explained_variance": 1.0 - unexplained / spread if spread > 0 else 0.0}
