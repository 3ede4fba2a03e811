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
from ludus.algorithms.images import prepare_learning
from ludus.algorithms.losses import approximate_kl, value_loss
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.family import PolicyGradient
from ludus.algorithms.on_policy.models import Floats
from ludus.algorithms.statistics import DiscountedReturns, Moments
from ludus.data.trajectories import Trajectories
from ludus.errors import LudusError, PolicyError
from ludus.policies.actor_critic import (
    ActorCritic,
    Normaliser,
    ReturnScale,
    arrays_of,
    load_arrays,
    make_network,
    shapes_of,
)
from ludus.policies.actor_critic_team import Team
from ludus.policies.checks import fitted
from ludus.policies.torch_module import raised
from ludus.types import State, Weights

_ROWS = 4096  # that are evaluated at a time


class FamilyModel:
    """An `ActorCritic` network, or a `Team` of them. Statistics are of all agents' rows, and every network of a team has them."""

    trusted = True

    def __init__(self, config: PolicyGradient, context: LearnerContext, start: Weights | None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        seed = seeding.key(context.seed, "on-policy", "weights") % 2**63
        make = Team if self.spec.kind == "actor_critic_team" else make_network
        self.module: ActorCritic | Team = make(self.spec, seed=seed, initial_std=config.initial_std)
        prepare_learning(self.module)
        if start is not None:
            load_arrays(self.module, fitted(self.spec, start, shapes_of(self.module)))
        self._networks = self.module.networks if isinstance(self.module, Team) else [self.module]
        first, self.sequence = self._networks[0], config.sequence
        self.shape, self.memory, self.state = first.shape, first.memory, first.state
        action = self.spec.config["action"]
        self.actions = first.head_of.outputs if "categorical" in action["kind"] else 0
        self._distribution = distribution_of(action)
        self.names = ("policy_loss", "value_loss", "entropy", "kl", *config.extra_terms)
        self._seen, self._states = _moments(first.normaliser), _moments(first.state_normaliser)
        self._returns = None if (scale := _moments(first.returns)) is None else DiscountedReturns(config.gamma)
        if self._returns is not None and scale is not None:
            self._returns.moments = scale

    # ------------------------------------------------------------------------------------------ the network

    def values(
        self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """0 without a value network."""
        if start is None and memory is None:
            if self._networks[0].value is None:
                return x.new_zeros(len(x)), None
            count = -(-len(x) // _ROWS) or 1
            states = [None] * count if state is None else torch.tensor_split(state, count)
            parts = zip(torch.tensor_split(x, count), states, strict=True)
            return torch.cat([self.module.value_of(part.float(), its) for part, its in parts]), None
        _, value, after = self.module.unroll(x.float(), memory, start, state)
        return x.new_zeros(len(x)) if value is None else value, after

    def log_prob(self, batch: Batch) -> Tensor:
        return self._distribution.log_prob(self._forward(batch)[0], batch.action, batch.mask)

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        out, value, _ = self.module.unroll(batch.x.float(), batch.memory, batch.start, batch.state)
        return out, value

    def loss(self, batch: Batch, progress: float) -> tuple[Tensor, Sequence[Tensor]]:
        config, (out, value) = self.config, self._forward(batch)
        logp = self._distribution.log_prob(out, batch.action, batch.mask)
        policy = self._surrogate(logp, batch).mean()
        entropy = self._distribution.entropy(out, batch.mask).mean()
        loss, worth = policy - config.entropy.at(progress) * entropy, policy.new_zeros(())
        if value is not None:
            worth = value_loss(value, batch.target, old_value=batch.value, clip=config.clip_value).mean()
            loss = loss + config.value_coefficient * worth
        with torch.no_grad():
            kl = approximate_kl(logp, batch.logp).mean()
            extra = [config.terms(logp, batch)[name].mean() for name in config.extra_terms]
        return loss, (policy, worth, entropy, kl, *extra)

    def _surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        name = f"{type(self.config).__module__}:{type(self.config).__qualname__}"
        try:
            out = self.config.surrogate(logp, batch)
        except LudusError:
            raise
        except Exception as error:
            raise PolicyError(f"{name}: surrogate() of {len(logp)} rows raised {raised(error)}.") from error
        if not isinstance(out, Tensor) or out.shape != logp.shape:  # one of another shape would be broadcast
            shown = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise PolicyError(f"{name}: surrogate() of {len(logp)} rows answers {shown}; expected a loss of each row.")
        return out

    # ------------------------------------------------------------------------------------------ statistics

    def scaled(self, rows: Trajectories, reward: Floats) -> Floats:
        """Divided by the standard deviation of discounted returns, these ones included, if that is wanted. Rewards that are not finite are
        left to fail in the loss."""
        if self._returns is None:
            return reward
        if np.isfinite(reward).all():
            self._returns.add(rows, reward)
            for network in self._networks:
                _publish(self._returns.moments, network.returns)
        return reward * self._returns.scale

    def learned(self, batch: Batch) -> None:
        """The rows were acted and learned from with the statistics of before them; what acts next has these too."""
        if self._seen is not None:
            self._seen.add(batch.x.numpy())
        if self._states is not None and batch.state is not None:
            self._states.add(batch.state.numpy())
        for network in self._networks:
            _publish(self._seen, network.normaliser)
            _publish(self._states, network.state_normaliser)

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return arrays_of(self.module)

    def state_dict(self) -> State:
        out: dict[str, State] = {"weights": self.weights()}
        if self._seen is not None:
            out["observations"] = self._seen.state_dict()
        if self._states is not None:
            out["states"] = self._states.state_dict()
        if self._returns is not None:
            out["returns"] = self._returns.state_dict()
        return out

    def load_state_dict(self, state: State) -> None:
        load_arrays(self.module, state["weights"])
        if self._seen is not None:
            self._seen.load_state_dict(state["observations"])
        if self._states is not None:
            self._states.load_state_dict(state["states"])
        if self._returns is not None:
            self._returns.load_state_dict(state["returns"])


def _moments(buffers: Normaliser | ReturnScale | None) -> Moments | None:
    """As the weights have them, which may be those of a warm start."""
    if buffers is None:
        return None
    moments = Moments(tuple(buffers.mean.shape))
    moments.start(count=float(buffers.count), mean=buffers.mean.numpy(), var=buffers.var.numpy())
    return moments


def _publish(moments: Moments | None, buffers: Normaliser | ReturnScale | None) -> None:
    if moments is not None and buffers is not None:
        buffers.mean.copy_(torch.from_numpy(np.asarray(moments.mean)))
        buffers.var.copy_(torch.from_numpy(np.asarray(moments.var)))
        buffers.count.fill_(moments.count)
