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
from ludus.algorithms.common.replay_learner import Ensemble
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
    """What both share: an update, whose order is that of the class, and the multipliers of its bounds.

    1. E-step: target policy and target critics say what actions are worth, and how likely they should be.
    2. The critics take a step, towards what target policy and target critics expect.
    3. The multipliers take one, and the actor another, from where both were.
    """

    config: MPO
    name = "mpo"
    plain = True
    bounds: Mapping[str, float]  # of each divergence of the actor, in nats; by name, in the order of `divergences`

    def bounded(self, bounds: Mapping[str, tuple[float, float, int]]) -> None:
        """Makes the multipliers, once the learner has a place. bounds: in nats, with the multiplier's start, and how many there are."""
        self.bounds = {name: bound for name, (bound, _, _) in bounds.items()}
        start = {_ETA: (self.config.temperature, 1)} | {name: (at, count) for name, (_, at, count) in bounds.items()}
        self.multipliers = Ensemble(Multipliers(start), ranks=self.ranks, placement=self.placement, layouts=())

    @abstractmethod
    def expected(self, given: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """The E-step, of a batch: at least "moved" [n, 1], nats of its policy from the target's, and "spread" [n]."""

    @abstractmethod
    def divergences(self, given: Mapping[str, Tensor], out: Tensor) -> tuple[Tensor, ...]:
        """KL divergences [n, D] of the actor's outputs from the target's."""

    def autograd(self, columns: Mapping[str, Tensor], rows: int) -> Mapping[str, Tensor]:
        """See `OffPolicyLearner.autograd`."""
        with torch.no_grad():
            values = self.multipliers.online.module()
            given = {**columns, **{f"multiplier {name}": value for name, value in values.items()}}
            given |= self.expected(given, rows)
            found = self.divergences(given, self.answers(self.see(given)))
        fitted = self.fit_modules(given, rows)
        away, spread = self._move_multipliers(given, found, rows)
        told = self.improve(given, rows)
        self._follow()
        alphas = {f"alpha_{name}": values[name].mean() for name in self.bounds}
        kls = {f"kl_{name}": kl for name, kl in zip(self.bounds, told, strict=True)}
        return {**fitted, **kls, "kl_improved": away, self.spread: spread, _ETA: values[_ETA][0], **alphas}

    def see(self, given: Mapping[str, Tensor]) -> Tensor:
        """Observations as networks see them."""
        return self.shown(given["observation"])

    def _move_multipliers(
        self, given: Mapping[str, Tensor], found: tuple[Tensor, ...], rows: int
    ) -> tuple[Tensor, Tensor]:
        """One step of them down their duals; (nats by which the E-step moved, spread), means over the rows of all ranks."""
        values, count = self.multipliers.online.module(), max(1, rows)
        bounded = [(_ETA, self.config.epsilon, given["moved"])]
        bounded += [(name, bound, kl) for (name, bound), kl in zip(self.bounds.items(), found, strict=True)]
        loss = torch.stack([multiplier_loss(values[name], kl, bound).sum() for name, bound, kl in bounded]).sum()
        told = [given[name].sum() / count for name in ("moved", "spread")]
        rate = self.rate(self.config.dual_learning_rate)
        sums, _ = self.multipliers.descend(loss / count, told, rate=rate, max_norm=0.0, guard=self.guard)
        self.multipliers.online.values.clamp_(min=FLOOR)
        return sums[1], sums[2]

    def _follow(self) -> None:
        """Of the targets, after an update."""
        period = self.config.target_period
        if period == 0 or (self.updates + 1) % period == 0:
            for networks in (self.critics, self.actor):
                networks.follow(1.0 if period else self.config.polyak)

    def held(self, given: Mapping[str, Tensor], found: tuple[Tensor, ...], rows: int) -> tuple[Tensor, ...]:
        """(what the divergences cost, the mean of each), as this rank's part."""
        cost = sum(penalty(given[f"multiplier {name}"], kl) for name, kl in zip(self.bounds, found, strict=True))
        assert isinstance(cost, Tensor)
        return cost.sum() / rows, *(kl.detach().sum() / rows for kl in found)

    spread = ""  # what "spread" is called in metrics

    def state_dict(self) -> State:
        return {**super().state_dict(), "multipliers": self.multipliers.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.multipliers.load_state_dict(state["multipliers"])


class MPOLearner(_Bounded, BoxLearner):
    """A squashed Gaussian. What is drawn, weighted and fitted is what tanh makes actions from: that is one-to-one, so that divergences and
    weights are those of actions, and log-densities differ by what no parameter moves."""

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

    def _old(self, given: Mapping[str, Tensor]) -> Normal:
        return Normal(given["old mean"], given["old log_std"])

    def expected(self, given: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """See `_Bounded.expected`; with what was drawn, its weights, and the value of what comes next."""
        config = self.config
        deviates = self.normals(config.samples + config.target_samples, rows, self.box.size)
        normal = to_device(deviates, self.device).transpose(0, 1)
        old, after = (self._normal(self.answers(given[name], target=True)) for name in ("observation", "next"))
        here, there = torch.split_with_sizes(normal, [config.samples, config.target_samples], dim=1)
        drawn = old.mean[:, None] + old.log_std.exp()[:, None] * here
        q = self.values_of(given["observation"], drawn.tanh(), target=True).amin(dim=0)
        prior = torch.full_like(q, -math.log(config.samples))
        better = improved(q, prior, given[f"multiplier {_ETA}"])
        following = (after.mean[:, None] + after.log_std.exp()[:, None] * there).tanh()
        return {
            "moved": moved(better, prior)[:, None],
            "spread": old.log_std.exp().mean(dim=1),
            "drawn": drawn,
            "improved": better.exp(),
            "old mean": old.mean,
            "old log_std": old.log_std,
            "next value": self.values_of(given["next"], following, target=True).amin(dim=0).mean(dim=1),
        }

    def divergences(self, given: Mapping[str, Tensor], out: Tensor) -> tuple[Tensor, ...]:
        """See `_Bounded.divergences`: by means, and by standard deviations, of each entry or summed."""
        old, new = self._old(given), self._normal(out)
        found = old.of_mean(new), old.of_std(new)
        return found if self.config.per_dimension else tuple(kl.sum(dim=1, keepdim=True) for kl in found)

    def values_and_targets(self, given: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """See `OffPolicyLearner.values_and_targets`."""
        target = given["reward"] + given["discount"] * given["next value"]
        return self.values_of(given["observation"], given["action"]), target

    def actor_loss(self, given: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """See `OffPolicyLearner.actor_loss`; with both divergences, summed over an action's entries."""
        out = self.answers(given["observation"])
        cost, *found = self.held(given, self.divergences(given, out), rows)
        fit = fit_loss(given["drawn"], given["improved"], self._old(given), self._normal(out))
        return fit.sum() / rows + cost, *found

    def weights(self) -> Weights:
        warm_up = torch.tensor([self.warm_up], dtype=torch.float32)
        return {**self.actor.weights(), "warm_up": warm_up.numpy()}


class DiscreteMPOLearner(_Bounded, DiscreteLearner):
    """A softmax over legal actions, of all of which critics say the worth: nothing is drawn."""

    spread = "entropy"

    def __init__(self, config: MPO, context: LearnerContext, spec: PolicySpec, start: Weights | None = None) -> None:
        super().__init__(config, context, spec, start, critics=1 + config.twin)
        self.bounded({"policy": (config.epsilon_policy, config.alpha_policy, 1)})

    def see(self, given: Mapping[str, Tensor]) -> Tensor:
        """See `_Bounded.see`."""
        return self.seen(given["observation"], given.get("mask"))[0]

    def _mask(self, given: Mapping[str, Tensor]) -> Tensor:
        return self.seen(given["observation"], given.get("mask"))[1]

    def expected(self, given: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """See `_Bounded.expected`; with the target's log-probabilities, and the weights."""
        x, legal = self.seen(given["observation"], given.get("mask"))
        old = masked_log_softmax(self.answers(x, target=True), legal)
        q = self.critics(x, target=True).amin(dim=0)
        better = improved(q, old, given[f"multiplier {_ETA}"])
        after, there = self.seen(given["next"], given.get("next_mask"))
        following = masked_log_softmax(self.answers(after, target=True), there | ~there.any(dim=1, keepdim=True))
        worth = self.critics(after, target=True).amin(dim=0)
        return {
            "moved": moved(better, old)[:, None],
            "spread": cross_entropy(old.exp(), old),
            "improved": better.exp(),
            "old": old,
            "next value": (following.exp() * worth).sum(dim=1),
        }

    def divergences(self, given: Mapping[str, Tensor], out: Tensor) -> tuple[Tensor, ...]:
        """See `_Bounded.divergences`: of all actions."""
        return (divergence(given["old"], masked_log_softmax(out, self._mask(given)))[:, None],)

    def values_and_targets(self, given: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """See `OffPolicyLearner.values_and_targets`."""
        return self.values_taken(given, self.critics(self.see(given))), self.targets(given, given["next value"])

    def actor_loss(self, given: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """See `OffPolicyLearner.actor_loss`; with the divergence."""
        out = self.answers(self.see(given))
        cost, kl = self.held(given, self.divergences(given, out), rows)
        fit = cross_entropy(given["improved"], masked_log_softmax(out, self._mask(given)))
        return fit.sum() / rows + cost, kl


def make_learner(config: MPO, context: LearnerContext, start: Weights | None = None) -> MPOLearner | DiscreteMPOLearner:
    """Make the learner of discrete actions, or of those in a box."""
    spec = config.policy(context.env, context.seats)
    cls = DiscreteMPOLearner if spec.config["action"]["kind"] == "categorical" else MPOLearner
    return cls(config, context, spec, start)
