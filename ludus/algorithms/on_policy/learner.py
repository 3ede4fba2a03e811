"""The learner of on-policy algorithms that are written as networks and a loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludus import seeding
from ludus.algorithms.base import LearnerContext
from ludus.algorithms.correction import corrected, normalised, trace_columns
from ludus.algorithms.losses import log_prob
from ludus.algorithms.on_policy.config import TABLE, Batch, OnPolicy
from ludus.algorithms.optimizer import Adam
from ludus.algorithms.progress import Budget
from ludus.algorithms.ranks import agree
from ludus.algorithms.returns import gae, tail_values
from ludus.algorithms.spaces import reward_scale
from ludus.algorithms.states import StateTable
from ludus.data.base import Columns, Sample
from ludus.data.trajectories import Trajectories
from ludus.errors import PolicyError, ScenarioError, TrainingError
from ludus.policies.mlp import as_rows
from ludus.policies.torch_module import make_networks, networks_of, weights_of
from ludus.types import Array, Metrics, State, Weights

_TOLERANCE = 1e-3  # of a loss that is summed in another order


class OnPolicyLearner:
    """Learns from decision rows whose advantages were computed when they arrived, with the critic of that time."""

    def __init__(self, config: OnPolicy, context: LearnerContext, start: Weights | None = None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        fresh = seeding.key(context.seed, "on-policy", "weights") % 2**63
        self._networks = networks_of(self.spec, start) if start is not None else make_networks(self.spec, seed=fresh)
        if "critic" not in self._networks:
            raise PolicyError(f"{self.spec.config['maker']}: networks() made no 'critic', which advantages need.")
        self._parameters = list(self._networks.parameters())
        self._ranks, self._trusted = context.ranks, context.ranks.size == 1
        if not self._trusted:
            _require_no_batch_norm(self._networks)
            flat = _flat(self._parameters)
            agree(self._ranks, flat)
            _assign(flat, self._parameters)
        self._adam = Adam(sum(p.numel() for p in self._parameters))
        enumeration = context.env.enumeration
        self._states = StateTable.of(enumeration, context.seats) if enumeration is not None else None
        self._inputs, self._actions = int(self.spec.config["inputs"]), int(self.spec.config["actions"])
        self._scale = reward_scale(context.env, context.seats, enabled=config.scale_rewards)
        self._budget = Budget.of(config.collect(), context)
        self._progress = 0.0  # of the budget, before the rows of the next update were collected
        self._seed = context.seed
        self._updates = self._waiting = 0

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, Columns]]:
        """Decision rows with advantage and critic's target."""
        rows, config = trajectories, self.config
        value, after = self._values(rows.observation), tail_values(rows.tail, self._values(rows.tail_observation))
        reward = rows.reward.astype(np.float64) * self._scale
        advantage, target = gae(rows.start, reward, value, after, config.gamma, config.gae_lambda)
        columns = {
            "observation": rows.observation,
            "action": rows.action,
            "logp": rows.logp,
            "advantage": advantage.astype(np.float32),
            "target": target.astype(np.float32),
            "version_lo": np.repeat(rows.version_lo, np.diff(rows.start)),
        }
        if config.correction == "vtrace":
            columns |= trace_columns(rows.start, reward, value, after)
        if rows.mask is not None:
            columns["mask"] = rows.mask
        self._budget.add(rows)
        self._waiting += rows.num_rows
        return [(TABLE, columns)]

    def _values(self, observation: Array) -> NDArray[np.float64]:
        """The critic's values float64[n]; 0 for ids of -1, of which nothing is known."""
        with torch.no_grad():
            out = self._networks["critic"](self._x(observation)).reshape(-1).numpy().astype(np.float64)
        return np.where(observation >= 0, out, 0.0) if self._states is not None else out

    def _x(self, observation: Array) -> torch.Tensor:
        if self._states is None:
            return as_rows(observation, self._inputs)
        return self._states.x[torch.from_numpy(np.maximum(observation - self._states.base, 0).astype(np.int64))]

    def batches(self) -> Sequence[tuple[str, int]]:
        """All rows that wait, as one update."""
        return [(TABLE, 0)] if self._waiting else []

    def update(self, batch: Sample) -> Metrics:
        """`epochs` steps on the loss. Raises TrainingError; the weights are then those from before the update."""
        weights, adam = self._networks.state_dict(), self._adam.state_dict()
        kept = {name: tensor.clone() for name, tensor in weights.items()}
        rate = self.config.learning_rate.at(self._progress)
        try:
            with torch.random.fork_rng(devices=[]):  # of dropout, say
                torch.manual_seed(seeding.key(self._seed, *self._stream, "update", self._updates) % 2**63)
                loss, norm = self._learn(self._batch(batch.columns), rate)
        except TrainingError:
            self._networks.load_state_dict(kept)
            self._adam.load_state_dict(adam)
            raise
        self._updates += 1
        self._waiting = 0
        self._progress = self._budget.progress
        return {"rows": float(len(batch.index)), "loss": loss, "gradient_norm": norm, "learning_rate": rate}

    def _batch(self, columns: Columns) -> Batch:
        observation, action = columns["observation"], torch.from_numpy(columns["action"].astype(np.int64))
        if self._states is not None:
            mask = self._states.mask[observation - self._states.base]
        else:
            mask = columns.get("mask", np.ones((len(observation), self._actions), np.bool_))
        x, mask = self._x(observation), torch.from_numpy(mask)
        if self.config.correction == "vtrace":
            columns = {**columns, **self._corrected(columns, x, mask, action)}
        advantage = columns["advantage"].astype(np.float64)
        weight = columns.get("weight")
        if self.config.normalise_advantages:
            advantage = normalised(advantage, weight)
        elif weight is not None:
            advantage = advantage * weight
        others = (columns["logp"], advantage.astype(np.float32), columns["target"])
        return Batch(x, mask, action, *map(torch.from_numpy, others))

    def _corrected(
        self, columns: Columns, x: torch.Tensor, mask: torch.Tensor, action: torch.Tensor
    ) -> Mapping[str, Array]:
        """What the weights of now make of the rows."""
        config = self.config
        with torch.no_grad():
            logp = log_prob(self._networks["policy"](x), action, mask).numpy()
        target, advantage, weight = corrected(
            columns,
            value=self._values(columns["observation"]),
            logp=logp.astype(np.float64),
            gamma=config.gamma,
            lam=config.gae_lambda,
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
        )
        return {"advantage": advantage, "weight": weight, "target": target.astype(np.float32), "logp": logp}

    @property
    def _stream(self) -> tuple[int | str, ...]:
        return ("on-policy", self._ranks.rank) if self._ranks.rank else ("on-policy",)

    def _learn(self, batch: Batch, rate: float) -> tuple[float, float]:
        joint = len(batch.action)
        mine = batch if self._ranks.size == 1 else _rows(batch, self._ranks.share(joint))
        if not self._trusted:
            self._require_mean(batch, mine)
        value = norm = 0.0
        for epoch in range(self.config.epochs):
            value, gradient = self._gradient(mine, joint)
            flat = _flat(self._parameters)
            norm = self._adam.step(flat, gradient, rate=rate, max_norm=self.config.max_gradient_norm)
            if not (math.isfinite(value) and math.isfinite(norm) and np.isfinite(flat).all()):
                raise TrainingError(
                    f"{type(self.config).__name__} update {self._updates + 1}: the loss ({value}), its gradient or a weight became NaN or "
                    f"infinite in epoch {epoch + 1}. The weights from before this update are kept; a smaller learning_rate may help."
                )
            _assign(flat, self._parameters)
        return value, norm

    def _gradient(self, mine: Batch, joint: int) -> tuple[float, NDArray[np.float32]]:
        """The loss of all ranks' rows, and its gradient by all parameters in turn."""
        value, parts = 0.0, [torch.zeros_like(p) for p in self._parameters]
        if len(mine.action):  # the mean over no rows is no number
            self._networks.train()
            loss = self._loss(mine)
            gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
            self._networks.eval()
            value = float(loss.detach())
            parts = [zero if g is None else g for zero, g in zip(parts, gradients, strict=True)]
        gradient = _flat(parts)
        if self._ranks.size == 1:
            return value, gradient
        both = np.append(gradient, np.float32(value)) * np.float32(len(mine.action) / joint)
        self._ranks.sum(both)
        return float(both[-1]), both[:-1]

    def _loss(self, batch: Batch) -> torch.Tensor:
        return self.config.loss(cast(Mapping[str, nn.Module], self._networks), batch)

    def _require_mean(self, batch: Batch, mine: Batch) -> None:
        """Raises ScenarioError unless the loss of the batch is the mean of the losses of the ranks' rows, as ranks take it to be."""
        joint, share = len(batch.action), len(mine.action)
        with torch.no_grad():
            whole = float(self._loss(batch))
            both = np.array([whole, float(self._loss(mine)) * share / joint if share else 0.0])
        self._ranks.sum(both)  # the same on all ranks, so that all of them raise
        if abs(both[0] / self._ranks.size - both[1]) > _TOLERANCE * max(1.0, abs(both[1])):
            raise ScenarioError(
                f"{type(self.config).__name__}: the loss of {joint} rows is {whole:.6g}, and {self._ranks.size} ranks make {both[1]:.6g} "
                "of it. With several ranks a loss must be the mean over rows of what each row costs, nothing else; or use one rank."
            )
        self._trusted = True

    def weights(self) -> Weights:
        return weights_of(self._networks)

    def state_dict(self) -> State:
        return {
            "weights": weights_of(self._networks),
            "adam": self._adam.state_dict(),
            "budget": self._budget.state_dict(),
            "progress": self._progress,
            "updates": self._updates,
            "waiting": self._waiting,
        }

    def load_state_dict(self, state: State) -> None:
        self._networks.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in state["weights"].items()})
        self._adam.load_state_dict(state["adam"])
        self._budget.load_state_dict(state["budget"])
        self._progress = float(state["progress"])
        self._updates, self._waiting = int(state["updates"]), int(state["waiting"])


def _require_no_batch_norm(networks: nn.Module) -> None:
    for name, module in networks.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ScenarioError(
                f"the network {name!r} is a {type(module).__name__}, whose answers for a row depend on the rows beside it; several ranks, "
                "which have different rows, would not learn what one does. Use LayerNorm, or one rank."
            )


def _rows(batch: Batch, share: slice) -> Batch:
    return Batch(**{f.name: getattr(batch, f.name)[share] for f in fields(Batch)})


@torch.no_grad()
def _assign(flat: NDArray[np.float32], parameters: Sequence[nn.Parameter]) -> None:
    """What `_flat` put one after the other, back into its places. (torch's `vector_to_parameters` makes the parameters views of the vector
    instead; their addresses, and on some processors the last bit of a product with them, would then depend on how often that was done.)"""
    at = 0
    for parameter in parameters:
        parameter.copy_(torch.from_numpy(flat[at : at + parameter.numel()]).view_as(parameter))
        at += parameter.numel()


def _flat(tensors: Sequence[torch.Tensor]) -> NDArray[np.float32]:
    """One after the other, as a copy. (`parameters_to_vector` refuses gradients that autograd leaves transposed.)"""
    flat: NDArray[np.float32] = torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).numpy()
    return flat
