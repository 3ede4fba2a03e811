"""PPO from top to bottom: its loss, and which backend computes it.

An update (`ludus.algorithms.on_policy.learner.OnPolicyLearner`) estimates advantages by GAE and takes `epochs` × `minibatches`
steps of Adam on this loss. `ludus.algorithms.ppo.kernels` has the same loss with its gradient compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.config import needs_autograd
from ludus.algorithms.on_policy.kernels import kernel_placement
from ludus.algorithms.on_policy.learner import ActorCriticModel
from ludus.algorithms.on_policy.learner import make_model as make_family_model
from ludus.algorithms.on_policy.model import Model
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.ppo.kernels import KernelPPO
from ludus.core.types import Weights


class PPOModel(ActorCriticModel):
    """An actor-critic network that learns by PPO's loss, with any action space, body or memory."""

    config: PPO

    def loss(self, batch: Batch, coefficients: Sequence[float]) -> tuple[Tensor, Sequence[Tensor]]:
        """Return PPO's loss, and its metrics as means over rows.

            L = -E[min(r A, clip(r, 1 - ε, 1 + ε) A)] - c₂ E[H(π)] + c₁ E[½ (V - G)²],   r = π(a|s) / π_old(a|s)

        (Schulman et al. 2017, equations 7 and 9, as a loss.)

        Args:
            batch: n rows, with advantages A and value targets G from before the update.
            coefficients: c₂ at this progress, `entropy`; c₁ is `value_coefficient`, ε is `clip`.
        """
        config, (entropy_coefficient,) = self.config, coefficients
        logits, value = self._forward(batch)
        logp = self.distribution.log_prob(logits, batch.action, batch.mask)
        advantage, target = batch.advantage, batch.target

        # Policy loss: the clipped surrogate (equation 7)
        log_ratio = logp - batch.logp
        ratio = log_ratio.exp()
        clipped_ratio = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
        policy_loss = batch.mean(-torch.minimum(ratio * advantage, clipped_ratio * advantage))

        # Entropy bonus
        entropy = batch.mean(self.distribution.entropy(logits, batch.mask))

        # Value loss, at most as good as that of a value that moved by `clip_value` (Engstrom et al. 2020)
        assert value is not None
        squared_error = 0.5 * (value - target).square()
        if config.clip_value is not None:
            clipped_value = batch.value + (value - batch.value).clamp(-config.clip_value, config.clip_value)
            squared_error = torch.maximum(squared_error, 0.5 * (clipped_value - target).square())
        value_loss = batch.mean(squared_error)

        loss = policy_loss - entropy_coefficient * entropy + config.value_coefficient * value_loss

        with torch.no_grad():
            kl = batch.mean(ratio - 1.0 - log_ratio)  # of KL(π_old ‖ π): estimator k3 (Schulman 2020)
            clip_fraction = batch.mean(((ratio - 1.0).abs() > config.clip).to(logp.dtype))
        return loss, (policy_loss, value_loss, entropy, kl, clip_fraction)


def make_model(config: PPO, context: LearnerContext, start: Weights | None = None) -> Model:
    """Make what is trained: by CPU kernels where these can, else by autograd.

    A class derived from `PPO` with a `surrogate` or `metrics` of its own has the family's loss, which calls them.
    """
    if _has_own_loss(config):
        return make_family_model(config, context, start)
    spec = config.policy(context.env, context.seats)
    reason = needs_autograd(spec)
    if not reason and (placement := kernel_placement(config, spec, context)).written:
        return KernelPPO(config, context, start, placement)
    return PPOModel(config, context, start, no_kernel_reason=f"autograd learns {reason}" if reason else "")


def _has_own_loss(config: PPO) -> bool:
    """Return whether a derived class changes the loss or the metrics."""
    own = type(config)
    return (own.surrogate, own.metrics, own.extra_metrics) != (PPO.surrogate, PPO.metrics, PPO.extra_metrics)
