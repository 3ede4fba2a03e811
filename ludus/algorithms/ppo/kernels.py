"""PPO's loss of compressed rows (`ludus.algorithms.on_policy.kernels`), and its compiled gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.kernels import (
    CompressedRows,
    KernelModel,
    KernelStep,
    clipped_surrogate,
    log_softmax,
)
from ludus.algorithms.on_policy.model import METRICS, fresh_seed
from ludus.algorithms.ppo.config import PPO
from ludus.backend.device import Placement
from ludus.core.arrays import kernel
from ludus.core.types import Array, Metrics, Weights
from ludus.policies.actor_critic import first_weights


@dataclass(frozen=True, slots=True)
class PPOLosses:
    """Means over rows (or a rank's share of them): the clipped surrogate (a loss), entropy in nats, KL estimate (old ‖
    new), share of rows outside the clip range."""

    surrogate: float
    entropy: float
    kl: float
    clipped: float


def policy_losses(
    out: Array, mask: NDArray[np.bool_], compressed: CompressedRows, *, clip: float, entropy: float, gradient: Array
) -> PPOLosses:
    """Return the losses of network outputs float[m, >= A]. The gradient of surrogate - `entropy` × entropy is written
    to gradient[:, :A]."""
    arguments = (*compressed.columns, float(compressed.rows), clip, entropy, gradient)
    return PPOLosses(*_policy(out, mask, *arguments))


@kernel
def _policy(out, mask, state, action, old, up, down, weight, count, rows, clip, bonus, gradient):  # type: ignore[no-untyped-def]
    logp, prob, actions = np.zeros(mask.shape), np.zeros(mask.shape), mask.shape[1]
    entropy = 0.0
    for s in range(len(mask)):
        h = log_softmax(out[s], mask[s], logp[s], prob[s])
        share = count[s] / rows
        entropy += share * h
        for a in range(actions):  # d entropy / d logit = -p (log p + entropy)
            gradient[s, a] = bonus * share * prob[s, a] * (logp[s, a] + h) if prob[s, a] > 0.0 else 0.0
    surrogate, kl, clipped = clipped_surrogate(logp, prob, state, action, old, up, down, weight, rows, clip, gradient)
    return surrogate, entropy, kl, clipped


class KernelPPO(KernelModel):
    """A perceptron that learns by PPO."""

    names = (*METRICS, *PPO.extra_metrics)
    config: PPO

    def __init__(self, config: PPO, context: LearnerContext, start: Weights | None, placement: Placement) -> None:
        self.config = config
        spec = config.policy(context.env, context.seats)
        super().__init__(config, spec, context, first_weights(spec, start, seed=fresh_seed(context)), placement)

    def policy_losses(self, step: KernelStep, progress: float) -> tuple[float, tuple[float, ...]]:
        bonus, passes = self.config.entropy.at(progress), step.passes
        losses = policy_losses(
            passes.outputs["policy"],
            step.mask,
            step.compressed,
            clip=self.config.clip,
            entropy=bonus,
            gradient=passes.gradients["policy"],
        )
        return losses.surrogate - bonus * losses.entropy, (losses.surrogate, losses.entropy, losses.kl, losses.clipped)

    def coefficients(self, progress: float) -> Metrics:
        return {"entropy_coefficient": self.config.entropy.at(progress)}
