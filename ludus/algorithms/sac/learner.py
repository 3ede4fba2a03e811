"""Soft actor-critic's learners, for continuous and for discrete actions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import SquashedDistribution, masked_log_softmax
from ludus.algorithms.off_policy.learner import BoxLearner, DiscreteLearner, OffPolicyLearner
from ludus.algorithms.sac.kernels import policy_losses, soft_values, squash, squash_gradient
from ludus.backend.device import to_device, to_numpy
from ludus.backend.mlp import as_rows
from ludus.backend.network import FlatModule, ModuleAdam, NonFiniteGuard
from ludus.core.errors import TrainingError
from ludus.core.types import Array, Metrics, State, Weights
from ludus.policies.heads import Squashed, head_of
from ludus.replay.base import ItemColumns

if TYPE_CHECKING:
    from ludus.algorithms.sac.config import SAC, SACDiscrete

Rows = TypeVar("Rows", Array, Tensor)

# --------------------------------------------------------------------------------------------------------------------
# Targets and losses: pure functions of rows.


def soft_target(q: Rows, logp: Rows, reward: Rows, discount: Rows, alpha: Any) -> Rows:
    """Return reward + discount × (Q - α log π) of what follows, each float[n]. (Haarnoja et al. 2018, equations 3 and
    5.)"""
    out: Rows = reward + discount * (q - alpha * logp)
    return out


def soft_losses(logits: Tensor, mask: Tensor, q: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return Σ π (α log π - Q), the entropy -Σ π log π and log(legal actions) of each row, float[n]; 0 of a row without
    a legal action. (Christodoulou 2019, equation 12; the first is minus its equation 10, the value.)

    Args:
        logits: float[n, A].
        mask: bool[n, A].
        q: float[n, A].
        alpha: α.
    """
    some = mask.any(dim=1, keepdim=True)
    logp = masked_log_softmax(logits, mask | ~some)
    there, logp = mask & some, logp.masked_fill(~mask, 0.0)
    chance = logp.exp() * there
    legal = mask.sum(dim=1).clamp(min=1).log()
    return (chance * (alpha * logp - q)).sum(dim=1), -(chance * logp).sum(dim=1), legal


# --------------------------------------------------------------------------------------------------------------------
# What entropy is worth: fixed, or moved so that the policy's entropy goes to a target.


