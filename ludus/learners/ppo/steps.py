"""PPO's gradient steps: losses of a part of the batch, summed over ranks, and Adam."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.core.errors import TrainingError
from ludus.core.types import Array
from ludus.learners.network import Passes, TrainedNetwork
from ludus.learners.optimizer import Adam
from ludus.learners.ppo.compressed import (
    CompressedRows,
    PPOLosses,
    clipped_value_loss,
    compress,
    policy_losses,
    squared_value_loss,
)
from ludus.learners.ranks import Ranks
from ludus.learners.states import compact

if TYPE_CHECKING:
    from ludus.learners.ppo.options import PPO

# --------------------------------------------------------------------------------------------------------------------
# The rows of one PPO update, and the parts of them that a step learns from.


@dataclass(frozen=True, slots=True, eq=False)
class PPOBatch:
    """n rows over m states: x float32[m, inputs], mask bool[m, A], state int32[n]; the other columns [n]. joint: the rows of all ranks,
    which means are taken over."""

    x: torch.Tensor
    mask: NDArray[np.bool_]
    state: NDArray[np.int32]
    action: Array
    logp: Array
    advantage: Array
    target: Array
    value: Array
    joint: int

    def part(self, index: NDArray[np.int64], ranks: Ranks) -> PPOBatch:
        """Of some of the rows, those of this rank: whose states are its share of the m that occur in them. Without an enumeration every
        row is a state, so that these are a share of the rows."""
        joint = len(index)
        states, state = compact(self.state[index], len(self.mask))
        if ranks.size > 1:
            share = ranks.share(len(states))
            mine = (state >= share.start) & (state < share.stop)
            index, state, states = index[mine], state[mine] - np.int32(share.start), states[share]
        rows = (self.action[index], self.logp[index], self.advantage[index], self.target[index], self.value[index])
        return PPOBatch(self.x[torch.from_numpy(states)], self.mask[states], state, *rows, joint)


Fail = Callable[[str, str], TrainingError]
SUMS = 5  # what ranks add up beside the gradient: surrogate, entropy, KL, clipped, value loss


@dataclass(frozen=True, slots=True, eq=False)
class PPOMinibatch:
    """Rows of one step, of this rank, compressed, with the buffers to pass them through the network."""

    batch: PPOBatch
    compressed: CompressedRows
    passes: Passes


@dataclass(frozen=True, slots=True)
class PPOStepResult:
    """Losses before the step (means over the rows of all ranks), and the gradient's norm before it was clipped."""

    losses: PPOLosses
    value_loss: float
    norm: float


class PPOStepper:
    """Moves `network`."""

    def __init__(self, config: PPO, network: TrainedNetwork, *, actions: int, ranks: Ranks) -> None:
        self.adam = Adam(len(network.flat))
        self._config, self._network, self._actions, self._ranks = config, network, actions, ranks
        self._value_part = "value" if config.value_network == "separate" else "policy"

    def prepare(self, batch: PPOBatch) -> PPOMinibatch:
        """Once for all steps on the same rows."""
        compressed = compress(
            batch.state,
            batch.action,
            batch.logp,
            batch.advantage,
            batch.target,
            states=len(batch.mask),
            actions=self._actions,
            rows=batch.joint,
        )
        return PPOMinibatch(batch, compressed, Passes(self._network, batch.x))

    def take(self, part: PPOMinibatch, *, rate: float, bonus: float, where: str, fail: Fail) -> PPOStepResult | None:
        """One gradient step; None if the policy has already moved beyond `target_kl`. Raises what `fail` makes of what is not finite, and
        where."""
        config, joint = self._config, self._ranks.size > 1
        part.passes.forward()
        losses, value = self._losses(part, bonus)
        if joint:  # whatever is decided below is decided alike by all ranks
            part.passes.backward()
            losses, value = self._joint(losses, value)
        if config.target_kl is not None and losses.kl > 1.5 * config.target_kl:
            return None
        for name, loss in (("policy loss", losses.surrogate), ("entropy", losses.entropy), ("value loss", value)):
            if not math.isfinite(loss):
                raise fail(f"the {name}", f"in {where}")
        if not joint:
            part.passes.backward()
        norm = self.adam.step(self._network.flat, self._network.gradient, rate=rate, max_norm=config.max_gradient_norm)
        if not math.isfinite(norm):
            raise fail("the gradient", f"in {where}")
        return PPOStepResult(losses, value, norm)

    def _losses(self, part: PPOMinibatch, bonus: float) -> tuple[PPOLosses, float]:
        """Losses of this rank's rows as shares of the joint means; their gradients go to the passes."""
        config, batch, passes = self._config, part.batch, part.passes
        losses = policy_losses(
            passes.outputs["policy"],
            batch.mask,
            part.compressed,
            clip=config.clip,
            entropy=bonus,
            gradient=passes.gradients["policy"],
        )
        out, gradient = passes.outputs[self._value_part], passes.gradients[self._value_part]
        if config.clip_value is None:
            return losses, squared_value_loss(out, part.compressed, scale=config.value_coefficient, gradient=gradient)
        return losses, clipped_value_loss(
            out,
            batch.state,
            batch.target,
            batch.value,
            clip=config.clip_value,
            scale=config.value_coefficient,
            gradient=gradient,
            rows=batch.joint,
        )

    def _joint(self, losses: PPOLosses, value: float) -> tuple[PPOLosses, float]:
        """Sums of all ranks' losses, and of their gradients in place."""
        sums = self._network.sums
        sums[:] = losses.surrogate, losses.entropy, losses.kl, losses.clipped, value
        self._ranks.sum(self._network.joint)
        surrogate, entropy, kl, clipped, value = map(float, sums)
        return PPOLosses(surrogate, entropy, kl, clipped), value
