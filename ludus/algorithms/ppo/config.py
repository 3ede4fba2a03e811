"""Configurations of PPO and MAPPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from ludus.algorithms.common.base import ROLLOUTS, AlgorithmInfo
from ludus.algorithms.common.config import Schedule, Scheduled
from ludus.algorithms.on_policy.config import PolicyGradient

__all__ = ["PPO", "ROLLOUTS"]

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.algorithms.on_policy.batch import Batch


class PPO(PolicyGradient):
    """Proximal policy optimisation (Schulman et al. 2017); see the README beside this file.

    Perceptrons with discrete actions, without memory and normalisation, are trained by CPU kernels, which are several
    times as fast (`ludus.algorithms.ppo.kernels`); everything else is trained by autograd (`needs_autograd` says why).
    The defaults suit games of some hundred to some thousand information states. See `PolicyGradient` and `Gradient` for
    the inherited options.

    Attributes:
        batch: Episodes (or decisions) per update: 750 episodes of a small game; 2,048 decisions for control.
        epochs: Passes over the batch; 30 whole-batch steps on small games, 4 to 10 with minibatches.
        learning_rate: Step size of Adam: 1e-2 for whole batches of small games; 3e-4 to 1e-3 with minibatches.
        entropy: Coefficient of the entropy bonus; it keeps alternatives alive while opponents' weak spots are unknown.
        clip: Range ε of the ratio in the surrogate; 0.1 to 0.3.
        target_kl: An update ends once the estimated KL divergence exceeds 1.5 × this, in nats; None: no limit. 0.01 to
            0.05 is usual.
        max_gradient_norm: Norm to which gradients are scaled down; 0: they are not clipped. 0.5 is usual for control.
    """

    about: ClassVar[AlgorithmInfo] = replace(PolicyGradient.about, paper="Schulman et al. 2017")
    model_class: ClassVar[str] = "ludus.algorithms.ppo.learner:make_model"
    extra_metrics: ClassVar[tuple[str, ...]] = ("clip_fraction",)

    activation: Literal["tanh", "relu"] = "relu"
    value_network: Literal["shared", "separate", "central"] = "shared"

    batch: int = Field(default=750, ge=1)
    epochs: int = Field(default=30, ge=1)

    learning_rate: Scheduled = Schedule(start=1e-2, end=0.0)
    entropy: Scheduled = Schedule(start=0.05, end=0.0)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    correction: Literal["none", "vtrace"] = "none"
    clip: float = Field(default=0.3, gt=0)
    value_coefficient: float = Field(default=1.0, ge=0)
    max_gradient_norm: float = Field(default=0.2, ge=0)
    target_kl: float | None = Field(default=None, gt=0)

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.algorithms.common.losses import ppo_surrogate

        return ppo_surrogate(logp, batch.logp, batch.advantage, clip=self.clip)

    def metrics(self, logp: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        return {"clip_fraction": (((logp - batch.logp).exp() - 1.0).abs() > self.clip).to(logp.dtype)}

    @property
    def kl_limit(self) -> float | None:
        return None if self.target_kl is None else 1.5 * self.target_kl


class MAPPO(PPO):
    """PPO for a player of several agents, whose critic sees the environment's state (Yu et al. 2022); see the README
    beside this file.

    Defaults are those of the paper's code for particle environments, except `batch`: theirs is 3,200 environment steps.
    An environment without a state is refused. See `PPO` for the inherited options.

    Attributes:
        batch: Decisions of single agents per update.
        team_rewards: Whether every agent learns from the sum of the team's rewards.
        normalise_returns: Whether rewards are divided by the deviation of returns, in place of value normalisation.
        clip: Range ε of the ratio in the surrogate; the paper uses 0.05 to 0.2, smaller in harder tasks.
    """

    about: ClassVar[AlgorithmInfo] = replace(PPO.about, paper="Yu et al. 2022")
    for_teams: ClassVar[bool] = True  # of little use to single agents

    value_network: Literal["central"] = "central"
    team_rewards: bool = True
    batch: int = Field(default=3200, ge=1)
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    epochs: int = Field(default=10, ge=1)
    learning_rate: Scheduled = Schedule(start=7e-4)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    clip: float = Field(default=0.2, gt=0)
    max_gradient_norm: float = Field(default=10.0, ge=0)
    normalise_returns: bool = True
