"""The learner of on-policy algorithms, by autograd: from rollouts to items, and from batches to steps of Adam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.core import seeding
from ludus.core.device import Work, fetched, placed, to_device, to_host
from ludus.core.errors import PolicyError, ScenarioError, TrainingError
from ludus.core.types import Array, Metrics, State, Tail, Weights
from ludus.learners.base import ROLLOUTS, LearnerContext
from ludus.learners.diversity import Divergence
from ludus.learners.network import FlatModule, multiplications
from ludus.learners.on_policy.batch import MEMORY, Batch, SegmentPieces, padded, unpadded, walk
from ludus.learners.on_policy.models import Floats, Model
from ludus.learners.on_policy.teams import critic_states, team_rewards
from ludus.learners.optimizer import ModuleAdam
from ludus.learners.ranks import agree
from ludus.learners.returns import bootstrap_values, corrected_rows, gae, normalised_rows, trace_columns
from ludus.learners.schedule import Budget
from ludus.learners.spaces import reward_scale
from ludus.learners.states import StateTable
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.learners.on_policy.options import Gradient

# --------------------------------------------------------------------------------------------------------------------
# From rollouts to items: values, advantages and targets, and memory at the beginning of sequences.


class Transitions:
    """Makes the items of a learner's table. blind: segments so far that should have been bootstrapped and have no observation."""

    def __init__(self, config: Gradient, model: Model, context: LearnerContext, device: torch.device) -> None:
        self._config, self._model, self._device = config, model, device
        enumeration = context.env.enumeration
        self._states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        self._inputs = None if self._states is None else self._states.x.to(device)
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

    @property
    def metrics(self) -> Metrics:
        """What there is to say about rollouts so far."""
        out = {"tails_without_value": float(self.blind)} if self._model.names else {}
        return out if self._divergence is None else {**out, "distance": self._divergence.nats}

    def of(self, rows: Trajectories) -> ItemColumns:
        """Rows with advantage and target, or sequences of them."""
        config = self._config
        if self._states is not None:
            self.blind += int(np.count_nonzero((rows.bootstrap_observation < 0) & (rows.tail != Tail.TERMINATED)))
        state, bootstrap_state = critic_states(rows, self._seats) if self._model.state else (None, None)
        pieces = before = last = None
        if self._model.memory:
            pieces = SegmentPieces.of(rows.start, self._model.sequence)
            value, before, last = self._walk(rows, pieces, state)
        else:
            value = self.values(rows.observation, self.x(rows.observation), state=self._tensor(state))
        tail = rows.bootstrap_observation
        bootstrap_value = bootstrap_values(
            rows.tail, self.values(tail, self.x(tail), self._tensor(last), state=self._tensor(bootstrap_state))
        )
        received = team_rewards(rows) if config.team_rewards else rows.reward.astype(np.float64)
        reward = self._model.scaled(rows, received * self._scale)
        if self._divergence is not None:
            reward = reward + self._divergence.reward(rows.observation, rows.mask, rows.action, rows.logp)
        advantage, target = gae(rows.start, reward, value, bootstrap_value, config.gamma, config.gae_lambda)
        columns = {
            "observation": rows.observation,
            "action": rows.action,
            "logp": rows.logp,
            "advantage": advantage.astype(np.float32),
            "target": target.astype(np.float32),
            "value": value.astype(np.float32),
        }
        if state is not None:
            columns["state"] = state
        if config.correction == "vtrace":
            columns |= trace_columns(rows.start, reward, value, bootstrap_value)
        if rows.mask is not None and self._model.actions:
            columns["mask"] = rows.mask
        if pieces is None or before is None:
            return {**columns, "version_lo": np.repeat(rows.version_lo, np.diff(rows.start))}
        items = padded(columns, pieces, self._model.sequence)
        return {**items, MEMORY: before, "version_lo": rows.version_lo[pieces.segment]}

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
            x, seen = self.x(rows.observation[which]), None if state is None else state[which]
            with torch.no_grad():
                out, after = self._model.values(x, self._tensor(memory), start, self._tensor(seen))
            assert after is not None
            return to_host(out), to_host(after)

        return walk(pieces, rows.memory0, look)

    def values(
        self,
        observation: Array,
        x: Tensor,
        memory: Tensor | None = None,
        start: NDArray[np.int64] | None = None,
        state: Tensor | None = None,
    ) -> Floats:
        """Values float64[n]; 0 for ids of -1, of which nothing is known."""
        with torch.no_grad():
            out = to_host(self._model.values(x, memory, start, state)[0]).astype(np.float64)
        return np.where(observation >= 0, out, 0.0) if self._states is not None else out

    def x(self, observation: Array) -> Tensor:
        """Observations as the model takes them: float32, or uint8 as they are, [n, *shape]."""
        shape = (len(observation), *self._model.shape)
        if self._states is None or self._inputs is None:
            dtype = np.uint8 if observation.dtype == np.uint8 and len(shape) > 2 else np.float32
            return to_device(np.ascontiguousarray(observation, dtype).reshape(shape), self._device)
        ids = np.maximum(observation - self._states.base, 0).astype(np.int64)
        return self._inputs[to_device(ids, self._device)].reshape(shape)

    def tensors(self, columns: ItemColumns) -> tuple[Tensor, Tensor | None, Tensor]:
        """(x, mask, action) of columns of rows."""
        observation, action, model = columns["observation"], columns["action"], self._model
        mask = None
        if self._states is not None:
            mask = self._states.mask[observation - self._states.base]
        elif "mask" in columns:
            mask = columns["mask"]
        elif not model.trusted:  # losses of one's own are written for masks
            mask = np.ones((len(observation), model.actions), np.bool_)
        whole = action.astype(np.int64) if model.actions else action
        return self.x(observation), self._tensor(mask), to_device(whole, self._device)

    def _tensor(self, array: Array | None) -> Tensor | None:
        return None if array is None else to_device(array, self._device)