class Temperature:
    """α > 0, stored as its logarithm. (Haarnoja et al. 2018, section 5.)"""

    def __init__(self, start: float, *, learned: bool, device: torch.device | str = "cpu") -> None:
        self._log = FlatModule(nn.ParameterList([torch.tensor([math.log(start)])]), device=device)
        self._adam = ModuleAdam(self._log, epsilon=1e-8)
        self._learned = learned

    @property
    def value(self) -> Tensor:
        """Return α, float32[] on the device."""
        return self._log.values.exp()[0]

    @property
    def number(self) -> float:
        """Return α as a number, on a CPU."""
        return math.exp(self._log.flat[0])

    def move(self, *, entropy: float, target: float, rate: float) -> float:
        """Take, on a CPU, a step of Adam on log α × (entropy - target), equation 18 in the logarithm, as in the
        authors' code, unless it is not finite. Return its derivative. A fixed α stays."""
        self._log.gradient[0] = entropy - target
        return self._adam.step_on_cpu(rate=rate, max_norm=0.0) if self._learned else 0.0

    def descend(self, *, entropy: Tensor, target: float | Tensor, rate: float, guard: NonFiniteGuard) -> None:
        """Take the step of `move` on any device, under the guard."""
        self._log.grad.copy_(entropy - target)
        if self._learned:
            guard.step(self._adam, entropy, rate=rate, max_norm=0.0)
        else:
            guard.watch(entropy)

    def state_dict(self) -> State:
        return {"log": to_numpy(self._log.values).copy(), "adam": self._adam.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._log.values.copy_(torch.from_numpy(state["log"]))
        self._adam.load_state_dict(state["adam"])


class _EntropyTemperatureMixin(OffPolicyLearner):
    """A learner with a temperature."""

    cuda_graph_safe = True

    def make_temperature(self, config: SAC | SACDiscrete) -> None:
        """Make the temperature, once the learner has a device."""
        self._temperature = Temperature(config.temperature, learned=config.learn_temperature, device=self.device)

    def move_temperature(self, entropy: float, target: float) -> None:
        """Move the temperature. Raise TrainingError if the entropy is not finite."""
        rate = self.rate(self.config.learning_rate)
        if not math.isfinite(self._temperature.move(entropy=entropy, target=target, rate=rate)):
            raise TrainingError("the policy's entropy became NaN or infinite")

    def descend_temperature(self, entropy: Tensor, target: float | Tensor) -> None:
        """Move the temperature by autograd."""
        self._temperature.descend(entropy=entropy, target=target, rate=self._step_rates[0], guard=self.guard)

    def state_dict(self) -> State:
        return {**super().state_dict(), "temperature": self._temperature.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._temperature.load_state_dict(state["temperature"])


class SACLearner(_EntropyTemperatureMixin, BoxLearner):
    """A squashed Gaussian that follows the gradient of the minimum of its critics, and of its own entropy."""

    config: SAC

    name = "sac"

    def __init__(self, config: SAC, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        super().__init__(config, context, spec, start, critics=1 + config.twin)
        self.make_temperature(config)
        head = head_of(spec.config["action"])
        assert isinstance(head, Squashed)
        self._distribution, self._limits = SquashedDistribution(head), head.log_std
        self._target_entropy = -float(self.box.size) if config.target_entropy is None else config.target_entropy

    def autograd(self, columns: Mapping[str, Tensor], rows: int) -> Mapping[str, Tensor]:
        alpha = self._temperature.value
        batch = {**columns, "temperature": alpha}
        fitted = self.fit_modules(batch, rows)
        (entropy,) = self.improve(batch, rows)
        self.descend_temperature(entropy, self._target_entropy)
        self.critics.update_target(self.config.polyak)
        return {
            **fitted,
            "entropy": entropy,
            "temperature": alpha,
        }

    def random_columns(self, rows: int) -> Mapping[str, Tensor]:
        return {"normal": to_device(self.normals(2, rows, self.box.size), self.device)}

    def values_and_targets(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            action, logp = self._distribution.draw(self.answers(batch["next"]), batch["normal"][0])
            least = self.values_of(batch["next"], action, target=True).amin(dim=0)
            target = soft_target(least, logp, batch["reward"], batch["discount"], batch["temperature"])
        return self.values_of(batch["observation"], batch["action"]), target

    def actor_loss(self, batch: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """Return the actor's loss, and the entropy."""
        action, logp = self._distribution.draw(self.answers(batch["observation"]), batch["normal"][1])
        least = self.values_of(batch["observation"], action).min(dim=0).values
        return (batch["temperature"] * logp - least).sum() / rows, -logp.sum() / rows

    def written(self, columns: ItemColumns, rows: int) -> Metrics:
        self.place(columns)
        alpha, normal = self._temperature.number, self.normals(2, rows, self.box.size)
        logp = squash(self.actor.forward(self.next_observation_rows)[0], normal[0], self._limits, self.next_action)
        least = min_q(self.critics.forward(self.after, target=True))
        target = soft_target(least[:, 0].astype(np.float64), logp, columns["reward"], columns["discount"], alpha)
        fitted = self.fit(self.now, self.output_index, target, rows)
        entropy = self._improve(normal[1], alpha, rows)
        self.move_temperature(entropy, self._target_entropy)
        self.critics.update_target(self.config.polyak)
        return {
            **fitted,
            "entropy": entropy,
            "temperature": alpha,
        }

    def _improve(self, normal: Array, alpha: float, rows: int) -> float:
        """Take one step of the actor. Return its entropy before."""
        actor, critics = self.actor, self.critics
        out = actor.forward(self.observation_rows)[0]
        logp = squash(out, normal, self._limits, self.action)
        values = critics.forward(self.now)
        least = min_q(values)
        for q, gradient in zip(values, critics.gradients, strict=True):
            gradient[:] = q == least
        if len(values) == 2:  # where both are equal, the first counts
            critics.gradients[1][:] = 1.0 - critics.gradients[0]
        squash_gradient(
            out, normal, self._limits, self.action, self.action_grad(), alpha, max(1, rows), actor.gradients[0]
        )
        actor.sums[:2] = (alpha * logp - least[:, 0]).sum() / max(1, rows), -logp.sum() / max(1, rows)
        actor.backward(self.observation_rows)
        self.step_actor()
        return float(actor.sums[1])

    def weights(self) -> Weights:
        return {**self.actor.weights(), "warm_up": np.array([self.warm_up], np.float32)}


def min_q(values: Sequence[Array]) -> Array:
    """Return the minimum of two critics' values, or the only one's."""
    return values[0].copy() if len(values) == 1 else np.minimum(values[0], values[1])


class SACDiscreteLearner(_EntropyTemperatureMixin, DiscreteLearner):
    """A softmax policy over legal actions; critics evaluate all actions, so that expectations are sums and nothing is
    sampled."""

    config: SACDiscrete

    name = "sac discrete"

    def __init__(self, config: SACDiscrete, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        super().__init__(config, context, spec, start, critics=1 + config.twin)
        self.make_temperature(config)

    def _inputs_and_masks(self, observation: Array, mask: Array | None) -> tuple[Tensor, NDArray[np.bool_]]:
        """Return `inputs_and_masks` of arrays."""
        if self.states is not None:
            ids = np.maximum(observation - self.states.base, 0)
            return self.states.x[torch.from_numpy(ids.astype(np.int64))], self.states.mask[ids]
        if mask is None:
            mask = np.ones((len(observation), self.outputs), np.bool_)
        return as_rows(observation, self.features), mask

    # ------------------------------------------------------------------------------------------ learning

    def autograd(self, columns: Mapping[str, Tensor], rows: int) -> Mapping[str, Tensor]:
        alpha = self._temperature.value
        batch = {**columns, "temperature": alpha}
        fitted = self.fit_modules(batch, rows)
        entropy, most = self.improve(batch, rows)
        target_entropy = self.config.target_entropy * most
        self.descend_temperature(entropy, target_entropy)
        self.critics.update_target(self.config.polyak)
        return {
            **fitted,
            "entropy": entropy,
            "target_entropy": target_entropy,
            "temperature": alpha,
        }

    def values_and_targets(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        x, _ = self.inputs_and_masks(batch["observation"], batch.get("mask"))
        after, legal = self.inputs_and_masks(batch["next"], batch.get("next_mask"))
        with torch.no_grad():
            least = self.critics(after, target=True).amin(dim=0)
            value = -soft_losses(self.answers(after), legal, least, batch["temperature"])[0]
        return self.gather_values(batch, self.critics(x)), self.targets(batch, value)

    def actor_loss(self, batch: Mapping[str, Tensor], rows: int) -> tuple[Tensor, ...]:
        """Return the actor's loss, the entropy, and the largest possible one."""
        x, mask = self.inputs_and_masks(batch["observation"], batch.get("mask"))
        with torch.no_grad():
            least = self.critics(x).amin(dim=0)
        return tuple(part.sum() / rows for part in soft_losses(self.answers(x), mask, least, batch["temperature"]))

    def written(self, columns: ItemColumns, rows: int) -> Metrics:
        alpha, config, actor, critics = (
            self._temperature.number,
            self.config,
            self.actor,
            self.critics,
        )
        x, mask = self._inputs_and_masks(columns["observation"], columns.get("mask"))
        after, after_mask = self._inputs_and_masks(columns["next"], columns.get("next_mask"))
        discount = columns["discount"]
        if self.states is not None:
            discount = np.where(columns["next"] < 0, 0.0, discount)
        least = min_q(critics.forward(after, target=True))
        value = soft_values(actor.forward(after)[0], after_mask, least, alpha)
        fitted = self.fit(x, columns["action"], columns["reward"] + discount * value, rows)

        least = min_q(critics.forward(x))
        actor.sums[:] = policy_losses(actor.forward(x)[0], mask, least, alpha, max(1, rows), actor.gradients[0])
        actor.backward(x)
        self.step_actor()
        _, entropy, most = map(float, actor.sums)
        target_entropy = config.target_entropy * most
        self.move_temperature(entropy, target_entropy)
        critics.update_target(config.polyak)
        return {
            **fitted,
            "entropy": entropy,
            "target_entropy": target_entropy,
            "temperature": alpha,
        }
