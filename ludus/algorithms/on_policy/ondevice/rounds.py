"""Updates of which nothing is read until several are on their way: the whole of one, from a `Block` whose rows are not counted to numbers
that stay on the device, is one CUDA graph on a GPU.

block, settings --rows of weight 0 or 1 / n, advantages, all epochs--> numbers float64[m], table of the new policy     (one launch)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ludus.algorithms.common.device_policy import RoundNumbers
from ludus.algorithms.common.returns import normalize_advantages
from ludus.algorithms.on_policy.autograd_model import TorchModel
from ludus.algorithms.on_policy.model import Model, OnPolicyConfig
from ludus.envs.tree.stepping import keys, uniform_bits
from ludus.replay.blocks import Block

if TYPE_CHECKING:
    from ludus.algorithms.on_policy.ondevice.learning import OnDeviceBatcher


def rounds_unsupported_reason(model: Model, config: OnPolicyConfig) -> str:
    """Return why an update is read before the next one; "": it need not be."""
    if not isinstance(model, TorchModel) or model.table is None:
        return "its steps are no graphs"
    why = {
        "its steps are no graphs": not (model.uses_cuda_graph and model.small),
        "kl_limit is looked at after each epoch": config.kl_limit is not None,
        "statistics are updated in memory": model.has_statistics,
        "V-trace corrects its rows": config.correction != "none",
        "rewards are added up over a team": config.team_rewards,
        "its networks draw random numbers": model.draws,
    }
    return next((reason for reason, there in why.items() if there), "")


def round_update(
    model: TorchModel,
    batcher: OnDeviceBatcher,
    block: Block,
    rate: float,
    coefficients: tuple[float, ...],
    seed: Tensor,
) -> RoundNumbers:
    """Run an update; a function of tensors on the device, which reads nothing. Its numbers: of the last step the loss, the values of
    `Model.names` and the norm of the gradient; whether something was not finite; the variances of the value targets, and of what values
    left of them.

    Args:
        model: What is trained.
        batcher: Of the model.
        block: Whose rows are not counted.
        rate: As of `RoundSettings`.
        coefficients: As of `RoundSettings`.
        seed: int64[], as of `RoundSettings`.
    """
    config = model.config
    batch, _ = batcher.batch(block, 0.0)
    weight = batch.weight
    assert weight is not None
    if config.normalise_advantages:
        valid = (weight > 0).double()
        batch = replace(batch, advantage=normalize_advantages(batch.advantage.double(), valid).float())
    index = minibatches(weight > 0, seed, epochs=config.epochs, count=config.minibatches)
    stats = model.take_steps(batch, index, rate, coefficients, config.epochs)
    spread = [_variance(x, weight) for x in (batch.target, batch.target - batch.value)]
    return RoundNumbers(torch.cat([stats.double(), torch.stack(spread)]), batcher.table())


def minibatches(valid: Tensor, seed: Tensor, *, epochs: int, count: int) -> Tensor | None:
    """Return int64[epochs × count, n], the rows of each step (`Epochs`): in each epoch all valid ones, shuffled, in `count` minibatches
    whose sizes differ by one at most. None for one minibatch: the whole batch.

    Args:
        valid: bool[N]; the valid ones are first.
        seed: int64[], by which rows are shuffled, the same on every device.
        epochs: Passes over the rows.
        count: Minibatches of an epoch.
    """
    if count < 2:
        return None
    rows, device = torch.arange(len(valid), device=valid.device), valid.device
    epoch = torch.arange(epochs, device=device)[:, None]
    bits = torch.where(valid, uniform_bits(keys(seed.to(device), epoch), rows), 1 << 53)
    order = bits.argsort(dim=1, stable=True)
    number, part = valid.sum(), torch.arange(count, device=device)
    size = number // count + (part < number % count)
    place = torch.arange(-(-len(valid) // count), device=device)
    where = (size.cumsum(0) - size)[:, None] + place
    index = order[:, where.clamp(max=len(valid) - 1)]
    return torch.where(place < size[:, None], index, -1).flatten(0, 1)


def _variance(x: Tensor, weight: Tensor) -> Tensor:
    """Return the variance float64[] of numbers [n] with weights whose sum is 1."""
    x, weight = x.double(), weight.double()
    return (weight * (x - (weight * x).sum()).square()).sum()
