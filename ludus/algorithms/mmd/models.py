"""Models of magnetic mirror descent and R-NaD, by CPU kernels and by autograd, and the magnet of both. The losses are
in `ludus.algorithms.mmd.losses`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.information_states import visited_states
from ludus.algorithms.common.losses import divergence, entropy, log_prob, masked_log_softmax, ppo_surrogate, value_loss
from ludus.algorithms.mmd.losses import (
    Floats,
    LogitBounds,
    action_values,
    log_policy,
    log_uniform,
    neurd_loss,
    neurd_losses,
    policy_losses,
    regularized,
)
from ludus.algorithms.on_policy.autograd_model import TorchModel, fresh_seed, state_table
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.kernels import KernelBatch, KernelModel, KernelRows
from ludus.algorithms.on_policy.model import ActionBatch
from ludus.backend.device import Placement, to_device, to_numpy
from ludus.backend.network import FlatModule, TrainedNetwork
from ludus.core.types import EnvSpec, Metrics, State, Weights
from ludus.policies.actor_critic import ActorCritic, arrays_of, first_weights, layouts, load_arrays, make_network
from ludus.policies.registry import build_policy
from ludus.policies.specs import joined, part_of
from ludus.replay.blocks import Block, BlockRows, of_players, until_next
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.mmd.config import MMD


def regularized_rewards(
    config: MMD, env: EnvSpec, rows: Trajectories, reward: Floats, ratio: Floats, progress: float
) -> Floats:
    """Return `regularized` rewards, given log π/π_magnet float64[N] of the actions taken."""
    cost = config.alpha.at(progress) * ratio
    return regularized(rows, reward, cost, opponents=env.zero_sum and env.num_players == 2)


class Magnet:
    """The magnet of both backends: a network that follows the trained one, as flat parameters, and its coefficients.
    With announce=average there is also the running average of the trained one, of which copies are then made."""

    def __init__(
        self, config: MMD, context: LearnerContext, own: Tensor, values: Tensor, average: Tensor | None
    ) -> None:
        self.config, self.parameters, self.values, self.average, self.updates = config, own, values, average, 0
        self._env, self.table = context.env, state_table(context)

    def rewards(
        self, rows: Trajectories, reward: Floats, progress: float, *, inputs: int, actions: int, policy: PolicyOf
    ) -> Floats:
        """Return rewards as `Model.rewards` does, given the magnet's policy."""
        if self.config.regularise != "reward":
            return reward
        x, mask, state = visited_states(self.table, rows.observation, rows.mask, inputs=inputs, actions=actions)
        magnet = policy(x, mask)[state, rows.action.astype(np.int64)]
        return regularized_rewards(self.config, self._env, rows, reward, rows.logp - magnet, progress)

    def loss_coefficients(self, progress: float) -> tuple[float, float, float]:
        """Return (weight of the magnet, weight of the policy before the update) in the loss, and the cost of a nat away
        from the magnet in rewards."""
        alpha, eta = self.config.alpha.at(progress), self.config.eta.at(progress)
        loss, cost = (alpha, 0.0) if self.config.regularise == "loss" else (0.0, alpha)
        return loss, 1.0 / eta if eta > 0.0 else 0.0, cost

    @property
    def bounds(self) -> LogitBounds:
        """Return the bounds of NeuRD."""
        return LogitBounds(self.config.logit_threshold, self.config.advantage_clip)

    def coefficients(self, progress: float) -> Metrics:
        """Return the coefficients as metrics."""
        return {"alpha": self.config.alpha.at(progress), "eta": self.config.eta.at(progress)}

    @torch.no_grad()
    def update(self, progress: float) -> None:
        """Move the magnet after an update."""
        self.updates += 1
        if self.average is not None:
            self.average.lerp_(self.parameters, self.config.average_rate.at(progress))
        if self.config.magnet == "moving":
            self.values.lerp_(self.parameters, self.config.magnet_rate.at(progress))
        elif self.config.magnet == "policy" and self.updates % self.config.magnet_period == 0:
            self.values.copy_(self.parameters if self.average is None else self.average)

    def published_weights(
        self, newest: Weights, magnet: Callable[[], Weights], average: Callable[[], Weights]
    ) -> Weights:
        """Return the weights of a version."""
        if self.config.announce == "newest":
            return newest
        return joined({"newest": newest, "average": (magnet if self.config.announce == "magnet" else average)()})


PolicyOf = Callable[[Tensor, NDArray[np.bool_]], Floats]
"""Log-probabilities float64[m, A] of states x float32[m, inputs], mask bool[m, A]."""
NAMES = ("policy_loss", "value_loss", "entropy", "kl_magnet", "kl", "clip_fraction")


