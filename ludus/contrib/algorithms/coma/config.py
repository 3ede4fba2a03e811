"""The settings of COMA."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo, Collect
from ludus.algorithms.common.schedule import Schedule, Scheduled
from ludus.algorithms.common.space_checks import discrete, players_of
from ludus.algorithms.common.team_specs import check_state, check_team
from ludus.algorithms.on_policy.config import PolicyGradient
from ludus.core.types import EnvSpec

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.algorithms.on_policy.batch import Batch


class COMA(PolicyGradient):
    """Counterfactual multi-agent policy gradients (Foerster et al. 2018); see the README beside this file."""

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="on-policy", recurrent=True, masks=True, paper="Foerster et al. 2018"
    )
    model_class: ClassVar[str] = "ludus.contrib.algorithms.coma.learner:CounterfactualModel"
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.coma.learner:COMALearner"
    for_teams: ClassVar[bool] = True  # of little use to single agents
    takes_learned_rewards: ClassVar[bool] = (
        False  # whose second streams bring advantages, and here the critic makes them
    )

    network: Literal["mlp"] = "mlp"
    value_network: Literal["none"] = "none"  # its critic is no part of the policy
    critic_hidden: tuple[Annotated[int, Field(ge=1)], ...] = (128, 128)  # layers of the central critic
    critic_rate: Scheduled = Schedule(start=5e-4)
    critic_steps: int = Field(default=8, ge=1)  # of the critic in an update, each on such a share of its rows
    target_period: int = Field(default=4, ge=1)  # updates between copies into the critic's target
    polyak: float | None = Field(default=None, gt=0, le=1)  # instead: moves the target by this share per update

    team_rewards: bool = True
    batch: int = Field(default=32, ge=1)  # what one update learns from, in batch_unit
    learning_rate: Scheduled = Schedule(start=5e-4)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    gae_lambda: float = Field(default=0.8, ge=0, le=1)  # λ of the critic's targets
    correction: Literal["none"] = "none"  # of rows that older weights made
    max_gradient_norm: float = Field(default=10.0, ge=0)  # 0: not clipped
    normalise_advantages: bool = False

    @model_validator(mode="after")
    def _check_critic(self) -> Self:
        if self.max_lag not in (None, 0):
            raise ValueError(
                f"max_lag is {self.max_lag}, and nothing corrects rows of older weights here; give 0 or none, or use mappo"
            )
        return self

    def surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        from ludus.algorithms.common.losses import policy_gradient

        return policy_gradient(logp, batch.advantage)

    def collect(self) -> Collect:
        return replace(super().collect(), state=True)

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """As `PolicyGradient.check`; and raises ScenarioError for a compiled game, for one without a state, and for actions that are not
        discrete."""
        name = type(self).__name__
        check_team(env, algorithm=name)
        for player in players_of(env, seats):
            discrete(env, (player,), algorithm=name)
        super().check(env, seats)
        check_state(env, algorithm=f"{name}'s critic", instead="ppo with team_rewards=true, which needs none")
