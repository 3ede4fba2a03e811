"""Acting on a device, all rows together, for rollouts that stay there: learners by their own networks, and policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from ludus.algorithms.common.losses import (
    CategoricalDistribution,
    Distribution,
    MultiCategoricalDistribution,
    distribution_of,
)
from ludus.backend.device import Placement
from ludus.core.types import Metrics, PolicySpec
from ludus.policies.actor_critic import TeamNetwork, agents_in, load_arrays, make_network
from ludus.policies.base import Policy
from ludus.replay.blocks import Block
from ludus.rollout.ondevice import ActingLearner, Stream


@runtime_checkable
class SupportsOnDevice(ActingLearner, Protocol):
    """A learner that can learn from experience on its device, where its policy acts, too."""

    spec: PolicySpec
    placement: Placement

    def on_device_unsupported_reason(self) -> str:
        """Return what prevents it; "": nothing."""
        ...

    def learn(self, block: Block) -> Metrics:
        """Run `items` and `update` for the block's rows, at least one. Raise TrainingError as `update` does."""
        ...


class RoundSettings(NamedTuple):
    """What the host decides of an update before it.

    Attributes:
        progress: Of the budget.
        rate: Step size.
        coefficients: Of the loss.
        seed: Of the order of rows in minibatches.
    """

    progress: float
    rate: float
    coefficients: tuple[float, ...]
    seed: int


class RoundNumbers(NamedTuple):
    """What an update leaves on the device.

    Attributes:
        numbers: float64[m], which `SupportsRounds.finish_update` takes.
        table: float32[I, A] of the new policy, as of `ActingLearner.table`. Valid until the next update.
    """

    numbers: Tensor
    table: Tensor


@runtime_checkable
class SupportsRounds(SupportsOnDevice, Protocol):
    """A learner that can do several updates on its device before anything is read."""

    def rounds_unsupported_reason(self) -> str:
        """Return what prevents it; "": nothing."""
        ...

    def round_settings(self, ahead: int, episodes: int) -> RoundSettings:
        """Return the settings of an update.

        Args:
            ahead: How many updates before it are not read yet.
            episodes: How many episodes each of them learns from.
        """
        ...

    def enqueue_update(self, block: Block, settings: RoundSettings) -> RoundNumbers:
        """Enqueue an update from a block whose rows are not counted; nothing is read."""
        ...

    def finish_update(self, settings: RoundSettings, numbers: Sequence[float], rows: int, episodes: int) -> Metrics:
        """Count the oldest update that is not finished yet, of which these numbers were read, and return its metrics. Raise TrainingError
        where something became NaN or infinite: the state is then that of before this update, and later ones do not count."""
        ...

    def snapshot(self) -> Any:
        """Return what is trained as it is now, for `restore`."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot; updates since then that are not finished do not count."""
        ...


def on_device_learner(learner: object) -> SupportsOnDevice | str:
    """Return the learner, if it can learn from experience on its device; else the reason why not."""
    if not isinstance(learner, SupportsOnDevice):
        return "its learner learns from rows in memory only"
    return learner.on_device_unsupported_reason() or learner


class DevicePolicy:
    """A policy of whole observations without memory, on a device."""

    def __init__(self, policy: Policy, mode: str, placement: Placement) -> None:
        """policy: One that `acts_on_device` accepts. placement: device and precision."""
        self._placement, device = placement, placement.torch
        self._greedy = mode == "greedy"
        self._module: torch.nn.Module | None = None
        config = policy.spec.config
        self._distribution: Distribution
        self._box: Tensor | None = None
        if policy.spec.kind == "random" and "low" in config:
            self._box = torch.tensor([config["low"], config["high"]], device=device)
            self._shape = tuple(config["shape"])
            return
        if policy.spec.kind == "random":
            choices = tuple(config.get("choices", ()))
            self._distribution = MultiCategoricalDistribution(choices) if choices else CategoricalDistribution()
            self._outputs = sum(choices) or int(config["actions"])
            self._greedy = False
            return
        module = TeamNetwork(policy.spec) if agents_in(policy.spec) > 1 else make_network(policy.spec)
        load_arrays(module, policy.weights())
        self._module, self._shape = module.to(device).eval(), module.networks[0].shape
        self._distribution = distribution_of(config["action"])

    @torch.no_grad()
    def act(self, x: Tensor, mask: Tensor | None, generator: Stream) -> Tensor:
        if self._box is not None:
            low, high = self._box
            u = torch.rand(len(x), len(low), generator=generator, device=x.device)
            return torch.minimum(low + (high - low) * u, high).view(-1, *self._shape)
        if self._module is None:
            out = torch.zeros(len(x), self._outputs, device=x.device)
        else:
            with self._placement.products():
                out = self._module.unroll(x.reshape(len(x), *self._shape).float(), None, None, None)[0]  # type: ignore[operator]
        return self._distribution.sample(out.float(), mask, generator, greedy=self._greedy)


def acts_on_device(policy: Policy, mode: str) -> bool:
    """Return whether `DevicePolicy` supports the policy."""
    config = policy.spec.config
    if policy.memory_shape is not None or mode not in ("explore", "greedy"):
        return False
    if policy.spec.kind == "random":
        return None not in (*config.get("low", ()), *config.get("high", ()))
    return policy.spec.kind == "actor_critic" and config["action"]["kind"] != "point"
