"""The learner of neural fictitious self-play: DQN's for the best response, and imitation of past best responses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ludus.algorithms.common.base import RESERVOIR, LearnerContext, Priorities, updated_priorities, updates_of
from ludus.algorithms.common.config import Budget
from ludus.algorithms.common.information_states import InformationStates, visited_states
from ludus.algorithms.common.losses import log_prob
from ludus.algorithms.nfsp.kernels import imitation_loss
from ludus.backend.device import (
    Placement,
    UpdateCost,
    describe_device,
    placement_for_table,
    resolve_placement,
    to_device,
    to_numpy,
)
from ludus.backend.mlp import Workspace
from ludus.backend.network import FlatModule, GuardedAdam, ModuleAdam, NonFiniteGuard, multiplications
from ludus.core import seeding
from ludus.core.errors import TrainingError
from ludus.core.types import Metrics, State, Weights
from ludus.policies.actor_critic import arrays_of, first_weights, layouts, load_arrays, make_network
from ludus.policies.specs import joined, mode_keys, part_of, sample_modes, spec_of
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.nfsp.config import NFSP


class NFSPLearner:
    """All decisions go to the replay table; those of the best response, in its own episodes, to the reservoir.

    The best response, a separate learner, has its own placement. With autograd on a GPU, the metrics of imitation are
    those of the last round of `batches` until the last step of the next.
    """

    def __init__(self, config: NFSP, context: LearnerContext, start: Weights | None = None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        average = spec_of(self.spec, "average")
        begin = {part: part_of(start, part) if start is not None else None for part in ("best_response", "average")}
        self._response = config.best_response.learner(context, begin["best_response"])
        seed = seeding.key(context.seed, "nfsp", "weights") % 2**63
        network = make_network(average, seed=seed)
        if begin["average"] is not None:
            load_arrays(network, first_weights(average, begin["average"], seed=seed))
        self._placement = resolve_placement(
            context.device, UpdateCost(multiplications(network), config.batch, has_cpu_kernel=True)
        )
        self._device, layout = self._placement.torch, layouts(average)["policy"]
        self._network = FlatModule(network, layouts=[layout], device=self._device)
        self._work = Workspace(layout)
        self._adam = GuardedAdam(ModuleAdam(self._network), NonFiniteGuard(self._device))
        enumeration = context.env.enumeration
        self._states = InformationStates.of(enumeration, context.seats) if enumeration is not None else None
        if self._states is not None:
            self._inputs, self._legal = (
                to_device(of, self._device) for of in (self._states.x.numpy(), self._states.mask)
            )
        self._shape, self._actions = tuple(average.config["shape"]), int(average.config["action"]["actions"])
        self._keys = mode_keys(context.seed, context.env.num_players)
        self._budget = Budget.of(config.collect(), context)
        self._decisions = self._reservoir_decisions = self._updates = (
            0  # decisions, those of them that went to the reservoir, and steps
        )
        self._due = 0  # steps of imitation of this round that are left
        self._priorities: Priorities = ()
        self._metrics: dict[str, float] = {}

    @property
    def placement(self) -> Placement:
        """Return the average's placement, with a description of both."""
        return replace(
            self._placement, why=f"{self._placement.why}; its best response on {describe_device(self._response)}"
        )

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return transitions, and the best response's decisions."""
        rows = trajectories
        played = sample_modes(self._keys[rows.seat], rows.episode, self.config.collect().modes)
        mode = np.repeat(played, np.diff(rows.start))
        own = np.flatnonzero(mode == 0)
        self._budget.add(rows)
        self._decisions += rows.num_rows
        self._reservoir_decisions += len(own)
        out = list(self._response.items(rows))
        if len(own):
            columns = {"observation": rows.observation[own], "action": rows.action[own]}
            if self._states is None and rows.mask is not None:
                columns["mask"] = rows.mask[own]
            out.append((RESERVOIR, columns))
        return out

    def batches(self) -> Sequence[tuple[str, int]]:
        """Return the best response's updates, alternating with `updates_per_decision` × decisions imitation steps once
        the reservoir has `min_size`."""
        config, self._due = self.config, 0
        if self._reservoir_decisions >= config.min_size:
            self._due = max(0, updates_of(self._decisions, config.updates_per_decision) - self._updates)
        imitation = [(RESERVOIR, config.batch)] * self._due
        return [item for item in chain(*zip_longest(self._response.batches(), imitation)) if item is not None]

    def learns_at(self, table: str) -> Placement | None:
        """Return the placement by table: the best response learns from another one, maybe elsewhere
        (`ludus.backend.device.placement_for_table`)."""
        return self.placement if table == RESERVOIR else placement_for_table(self._response, table)

    # ------------------------------------------------------------------------------------------ learning

    def update(self, batch: Sample) -> Metrics:
        """Take one step of Q-learning or of imitation. Raise TrainingError before it, if a number is not finite."""
        if "reward" in batch.columns:
            self._metrics |= {f"best_response_{name}": x for name, x in self._response.update(batch).items()}
            self._priorities = updated_priorities(self._response)
        else:
            self._imitate(batch.columns)
            self._priorities = ()
        return dict(self._metrics)

    def priorities(self) -> Priorities:
        """Return those of the best response's transitions; see `SupportsPriorities`."""
        return self._priorities

    def _imitate(self, columns: Mapping[str, Any]) -> None:
        config, rate = self.config, self.config.learning_rate.at(self._budget.progress)
        loss = (self._written if self._placement.written else self._autograd)(columns)
        self._due -= 1
        step = self._adam.step(loss, (), rate=rate, max_norm=config.max_gradient_norm, look=self._due <= 0)
        if step is not None and step.nonfinite:
            raise self._error(step.nonfinite)
        self._updates += 1
        metrics = {"imitation_learning_rate": rate, "reservoir_seen": float(self._reservoir_decisions)}
        if step is not None:
            metrics |= {"imitation_loss": step.loss, "imitation_gradient_norm": step.norm}
        self._metrics |= metrics

    def _written(self, columns: ItemColumns) -> float:
        """Compute the gradient by CPU kernels. Return the loss."""
        inputs, actions = math.prod(self._shape), self._actions
        x, mask, state = visited_states(
            self._states, columns["observation"], columns.get("mask"), inputs=inputs, actions=actions
        )
        work, network, rows = self._work, self._network, x.numpy()
        work.forward(network.flat, rows)
        action = np.ascontiguousarray(columns["action"], np.int32)
        loss = imitation_loss(work.out, mask, state, action, work.gradient)
        work.backward(network.flat, rows, network.gradient)
        return loss

    def _autograd(self, columns: Mapping[str, Any]) -> Tensor:
        """Compute the same on any device, row by row."""
        there = {name: to_device(column, self._device) for name, column in columns.items()}
        x, mask = there["observation"], there.get("mask")
        if self._states is not None:
            ids = x.long() - self._states.base
            x, mask = self._inputs[ids], self._legal[ids]
        self._network.zero()
        with self._placement.products():
            out = self._network.module(x.float().reshape(-1, *self._shape))[0].float()
        mask = torch.ones_like(out, dtype=torch.bool) if mask is None else mask
        loss = -log_prob(out, there["action"].long(), mask).mean()
        torch.autograd.backward(loss)
        return loss.detach()

    def _error(self, what: str) -> TrainingError:
        return TrainingError(
            f"NFSP, step {self._updates + 1} of imitation: {what} became NaN or infinite. The weights from before this step are "
            "kept; a smaller learning_rate, or finite observations, may help."
        )

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return joined({"best_response": self._response.weights(), "average": arrays_of(self._network.module)})

    def state_dict(self) -> State:
        return {
            "best_response": self._response.state_dict(),
            "average": to_numpy(self._network.values).copy(),
            "adam": self._adam.adam.state_dict(),
            "budget": self._budget.state_dict(),
            "counts": [self._decisions, self._reservoir_decisions, self._updates],
            "metrics": dict(self._metrics),
        }

    def load_state_dict(self, state: State) -> None:
        self._response.load_state_dict(state["best_response"])
        self._network.values.copy_(torch.from_numpy(state["average"]))
        self._adam.adam.load_state_dict(state["adam"])
        self._budget.load_state_dict(state["budget"])
        self._decisions, self._reservoir_decisions, self._updates = map(int, state["counts"])
        self._metrics = {name: float(x) for name, x in state["metrics"].items()}
