"""Magnetic mirror descent and R-NaD from top to bottom: the loss, and which backend computes it.

Per row, with r = π(a|s) / π_old(a|s) and advantage A, the loss of mirror descent is

    -min(r A, clip(r, 1 ± ε) A) + α KL(π(·|s) ‖ magnet(·|s)) + β KL(π(·|s) ‖ before(·|s))

whose minimiser over one state's π, unclipped and with exact advantages, is the mirror descent step of Sokota et al.
(2023, equation 6, for negative entropy): π ∝ [before^β magnet^α exp(A)]^(1 / (α + β)), β being 1 / η. The two
divergences are taken over all actions.

NeuRD has another first term. The gradient of r A by a logit has the factor π(a|s): unlikely actions hardly move any
more. NeuRD omits that factor (Hennes et al. 2020), and does not push a logit beyond ±threshold of the state's mean one.

`ludus.algorithms.mmd.kernels` has the same losses compiled, `ludus.algorithms.mmd.tabular_learner` the step in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import Learner, LearnerContext
from ludus.algorithms.common.losses import divergence, entropy, log_prob, masked_log_softmax, ppo_surrogate, value_loss
from ludus.algorithms.mmd.config import MMD
from ludus.algorithms.mmd.kernels import KernelMMD
from ludus.algorithms.mmd.magnet import NAMES, LogitBounds, Magnet, initial_weights
from ludus.algorithms.mmd.tabular_learner import TabularMMDLearner
from ludus.algorithms.on_policy.autograd_model import TorchModel
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.kernels import kernel_placement
from ludus.algorithms.on_policy.learner import OnPolicyLearner
from ludus.algorithms.on_policy.model import ActionBatch, Floats
from ludus.backend.device import to_device, to_numpy
from ludus.backend.network import FlatModule
from ludus.core.types import Metrics, State, Weights
from ludus.policies.actor_critic import ActorCritic, arrays_of, layouts, load_arrays, make_network
from ludus.replay.blocks import Block, BlockRows, of_players, until_next
from ludus.replay.trajectories import Trajectories


class MMDModel(TorchModel):
    """A perceptron that learns by mirror descent, by autograd on any device."""

    mean_reducible = True
    config: MMD
    module: ActorCritic

    def __init__(self, config: MMD, context: LearnerContext, start: Weights | None) -> None:
        self.config, spec = config, config.plain_policy(context.env, context.seats)
        networks = [make_network(spec) for _ in range(3)]
        for network in networks:
            load_arrays(network, initial_weights(config, context, start))
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

    def loss(self, batch: Batch, coefficients: Sequence[float]) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the loss of the module's docstring, and its metrics as means over rows.

        Args:
            batch: n rows; `held` float32[n, 2, A] has log π_before and log π_magnet of their states.
            coefficients: (α, β, the cost of a nat in the rewards); see `Magnet.loss_coefficients`.
        """
        config, (alpha, beta, cost) = self.config, coefficients
        out, value, _ = self.module(batch.x)
        logits = out.float()
        logp = masked_log_softmax(logits, batch.mask)
        assert batch.held is not None
        before, magnet = batch.held.unbind(dim=1)

        # Policy loss: the (clipped) surrogate, or NeuRD's
        if config.policy_loss == "neurd":
            q = action_values(logp.detach(), magnet, batch.action, batch.logp, batch.advantage, cost=cost)
            surrogate, clipped = neurd_loss(logits, batch.mask, q, bounds=self.magnet.bounds)
        else:
            clip = math.inf if config.clip is None else config.clip
            logp_action = logp.gather(1, batch.action[:, None])[:, 0]
            clipped = ((logp_action.detach() - batch.logp).exp().sub(1.0).abs() > clip).float()
            surrogate = ppo_surrogate(logp_action, batch.logp, batch.advantage, clip=clip)
        policy_loss = batch.mean(surrogate)

        # Proximal terms: KL(π ‖ before) and KL(π ‖ magnet)
        kl_before, kl_magnet = batch.mean(divergence(logp, before)), batch.mean(divergence(logp, magnet))

        # Value loss
        squared_error = batch.mean(value_loss(value.float(), batch.target))

        loss = policy_loss + alpha * kl_magnet + beta * kl_before + config.value_coefficient * squared_error
        with torch.no_grad():
            entropy_mean = batch.mean(entropy(logits, batch.mask))
        return loss, (policy_loss, squared_error, entropy_mean, kl_magnet, kl_before, batch.mean(clipped))

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