def _first(config: MMD, context: LearnerContext, start: Weights | None) -> Weights:
    """Return the initial weights: fresh ones, or those of a published policy."""
    if start is not None and config.announce != "newest":
        start = part_of(build_policy(config.policy(context.env, context.seats), start).weights(), "average")
    return first_weights(config.plain_policy(context.env, context.seats), start, seed=fresh_seed(context))


class KernelMMD(KernelModel):
    """A perceptron that learns by mirror descent, by CPU kernels."""

    names = NAMES

    def __init__(self, config: MMD, context: LearnerContext, start: Weights | None, placement: Placement) -> None:
        self.config, spec = config, config.plain_policy(context.env, context.seats)
        super().__init__(config, spec, context, _first(config, context, start), placement)
        self.magnet_network = TrainedNetwork(layouts(spec), self.parameters.weights())
        self.average_network = TrainedNetwork(layouts(spec), self.parameters.weights())
        own, magnet_values, average = (
            torch.from_numpy(n.flat) for n in (self.parameters, self.magnet_network, self.average_network)
        )
        self.magnet = Magnet(config, context, own, magnet_values, average if config.announce == "average" else None)
        self.spec = config.policy(context.env, context.seats)

    def rewards(self, rows: Trajectories, reward: Floats, progress: float) -> Floats:
        sizes = {"inputs": self.shape[0], "actions": self.actions}
        return self.magnet.rewards(rows, reward, progress, **sizes, policy=self._magnet_of)

    def _magnet_of(self, x: Tensor, mask: NDArray[np.bool_]) -> Floats:
        """Return the magnet's log-probabilities float64[m, A]; 0 where illegal."""
        uniform = self.config.magnet == "uniform"
        return log_uniform(mask) if uniform else log_policy(self.magnet_network.evaluate("policy", x), mask)

    def rows(self, batch: Batch) -> KernelRows:
        """Return the rows with the log-probabilities of the present policy and of the magnet."""
        assert batch.mask is not None
        mask = batch.mask.numpy()
        before = log_policy(self.parameters.evaluate("policy", batch.x), mask)
        return KernelRows.of(batch, before, self._magnet_of(batch.x, mask))

    def policy_losses(self, part: KernelBatch, progress: float) -> tuple[float, tuple[float, ...]]:
        out, gradient = part.passes.outputs["policy"], part.passes.gradients["policy"]
        rows, (before, magnet) = part.rows, part.rows.held
        alpha, beta, cost = self.magnet.loss_coefficients(progress)
        held: dict[str, Any] = {"magnet": magnet, "before": before, "alpha": alpha, "beta": beta, "gradient": gradient}
        if self.config.policy_loss == "neurd":
            each, bounds = (rows.state, rows.action, rows.logp, rows.advantage), self.magnet.bounds
            losses = neurd_losses(out, rows.mask, part.compressed, each, **held, cost=cost, bounds=bounds)
        else:
            losses = policy_losses(out, rows.mask, part.compressed, **held, clip=self.config.clip)
        loss = losses.surrogate + alpha * losses.magnet + beta * losses.moved
        return loss, (losses.surrogate, losses.entropy, losses.magnet, losses.moved, losses.clipped)

    def coefficients(self, progress: float) -> Metrics:
        return self.magnet.coefficients(progress)

    def after_update(self, batch: Batch, progress: float) -> None:
        self.magnet.update(progress)

    def weights(self) -> Weights:
        return self.magnet.published_weights(
            self.parameters.weights(), self.magnet_network.weights, self.average_network.weights
        )

    def state_dict(self) -> State:
        more = {
            "magnet": self.magnet_network.weights(),
            "average": self.average_network.weights(),
            "moves": self.magnet.updates,
        }
        return {**super().state_dict(), **more}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.magnet_network.load(state["magnet"])
        self.average_network.load(state["average"])
        self.magnet.updates = int(state["moves"])


