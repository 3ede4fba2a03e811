"""Configurations of soft actor-critic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo
from ludus.algorithms.common.space_checks import discrete, players_of
from ludus.algorithms.off_policy.config import BoxOffPolicy, OffPolicy, seeing_policy
from ludus.core.config import refuse_unread
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.specs import Body


class SAC(BoxOffPolicy):
    """Soft actor-critic with a learned temperature (Haarnoja et al. 2018, "Soft actor-critic algorithms and
    applications"); see the README beside it. See `BoxOffPolicy` and `OffPolicy` for the inherited options.

    Attributes:
        twin: Whether there are two critics, whose minimum targets and the actor use, against overestimation.
        temperature: α, the value of entropy in scaled rewards; its initial value if it is learned.
        learn_temperature: Whether α is adjusted so that the entropy approaches `target_entropy`.
        target_entropy: Target in nats, of actions in [-1, 1]; None: minus the number of entries of an action, as in the
            paper.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("box",), data="off-policy", recurrent=False, masks=False, paper="Haarnoja et al. 2018"
    )
    learner_class: ClassVar[str] = "ludus.algorithms.sac.learner:SACLearner"
    head: ClassVar[Mapping[str, Any]] = {"kind": "tanh", "log_std": [-20.0, 2.0], "warm_up": True}

    twin: bool = True
    temperature: float = Field(default=1.0, gt=0)
    learn_temperature: bool = True
    target_entropy: float | None = None

    @model_validator(mode="after")
    def _check_read(self) -> Self:
        refuse_unread(self, {"target_entropy": (self.learn_temperature, "learn_temperature=true")})
        return self


class SACDiscrete(OffPolicy):
    """Soft actor-critic for discrete actions (Christodoulou 2019), masked or not; see the README beside it. See
    `OffPolicy` for the inherited options.

    Attributes:
        network: Body of the actor and of each critic: "mlp", "nature", "impala", or a custom module `module:Class`.
        twin: Whether there are two critics, whose minimum targets and the actor use.
        temperature: α, the value of entropy in scaled rewards; its initial value if it is learned.
        learn_temperature: Whether α is adjusted so that the entropy approaches `target_entropy`.
        target_entropy: Share of the uniform policy's entropy over each state's legal actions; 0.2 to 0.98. The paper
            uses 0.98; 0.5 lets policies become decisive.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="off-policy", recurrent=False, masks=True, paper="Christodoulou 2019"
    )
    learner_class: ClassVar[str] = "ludus.algorithms.sac.learner:SACDiscreteLearner"

    network: Body = "mlp"
    twin: bool = True
    temperature: float = Field(default=1.0, gt=0)
    learn_temperature: bool = True
    target_entropy: float = Field(default=0.5, ge=0, le=1)

    @model_validator(mode="after")
    def _check_read(self) -> Self:
        refuse_unread(self, {"target_entropy": (self.learn_temperature, "learn_temperature=true")})
        return self

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError if a player's actions are not discrete."""
        for player in players_of(env, seats):
            self.policy(env, (player,))

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        _, actions = discrete(env, seats, algorithm=type(self).__name__)
        return seeing_policy(self, {"kind": "categorical", "actions": actions}, env, seats, network=self.network)
