"""The losses of mirror descent and NeuRD (`ludus.algorithms.mmd.learner`) of compressed rows
(`ludus.algorithms.on_policy.kernels`), with their compiled gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.mmd.magnet import NAMES, LogitBounds, Magnet, initial_weights
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.kernels import (
    CompressedRows,
    KernelModel,
    KernelStep,
    clipped_surrogate,
    log_softmax,
)
from ludus.algorithms.on_policy.model import Floats
from ludus.backend.device import Placement
from ludus.backend.network import TrainedNetwork
from ludus.core.arrays import inner, kernel
from ludus.core.types import Array, Metrics, State, Weights
from ludus.policies.actor_critic import layouts
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.mmd.config import MMD

# --------------------------------------------------------------------------------------------------------------------
# Mirror descent.


@dataclass(frozen=True, slots=True)
class MMDLosses:
    """Means over rows: the surrogate (a loss), entropy in nats, KL(π ‖ magnet), KL(π ‖ before), share of rows outside
    the clip range (of NeuRD, of forces that were held back)."""

    surrogate: float
    entropy: float
    magnet: float
    moved: float
    clipped: float


@kernel
def log_policy(out: Array, mask: NDArray[np.bool_]) -> Floats:
    """Return log-probabilities float64[m, A] of network outputs float[m, >= A]; 0 where illegal."""
    logp, prob = np.zeros(mask.shape), np.zeros(mask.shape[1])
    for s in range(len(mask)):
        log_softmax(out[s], mask[s], logp[s], prob)
    return logp


@kernel
def log_uniform(mask: NDArray[np.bool_]) -> Floats:
    """Return log-probabilities float64[m, A] of the uniform policy; 0 where illegal."""
    return log_policy(np.zeros(mask.shape), mask)


def policy_losses(
    out: Array,
    mask: NDArray[np.bool_],
    compressed: CompressedRows,
    *,
    magnet: Floats,
    before: Floats,
    alpha: float,
    beta: float,
    clip: float | None,
    gradient: Array,
) -> MMDLosses:
    """Return losses of network outputs; the gradient of surrogate + `alpha` KL + `beta` KL is written to gradient[:,
    :A].

    Args:
        out: float[m, >= A].
        mask: bool[m, A].
        compressed: The rows.
        magnet: Log-probabilities float64[m, A].
        before: Log-probabilities float64[m, A] of the policy before the update.
        alpha: α.
        beta: β.
        clip: Range ε of the ratio; None: not clipped.
        gradient: float[m, >= A], written to.
    """
    bound = math.inf if clip is None else clip
    arguments = (*compressed.columns, float(compressed.rows), magnet, before, alpha, beta, bound, gradient)
    return MMDLosses(*_losses(out, mask, *arguments))


@kernel
def _losses(  # type: ignore[no-untyped-def]
    out, mask, state, action, old, up, down, weight, count, rows, magnet, before, alpha, beta, clip, gradient
):
    logp, prob = np.zeros(mask.shape), np.zeros(mask.shape)
    entropy, attracted, moved = _divergences(out, mask, count, rows, magnet, before, alpha, beta, gradient, logp, prob)
    surrogate, _, clipped = clipped_surrogate(logp, prob, state, action, old, up, down, weight, rows, clip, gradient)
    return surrogate, entropy, attracted, moved, clipped


@inner
def _divergences(out, mask, count, rows, magnet, before, alpha, beta, gradient, logp, prob):  # type: ignore[no-untyped-def]
    """Return (entropy, KL to the magnet, KL to the policy before) as means over rows; write log-probabilities,
    probabilities, and the gradient of alpha times the second plus beta times the third."""
    actions = mask.shape[1]
    entropy, attracted, moved = 0.0, 0.0, 0.0
    for s in range(len(mask)):
        entropy += count[s] / rows * log_softmax(out[s], mask[s], logp[s], prob[s])
        share, to_magnet, to_before = count[s] / rows, 0.0, 0.0
        for a in range(actions):
            to_magnet += prob[s, a] * (logp[s, a] - magnet[s, a])
            to_before += prob[s, a] * (logp[s, a] - before[s, a])
        attracted += share * to_magnet
        moved += share * to_before
        for a in range(actions):  # d KL(p ‖ q) / d logit = p (log p - log q - KL)
            pull = alpha * (logp[s, a] - magnet[s, a] - to_magnet) + beta * (logp[s, a] - before[s, a] - to_before)
            gradient[s, a] = share * prob[s, a] * pull
    return entropy, attracted, moved


# --------------------------------------------------------------------------------------------------------------------
# NeuRD.


def neurd_losses(
    out: Array,
    mask: NDArray[np.bool_],
    compressed: CompressedRows,
    rows: tuple[Array, Array, Array, Array],
    *,
    magnet: Floats,
    before: Floats,
    alpha: float,
    beta: float,
    cost: float,
    bounds: LogitBounds,
    gradient: Array,
) -> MMDLosses:
    """Return the losses of `policy_losses` with NeuRD's term. rows: state int32[n], action int32[n], logp and advantage
    float[n] of each: forces are clipped row by row."""
    arguments = (compressed.count, float(compressed.rows), magnet, before, alpha, beta, gradient)
    return MMDLosses(*_neurd(out, mask, *rows, *arguments, cost, bounds.threshold, bounds.clip))


@kernel
def _neurd(  # type: ignore[no-untyped-def]
    out, mask, state, action, old, advantage, count, rows, magnet, before, alpha, beta, gradient, cost, threshold, clip
):
    logp, prob, y, legal = np.zeros(mask.shape), np.zeros(mask.shape), np.zeros(mask.shape), np.zeros(len(mask))
    entropy, attracted, moved = _divergences(out, mask, count, rows, magnet, before, alpha, beta, gradient, logp, prob)
    _centre(out, mask, y, legal)
    force, q, held = np.zeros(mask.shape), np.zeros(mask.shape[1]), 0.0
    for k in range(len(state)):
        s, action_index, mu = state[k], action[k], float(old[k])
        for a in range(len(q)):
            q[a] = cost * (magnet[s, a] - logp[s, a])
        q[action_index] += (float(advantage[k]) + cost * (mu - magnet[s, action_index])) / math.exp(mu)
        held += _push(q, prob[s], mask[s], y[s], threshold, clip, force[s]) / legal[s]
    loss = 0.0
    for s in range(len(mask)):
        mean = 0.0
        for a in range(len(q)):
            loss -= y[s, a] * force[s, a]
            mean += force[s, a] / legal[s]
        for a in range(len(q)):
            if mask[s, a]:
                gradient[s, a] -= (force[s, a] - mean) / rows
    return loss / rows, entropy, attracted, moved, held / rows


@inner
def _centre(out, mask, y, legal):  # type: ignore[no-untyped-def]
    """Write logits minus their state's mean over legal actions to y, and the number of these to legal."""
    for s in range(len(mask)):
        total = 0.0
        for a in range(mask.shape[1]):
            if mask[s, a]:
                legal[s] += 1.0
                total += float(out[s, a])
        for a in range(mask.shape[1]):
            if mask[s, a]:
                y[s, a] = float(out[s, a]) - total / legal[s]


