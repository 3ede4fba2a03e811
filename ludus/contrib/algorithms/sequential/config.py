"""The settings of HAPPO, HATRPO, A2PO and CoPPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from ludus.algorithms.common.base import AlgorithmInfo
from ludus.algorithms.common.schedule import Schedule, Scheduled
from ludus.algorithms.on_policy.config import PolicyGradient
from ludus.algorithms.ppo.config import MAPPO

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.algorithms.on_policy.batch import Batch

Order = Literal["random", "fixed", "greedy", "semi_greedy"]


class AgentByAgent(PolicyGradient):
    """Base of algorithms that update one agent of a team after the other, each from the same rows and told what has become of those before
    it. An update is a turn for every agent. Defaults are MAPPO's, but for networks: one for each agent."""

    about: ClassVar[AlgorithmInfo] = replace(PolicyGradient.about, paper="Kuba et al. 2022")
    model_class: ClassVar[str] = "ludus.contrib.algorithms.sequential.models:TurnModel"
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.sequential.learner:TurnLearner"
    for_teams: ClassVar[bool] = True  # of little use to single agents

    activation: Literal["tanh", "relu"] = "relu"
    value_network: Literal["central"] = "central"
    team_rewards: bool = True
    share_weights: bool = False  # yes: a turn moves all agents at once, and what is guaranteed of turns is lost
    batch: int = Field(default=3200, ge=1)  # what one update learns from, in batch_unit
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    epochs: int = Field(default=10, ge=1)  # of each turn, as minibatches
    learning_rate: Scheduled = Schedule(start=7e-4)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    correction: Literal["none"] = "none"
    value_coefficient: float = Field(default=1.0, ge=0)
    max_gradient_norm: float = Field(default=10.0, ge=0)  # 0: not clipped
    normalise_returns: bool = True
    order: Order = "random"  # of turns

    @property
    def corrects(self) -> bool:
        """Whether advantages are corrected for what the agents before have become."""
        return False

    def clip_at(self, place: int, agents: int) -> float | None:
        """The clip range of the turn that is the `place`-th of so many; None: the loss has one of its own, or none."""
        return None


class HAPPO(AgentByAgent):
    """Heterogeneous-agent PPO (Kuba et al. 2022): each agent's clipped surrogate is weighted by the ratios of the agents that were updated
    before it; see the README beside this file."""

    extra_metrics: ClassVar[tuple[str, ...]] = ("clip_fraction", "others")

    clip: float = Field(default=0.2, gt=0)
    target_kl: float | None = Field(default=None, gt=0)  # of each turn

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


class HATRPO(AgentByAgent):
    """Heterogeneous-agent TRPO (Kuba et al. 2022): each agent takes one natural-gradient step on its surrogate, as far as a limit on the KL
    divergence and a line search let it; see the README beside this file.

    `epochs`, `minibatches` and `learning_rate` are of the critics."""

    model_class: ClassVar[str] = "ludus.contrib.algorithms.sequential.models:TrustRegionModel"
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.sequential.learner:TrustRegionLearner"

    entropy: Scheduled = Schedule(start=0.0)
    max_kl: float = Field(default=0.01, gt=0)  # nats from the policy before, mean over an agent's rows
    damping: float = Field(default=0.1, ge=0)  # added to the Fisher matrix's diagonal
    conjugate_steps: int = Field(default=10, ge=1)
    line_search_steps: int = Field(default=10, ge=1)
    backtrack: float = Field(default=0.8, gt=0, lt=1)  # from one try of the line search to the next
    accept: float = Field(default=0.5, ge=0, lt=1)  # least share of the gain that the slope promises

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.contrib.algorithms.sequential.losses import trust_region_surrogate

        assert batch.others is not None
        return trust_region_surrogate(logp, batch.logp, batch.advantage, batch.others)


class A2PO(AgentByAgent):
    """Agent-by-agent policy optimisation (Wang et al. 2023): before its turn, each agent's advantages are corrected for what the agents
    before it have become; the clip range grows from the first to the last; see the README beside this file."""

    about: ClassVar[AlgorithmInfo] = replace(AgentByAgent.about, paper="Wang et al. 2023")
    takes_learned_rewards: ClassVar[bool] = False  # critics learn what is corrected, of all that is followed
    extra_metrics: ClassVar[tuple[str, ...]] = ("clip_fraction", "others")

    order: Order = "semi_greedy"
    clip: float = Field(default=0.2, gt=0)
    clip_base: float = Field(
        default=0.5, ge=0, le=1
    )  # share of `clip` that does not depend on an agent's place in the order
    correct: bool = True  # advantages, for the agents before
    target_kl: float | None = Field(default=None, gt=0)  # of each turn

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
    """Coordinated PPO (Wu et al. 2021): all agents are updated at once, and how far each goes depends on how far its teammates have gone;
    see the README beside this file."""

    about: ClassVar[AlgorithmInfo] = replace(MAPPO.about, paper="Wu et al. 2021")
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.sequential.learner:CoordinatedLearner"
    extra_metrics: ClassVar[tuple[str, ...]] = ("clip_fraction", "others")

    correction: Literal["none"] = "none"
    others_clip: float = Field(default=0.1, gt=0)  # of the product of teammates' ratios

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.contrib.algorithms.sequential.losses import joint_surrogate

        assert batch.others is not None
        arguments = (logp, batch.logp, batch.advantage, batch.others)
        return joint_surrogate(*arguments, clip=self.clip, others_clip=self.others_clip)

    def metrics(self, logp: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        assert batch.others is not None
        return {**super().metrics(logp, batch), "others": batch.others}