# --------------------------------------------------------------------------------------------------------------------
# NeuRD. What a row says of all actions of its state, when action a was taken with probability μ and had the advantage A, its own cost not
# counted: Q(b) - V is 1[b = a] A / μ - η log(π(b) / π_reg(b)), as DeepNash has it (Perolat et al. 2022, supplement B).


def neurd_loss(logits: Tensor, mask: Tensor | None, q: Tensor, *, bounds: LogitBounds) -> tuple[Tensor, Tensor]:
    """Return -Σ_b (y(b) - mean y) f(b) over the legal actions of each row, and the share of its forces f that bounds
    held back [n].

    f(b) = clip(Q(b) - Σ π Q, ±c), held fixed, and 0 where it would push a logit y(b) - mean y that is beyond ±β further
    out. logits y and q [n, A]. (Perolat et al. 2022, supplement B; Hennes et al. 2020.)
    """
    legal = torch.ones_like(logits, dtype=torch.bool) if mask is None else mask
    count = legal.sum(dim=1, keepdim=True)
    y = logits - logits.masked_fill(~legal, 0.0).sum(dim=1, keepdim=True) / count
    with torch.no_grad():
        chance = masked_log_softmax(logits, legal).exp()
        advantage = q - (chance * q.masked_fill(~legal, 0.0)).sum(dim=1, keepdim=True)
        wanted = advantage.clamp(-bounds.clip, bounds.clip)
        room = torch.where(wanted > 0.0, y < bounds.threshold, y > -bounds.threshold)
        force = (wanted * room).masked_fill(~legal, 0.0)
        held = ((~room | (advantage.abs() > bounds.clip)) & legal).sum(dim=1) / count[:, 0]
    return -(y.masked_fill(~legal, 0.0) * force).sum(dim=1), held


def action_values(
    logp: Tensor, magnet: Tensor, action: Tensor, old: Tensor, advantage: Tensor, *, cost: float
) -> Tensor:
    """Return Q(b) - V [n, A] as above.

    Args:
        logp: Log-probabilities [n, A] of the policy.
        magnet: Those of the policy that it is regularised towards (-inf where illegal).
        action: int64[n].
        old: Log-probability [n] of each row's action.
        advantage: float[n], which includes the row's own cost.
        cost: η.
    """
    apart = (logp - magnet).masked_fill(torch.isneginf(magnet), 0.0)
    action_cost = cost * (old - magnet.gather(1, action[:, None])[:, 0])
    action_value = (advantage + action_cost) / old.exp()
    return (-cost * apart).scatter_add(1, action[:, None], action_value[:, None])


# --------------------------------------------------------------------------------------------------------------------


def make_learner(config: MMD, context: LearnerContext, start: Weights | None = None) -> Learner:
    """Make the learner.

    Args:
        config: With network "table", or "mlp".
        context: What it learns in, and on which device: CPU kernels run on CPUs only.
        start: Weights to start from; None: fresh ones.
    """
    if config.network == "table":
        return TabularMMDLearner(config, context, start)
    placement = kernel_placement(config, config.plain_policy(context.env, context.seats), context)
    if placement.written:
        return OnPolicyLearner(config, KernelMMD(config, context, start, placement), context)
    return OnPolicyLearner(config, MMDModel(config, context, start), context)