@inner
def _push(q, prob, mask, y, threshold, clip, force):  # type: ignore[no-untyped-def]
    """Add one row's forces to its state's. Return the number of them that were held back."""
    mean, held = 0.0, 0
    for a in range(len(q)):
        mean += prob[a] * q[a]
    for a in range(len(q)):
        if mask[a]:
            advantage = q[a] - mean
            out_of_room = y[a] >= threshold if advantage > 0.0 else y[a] <= -threshold
            if not out_of_room:
                force[a] += min(max(advantage, -clip), clip)
            held += out_of_room or abs(advantage) > clip
    return held


# --------------------------------------------------------------------------------------------------------------------
# What is trained so.


class KernelMMD(KernelModel):
    """A perceptron that learns by mirror descent, by CPU kernels."""

    names = NAMES
    config: MMD

    def __init__(self, config: MMD, context: LearnerContext, start: Weights | None, placement: Placement) -> None:
        self.config, spec = config, config.plain_policy(context.env, context.seats)
        super().__init__(config, spec, context, initial_weights(config, context, start), placement)
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
        return log_uniform(mask) if uniform else log_policy(self.magnet_network.evaluate("policy", x.numpy()), mask)

    def held(self, batch: Batch) -> tuple[Floats, ...]:
        """Return the log-probabilities of the policy before the update, and of the magnet."""
        assert batch.mask is not None
        mask = batch.mask.numpy()
        return log_policy(self.parameters.evaluate("policy", batch.x.numpy()), mask), self._magnet_of(batch.x, mask)

    def policy_losses(self, step: KernelStep, progress: float) -> tuple[float, tuple[float, ...]]:
        out, gradient = step.passes.outputs["policy"], step.passes.gradients["policy"]
        before, magnet = step.held
        alpha, beta, cost = self.magnet.loss_coefficients(progress)
        held: dict[str, Any] = {"magnet": magnet, "before": before, "alpha": alpha, "beta": beta, "gradient": gradient}
        if self.config.policy_loss == "neurd":
            each, bounds = (step.state, step.action, step.logp, step.advantage), self.magnet.bounds
            losses = neurd_losses(out, step.mask, step.compressed, each, **held, cost=cost, bounds=bounds)
        else:
            losses = policy_losses(out, step.mask, step.compressed, **held, clip=self.config.clip)
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