_FLOATS = ("logp", "advantage", "target", "value")  # columns that a loss looks at
_TOLERANCE = 1e-3  # of a loss that is summed in another order


class OnPolicyLearner:
    """Learns from items whose advantages were computed when they arrived, with the values of the weights of that time."""

    def __init__(self, config: Gradient, model: Model, context: LearnerContext) -> None:
        self.config, self.model, self.spec = config, model, model.spec
        self._ranks, self._trusted = context.ranks, context.ranks.size == 1 or model.trusted
        self.placement = placed(context.device, Work(multiplications(model.module), config.step_rows, written=False))
        self._device = self.placement.torch
        self._parameters = FlatModule(model.module, sums=1 + len(model.names), device=self._device)
        agree(self._ranks, self._parameters.values)
        self._adam = ModuleAdam(self._parameters)
        self._items = Transitions(config, model, context, self._device)
        self._budget = Budget.of(config.collect(), context)
        self._progress = 0.0  # of the budget, before the rows of the next update were collected
        self._seed = context.seed
        self._updates = self._waiting = 0

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Decision rows with advantage and critic's target; of networks that remember, sequences of them."""
        columns = self._items.of(trajectories)
        self._budget.add(trajectories)
        self._waiting += trajectories.num_rows
        return [(ROLLOUTS, columns)]

    def batches(self) -> Sequence[tuple[str, int]]:
        """All items that wait, as one update."""
        return [(ROLLOUTS, 0)] if self._waiting else []

    # ------------------------------------------------------------------------------------------ learning

    def update(self, batch: Sample) -> Metrics:
        """`epochs` times `minibatches` steps on the loss. Raises TrainingError; the weights are then those from before the update."""
        kept = {name: tensor.clone() for name, tensor in self.model.module.state_dict().items()}
        adam, rate = self._adam.kept(), self.config.learning_rate.at(self._progress)
        try:
            with torch.random.fork_rng(devices=[]):  # of dropout, say
                torch.manual_seed(seeding.key(self._seed, *self._stream, "update", self._updates) % 2**63)
                learned = self._batch(batch.columns)
                metrics = self._learn(learned, rate)
        except TrainingError:
            self.model.module.load_state_dict(kept)
            self._adam.restore(adam)
            raise
        self.model.learned(learned)
        self._updates += 1
        self._waiting = 0
        self._progress = self._budget.progress
        return {"rows": float(len(learned)), "learning_rate": rate, **self._items.metrics, **metrics}

    def _batch(self, columns: ItemColumns) -> Batch:
        start = memory = None
        if self.model.memory:
            memory = to_device(columns[MEMORY], self._device)
            columns, start = unpadded(columns)
        x, mask, action = self._items.tensors(columns)
        state = to_device(columns["state"], self._device) if self.model.state else None
        floats = {name: to_device(np.asarray(columns[name], np.float32), self._device) for name in _FLOATS}
        batch, weight = Batch(x, mask, action, **floats, start=start, memory=memory, state=state), None
        if self.config.correction == "vtrace" and len(batch):
            batch, weight = self._corrected(columns, batch)
        advantage = batch.advantage.double()
        if self.config.normalise_advantages:
            advantage = normalised_rows(advantage, weight)
        elif weight is not None:
            advantage = advantage * weight
        return replace(batch, advantage=advantage.float())

    @torch.no_grad()
    def _corrected(self, columns: ItemColumns, batch: Batch) -> tuple[Batch, Tensor]:
        """What the weights of now make of the rows, and what each weighs."""
        config, names = self.config, ("reward", "ends", "after")
        logp = self.model.log_prob(batch)
        value = self.model.values(batch.x, batch.memory, batch.start, batch.state)[0]
        kept = {name: to_device(columns[name], self._device) for name in names}
        target, advantage, weight = corrected_rows(
            {**kept, "logp": batch.logp},
            value=value,
            logp=logp,
            gamma=config.gamma,
            lam=config.gae_lambda,
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
        )
        return replace(batch, advantage=advantage, target=target.float(), logp=logp, value=value), weight

    @property
    def _stream(self) -> tuple[int | str, ...]:
        return ("on-policy", self._ranks.rank) if self._ranks.rank else ("on-policy",)

    def _learn(self, batch: Batch, rate: float) -> Metrics:
        model = self.model
        if not self._trusted:
            self._require_mean(batch)
        seen, epochs = _Seen.nothing(1 + len(model.names), self._device), 0.0
        told = seen.told()
        model.module.train()
        try:
            for _, parts in groupby(self._parts(batch), key=itemgetter(0)):
                for _, part in parts:
                    seen = self._step(part, rate, seen)
                finite = self._parameters.values.isfinite().all()
                told = replace(seen, wrong=seen.wrong | ~finite).told()  # the one look at numbers in an epoch
                epochs += not told.stopped
                if told.stopped or told.wrong:
                    break
        finally:
            model.module.eval()
        if told.wrong:
            raise self._error(f"the loss ({told.scalars[0]}), its gradient or a weight", int(epochs))
        out = {"loss": told.scalars[0], "gradient_norm": told.norm, "epochs": epochs}
        return {**out, **dict(zip(model.names, told.scalars[1:], strict=True)), **_explained(batch, model)}

    def _step(self, part: Batch, rate: float, seen: _Seen) -> _Seen:
        """One step of Adam, unless the policy has gone too far, or a number is none: decided on the device."""
        limit, scalars = self.config.kl_limit, self._gradient(part)
        stopped = seen.stopped
        if limit is not None:
            stopped = stopped | (scalars[1 + self.model.names.index("kl")] > limit)
        held = stopped | seen.wrong | ~scalars[0].isfinite()
        norm = self._adam.step(rate=rate, max_norm=self.config.max_gradient_norm, held=held)
        wrong = seen.wrong | ~stopped & ~(scalars[0].isfinite() & norm.isfinite())
        over = stopped | seen.wrong
        return _Seen(torch.where(over, seen.scalars, scalars), torch.where(over, seen.norm, norm), stopped, wrong)

    def _error(self, what: str, epoch: int) -> TrainingError:
        return TrainingError(
            f"{type(self.config).__name__} update {self._updates + 1}: {what} became NaN or infinite in epoch {epoch}. The weights from "
            "before this update are kept; a smaller learning_rate may help."
        )

    def _parts(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """(epoch, from 1; a part): the whole batch, or minibatches of rows or sequences, shuffled anew in every epoch."""
        count = min(self.config.minibatches, batch.units)
        rng = seeding.generator(self._seed, "on-policy", "shuffle", self._updates) if count > 1 else None
        for epoch in range(1, self.config.epochs + 1):
            if rng is None:
                yield epoch, batch
                continue
            for which in np.array_split(rng.permutation(batch.units), count):
                yield epoch, batch.part(which)

    def _gradient(self, part: Batch) -> Tensor:
        """The loss of all ranks' rows and the model's other scalars, on the device; the gradient is filled in."""
        parameters, alone = self._parameters, self._ranks.size == 1
        mine = part if alone else part.part(self._ranks.share(part.units))
        parameters.zero()
        sums = parameters.slopes[parameters.size :]
        if len(mine):  # the mean over no rows is no number
            with self.placement.products():
                loss, metrics = self.model.loss(mine, self._progress)
            torch.autograd.backward(loss)
            sums.copy_(torch.stack([loss.detach(), *(metric.detach() for metric in metrics)]))
        if not alone:
            parameters.slopes *= len(mine) / len(part)
            self._ranks.sum(parameters.slopes)
        return sums.clone()

    def _require_mean(self, batch: Batch) -> None:
        """Raises ScenarioError unless the loss of the batch is the mean of the losses of the ranks' rows, as ranks take it to be."""
        joint, mine = len(batch), batch.part(self._ranks.share(batch.units))
        share = len(mine)
        with torch.no_grad():
            whole = float(self.model.loss(batch, self._progress)[0])
            both = np.array([whole, float(self.model.loss(mine, self._progress)[0]) * share / joint if share else 0.0])
        self._ranks.sum(both)  # the same on all ranks, so that all of them raise
        if abs(both[0] / self._ranks.size - both[1]) > _TOLERANCE * max(1.0, abs(both[1])):
            raise ScenarioError(
                f"{type(self.config).__name__}: the loss of {joint} rows is {whole:.6g}, and {self._ranks.size} ranks make {both[1]:.6g} "
                "of it. With several ranks a loss must be the mean over rows of what each row costs, nothing else; or use one rank."
            )
        self._trusted = True

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return self.model.weights()

    def state_dict(self) -> State:
        return {
            **self.model.state_dict(),
            "adam": self._adam.state_dict(),
            "budget": self._budget.state_dict(),
            "progress": self._progress,
            "updates": self._updates,
            "waiting": self._waiting,
            "blind": self._items.blind,
        }

    def load_state_dict(self, state: State) -> None:
        self.model.load_state_dict(state)
        self._adam.load_state_dict(state["adam"])
        self._budget.load_state_dict(state["budget"])
        self._progress = float(state["progress"])
        self._updates, self._waiting, self._items.blind = (int(state[key]) for key in ("updates", "waiting", "blind"))


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """On the device: scalars [1 + names] and gradient's norm of the last step, and whether steps have stopped, or something is no
    number."""

    scalars: Tensor
    norm: Tensor
    stopped: Tensor
    wrong: Tensor

    @staticmethod
    def nothing(scalars: int, device: torch.device) -> _Seen:
        no = torch.zeros((), dtype=torch.bool, device=device)
        return _Seen(torch.zeros(scalars, device=device), torch.zeros((), device=device), no, no)

    def told(self) -> _Told:
        """Read."""
        *scalars, norm, stopped, wrong = fetched([*self.scalars, self.norm, self.stopped, self.wrong])
        return _Told(scalars, norm, bool(stopped), bool(wrong))


@dataclass(frozen=True, slots=True)
class _Told:
    """The same as numbers."""

    scalars: list[float]
    norm: float
    stopped: bool
    wrong: bool


def _explained(batch: Batch, model: Model) -> Metrics:
    """1 - Var(G - V) / Var(G), where there is a value that targets were made with."""
    if not model.names:
        return {}
    spread, unexplained = fetched([batch.target.var(correction=0), (batch.target - batch.value).var(correction=0)])
    return {"explained_variance": 1.0 - unexplained / spread if spread > 0 else 0.0}