class TorchMMD(TorchModel):
    """The same by autograd, on any device."""

    memory, sequence, state, mean_reducible = 0, 1, 0, True
    module: ActorCritic

    def __init__(self, config: MMD, context: LearnerContext, start: Weights | None) -> None:
        self.config, spec = config, config.plain_policy(context.env, context.seats)
        networks = [make_network(spec) for _ in range(3)]
        for network in networks:
            load_arrays(network, _first(config, context, start))
        self.module, *others = networks
        self.shape, self.actions = self.module.shape, self.module.head_of.outputs
        plain = layouts(spec).values()
        super().__init__(config, self.module, context, names=NAMES, layouts=plain)
        self.magnet_network, self.average_network = (
            FlatModule(m, device=self.placement.torch, layouts=plain) for m in others
        )
        for flat in (self.magnet_network, self.average_network):
            flat.values.copy_(self.parameters.values)
        average = self.average_network.values if config.announce == "average" else None
        self.magnet = Magnet(config, context, self.parameters.values, self.magnet_network.values, average)
        self._opponents = context.env.zero_sum and context.env.num_players == 2  # who are paid what it costs
        self.spec = config.policy(context.env, context.seats)

    def values(
        self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        return self.module.value_of(x).float(), None

    def outputs(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.module(x)[0])

    def log_prob(self, batch: Batch) -> Tensor:
        return log_prob(self.outputs(batch.x), batch.action, batch.mask)

    def rewards(self, rows: Trajectories, reward: Floats, progress: float) -> Floats:
        device = self.placement.torch

        def policy(x: Tensor, mask: NDArray[np.bool_]) -> Floats:
            logp = self._magnet_of(x.reshape(-1, *self.shape).to(device), to_device(mask, device))
            return to_numpy(logp).astype(np.float64)

        sizes = {"inputs": math.prod(self.shape), "actions": self.actions}
        return self.magnet.rewards(rows, reward, progress, **sizes, policy=policy)

    def rewards_on_device(
        self, reward: Tensor, progress: float, *, acted: ActionBatch, rows: BlockRows, block: Block
    ) -> Tensor:
        """Return `regularized_rewards` on the device."""
        if self.config.regularise != "reward":
            return reward
        magnet = self._magnet_of(acted.x, acted.mask).gather(1, acted.action[:, None])[:, 0]
        cost = self.config.alpha.at(progress) * (acted.logp - magnet).double()
        if not self._opponents:
            return reward - cost
        own = cost.new_zeros(block.row.numel()).index_copy(0, rows.where, cost).view_as(block.row)
        return reward - cost + until_next(block, of_players(block, own, others=True)).flatten()[rows.where]

    @torch.no_grad()
    def _magnet_of(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the magnet's log-probabilities [n, A]; -inf where illegal."""
        uniform = self.config.magnet == "uniform"
        out = x.new_zeros(len(x), self.actions) if uniform else self.magnet_network.module(x)[0].float()
        return masked_log_softmax(out, mask)

    @contextmanager
    def learning(self, batch: Batch, seed: int) -> Iterator[Batch]:
        with torch.no_grad():
            before = masked_log_softmax(self.module(batch.x)[0].float(), batch.mask)
        held = torch.stack([before, self._magnet_of(batch.x, batch.mask)], dim=1)
        with super().learning(replace(batch, held=held), seed) as rows:
            yield rows

    def loss_coefficients(self, progress: float) -> tuple[float, ...]:
        return self.magnet.loss_coefficients(progress)

    def loss(self, batch: Batch, coefficients: Sequence[float]) -> tuple[Tensor, Sequence[Tensor]]:
        config, (alpha, beta, cost) = self.config, coefficients
        out, value, _ = self.module(batch.x)
        logits = out.float()
        logp = masked_log_softmax(logits, batch.mask)
        assert batch.held is not None
        policy, clipped = self._policy(batch, logits, logp, cost)
        surrogate = batch.mean(policy)
        moved, attracted = (batch.mean(divergence(logp, batch.held[:, k])) for k in range(2))
        value_term = batch.mean(value_loss(value.float(), batch.target))
        loss = surrogate + alpha * attracted + beta * moved + config.value_coefficient * value_term
        with torch.no_grad():
            entropy_mean = batch.mean(entropy(logits, batch.mask))
        return loss, (surrogate, value_term, entropy_mean, attracted, moved, batch.mean(clipped))

    def _policy(self, batch: Batch, logits: Tensor, logp: Tensor, cost: float) -> tuple[Tensor, Tensor]:
        """Return (the policy's loss, what was clipped) of each row."""
        if self.config.policy_loss == "neurd":
            assert batch.held is not None
            arguments = logp.detach(), batch.held[:, 1], batch.action, batch.logp, batch.advantage
            return neurd_loss(logits, batch.mask, action_values(*arguments, cost=cost), bounds=self.magnet.bounds)
        clip = math.inf if self.config.clip is None else self.config.clip
        logp_action = logp.gather(1, batch.action[:, None])[:, 0]
        far = ((logp_action.detach() - batch.logp).exp().sub(1.0).abs() > clip).float()
        return ppo_surrogate(logp_action, batch.logp, batch.advantage, clip=clip), far

    def coefficients(self, progress: float) -> Metrics:
        return self.magnet.coefficients(progress)

    def after_update(self, batch: Batch, progress: float) -> None:
        self.magnet.update(progress)

    def weights(self) -> Weights:
        parts = (lambda: arrays_of(self.magnet_network.module)), (lambda: arrays_of(self.average_network.module))
        return self.magnet.published_weights(super().weights(), *parts)

    def state_dict(self) -> State:
        magnet, average = (arrays_of(flat.module) for flat in (self.magnet_network, self.average_network))
        more = {"magnet": magnet, "average": average, "moves": self.magnet.updates}
        return {**super().state_dict(), "weights": super().weights(), **more}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        load_arrays(self.magnet_network.module, state["magnet"])
        load_arrays(self.average_network.module, state["average"])
        self.magnet.updates = int(state["moves"])
