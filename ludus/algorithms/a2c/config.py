"""A2C's settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from ludus.algorithms.base import About
from ludus.algorithms.on_policy.family import PolicyGradient
from ludus.algorithms.schedule import Schedule, Scheduled

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.algorithms.on_policy.batch import Batch


class A2C(PolicyGradient):
    """Advantage actor-critic: one step of the policy gradient for each short piece of experience (Mnih et al. 2016, in its synchronous
    form); see the README beside this file."""

    about: ClassVar[About] = replace(PolicyGradient.about, paper="Mnih et al. 2016")

    value_network: Literal["shared", "separate", "central"] = "shared"
    batch: int = Field(default=256, ge=1)  # what one update learns from, in batch_unit
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    learning_rate: Scheduled = Schedule(start=3e-3)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    correction: Literal["none", "vtrace"] = "none"  # of rows that older weights made
    normalise_advantages: bool = False

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.algorithms.losses import policy_gradient

        return policy_gradient(logp, batch.advantage)
