"""The family's networks as the learner trains them: loss, and statistics that travel with the weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus import seeding
from ludus.algorithms.base import LearnerContext
from ludus.algorithms.distributions import distribution_of
from ludus.algorithms.losses import approximate_kl, value_loss
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.family import PolicyGradient
from ludus.algorithms.on_policy.models import Floats
from ludus.algorithms.statistics import DiscountedReturns, Moments
from ludus.data.trajectories import Trajectories
from ludus.policies.actor_critic import Packing, arrays_of, load_arrays, make_network, shapes_of
from ludus.policies.checks import fitted
from ludus.types import State, Weights

_ROWS = 4096  # that are evaluated at a time


class FamilyModel:
    """An `ActorCritic` network."""

    trusted = True

    def __init__(self, config: PolicyGradient, context: LearnerContext, start: Weights | None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        seed = seeding.key(context.seed, "on-policy", "weights") % 2**63
        self.module = make_network(self.spec, seed=seed, initial_std=config.initial_std)
        if start is not None:
            load_arrays(self.module, fitted(self.spec, start, shapes_of(self.module)))
        self.shape, self.memory, self.sequence = self.module.shape, self.module.memory, config.sequence
        action = self.spec.config["action"]
        self.actions = self.module.head_of.outputs if "categorical" in action["kind"] else 0
        self._distribution = distribution_of(action)
        self.names = ("policy_loss", "value_loss", "entropy", "kl", *config.extra_terms)
        self._seen, self._returns = self._statistics()

    def _statistics(self) -> tuple[Moments | None, DiscountedReturns | None]:
        """As the weights have them, which may be those of a warm start."""
        seen, returns = None, None
        if (normaliser := self.module.normaliser) is not None:
            seen = Moments(self.shape)
            seen.start(count=float(normaliser.count), mean=normaliser.mean.numpy(), var=normaliser.var.numpy())
        if (scale := self.module.returns) is not None:
            returns = DiscountedReturns(self.config.gamma)
            returns.moments.start(count=float(scale.count), mean=scale.mean.numpy(), var=scale.var.numpy())
        return seen, returns

    # ------------------------------------------------------------------------------------------ the network

    def values(self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None) -> tuple[Tensor, Tensor | None]:
        """0 without a value network."""
        packing = None if start is None else Packing.of(start)
        if packing is None and memory is None:
            if self.module.value is None:
                return x.new_zeros(len(x)), None
            return torch.cat(
                [self.module.value_of(part.float()) for part in torch.tensor_split(x, -(-len(x) // _ROWS) or 1)]
            ), None
        _, value, after = self.module(x.float(), memory, packing)
        return x.new_zeros(len(x)) if value is None else value, after

    def log_prob(self, batch: Batch) -> Tensor:
        return self._distribution.log_prob(self._forward(batch)[0], batch.action, batch.mask)

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        packing = None if batch.start is None else Packing.of(batch.start)
        out, value, _ = self.module(batch.x.float(), batch.memory, packing)
        return out, value

    def loss(self, batch: Batch, progress: float) -> tuple[Tensor, Sequence[Tensor]]:
        config, (out, value) = self.config, self._forward(batch)
        logp = self._distribution.log_prob(out, batch.action, batch.mask)
        policy = config.surrogate(logp, batch).mean()
        entropy = self._distribution.entropy(out, batch.mask).mean()
        loss, worth = policy - config.entropy.at(progress) * entropy, policy.new_zeros(())
        if value is not None:
            worth = value_loss(value, batch.target, old_value=batch.value, clip=config.clip_value).mean()
            loss = loss + config.value_coefficient * worth
        with torch.no_grad():
            kl = approximate_kl(logp, batch.logp).mean()
            extra = [config.terms(logp, batch)[name].mean() for name in config.extra_terms]
        return loss, (policy, worth, entropy, kl, *extra)

    # ------------------------------------------------------------------------------------------ statistics

    def scaled(self, rows: Trajectories, reward: Floats) -> Floats:
        """Divided by the standard deviation of discounted returns, these ones included, if that is wanted. Rewards that are not finite are
        left to fail in the loss."""
        if self._returns is None or self.module.returns is None:
            return reward
        if np.isfinite(reward).all():
            self._returns.add(rows, reward)
            moments, buffers = self._returns.moments, self.module.returns
            buffers.mean.fill_(float(moments.mean))
            buffers.var.fill_(float(moments.var))
            buffers.count.fill_(moments.count)
        return reward * self._returns.scale

    def learned(self, x: Tensor) -> None:
        """The rows were acted and learned from with the statistics of before them; what acts next has these too."""
        if self._seen is None or self.module.normaliser is None:
            return
        self._seen.add(x.numpy())
        normaliser = self.module.normaliser
        normaliser.mean.copy_(torch.from_numpy(self._seen.mean))
        normaliser.var.copy_(torch.from_numpy(self._seen.var))
        normaliser.count.fill_(self._seen.count)

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return arrays_of(self.module)

    def state_dict(self) -> State:
        out: dict[str, State] = {"weights": self.weights()}
        if self._seen is not None:
            out["observations"] = self._seen.state_dict()
        if self._returns is not None:
            out["returns"] = self._returns.state_dict()
        return out

    def load_state_dict(self, state: State) -> None:
        load_arrays(self.module, state["weights"])
        if self._seen is not None:
            self._seen.load_state_dict(state["observations"])
        if self._returns is not None:
            self._returns.load_state_dict(state["returns"])
