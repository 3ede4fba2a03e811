"""Configurations of HAPPO, HATRPO, A2PO and CoPPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from ludus.algorithms.common.base import AlgorithmInfo
from ludus.algorithms.common.config import Schedule, Scheduled
from ludus.algorithms.on_policy.config import PolicyGradient
from ludus.algorithms.ppo.config import MAPPO

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.algorithms.on_policy.batch import Batch

Order = Literal["random", "fixed", "greedy", "semi_greedy"]


class SequentialUpdateConfig(PolicyGradient):
    """Base of algorithms that update the agents of a team in turn, each from the same rows and given the updates of
    those before it. An update is a turn for every agent. Defaults are MAPPO's, except that each agent has a network.
    See `PolicyGradient` and `Gradient` for the inherited options.

    Attributes:
        share_weights: Whether agents share a network. If so, a turn moves all agents, which loses the guarantees of
            sequential updates.
        batch: Decisions of single agents per update.
        epochs: Epochs of each turn, as `minibatches`.
        order: Order of the turns: "random", "fixed", "greedy" (largest advantages first), or "semi_greedy".
    """

    about: ClassVar[AlgorithmInfo] = replace(PolicyGradient.about, paper="Kuba et al. 2022")
    model_class: ClassVar[str] = "ludus.contrib.algorithms.sequential.models:SequentialUpdateModel"
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.sequential.learner:SequentialUpdateLearner"
    for_teams: ClassVar[bool] = True  # of little use to single agents

    activation: Literal["tanh", "relu"] = "relu"
    value_network: Literal["central"] = "central"
    team_rewards: bool = True
    share_weights: bool = False
    batch: int = Field(default=3200, ge=1)
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    epochs: int = Field(default=10, ge=1)
    learning_rate: Scheduled = Schedule(start=7e-4)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    correction: Literal["none"] = "none"
    value_coefficient: float = Field(default=1.0, ge=0)
    max_gradient_norm: float = Field(default=10.0, ge=0)
    normalise_returns: bool = True
    order: Order = "random"

    @property
    def corrects(self) -> bool:
        """Return whether advantages are corrected for the updates of the agents before."""
        return False

    def clip_at(self, place: int, agents: int) -> float | None:
        """Return the clip range of a turn by its place in the order, which has `agents` turns; None: the loss has its
        own, or none."""
        return None


class HAPPO(SequentialUpdateConfig):
    """Heterogeneous-agent PPO (Kuba et al. 2022): each agent's clipped surrogate is weighted by the ratios of the
    agents that were updated before it; see the README beside this file. See `SequentialUpdateConfig` for the inherited
    options.

    Attributes:
        clip: Range ε of the ratio in the surrogate; 0.05 to 0.2.
        target_kl: A turn ends once the estimated KL divergence exceeds 1.5 × this, in nats; None: no limit.
    """

    extra_metrics: ClassVar[tuple[str, ...]] = ("clip_fraction", "others")

    clip: float = Field(default=0.2, gt=0)
    target_kl: float | None = Field(default=None, gt=0)

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.contrib.algorithms.sequential.losses import happo_surrogate

        assert batch.others is not None
        return happo_surrogate(logp, batch.logp, batch.advantage, batch.others, clip=self.clip)

    def metrics(self, logp: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        assert batch.others is not None
        outside = ((logp - batch.logp).exp() - 1.0).abs() > self.clip
        return {"clip_fraction": outside.to(logp.dtype), "others": batch.others}

    @property
    def kl_limit(self) -> float | None:
        return None if self.target_kl is None else 1.5 * self.target_kl


class HATRPO(SequentialUpdateConfig):
    """Heterogeneous-agent TRPO (Kuba et al. 2022): each agent takes one natural-gradient step on its surrogate, limited
    by the KL divergence and a line search; see the README beside this file. `epochs`, `minibatches` and `learning_rate`
    are of the critics. See `SequentialUpdateConfig` for the inherited options.

    Attributes:
        max_kl: Limit of the mean KL divergence from the policy before, in nats; 0.005 to 0.02.
        damping: Added to the diagonal of the Fisher matrix.
        conjugate_steps: Steps of conjugate gradients.
        line_search_steps: Tries of the line search.
        backtrack: Factor from one try to the next.
        accept: Least share of the gain that the gradient predicts.
    """

    model_class: ClassVar[str] = "ludus.contrib.algorithms.sequential.models:TrustRegionModel"
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.sequential.learner:TrustRegionLearner"

    entropy: Scheduled = Schedule(start=0.0)
    max_kl: float = Field(default=0.01, gt=0)
    damping: float = Field(default=0.1, ge=0)
    conjugate_steps: int = Field(default=10, ge=1)
    line_search_steps: int = Field(default=10, ge=1)
    backtrack: float = Field(default=0.8, gt=0, lt=1)
    accept: float = Field(default=0.5, ge=0, lt=1)

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.contrib.algorithms.sequential.losses import trust_region_surrogate

        assert batch.others is not None
        return trust_region_surrogate(logp, batch.logp, batch.advantage, batch.others)


class A2PO(SequentialUpdateConfig):
    """Agent-by-agent policy optimisation (Wang et al. 2023): before its turn, each agent's advantages are corrected for
    the updates of the agents before; the clip range grows from the first to the last; see the README beside this file.
    See `SequentialUpdateConfig` for the inherited options.

    Attributes:
        clip: Largest clip range, of the last agent.
        clip_base: Share of `clip` that does not depend on the place in the order; 0.5 in the paper.
        correct: Whether advantages are corrected for the agents before.
        target_kl: A turn ends once the estimated KL divergence exceeds 1.5 × this, in nats; None: no limit.
    """

    about: ClassVar[AlgorithmInfo] = replace(SequentialUpdateConfig.about, paper="Wang et al. 2023")
    takes_learned_rewards: ClassVar[bool] = False  # critics learn what is corrected, of all that is followed
    extra_metrics: ClassVar[tuple[str, ...]] = ("clip_fraction", "others")

    order: Order = "semi_greedy"
    clip: float = Field(default=0.2, gt=0)
    clip_base: float = Field(default=0.5, ge=0, le=1)
    correct: bool = True
    target_kl: float | None = Field(default=None, gt=0)

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.contrib.algorithms.sequential.losses import joint_surrogate

        assert batch.others is not None
        assert batch.clip is not None
        arguments = (logp, batch.logp, batch.advantage, batch.others)
        return joint_surrogate(*arguments, clip=batch.clip, others_clip=0.5 * batch.clip)

    def metrics(self, logp: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        assert batch.others is not None
        assert batch.clip is not None
        outside = ((logp - batch.logp).exp() - 1.0).abs() > batch.clip
        return {"clip_fraction": outside.to(logp.dtype), "others": batch.others}

    @property
    def kl_limit(self) -> float | None:
        return None if self.target_kl is None else 1.5 * self.target_kl

    @property
    def corrects(self) -> bool:
        return self.correct

    def clip_at(self, place: int, agents: int) -> float | None:
        from ludus.contrib.algorithms.sequential.losses import order_clip

        return order_clip(self.clip, base=self.clip_base, place=place, agents=agents)


class CoPPO(MAPPO):
    """Coordinated PPO (Wu et al. 2021): all agents are updated together, and the step of each depends on those of its
    teammates; see the README beside this file. See `MAPPO` and `PPO` for the inherited options.

    Attributes:
        others_clip: Clip range of the product of the teammates' ratios; 0.1 in the paper.
    """

    about: ClassVar[AlgorithmInfo] = replace(MAPPO.about, paper="Wu et al. 2021")
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.sequential.learner:CoordinatedLearner"
    extra_metrics: ClassVar[tuple[str, ...]] = ("clip_fraction", "others")

    correction: Literal["none"] = "none"
    others_clip: float = Field(default=0.1, gt=0)

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.contrib.algorithms.sequential.losses import joint_surrogate

        assert batch.others is not None
        arguments = (logp, batch.logp, batch.advantage, batch.others)
        return joint_surrogate(*arguments, clip=self.clip, others_clip=self.others_clip)

    def metrics(self, logp: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        assert batch.others is not None
        return {**super().metrics(logp, batch), "others": batch.others}
