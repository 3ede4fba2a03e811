"""REINFORCE's settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, model_validator

from ludus.algorithms.base import About
from ludus.algorithms.on_policy.family import PolicyGradient
from ludus.algorithms.schedule import Schedule, Scheduled
from ludus.policies.specs import Value

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.algorithms.on_policy.batch import Batch


class Reinforce(PolicyGradient):
    """Monte Carlo policy gradient (Williams 1992); see the README beside this file.

    Without a value network (the default) the returns of a batch are compared with their mean; `value_network` shared or separate learns a
    baseline. Whole episodes are collected, since only a value could stand in for the rest of one that is cut."""

    about: ClassVar[About] = replace(PolicyGradient.about, paper="Williams 1992")

    value_network: Value = "none"
    batch: int = Field(default=100, ge=1)  # what one update learns from, in batch_unit
    batch_unit: Literal["episodes"] = "episodes"
    learning_rate: Scheduled = Schedule(start=3e-3)
    gae_lambda: float = Field(default=1.0, ge=1, le=1)  # returns, not estimates of them
    correction: Literal["none", "vtrace"] = "none"  # of rows that older weights made; vtrace wants a value network

    @model_validator(mode="after")
    def _check(self) -> Reinforce:
        if self.correction == "vtrace" and self.value_network == "none":
            raise ValueError("V-trace corrects values; give value_network shared or separate, or correction none")
        return self

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.algorithms.losses import policy_gradient

        return policy_gradient(logp, batch.advantage)
