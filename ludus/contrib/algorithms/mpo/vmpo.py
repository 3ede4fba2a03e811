"""V-MPO's loss: of an on-policy batch, the likelihood of the better actions within a trust region around the policy
that took them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import BoxDistribution, value_loss
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.config import PolicyGradient
from ludus.algorithms.on_policy.learner import ActorCriticModel
from ludus.backend.mlp import Layout
from ludus.contrib.algorithms.mpo.losses import FLOOR, Multipliers, improved, moved, multiplier_loss, penalty
from ludus.core.types import State, Weights
from ludus.policies.actor_critic import arrays_of, load_arrays

if TYPE_CHECKING:
    from ludus.contrib.algorithms.mpo.config import VMPO

_ETA = "temperature"


def better(advantage: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Return, of advantages [n], the largest share × n (at least one) as [k], and advantages [n] with -inf for all
    others. (Song et al. 2020, section 4.1.)"""
    count = min(len(advantage), max(1, int(share * len(advantage))))
    best, which = advantage.topk(count)
    return best, torch.full_like(advantage, -torch.inf).index_copy(0, which, best)


class VMPOModel(ActorCriticModel):
    """The actor-critic network, with multipliers that learn by the same steps.

    The E-step is of the whole batch, whatever part of it a step learns from: a row's weight is ψ × rows, so that a
    part's mean estimates the sum in the paper, and ranks and minibatches agree on the better half.
    """

    config: VMPO

    cuda_graph_safe = False  # a step knows of the batch that it is a part of

    def __init__(self, config: VMPO, context: LearnerContext, start: Weights | None) -> None:
        super().__init__(config, context, start, no_kernel_reason="autograd learns V-MPO")
        self._best, self._rows = torch.zeros(0), 0  # the E-step's advantages, and of how many rows they are the best

    def _trained(self) -> tuple[nn.Module, Sequence[Layout]]:
        """Return the same as `ActorCriticModel`."""
        config = self.config
        self._bounds = {"policy": config.epsilon_policy}
        if not self.actions:
            self._bounds = {"mean": config.epsilon_mean, "std": config.epsilon_std}
        start = {name: (float(getattr(config, f"alpha_{name}")), 1) for name in self._bounds}
        self.multipliers = Multipliers({_ETA: (config.temperature, 1), **start})
        return nn.ModuleDict({"network": self.module, "multipliers": self.multipliers}), ()

    def _metric_names(self, config: PolicyGradient) -> tuple[str, ...]:
        """Return the same as `ActorCriticModel`."""
        kls, alphas = ([f"{what}_{name}" for name in self._bounds] for what in ("kl", "alpha"))
        return "policy_loss", "value_loss", "entropy", "kl_improved", _ETA, *kls, *alphas

    @contextmanager
    def learning(self, batch: Batch, seed: int) -> Iterator[Batch]:
        with torch.no_grad():
            old = self._forward(batch)[0]
            self._best, chosen = better(batch.advantage, self.config.top)
        self._rows = len(batch)
        with super().learning(replace(batch, advantage=chosen, held=old[:, None]), seed) as rows:
            yield rows

    def loss(self, batch: Batch, coefficients: Sequence[float]) -> tuple[Tensor, Sequence[Tensor]]:
        """Return -Σ ψ log π + Σ_i [α_i] KL_i + the multipliers' own losses, with the entropy bonus and the value loss;
        ψ ∝ exp(A / η) over the better half. (Song et al. 2020, section 4.)"""
        config, (out, value), multipliers = self.config, self._forward(batch), self.multipliers()
        assert batch.held is not None
        assert value is not None
        eta = multipliers[_ETA]
        prior = torch.full_like(self._best, -math.log(max(1, len(self._best))))
        with torch.no_grad():
            scaled = torch.logsumexp(self._best / eta, dim=0)
            weight = self._rows * (batch.advantage / eta - scaled).exp()
            away = moved(improved(self._best, prior, eta), prior)
        policy = -batch.mean(weight * self.distribution.log_prob(out, batch.action, batch.mask))
        entropy = batch.mean(self.distribution.entropy(out, batch.mask))
        value_term = batch.mean(value_loss(value, batch.target, old_value=batch.value, clip=config.clip_value))
        loss = policy - coefficients[0] * entropy + config.value_coefficient * value_term
        loss = loss + multiplier_loss(eta, away[None], config.epsilon)
        kls = dict(zip(self._bounds, self._divergences(batch.held[:, 0], out, batch.mask), strict=True))
        means = {name: batch.mean(kl) for name, kl in kls.items()}
        for name, kl in means.items():
            loss = (
                loss
                + penalty(multipliers[name], kl[None])
                + multiplier_loss(multipliers[name], kl[None], self._bounds[name])
            )
        alphas = [multipliers[name][0] for name in self._bounds]
        return loss, (policy, value_term, entropy, away, eta[0], *means.values(), *alphas)

    def _divergences(self, old: Tensor, new: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        if isinstance(self.distribution, BoxDistribution):
            return self.distribution.divergences(old, new)
        return (self.distribution.divergence(old, new, mask),)

    def after_update(self, batch: Batch, progress: float) -> None:
        super().after_update(batch, progress)
        with torch.no_grad():
            for raw in self.multipliers.parameters():
                raw.clamp_(min=FLOOR)

    def state_dict(self) -> State:
        return {**super().state_dict(), "multipliers": arrays_of(self.multipliers)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        load_arrays(self.multipliers, state["multipliers"])
