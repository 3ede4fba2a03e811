"""DDPG's and TD3's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from ludus.core.types import Weights
from ludus.learners.base import AlgorithmInfo, Learner, LearnerContext
from ludus.learners.off_policy.options import BoxOffPolicy
from ludus.learners.schedule import Schedule, Scheduled


class DDPG(BoxOffPolicy):
    """Deep deterministic policy gradient (Lillicrap et al. 2016), with TD3's parts as switches; see the README beside it."""

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("box",), data="off-policy", recurrent=False, masks=False, paper="Lillicrap et al. 2016"
    )

    head: ClassVar[Mapping[str, Any]] = {"kind": "point"}

    learning_rate: Scheduled = Schedule(start=1e-3)
    noise: Scheduled = Schedule(start=0.1)  # standard deviation of exploration, in actions of [-1, 1]
    twin: bool = False  # two critics; targets take the smaller one's value
    policy_delay: int = Field(default=1, ge=1)  # updates of the critics for each of the actor and the targets
    target_noise: float = Field(
        default=0.0, ge=0
    )  # standard deviation that target actions are smoothed with; 0: not at all
    target_clip: float = Field(default=0.5, gt=0)  # the most that they are moved by

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        from ludus.learners.ddpg.learner import DDPGLearner  # a scenario can be read without loading torch

        return DDPGLearner(self, context, start)


class TD3(DDPG):
    """Twin delayed DDPG (Fujimoto, van Hoof and Meger 2018): DDPG with all its switches on."""

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("box",), data="off-policy", recurrent=False, masks=False, paper="Fujimoto et al. 2018"
    )

    twin: bool = True
    policy_delay: int = Field(default=2, ge=1)
    target_noise: float = Field(default=0.2, ge=0)
