"""The settings of COMA."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ludus.algorithms.common.base import AlgorithmInfo, CollectConfig
from ludus.algorithms.common.config import Schedule, Scheduled
from ludus.algorithms.common.space_checks import check_state, check_team, discrete, players_of
from ludus.algorithms.on_policy.config import PolicyGradient
from ludus.core.types import EnvSpec

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.algorithms.on_policy.batch import Batch


class COMA(PolicyGradient):
    """Counterfactual multi-agent policy gradients (Foerster et al. 2018); see the README beside this file. See
    `PolicyGradient` and `Gradient` for the inherited options.

    Attributes:
        critic_hidden: Widths of the hidden layers of the central critic; 128 in the paper.
        critic_rate: Step size of Adam for the critic.
        critic_steps: Gradient steps of the critic per update, each on an equal share of the rows.
        target_period: Updates between copies into the critic's target network.
        polyak: Share by which the target network moves per update, in place of copies; None: copies.
        batch: Episodes per update; 8 to 64.
        gae_lambda: λ of the critic's TD(λ) targets; 0.8 in the paper.
        entropy: Coefficient of the entropy bonus, which takes the place of the paper's ε-greedy behaviour.
    """

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
    value_network: Literal["none"] = "none"
    critic_hidden: tuple[Annotated[int, Field(ge=1)], ...] = (128, 128)
    critic_rate: Scheduled = Schedule(start=5e-4)
    critic_steps: int = Field(default=8, ge=1)
    target_period: int = Field(default=4, ge=1)
    polyak: float | None = Field(default=None, gt=0, le=1)

    team_rewards: bool = True
    batch: int = Field(default=32, ge=1)
    learning_rate: Scheduled = Schedule(start=5e-4)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    gae_lambda: float = Field(default=0.8, ge=0, le=1)
    correction: Literal["none"] = "none"
    max_gradient_norm: float = Field(default=10.0, ge=0)
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

    def collect(self) -> CollectConfig:
        return replace(super().collect(), state=True)

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise ScenarioError as `PolicyGradient.check` does, for a compiled game, one without a state, and actions
        that are not discrete."""
        name = type(self).__name__
        check_team(env, algorithm=name)
        for player in players_of(env, seats):
            discrete(env, (player,), algorithm=name)
        super().check(env, seats)
        check_state(env, algorithm=f"{name}'s critic", instead="ppo with team_rewards=true, which needs none")
