"""MPO's learners, for actions in a box and for discrete ones."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import Normal, divergence, masked_log_softmax
from ludus.algorithms.common.replay_learner import NetworkEnsemble
from ludus.algorithms.off_policy.learner import BoxLearner, DiscreteLearner, OffPolicyLearner
from ludus.backend.device import to_device
from ludus.contrib.algorithms.mpo.losses import (
    FLOOR,
    Multipliers,
    cross_entropy,
    fit_loss,
    improved,
    moved,
    multiplier_loss,
    penalty,
)
from ludus.core.types import PolicySpec, State, Weights
from ludus.policies.heads import Squashed, head_of

if TYPE_CHECKING:
    from ludus.contrib.algorithms.mpo.config import MPO

_ETA = "temperature"


class _Bounded(OffPolicyLearner):
    """Base of both: an update, in this order, and the multipliers of its bounds.

    1. E-step: target policy and target critics determine the values of actions, and how likely they should be. 2. The
    critics take a step, towards the expectation of target policy and target critics. 3. The multipliers take one, and
    the actor another, from where both were.
    """

    config: MPO
    name = "mpo"
    autograd_only = True
    bounds: Mapping[str, float]  # of each divergence of the actor, in nats; by name, in the order of `divergences`

    def bounded(self, bounds: Mapping[str, tuple[float, float, int]]) -> None:
        """Make the multipliers, once the learner has a device. bounds: in nats, with the multiplier's initial value,
        and their number."""
        self.bounds = {name: bound for name, (bound, _, _) in bounds.items()}
        start = {_ETA: (self.config.temperature, 1)} | {name: (at, count) for name, (_, at, count) in bounds.items()}
        self.multipliers = NetworkEnsemble(Multipliers(start), ranks=self.ranks, placement=self.placement, layouts=())

    @abstractmethod
    def expected(self, batch: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """Run the E-step of a batch: return at least "moved" [n, 1], nats of its policy from the target's, and "spread"
        [n]."""

    @abstractmethod
    def divergences(self, batch: Mapping[str, Tensor], out: Tensor) -> tuple[Tensor, ...]:
        """Return the KL divergences [n, D] of the actor's outputs from the target's."""

    def autograd(self, columns: Mapping[str, Tensor], rows: int) -> Mapping[str, Tensor]:
        with torch.no_grad():
            values = self.multipliers.online.module()
            batch = {**columns, **{f"multiplier {name}": value for name, value in values.items()}}
            batch |= self.expected(batch, rows)
            kl_by_bound = self.divergences(batch, self.answers(self.see(batch)))
        fitted = self.fit_modules(batch, rows)
        away, spread = self._move_multipliers(batch, kl_by_bound, rows)
        means = self.improve(batch, rows)
        self._follow()
        alphas = {f"alpha_{name}": values[name].mean() for name in self.bounds}
        kls = {f"kl_{name}": kl for name, kl in zip(self.bounds, means, strict=True)}
        return {**fitted, **kls, "kl_improved": away, self.spread: spread, _ETA: values[_ETA][0], **alphas}

    def see(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return observations as network inputs."""
        return self.network_inputs(batch["observation"])

    def _move_multipliers(
        self, batch: Mapping[str, Tensor], kls: tuple[Tensor, ...], rows: int
    ) -> tuple[Tensor, Tensor]:
        """Take one step of the multipliers on their duals. Return (nats by which the E-step moved, spread), means over
        the rows of all ranks."""
        values, count = self.multipliers.online.module(), max(1, rows)
        bounded = [(_ETA, self.config.epsilon, batch["moved"])]
        bounded += [(name, bound, kl) for (name, bound), kl in zip(self.bounds.items(), kls, strict=True)]
        loss = torch.stack([multiplier_loss(values[name], kl, bound).sum() for name, bound, kl in bounded]).sum()
        stats = [batch[name].sum() / count for name in ("moved", "spread")]
        rate = self.rate(self.config.dual_learning_rate)
        sums, _ = self.multipliers.descend(loss / count, stats, rate=rate, max_norm=0.0, guard=self.guard)
        self.multipliers.online.values.clamp_(min=FLOOR)
        return sums[1], sums[2]

    def _follow(self) -> None:
        """Move the target networks after an update."""
        period = self.config.target_period
        if period == 0 or (self.updates + 1) % period == 0:
            for networks in (self.critics, self.actor):
                networks.update_target(1.0 if period else self.config.polyak)

    def held(self, batch: Mapping[str, Tensor], kls: tuple[Tensor, ...], rows: int) -> tuple[Tensor, ...]:
        """Return (the divergences' penalty, the mean of each), as this rank's part."""
        cost = sum(penalty(batch[f"multiplier {name}"], kl) for name, kl in zip(self.bounds, kls, strict=True))
        assert isinstance(cost, Tensor)
        return cost.sum() / rows, *(kl.detach().sum() / rows for kl in kls)

    spread = ""  # what "spread" is called in metrics

    def state_dict(self) -> State:
        return {**super().state_dict(), "multipliers": self.multipliers.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.multipliers.load_state_dict(state["multipliers"])


class MPOLearner(_Bounded, BoxLearner):
    """A squashed Gaussian. What is sampled, weighted and fitted is the argument of tanh: that is one-to-one, so that
    divergences and weights are those of actions, and log-densities differ by a term without parameters."""

    spread = "std"

    def __init__(self, config: MPO, context: LearnerContext, spec: PolicySpec, start: Weights | None = None) -> None:
        super().__init__(config, context, spec, start, critics=1 + config.twin)
        head = head_of(spec.config["action"])
        assert isinstance(head, Squashed)
        self._limits = head.log_std
        count = self.box.size if config.per_dimension else 1
        self.bounded(
            {
                "mean": (config.epsilon_mean, config.alpha_mean, count),
                "std": (config.epsilon_std, config.alpha_std, count),
            }
        )

    def _normal(self, out: Tensor) -> Normal:
        size = self.box.size
        return Normal(out[:, :size], out[:, size:].clamp(*self._limits))

    def _old(self, batch: Mapping[str, Tensor]) -> Normal:
        return Normal(batch["old mean"], batch["old log_std"])

    def expected(self, batch: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """Run the E-step: also return the samples, their weights, and the next value."""
        config = self.config
        deviates = self.normals(config.samples + config.target_samples, rows, self.box.size)
        normal = to_device(deviates, self.device).transpose(0, 1)
        old, after = (self._normal(self.answers(batch[name], target=True)) for name in ("observation", "next"))
        here, there = torch.split_with_sizes(normal, [config.samples, config.target_samples], dim=1)
        samples = old.mean[:, None] + old.log_std.exp()[:, None] * here
        q = self.values_of(batch["observation"], samples.tanh(), target=True).amin(dim=0)
        prior = torch.full_like(q, -math.log(config.samples))
        better = improved(q, prior, batch[f"multiplier {_ETA}"])
        following = (after.mean[:, None] + after.log_std.exp()[:, None] * there).tanh()
        return {
            "moved": moved(better, prior)[:, None],
            "spread": old.log_std.exp().mean(dim=1),
            "drawn": samples,
            "improved": better.exp(),
            "old mean": old.mean,
            "old log_std": old.log_std,
            "next value": self.values_of(batch["next"], following, target=True).amin(dim=0).mean(dim=1),
        }

    def divergences(self, batch: Mapping[str, Tensor], out: Tensor) -> tuple[Tensor, ...]:
        """Return the divergences by means, and by standard deviations, of each entry or summed."""
        old, new = self._old(batch), self._normal(out)
        kls = old.of_mean(new), old.of_std(new)
        return kls if self.config.per_dimension else tuple(kl.sum(dim=1, keepdim=True) for kl in kls)

    def values_and_targets(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        target = batch["reward"] + batch["discount"] * batch["next value"]
        return self.values_of(batch["observation"], batch["action"]), target

    def actor_loss(self, batch: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """Return the actor's loss, and both divergences, summed over an action's entries."""
        out = self.answers(batch["observation"])
        cost, *kls = self.held(batch, self.divergences(batch, out), rows)
        fit = fit_loss(batch["drawn"], batch["improved"], self._old(batch), self._normal(out))
        return fit.sum() / rows + cost, *kls

    def weights(self) -> Weights:
        warm_up = torch.tensor([self.warm_up], dtype=torch.float32)
        return {**self.actor.weights(), "warm_up": warm_up.numpy()}


class DiscreteMPOLearner(_Bounded, DiscreteLearner):
    """A softmax over legal actions, all of which critics evaluate: nothing is sampled."""

    spread = "entropy"

    def __init__(self, config: MPO, context: LearnerContext, spec: PolicySpec, start: Weights | None = None) -> None:
        super().__init__(config, context, spec, start, critics=1 + config.twin)
        self.bounded({"policy": (config.epsilon_policy, config.alpha_policy, 1)})

    def see(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.inputs_and_masks(batch["observation"], batch.get("mask"))[0]

    def _mask(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.inputs_and_masks(batch["observation"], batch.get("mask"))[1]

    def expected(self, batch: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """Run the E-step: also return the target's log-probabilities, and the weights."""
        x, legal = self.inputs_and_masks(batch["observation"], batch.get("mask"))
        old = masked_log_softmax(self.answers(x, target=True), legal)
        q = self.critics(x, target=True).amin(dim=0)
        better = improved(q, old, batch[f"multiplier {_ETA}"])
        after, there = self.inputs_and_masks(batch["next"], batch.get("next_mask"))
        following = masked_log_softmax(self.answers(after, target=True), there | ~there.any(dim=1, keepdim=True))
        worth = self.critics(after, target=True).amin(dim=0)
        return {
            "moved": moved(better, old)[:, None],
            "spread": cross_entropy(old.exp(), old),
            "improved": better.exp(),
            "old": old,
            "next value": (following.exp() * worth).sum(dim=1),
        }

    def divergences(self, batch: Mapping[str, Tensor], out: Tensor) -> tuple[Tensor, ...]:
        """Return the divergence of all actions."""
        return (divergence(batch["old"], masked_log_softmax(out, self._mask(batch)))[:, None],)

    def values_and_targets(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        return self.gather_values(batch, self.critics(self.see(batch))), self.targets(batch, batch["next value"])

    def actor_loss(self, batch: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """Return the actor's loss, and the divergence."""
        out = self.answers(self.see(batch))
        cost, kl = self.held(batch, self.divergences(batch, out), rows)
        fit = cross_entropy(batch["improved"], masked_log_softmax(out, self._mask(batch)))
        return fit.sum() / rows + cost, kl


def make_learner(config: MPO, context: LearnerContext, start: Weights | None = None) -> MPOLearner | DiscreteMPOLearner:
    """Make the learner of discrete actions, or of those in a box."""
    spec = config.policy(context.env, context.seats)
    cls = DiscreteMPOLearner if spec.config["action"]["kind"] == "categorical" else MPOLearner
    return cls(config, context, spec, start)
